//! The sweep of one org: claims whose lease is over, recovered or ended.

use std::time::Duration;

use leasehold_core::rules::stagger;
use leasehold_core::store::work::{StaleRequest, lease_expired};
use leasehold_core::{AttemptError, FailureCode, NewItem, Status, UserId, WorkItem};

use super::fixture::Fixture;
use super::samples::{
    DAY, HOUR, LEASE, MOST_OF_LEASE, OPERATOR, ORG, OTHER, bury, complete, hold, id, ids, item,
    last_attempt, numbered, request_of, retry, sweep_of,
};

/// The row that the sweep leaves, whatever it decides.
fn unclaimed(before: WorkItem, after: &WorkItem) -> WorkItem {
    let error = AttemptError {
        attempt: before.attempts,
        at: after.errors.last().expect("an error").at,
        message: lease_expired().to_text(),
    };
    WorkItem {
        claimed_by: None,
        claim_token: None,
        lease_expires_at: None,
        updated_by: UserId::NIL,
        updated_at: after.updated_at,
        worker_losses: before.worker_losses + 1,
        last_error: Some(lease_expired().to_text()),
        errors: before.errors.iter().cloned().chain([error]).collect(),
        ..before
    }
}

pub async fn an_expired_claim_is_queued_again_with_the_attempt_spent(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE).await;
    let (swept, moment) = f.timed(f.sweep()).await;
    assert_eq!(
        (swept.recovered, swept.cancelled, swept.dead),
        (1, 0, Vec::new())
    );
    let after = f.row(held.id).await;
    moment.assert_is(after.updated_at);
    moment.assert_is(after.available_at);
    moment.assert_is(after.errors[0].at);
    let expected = WorkItem {
        status: Status::Queued,
        available_at: after.available_at,
        ..unclaimed(held, &after)
    };
    assert_eq!(after, expected);
    assert_eq!(after.attempts, 1);
    assert_eq!(f.claim_again(&after).await.attempts, 2);
}

pub async fn a_live_lease_is_left_alone(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(MOST_OF_LEASE).await;
    assert_eq!(f.sweep().await.total(), 0);
    assert_eq!(f.row(held.id).await, held);
}

pub async fn what_is_not_claimed_is_left_alone(f: &Fixture) {
    let mut rows = Vec::new();
    for transition in [complete(), bury(), retry(HOUR)] {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
        rows.push(f.row(held.id).await);
    }
    rows.push(f.insert(item()).await);
    f.advance(DAY).await;
    assert_eq!(f.sweep().await.total(), 0);
    for row in rows {
        assert_eq!(f.row(row.id).await, row);
    }
}

pub async fn an_exhausted_item_becomes_a_dead_letter_that_is_returned(f: &Fixture) {
    let held = f.held(last_attempt()).await;
    f.advance(LEASE).await;
    let (swept, moment) = f.timed(f.sweep()).await;
    let after = f.row(held.id).await;
    moment.assert_is(after.updated_at);
    assert_eq!((swept.recovered, swept.cancelled), (0, 0));
    assert_eq!(swept.dead, std::slice::from_ref(&after));
    let expected = WorkItem {
        status: Status::Failed,
        failure_code: Some(FailureCode::own(FailureCode::LEASE_EXPIRED)),
        audited_at: None,
        ..unclaimed(held, &after)
    };
    assert_eq!(after, expected);
    assert!(after.is_dead_letter());
}

pub async fn a_dead_letter_whose_answer_was_lost_is_found_as_unaudited(f: &Fixture) {
    let held = f.held(last_attempt()).await;
    f.advance(LEASE).await;
    let lost = f.sweep().await;
    assert_eq!(f.sweep().await.total(), 0, "sweeping again moves nothing");
    assert_eq!(f.work().unaudited(ORG, 10).await.unwrap(), lost.dead);
    assert_eq!(ids(&lost.dead), [held.id]);
}

