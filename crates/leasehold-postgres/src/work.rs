//! The promises about work items.
//!
//! Each submodule holds the statements of one concern. An item stands in exactly one of three tables:
//! `ready`, `claims`, `ends`; whatever moves it deletes its row there and inserts it in another in one
//! statement, so that of two that would move it one finds nothing to move.

mod claim;
mod enqueue;
mod gauges;
mod inspect;
mod lanes;
mod list;
mod operate;
mod settle;
mod sweep;

pub(crate) use claim::{Floors, Turns};
pub(crate) use enqueue::{enqueue_within, gained};

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::StoreResult;
use leasehold_core::store::work::{
    Cancelled, ClaimRequest, Claimed, Enqueued, Filter, Gauges, Listed, Page, PausedLane, Renewal,
    Renewed, Requeued, Retried, Settled, Settlement, StaleRequest,
};
use leasehold_core::{
    ClaimToken, Hints, IdempotencyKey, ItemId, Lane, NewItem, OrgId, ShortText, UserId, WorkItem,
    WorkStore,
};

use crate::store::PostgresStore;

#[async_trait]
impl WorkStore for PostgresStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(inspect::now(self).await?)
    }

    async fn enqueue(&self, org: OrgId, batch: Vec<NewItem>) -> StoreResult<Vec<Enqueued>> {
        Ok(enqueue::enqueue(self, org, batch).await?)
    }

    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<Claimed>> {
        Ok(claim::claim(self, request).await?)
    }

    async fn renew(&self, batch: &[Renewal]) -> StoreResult<Vec<Renewed>> {
        Ok(settle::renew(self, batch).await?)
    }

    async fn settle(&self, batch: &[Settlement]) -> StoreResult<Vec<Settled>> {
        Ok(settle::settle(self, batch).await?)
    }

    async fn fail_orphaned(&self, item: ItemId, token: ClaimToken) -> StoreResult<bool> {
        Ok(settle::fail_orphaned(self, item, token).await?)
    }

    async fn maintenance_due(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgId>> {
        Ok(sweep::maintenance_due(self, after, limit).await?)
    }

    async fn requeue_stale(&self, org: OrgId, request: &StaleRequest) -> StoreResult<Requeued> {
        Ok(sweep::requeue_stale(self, org, *request).await?)
    }

    async fn orphan_stale(&self, org: OrgId, limit: u32) -> StoreResult<u32> {
        Ok(sweep::orphan_stale(self, org, limit).await?)
    }

    async fn unaudited(&self, org: OrgId, limit: u32) -> StoreResult<Vec<WorkItem>> {
        Ok(sweep::unaudited(self, org, limit).await?)
    }

    async fn mark_audited(&self, org: OrgId, items: &[(ItemId, i64)]) -> StoreResult<()> {
        Ok(sweep::mark_audited(self, org, items).await?)
    }

    async fn cancel(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Cancelled> {
        Ok(operate::cancel(self, org, item, by).await?)
    }

    async fn retry(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Retried> {
        Ok(operate::retry(self, org, item, by).await?)
    }

    async fn get(&self, org: OrgId, item: ItemId) -> StoreResult<Option<WorkItem>> {
        Ok(inspect::get(self, org, item).await?)
    }

    async fn get_by_key(&self, org: OrgId, key: IdempotencyKey) -> StoreResult<Option<WorkItem>> {
        Ok(inspect::get_by_key(self, org, key).await?)
    }

    async fn list(&self, org: OrgId, filter: &Filter, page: &Page) -> StoreResult<Listed> {
        Ok(list::list(self, org, filter, *page).await?)
    }

    async fn gauges(&self) -> StoreResult<Gauges> {
        Ok(gauges::gauges(self).await?)
    }

    async fn purge(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        Ok(sweep::purge(self, retention, limit).await?)
    }

    async fn pause_lane(&self, lane: &Lane, reason: &ShortText, by: &ShortText) -> StoreResult<()> {
        Ok(lanes::pause(self, lane, reason, by).await?)
    }

    async fn resume_lane(&self, lane: &Lane) -> StoreResult<bool> {
        Ok(lanes::resume(self, lane).await?)
    }

    async fn paused_lanes(&self) -> StoreResult<Vec<PausedLane>> {
        Ok(lanes::paused(self).await?)
    }

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        Box::new(self.listen(lanes))
    }
}
