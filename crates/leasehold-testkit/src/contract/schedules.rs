//! Schedules: one item per tick, however many look.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::StoreError;
use leasehold_core::store::schedules::{
    Advance, Advanced, Missed, Overlap, PutSchedule, Schedule, ScheduleDefinition, Ticks, tick_key,
};
use leasehold_core::store::work::Enqueued;
use leasehold_core::time::later;
use leasehold_core::{NewItem, ScheduleId, ShortText};
use uuid::Uuid;

use super::fixture::{Fixture, only};
use super::samples::{
    CREATED, HOUR, ORG, OTHER, bury, complete, hold, item, json, kind, lane, on_lane, request,
    request_of,
};

/// A schedule whose id and name are its number's, with a first tick that is long over.
pub fn schedule(number: u128) -> PutSchedule {
    PutSchedule {
        id: ScheduleId::new(Uuid::from_u128(number)),
        definition: ScheduleDefinition {
            name: format!("schedule {number}"),
            kind: kind("NOTE"),
            lane: lane("default"),
            payload: json(r#"{ "b":1.50, "a":123456789012345678901234567890 }"#),
            priority: 0,
            max_attempts: 3,
            expression: "every minute".to_owned(),
            zone: "UTC".to_owned(),
            starts_at: None,
            ends_at: None,
            missed: Missed::Once,
            overlap: Overlap::Allow,
            jitter: Duration::ZERO,
        },
        declared_by: None,
        next_tick: Some(tick(1)),
    }
}

/// As it is stored when it was put for the first time.
pub fn fresh(put: PutSchedule) -> Schedule {
    Schedule {
        id: put.id,
        definition: put.definition,
        declared_by: put.declared_by,
        undeclared_at: None,
        paused: None,
        next_tick: put.next_tick,
        last_tick: None,
        last_item: None,
        revision: 1,
    }
}

/// A schedule that makes no tick while the last one's item is unfinished.
fn alone(number: u128) -> PutSchedule {
    let mut put = schedule(number);
    put.definition.overlap = Overlap::Skip;
    put
}

/// The tick of a number: one a minute.
pub(super) fn tick(number: u32) -> Timestamp {
    later(CREATED, number * Duration::from_mins(1))
}

/// The item of a tick.
pub(super) fn tick_item(schedule: ScheduleId, number: u32) -> NewItem {
    NewItem {
        idempotency_key: tick_key(schedule, tick(number)),
        ..item()
    }
}

/// The tick of a number, with its item, for whoever has read that revision.
pub(super) fn advance_to(schedule: ScheduleId, revision: i64, number: u32) -> Advance {
    Advance {
        schedule,
        revision,
        ticks: Some(Ticks {
            last: tick(number),
            next: Some(tick(number + 1)),
        }),
        items: vec![tick_item(schedule, number)],
    }
}

async fn put(f: &Fixture, put: &PutSchedule) -> Schedule {
    let store = &f.stores.schedules;
    store.put_schedule(ORG, put).await.unwrap();
    stored(f, put.id).await
}

async fn stored(f: &Fixture, id: ScheduleId) -> Schedule {
    let found = f.stores.schedules.schedule(ORG, id).await.unwrap();
    found.expect("the schedule is there")
}

async fn advance(f: &Fixture, advance: &Advance) -> Advanced {
    f.stores.schedules.advance(ORG, advance).await.unwrap()
}

/// Makes the tick as whoever has just read the schedule.
async fn advance_now(f: &Fixture, id: ScheduleId, number: u32) -> Advanced {
    let revision = stored(f, id).await.revision;
    advance(f, &advance_to(id, revision, number)).await
}

async fn pause(f: &Fixture, id: ScheduleId, reason: &str) -> bool {
    let (reason, by) = (ShortText::new(reason), ShortText::new("ada"));
    let store = &f.stores.schedules;
    store.pause_schedule(ORG, id, &reason, &by).await.unwrap()
}

async fn listed(f: &Fixture) -> Vec<Schedule> {
    f.stores.schedules.schedules(ORG, 100).await.unwrap()
}

/// The ids of what is due.
async fn due(f: &Fixture, after: Option<u128>, limit: u32) -> Vec<u128> {
    let after = after.map(|number| ScheduleId::new(Uuid::from_u128(number)));
    let store = &f.stores.schedules;
    let found = store.due_schedules(after, limit).await.unwrap().due;
    let ids = found.iter().map(|(_, schedule)| schedule.id);
    ids.map(|id| id.as_uuid().as_u128()).collect()
}

fn made(advanced: &Advanced) -> usize {
    match advanced {
        Advanced::Made(fates) => fates.len(),
        other => panic!("nothing was made: {other:?}"),
    }
}

pub async fn a_schedule_comes_back_as_it_was_put(f: &Fixture) {
    let mut full = schedule(1);
    full.definition = ScheduleDefinition {
        name: "it's \"quoted\" 😀".to_owned(),
        lane: lane("reports"),
        priority: -7,
        max_attempts: 9,
        expression: "*/5 8-18 * * MON-FRI".to_owned(),
        zone: "Europe/Berlin".to_owned(),
        starts_at: Some(tick(3)),
        ends_at: Some(tick(9)),
        missed: Missed::UpTo(12),
        overlap: Overlap::Skip,
        jitter: Duration::from_micros(1_234_567),
        ..full.definition
    };
    full.declared_by = Some("billing".to_owned());
    let read = put(f, &full).await;
    assert_eq!(
        read.definition.payload.as_str(),
        full.definition.payload.as_str()
    );
    assert_eq!(read, fresh(full));
    assert_eq!(only(listed(f).await), read);
    let plain = PutSchedule {
        next_tick: None,
        ..schedule(2)
    };
    assert_eq!(put(f, &plain).await, fresh(plain));
    let unknown = ScheduleId::new(Uuid::from_u128(9));
    let store = &f.stores.schedules;
    assert_eq!(store.schedule(ORG, unknown).await.unwrap(), None);
}

pub async fn putting_again_replaces_the_definition_and_keeps_how_far_it_came(f: &Fixture) {
    let first = put(f, &schedule(1)).await;
    let advanced = advance(f, &advance_to(first.id, first.revision, 1)).await;
    assert_eq!(made(&advanced), 1);
    assert!(pause(f, first.id, "noise").await);
    let before = stored(f, first.id).await;
    assert!(before.last_item.is_some());
    let mut second = schedule(1);
    second.definition = ScheduleDefinition {
        name: "renamed".to_owned(),
        kind: kind("OTHER"),
        lane: lane("elsewhere"),
        payload: json("{}"),
        priority: 3,
        max_attempts: 1,
        missed: Missed::Skip,
        overlap: Overlap::Skip,
        jitter: Duration::from_secs(9),
        ..second.definition
    };
    second.declared_by = Some("billing".to_owned());
    second.next_tick = Some(tick(77));
    let after = put(f, &second).await;
    assert!(after.revision > before.revision);
    let expected = Schedule {
        definition: second.definition,
        declared_by: second.declared_by,
        revision: after.revision,
        ..before
    };
    assert_eq!(after, expected, "the same timing goes on where it was");
}

pub async fn a_new_timing_begins_with_the_tick_that_it_is_given(f: &Fixture) {
    let changes: [fn(&mut ScheduleDefinition); 4] = [
        |it| "every hour".clone_into(&mut it.expression),
        |it| "Asia/Tokyo".clone_into(&mut it.zone),
        |it| it.starts_at = Some(tick(5)),
        |it| it.ends_at = Some(tick(50)),
    ];
    let mut put_again = schedule(1);
    let first = put(f, &put_again).await;
    let _ = advance(f, &advance_to(first.id, first.revision, 1)).await;
    for (change, number) in changes.into_iter().zip(10..) {
        change(&mut put_again.definition);
        put_again.next_tick = Some(tick(number));
        let after = put(f, &put_again).await;
        assert_eq!(after.next_tick, Some(tick(number)));
        assert_eq!(after.last_tick, Some(tick(1)));
    }
    put_again.definition.ends_at = None;
    put_again.next_tick = None;
    assert_eq!(put(f, &put_again).await.next_tick, None);
}

pub async fn a_name_is_of_one_schedule_of_the_org(f: &Fixture) {
    let store = &f.stores.schedules;
    store.put_schedule(ORG, &schedule(1)).await.unwrap();
    let mut same = schedule(2);
    same.definition.name = schedule(1).definition.name;
    let answer = store.put_schedule(ORG, &same).await;
    assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    assert_eq!(listed(f).await, [fresh(schedule(1))]);
    store.put_schedule(OTHER, &same).await.unwrap();
}

pub async fn schedules_are_listed_in_id_order_up_to_the_limit(f: &Fixture) {
    let store = &f.stores.schedules;
    for number in [3, 1, 2] {
        store.put_schedule(ORG, &schedule(number)).await.unwrap();
    }
    store.put_schedule(OTHER, &schedule(4)).await.unwrap();
    let of = |number| fresh(schedule(number));
    assert_eq!(listed(f).await, [of(1), of(2), of(3)]);
    let part = store.schedules(ORG, 2).await.unwrap();
    assert_eq!(part, [of(1), of(2)]);
}

pub async fn what_is_due_is_read_across_all_orgs_page_by_page(f: &Fixture) {
    let store = &f.stores.schedules;
    for (number, org) in [(3, ORG), (1, OTHER), (4, OTHER), (2, ORG)] {
        store.put_schedule(org, &schedule(number)).await.unwrap();
    }
    let look = store.due_schedules(None, 2).await.unwrap();
    assert_eq!(
        look.due,
        [(OTHER, fresh(schedule(1))), (ORG, fresh(schedule(2)))]
    );
    assert_eq!(due(f, Some(2), 10).await, [3, 4]);
    assert_eq!(due(f, Some(4), 10).await, []);
}

pub async fn what_is_not_due_says_when_the_first_of_it_is(f: &Fixture) {
    let store = &f.stores.schedules;
    let now = f.now().await;
    let at = |number: u128, seconds: u64| PutSchedule {
        next_tick: Some(later(now, Duration::from_secs(seconds))),
        ..schedule(number)
    };
    assert_eq!(store.due_schedules(None, 10).await.unwrap().next, None);
    for (number, seconds) in [(1, 7_200), (2, 3_600), (3, 1_800)] {
        store.put_schedule(ORG, &at(number, seconds)).await.unwrap();
    }
    let over = PutSchedule {
        next_tick: None,
        ..schedule(4)
    };
    store.put_schedule(OTHER, &over).await.unwrap();
    assert!(pause(f, at(3, 0).id, "a paused one has no tick to wait for").await);
    let (look, moment) = f.timed(store.due_schedules(None, 10)).await;
    let look = look.unwrap();
    moment.assert_is(look.now);
    assert_eq!(look.due, []);
    assert_eq!(look.next, at(2, 3_600).next_tick);
    f.advance(HOUR + Duration::from_secs(1)).await;
    assert_eq!(due(f, None, 10).await, [2]);
    let look = store.due_schedules(None, 10).await.unwrap();
    assert_eq!(look.next, at(1, 7_200).next_tick);
}

pub async fn a_removed_schedule_is_gone_and_its_items_stay(f: &Fixture) {
    let store = &f.stores.schedules;
    let gone = put(f, &schedule(1)).await;
    let _ = advance_now(f, gone.id, 1).await;
    assert!(store.remove_schedule(ORG, gone.id).await.unwrap());
    assert!(!store.remove_schedule(ORG, gone.id).await.unwrap());
    assert_eq!(listed(f).await, []);
    assert_eq!(due(f, None, 10).await, []);
    assert_eq!(f.claim(&request()).await.len(), 1);
}

pub async fn a_tick_moves_the_schedule_and_enqueues_its_items(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let items = vec![
        tick_item(of.id, 1),
        NewItem {
            lane: lane("b"),
            ..tick_item(of.id, 2)
        },
    ];
    let both = Advance {
        items: items.clone(),
        ..advance_to(of.id, of.revision, 2)
    };
    let (advanced, moment) = f.timed(advance(f, &both)).await;
    let Advanced::Made(fates) = advanced else {
        panic!("{advanced:?}");
    };
    let after = stored(f, of.id).await;
    assert_eq!(after.last_tick, Some(tick(2)));
    assert_eq!(after.next_tick, Some(tick(3)));
    assert_eq!(after.last_item, Some(items[1].id));
    assert!(after.revision > of.revision);
    for (item, fate) in items.into_iter().zip(fates) {
        let row = f.row(item.id).await;
        moment.assert_is(row.updated_at);
        assert_eq!(row, item.into_row(row.updated_at));
        assert_eq!(fate, Enqueued::Inserted(row));
    }
    let last = Advance {
        ticks: Some(Ticks {
            last: tick(3),
            next: None,
        }),
        ..advance_to(of.id, after.revision, 3)
    };
    assert_eq!(made(&advance(f, &last).await), 1);
    assert_eq!(stored(f, of.id).await.next_tick, None);
    assert_eq!(due(f, None, 10).await, [], "it is over");
    assert_eq!(f.claim(&request_of(10)).await.len(), 2);
}

pub async fn a_tick_that_somebody_else_made_writes_nothing(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let first = advance_to(of.id, of.revision, 1);
    assert_eq!(made(&advance(f, &first).await), 1);
    let before = stored(f, of.id).await;
    // Under another key, so that it is the revision which refuses it.
    let mut again = first.clone();
    again.items = vec![item()];
    for revision in [of.revision, before.revision + 1, 0] {
        again.revision = revision;
        assert_eq!(advance(f, &again).await, Advanced::Late);
    }
    assert_eq!(stored(f, of.id).await, before);
    assert_eq!(f.claim(&request_of(10)).await.len(), 1);
}

pub async fn no_tick_is_made_of_a_definition_that_has_changed_meanwhile(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let read_before = advance_to(of.id, of.revision, 1);
    let mut changed = schedule(1);
    changed.definition.kind = kind("OTHER");
    put(f, &changed).await;
    assert_eq!(advance(f, &read_before).await, Advanced::Late);
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn a_schedule_that_is_not_there_makes_no_item(f: &Fixture) {
    let unknown = ScheduleId::new(Uuid::from_u128(9));
    let advanced = advance(f, &advance_to(unknown, 1, 1)).await;
    assert_eq!(advanced, Advanced::Late);
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn an_item_of_a_tick_that_exists_is_left_alone(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let held = f.held(tick_item(of.id, 1)).await;
    let both = Advance {
        items: vec![tick_item(of.id, 1), tick_item(of.id, 2)],
        ..advance_to(of.id, of.revision, 2)
    };
    assert_eq!(made(&advance(f, &both).await), 2);
    assert_eq!(f.row(held.id).await, held);
    let second = f.claim_one(&request()).await;
    assert_eq!(second.idempotency_key, tick_key(of.id, tick(2)));
}

/// The job is shorter than a tick and its row is finished at once: the tick is not made again.
pub async fn a_tick_is_not_made_again_once_its_item_has_finished(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let first = advance_to(of.id, of.revision, 1);
    let _ = advance(f, &first).await;
    let held = f.claim_one(&request()).await;
    let _ = f.settle(hold(&held), complete()).await;
    assert_eq!(advance(f, &first).await, Advanced::Late);
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn ticks_without_items_move_the_schedule_alone(f: &Fixture) {
    let of = put(f, &alone(1)).await;
    let _ = advance_now(f, of.id, 1).await;
    let made_last = stored(f, of.id).await.last_item;
    let _ = f
        .settle(hold(&f.claim_one(&request()).await), complete())
        .await;
    let revision = stored(f, of.id).await.revision;
    let missed = Advance {
        items: Vec::new(),
        ..advance_to(of.id, revision, 5)
    };
    assert_eq!(made(&advance(f, &missed).await), 0);
    let after = stored(f, of.id).await;
    assert_eq!(
        (after.last_tick, after.last_item),
        (Some(tick(5)), made_last)
    );
}

pub async fn a_tick_over_an_unfinished_item_makes_none_where_that_is_asked_for(f: &Fixture) {
    let of = put(f, &alone(1)).await;
    assert_eq!(made(&advance_now(f, of.id, 1).await), 1);
    let first = stored(f, of.id).await.last_item.unwrap();
    let over = Advanced::Overlapping(first);
    assert_eq!(advance_now(f, of.id, 2).await, over, "it is queued");
    let held = f.claim_one(&request()).await;
    assert_eq!(advance_now(f, of.id, 3).await, over, "it is claimed");
    let after = stored(f, of.id).await;
    assert_eq!(after.last_tick, Some(tick(3)), "the schedule goes on");
    assert_eq!(after.last_item, Some(first));
    let _ = f.settle(hold(&held), complete()).await;
    assert_eq!(made(&advance_now(f, of.id, 4).await), 1, "it is done");
    let held = f.claim_one(&request()).await;
    let _ = f.settle(hold(&held), bury()).await;
    assert_eq!(made(&advance_now(f, of.id, 5).await), 1, "it has failed");
}

pub async fn a_tick_over_an_unfinished_item_makes_one_otherwise(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    for number in 1..=3 {
        assert_eq!(made(&advance_now(f, of.id, number).await), 1);
    }
    assert_eq!(f.claim(&request_of(10)).await.len(), 3);
}

pub async fn an_item_beside_the_ticks_moves_none_of_them(f: &Fixture) {
    let of = put(f, &alone(1)).await;
    let beside = |revision| Advance {
        schedule: of.id,
        revision,
        ticks: None,
        items: vec![item()],
    };
    assert_eq!(made(&advance(f, &beside(of.revision)).await), 1);
    let after = stored(f, of.id).await;
    assert_eq!((after.last_tick, after.next_tick), (None, of.next_tick));
    assert!(after.last_item.is_some());
    assert_eq!(advance(f, &beside(of.revision)).await, Advanced::Late);
    let answer = advance(f, &beside(after.revision)).await;
    assert_eq!(answer, Advanced::Overlapping(after.last_item.unwrap()));
    assert_eq!(stored(f, of.id).await, after, "nothing was written");
    let over = advance_now(f, of.id, 1).await;
    assert_eq!(over, Advanced::Overlapping(after.last_item.unwrap()));
}

pub async fn a_paused_schedule_makes_no_tick_until_resumed(f: &Fixture) {
    let store = &f.stores.schedules;
    let of = put(f, &schedule(1)).await;
    assert!(pause(f, of.id, "noise").await);
    let paused = stored(f, of.id).await;
    assert_eq!(due(f, None, 10).await, []);
    assert_eq!(advance_now(f, of.id, 1).await, Advanced::Late);
    assert_eq!(stored(f, of.id).await, paused);
    assert!(
        store
            .resume_schedule(ORG, of.id, Some(tick(9)))
            .await
            .unwrap()
    );
    let resumed = stored(f, of.id).await;
    assert_eq!((resumed.paused, resumed.next_tick), (None, Some(tick(9))));
    assert_eq!(due(f, None, 10).await, [1]);
    assert_eq!(made(&advance_now(f, of.id, 9).await), 1);
    let again = store.resume_schedule(ORG, of.id, Some(tick(2))).await;
    assert!(!again.unwrap(), "it is not paused");
    assert_eq!(stored(f, of.id).await.next_tick, Some(tick(10)));
}

pub async fn a_pause_keeps_its_beginning_and_takes_a_new_reason(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let (paused, moment) = f.timed(pause(f, of.id, "noise")).await;
    assert!(paused);
    let first = stored(f, of.id).await.paused.unwrap();
    moment.assert_is(first.since);
    assert_eq!((first.reason, first.by), ("noise".into(), "ada".into()));
    f.advance(HOUR).await;
    assert!(pause(f, of.id, "still noise").await);
    let second = stored(f, of.id).await.paused.unwrap();
    assert_eq!(second.since, first.since);
    assert_eq!(second.reason, "still noise".into());
    let unknown = ScheduleId::new(Uuid::from_u128(9));
    assert!(!pause(f, unknown, "nobody").await);
}

pub async fn an_item_beside_the_ticks_is_made_in_a_pause_as_well(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    assert!(pause(f, of.id, "noise").await);
    let beside = Advance {
        schedule: of.id,
        revision: stored(f, of.id).await.revision,
        ticks: None,
        items: vec![item()],
    };
    assert_eq!(made(&advance(f, &beside).await), 1);
    assert!(stored(f, of.id).await.paused.is_some());
}

pub async fn what_is_not_declared_any_more_is_marked_once_and_goes_on(f: &Fixture) {
    let store = &f.stores.schedules;
    let mut declared = schedule(1);
    declared.declared_by = Some("billing".to_owned());
    let of = put(f, &declared).await;
    let by_hand = put(f, &schedule(2)).await;
    let mark = async |id, by| store.mark_undeclared(ORG, id, by).await.unwrap();
    assert!(!mark(of.id, "mailing").await);
    assert!(!mark(by_hand.id, "billing").await);
    assert_eq!(stored(f, of.id).await, of);
    let (marked, moment) = f.timed(mark(of.id, "billing")).await;
    assert!(marked);
    moment.assert_is(stored(f, of.id).await.undeclared_at.unwrap());
    assert!(!mark(of.id, "billing").await);
    assert_eq!(due(f, None, 10).await, [1, 2]);
    assert_eq!(made(&advance_now(f, of.id, 1).await), 1);
    assert_eq!(put(f, &declared).await.undeclared_at, None);
}

pub async fn a_tick_hints_the_lanes_of_its_items(f: &Fixture) {
    let of = put(f, &schedule(1)).await;
    let mut hints = f.work().subscribe(&[lane("ticks")]);
    let on_ticks = Advance {
        items: vec![on_lane("ticks")],
        ..advance_to(of.id, of.revision, 1)
    };
    assert_eq!(made(&advance(f, &on_ticks).await), 1);
    let arrival = tokio::time::timeout(Duration::from_secs(10), hints.next()).await;
    arrival.expect("no hint came");
}
