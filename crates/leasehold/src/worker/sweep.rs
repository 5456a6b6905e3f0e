//! The sweep: what every worker does on its own timer to mend what crashes left.
//!
//! There is no leader and no lock. Each step is idempotent, bounded, and serialised by the store; one
//! that fails is logged, and the next runs. Recovery comes before purging, the gauges last and always.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::work::{Requeued, StaleRequest};
use leasehold_core::{
    App, BootTime, Clock, ItemId, OrgId, RequestContext, RequestId, ShortText, StoreError, Stores,
    WorkerId,
};
use tokio_util::sync::CancellationToken;

use super::outages::{CALM_AFTER, Outages};
use crate::WorkerSettings;
use crate::telemetry::Metrics;
use crate::tenancy::{Tenancy, TenancyError};

/// How many orgs one probe names.
const ORGS_MAX: u32 = 100;
/// No statement of the sweep is waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first pass comes soon after the start, and not at the same moment in every worker.
const FIRST_PASS_WITHIN: Duration = Duration::from_secs(2);

/// Errors that never cease must not keep recovery off for ever: once the sweep's own calls have been
/// answered for this long, it recovers all the same.
const HELD_OFF_MAX: Duration = Duration::from_secs(15);
/// Calendars further apart than this are warned about.
const SKEW_MAX: Duration = Duration::from_secs(5);

pub(super) struct Sweep {
    pub(super) stores: Stores,
    pub(super) tenancy: Arc<dyn Tenancy>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) outages: Arc<Outages>,
    pub(super) settings: Arc<WorkerSettings>,
    pub(super) worker: WorkerId,
}

/// What one pass leaves to the next.
#[derive(Debug, Default)]
struct Ring {
    /// A pass that ran out of budget goes on where it stopped.
    resume_after: Option<OrgId>,
    /// Since when passes recover nothing although the store answers them, because some of its calls
    /// find it out of reach.
    held_off: Option<BootTime>,
}

/// What one pass did, for its log line.
#[derive(Debug, Default)]
struct Pass {
    orgs: u32,
    requeued: u64,
    dead: u64,
    cancelled: u64,
    orphaned: u64,
    audited: u64,
    purged: u64,
    answers: u32,
    errors: u32,
    unfinished: bool,
}

impl Pass {
    /// Nothing was moved, and nothing stood in the way: no news to anybody.
    const fn found_nothing(&self) -> bool {
        let recovered = self.requeued + self.dead + self.cancelled + self.orphaned;
        let tidied = self.audited + self.purged;
        recovered + tidied == 0 && self.errors == 0 && !self.unfinished
    }
}