/// An item that takes its worker along each time: so often and no more.
pub async fn a_poison_item_ends_after_its_attempts(f: &Fixture) {
    let mut row = f.insert(item()).await;
    for attempt in 1..=3 {
        row = f.claim_again(&row).await;
        assert_eq!((row.attempts, row.worker_losses), (attempt, attempt - 1));
        f.advance(LEASE).await;
        let swept = f.sweep().await;
        let expected = if attempt < 3 { (1, 0) } else { (0, 1) };
        assert_eq!((swept.recovered, swept.dead.len()), expected);
    }
    row = f.row(row.id).await;
    assert_eq!(
        (row.status, row.attempts, row.worker_losses),
        (Status::Failed, 3, 3)
    );
    assert_eq!(
        row.errors.iter().map(|e| e.attempt).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(f.claim(&request_of(1)).await, []);
}

pub async fn an_expired_run_that_was_cancelled_ends_as_cancelled(f: &Fixture) {
    for new in [item(), last_attempt()] {
        let held = f.held(new).await;
        f.work().cancel(ORG, held.id, OPERATOR).await.unwrap();
        f.advance(LEASE).await;
        let swept = f.sweep().await;
        assert_eq!(
            (swept.recovered, swept.cancelled, swept.dead),
            (0, 1, Vec::new())
        );
        let after = f.row(held.id).await;
        assert_eq!(after.status, Status::Failed);
        assert_eq!(
            after.failure_code,
            Some(FailureCode::own(FailureCode::CANCELLED))
        );
        assert_eq!((after.claim_token, after.lease_expires_at), (None, None));
        assert_eq!(after.worker_losses, 1);
    }
    assert_eq!(f.work().unaudited(ORG, 10).await.unwrap(), []);
}

pub async fn one_sweep_tells_its_findings_apart(f: &Fixture) {
    f.insert(numbered(1)).await;
    f.insert(NewItem {
        max_attempts: 1,
        ..numbered(2)
    })
    .await;
    f.insert(numbered(3)).await;
    f.insert(NewItem {
        max_attempts: 1,
        ..numbered(4)
    })
    .await;
    f.insert(numbered(5)).await;
    f.claim_many(5).await;
    f.work().cancel(ORG, id(3), OPERATOR).await.unwrap();
    f.advance(LEASE).await;
    let swept = f.sweep().await;
    assert_eq!((swept.recovered, swept.cancelled, swept.total()), (2, 1, 5));
    let mut dead = ids(&swept.dead);
    dead.sort();
    assert_eq!(dead, [id(2), id(4)]);
}

pub async fn a_sweep_takes_no_more_than_its_limit_and_the_lowest_ids_first(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).rev().map(numbered).collect())
        .await
        .unwrap();
    f.claim_many(5).await;
    f.advance(LEASE).await;
    for (limit, moved, through) in [(2, 2, 2), (0, 0, 2), (2, 2, 4), (2, 1, 5), (2, 0, 5)] {
        let swept = f.work().requeue_stale(ORG, &sweep_of(limit)).await.unwrap();
        assert_eq!(swept.total(), moved);
        for number in 1..=5 {
            let expected = if number <= through {
                Status::Queued
            } else {
                Status::Claimed
            };
            assert_eq!(f.row(id(number)).await.status, expected, "item {number}");
        }
    }
}

pub async fn recovered_items_are_spread_by_position(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=7).map(numbered).collect())
        .await
        .unwrap();
    f.claim_many(7).await;
    f.advance(LEASE).await;
    let request = StaleRequest {
        limit: 10,
        spread: Duration::from_secs(10),
    };
    let (swept, moment) = f.timed(f.work().requeue_stale(ORG, &request)).await;
    assert_eq!(swept.unwrap().recovered, 7);
    for number in 1..=7 {
        let delay = stagger(number - 1, request.limit, request.spread);
        moment.assert_is_before(delay, f.row(id(number.into())).await.available_at);
    }
    // A lone item does not wait.
    assert_eq!(f.claim(&request_of(10)).await.len(), 1);
}

pub async fn a_large_batch_is_recovered_whole(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=500).map(numbered).collect())
        .await
        .unwrap();
    f.claim_many(500).await;
    f.advance(LEASE).await;
    let request = StaleRequest {
        limit: 500,
        spread: Duration::from_secs(10),
    };
    assert_eq!(
        f.work()
            .requeue_stale(ORG, &request)
            .await
            .unwrap()
            .recovered,
        500
    );
    f.advance(Duration::from_secs(10)).await;
    f.claim_many(500).await;
}

pub async fn only_the_named_org_is_swept(f: &Fixture) {
    f.insert(item()).await;
    f.insert_in(OTHER, last_attempt()).await;
    let claimed = f.claim(&request_of(2)).await;
    let theirs = claimed
        .into_iter()
        .find(|c| c.org_id == OTHER)
        .expect("their item")
        .item;
    f.advance(LEASE).await;
    assert_eq!(f.sweep().await.total(), 1);
    assert_eq!(f.row_in(OTHER, theirs.id).await, theirs);
    let swept = f.work().requeue_stale(OTHER, &sweep_of(10)).await.unwrap();
    assert_eq!(ids(&swept.dead), [theirs.id]);
}
