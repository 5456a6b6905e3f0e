//! Claiming again: a repeated statement by its token, and the marks that tell claims apart.

use std::time::Duration;

use leasehold_core::store::work::ClaimRequest;
use leasehold_core::{Lane, NewItem, Status};

use super::fixture::Fixture;
use super::samples::{
    LEASE, OPERATOR, ORG, bury, complete, hold, id, item, numbered, park, release, request,
    request_of, retry, worker,
};

pub async fn the_same_token_again_answers_the_same_items(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let first = request_of(2);
    let mut claimed = f.claim(&first).await;
    claimed.sort_by_key(|c| c.item.id);
    f.advance(LEASE / 4).await;
    // What the repetition asks for beside its token does not matter any more.
    let again = ClaimRequest {
        limit: 5,
        lease: 2 * LEASE,
        worker: worker("other"),
        ..first
    };
    for _ in 0..2 {
        let mut answered = f.claim(&again).await;
        answered.sort_by_key(|c| c.item.id);
        assert_eq!(answered, claimed, "the same items, as they are");
    }
    for number in 3..=5 {
        assert_eq!(
            f.row(id(number)).await.status,
            Status::Queued,
            "a repetition claims no more"
        );
    }
}

pub async fn the_same_token_again_answers_what_it_still_holds(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=4).map(numbered).collect())
        .await
        .unwrap();
    let request = request_of(2);
    let claimed = f.claim(&request).await;
    let _ = f.settle(hold(&claimed[0].item), complete()).await;
    assert_eq!(f.claim(&request).await, [claimed[1].clone()]);
}

pub async fn a_token_that_holds_nothing_claims(f: &Fixture) {
    let request = request();
    assert_eq!(f.claim(&request).await, []);
    let row = f.insert(item()).await;
    assert_eq!(f.claim_one(&request).await.id, row.id);
}

pub async fn a_claim_is_answered_again_on_a_lane_paused_meanwhile(f: &Fixture) {
    f.insert(item()).await;
    let request = request();
    let claimed = f.claim(&request).await;
    f.work()
        .pause_lane(&Lane::default(), &"maintenance".into(), &"ops".into())
        .await
        .unwrap();
    assert_eq!(f.claim(&request).await, claimed);
}

pub async fn each_claim_carries_its_own_token(f: &Fixture) {
    let first = f.held(item()).await;
    let _ = f.settle(hold(&first), release(Duration::ZERO)).await;
    let second = f.claim_again(&first).await;
    assert_ne!(first.claim_token, second.claim_token);
    assert_eq!(f.row(first.id).await, second);
}

pub async fn the_fencing_number_rises_at_every_claim_and_never_falls(f: &Fixture) {
    let mut row = f
        .insert(NewItem {
            max_attempts: 4,
            ..item()
        })
        .await;
    let now = Duration::ZERO;
    // How a claim ends has no say in it.
    for (claims, ending) in (1..).zip([
        release(now),
        park(now),
        retry(now),
        release(now),
        retry(now),
    ]) {
        row = f.claim_again(&row).await;
        assert_eq!(row.claim_seq, claims);
        let _ = f.settle(hold(&row), ending).await;
        assert_eq!(f.row(row.id).await.claim_seq, claims);
    }
    row = f.claim_again(&row).await;
    f.advance(LEASE).await;
    f.sweep().await;
    assert_eq!(f.row(row.id).await.claim_seq, 6);
    row = f.claim_again(&row).await;
    assert_eq!(row.claim_seq, 7);
    let _ = f.settle(hold(&row), bury()).await;
    f.work().retry(ORG, row.id, OPERATOR).await.unwrap();
    assert_eq!(f.claim_again(&row).await.claim_seq, 8);
}
