//! What is made of ticks that nobody made in time.

use leasehold_core::{JsonObject, Kind, OrgId};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hourly() -> ScheduleDefinition {
    let kind = Kind::parse("REPORT").unwrap();
    ScheduleDefinition::new("hourly", "@hourly", kind, JsonObject::empty())
}

/// From ten o'clock on.
fn made(missed: Missed, now: &str) -> (Vec<Timestamp>, Timestamp, bool) {
    let timing = timing_of(&hourly()).unwrap();
    let come = come(&timing, missed, at("2026-03-01T10:00:00Z"), at(now));
    assert_eq!(timing.next_after(at(now)), come.next);
    (come.made, come.last, come.has_skipped)
}

#[test]
fn a_tick_in_time_is_made_whatever_the_policy() {
    let ten = at("2026-03-01T10:00:00Z");
    for missed in [Missed::Skip, Missed::Once, Missed::UpTo(5)] {
        for now in ["2026-03-01T10:00:00Z", "2026-03-01T10:00:59Z"] {
            assert_eq!(made(missed, now), (vec![ten], ten, false), "{missed} {now}");
        }
    }
}

#[test]
fn of_missed_ticks_none_or_one_or_so_many_are_made() {
    let [eleven, noon] = ["2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"].map(at);
    let ten = at("2026-03-01T10:00:00Z");
    let now = "2026-03-01T12:30:00Z";
    assert_eq!(made(Missed::Skip, now), (vec![], noon, true));
    assert_eq!(made(Missed::Once, now), (vec![noon], noon, true));
    assert_eq!(made(Missed::UpTo(2), now), (vec![eleven, noon], noon, true));
    let all = (vec![ten, eleven, noon], noon, false);
    assert_eq!(made(Missed::UpTo(3), now), all);
    assert_eq!(made(Missed::UpTo(100), now), all);
    // One late tick is missed as well, and made up for.
    assert_eq!(
        made(Missed::Once, "2026-03-01T10:30:00Z"),
        (vec![ten], ten, false)
    );
    assert_eq!(
        made(Missed::Skip, "2026-03-01T10:01:01Z"),
        (vec![], ten, true)
    );
    // The last of several may be in time.
    let in_time = (vec![noon], noon, true);
    assert_eq!(made(Missed::Skip, "2026-03-01T12:00:30Z"), in_time);
}

#[test]
fn every_worker_makes_the_same_item_of_a_tick() {
    let mut definition = hourly();
    definition.jitter = Duration::from_mins(10);
    let id = ScheduleId::of_name(OrgId::SINGLE, "hourly");
    let tick = at("2026-03-01T10:00:00Z");
    let item = || tick_item(id, &definition, tick, RequestId::NIL);
    let (one, other) = (item(), item());
    assert_eq!(one.idempotency_key, other.idempotency_key);
    assert_eq!(one.due, other.due);
    assert_eq!(one.created_at, tick);
    let Due::At(due) = one.due else {
        panic!("{:?}", one.due)
    };
    assert!(due >= tick && due < later(tick, definition.jitter), "{due}");
    let next = tick_item(id, &definition, at("2026-03-01T11:00:00Z"), RequestId::NIL);
    assert_ne!(one.idempotency_key, next.idempotency_key);
    let id = ScheduleId::of_name(OrgId::SINGLE, "other");
    let other = tick_item(id, &definition, tick, RequestId::NIL);
    assert_ne!(one.idempotency_key, other.idempotency_key);
}
