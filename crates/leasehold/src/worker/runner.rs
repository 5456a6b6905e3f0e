//! One run: what happens on the handlers' side, from the moment it is started until the loop is told.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_core::store::work::Claimed;
use leasehold_core::{BootTime, Clock, Failure, FailureCode, Hold, OpContext, Outcome};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::dispatch::{Ending, Event};
use super::holdings::{Control, Holdings};
use super::keeper;
use crate::executor::Executor;
use crate::handler::Run;
use crate::telemetry::Metrics;
use crate::trace;

/// A run that begins within this of its start needs no second look at its lease: trust was checked then,
/// and ends half a lease before anyone else may claim.
const START_DELAY_MAX: Duration = Duration::from_millis(10);

/// What all runs of a worker share.
pub(super) struct Runner<E> {
    pub(super) executor: Arc<E>,
    pub(super) holdings: Arc<Holdings>,
    /// To the loop.
    pub(super) announce: mpsc::Sender<Event>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
}

/// An item about to run.
pub(super) struct Starting {
    pub(super) hold: Hold,
    pub(super) claimed: Arc<Claimed>,
    pub(super) context: OpContext,
    pub(super) control: Control,
}

impl<E: Executor> Runner<E> {
    /// Makes a task of the run, under a span of its own.
    pub(super) fn start(self: &Arc<Self>, now: BootTime, mut starting: Starting) {
        let span = trace::process(&starting.context, &starting.claimed);
        let header = trace::header_of(&span);
        let header = header.or_else(|| starting.claimed.item.traceparent.clone());
        starting.context = starting.context.within_trace(header);
        tokio::spawn(self.clone().run(now, starting).instrument(span));
    }

    /// Runs what was started at `started`, and tells the loop how it ended.
    async fn run(self: Arc<Self>, started: BootTime, starting: Starting) {
        let Starting {
            hold,
            claimed,
            context,
            control,
        } = starting;
        let kind = claimed.item.kind.clone();
        let place = self.holdings.place(hold);
        let run = Run::new(context, claimed, control.cancel, place);
        let began = self.clock.elapsed();
        // It may have waited long for a thread: what was true when it was started may not be now.
        let has_waited = began.since(started) > START_DELAY_MAX;
        let may_begin = !has_waited || self.holdings.is_trusted(&hold, began);
        let mut now = began;
        let ending = if run.is_cancelled() || !may_begin {
            Ending::Unbegun
        } else {
            let settings = self.executor.kinds().get(&kind);
            if settings.is_some_and(|kind| kind.time_limit.is_some()) {
                let _ = self.announce.send(Event::Began(hold)).await;
            }
            // An executor lets no panic through. If one does, its slot must not be lost with it.
            let running = AssertUnwindSafe(async { self.executor.run(run, control.kill).await });
            let ending = running.catch_unwind().await.unwrap_or_else(|_| {
                let failure = Failure::own(FailureCode::PANICKED, "the executor panicked");
                Ending::Outcome(Outcome::failed(failure))
            });
            now = self.clock.elapsed();
            self.metrics.ran(&kind, now.since(began));
            ending
        };
        trace::ended(&ending);
        let ended = self.holdings.ended(&hold, now);
        if let Some(loss) = ended.overdue {
            keeper::tell(&self.metrics, &hold, loss);
        }
        // The loop outlives every run it waits for; one it gave up on has nobody to tell.
        if let Some(loss) = ended.loss {
            let _ = self.announce.send(Event::Loss(hold, loss)).await;
        }
        let _ = self.announce.send(Event::Ended(hold, ending)).await;
    }
}
