//! Which items a claim takes: a merge of the queues of every (lane, kind), so that it costs what it
//! takes and not what waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use jiff::Timestamp;

use super::items::{Index, Items, Place};
use super::moves;
use crate::ids::ItemId;
use crate::item::WorkItem;
use crate::names::{Kind, Lane};
use crate::store::work::{ClaimRequest, Claimed};

/// The order of claims across lanes and kinds.
type Rank = (i16, Timestamp, ItemId);

/// Answers what the token already holds, or else claims. `is_open` says which lanes are not paused.
pub(super) fn claim(
    items: &mut Items,
    request: &ClaimRequest,
    now: Timestamp,
    is_open: impl Fn(&Lane) -> bool,
) -> Vec<Claimed> {
    let held = held(items, request);
    if !held.is_empty() {
        return held;
    }
    let queues: BTreeSet<(&Lane, &Kind)> = request
        .lanes
        .iter()
        .filter(|lane| is_open(lane))
        .flat_map(|lane| request.kinds.iter().map(move |kind| (lane, kind)))
        .collect();
    let mut heads: BTreeMap<Rank, Place> = queues
        .into_iter()
        .filter_map(|(lane, kind)| {
            first_due(items.index(), Bound::Included(front(lane, kind)), now)
        })
        .map(ranked)
        .collect();

    let mut claimed = Vec::new();
    while claimed.len() < request.limit as usize {
        let Some((_, head)) = heads.pop_first() else {
            break;
        };
        if let Some(taken) = take(items, &head, request, now) {
            claimed.push(taken);
        }
        heads.extend(first_due(items.index(), Bound::Excluded(head), now).map(ranked));
    }
    claimed
}

/// Claims the item at the place, unless its org has its fill of the lane. Claims of this very
/// statement count, since each is written before the next is looked at.
fn take(
    items: &mut Items,
    place: &Place,
    request: &ClaimRequest,
    now: Timestamp,
) -> Option<Claimed> {
    let org_id = items.org_of(place.id)?;
    let is_full = request
        .tenant_cap
        .is_some_and(|cap| items.index().claims_of(org_id, &place.lane) >= cap);
    if is_full {
        return None;
    }
    items.change(org_id, place.id, |row| {
        moves::claim(&mut row.item, request, now);
        Claimed {
            org_id,
            item: row.item.clone(),
        }
    })
}

fn held(items: &Items, request: &ClaimRequest) -> Vec<Claimed> {
    let mut held: Vec<Claimed> = items
        .index()
        .held_by(request.token)
        .filter_map(|id| {
            let org_id = items.org_of(id)?;
            Some(Claimed {
                org_id,
                item: items.get(org_id, id)?.clone(),
            })
        })
        .collect();
    held.sort_by_key(|claimed| rank(&claimed.item));
    held
}

fn rank(item: &WorkItem) -> Rank {
    (item.priority, item.available_at, item.id)
}

fn ranked(place: Place) -> (Rank, Place) {
    ((place.priority, place.available_at, place.id), place)
}

/// Before every item of the lane and kind.
fn front(lane: &Lane, kind: &Kind) -> Place {
    Place {
        lane: lane.clone(),
        kind: kind.clone(),
        priority: i16::MIN,
        available_at: Timestamp::MIN,
        id: ItemId::NIL,
    }
}

/// The first due item from a place on, of that place's lane and kind.
fn first_due(index: &Index, mut from: Bound<Place>, now: Timestamp) -> Option<Place> {
    loop {
        let (Bound::Included(start) | Bound::Excluded(start)) = &from else {
            return None;
        };
        let found = index
            .queued
            .range((from.as_ref(), Bound::Unbounded))
            .next()?;
        if found.lane != start.lane || found.kind != start.kind {
            return None;
        }
        if found.available_at <= now {
            return Some(found.clone());
        }
        // What follows within this priority is due later still: look at the next one.
        let next = Place {
            priority: found.priority.checked_add(1)?,
            ..front(&found.lane, &found.kind)
        };
        from = Bound::Included(next);
    }
}
