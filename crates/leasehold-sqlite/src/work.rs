//! The promises about work items.
//!
//! Each submodule holds the statements of one concern as functions over a transaction or a snapshot;
//! this one hands them to the writer or to a reader.

mod claim;
mod enqueue;
mod inspect;
mod lanes;
mod list;
mod operate;
mod settle;
mod sweep;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::item::ERRORS_MAX;
use leasehold_core::store::StoreResult;
use leasehold_core::store::work::{
    Cancelled, ClaimRequest, Claimed, Enqueued, Filter, Gauges, Listed, Page, PausedLane, Renewal,
    Renewed, Requeued, Retried, Settled, Settlement, StaleRequest,
};
use leasehold_core::{
    ClaimToken, Hints, IdempotencyKey, ItemId, Lane, NewItem, OrgId, ShortText, UserId, WorkItem,
    WorkStore,
};

use crate::store::SqliteStore;

pub(crate) use enqueue::enqueue;

/// About how many rows a call writes that writes one.
const ONE: usize = 1;

/// How many errors a row keeps, as a statement's parameter.
fn errors_max() -> i64 {
    i64::try_from(ERRORS_MAX).unwrap_or(i64::MAX)
}

#[async_trait]
impl WorkStore for SqliteStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.clock_now())
    }

    async fn enqueue(&self, org: OrgId, batch: Vec<NewItem>) -> StoreResult<Vec<Enqueued>> {
        self.write(batch.len(), move |unit| enqueue(unit, org, batch))
            .await
    }

    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<Claimed>> {
        let request = request.clone();
        let rows = request.limit as usize;
        self.write(rows, move |unit| claim::claim(unit, &request))
            .await
    }

    async fn renew(&self, batch: &[Renewal]) -> StoreResult<Vec<Renewed>> {
        let batch = batch.to_vec();
        self.write_first(batch.len(), move |unit| settle::renew(unit, &batch))
            .await
    }

    async fn settle(&self, batch: &[Settlement]) -> StoreResult<Vec<Settled>> {
        let batch = batch.to_vec();
        self.write(batch.len(), move |unit| settle::settle(unit, &batch))
            .await
    }

    async fn fail_orphaned(&self, item: ItemId, token: ClaimToken) -> StoreResult<bool> {
        self.write(ONE, move |unit| settle::fail_orphaned(unit, item, token))
            .await
    }

    async fn maintenance_due(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgId>> {
        self.read(move |db, now| inspect::maintenance_due(db, now, after, limit))
            .await
    }

    async fn requeue_stale(&self, org: OrgId, request: &StaleRequest) -> StoreResult<Requeued> {
        let request = *request;
        let rows = request.limit as usize;
        self.write(rows, move |unit| sweep::requeue_stale(unit, org, request))
            .await
    }

    async fn orphan_stale(&self, org: OrgId, limit: u32) -> StoreResult<u32> {
        self.write(limit as usize, move |unit| {
            sweep::orphan_stale(unit, org, limit)
        })
        .await
    }

    async fn unaudited(&self, org: OrgId, limit: u32) -> StoreResult<Vec<WorkItem>> {
        self.read(move |db, _| inspect::unaudited(db, org, limit))
            .await
    }

    async fn mark_audited(&self, org: OrgId, items: &[(ItemId, i64)]) -> StoreResult<()> {
        let items = items.to_vec();
        self.write(items.len(), move |unit| {
            sweep::mark_audited(unit, org, &items)
        })
        .await
    }

    async fn cancel(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Cancelled> {
        self.write(ONE, move |unit| operate::cancel(unit, org, item, by))
            .await
    }

    async fn retry(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Retried> {
        self.write(ONE, move |unit| operate::retry(unit, org, item, by))
            .await
    }

    async fn get(&self, org: OrgId, item: ItemId) -> StoreResult<Option<WorkItem>> {
        self.read(move |db, _| inspect::get(db, org, item)).await
    }

    async fn get_by_key(&self, org: OrgId, key: IdempotencyKey) -> StoreResult<Option<WorkItem>> {
        self.read(move |db, _| inspect::get_by_key(db, org, key))
            .await
    }

    async fn list(&self, org: OrgId, filter: &Filter, page: &Page) -> StoreResult<Listed> {
        let (filter, page) = (filter.clone(), *page);
        self.read(move |db, _| list::list(db, org, &filter, page))
            .await
    }

    async fn gauges(&self) -> StoreResult<Gauges> {
        self.read(inspect::gauges).await
    }

    async fn purge(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        self.write(limit as usize, move |unit| {
            sweep::purge(unit, retention, limit)
        })
        .await
    }

    async fn pause_lane(&self, lane: &Lane, reason: &ShortText, by: &ShortText) -> StoreResult<()> {
        let (lane, reason, by) = (lane.clone(), reason.clone(), by.clone());
        self.write(ONE, move |unit| lanes::pause(unit, &lane, &reason, &by))
            .await
    }

    async fn resume_lane(&self, lane: &Lane) -> StoreResult<bool> {
        let lane = lane.clone();
        self.write(ONE, move |unit| lanes::resume(unit, &lane))
            .await
    }

    async fn paused_lanes(&self) -> StoreResult<Vec<PausedLane>> {
        self.read(|db, _| lanes::paused(db)).await
    }

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        Box::new(self.listen(lanes))
    }
}

#[cfg(test)]
mod tests;
