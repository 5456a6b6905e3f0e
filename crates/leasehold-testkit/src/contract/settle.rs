//! Settling: what each transition writes, and which hold may write it.

use std::time::Duration;

use leasehold_core::item::ERRORS_MAX;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Settled};
use leasehold_core::{
    AttemptError, ClaimToken, FailureCode, NewItem, Progress, Status, UserId, WorkItem,
};

use super::fixture::{Fixture, Moment};
use super::samples::{
    HOUR, LEASE, MOST_OF_LEASE, OPERATOR, ORG, bury, complete, every_transition, failure, hold, id,
    ids, item, json, last_attempt, numbered, park, release, renewal, request_of, retry, settlement,
};

/// The row that a settle leaves, whatever the transition: the claim's fields are cleared.
fn unclaimed(before: WorkItem, after: &WorkItem) -> WorkItem {
    WorkItem {
        claimed_by: None,
        claim_token: None,
        lease_expires_at: None,
        updated_by: UserId::NIL,
        updated_at: after.updated_at,
        ..before
    }
}

/// Claims an item that has a note and progress already, settles it, and answers before and after.
async fn settled(
    f: &Fixture,
    transition: Transition,
    ended: Ended,
) -> (WorkItem, WorkItem, Moment) {
    let first = f.held(item()).await;
    let _ = f.settle(hold(&first), release(Duration::ZERO)).await;
    let second = f.claim_again(&first).await;
    let mut renewal = renewal(hold(&second));
    renewal.progress = Some(Progress::new(40, "half way"));
    f.renew_as(renewal).await;
    let before = f.row(first.id).await;
    f.advance(Duration::from_secs(3)).await;
    let (answer, moment) = f.timed(f.settle(hold(&before), transition)).await;
    assert_eq!(answer, Settled::Settled(ended));
    let after = f.row(first.id).await;
    moment.assert_is(after.updated_at);
    (before, after, moment)
}

pub async fn a_completed_item_is_done_and_keeps_its_result(f: &Fixture) {
    let result = Some(json(r#"{"sent": 3}"#));
    let transition = Transition::Complete {
        result: result.clone(),
    };
    let (before, after, _) = settled(f, transition, Ended::Done).await;
    let expected = WorkItem {
        status: Status::Done,
        result,
        ..unclaimed(before, &after)
    };
    assert_eq!(after, expected);
}

pub async fn a_completion_without_a_result_keeps_none(f: &Fixture) {
    let (before, after, _) = settled(f, complete(), Ended::Done).await;
    assert_eq!(
        after,
        WorkItem {
            status: Status::Done,
            ..unclaimed(before, &after)
        }
    );
    assert_eq!(after.result, None);
}

pub async fn a_failed_item_is_queued_after_its_delay_with_the_attempt_spent(f: &Fixture) {
    let (before, after, moment) = settled(f, retry(HOUR), Ended::Queued).await;
    moment.assert_is_before(HOUR, after.available_at);
    moment.assert_is(after.errors[0].at);
    let error = AttemptError {
        attempt: 1,
        at: after.errors[0].at,
        message: failure().to_text(),
    };
    let expected = WorkItem {
        status: Status::Queued,
        available_at: after.available_at,
        attempts: 1,
        last_error: Some(failure().to_text()),
        errors: vec![error],
        ..unclaimed(before, &after)
    };
    assert_eq!(after, expected);
}

pub async fn a_buried_item_is_a_dead_letter_that_is_owed_an_audit_entry(f: &Fixture) {
    let (before, after, moment) = settled(f, bury(), Ended::DeadLetter).await;
    moment.assert_is(after.errors[0].at);
    let error = AttemptError {
        attempt: 1,
        at: after.errors[0].at,
        message: failure().to_text(),
    };
    let expected = WorkItem {
        status: Status::Failed,
        failure_code: Some(FailureCode::own(FailureCode::HANDLER_ERROR)),
        last_error: Some(failure().to_text()),
        errors: vec![error],
        audited_at: None,
        ..unclaimed(before, &after)
    };
    assert_eq!(after, expected);
    assert!(after.is_dead_letter());
    assert_eq!(f.work().unaudited(ORG, 10).await.unwrap(), [after]);
}

pub async fn a_retry_with_no_attempt_left_is_a_burial(f: &Fixture) {
    // Also if a person wants it stopped: a dead letter beats a cancel.
    for is_cancelled in [false, true] {
        let held = f.held(last_attempt()).await;
        if is_cancelled {
            f.work().cancel(ORG, held.id, OPERATOR).await.unwrap();
        }
        let answer = f.settle(hold(&held), retry(HOUR)).await;
        assert_eq!(answer, Settled::Settled(Ended::DeadLetter));
        let after = f.row(held.id).await;
        let code = FailureCode::own(FailureCode::HANDLER_ERROR);
        assert_eq!((after.status, after.attempts), (Status::Failed, 1));
        assert_eq!(after.failure_code, Some(code));
        assert_eq!(after.errors.len(), 1);
        assert!(after.is_dead_letter() && after.audited_at.is_none());
    }
}

pub async fn a_parked_item_is_queued_after_its_delay_with_the_attempt_given_back(f: &Fixture) {
    let (before, after, moment) = settled(f, park(HOUR), Ended::Queued).await;
    moment.assert_is_before(HOUR, after.available_at);
    let expected = WorkItem {
        status: Status::Queued,
        available_at: after.available_at,
        attempts: 0,
        last_error: Some("waits for the bank".into()),
        ..unclaimed(before, &after)
    };
    assert_eq!(after, expected);
}

pub async fn a_released_item_is_queued_after_its_delay_with_the_attempt_given_back(f: &Fixture) {
    let (before, after, moment) = settled(f, release(HOUR), Ended::Queued).await;
    moment.assert_is_before(HOUR, after.available_at);
    let expected = WorkItem {
        status: Status::Queued,
        available_at: after.available_at,
        attempts: 0,
        last_error: Some("worker stopping".into()),
        ..unclaimed(before, &after)
    };
    assert_eq!(after, expected);
}

pub async fn a_release_without_delay_is_claimable_at_once(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), release(Duration::ZERO)).await;
    let again = f.claim_again(&held).await;
    assert_eq!((again.attempts, again.claim_seq), (1, 2));
}

