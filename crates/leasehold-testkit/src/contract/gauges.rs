//! Gauges: what waits and what failed, across orgs.

use std::time::Duration;

use leasehold_core::store::work::{COUNT_MAX, Gauges, LaneGauge};
use leasehold_core::time::later;
use leasehold_core::{Due, NewItem};

use super::fixture::Fixture;
use super::samples::{
    HOUR, LEASE, OPERATOR, ORG, OTHER, bury, complete, hold, item, lane, on_lane, park,
    request_from, request_of, retry,
};

async fn gauges(f: &Fixture) -> Gauges {
    f.work().gauges().await.unwrap()
}

/// The figures of a lane: ready, delayed, claimed.
fn counts(gauges: &Gauges, name: &str) -> (u64, u64, u64) {
    let of = lane_gauge(gauges, name);
    (of.ready, of.delayed, of.claimed)
}

fn lane_gauge<'a>(gauges: &'a Gauges, name: &str) -> &'a LaneGauge {
    let mut found = gauges.lanes.iter().filter(|gauge| gauge.lane == lane(name));
    let gauge = found.next().expect("the lane has a gauge");
    assert_eq!(found.next(), None, "the lane has two gauges");
    gauge
}

pub async fn an_empty_store_gauges_nothing(f: &Fixture) {
    let (gauges, moment) = f.timed(gauges(f)).await;
    moment.assert_is(gauges.now);
    assert_eq!(
        (gauges.lanes, gauges.dead, gauges.expired),
        (Vec::new(), 0, 0)
    );
}

pub async fn each_lane_counts_what_is_ready_delayed_and_claimed_in_every_org(f: &Fixture) {
    for _ in 0..3 {
        f.insert(on_lane("a")).await;
        f.insert_in(OTHER, on_lane("a")).await;
    }
    f.insert(NewItem {
        due: Due::After(HOUR),
        ..on_lane("a")
    })
    .await;
    f.insert(NewItem {
        due: Due::After(HOUR),
        ..on_lane("b")
    })
    .await;
    f.claim_one(&request_from("a")).await;
    f.claim_one(&request_from("a")).await;
    let now = gauges(f).await;
    assert_eq!(counts(&now, "a"), (4, 1, 2));
    assert_eq!(counts(&now, "b"), (0, 1, 0));
    assert_eq!(now.lanes.len(), 2);
    f.advance(HOUR).await;
    let later = gauges(f).await;
    assert_eq!(counts(&later, "a"), (5, 0, 2));
    assert_eq!(counts(&later, "b"), (1, 0, 0));
}

pub async fn finished_items_are_not_waiting(f: &Fixture) {
    for transition in [complete(), bury()] {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
    }
    let row = f.insert(item()).await;
    f.work().cancel(ORG, row.id, OPERATOR).await.unwrap();
    assert_eq!(
        gauges(f).await.lanes,
        [],
        "a lane of finished items has no gauge"
    );
}

pub async fn the_oldest_ready_item_is_aged_from_when_it_was_due(f: &Fixture) {
    let age = |gauges: &Gauges, name| lane_gauge(gauges, name).oldest_age;
    f.insert(NewItem {
        due: Due::After(HOUR),
        ..on_lane("a")
    })
    .await;
    f.insert(NewItem {
        due: Due::After(2 * HOUR),
        ..on_lane("a")
    })
    .await;
    f.insert(NewItem {
        due: Due::After(5 * HOUR),
        ..on_lane("b")
    })
    .await;
    f.insert(on_lane("c")).await;
    assert_eq!(
        age(&gauges(f).await, "a"),
        Duration::ZERO,
        "nothing is ready yet"
    );
    f.advance(3 * HOUR).await;
    let now = gauges(f).await;
    // A clock that moves by itself adds a little; this much would be another item.
    let slack = HOUR / 2;
    assert!((2 * HOUR..2 * HOUR + slack).contains(&age(&now, "a")));
    assert_eq!(age(&now, "b"), Duration::ZERO);
    assert!((3 * HOUR..3 * HOUR + slack).contains(&age(&now, "c")));
    f.claim_one(&request_from("c")).await;
    assert_eq!(
        age(&gauges(f).await, "c"),
        Duration::ZERO,
        "a claimed item does not wait"
    );
}

pub async fn parked_and_failed_items_are_delayed_and_not_ready(f: &Fixture) {
    for transition in [park(HOUR), retry(HOUR)] {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
    }
    let now = gauges(f).await;
    assert_eq!(counts(&now, "default"), (0, 2, 0));
    assert_eq!(now.dead, 0);
}

pub async fn dead_letters_count_and_cancelled_or_orphaned_items_do_not(f: &Fixture) {
    let dead = f.held(item()).await;
    let _ = f.settle(hold(&dead), bury()).await;
    let cancelled = f.insert(item()).await;
    f.work().cancel(ORG, cancelled.id, OPERATOR).await.unwrap();
    let orphan = f.held(item()).await;
    f.work()
        .fail_orphaned(orphan.id, hold(&orphan).token)
        .await
        .unwrap();
    assert_eq!(gauges(f).await.dead, 1);
    f.work()
        .mark_audited(ORG, &[(dead.id, dead.claim_seq)])
        .await
        .unwrap();
    assert_eq!(gauges(f).await.dead, 1, "audited or not");
    f.work().retry(ORG, dead.id, OPERATOR).await.unwrap();
    assert_eq!(gauges(f).await.dead, 0);
}

pub async fn claims_whose_lease_is_over_are_counted(f: &Fixture) {
    for _ in 0..3 {
        f.insert(item()).await;
    }
    let held = f.claim_many(2).await;
    assert_eq!(gauges(f).await.expired, 0);
    f.advance(LEASE).await;
    f.claim_many(1).await;
    let now = gauges(f).await;
    assert_eq!(now.expired, 2);
    assert_eq!(
        counts(&now, "default"),
        (0, 0, 3),
        "they are claimed until swept"
    );
    f.sweep().await;
    assert_eq!(gauges(f).await.expired, 0);
    assert_eq!(f.row(held[0].id).await.attempts, 1);
}

pub async fn gauges_change_nothing(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE).await;
    gauges(f).await;
    assert_eq!(f.row(held.id).await, held);
    assert!(gauges(f).await.now >= later(held.updated_at, LEASE));
    assert_eq!(f.claim(&request_of(10)).await, []);
}

pub async fn counts_stop_at_their_bound(f: &Fixture) {
    const BATCH: u64 = 1_000;
    for _ in 0..=COUNT_MAX / BATCH {
        f.work()
            .enqueue(ORG, (0..BATCH).map(|_| item()).collect())
            .await
            .unwrap();
    }
    assert_eq!(counts(&gauges(f).await, "default"), (COUNT_MAX, 0, 0));
}
