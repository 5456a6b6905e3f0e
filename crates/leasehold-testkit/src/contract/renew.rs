//! Renewing: which hold keeps its lease, and what the answer tells.

use std::time::Duration;

use leasehold_core::store::work::{Renewal, Renewed, Settled};
use leasehold_core::{ClaimToken, Progress, WorkItem};

use super::fixture::Fixture;
use super::samples::{
    HOUR, LEASE, OPERATOR, ORG, complete, every_transition, hold, item, numbered, release, renewal,
    request_of,
};

/// What a renewal may write beside the lease and progress: when and by whom.
fn besides_the_lease(before: WorkItem, after: &WorkItem) -> WorkItem {
    WorkItem {
        lease_expires_at: after.lease_expires_at,
        updated_at: after.updated_at,
        updated_by: after.updated_by,
        ..before
    }
}

pub async fn a_renewal_moves_the_end_of_the_lease_and_nothing_else(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE / 4).await;
    let (answer, moment) = f.timed(f.renew(hold(&held))).await;
    assert_eq!(answer, Renewed::Kept);
    let after = f.row(held.id).await;
    moment.assert_is_before(LEASE, after.lease_expires_at.expect("a lease"));
    assert_eq!(after, besides_the_lease(held, &after));
}

pub async fn the_lease_ends_when_the_last_renewal_says(f: &Fixture) {
    let held = f.held(item()).await;
    for lease in [3 * LEASE, LEASE / 2] {
        let renewal = Renewal {
            lease,
            ..renewal(hold(&held))
        };
        let (_, moment) = f.timed(f.renew_as(renewal)).await;
        let end = f.row(held.id).await.lease_expires_at.expect("a lease");
        moment.assert_is_before(lease, end);
    }
}

pub async fn a_renewed_claim_outlives_its_first_lease(f: &Fixture) {
    let held = f.held(item()).await;
    for _ in 0..5 {
        f.advance(LEASE / 2).await;
        assert_eq!(f.renew(hold(&held)).await, Renewed::Kept);
        assert_eq!(f.sweep().await.total(), 0);
    }
    assert!(matches!(
        f.settle(hold(&held), complete()).await,
        Settled::Settled(_)
    ));
}

pub async fn a_renewal_after_the_lease_passed_is_refused(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE).await;
    for _ in 0..2 {
        let late = Renewal {
            progress: Some(Progress::new(9, "late")),
            ..renewal(hold(&held))
        };
        assert_eq!(f.renew_as(late).await, Renewed::Lost);
        assert_eq!(f.row(held.id).await, held);
        f.advance(HOUR).await;
    }
    assert_eq!(f.sweep().await.recovered, 1);
}

pub async fn a_renewal_with_a_token_that_never_was_is_refused(f: &Fixture) {
    let held = f.held(item()).await;
    let mut forged = hold(&held);
    forged.token = ClaimToken::mint();
    assert_eq!(f.renew(forged).await, Renewed::Lost);
    assert_eq!(f.row(held.id).await, held);
}

pub async fn a_renewal_of_a_settled_claim_is_refused(f: &Fixture) {
    for transition in every_transition() {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
        let row = f.row(held.id).await;
        assert_eq!(f.renew(hold(&held)).await, Renewed::Lost);
        assert_eq!(f.row(held.id).await, row);
    }
}

pub async fn a_renewal_may_be_repeated(f: &Fixture) {
    let held = f.held(item()).await;
    assert_eq!(f.renew(hold(&held)).await, Renewed::Kept);
    let once = f.row(held.id).await;
    assert_eq!(f.renew(hold(&held)).await, Renewed::Kept);
    let twice = f.row(held.id).await;
    assert_eq!(twice, besides_the_lease(once, &twice));
}

pub async fn a_renewal_stores_progress(f: &Fixture) {
    let held = f.held(item()).await;
    let progress = Some(Progress::new(100, "almost: é€😀"));
    let with = Renewal {
        progress: progress.clone(),
        ..renewal(hold(&held))
    };
    assert_eq!(f.renew_as(with).await, Renewed::Kept);
    assert_eq!(f.row(held.id).await.progress, progress);
    f.renew(hold(&held)).await;
    assert_eq!(
        f.row(held.id).await.progress,
        progress,
        "a renewal without progress keeps it"
    );
}

pub async fn a_renewal_learns_of_a_requested_cancel_and_extends(f: &Fixture) {
    let held = f.held(item()).await;
    f.work().cancel(ORG, held.id, OPERATOR).await.unwrap();
    f.advance(LEASE / 2).await;
    for _ in 0..2 {
        let (answer, moment) = f.timed(f.renew(hold(&held))).await;
        assert_eq!(answer, Renewed::CancelRequested);
        moment.assert_is_before(
            LEASE,
            f.row(held.id).await.lease_expires_at.expect("a lease"),
        );
    }
    f.advance(LEASE).await;
    assert_eq!(
        f.renew(hold(&held)).await,
        Renewed::Lost,
        "a lost hold is lost first of all"
    );
}

pub async fn a_batch_of_renewals_is_answered_in_its_order(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let held = f.claim_many(5).await;
    f.work().cancel(ORG, held[1].id, OPERATOR).await.unwrap();
    let _ = f.settle(hold(&held[3]), complete()).await;
    let _ = f.settle(hold(&held[2]), release(Duration::ZERO)).await;
    f.claim_again(&held[2]).await;
    let lease = |count| count * LEASE;
    let batch: Vec<_> = [4, 3, 2, 1, 0]
        .map(|at: u32| Renewal {
            lease: lease(at + 1),
            ..renewal(hold(&held[at as usize]))
        })
        .to_vec();
    let (answers, moment) = f.timed(f.work().renew(&batch)).await;
    assert_eq!(
        answers.unwrap(),
        [
            Renewed::Kept,
            Renewed::Lost,
            Renewed::Lost,
            Renewed::CancelRequested,
            Renewed::Kept
        ]
    );
    for at in [0_u32, 1, 4] {
        let row = f.row(held[at as usize].id).await;
        moment.assert_is_before(lease(at + 1), row.lease_expires_at.expect("a lease"));
    }
}

pub async fn an_empty_batch_of_renewals_is_answered_with_nothing(f: &Fixture) {
    assert_eq!(f.work().renew(&[]).await.unwrap(), []);
}

pub async fn a_batch_of_five_hundred_is_renewed_whole(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=500).map(numbered).collect())
        .await
        .unwrap();
    let held = f.claim(&request_of(500)).await;
    f.advance(LEASE / 2).await;
    let batch: Vec<_> = held.iter().rev().map(|c| renewal(hold(&c.item))).collect();
    assert_eq!(
        f.work().renew(&batch).await.unwrap(),
        vec![Renewed::Kept; 500]
    );
    f.advance(LEASE / 2).await;
    assert_eq!(f.sweep().await.total(), 0);
}
