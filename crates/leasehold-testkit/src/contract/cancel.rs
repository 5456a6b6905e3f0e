//! Cancelling, and an operator's retry.

use std::time::Duration;

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Cancelled, Ended, Renewed, Retried, Settled};
use leasehold_core::{Due, FailureCode, NewItem, Status, UserId, WorkItem};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{
    HOUR, LEASE, OPERATOR, ORG, bury, complete, hold, id, item, last_attempt, park, release,
    request_of, retry,
};

async fn cancel(f: &Fixture, row: &WorkItem) -> Cancelled {
    f.work().cancel(ORG, row.id, OPERATOR).await.unwrap()
}

fn is_cancelled(row: &WorkItem) -> bool {
    row.status == Status::Failed
        && row.failure_code == Some(FailureCode::own(FailureCode::CANCELLED))
        && !row.is_dead_letter()
}

pub async fn a_queued_item_that_is_cancelled_has_ended(f: &Fixture) {
    for new in [
        item(),
        NewItem {
            due: Due::After(HOUR),
            ..item()
        },
    ] {
        let before = f.insert(new).await;
        let (answer, moment) = f.timed(cancel(f, &before)).await;
        let after = f.row(before.id).await;
        assert_eq!(answer, Cancelled::Ended(after.clone()));
        assert!(is_cancelled(&after));
        assert_eq!(after.updated_by, OPERATOR);
        assert_eq!((after.attempts, after.claim_seq), (0, 0));
        moment.assert_is(after.updated_at);
    }
    f.advance(2 * HOUR).await;
    assert_eq!(f.claim(&request_of(10)).await, []);
    assert_eq!(f.work().unaudited(ORG, 10).await.unwrap(), []);
}

pub async fn a_running_item_that_is_cancelled_goes_on_until_its_holder_learns(f: &Fixture) {
    let held = f.held(item()).await;
    let (answer, moment) = f.timed(cancel(f, &held)).await;
    let after = f.row(held.id).await;
    assert_eq!(answer, Cancelled::Requested(after.clone()));
    moment.assert_is(after.cancel_requested_at.expect("a request"));
    let expected = WorkItem {
        cancel_requested_at: after.cancel_requested_at,
        updated_by: OPERATOR,
        updated_at: after.updated_at,
        ..held.clone()
    };
    assert_eq!(after, expected, "never a write under the holder's feet");
    assert_eq!(f.renew(hold(&held)).await, Renewed::CancelRequested);
}

pub async fn a_cancel_is_requested_once(f: &Fixture) {
    let held = f.held(item()).await;
    cancel(f, &held).await;
    let once = f.row(held.id).await.cancel_requested_at;
    f.advance(Duration::from_secs(10)).await;
    let answer = cancel(f, &held).await;
    let twice = f.row(held.id).await;
    assert_eq!(twice.cancel_requested_at, once);
    assert_eq!(answer, Cancelled::Requested(twice));
}

pub async fn a_finished_item_is_not_cancelled(f: &Fixture) {
    for transition in [complete(), bury()] {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
        let before = f.row(held.id).await;
        f.advance(HOUR).await;
        assert_eq!(
            cancel(f, &held).await,
            Cancelled::AlreadyFinal(before.clone())
        );
        assert_eq!(f.row(held.id).await, before);
    }
}

pub async fn a_cancel_may_be_repeated(f: &Fixture) {
    let row = f.insert(item()).await;
    cancel(f, &row).await;
    let once = f.row(row.id).await;
    f.advance(HOUR).await;
    assert_eq!(cancel(f, &row).await, Cancelled::AlreadyFinal(once.clone()));
    assert_eq!(f.row(row.id).await, once);
}

pub async fn an_unknown_item_is_not_cancelled(f: &Fixture) {
    let answer = f.work().cancel(ORG, id(1), OPERATOR).await.unwrap();
    assert_eq!(answer, Cancelled::NotFound);
}

/// Claims an item, asks for its cancel, settles it, and answers the row.
async fn settled_after_cancel(f: &Fixture, transition: Transition, ended: Ended) -> WorkItem {
    let held = f.held(item()).await;
    cancel(f, &held).await;
    let answer = f.settle(hold(&held), transition.clone()).await;
    assert_eq!(answer, Settled::Settled(ended));
    let row = f.row(held.id).await;
    assert_eq!((row.claim_token, row.lease_expires_at), (None, None));
    assert_eq!(row.updated_by, UserId::NIL);
    let again = f.settle(hold(&held), transition).await;
    assert_eq!(again, Settled::AlreadySettled);
    assert_eq!(f.row(held.id).await, row);
    row
}

pub async fn a_cancelled_run_that_fails_ends_as_cancelled(f: &Fixture) {
    let row = settled_after_cancel(f, retry(Duration::ZERO), Ended::Cancelled).await;
    assert!(is_cancelled(&row));
    assert_eq!(f.claim(&request_of(1)).await, []);
}

pub async fn a_cancelled_run_that_parks_ends_as_cancelled(f: &Fixture) {
    let row = settled_after_cancel(f, park(Duration::ZERO), Ended::Cancelled).await;
    assert!(is_cancelled(&row));
    assert_eq!(f.claim(&request_of(1)).await, []);
}

pub async fn a_cancelled_run_that_is_released_ends_as_cancelled(f: &Fixture) {
    let row = settled_after_cancel(f, release(Duration::ZERO), Ended::Cancelled).await;
    assert!(is_cancelled(&row));
    assert_eq!(f.claim(&request_of(1)).await, []);
}

