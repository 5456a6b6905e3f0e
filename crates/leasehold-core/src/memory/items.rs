//! The rows of work items, and indexes over them that cannot be forgotten: every write goes through
//! [`Items::change`], which takes the row out of the indexes and puts it back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use jiff::Timestamp;
use uuid::Uuid;

use crate::ids::{ClaimToken, IdempotencyKey, ItemId, OrgId};
use crate::item::{NewItem, Status, WorkItem};
use crate::names::{Kind, Lane};
use crate::store::work::Enqueued;

/// Above every id, for the end of a range.
const ID_MAX: ItemId = ItemId::new(Uuid::max());

/// An item and what the store keeps beside it.
pub(super) struct Row {
    pub(super) org_id: OrgId,
    pub(super) item: WorkItem,
    /// Which claim settled the item last, so that its settle may be asked again.
    pub(super) settled_token: Option<ClaimToken>,
}

/// All rows.
#[derive(Default)]
pub(super) struct Items {
    rows: BTreeMap<ItemId, Row>,
    keys: BTreeMap<(OrgId, IdempotencyKey), ItemId>,
    by_org: BTreeSet<(OrgId, ItemId)>,
    index: Index,
}

/// A queued item's place: within a lane and a kind, in the order of claims.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) lane: Lane,
    pub(super) kind: Kind,
    pub(super) priority: i16,
    pub(super) available_at: Timestamp,
    pub(super) id: ItemId,
}

impl Place {
    fn of(item: &WorkItem) -> Self {
        Self {
            lane: item.lane.clone(),
            kind: item.kind.clone(),
            priority: item.priority,
            available_at: item.available_at,
            id: item.id,
        }
    }
}

/// What can be asked without reading every row.
#[derive(Default)]
pub(super) struct Index {
    /// Queued items.
    pub(super) queued: BTreeSet<Place>,
    /// Claimed items by the token that holds them.
    held: BTreeSet<(ClaimToken, ItemId)>,
    /// Claimed items by the end of their lease.
    leases: BTreeSet<(OrgId, Timestamp, ItemId)>,
    /// How many claims an org has in a lane.
    claims: BTreeMap<(OrgId, Lane), u32>,
    /// Dead letters whose audit entry is owed.
    owed: BTreeSet<(OrgId, ItemId)>,
    /// Finished items that a purge may delete, by their last write.
    purgeable: BTreeSet<(Timestamp, ItemId)>,
    /// Dead letters.
    dead: u64,
}

impl Index {
    fn insert(&mut self, row: &Row) {
        let (org_id, item) = (row.org_id, &row.item);
        match item.status {
            Status::Queued => {
                self.queued.insert(Place::of(item));
            }
            Status::Claimed => {
                if let (Some(token), Some(end)) = (item.claim_token, item.lease_expires_at) {
                    self.held.insert((token, item.id));
                    self.leases.insert((org_id, end, item.id));
                }
                *self.claims.entry((org_id, item.lane.clone())).or_default() += 1;
            }
            Status::Done | Status::Failed => {
                if item.is_dead_letter() {
                    self.dead += 1;
                }
                if is_owed(item) {
                    self.owed.insert((org_id, item.id));
                } else {
                    self.purgeable.insert((item.updated_at, item.id));
                }
            }
        }
    }

    fn remove(&mut self, row: &Row) {
        let (org_id, item) = (row.org_id, &row.item);
        match item.status {
            Status::Queued => {
                self.queued.remove(&Place::of(item));
            }
            Status::Claimed => {
                if let (Some(token), Some(end)) = (item.claim_token, item.lease_expires_at) {
                    self.held.remove(&(token, item.id));
                    self.leases.remove(&(org_id, end, item.id));
                }
                let key = (org_id, item.lane.clone());
                let left = self
                    .claims
                    .get(&key)
                    .map_or(0, |claims| claims.saturating_sub(1));
                if left == 0 {
                    self.claims.remove(&key);
                } else {
                    self.claims.insert(key, left);
                }
            }
            Status::Done | Status::Failed => {
                if item.is_dead_letter() {
                    self.dead = self.dead.saturating_sub(1);
                }
                self.owed.remove(&(org_id, item.id));
                self.purgeable.remove(&(item.updated_at, item.id));
            }
        }
    }

    /// The items that the token holds.
    pub(super) fn held_by(&self, token: ClaimToken) -> impl Iterator<Item = ItemId> {
        self.held
            .range((token, ItemId::NIL)..=(token, ID_MAX))
            .map(|(_, id)| *id)
    }

    /// Every org's claims in every lane where it has one.
    pub(super) fn claims(&self) -> impl Iterator<Item = (&Lane, u32)> {
        self.claims
            .iter()
            .map(|((_, lane), claims)| (lane, *claims))
    }

    /// How many claims the org has in the lane.
    pub(super) fn claims_of(&self, org: OrgId, lane: &Lane) -> u32 {
        self.claims.get(&(org, lane.clone())).copied().unwrap_or(0)
    }

    /// How many dead letters there are.
    pub(super) const fn dead(&self) -> u64 {
        self.dead
    }

    /// How many claims of any org have outlived their lease.
    pub(super) fn expired(&self, now: Timestamp) -> usize {
        self.leases.iter().filter(|(_, end, _)| *end <= now).count()
    }