impl Sweep {
    /// Sweeps until told to stop; a pass under way is dropped between or within its statements.
    pub(super) async fn run(self, stop: CancellationToken) {
        let interval = self.settings.sweep_interval;
        let mut pause = FIRST_PASS_WITHIN.min(interval).mul_f64(fastrand::f64());
        let mut ring = Ring::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            let recovered = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                recovered = self.pass(&mut ring) => recovered,
            };
            let next = if recovered {
                interval
            } else {
                CALM_AFTER.min(interval)
            };
            pause = next.mul_f64(0.9 + 0.2 * fastrand::f64());
        }
    }

    /// One pass. Whether it recovered anything that was due, or would have.
    async fn pass(&self, ring: &mut Ring) -> bool {
        let began = self.clock.elapsed();
        let deadline = began + self.settings.sweep_budget;
        let mut pass = Pass::default();
        let is_enough = |since: BootTime| began.since(since) >= HELD_OFF_MAX;
        let recovers = self.outages.is_calm(began) || ring.held_off.is_some_and(is_enough);
        if recovers {
            self.recover(deadline, &mut ring.resume_after, &mut pass)
                .await;
        } else {
            pass.unfinished = true;
        }
        self.purge(deadline, &mut pass).await;
        let gauges = bounded(self.stores.work.gauges()).await;
        if let Some(gauges) = self.keep(gauges, "gauges", &mut pass) {
            self.metrics.gauges(&gauges);
            self.judge_skew(gauges.now);
        }
        // While nothing is answered at all the outage goes on, and the wait has not begun.
        let waits = !recovers && pass.answers > 0;
        ring.held_off = ring.held_off.or(Some(began)).filter(|_| waits);
        let length = self.clock.elapsed().since(began);
        self.metrics.swept(length, pass.requeued, pass.purged);
        if pass.found_nothing() {
            tracing::debug!(
                milliseconds = length.as_millis(),
                "swept, and found nothing"
            );
            return recovers;
        }
        tracing::info!(
            milliseconds = length.as_millis(),
            orgs = pass.orgs,
            requeued = pass.requeued,
            dead = pass.dead,
            cancelled = pass.cancelled,
            orphaned = pass.orphaned,
            audited = pass.audited,
            purged = pass.purged,
            errors = pass.errors,
            unfinished = pass.unfinished,
            "swept"
        );
        recovers
    }

    /// The store's clock decides; a worker whose own is far off is told so, for whoever reads its logs.
    fn judge_skew(&self, store_now: Timestamp) {
        let ahead = self.clock.now().duration_since(store_now);
        self.metrics.clock_skew(ahead.as_secs_f64());
        if ahead.unsigned_abs() > SKEW_MAX {
            tracing::warn!(
                seconds_ahead = ahead.as_secs_f64(),
                "the calendar differs from the store's, whose clock decides; set the time"
            );
        }
    }

    async fn recover(&self, deadline: BootTime, resume_after: &mut Option<OrgId>, pass: &mut Pass) {
        let mut from_the_start = resume_after.is_none();
        loop {
            let due = bounded(self.stores.work.maintenance_due(*resume_after, ORGS_MAX)).await;
            let Some(orgs) = self.keep(due, "maintenance_due", pass) else {
                return;
            };
            let last_page = orgs.len() < ORGS_MAX as usize;
            for org in orgs {
                self.recover_org(org, deadline, pass).await;
                pass.orgs += 1;
                *resume_after = Some(org);
                if self.clock.elapsed() >= deadline {
                    pass.unfinished = true;
                    return;
                }
            }
            if last_page {
                *resume_after = None;
                // A pass that began in the middle of the ring goes round it once.
                if from_the_start {
                    return;
                }
                from_the_start = true;
            }
        }
    }

    async fn recover_org(&self, org: OrgId, deadline: BootTime, pass: &mut Pass) {
        let request = RequestContext::new(RequestId::mint(), App::worker(&self.worker));
        match bounded(async { Ok(self.tenancy.service_context(&request, org).await) }).await {
            Ok(Ok(_)) => {
                self.requeue(org, deadline, pass).await;
                self.audit_owed(org, pass).await;
            }
            Ok(Err(TenancyError::OrgGone(_))) => {
                let orphaned = self
                    .stores
                    .work
                    .orphan_stale(org, self.settings.sweep_batch);
                if let Some(count) = self.keep(bounded(orphaned).await, "orphan_stale", pass) {
                    pass.orphaned += u64::from(count);
                }
            }
            Ok(Err(TenancyError::Store(error))) | Err(error) => {
                self.keep::<()>(Err(error), "service_context", pass);
            }
        }
    }

    async fn requeue(&self, org: OrgId, deadline: BootTime, pass: &mut Pass) {
        let limit = self.settings.sweep_batch;
        let request = StaleRequest {
            limit,
            spread: self.settings.requeue_spread,
        };
        loop {
            let answer = bounded(self.stores.work.requeue_stale(org, &request)).await;
            let Some(moved) = self.keep(answer, "requeue_stale", pass) else {
                return;
            };
            self.count(org, &moved, pass).await;
            if moved.total() < limit || self.clock.elapsed() >= deadline {
                return;
            }
        }
    }

    async fn count(&self, org: OrgId, moved: &Requeued, pass: &mut Pass) {
        pass.requeued += u64::from(moved.recovered);
        pass.cancelled += u64::from(moved.cancelled);
        for item in &moved.dead {
            pass.dead += 1;
            self.metrics.dead_letter(&item.kind);
            tracing::error!(item = %item.id, kind = %item.kind, attempts = item.attempts, "dead letter: its worker was lost on the last attempt");
            let written = crate::audit::dead_letter(&self.stores, org, item, self.worker.as_str());
            self.keep(bounded(written).await, "audit", pass);
        }
    }

    /// Writes the audit entries that a crash between settle and audit left owed.
    async fn audit_owed(&self, org: OrgId, pass: &mut Pass) {
        let owed = bounded(self.stores.work.unaudited(org, self.settings.sweep_batch)).await;
        let Some(owed) = self.keep(owed, "unaudited", pass) else {
            return;
        };
        for item in owed {
            let written = crate::audit::dead_letter(&self.stores, org, &item, self.worker.as_str());
            if self.keep(bounded(written).await, "audit", pass).is_some() {
                pass.audited += 1;
            }
        }
    }

    async fn purge(&self, deadline: BootTime, pass: &mut Pass) {
        let (retention, limit) = (self.settings.item_retention, self.settings.sweep_batch);
        loop {
            let answer = bounded(self.stores.work.purge(retention, limit)).await;
            let Some(purged) = self.keep(answer, "purge", pass) else {
                return;
            };
            pass.purged += u64::from(purged);
            if purged < limit || self.clock.elapsed() >= deadline {
                return;
            }
        }
    }

    fn keep<T>(
        &self,
        answer: Result<T, StoreError>,
        step: &'static str,
        pass: &mut Pass,
    ) -> Option<T> {
        match answer {
            Ok(value) => {
                pass.answers += 1;
                self.outages.answered(self.clock.elapsed());
                Some(value)
            }
            Err(error) => {
                pass.errors += 1;
                self.metrics.store_error(step);
                self.outages.note_if(&error, self.clock.elapsed());
                tracing::warn!(%error, step, "a step of the sweep failed");
                None
            }
        }
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

async fn bounded<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable(format!(
            "no answer within {PATIENCE:?}"
        ))),
    }
}
