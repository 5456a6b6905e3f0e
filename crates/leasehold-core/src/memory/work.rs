//! The promises about work items.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::items::{Items, Row};
use super::{MemoryStore, claims, moves};
use crate::ids::{ClaimToken, IdempotencyKey, ItemId, OrgId, UserId};
use crate::item::{NewItem, Status, WorkItem};
use crate::names::Lane;
use crate::rules;
use crate::store::work::{
    COUNT_MAX, Cancelled, ClaimRequest, Claimed, Ended, Enqueued, Filter, Gauges, LIST_MAX,
    LIST_READ_MAX, LaneGauge, Listed, Page, PausedLane, Renewal, Renewed, Requeued, Retried,
    Settled, Settlement, StaleRequest,
};
use crate::store::{Hints, StoreResult, WorkStore};
use crate::text::ShortText;
use crate::time::{age, earlier, later};

/// Items, and the lanes that are not claimed from.
#[derive(Default)]
pub(super) struct Work {
    items: Items,
    paused: BTreeMap<Lane, PausedLane>,
}

#[async_trait]
impl WorkStore for MemoryStore {
    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.clock.now())
    }

    async fn enqueue(&self, org: OrgId, batch: Vec<NewItem>) -> StoreResult<Vec<Enqueued>> {
        Ok(self.call_and_hint(|state, now, lanes| state.work.enqueue(org, batch, now, lanes)))
    }

    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<Claimed>> {
        Ok(self.call(|state, now| {
            let Work { items, paused } = &mut state.work;
            claims::claim(items, request, now, |lane| !paused.contains_key(lane))
        }))
    }

    async fn renew(&self, batch: &[Renewal]) -> StoreResult<Vec<Renewed>> {
        Ok(self.call(|state, now| {
            let items = &mut state.work.items;
            batch
                .iter()
                .map(|renewal| renew(items, renewal, now))
                .collect()
        }))
    }

    async fn settle(&self, batch: &[Settlement]) -> StoreResult<Vec<Settled>> {
        Ok(self.call_and_hint(|state, now, lanes| {
            let items = &mut state.work.items;
            batch
                .iter()
                .map(|settlement| settle(items, settlement, now, lanes))
                .collect()
        }))
    }

    async fn fail_orphaned(&self, item: ItemId, token: ClaimToken) -> StoreResult<bool> {
        Ok(self.call(|state, now| {
            let items = &mut state.work.items;
            let failed = items.org_of(item).and_then(|org| {
                items.change(org, item, |Row { item, .. }| {
                    let is_held = moves::is_held(item, token);
                    if is_held {
                        moves::orphan(item, now);
                    }
                    is_held
                })
            });
            failed.unwrap_or(false)
        }))
    }

    async fn maintenance_due(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgId>> {
        Ok(self.call(|state, now| state.work.items.index().due_orgs(after, now, limit)))
    }

    async fn requeue_stale(&self, org: OrgId, request: &StaleRequest) -> StoreResult<Requeued> {
        Ok(self.call_and_hint(|state, now, lanes| {
            requeue_stale(&mut state.work.items, org, *request, now, lanes)
        }))
    }

    async fn orphan_stale(&self, org: OrgId, limit: u32) -> StoreResult<u32> {
        Ok(self.call(|state, now| {
            let items = &mut state.work.items;
            let mut moved = 0;
            for id in items.index().stale(org, now, limit) {
                if items
                    .change(org, id, |row| moves::orphan_stale(&mut row.item, now))
                    .is_some()
                {
                    moved += 1;
                }
            }
            moved
        }))
    }

    async fn unaudited(&self, org: OrgId, limit: u32) -> StoreResult<Vec<WorkItem>> {
        Ok(self.call(|state, _| {
            let items = &state.work.items;
            let ids = items.index().owed(org).take(limit as usize);
            ids.filter_map(|id| items.get(org, id).cloned()).collect()
        }))
    }

    async fn mark_audited(&self, org: OrgId, items: &[(ItemId, i64)]) -> StoreResult<()> {
        self.call(|state, now| {
            for (id, claim_seq) in items {
                state.work.items.change(org, *id, |Row { item, .. }| {
                    let is_same = item.status == Status::Failed && item.claim_seq == *claim_seq;
                    if is_same && item.audited_at.is_none() {
                        item.audited_at = Some(now);
                        moves::write(item, UserId::NIL, now);
                    }
                });
            }
        });
        Ok(())
    }

    async fn cancel(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Cancelled> {
        Ok(self.call(|state, now| {
            let answer = state
                .work
                .items
                .change(org, item, |row| cancel(&mut row.item, by, now));
            answer.unwrap_or(Cancelled::NotFound)
        }))
    }

    async fn retry(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Retried> {
        Ok(self.call_and_hint(|state, now, lanes| {
            let answer = state.work.items.change(org, item, |Row { item, .. }| {
                if item.status != Status::Failed {
                    return Retried::NotFailed(item.clone());
                }
                moves::retry(item, by, now);
                lanes.insert(item.lane.clone());
                Retried::Queued(item.clone())
            });
            answer.unwrap_or(Retried::NotFound)
        }))
    }

    async fn get(&self, org: OrgId, item: ItemId) -> StoreResult<Option<WorkItem>> {
        Ok(self.call(|state, _| state.work.items.get(org, item).cloned()))
    }

    async fn get_by_key(&self, org: OrgId, key: IdempotencyKey) -> StoreResult<Option<WorkItem>> {
        Ok(self.call(|state, _| state.work.items.by_key(org, key).cloned()))
    }

    async fn list(&self, org: OrgId, filter: &Filter, page: &Page) -> StoreResult<Listed> {
        Ok(self.call(|state, _| list(&state.work.items, org, filter, *page)))
    }

    async fn gauges(&self) -> StoreResult<Gauges> {
        Ok(self.call(|state, now| gauges(&state.work.items, now)))
    }

    async fn purge(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        Ok(self.call(|state, now| state.work.items.purge(earlier(now, retention), limit)))
    }

    async fn pause_lane(&self, lane: &Lane, reason: &ShortText, by: &ShortText) -> StoreResult<()> {
        self.call(|state, now| {
            let paused = state
                .work
                .paused
                .entry(lane.clone())
                .or_insert_with(|| PausedLane {
                    lane: lane.clone(),
                    reason: reason.clone(),
                    by: by.clone(),
                    since: now,
                });
            paused.reason = reason.clone();
            paused.by = by.clone();
        });
        Ok(())
    }

    async fn resume_lane(&self, lane: &Lane) -> StoreResult<bool> {
        Ok(self.call_and_hint(|state, _, lanes| {
            let was_paused = state.work.paused.remove(lane).is_some();
            if was_paused {
                lanes.insert(lane.clone());
            }
            was_paused
        }))
    }

    async fn paused_lanes(&self) -> StoreResult<Vec<PausedLane>> {
        Ok(self.call(|state, _| state.work.paused.values().cloned().collect()))
    }

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        Box::new(self.hints.subscribe(lanes))
    }
}

impl Work {
    pub(super) fn item(&self, org: OrgId, id: ItemId) -> Option<&WorkItem> {
        self.items.get(org, id)
    }

    /// Enqueues a batch, and names the lanes that gained an item.
    pub(super) fn enqueue(
        &mut self,
        org: OrgId,
        batch: Vec<NewItem>,
        now: Timestamp,
        lanes: &mut BTreeSet<Lane>,
    ) -> Vec<Enqueued> {
        let fates = batch.into_iter().map(|new| {
            let fate = self.items.enqueue(org, new, now);
            if let Enqueued::Inserted(item) = &fate {
                lanes.insert(item.lane.clone());
            }
            fate
        });
        fates.collect()
    }
}

fn renew(items: &mut Items, renewal: &Renewal, now: Timestamp) -> Renewed {
    let hold = renewal.hold;
    let answer = items.change(hold.org_id, hold.item_id, |Row { item, .. }| {
        if !moves::is_held(item, hold.token) || !moves::is_live(item, now) {
            return Renewed::Lost;
        }
        item.lease_expires_at = Some(later(now, renewal.lease));
        if let Some(progress) = &renewal.progress {
            item.progress = Some(progress.clone());
        }
        moves::write(item, UserId::NIL, now);
        if item.cancel_requested_at.is_some() {
            Renewed::CancelRequested
        } else {
            Renewed::Kept
        }
    });
    answer.unwrap_or(Renewed::Lost)
}

fn settle(
    items: &mut Items,
    settlement: &Settlement,
    now: Timestamp,
    lanes: &mut BTreeSet<Lane>,
) -> Settled {
    let Settlement { hold, transition } = settlement;
    let answer = items.change(hold.org_id, hold.item_id, |row| {
        if moves::is_held(&row.item, hold.token)
            && (moves::is_live(&row.item, now) || !transition.needs_live_lease())
        {
            let ended = moves::settle(row, transition, now);
            hint_if_due(&row.item, now, lanes);
            Settled::Settled(ended)
        } else if row.settled_token == Some(hold.token) {
            Settled::AlreadySettled
        } else {
            Settled::Conflict
        }
    });
    answer.unwrap_or(Settled::Conflict)
}

fn requeue_stale(
    items: &mut Items,
    org: OrgId,
    request: StaleRequest,
    now: Timestamp,
    lanes: &mut BTreeSet<Lane>,
) -> Requeued {
    let mut requeued = Requeued::default();
    for id in items.index().stale(org, now, request.limit) {
        let wait = rules::stagger(requeued.recovered, request.limit, request.spread);
        let moved = items.change(org, id, |Row { item, .. }| {
            let ended = moves::requeue(item, later(now, wait), now);
            hint_if_due(item, now, lanes);
            (ended, item.clone())
        });
        match moved {
            Some((Ended::DeadLetter, item)) => requeued.dead.push(item),
            Some((Ended::Cancelled, _)) => requeued.cancelled += 1,
            Some((Ended::Queued | Ended::Done, _)) => requeued.recovered += 1,
            None => {}
        }
    }
    requeued
}

fn list(items: &Items, org: OrgId, filter: &Filter, page: Page) -> Listed {
    let limit = page.limit.min(LIST_MAX);
    let mut found = Vec::new();
    let mut looked_to = None;
    for (looked_at, item) in (1..=LIST_READ_MAX).zip(items.of_org(org, page.before)) {
        if found.len() >= limit as usize {
            break;
        }
        if filter.passes(item) {
            found.push(item.clone());
        }
        looked_to = (looked_at == LIST_READ_MAX).then_some(item.id);
    }
    Listed::new(found, limit, looked_to)
}

fn cancel(item: &mut WorkItem, by: UserId, now: Timestamp) -> Cancelled {
    match item.status {
        Status::Queued => {
            moves::cancel(item, by, now);
            Cancelled::Ended(item.clone())
        }
        Status::Claimed => {
            if item.cancel_requested_at.is_none() {
                item.cancel_requested_at = Some(now);
                moves::write(item, by, now);
            }
            Cancelled::Requested(item.clone())
        }
        Status::Done | Status::Failed => Cancelled::AlreadyFinal(item.clone()),
    }
}

fn hint_if_due(item: &WorkItem, now: Timestamp, lanes: &mut BTreeSet<Lane>) {
    if item.status == Status::Queued && item.available_at <= now {
        lanes.insert(item.lane.clone());
    }
}

fn gauges(items: &Items, now: Timestamp) -> Gauges {
    let index = items.index();
    let mut lanes: BTreeMap<&Lane, LaneGauge> = BTreeMap::new();
    for place in &index.queued {
        let gauge = lanes
            .entry(&place.lane)
            .or_insert_with(|| empty_gauge(&place.lane));
        if place.available_at <= now {
            gauge.ready = (gauge.ready + 1).min(COUNT_MAX);
            gauge.oldest_age = gauge.oldest_age.max(age(now, place.available_at));
        } else {
            gauge.delayed = (gauge.delayed + 1).min(COUNT_MAX);
        }
    }
    for (lane, claims) in index.claims() {
        let gauge = lanes.entry(lane).or_insert_with(|| empty_gauge(lane));
        gauge.claimed = (gauge.claimed + u64::from(claims)).min(COUNT_MAX);
    }
    Gauges {
        now,
        lanes: lanes.into_values().collect(),
        dead: index.dead().min(COUNT_MAX),
        expired: (index.expired(now) as u64).min(COUNT_MAX),
    }
}

fn empty_gauge(lane: &Lane) -> LaneGauge {
    LaneGauge {
        lane: lane.clone(),
        ready: 0,
        delayed: 0,
        claimed: 0,
        oldest_age: Duration::ZERO,
    }
}
