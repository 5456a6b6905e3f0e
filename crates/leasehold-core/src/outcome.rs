//! What a run may end in, and failures as plain data, because they outlive the process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::JsonObject;
use crate::names::NameError;
use crate::text::ShortText;

/// A stable, machine-readable reason: lower snake case or a registered error's class name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailureCode(Arc<str>);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &'static str = $text;)*

        /// Every code of Leasehold's own: a handler may not report one of them as its own.
        pub const RESERVED: &'static [&'static str] = &[$($text),*];
    };
}

impl FailureCode {
    codes! {
        /// The handler returned an error.
        HANDLER_ERROR = "handler_error";
        /// The handler panicked.
        PANICKED = "panicked";
        /// The run took longer than its time limit.
        TIMED_OUT = "timed_out";
        /// The lease ran out: its worker died, froze, or was cut off.
        LEASE_EXPIRED = "lease_expired";
        /// The handler refused the item for good.
        REFUSED = "refused";
        /// The payload does not fit the kind's shape.
        PAYLOAD_INVALID = "payload_invalid";
        /// The handler's result is no JSON object, or too large.
        RESULT_INVALID = "result_invalid";
        /// A person cancelled it.
        CANCELLED = "cancelled";
        /// Its org is gone.
        ORPHANED = "orphaned";
        /// A command ended by a signal, or with a code that means nothing.
        SUBPROCESS_CRASH = "SubprocessCrashError";
        /// What a command wrote is not what the protocol asks for.
        MALFORMED_OUTPUT = "MalformedSubprocessOutput";
        /// A command reported an error that its kind has not registered.
        UNKNOWN_ERROR = "UnknownSubprocessError";
        /// A command could not be started.
        SPAWN_FAILED = "SpawnFailed";
        /// A command wrote more than it may.
        OUTPUT_TOO_LARGE = "OutputTooLarge";
        /// The request cannot be handed over the way its kind asks for.
        REQUEST_TOO_LARGE = "RequestTooLarge";
        /// A message is none that the source knows.
        MALFORMED_MESSAGE = "MalformedMessage";
        /// A task token was stale; nothing is reported.
        ABORTED_STALE_TASK = "AbortedStaleTask";
        /// A task ran longer than it may.
        PROCESSING_TIMEOUT = "ProcessingTimeout";
        /// A shutdown cut a task short.
        WORKER_STOPPING = "WorkerStopping";
        /// A handler parked a task, which has nowhere to wait.
        PARKED = "Parked";
        /// A task was handed back for another reason than a shutdown.
        RELEASED = "Released";
    }

    /// Parses a code: 1 to 64 bytes of letters, digits and `_`, beginning with a letter.
    ///
    /// # Errors
    /// [`NameError`] names the rule.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let valid = text.len() <= 64
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if valid {
            Ok(Self(Arc::from(text)))
        } else {
            Err(NameError::new(
                "failure code",
                text,
                "use 1 to 64 bytes of letters, digits and _, beginning with a letter",
            ))
        }
    }

    /// One of the codes of Leasehold's own.
    pub fn own(text: &'static str) -> Self {
        Self(Arc::from(text))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an item that failed with it is a dead letter, to be audited and counted.
    pub fn makes_dead_letter(&self) -> bool {
        !matches!(self.as_str(), Self::CANCELLED | Self::ORPHANED)
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Serialize for FailureCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FailureCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub code: FailureCode,
    /// For people.
    pub message: ShortText,
    /// `false` makes the item a dead letter at once, whatever attempts are left.
    pub retryable: bool,
}

impl Failure {
    /// A failure that may be tried again, under one of the codes of [`FailureCode`].
    pub fn own(code: &'static str, message: impl Into<ShortText>) -> Self {
        Self {
            code: FailureCode::own(code),
            message: message.into(),
            retryable: true,
        }
    }

    /// The same failure, not to be tried again.
    pub fn for_good(self) -> Self {
        Self {
            retryable: false,
            ..self
        }
    }

    /// As it stands in a row's `last_error` and `errors`.
    pub fn to_text(&self) -> ShortText {
        ShortText::new(format!("{}: {}", self.code, self.message))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// What a handler's run ended in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an outcome that is dropped leaves its item to expire"]
pub enum Outcome {
    /// The work is done.
    Done {
        /// Kept on the item.
        result: Option<JsonObject>,
    },
    /// The attempt is spent; tried again after a growing delay, or a dead letter.
    Failed {
        /// Why.
        failure: Failure,
        /// Try no sooner than this. Never shortens the policy's delay.
        retry_after: Option<Duration>,
    },
    /// A guard held it back: no attempt is spent.
    Parked {
        /// What it waits for.
        reason: ShortText,
        /// When to look again; at least a second.
        resume_after: Duration,
    },
    /// It can never be done: a dead letter at once.
    Refused {
        /// Why not.
        reason: ShortText,
    },
    /// Handed back, for another worker to take: no attempt is spent.
    Released {
        /// Why.
        note: ShortText,
    },
}

impl Outcome {
    /// Done, with nothing to keep.
    pub const fn done() -> Self {
        Self::Done { result: None }
    }

    /// Failed, tried again after the policy's delay.
    pub const fn failed(failure: Failure) -> Self {
        Self::Failed {
            failure,
            retry_after: None,
        }
    }
}
