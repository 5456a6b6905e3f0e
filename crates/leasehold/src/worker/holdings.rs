//! What the loop and the keeper share: the leases held, and how to stop each run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::store::work::{Renewal, Renewed, Settlement};
use leasehold_core::{BootTime, Hold, Progress};
use leasehold_fence::Deadline;
use tokio_util::sync::CancellationToken;

use super::trust::{Leases, Loss};

/// Leases and run controls under one lock, held for moments only and never across an await.
///
/// The keeper stops a run itself when its lease is lost: it does not depend on the loop for that.
#[derive(Debug)]
pub(crate) struct Holdings {
    inner: Mutex<Inner>,
    /// How long a stopped run may take to end.
    stop_grace: Duration,
}

#[derive(Debug)]
struct Inner {
    leases: Leases,
    controls: HashMap<Hold, Control>,
}

#[derive(Debug, Clone)]
pub(super) struct Control {
    /// Why the keeper stopped it, if it did.
    loss: Option<Loss>,
    pub(super) cancel: CancellationToken,
    pub(super) kill: CancellationToken,
    /// Of a run that is a command: by this it is bounded without any help of its own task, whose
    /// runtime may be busy.
    fence: Option<leasehold_fence::Control>,
}

/// What stood with a run's lease when the run ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RunEnd {
    /// The lease was over for this long, and nobody had seen it: a warden counts down to the same moment as
    /// the keeper, and may have been faster.
    pub(super) overdue: Option<Loss>,
    /// Why the run was stopped for its lease, if it was. A run may end faster than the keeper's word of it
    /// reaches the loop, and what it ended in must not be taken for its own doing.
    pub(super) loss: Option<Loss>,
}

/// What a run holds on to for as long as it runs: its place among the holdings.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    holdings: Arc<Holdings>,
    hold: Hold,
}

impl Place {
    /// Keeps the run's latest progress for the next renewal.
    pub(crate) fn report(&self, progress: Progress) {
        self.holdings.lock().leases.report(&self.hold, progress);
    }

    /// Until when the run may go on unless its lease is renewed; `None` once it is not held any more.
    pub(crate) fn trusted_until(&self) -> Option<Deadline> {
        self.holdings.lock().trusted_until(&self.hold)
    }

    /// Puts the command that the run started under the lease: each renewal pushes its deadline, and
    /// whatever stops the run stops it, from here on and if it has happened already.
    pub(crate) fn bind(&self, fence: leasehold_fence::Control) {
        let mut inner = self.holdings.lock();
        let until = inner.trusted_until(&self.hold);
        let stop_grace = self.holdings.stop_grace;
        let Some(control) = inner.controls.get_mut(&self.hold) else {
            fence.kill();
            return;
        };
        if let Some(until) = until {
            fence.push(until);
        }
        if control.kill.is_cancelled() {
            fence.kill();
        } else if control.cancel.is_cancelled() {
            fence.terminate(stop_grace);
        }
        control.fence = Some(fence);
    }
}

impl Holdings {
    /// Nothing held; a stopped run may take so long to end.
    pub(super) fn new(stop_grace: Duration) -> Self {
        Self {
            inner: Mutex::new(Inner {
                leases: Leases::with_stop_grace(stop_grace),
                controls: HashMap::new(),
            }),
            stop_grace,
        }
    }