pub async fn a_spent_attempt_shows_in_the_next_claim(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), retry(HOUR)).await;
    f.advance(HOUR).await;
    assert_eq!(f.claim_again(&held).await.attempts, 2);
}

pub async fn a_failure_code_of_the_handlers_own_is_kept(f: &Fixture) {
    let held = f.held(item()).await;
    let code = FailureCode::parse("CardDeclined").unwrap();
    let own = leasehold_core::Failure {
        code: code.clone(),
        ..failure()
    };
    let answer = f
        .settle(hold(&held), Transition::Bury { failure: own })
        .await;
    assert_eq!(answer, Settled::Settled(Ended::DeadLetter));
    assert_eq!(f.row(held.id).await.failure_code, Some(code));
}

pub async fn the_newest_errors_are_kept(f: &Fixture) {
    let claims = u32::try_from(ERRORS_MAX).unwrap() + 5;
    let mut row = f
        .insert(NewItem {
            max_attempts: 100,
            ..item()
        })
        .await;
    for _ in 0..claims {
        row = f.claim_again(&row).await;
        let _ = f.settle(hold(&row), retry(Duration::ZERO)).await;
    }
    let attempts: Vec<u32> = f
        .row(row.id)
        .await
        .errors
        .iter()
        .map(|e| e.attempt)
        .collect();
    assert_eq!(attempts, (6..=claims).collect::<Vec<_>>());
}

/// The transition is refused once the lease is over, from its very last moment on.
async fn refused_after_the_lease(f: &Fixture, transition: Transition) {
    let held = f.held(last_attempt()).await;
    f.advance(LEASE).await;
    assert_eq!(
        f.settle(hold(&held), transition.clone()).await,
        Settled::Conflict
    );
    f.advance(HOUR).await;
    assert_eq!(f.settle(hold(&held), transition).await, Settled::Conflict);
    assert_eq!(f.row(held.id).await, held, "a refusal changes nothing");
    assert_eq!(
        f.sweep().await.dead.len(),
        1,
        "the sweep finds it all the same"
    );
}

