//! Hints: remembered from the subscription on, of the right lanes, and only for new work.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::store::Hints;
use leasehold_core::store::work::Enqueued;
use leasehold_core::{NewItem, ShortText};

use super::fixture::Fixture;
use super::samples::{
    HOUR, LEASE, OPERATOR, ORG, bury, complete, hold, item, lane, numbered, on_lane, park, release,
    retry,
};

/// Long enough for a backend that hears of its own commit by way of a server.
const ARRIVAL_MAX: Duration = Duration::from_secs(10);

async fn assert_hinted(hints: &mut Box<dyn Hints>) {
    tokio::time::timeout(ARRIVAL_MAX, hints.next())
        .await
        .expect("no hint came");
}

fn assert_silent(hints: &mut Box<dyn Hints>) {
    let next = pin!(hints.next());
    let answer = next.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(answer, Poll::Pending, "there was no reason for a hint");
}

fn subscribe(f: &Fixture, lanes: &[&str]) -> Box<dyn Hints> {
    let lanes: Vec<_> = lanes.iter().copied().map(lane).collect();
    f.work().subscribe(&lanes)
}

pub async fn a_hint_is_remembered_since_the_subscription(f: &Fixture) {
    let mut hints = subscribe(f, &["default"]);
    assert_silent(&mut hints);
    f.insert(item()).await;
    assert_hinted(&mut hints).await;
}

pub async fn a_hint_reaches_who_waits_for_it(f: &Fixture) {
    let mut hints = subscribe(f, &["default"]);
    let mut next = hints.next();
    let waiting = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(waiting, Poll::Pending);
    f.insert(item()).await;
    tokio::time::timeout(ARRIVAL_MAX, next)
        .await
        .expect("no hint came");
}

pub async fn a_hint_stays_when_the_wait_for_it_is_dropped(f: &Fixture) {
    let mut hints = subscribe(f, &["default"]);
    {
        let mut next = hints.next();
        let waiting = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(waiting, Poll::Pending);
        f.insert(item()).await;
    }
    assert_hinted(&mut hints).await;
}

pub async fn any_number_of_hints_count_as_one(f: &Fixture) {
    let mut hints = subscribe(f, &["default"]);
    f.work()
        .enqueue(ORG, (1..=3).map(numbered).collect())
        .await
        .unwrap();
    assert_hinted(&mut hints).await;
    assert_silent(&mut hints);
    f.insert(numbered(4)).await;
    assert_hinted(&mut hints).await;
}

pub async fn a_hint_is_of_its_lane(f: &Fixture) {
    let mut mail = subscribe(f, &["mail"]);
    let mut print = subscribe(f, &["print"]);
    let mut both = subscribe(f, &["print", "mail"]);
    f.insert(on_lane("mail")).await;
    assert_hinted(&mut mail).await;
    assert_hinted(&mut both).await;
    assert_silent(&mut print);
    f.insert(on_lane("print")).await;
    assert_hinted(&mut print).await;
    assert_hinted(&mut both).await;
    assert_silent(&mut mail);
}

pub async fn each_lane_of_a_batch_is_hinted(f: &Fixture) {
    let mut mail = subscribe(f, &["mail"]);
    let mut print = subscribe(f, &["print"]);
    f.work()
        .enqueue(ORG, vec![on_lane("mail"), on_lane("print")])
        .await
        .unwrap();
    assert_hinted(&mut mail).await;
    assert_hinted(&mut print).await;
}

pub async fn an_item_that_exists_hints_nobody(f: &Fixture) {
    let mut hints = subscribe(f, &["default", "elsewhere"]);
    let new = item();
    f.insert(new.clone()).await;
    assert_hinted(&mut hints).await;
    let by_id = NewItem {
        lane: lane("elsewhere"),
        ..new.clone()
    };
    assert!(matches!(f.enqueue(by_id).await, Enqueued::IdExists(_)));
    assert_silent(&mut hints);
    let by_key = NewItem {
        idempotency_key: new.idempotency_key,
        ..on_lane("elsewhere")
    };
    assert!(matches!(f.enqueue(by_key).await, Enqueued::KeyExists(_)));
    assert_silent(&mut hints);
}

pub async fn only_the_lanes_that_gained_an_item_are_hinted(f: &Fixture) {
    let known = f.insert(item()).await;
    let mut stale = subscribe(f, &["elsewhere"]);
    let mut gained = subscribe(f, &["mail"]);
    let again = NewItem {
        id: known.id,
        ..on_lane("elsewhere")
    };
    f.work()
        .enqueue(ORG, vec![again, on_lane("mail")])
        .await
        .unwrap();
    assert_hinted(&mut gained).await;
    assert_silent(&mut stale);
}

pub async fn an_item_settled_back_without_delay_hints_its_lane(f: &Fixture) {
    for transition in [
        release(Duration::ZERO),
        park(Duration::ZERO),
        retry(Duration::ZERO),
    ] {
        let held = f.held(on_lane("mail")).await;
        let mut hints = subscribe(f, &["mail"]);
        let _ = f.settle(hold(&held), transition).await;
        assert_hinted(&mut hints).await;
        let again = f.claim_again(&held).await;
        let _ = f.settle(hold(&again), complete()).await;
    }
}

pub async fn an_item_that_is_not_due_after_its_settle_hints_nobody(f: &Fixture) {
    for transition in [complete(), bury(), retry(HOUR), park(HOUR), release(HOUR)] {
        let mut hints = subscribe(f, &["mail"]);
        let held = f.held(on_lane("mail")).await;
        assert_hinted(&mut hints).await;
        let _ = f.settle(hold(&held), transition).await;
        assert_silent(&mut hints);
    }
}

pub async fn a_recovered_item_that_is_due_hints_its_lane(f: &Fixture) {
    f.held(on_lane("mail")).await;
    f.advance(LEASE).await;
    let mut hints = subscribe(f, &["mail"]);
    let mut other = subscribe(f, &["print"]);
    assert_eq!(f.sweep().await.recovered, 1);
    assert_hinted(&mut hints).await;
    assert_silent(&mut other);
}

pub async fn a_retried_item_hints_its_lane(f: &Fixture) {
    let held = f.held(on_lane("mail")).await;
    let _ = f.settle(hold(&held), bury()).await;
    let mut hints = subscribe(f, &["mail"]);
    f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    assert_hinted(&mut hints).await;
}

pub async fn a_resumed_lane_is_hinted(f: &Fixture) {
    f.work()
        .pause_lane(
            &lane("mail"),
            &ShortText::new("bounces"),
            &ShortText::new("ops"),
        )
        .await
        .unwrap();
    let mut hints = subscribe(f, &["mail"]);
    f.work().resume_lane(&lane("mail")).await.unwrap();
    assert_hinted(&mut hints).await;
}
