//! Schedules: one item per tick, however many look.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::StoreError;
use leasehold_core::store::schedules::{Schedule, tick_key};
use leasehold_core::time::later;
use leasehold_core::{NewItem, ScheduleId};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{
    CREATED, ORG, OTHER, complete, hold, item, json, kind, lane, on_lane, request, request_of,
};

/// A schedule whose id and name are its number's.
pub(super) fn schedule(number: u128) -> Schedule {
    Schedule {
        id: ScheduleId::new(Uuid::from_u128(number)),
        name: format!("schedule {number}"),
        kind: kind("NOTE"),
        lane: lane("default"),
        payload: json(r#"{ "b":1.50, "a":123456789012345678901234567890 }"#),
        expression: "every minute".to_owned(),
        last_tick: None,
    }
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

async fn listed(f: &Fixture) -> Vec<Schedule> {
    f.stores.schedules.schedules(ORG, 100).await.unwrap()
}

pub async fn a_schedule_comes_back_as_it_was_put(f: &Fixture) {
    let put = Schedule {
        name: "it's \"quoted\" 😀".to_owned(),
        ..schedule(1)
    };
    f.stores.schedules.put_schedule(ORG, &put).await.unwrap();
    let read = super::fixture::only(listed(f).await);
    assert_eq!(read.payload.as_str(), put.payload.as_str());
    assert_eq!(read, put);
}

pub async fn putting_again_replaces_all_but_the_last_tick(f: &Fixture) {
    let store = &f.stores.schedules;
    let first = schedule(1);
    store.put_schedule(ORG, &first).await.unwrap();
    assert!(
        store
            .advance(ORG, first.id, None, tick(1), Vec::new())
            .await
            .unwrap()
    );
    let second = Schedule {
        name: "renamed".to_owned(),
        kind: kind("OTHER"),
        lane: lane("elsewhere"),
        payload: json("{}"),
        expression: "every hour".to_owned(),
        ..first
    };
    store.put_schedule(ORG, &second).await.unwrap();
    assert_eq!(
        listed(f).await,
        [Schedule {
            last_tick: Some(tick(1)),
            ..second
        }]
    );
}

pub async fn a_name_is_of_one_schedule_of_the_org(f: &Fixture) {
    let store = &f.stores.schedules;
    store.put_schedule(ORG, &schedule(1)).await.unwrap();
    let same = Schedule {
        name: schedule(1).name,
        ..schedule(2)
    };
    let answer = store.put_schedule(ORG, &same).await;
    assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    assert_eq!(listed(f).await, [schedule(1)]);
    store.put_schedule(OTHER, &same).await.unwrap();
}

pub async fn schedules_are_listed_in_id_order_up_to_the_limit(f: &Fixture) {
    for number in [3, 1, 2] {
        f.stores
            .schedules
            .put_schedule(ORG, &schedule(number))
            .await
            .unwrap();
    }
    f.stores
        .schedules
        .put_schedule(OTHER, &schedule(4))
        .await
        .unwrap();
    assert_eq!(listed(f).await, [schedule(1), schedule(2), schedule(3)]);
    let part = f.stores.schedules.schedules(ORG, 2).await.unwrap();
    assert_eq!(part, [schedule(1), schedule(2)]);
}

pub async fn the_schedules_of_all_orgs_are_read_page_by_page(f: &Fixture) {
    for (number, org) in [(3, ORG), (1, OTHER), (4, OTHER), (2, ORG)] {
        f.stores
            .schedules
            .put_schedule(org, &schedule(number))
            .await
            .unwrap();
    }
    let all = async |after: Option<u128>, limit| {
        let after = after.map(|number| ScheduleId::new(Uuid::from_u128(number)));
        f.stores
            .schedules
            .all_schedules(after, limit)
            .await
            .unwrap()
    };
    let of = |org, number| (org, schedule(number));
    assert_eq!(all(None, 3).await, [of(OTHER, 1), of(ORG, 2), of(ORG, 3)]);
    assert_eq!(all(Some(3), 3).await, [of(OTHER, 4)]);
    assert_eq!(all(Some(4), 3).await, []);
}

pub async fn a_removed_schedule_is_gone_and_its_items_stay(f: &Fixture) {
    let store = &f.stores.schedules;
    let gone = schedule(1);
    store.put_schedule(ORG, &gone).await.unwrap();
    store
        .advance(ORG, gone.id, None, tick(1), vec![tick_item(gone.id, 1)])
        .await
        .unwrap();
    assert!(store.remove_schedule(ORG, gone.id).await.unwrap());
    assert!(!store.remove_schedule(ORG, gone.id).await.unwrap());
    assert_eq!(listed(f).await, []);
    assert_eq!(f.claim(&request()).await.len(), 1);
}

pub async fn a_tick_moves_the_schedule_and_enqueues_its_items(f: &Fixture) {
    let store = &f.stores.schedules;
    let of = schedule(1);
    store.put_schedule(ORG, &of).await.unwrap();
    let items = vec![
        tick_item(of.id, 1),
        NewItem {
            lane: lane("b"),
            ..tick_item(of.id, 2)
        },
    ];
    let advance = store.advance(ORG, of.id, None, tick(2), items.clone());
    let (moved, moment) = f.timed(advance).await;
    assert!(moved.unwrap());
    assert_eq!(listed(f).await[0].last_tick, Some(tick(2)));
    for item in items {
        let row = f.row(item.id).await;
        moment.assert_is(row.updated_at);
        assert_eq!(row, item.into_row(row.updated_at));
    }
    let items = vec![tick_item(of.id, 3)];
    assert!(
        store
            .advance(ORG, of.id, Some(tick(2)), tick(3), items)
            .await
            .unwrap()
    );
    assert_eq!(f.claim(&request_of(10)).await.len(), 2);
}

pub async fn a_tick_that_somebody_else_made_writes_nothing(f: &Fixture) {
    let store = &f.stores.schedules;
    let of = schedule(1);
    store.put_schedule(ORG, &of).await.unwrap();
    let advance = async |from: Option<u32>, to| {
        let items = vec![item()];
        store
            .advance(ORG, of.id, from.map(tick), tick(to), items)
            .await
            .unwrap()
    };
    assert!(!advance(Some(1), 2).await, "it has had no tick");
    assert!(advance(None, 1).await);
    assert!(!advance(None, 1).await);
    assert!(!advance(None, 2).await);
    assert!(!advance(Some(2), 3).await);
    assert_eq!(listed(f).await[0].last_tick, Some(tick(1)));
    assert_eq!(f.claim(&request_of(10)).await.len(), 1);
}

pub async fn a_schedule_that_is_not_there_makes_no_item(f: &Fixture) {
    let unknown = ScheduleId::new(Uuid::from_u128(9));
    let moved = f
        .stores
        .schedules
        .advance(ORG, unknown, None, tick(1), vec![item()])
        .await;
    assert!(!moved.unwrap());
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn an_item_of_a_tick_that_exists_is_left_alone(f: &Fixture) {
    let store = &f.stores.schedules;
    let of = schedule(1);
    store.put_schedule(ORG, &of).await.unwrap();
    let held = f.held(tick_item(of.id, 1)).await;
    let items = vec![tick_item(of.id, 1), tick_item(of.id, 2)];
    assert!(
        store
            .advance(ORG, of.id, None, tick(2), items)
            .await
            .unwrap()
    );
    assert_eq!(f.row(held.id).await, held);
    let second = f.claim_one(&request()).await;
    assert_eq!(second.idempotency_key, tick_key(of.id, tick(2)));
}

/// The job is shorter than a tick and its row is finished at once: the tick is not made again.
pub async fn a_tick_is_not_made_again_once_its_item_has_finished(f: &Fixture) {
    let store = &f.stores.schedules;
    let of = schedule(1);
    store.put_schedule(ORG, &of).await.unwrap();
    store
        .advance(ORG, of.id, None, tick(1), vec![tick_item(of.id, 1)])
        .await
        .unwrap();
    let held = f.claim_one(&request()).await;
    let _ = f.settle(hold(&held), complete()).await;
    let late = vec![tick_item(of.id, 1)];
    assert!(
        !store
            .advance(ORG, of.id, None, tick(1), late)
            .await
            .unwrap()
    );
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn a_tick_hints_the_lanes_of_its_items(f: &Fixture) {
    let store = &f.stores.schedules;
    let of = schedule(1);
    store.put_schedule(ORG, &of).await.unwrap();
    let mut hints = f.work().subscribe(&[lane("ticks")]);
    store
        .advance(ORG, of.id, None, tick(1), vec![on_lane("ticks")])
        .await
        .unwrap();
    let arrival = tokio::time::timeout(Duration::from_secs(10), hints.next()).await;
    arrival.expect("no hint came");
}