    /// Where the run of that hold reports to.
    pub(super) fn place(self: &Arc<Self>, hold: Hold) -> Place {
        Place {
            holdings: self.clone(),
            hold,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_up(&self, holds: &[Hold], lease: Duration, sent: BootTime) {
        let mut inner = self.lock();
        for hold in holds {
            inner.leases.insert(*hold, lease, sent);
        }
    }

    pub(super) fn forget(&self, holds: &[Hold]) {
        let mut inner = self.lock();
        for hold in holds {
            inner.leases.remove(hold);
            inner.controls.remove(hold);
        }
    }

    /// The tokens that stop each of the runs about to start; `None` for one whose lease is not trusted any
    /// more, and which may not start.
    pub(super) fn start(
        &self,
        holds: impl IntoIterator<Item = Hold>,
        now: BootTime,
    ) -> Vec<Option<Control>> {
        let mut inner = self.lock();
        let controls = holds.into_iter().map(|hold| {
            inner.leases.is_trusted(&hold, now).then(|| {
                let control = Control {
                    loss: None,
                    cancel: CancellationToken::new(),
                    kill: CancellationToken::new(),
                    fence: None,
                };
                inner.controls.insert(hold, control.clone());
                control
            })
        });
        controls.collect()
    }

    /// Whether a run that is about to begin still may.
    pub(super) fn is_trusted(&self, hold: &Hold, now: BootTime) -> bool {
        self.lock().leases.is_trusted(hold, now)
    }

    /// The run has ended, at `now`.
    pub(super) fn ended(&self, hold: &Hold, now: BootTime) -> RunEnd {
        let mut inner = self.lock();
        let overdue = inner.leases.doubted_one(hold, now);
        inner.stop(overdue.as_slice(), self.stop_grace);
        RunEnd {
            overdue: overdue.map(|(_, loss)| loss),
            loss: inner.controls.remove(hold).and_then(|control| control.loss),
        }
    }

    /// Asks the run to end; a command is killed by its warden once the grace is over.
    pub(super) fn cancel(&self, hold: &Hold, grace: Duration) {
        if let Some(control) = self.control(hold) {
            control.cancel.cancel();
            if let Some(fence) = &control.fence {
                fence.terminate(grace);
            }
        }
    }

    pub(super) fn kill(&self, hold: &Hold) {
        if let Some(control) = self.control(hold) {
            control.cancel.cancel();
            control.kill.cancel();
            if let Some(fence) = &control.fence {
                fence.kill();
            }
        }
    }

    pub(super) fn settling(&self, holds: impl IntoIterator<Item = Hold>) {
        let mut inner = self.lock();
        for hold in holds {
            inner.leases.settling(&hold);
        }
    }

    pub(super) fn renew_until(&self, hold: &Hold, instant: BootTime) {
        self.lock().leases.renew_until(hold, instant);
    }

    pub(super) fn over_at(&self, hold: &Hold) -> Option<BootTime> {
        self.lock().leases.over_at(hold)
    }

    /// How long a settle may take before it is asked again: the first of these leases to be over
    /// bounds it, but a little is always worth a try. One that is over already has nothing to lose.
    pub(super) fn settle_patience(
        &self,
        batch: &[Settlement],
        now: BootTime,
        patience_max: Duration,
    ) -> Duration {
        let inner = self.lock();
        let ends = batch
            .iter()
            .filter_map(|settlement| inner.leases.over_at(&settlement.hold));
        let first = ends.filter(|over| *over > now).min();
        first.map_or(patience_max, |over| {
            over.since(now).clamp(SETTLE_PATIENCE_MIN, patience_max)
        })
    }

    pub(super) fn due(&self, now: BootTime) -> (Vec<Renewal>, Duration) {
        let mut inner = self.lock();
        let batch = inner.leases.due(now);
        let patience = inner.leases.patience(&batch, now);
        (batch, patience)
    }

    pub(super) fn answered(
        &self,
        sent: BootTime,
        answers: impl IntoIterator<Item = (Hold, Renewed)>,
    ) -> Vec<(Hold, Loss)> {
        let mut inner = self.lock();
        let mut renewed = Vec::new();
        let answers = answers.into_iter().inspect(|(hold, _)| renewed.push(*hold));
        let losses = inner.leases.answered(sent, answers);
        inner.stop(&losses, self.stop_grace);
        inner.push(&renewed);
        losses
    }

    pub(super) fn unanswered(&self, batch: Vec<Renewal>) {
        self.lock().leases.unanswered(batch);
    }

    pub(super) fn doubted(&self, now: BootTime) -> Vec<(Hold, Loss)> {
        let mut inner = self.lock();
        let losses = inner.leases.doubted(now);
        inner.stop(&losses, self.stop_grace);
        losses
    }

    pub(super) fn next_look(&self) -> Option<BootTime> {
        self.lock().leases.next_look()
    }

    fn control(&self, hold: &Hold) -> Option<Control> {
        self.lock().controls.get(hold).cloned()
    }
}

/// A settle near the end of its lease is still sent: only the store knows whether it is over.
const SETTLE_PATIENCE_MIN: Duration = Duration::from_millis(500);

impl Inner {
    /// On the clock that wardens share with this process.
    fn trusted_until(&self, hold: &Hold) -> Option<Deadline> {
        let until = self.leases.trusted_until(hold)?;
        Some(Deadline::at(until.since_boot()))
    }

    /// Tells the wardens of these runs how long they are good for.
    fn push(&self, renewed: &[Hold]) {
        for hold in renewed {
            let fence = self.controls.get(hold).and_then(|run| run.fence.as_ref());
            if let (Some(fence), Some(until)) = (fence, self.trusted_until(hold)) {
                fence.push(until);
            }
        }
    }

    fn stop(&mut self, losses: &[(Hold, Loss)], stop_grace: Duration) {
        for (hold, loss) in losses {
            let Some(control) = self.controls.get_mut(hold) else {
                continue;
            };
            control.loss = Some(*loss);
            control.cancel.cancel();
            if *loss == Loss::Refused {
                control.kill.cancel();
            }
            match (&control.fence, loss) {
                // A command needs no time to notice that it has to go. Its warden has counted down to
                // the same moment by itself.
                (Some(fence), Loss::Refused | Loss::Doubted) => fence.kill(),
                (Some(fence), Loss::CancelRequested) => fence.terminate(stop_grace),
                (None, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
