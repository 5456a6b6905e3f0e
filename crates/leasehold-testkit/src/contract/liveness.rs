//! Which workers live, as far as they say so.

use std::time::Duration;

use leasehold_core::store::liveness::WorkerBeat;
use leasehold_core::time::later;

use super::fixture::{Fixture, only};
use super::samples::{CREATED, HOUR, kind, lane, worker};

const TTL: Duration = HOUR;

fn beat(name: &str) -> WorkerBeat {
    WorkerBeat {
        worker: worker(name),
        lanes: vec![lane("mail"), lane("default")],
        kinds: vec![kind("SEND"), kind("NOTE")],
        capacity: 8,
        running: 3,
        draining: false,
        started_at: CREATED,
    }
}

async fn names(f: &Fixture, limit: u32) -> Vec<String> {
    let live = f.stores.liveness.live_workers(limit).await.unwrap();
    live.iter()
        .map(|live| live.beat.worker.as_str().to_owned())
        .collect()
}

pub async fn a_beat_comes_back_as_it_was_published(f: &Fixture) {
    let published = beat("mailer@1.4.0/é😀");
    let (answer, moment) = f.timed(f.stores.liveness.publish(&published, TTL)).await;
    answer.unwrap();
    let live = only(f.stores.liveness.live_workers(10).await.unwrap());
    assert_eq!(live.beat, published);
    moment.assert_is(live.beat_at);
}

pub async fn a_beat_replaces_the_last_one(f: &Fixture) {
    f.stores.liveness.publish(&beat("a"), TTL).await.unwrap();
    f.advance(TTL / 2).await;
    let second = WorkerBeat {
        lanes: Vec::new(),
        kinds: Vec::new(),
        capacity: 0,
        running: 0,
        draining: true,
        started_at: later(CREATED, HOUR),
        ..beat("a")
    };
    let (answer, moment) = f.timed(f.stores.liveness.publish(&second, TTL)).await;
    answer.unwrap();
    let live = only(f.stores.liveness.live_workers(10).await.unwrap());
    assert_eq!(live.beat, second);
    moment.assert_is(live.beat_at);
    f.advance(TTL * 3 / 4).await;
    assert_eq!(
        names(f, 10).await,
        ["a"],
        "the time to live counts from the last beat"
    );
}

pub async fn a_worker_that_is_silent_for_too_long_is_not_live(f: &Fixture) {
    f.stores.liveness.publish(&beat("a"), TTL).await.unwrap();
    f.stores
        .liveness
        .publish(&beat("b"), 3 * TTL)
        .await
        .unwrap();
    f.advance(TTL + TTL / 2).await;
    assert_eq!(names(f, 10).await, ["b"]);
    f.stores.liveness.publish(&beat("a"), TTL).await.unwrap();
    assert_eq!(names(f, 10).await, ["a", "b"]);
}

pub async fn a_removed_worker_is_not_live(f: &Fixture) {
    f.stores.liveness.publish(&beat("a"), TTL).await.unwrap();
    f.stores.liveness.publish(&beat("b"), TTL).await.unwrap();
    assert!(f.stores.liveness.remove(&worker("a")).await.unwrap());
    assert!(!f.stores.liveness.remove(&worker("a")).await.unwrap());
    assert_eq!(names(f, 10).await, ["b"]);
}

pub async fn live_workers_are_listed_by_id_up_to_the_limit(f: &Fixture) {
    for name in ["c", "a", "B", "b"] {
        f.stores.liveness.publish(&beat(name), TTL).await.unwrap();
    }
    assert_eq!(
        names(f, 10).await,
        ["B", "a", "b", "c"],
        "by bytes, whatever the language"
    );
    assert_eq!(names(f, 2).await, ["B", "a"]);
    assert!(names(f, 0).await.is_empty());
}
