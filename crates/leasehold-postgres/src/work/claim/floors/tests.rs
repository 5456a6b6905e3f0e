use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold_core::{Kind, Lane};
use uuid::Uuid;

use super::{Floors, HEAD_COST, HEAD_WAIT_MAX, ITEMS_BELOW, Key, Queue, TIME_BELOW};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn queue() -> Queue {
    Queue {
        lane: Lane::parse("default").unwrap(),
        kind: Kind::parse("NOTE").unwrap(),
        priority: 0,
    }
}

/// So many seconds after the beginning.
fn key(second: i64) -> Key {
    let at = Timestamp::from_second(second).unwrap();
    (at, Uuid::from_u128(u128::try_from(second).unwrap()))
}

/// Claims of a quarter of what a floor stays below, one a second.
const QUARTER: u64 = ITEMS_BELOW / 4;

/// Floors after a claim from the head at `now` that makes the next one due much later.
fn after_head(taken: impl IntoIterator<Item = (Queue, Key, u64)>, now: Instant) -> Floors {
    let mut floors = Floors::default();
    floors.note([], false, Duration::ZERO, now);
    floors.note(taken, true, SECOND, now);
    floors
}

fn of(floors: &Floors, now: Instant) -> Option<Key> {
    let known = floors.from(now);
    known.first().map(|(_, key)| *key)
}

#[test]
fn a_queue_that_little_was_claimed_from_has_no_floor() {
    let now = Floors::now();
    let mut floors = after_head([], now);
    for second in 0..4 {
        floors.note([(queue(), key(second), QUARTER)], false, MILLISECOND, now);
        assert_eq!(of(&floors, now), None, "after {second}");
    }
    floors.note([(queue(), key(4), QUARTER)], false, MILLISECOND, now);
    assert!(of(&floors, now).is_some());
}

#[test]
fn a_floor_stays_below_what_was_claimed_last_by_items_or_by_time_whatever_is_closer() {
    let now = Floors::now();
    let mut floors = after_head([], now);
    for second in 0..10 {
        floors.note([(queue(), key(second), QUARTER)], false, MILLISECOND, now);
    }
    // Five claims back would be four seconds.
    let (last, _) = key(9);
    let by_time = (last - TIME_BELOW, Uuid::nil());
    assert_eq!(of(&floors, now), Some(by_time));

    let mut floors = after_head([], now);
    let at = |n: u64| (key(7).0, Uuid::from_u128(n.into()));
    for n in 0..10 {
        floors.note([(queue(), at(n), QUARTER)], false, MILLISECOND, now);
    }
    assert_eq!(of(&floors, now), Some(at(5)), "all are due at one time");
}

#[test]
fn a_claim_from_the_head_is_due_after_twenty_times_what_it_costs_beyond_the_usual() {
    let now = Floors::now();
    let mut floors = Floors::default();
    let big = [
        (queue(), key(1), ITEMS_BELOW),
        (queue(), key(2), ITEMS_BELOW),
    ];
    floors.note(big.clone(), true, 5 * MILLISECOND, now);
    assert!(of(&floors, now).is_some(), "nothing is known of the usual");
    assert_eq!(of(&floors, now + 5 * MILLISECOND * HEAD_COST), None);

    floors.note([], false, 4 * MILLISECOND, now);
    floors.note([], true, 5 * MILLISECOND, now);
    assert!(of(&floors, now + 19 * MILLISECOND).is_some());
    assert_eq!(of(&floors, now + 20 * MILLISECOND), None);

    floors.note([], true, 4 * MILLISECOND, now);
    assert_eq!(of(&floors, now), None, "it costs nothing more");

    floors.note([], true, 60 * SECOND, now);
    assert!(of(&floors, now + HEAD_WAIT_MAX.saturating_sub(MILLISECOND)).is_some());
    assert_eq!(of(&floors, now + HEAD_WAIT_MAX), None);
}

#[test]
fn a_few_items_found_below_leave_a_floor_where_it_is_and_many_take_it_away() {
    let now = Floors::now();
    let mut floors = after_head([], now);
    for second in 100..110 {
        floors.note([(queue(), key(second), QUARTER)], false, MILLISECOND, now);
    }
    let floor = of(&floors, now);
    floors.note([(queue(), key(1), QUARTER)], true, SECOND, now);
    assert_eq!(of(&floors, now), floor);
    for second in 2..5 {
        floors.note([(queue(), key(second), QUARTER)], true, SECOND, now);
    }
    assert_eq!(of(&floors, now), None);
}

#[test]
fn queues_have_floors_of_their_own() {
    let now = Floors::now();
    let other = Queue {
        priority: 1,
        ..queue()
    };
    let mut floors = after_head([], now);
    floors.note(
        [(other.clone(), key(1), ITEMS_BELOW)],
        false,
        MILLISECOND,
        now,
    );
    floors.note(
        [(other.clone(), key(2), ITEMS_BELOW)],
        false,
        MILLISECOND,
        now,
    );
    floors.note([(queue(), key(9), 1)], false, MILLISECOND, now);
    let known = floors.from(now);
    assert_eq!(known.len(), 1);
    assert_eq!(*known[0].0, other);
}
