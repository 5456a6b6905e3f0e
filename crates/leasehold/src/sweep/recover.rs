//! Recovery: claims whose lease is over, and dead letters whose audit entry is owed.

use std::collections::VecDeque;

use leasehold_core::store::work::{Requeued, StaleRequest};
use leasehold_core::{App, OrgId, RequestContext, RequestId};

use super::{Pass, Ring};
use crate::tenancy::TenancyError;

/// How many orgs one probe names.
const ORGS_MAX: u32 = 100;

/// Whether an org has more to do than one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    More,
}

impl Left {
    /// A full batch may not have been all there was.
    fn after(moved: usize, limit: u32) -> Self {
        if moved < limit as usize {
            Self::Nothing
        } else {
            Self::More
        }
    }
}

impl Pass<'_> {
    /// Once round the ring, a batch for each org; then again those whose batch came back full.
    pub(super) async fn recover(&mut self, ring: &mut Ring) {
        let mut full = VecDeque::new();
        if !self.go_round(ring, &mut full).await {
            return;
        }
        while let Some(org) = full.pop_front() {
            if self.is_over() {
                self.swept.unfinished = true;
                return;
            }
            if self.recover_org(org).await == Left::More {
                full.push_back(org);
            }
        }
    }

    /// Whether the whole ring was seen.
    async fn go_round(&mut self, ring: &mut Ring, full: &mut VecDeque<OrgId>) -> bool {
        let mut from_the_start = ring.resume_after.is_none();
        loop {
            let due = self
                .sweep
                .stores
                .work
                .maintenance_due(ring.resume_after, ORGS_MAX);
            let Some(orgs) = self.ask("maintenance_due", due).await else {
                return false;
            };
            let last_page = orgs.len() < ORGS_MAX as usize;
            for org in orgs {
                if self.recover_org(org).await == Left::More {
                    full.push_back(org);
                }
                self.swept.orgs += 1;
                ring.resume_after = Some(org);
                if self.is_over() {
                    self.swept.unfinished = true;
                    return false;
                }
            }
            if last_page {
                ring.resume_after = None;
                // A pass that began in the middle of the ring goes round it once.
                if from_the_start {
                    return true;
                }
                from_the_start = true;
            }
        }
    }

    async fn recover_org(&mut self, org: OrgId) -> Left {
        let sweep = self.sweep;
        let request = RequestContext::new(RequestId::mint(), App::worker(&sweep.worker));
        let context = async { Ok(sweep.tenancy.service_context(&request, org).await) };
        match super::bounded(context).await {
            Ok(Ok(_)) => match (self.requeue(org).await, self.audit_owed(org).await) {
                (Left::Nothing, Left::Nothing) => Left::Nothing,
                _ => Left::More,
            },
            Ok(Err(TenancyError::OrgGone(_))) => self.orphan(org).await,
            Ok(Err(TenancyError::Store(error))) | Err(error) => {
                self.ask("service_context", async { Err::<(), _>(error) })
                    .await;
                Left::Nothing
            }
        }
    }

    async fn requeue(&mut self, org: OrgId) -> Left {
        let limit = self.sweep.settings.sweep_batch;
        let request = StaleRequest {
            limit,
            spread: self.sweep.settings.requeue_spread,
        };
        let moved = self.sweep.stores.work.requeue_stale(org, &request);
        let Some(moved) = self.ask("requeue_stale", moved).await else {
            return Left::Nothing;
        };
        self.count(org, &moved).await;
        Left::after(moved.total() as usize, limit)
    }

    async fn orphan(&mut self, org: OrgId) -> Left {
        let limit = self.sweep.settings.sweep_batch;
        let orphaned = self.sweep.stores.work.orphan_stale(org, limit);
        let Some(count) = self.ask("orphan_stale", orphaned).await else {
            return Left::Nothing;
        };
        self.swept.orphaned += u64::from(count);
        Left::after(count as usize, limit)
    }

    async fn count(&mut self, org: OrgId, moved: &Requeued) {
        self.swept.requeued += u64::from(moved.recovered);
        self.swept.cancelled += u64::from(moved.cancelled);
        let Self { sweep, .. } = *self;
        for item in &moved.dead {
            self.swept.dead += 1;
            sweep.metrics.dead_letter(&item.kind);
            tracing::error!(item = %item.id, kind = %item.kind, attempts = item.attempts, "dead letter: its worker was lost on the last attempt");
            let written =
                crate::audit::dead_letter(&sweep.stores, org, item, sweep.worker.as_str());
            self.ask("audit", written).await;
        }
    }

    /// Writes the audit entries that a crash between settle and audit left owed.
    async fn audit_owed(&mut self, org: OrgId) -> Left {
        let Self { sweep, .. } = *self;
        let limit = sweep.settings.sweep_batch;
        let owed = sweep.stores.work.unaudited(org, limit);
        let Some(owed) = self.ask("unaudited", owed).await else {
            return Left::Nothing;
        };
        let mut written = 0;
        for item in &owed {
            let entry = crate::audit::dead_letter(&sweep.stores, org, item, sweep.worker.as_str());
            if self.ask("audit", entry).await.is_some() {
                written += 1;
            }
        }
        self.swept.audited += written as u64;
        // What could not be written comes back with the next batch: not in this pass.
        Left::after(written, limit)
    }
}
