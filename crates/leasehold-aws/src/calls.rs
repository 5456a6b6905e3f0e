//! What is asked of the three services, and what their answers mean to a caller.
//!
//! The traits are narrow on purpose: the AWS SDK stands behind two of them, an HTTP endpoint behind the
//! third, and strict fakes behind all three in tests. Each call is bounded in time by its implementor.
//! Dropping a call's future leaves open whether it took place.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::token::TaskToken;

/// The queue that a state machine sends its tasks to.
#[async_trait]
pub trait Queue: Send + Sync + Debug + 'static {
    /// Up to `count` messages, 1 to 10, waiting up to `wait` for the first.
    ///
    /// Must not be dropped before it has ended: what it brought would stay invisible for a while.
    async fn receive(&self, count: u32, wait: Duration) -> Result<Vec<Message>, QueueError>;

    /// Deletes a message. Asked again safely.
    async fn delete(&self, receipt: &Receipt) -> Result<(), QueueError>;

    /// Makes a message visible to all again.
    async fn release(&self, receipt: &Receipt) -> Result<(), QueueError>;

    /// How the queue is set up.
    async fn attributes(&self) -> Result<QueueAttributes, QueueError>;
}

/// A message as it was received.
#[derive(Clone)]
pub struct Message {
    /// The queue's name of it, which may be logged.
    pub id: String,
    /// With which this delivery of it is deleted or released.
    pub receipt: Receipt,
    /// What was sent.
    pub body: String,
    /// How often it was delivered, this time included, as far as the queue knows.
    pub deliveries: u32,
}

impl Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The body holds the task token.
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("bytes", &self.body.len())
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

/// Names one delivery of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt(pub String);

/// What of a queue's set-up matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueAttributes {
    /// How long a received message stays invisible unless it is deleted.
    pub visibility: Duration,
    /// How long a message is kept.
    pub retention: Duration,
    /// After how many deliveries it goes to a queue for dead letters, if there is one.
    pub deliveries_max: Option<u32>,
    /// First in, first out.
    pub is_fifo: bool,
}

/// Why the queue did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The delivery is over: the message may be somebody else's by now. Leave it alone.
    #[error("the delivery of the message is over ({code})")]
    NotOurs {
        /// The service's word.
        code: String,
    },
    /// There is no such queue, or this process may not use it. A person has to look.
    #[error("the queue cannot be used ({code})")]
    Unusable {
        /// The service's word.
        code: String,
    },
    /// It was certainly not done, and may be later.
    #[error("the queue refuses for now ({code})")]
    Busy {
        /// The service's word.
        code: String,
    },
    /// No answer: it may have been done.
    #[error("the queue gave no answer ({reason})")]
    Unknown {
        /// What was seen.
        reason: String,
    },
}

impl QueueError {
    /// What an error code of the service means.
    pub fn of_code(code: &str) -> Self {
        let name = code.rsplit(['.', '#']).next().unwrap_or(code);
        let code = code.to_owned();
        match name {
            "ReceiptHandleIsInvalid"
            | "InvalidParameterValue"
            | "InvalidIdFormat"
            | "MessageNotInflight" => Self::NotOurs { code },
            "NonExistentQueue"
            | "QueueDoesNotExist"
            | "InvalidAddress"
            | "AccessDenied"
            | "AccessDeniedException"
            | "KmsAccessDenied"
            | "KmsDisabled"
            | "KmsNotFound"
            | "UnsupportedOperation" => Self::Unusable { code },
            "InternalError" | "InternalFailure" | "ServiceUnavailable" => {
                Self::Unknown { reason: code }
            }
            _ => Self::Busy { code },
        }
    }
}

/// The tasks of the state machines.
#[async_trait]
pub trait Tasks: Send + Sync + Debug + 'static {
    /// Says that the task is being worked on.
    async fn heartbeat(&self, token: &TaskToken) -> Result<(), TaskError>;

    /// Ends the task with a result, which is JSON.
    async fn succeed(&self, token: &TaskToken, output: &str) -> Result<(), TaskError>;

    /// Ends the task with an error.
    async fn fail(&self, token: &TaskToken, error: &str, cause: &str) -> Result<(), TaskError>;
}

/// Why a word about a task was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The token is dead: its task was closed, timed out, or there never was one. Stop, and say no more.
    #[error("the task is closed ({code})")]
    Stale {
        /// The service's word.
        code: String,
    },
    /// What was sent will never be accepted.
    #[error("the report was refused ({code})")]
    Refused {
        /// The service's word.
        code: String,
    },
    /// It was certainly not accepted, and may be later: throttled, or this process may not speak now.
    #[error("the service refuses for now ({code})")]
    Busy {
        /// The service's word.
        code: String,
    },
    /// No answer: it may have been accepted.
    #[error("the service gave no answer ({reason})")]
    Unknown {
        /// What was seen.
        reason: String,
    },
}

impl TaskError {
    /// What an error code of the service means. Whole codes alone count: `ExpiredTokenException` and
    /// `InvalidClientTokenId` are about this process's credentials, and no reason to stop a healthy run.
    pub fn of_code(code: &str) -> Self {
        let name = code.rsplit('#').next().unwrap_or(code);
        let code = code.to_owned();
        match name {
            "TaskTimedOut" | "TaskDoesNotExist" | "InvalidToken" => Self::Stale { code },
            "InvalidOutput" | "ValidationException" | "ValidationError" => Self::Refused { code },
            "InternalFailure"
            | "InternalServerError"
            | "InternalError"
            | "ServiceUnavailable"
            | "ServiceUnavailableException" => Self::Unknown { reason: code },
            _ => Self::Busy { code },
        }
    }
}

/// The platform's agent, which keeps a process from being stopped when there are too many of them.
#[async_trait]
pub trait Agent: Send + Sync + Debug + 'static {
    /// Asks for protection for so many minutes, 1 to 2,880, from now. Asking again renews it.
    async fn protect(&self, minutes: u32) -> Result<Protected, AgentError>;

    /// Gives it up.
    async fn unprotect(&self) -> Result<(), AgentError>;
}

/// What the agent confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    /// By the platform's calendar.
    pub until: Timestamp,
    /// Which task is protected.
    pub task: String,
}

/// Why there is no protection, or none that is known of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It was refused, and asking at once again would not help.
    #[error("refused: {reason}")]
    Refused {
        /// The platform's word, such as `DEPLOYMENT_BLOCKED`.
        reason: String,
    },
    /// It was not looked at: too many ask. Ask again in a moment.
    #[error("throttled: {reason}")]
    Throttled {
        /// The platform's word.
        reason: String,
    },
    /// No answer, or one that cannot be read: it may have been done. Ask again.
    #[error("no answer: {reason}")]
    Unknown {
        /// What was seen.
        reason: String,
    },
}

#[cfg(test)]
mod tests;
