//! Attempts: what hands an item back never spends one, however often.

use std::time::Duration;

use leasehold_core::rules::{self, RetryPolicy, Transition};
use leasehold_core::store::work::{ClaimRequest, Settled};
use leasehold_core::{ClaimToken, Outcome, Status, WorkItem};

use super::fixture::Fixture;
use super::samples::{complete, failure, hold, item, park, release, request};

/// The delay of every deferral.
const STEP: Duration = Duration::from_mins(1);

/// Claims and settles one item over and over; answers how often.
async fn over_and_over(f: &Fixture, row: &WorkItem, transition: &Transition) -> i64 {
    let mut request = request();
    let mut claims = 0;
    for _ in 0..f.repeats {
        request = ClaimRequest {
            token: ClaimToken::mint(),
            ..request
        };
        let held = f.claim_one(&request).await;
        assert_eq!((held.id, held.attempts), (row.id, 1));
        claims += 1;
        assert_eq!(held.claim_seq, claims);
        assert!(matches!(
            f.settle(hold(&held), transition.clone()).await,
            Settled::Settled(_)
        ));
        if transition.needs_live_lease() {
            f.advance(STEP).await;
        }
    }
    claims
}

/// Then it fails once, with the first failure's delay, and succeeds.
async fn fails_once_and_succeeds(f: &Fixture, row: &WorkItem, claims: i64) {
    let stored = f.row(row.id).await;
    assert_eq!((stored.attempts, stored.claim_seq), (0, claims));
    let policy = RetryPolicy {
        jitter: 0.0,
        ..RetryPolicy::default()
    };
    let held = f.claim_again(row).await;
    let transition = rules::settle(&held, Outcome::failed(failure()), &policy, 0.0);
    let (_, moment) = f.timed(f.settle(hold(&held), transition)).await;
    let failed = f.row(row.id).await;
    assert_eq!((failed.attempts, failed.errors.len()), (1, 1));
    moment.assert_is_before(policy.base, failed.available_at);
    f.advance(policy.base).await;
    let held = f.claim_again(row).await;
    let _ = f.settle(hold(&held), complete()).await;
    let done = f.row(row.id).await;
    assert_eq!((done.status, done.attempts), (Status::Done, 2));
}

pub async fn deferrals_without_number_spend_no_attempt(f: &Fixture) {
    let row = f.insert(item()).await;
    let claims = over_and_over(f, &row, &park(STEP)).await;
    fails_once_and_succeeds(f, &row, claims).await;
}

pub async fn releases_without_number_spend_no_attempt(f: &Fixture) {
    let row = f.insert(item()).await;
    let claims = over_and_over(f, &row, &release(Duration::ZERO)).await;
    fails_once_and_succeeds(f, &row, claims).await;
}
