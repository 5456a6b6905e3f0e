//! Items, requests and transitions for the cases: plain ones, which a case then alters.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{ClaimRequest, Hold, Renewal, Settlement, StaleRequest};
use leasehold_core::{
    ClaimToken, Failure, FailureCode, IdempotencyKey, ItemId, JsonObject, Kind, Lane, NewItem,
    OrgId, ShortText, UserId, WorkItem, WorkerId,
};
use uuid::Uuid;

/// The org that a case acts in.
pub const ORG: OrgId = OrgId::new(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_00a1));

/// Another one, whose rows must stay untouched.
pub const OTHER: OrgId = OrgId::new(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_00b2));

/// Who enqueues.
pub const USER: UserId = UserId::new(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_00c3));

/// Who cancels and retries.
pub const OPERATOR: UserId =
    UserId::new(Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_00d4));

/// Long enough that no machine is so slow that it passes by itself.
pub const LEASE: Duration = Duration::from_mins(10);

/// Most of [`LEASE`].
pub const MOST_OF_LEASE: Duration = Duration::from_mins(9);

/// What [`MOST_OF_LEASE`] leaves of it.
pub const REST_OF_LEASE: Duration = Duration::from_mins(1);

/// A delay that only [`super::Fixture::advance`] can make pass.
pub const HOUR: Duration = Duration::from_hours(1);

/// One day.
pub const DAY: Duration = Duration::from_hours(24);

/// When items were constructed: no store's now, and exact to the microsecond.
pub const CREATED: Timestamp = Timestamp::constant(1_700_000_000, 123_456_000);

/// A kind by name.
pub fn kind(name: &str) -> Kind {
    Kind::parse(name).unwrap()
}

/// A lane by name.
pub fn lane(name: &str) -> Lane {
    Lane::parse(name).unwrap()
}

/// A worker by name.
pub fn worker(name: &str) -> WorkerId {
    WorkerId::parse(name).unwrap()
}

/// A JSON object.
pub fn json(text: &str) -> JsonObject {
    JsonObject::parse(text).unwrap()
}

/// An id whose order among its like is its number's.
pub const fn id(number: u128) -> ItemId {
    ItemId::new(Uuid::from_u128(number))
}

/// A plain item of kind `NOTE`, due now on the default lane.
pub fn item() -> NewItem {
    let mut item = NewItem::new(kind("NOTE"), json(r#"{"note":1}"#), CREATED);
    item.created_by = USER;
    item
}

/// A plain item under [`id`]`(number)`.
pub fn numbered(number: u128) -> NewItem {
    let id = id(number);
    NewItem {
        id,
        idempotency_key: IdempotencyKey::new(id.as_uuid()),
        ..item()
    }
}

/// A plain item on a lane.
pub fn on_lane(name: &str) -> NewItem {
    NewItem {
        lane: lane(name),
        ..item()
    }
}

/// A plain item that has no attempt left once it was claimed.
pub fn last_attempt() -> NewItem {
    NewItem {
        max_attempts: 1,
        ..item()
    }
}

/// A claim of one plain item, with a fresh token.
pub fn request() -> ClaimRequest {
    ClaimRequest {
        token: ClaimToken::mint(),
        worker: worker("worker-1"),
        lanes: vec![Lane::default()],
        kinds: vec![kind("NOTE")],
        lease: LEASE,
        limit: 1,
        tenant_cap: None,
    }
}

/// A claim of up to `limit` plain items, with a fresh token.
pub fn request_of(limit: u32) -> ClaimRequest {
    ClaimRequest { limit, ..request() }
}

/// A claim of one plain item from a lane, with a fresh token.
pub fn request_from(lane_name: &str) -> ClaimRequest {
    ClaimRequest {
        lanes: vec![lane(lane_name)],
        ..request()
    }
}

/// A renewal by [`LEASE`] without progress.
pub fn renewal(hold: Hold) -> Renewal {
    Renewal {
        hold,
        lease: LEASE,
        progress: None,
    }
}

/// The failure of a handler.
pub fn failure() -> Failure {
    Failure::own(FailureCode::HANDLER_ERROR, "it broke")
}

/// Done, with nothing to keep.
pub const fn complete() -> Transition {
    Transition::Complete { result: None }
}

/// Failed, to be tried again.
pub fn retry(delay: Duration) -> Transition {
    Transition::Retry {
        failure: failure(),
        delay,
    }
}

/// Failed for good.
pub fn bury() -> Transition {
    Transition::Bury { failure: failure() }
}

/// Held back by a guard.
pub fn park(delay: Duration) -> Transition {
    Transition::Park {
        reason: ShortText::new("waits for the bank"),
        delay,
    }
}

/// Handed back.
pub fn release(delay: Duration) -> Transition {
    Transition::Release {
        note: ShortText::new("worker stopping"),
        delay,
    }
}

/// One transition of every kind, none of which queues the item for less than an hour.
pub fn every_transition() -> [Transition; 5] {
    [complete(), retry(HOUR), bury(), park(HOUR), release(HOUR)]
}

/// One settlement.
pub const fn settlement(hold: Hold, transition: Transition) -> Settlement {
    Settlement { hold, transition }
}

/// A sweep of up to `limit` items with no spread.
pub const fn sweep_of(limit: u32) -> StaleRequest {
    StaleRequest {
        limit,
        spread: Duration::ZERO,
    }
}

/// The hold on a claimed item of [`ORG`].
pub fn hold(item: &WorkItem) -> Hold {
    hold_in(ORG, item)
}

/// The hold on a claimed item of an org.
pub fn hold_in(org_id: OrgId, item: &WorkItem) -> Hold {
    Hold {
        org_id,
        item_id: item.id,
        token: item.claim_token.expect("the item is claimed"),
    }
}

/// The ids, in the order given.
pub fn ids<'a>(items: impl IntoIterator<Item = &'a WorkItem>) -> Vec<ItemId> {
    items.into_iter().map(|item| item.id).collect()
}