pub async fn a_completion_after_the_lease_passed_is_refused(f: &Fixture) {
    refused_after_the_lease(f, complete()).await;
}

pub async fn a_failure_after_the_lease_passed_is_refused(f: &Fixture) {
    refused_after_the_lease(f, retry(HOUR)).await;
}

pub async fn a_burial_after_the_lease_passed_is_refused(f: &Fixture) {
    refused_after_the_lease(f, bury()).await;
}

pub async fn a_park_after_the_lease_passed_is_refused(f: &Fixture) {
    refused_after_the_lease(f, park(HOUR)).await;
}

pub async fn a_release_after_the_lease_passed_gives_the_attempt_back(f: &Fixture) {
    let held = f.held(last_attempt()).await;
    f.advance(LEASE + HOUR).await;
    let answer = f.settle(hold(&held), release(Duration::ZERO)).await;
    assert_eq!(answer, Settled::Settled(Ended::Queued));
    let row = f.row(held.id).await;
    assert_eq!(
        (row.status, row.attempts, row.worker_losses),
        (Status::Queued, 0, 0)
    );
    assert_eq!(f.sweep().await.total(), 0);
}

pub async fn a_completion_just_before_the_end_of_the_lease_is_accepted(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(MOST_OF_LEASE).await;
    assert_eq!(
        f.settle(hold(&held), complete()).await,
        Settled::Settled(Ended::Done)
    );
}

pub async fn a_token_that_never_was_is_refused(f: &Fixture) {
    let held = f.held(item()).await;
    let mut forged = hold(&held);
    forged.token = ClaimToken::mint();
    for transition in every_transition() {
        assert_eq!(f.settle(forged, transition).await, Settled::Conflict);
    }
    assert_eq!(f.row(held.id).await, held);
}

pub async fn an_item_that_is_not_there_is_refused(f: &Fixture) {
    let held = f.held(item()).await;
    let mut elsewhere = hold(&held);
    elsewhere.item_id = id(1);
    for transition in every_transition() {
        assert_eq!(f.settle(elsewhere, transition).await, Settled::Conflict);
    }
    assert_eq!(f.row(held.id).await, held);
}

pub async fn a_batch_of_settles_is_answered_in_its_order(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let held = f.claim_many(5).await;
    let _ = f.settle(hold(&held[3]), complete()).await;
    let mut stale = hold(&held[1]);
    stale.token = ClaimToken::mint();
    let batch = [
        settlement(hold(&held[4]), bury()),
        settlement(stale, complete()),
        settlement(hold(&held[0]), retry(HOUR)),
        settlement(hold(&held[3]), complete()),
        settlement(hold(&held[2]), complete()),
    ];
    let answers = f.work().settle(&batch).await.unwrap();
    assert_eq!(
        answers,
        [
            Settled::Settled(Ended::DeadLetter),
            Settled::Conflict,
            Settled::Settled(Ended::Queued),
            Settled::AlreadySettled,
            Settled::Settled(Ended::Done),
        ]
    );
    assert_eq!(
        f.row(id(2)).await,
        held[1],
        "a conflict in a batch changes nothing"
    );
    assert_eq!(f.row(id(5)).await.status, Status::Failed);
    assert_eq!(f.row(id(1)).await.status, Status::Queued);
    assert_eq!(f.row(id(3)).await.status, Status::Done);
}

pub async fn an_empty_batch_of_settles_is_answered_with_nothing(f: &Fixture) {
    assert_eq!(f.work().settle(&[]).await.unwrap(), []);
}

pub async fn a_batch_of_five_hundred_is_settled_whole(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=500).map(numbered).collect())
        .await
        .unwrap();
    let held = f.claim(&request_of(500)).await;
    let batch: Vec<_> = held
        .iter()
        .rev()
        .map(|c| settlement(hold(&c.item), release(Duration::ZERO)))
        .collect();
    let answers = f.work().settle(&batch).await.unwrap();
    assert_eq!(answers, vec![Settled::Settled(Ended::Queued); 500]);
    let again = f.claim_many(500).await;
    assert_eq!(ids(&again).len(), 500);
    assert!(
        again
            .iter()
            .all(|item| item.attempts == 1 && item.claim_seq == 2)
    );
}