    /// The org's claims whose lease is over, at most `limit`, lowest id first.
    pub(super) fn stale(&self, org: OrgId, now: Timestamp, limit: u32) -> Vec<ItemId> {
        let range = (org, Timestamp::MIN, ItemId::NIL)..=(org, now, ID_MAX);
        let ids: BTreeSet<ItemId> = self.leases.range(range).map(|(_, _, id)| *id).collect();
        ids.into_iter().take(limit as usize).collect()
    }

    /// The org's dead letters whose audit entry is owed, lowest id first.
    pub(super) fn owed(&self, org: OrgId) -> impl Iterator<Item = ItemId> {
        self.owed
            .range((org, ItemId::NIL)..=(org, ID_MAX))
            .map(|(_, id)| *id)
    }

    /// Orgs above `after` with a stale claim or an owed audit entry, in id order.
    pub(super) fn due_orgs(&self, after: Option<OrgId>, now: Timestamp, limit: u32) -> Vec<OrgId> {
        let mut due = BTreeSet::new();
        // One step per org and not per row: each look goes past all rows of the org found.
        let mut passed = after;
        while due.len() < limit as usize {
            let from = passed.map_or(Bound::Unbounded, |org| {
                Bound::Excluded((org, Timestamp::MAX, ID_MAX))
            });
            let Some((org, end, _)) = self.leases.range((from, Bound::Unbounded)).next() else {
                break;
            };
            if *end <= now {
                due.insert(*org);
            }
            passed = Some(*org);
        }
        let mut passed = after;
        for _ in 0..limit {
            let from = passed.map_or(Bound::Unbounded, |org| Bound::Excluded((org, ID_MAX)));
            let Some((org, _)) = self.owed.range((from, Bound::Unbounded)).next() else {
                break;
            };
            due.insert(*org);
            passed = Some(*org);
        }
        due.into_iter().take(limit as usize).collect()
    }
}

fn is_owed(item: &WorkItem) -> bool {
    item.is_dead_letter() && item.audited_at.is_none()
}

impl Items {
    /// Reads the indexes.
    pub(super) const fn index(&self) -> &Index {
        &self.index
    }

    /// Writes a new item, unless its id or its key is taken.
    pub(super) fn enqueue(&mut self, org: OrgId, new: NewItem, now: Timestamp) -> Enqueued {
        if let Some(row) = self.rows.get(&new.id) {
            return if row.org_id == org {
                Enqueued::IdExists(row.item.clone())
            } else {
                Enqueued::IdTaken
            };
        }
        if let Some(item) = self.by_key(org, new.idempotency_key) {
            return Enqueued::KeyExists(item.clone());
        }
        let item = new.into_row(now);
        let row = Row {
            org_id: org,
            item: item.clone(),
            settled_token: None,
        };
        self.index.insert(&row);
        self.keys.insert((org, item.idempotency_key), item.id);
        self.by_org.insert((org, item.id));
        self.rows.insert(item.id, row);
        Enqueued::Inserted(item)
    }

    /// Lets `edit` look at the org's row and change it. `None` if the org has no such row.
    ///
    /// An edit that finds its condition not met leaves the row alone and says so in its answer. It
    /// never changes the id, the org or the key.
    pub(super) fn change<T>(
        &mut self,
        org: OrgId,
        id: ItemId,
        edit: impl FnOnce(&mut Row) -> T,
    ) -> Option<T> {
        let row = self.rows.get_mut(&id).filter(|row| row.org_id == org)?;
        self.index.remove(row);
        let answer = edit(row);
        self.index.insert(row);
        Some(answer)
    }

    /// The org of an item, for the calls that are given none.
    pub(super) fn org_of(&self, id: ItemId) -> Option<OrgId> {
        self.rows.get(&id).map(|row| row.org_id)
    }

    /// The org's item.
    pub(super) fn get(&self, org: OrgId, id: ItemId) -> Option<&WorkItem> {
        self.rows
            .get(&id)
            .filter(|row| row.org_id == org)
            .map(|row| &row.item)
    }

    /// The item that holds the key in the org.
    pub(super) fn by_key(&self, org: OrgId, key: IdempotencyKey) -> Option<&WorkItem> {
        self.keys.get(&(org, key)).and_then(|id| self.get(org, *id))
    }

    /// The org's items with an id below `before`, highest first.
    pub(super) fn of_org(
        &self,
        org: OrgId,
        before: Option<ItemId>,
    ) -> impl Iterator<Item = &WorkItem> {
        let below = before.map_or(Bound::Included((org, ID_MAX)), |id| {
            Bound::Excluded((org, id))
        });
        self.by_org
            .range((Bound::Unbounded, below))
            .rev()
            .take_while(move |(found, _)| *found == org)
            .filter_map(move |(_, id)| self.get(org, *id))
    }

    /// Deletes up to `limit` finished items last written at `until` or before. How many.
    pub(super) fn purge(&mut self, until: Timestamp, limit: u32) -> u32 {
        let range = ..=(until, ID_MAX);
        let ids: Vec<ItemId> = self
            .index
            .purgeable
            .range(range)
            .take(limit as usize)
            .map(|(_, id)| *id)
            .collect();
        let mut purged = 0;
        for id in ids {
            if let Some(row) = self.rows.remove(&id) {
                self.index.remove(&row);
                self.keys.remove(&(row.org_id, row.item.idempotency_key));
                self.by_org.remove(&(row.org_id, id));
                purged += 1;
            }
        }
        purged
    }
}
