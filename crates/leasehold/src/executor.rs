//! Executors: what runs an item once it is held.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use leasehold_core::{Failure, FailureCode, Kind, NameError, Outcome, WorkItem};
use tokio_util::sync::CancellationToken;

use crate::handler::{Handler, IntoOutcome as _, Run};
use crate::work::{self, Work};
use crate::worker::{Ending, KindSettings};

mod redaction;
mod subprocess;

pub use redaction::Redaction;
pub use subprocess::{Program, Subprocess};

/// A run in progress.
pub type Running = Pin<Box<dyn Future<Output = Ending> + Send>>;

/// Runs items of the kinds it knows.
pub trait Executor: Send + Sync + 'static {
    /// The kinds it knows, and how each is treated.
    fn kinds(&self) -> &BTreeMap<Kind, KindSettings>;

    /// Runs one item until it has ended.
    ///
    /// Owed: with `kill` cancelled before it begins, nothing of the run is executed, and it ends as
    /// [`Ending::Unbegun`]; once `kill` is cancelled the run ends as soon as it can be made to, with
    /// [`Ending::Killed`] or whatever it had answered by then; the future completes only when nothing
    /// of the run executes any more; a panic inside it is an outcome and goes no further.
    fn run(&self, run: Run, kill: CancellationToken) -> Running;

    /// Runs the kinds of both, side by side in one worker.
    ///
    /// # Errors
    /// [`KindTwice`] if both know a kind.
    fn beside<E: Executor>(self, other: E) -> Result<Beside<Self, E>, KindTwice>
    where
        Self: Sized,
    {
        Beside::new(self, other)
    }
}

impl<E: Executor> Executor for Arc<E> {
    fn kinds(&self) -> &BTreeMap<Kind, KindSettings> {
        (**self).kinds()
    }

    fn run(&self, run: Run, kill: CancellationToken) -> Running {
        (**self).run(run, kill)
    }
}

/// Two executors as one, each for the kinds it knows.
#[derive(Debug)]
pub struct Beside<A, B> {
    first: A,
    second: B,
    kinds: BTreeMap<Kind, KindSettings>,
}

/// Both of two executors know a kind, so that nobody could say which runs its items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two executors of one worker know the kind {0}; register it with one of them")]
pub struct KindTwice(pub Kind);

impl<A: Executor, B: Executor> Beside<A, B> {
    fn new(first: A, second: B) -> Result<Self, KindTwice> {
        let mut kinds = first.kinds().clone();
        for (kind, settings) in second.kinds() {
            if kinds.insert(kind.clone(), *settings).is_some() {
                return Err(KindTwice(kind.clone()));
            }
        }
        Ok(Self {
            first,
            second,
            kinds,
        })
    }
}

impl<A: Executor, B: Executor> Executor for Beside<A, B> {
    fn kinds(&self) -> &BTreeMap<Kind, KindSettings> {
        &self.kinds
    }

    fn run(&self, run: Run, kill: CancellationToken) -> Running {
        if self.first.kinds().contains_key(&run.item().kind) {
            self.first.run(run, kill)
        } else {
            self.second.run(run, kill)
        }
    }
}

/// Runs handlers as tasks of this process.
#[derive(Default)]
pub struct InProcess {
    kinds: BTreeMap<Kind, KindSettings>,
    handlers: BTreeMap<Kind, Arc<dyn Erased>>,
}

/// A handler with its payload type forgotten.
trait Erased: Send + Sync {
    fn run(self: Arc<Self>, run: Run) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;
}

struct Typed<W, H> {
    handler: H,
    work: std::marker::PhantomData<fn(W)>,
}

impl<W: Work, H: Handler<W>> Erased for Typed<W, H> {
    fn run(self: Arc<Self>, run: Run) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        Box::pin(async move {
            match run.item().payload.decode::<W>() {
                Ok(work) => self.handler.run(work, run).await.into_outcome(),
                Err(error) => {
                    let message = format!("the payload does not fit {}: {error}", W::KIND);
                    Outcome::failed(Failure::own(FailureCode::PAYLOAD_INVALID, message).for_good())
                }
            }
        })
    }
}

impl InProcess {
    /// Knows no kind yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs items of `W::KIND` with the handler. A second handler of a kind replaces the first.
    ///
    /// # Errors
    /// [`NameError`] if `W::KIND` is no valid kind.
    pub fn handle<W: Work>(mut self, handler: impl Handler<W>) -> Result<Self, NameError> {
        let kind = work::kind_of::<W>()?;
        let settings = KindSettings {
            retry: W::retry(),
            time_limit: W::TIME_LIMIT,
        };
        self.kinds.insert(kind.clone(), settings);
        let typed = Typed {
            handler,
            work: std::marker::PhantomData,
        };
        self.handlers.insert(kind, Arc::new(typed));
        Ok(self)
    }
}

impl Executor for InProcess {
    fn kinds(&self) -> &BTreeMap<Kind, KindSettings> {
        &self.kinds
    }

    fn run(&self, run: Run, kill: CancellationToken) -> Running {
        let Some(handler) = self.handlers.get(&run.item().kind).cloned() else {
            let note = unknown_kind(run.item());
            return Box::pin(
                async move { Ending::Outcome(Outcome::Released { note: note.into() }) },
            );
        };
        Box::pin(async move {
            // The handler is made, run and dropped inside, so that a panic in any of these is caught.
            let guarded = AssertUnwindSafe(async move {
                if kill.is_cancelled() {
                    return Ending::Unbegun;
                }
                let outcome = handler.run(run);
                tokio::select! {
                    biased;
                    outcome = outcome => Ending::Outcome(outcome),
                    () = kill.cancelled() => Ending::Killed,
                }
            });
            guarded.catch_unwind().await.unwrap_or_else(|panic| {
                let message = panic_message(panic);
                Ending::Outcome(Outcome::failed(Failure::own(
                    FailureCode::PANICKED,
                    message,
                )))
            })
        })
    }
}

fn unknown_kind(item: &WorkItem) -> String {
    format!("no handler of this worker knows the kind {}", item.kind)
}

/// What a panic said. Its value may be anything, and dropping it may panic too.
fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the handler panicked with a value that is no text".to_owned());
    let _ = std::panic::catch_unwind(AssertUnwindSafe(move || drop(panic)));
    message
}

#[cfg(test)]
mod tests;
