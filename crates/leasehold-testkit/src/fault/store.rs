//! The store in front: every method asks [`Faults`] first.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::StoreResult;
use leasehold_core::store::work::{
    Cancelled, ClaimRequest, Claimed, Enqueued, Filter, Gauges, Hints, Listed, Page, PausedLane,
    Renewal, Renewed, Requeued, Retried, Settled, Settlement, StaleRequest,
};
use leasehold_core::{
    ClaimToken, IdempotencyKey, ItemId, Lane, NewItem, OrgId, ShortText, UserId, WorkItem,
    WorkStore,
};
use tokio::sync::watch;

use super::{Faults, Operation};

#[derive(Debug)]
pub(super) struct FaultStore {
    inner: Arc<dyn WorkStore>,
    faults: Faults,
}

impl FaultStore {
    pub(super) fn new(inner: Arc<dyn WorkStore>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl WorkStore for FaultStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        self.faults.pass(Operation::Now, self.inner.now()).await
    }

    async fn enqueue(&self, org: OrgId, batch: Vec<NewItem>) -> StoreResult<Vec<Enqueued>> {
        self.faults
            .pass(Operation::Enqueue, self.inner.enqueue(org, batch))
            .await
    }

    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<Claimed>> {
        self.faults
            .pass(Operation::Claim, self.inner.claim(request))
            .await
    }

    async fn renew(&self, batch: &[Renewal]) -> StoreResult<Vec<Renewed>> {
        self.faults
            .pass(Operation::Renew, self.inner.renew(batch))
            .await
    }

    async fn settle(&self, batch: &[Settlement]) -> StoreResult<Vec<Settled>> {
        self.faults
            .pass(Operation::Settle, self.inner.settle(batch))
            .await
    }

    async fn fail_orphaned(&self, item: ItemId, token: ClaimToken) -> StoreResult<bool> {
        self.faults
            .pass(
                Operation::FailOrphaned,
                self.inner.fail_orphaned(item, token),
            )
            .await
    }

    async fn maintenance_due(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgId>> {
        let call = self.inner.maintenance_due(after, limit);
        self.faults.pass(Operation::MaintenanceDue, call).await
    }

    async fn requeue_stale(&self, org: OrgId, request: &StaleRequest) -> StoreResult<Requeued> {
        self.faults
            .pass(
                Operation::RequeueStale,
                self.inner.requeue_stale(org, request),
            )
            .await
    }

    async fn orphan_stale(&self, org: OrgId, limit: u32) -> StoreResult<u32> {
        self.faults
            .pass(Operation::OrphanStale, self.inner.orphan_stale(org, limit))
            .await
    }

    async fn unaudited(&self, org: OrgId, limit: u32) -> StoreResult<Vec<WorkItem>> {
        self.faults
            .pass(Operation::Unaudited, self.inner.unaudited(org, limit))
            .await
    }

    async fn mark_audited(&self, org: OrgId, items: &[(ItemId, i64)]) -> StoreResult<()> {
        self.faults
            .pass(Operation::MarkAudited, self.inner.mark_audited(org, items))
            .await
    }

    async fn cancel(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Cancelled> {
        self.faults
            .pass(Operation::Cancel, self.inner.cancel(org, item, by))
            .await
    }

    async fn retry(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Retried> {
        self.faults
            .pass(Operation::Retry, self.inner.retry(org, item, by))
            .await
    }

    async fn get(&self, org: OrgId, item: ItemId) -> StoreResult<Option<WorkItem>> {
        self.faults
            .pass(Operation::Get, self.inner.get(org, item))
            .await
    }

    async fn get_by_key(&self, org: OrgId, key: IdempotencyKey) -> StoreResult<Option<WorkItem>> {
        self.faults
            .pass(Operation::GetByKey, self.inner.get_by_key(org, key))
            .await
    }

    async fn list(&self, org: OrgId, filter: &Filter, page: &Page) -> StoreResult<Listed> {
        self.faults
            .pass(Operation::List, self.inner.list(org, filter, page))
            .await
    }

    async fn gauges(&self) -> StoreResult<Gauges> {
        self.faults
            .pass(Operation::Gauges, self.inner.gauges())
            .await
    }

    async fn purge(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        self.faults
            .pass(Operation::Purge, self.inner.purge(retention, limit))
            .await
    }

    async fn pause_lane(&self, lane: &Lane, reason: &ShortText, by: &ShortText) -> StoreResult<()> {
        self.faults
            .pass(
                Operation::PauseLane,
                self.inner.pause_lane(lane, reason, by),
            )
            .await
    }

    async fn resume_lane(&self, lane: &Lane) -> StoreResult<bool> {
        self.faults
            .pass(Operation::ResumeLane, self.inner.resume_lane(lane))
            .await
    }

    async fn paused_lanes(&self) -> StoreResult<Vec<PausedLane>> {
        self.faults
            .pass(Operation::PausedLanes, self.inner.paused_lanes())
            .await
    }

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        Box::new(FaultHints {
            inner: self.inner.subscribe(lanes),
            dropped: self.faults.shared.hints_dropped.subscribe(),
        })
    }
}

/// Hints that arrive only while nobody loses them.
struct FaultHints {
    inner: Box<dyn Hints>,
    dropped: watch::Receiver<bool>,
}

#[async_trait]
impl Hints for FaultHints {
    async fn next(&mut self) {
        loop {
            self.inner.next().await;
            if !*self.dropped.borrow() {
                return;
            }
        }
    }
}