pub async fn a_cancelled_run_released_after_its_lease_ends_as_cancelled(f: &Fixture) {
    let held = f.held(item()).await;
    cancel(f, &held).await;
    f.advance(LEASE).await;
    let answer = f.settle(hold(&held), release(Duration::ZERO)).await;
    assert_eq!(answer, Settled::Settled(Ended::Cancelled));
    assert!(is_cancelled(&f.row(held.id).await));
}

pub async fn done_beats_a_requested_cancel(f: &Fixture) {
    let row = settled_after_cancel(f, complete(), Ended::Done).await;
    assert_eq!((row.status, row.failure_code), (Status::Done, None));
}

pub async fn a_dead_letter_beats_a_requested_cancel(f: &Fixture) {
    let row = settled_after_cancel(f, bury(), Ended::DeadLetter).await;
    assert!(row.is_dead_letter());
    assert_eq!(f.work().unaudited(ORG, 10).await.unwrap(), [row]);
}

pub async fn a_retry_puts_a_dead_letter_back_as_if_it_were_new(f: &Fixture) {
    let mut row = f
        .insert(NewItem {
            max_attempts: 2,
            ..item()
        })
        .await;
    row = f.claim_again(&row).await;
    f.advance(LEASE).await;
    f.sweep().await;
    row = f.claim_again(&row).await;
    let _ = f.settle(hold(&row), bury()).await;
    let dead = f.row(row.id).await;
    f.work()
        .mark_audited(ORG, &[(dead.id, dead.claim_seq)])
        .await
        .unwrap();
    f.advance(HOUR).await;

    let someone = UserId::new(Uuid::from_u128(77));
    let (answer, moment) = f.timed(f.work().retry(ORG, row.id, someone)).await;
    let after = f.row(row.id).await;
    assert_eq!(answer.unwrap(), Retried::Queued(after.clone()));
    moment.assert_is(after.available_at);
    moment.assert_is(after.updated_at);
    let expected = WorkItem {
        status: Status::Queued,
        available_at: after.available_at,
        updated_at: after.updated_at,
        updated_by: someone,
        attempts: 0,
        worker_losses: 0,
        last_error: None,
        failure_code: None,
        audited_at: None,
        progress: after.progress.clone(),
        ..dead
    };
    assert_eq!(after, expected, "errors and the fencing number are kept");
    assert_eq!((after.errors.len(), after.claim_seq), (2, 2));
    let again = f.claim_again(&after).await;
    assert_eq!((again.attempts, again.claim_seq), (1, 3));
}

pub async fn a_retry_clears_the_cancel_request(f: &Fixture) {
    let held = f.held(last_attempt()).await;
    cancel(f, &held).await;
    f.advance(LEASE).await;
    f.sweep().await;
    f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    let row = f.row(held.id).await;
    assert_eq!(
        (row.status, row.cancel_requested_at),
        (Status::Queued, None)
    );
    let again = f.claim_again(&row).await;
    assert_eq!(f.renew(hold(&again)).await, Renewed::Kept);
}

pub async fn a_cancelled_item_can_be_retried(f: &Fixture) {
    let row = f.insert(item()).await;
    cancel(f, &row).await;
    let answer = f.work().retry(ORG, row.id, OPERATOR).await.unwrap();
    assert!(matches!(answer, Retried::Queued(_)));
    let again = f.claim_again(&row).await;
    assert_eq!(
        (again.failure_code, again.cancel_requested_at),
        (None, None)
    );
}

pub async fn what_has_not_failed_is_not_retried(f: &Fixture) {
    let queued = f.insert(item()).await;
    let answer = |row: &WorkItem| f.work().retry(ORG, row.id, OPERATOR);
    assert_eq!(
        answer(&queued).await.unwrap(),
        Retried::NotFailed(queued.clone())
    );
    assert_eq!(f.row(queued.id).await, queued);
    let held = f.claim_again(&queued).await;
    assert_eq!(
        answer(&held).await.unwrap(),
        Retried::NotFailed(held.clone())
    );
    assert_eq!(f.row(held.id).await, held);
    let _ = f.settle(hold(&held), complete()).await;
    let done = f.row(held.id).await;
    assert_eq!(
        answer(&held).await.unwrap(),
        Retried::NotFailed(done.clone())
    );
    assert_eq!(f.row(held.id).await, done);
    assert_eq!(
        f.work().retry(ORG, id(1), OPERATOR).await.unwrap(),
        Retried::NotFound
    );
}

pub async fn a_retry_may_be_repeated(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), bury()).await;
    f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    let once = f.row(held.id).await;
    f.advance(HOUR).await;
    let answer = f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    assert_eq!(answer, Retried::NotFailed(once.clone()));
    assert_eq!(f.row(held.id).await, once);
}

pub async fn a_retried_item_that_dies_again_is_owed_an_entry_again(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), bury()).await;
    f.work()
        .mark_audited(ORG, &[(held.id, held.claim_seq)])
        .await
        .unwrap();
    f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    assert_eq!(f.work().unaudited(ORG, 10).await.unwrap(), []);
    let again = f.claim_again(&held).await;
    let _ = f.settle(hold(&again), bury()).await;
    assert_eq!(
        f.work().unaudited(ORG, 10).await.unwrap(),
        [f.row(held.id).await]
    );
}
