//! Settling again after a lost answer: the token that settled an item last is remembered.

use std::time::Duration;

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Settled};

use super::fixture::Fixture;
use super::samples::{
    HOUR, LEASE, OPERATOR, ORG, bury, complete, every_transition, hold, item, json, park, release,
    retry, settlement,
};

pub async fn a_settle_asked_again_is_already_settled_and_changes_nothing(f: &Fixture) {
    for transition in every_transition() {
        let held = f.held(item()).await;
        assert!(matches!(
            f.settle(hold(&held), transition.clone()).await,
            Settled::Settled(_)
        ));
        let once = f.row(held.id).await;
        f.advance(Duration::from_secs(1)).await;
        for _ in 0..2 {
            let again = f.settle(hold(&held), transition.clone()).await;
            assert_eq!(again, Settled::AlreadySettled, "{}", transition.name());
            assert_eq!(f.row(held.id).await, once);
        }
    }
}

pub async fn a_settle_is_remembered_after_the_lease_would_have_ended(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), complete()).await;
    f.advance(LEASE + HOUR).await;
    assert_eq!(
        f.settle(hold(&held), complete()).await,
        Settled::AlreadySettled
    );
}

pub async fn another_settle_by_the_same_token_changes_nothing(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), retry(HOUR)).await;
    let once = f.row(held.id).await;
    let with_result = Transition::Complete {
        result: Some(json(r#"{"late":1}"#)),
    };
    for transition in [with_result, bury(), park(HOUR), release(Duration::ZERO)] {
        assert_eq!(
            f.settle(hold(&held), transition).await,
            Settled::AlreadySettled
        );
        assert_eq!(f.row(held.id).await, once);
    }
}

pub async fn a_settle_is_remembered_while_a_later_claim_runs(f: &Fixture) {
    let first = f.held(item()).await;
    let _ = f.settle(hold(&first), release(Duration::ZERO)).await;
    let second = f.claim_again(&first).await;
    let again = f.settle(hold(&first), release(Duration::ZERO)).await;
    assert_eq!(again, Settled::AlreadySettled);
    assert_eq!(f.row(first.id).await, second, "the later claim goes on");
}

pub async fn a_settle_is_forgotten_once_a_later_claim_was_settled(f: &Fixture) {
    let first = f.held(item()).await;
    let _ = f.settle(hold(&first), release(Duration::ZERO)).await;
    let second = f.claim_again(&first).await;
    assert_eq!(
        f.settle(hold(&second), complete()).await,
        Settled::Settled(Ended::Done)
    );
    let done = f.row(first.id).await;
    let again = f.settle(hold(&first), release(Duration::ZERO)).await;
    assert_eq!(again, Settled::Conflict);
    assert_eq!(
        f.settle(hold(&second), complete()).await,
        Settled::AlreadySettled
    );
    assert_eq!(f.row(first.id).await, done);
}

pub async fn the_sweep_is_no_settle(f: &Fixture) {
    let first = f.held(item()).await;
    let _ = f.settle(hold(&first), release(Duration::ZERO)).await;
    let second = f.claim_again(&first).await;
    f.advance(LEASE).await;
    assert_eq!(f.sweep().await.recovered, 1);
    let swept = f.row(first.id).await;
    for transition in every_transition() {
        let answer = f.settle(hold(&second), transition).await;
        assert_eq!(answer, Settled::Conflict, "the swept token settled nothing");
    }
    let again = f.settle(hold(&first), release(Duration::ZERO)).await;
    assert_eq!(
        again,
        Settled::AlreadySettled,
        "the settle before is remembered still"
    );
    assert_eq!(f.row(first.id).await, swept);
}

pub async fn a_settle_is_remembered_after_an_operators_retry(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), bury()).await;
    f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    let queued = f.row(held.id).await;
    assert_eq!(f.settle(hold(&held), bury()).await, Settled::AlreadySettled);
    assert_eq!(f.row(held.id).await, queued);
}

pub async fn a_batch_asked_again_counts_each_settle_once(f: &Fixture) {
    f.insert(item()).await;
    f.insert(item()).await;
    let held = f.claim_many(2).await;
    // The first answer to one of the two is taken as lost, then both go out together.
    let _ = f.settle(hold(&held[0]), complete()).await;
    let batch = [
        settlement(hold(&held[0]), complete()),
        settlement(hold(&held[1]), retry(HOUR)),
    ];
    assert_eq!(
        f.work().settle(&batch).await.unwrap(),
        [Settled::AlreadySettled, Settled::Settled(Ended::Queued)]
    );
    assert_eq!(
        f.work().settle(&batch).await.unwrap(),
        [Settled::AlreadySettled; 2]
    );
}
