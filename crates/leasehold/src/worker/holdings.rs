//! What the loop and the keeper share: the leases held, and how to stop each run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::store::work::{Renewal, Renewed, Settlement};
use leasehold_core::{BootTime, Hold, Progress};
use tokio_util::sync::CancellationToken;

use super::trust::{Leases, Loss};

/// Leases and run controls under one lock, held for moments only and never across an await.
///
/// The keeper stops a run itself when its lease is lost: it does not depend on the loop for that.
#[derive(Debug)]
pub(super) struct Holdings {
    inner: Mutex<Inner>,
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
}

impl Holdings {
    /// Nothing held; a stopped run may take so long to end.
    pub(super) fn new(stop_grace: Duration) -> Self {
        Self {
            inner: Mutex::new(Inner {
                leases: Leases::with_stop_grace(stop_grace),
                controls: HashMap::new(),
            }),
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

    /// The tokens that stop a run about to start; `None` if its lease is not trusted any more, and it
    /// may not start.
    pub(super) fn start(&self, hold: Hold, now: BootTime) -> Option<Control> {
        let mut inner = self.lock();
        if !inner.leases.is_trusted(&hold, now) {
            return None;
        }
        let control = Control {
            loss: None,
            cancel: CancellationToken::new(),
            kill: CancellationToken::new(),
        };
        inner.controls.insert(hold, control.clone());
        Some(control)
    }

    /// Whether a run that is about to begin still may.
    pub(super) fn is_trusted(&self, hold: &Hold, now: BootTime) -> bool {
        self.lock().leases.is_trusted(hold, now)
    }

    /// The run has ended. If the keeper had stopped it, why: a run may end faster than the keeper's
    /// word of it reaches the loop, and what it ended in must not be taken for its own doing.
    pub(super) fn ended(&self, hold: &Hold) -> Option<Loss> {
        self.lock().controls.remove(hold)?.loss
    }

    pub(super) fn cancel(&self, hold: &Hold) {
        if let Some(control) = self.control(hold) {
            control.cancel.cancel();
        }
    }

    pub(super) fn kill(&self, hold: &Hold) {
        if let Some(control) = self.control(hold) {
            control.cancel.cancel();
            control.kill.cancel();
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

    pub(super) fn report(&self, hold: &Hold, progress: Progress) {
        self.lock().leases.report(hold, progress);
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
        let losses = inner.leases.answered(sent, answers);
        inner.stop(&losses);
        losses
    }

    pub(super) fn unanswered(&self, batch: Vec<Renewal>) {
        self.lock().leases.unanswered(batch);
    }

    pub(super) fn doubted(&self, now: BootTime) -> Vec<(Hold, Loss)> {
        let mut inner = self.lock();
        let losses = inner.leases.doubted(now);
        inner.stop(&losses);
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
    fn stop(&mut self, losses: &[(Hold, Loss)]) {
        for (hold, loss) in losses {
            let Some(control) = self.controls.get_mut(hold) else {
                continue;
            };
            control.loss = Some(*loss);
            control.cancel.cancel();
            if *loss == Loss::Refused {
                control.kill.cancel();
            }
        }
    }
}

#[cfg(test)]
mod tests;
