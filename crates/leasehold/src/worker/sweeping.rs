//! When a worker sweeps, and when it leaves expired claims alone.

use std::time::Duration;

use leasehold_core::{BootTime, ItemId, OrgId, ShortText, Stores};
use tokio_util::sync::CancellationToken;

use super::outages::CALM_AFTER;
use crate::sweep::{Recovery, Ring, Sweep, bounded};

/// The first pass comes soon after the start, and not at the same moment in every worker.
const FIRST_PASS_WITHIN: Duration = Duration::from_secs(2);

/// Errors that never cease must not keep recovery off for ever: once the sweep's own calls have been
/// answered for this long, it recovers all the same.
const HELD_OFF_MAX: Duration = Duration::from_secs(15);

/// A worker's sweeps, one after the other.
pub(super) struct Sweeping {
    pub(super) sweep: Sweep,
    ring: Ring,
    /// Since when passes recover nothing although the store answers them, because some of its calls
    /// find it out of reach.
    held_off: Option<BootTime>,
}

impl Sweeping {
    pub(super) fn new(sweep: Sweep) -> Self {
        Self {
            sweep,
            ring: Ring::default(),
            held_off: None,
        }
    }

    /// Sweeps until told to stop; a pass under way is dropped between or within its statements.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let interval = self.sweep.settings.sweep_interval;
        let mut pause = FIRST_PASS_WITHIN.min(interval).mul_f64(fastrand::f64());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let recovery = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                recovery = self.pass() => recovery,
            };
            let next = match recovery {
                Recovery::Due => interval,
                Recovery::HeldOff => CALM_AFTER.min(interval),
            };
            pause = next.mul_f64(0.9 + 0.2 * fastrand::f64());
        }
    }

    async fn pass(&mut self) -> Recovery {
        let began = self.sweep.clock.elapsed();
        let is_enough = |since: BootTime| began.since(since) >= HELD_OFF_MAX;
        let recovers = self.sweep.outages.is_calm(began) || self.held_off.is_some_and(is_enough);
        let recovery = if recovers {
            Recovery::Due
        } else {
            Recovery::HeldOff
        };
        let swept = self.sweep.pass(&mut self.ring, recovery).await;
        // While nothing is answered at all the outage goes on, and the wait has not begun.
        let waits = !recovers && swept.was_answered();
        self.held_off = self.held_off.or(Some(began)).filter(|_| waits);
        recovery
    }
}

/// Audits a dead letter right after its settle, from the row as it is stored. What fails here is owed,
/// and the next sweep of any worker writes it.
pub(super) async fn audit_dead_letter(stores: &Stores, org: OrgId, item: ItemId, app: &str) {
    let written = bounded(async {
        match stores.work.get(org, item).await? {
            Some(row) if row.is_dead_letter() && row.audited_at.is_none() => {
                let reason = row.last_error.as_ref().map(ShortText::as_str);
                tracing::warn!(%item, kind = %row.kind, attempts = row.attempts, reason, "dead letter");
                crate::audit::dead_letter(stores, org, &row, app).await
            }
            _ => Ok(()),
        }
    });
    if let Err(error) = written.await {
        tracing::warn!(%item, %error, "a dead letter's audit entry is owed; the sweep will write it");
    }
}
