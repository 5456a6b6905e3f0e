//! Handlers: what runs an item, what it is given, and what it may answer.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::work::Claimed;
use leasehold_core::{
    Failure, FailureCode, JsonObject, OpContext, Outcome, Progress, ShortText, WorkItem,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::work::Work;
use crate::worker::holdings::Place;

/// Runs items of one kind. A plain `async fn(W, Run)` is one; a struct with state may be one.
///
/// A run's lifetime is bounded by its lease: when [`Run::cancelled`] completes, the handler should
/// return soon; it is dropped at its next await otherwise. Code that never awaits cannot be stopped
/// inside its process: run such work as a subprocess, or on a blocking thread that watches the token.
///
/// Execution is at least once. Key every outside effect by [`Run::item`]'s id, or guard it with
/// [`Run::fence`].
pub trait Handler<W: Work>: Send + Sync + 'static {
    /// What it answers.
    type Output: IntoOutcome;

    /// Runs one item.
    fn run(&self, work: W, run: Run) -> impl Future<Output = Self::Output> + Send;
}

impl<W, F, Answer, Output> Handler<W> for F
where
    W: Work,
    F: Fn(W, Run) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Output> + Send,
    Output: IntoOutcome,
{
    type Output = Output;

    fn run(&self, work: W, run: Run) -> impl Future<Output = Output> + Send {
        self(work, run)
    }
}

/// What a handler is given beside its payload. Cheap to clone.
#[derive(Clone)]
pub struct Run {
    inner: Arc<Inner>,
}

struct Inner {
    context: OpContext,
    claimed: Arc<Claimed>,
    cancel: CancellationToken,
    /// `None` in a handler's own tests.
    place: Option<Place>,
}

impl Run {
    pub(crate) fn new(
        context: OpContext,
        claimed: Arc<Claimed>,
        cancel: CancellationToken,
        place: Place,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                context,
                claimed,
                cancel,
                place: Some(place),
            }),
        }
    }

    /// A run for a handler's own tests: nothing claims it, and its progress goes nowhere.
    pub fn for_test(context: OpContext, item: WorkItem) -> Self {
        let claimed = Arc::new(Claimed {
            org_id: context.org_id(),
            item,
        });
        Self {
            inner: Arc::new(Inner {
                context,
                claimed,
                cancel: CancellationToken::new(),
                place: None,
            }),
        }
    }

    /// Its place among what the worker holds.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.inner.place.as_ref()
    }

    /// The authority it runs under: the service role, in the item's org, for whoever enqueued it.
    pub fn context(&self) -> &OpContext {
        &self.inner.context
    }

    /// The item as it was claimed.
    pub fn item(&self) -> &WorkItem {
        &self.inner.claimed.item
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.claimed.item.attempts
    }

    /// The fencing number: higher for each later claim of the item, also after hand-backs. Send it
    /// along to another store and refuse there what comes with a lower one.
    pub fn fence(&self) -> i64 {
        self.inner.claimed.item.claim_seq
    }

    /// Completes when the run has to stop: the lease was lost, a person cancelled the item, its time
    /// is over, or the worker is going away. Safe to drop.
    pub async fn cancelled(&self) {
        self.inner.cancel.cancelled().await;
    }

    /// Whether it has to stop, for code that cannot await.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancel.is_cancelled()
    }

    /// The token behind [`Run::cancelled`], to hand to code that takes one.
    pub fn cancellation(&self) -> CancellationToken {
        self.inner.cancel.clone()
    }

    /// Reports how far the run has come; stored with the next renewal of the lease, the newest only.
    pub fn progress(&self, percent: u8, note: impl Into<ShortText>) {
        if let Some(place) = &self.inner.place {
            place.report(Progress::new(percent, note));
        }
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("item", &self.inner.claimed.item.id)
            .field("kind", &self.inner.claimed.item.kind)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

/// Any error, and how it is to be treated. `?` makes one of whatever a handler meets.
///
/// Retried after a growing delay until the attempts are spent, unless made [`HandlerError::for_good`].
#[derive(Debug, Clone)]
pub struct HandlerError {
    failure: Failure,
    retry_after: Option<Duration>,
}

impl HandlerError {
    /// An error with a message of its own.
    pub fn new(message: impl Into<ShortText>) -> Self {
        Self::from_failure(Failure::own(FailureCode::HANDLER_ERROR, message))
    }

    /// A failure as it is.
    pub const fn from_failure(failure: Failure) -> Self {
        Self {
            failure,
            retry_after: None,
        }
    }

    /// Under a code that programs may tell apart; one of Leasehold's own is replaced by
    /// `handler_error`, and so is text that is no code.
    pub fn with_code(mut self, code: &str) -> Self {
        let own = FailureCode::RESERVED.contains(&code);
        self.failure.code = FailureCode::parse(code)
            .ok()
            .filter(|_| !own)
            .unwrap_or_else(|| FailureCode::own(FailureCode::HANDLER_ERROR));
        self
    }

    /// Not tried again: a dead letter at once.
    pub fn for_good(mut self) -> Self {
        self.failure = self.failure.for_good();
        self
    }

    /// Tried again no sooner than this. Never shortens the policy's delay.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            message.push_str(": ");
            message.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self::new(message)
    }
}

/// What a handler may answer: nothing, an [`Outcome`], a [`Json`] result, or a `Result` of these.
pub trait IntoOutcome: Send {
    /// The outcome it stands for.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::done()
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<T: IntoOutcome, E: Into<HandlerError> + Send> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => {
                let HandlerError {
                    failure,
                    retry_after,
                } = error.into();
                Outcome::Failed {
                    failure,
                    retry_after,
                }
            }
        }
    }
}

/// A result to be kept on the item: anything that serialises to a JSON object.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: Serialize + Send> IntoOutcome for Json<T> {
    fn into_outcome(self) -> Outcome {
        match JsonObject::encode(&self.0) {
            Ok(result) => Outcome::Done {
                result: Some(result),
            },
            Err(error) => Outcome::failed(
                Failure::own(FailureCode::RESULT_INVALID, error.to_string()).for_good(),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
