//! The fence: a holder that lost its claim is refused and changes nothing, whatever it tries.

use std::time::Duration;

use leasehold_core::store::work::{ClaimRequest, Ended, Renewal, Renewed, Settled};
use leasehold_core::{Progress, Status};

use super::fixture::Fixture;
use super::samples::{
    HOUR, LEASE, MOST_OF_LEASE, REST_OF_LEASE, complete, every_transition, hold, item, release,
    renewal, request, worker,
};

/// A claims and freezes, the lease ends, B claims; then A wakes up and tries everything.
async fn late_calls_are_refused(f: &Fixture, second_worker: &str) {
    let row = f.insert(item()).await;
    let first = f
        .claim_one(&ClaimRequest {
            worker: worker("worker-1"),
            ..request()
        })
        .await;
    f.advance(LEASE).await;
    assert_eq!(f.sweep().await.recovered, 1);
    let second = f
        .claim_one(&ClaimRequest {
            worker: worker(second_worker),
            ..request()
        })
        .await;
    assert_eq!(second.id, row.id);

    let progress = Some(Progress::new(99, "still here"));
    let renewed = f
        .renew_as(Renewal {
            progress,
            ..renewal(hold(&first))
        })
        .await;
    assert_eq!(renewed, Renewed::Lost);
    assert_eq!(f.row(row.id).await, second, "after a renewal");
    for transition in every_transition()
        .into_iter()
        .chain([release(Duration::ZERO)])
    {
        let name = transition.name();
        assert_eq!(
            f.settle(hold(&first), transition).await,
            Settled::Conflict,
            "{name}"
        );
        assert_eq!(f.row(row.id).await, second, "after a {name}");
    }

    assert_eq!(
        f.settle(hold(&second), complete()).await,
        Settled::Settled(Ended::Done)
    );
    let done = f.row(row.id).await;
    assert_eq!((done.status, done.attempts), (Status::Done, 2));
}

pub async fn late_calls_of_a_previous_holder_change_no_column(f: &Fixture) {
    late_calls_are_refused(f, "worker-2").await;
}

pub async fn late_calls_under_the_same_worker_name_change_no_column(f: &Fixture) {
    late_calls_are_refused(f, "worker-1").await;
}

pub async fn a_swept_claim_is_refused_everything_even_a_release(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE).await;
    f.sweep().await;
    let queued = f.row(held.id).await;
    assert_eq!(f.renew(hold(&held)).await, Renewed::Lost);
    for transition in every_transition() {
        assert_eq!(f.settle(hold(&held), transition).await, Settled::Conflict);
    }
    assert_eq!(f.row(held.id).await, queued);
}

/// A finishes late, B was handed back and claimed again, C's holder is dead. One sweep meets them.
pub async fn the_sweep_takes_what_expired_and_nothing_that_moved_on(f: &Fixture) {
    let (a, b, c) = three_claims(f).await;
    f.advance(LEASE).await;
    assert_eq!(f.settle(hold(&a), complete()).await, Settled::Conflict);
    let _ = f.settle(hold(&b), release(Duration::ZERO)).await;
    let second = f.claim_again(&b).await;

    let swept = f.sweep().await;
    assert_eq!((swept.recovered, swept.total()), (2, 2));
    for lost in [&a, &c] {
        let row = f.row(lost.id).await;
        assert_eq!(
            (row.status, row.attempts, row.worker_losses),
            (Status::Queued, 1, 1)
        );
    }
    assert_eq!(
        f.row(b.id).await,
        second,
        "the second claim keeps token, attempt and lease"
    );
    assert_eq!((second.attempts, second.worker_losses), (1, 0));
}

pub async fn a_claim_renewed_just_in_time_is_left_alone(f: &Fixture) {
    let (a, b, c) = three_claims(f).await;
    f.advance(MOST_OF_LEASE).await;
    assert_eq!(f.renew(hold(&a)).await, Renewed::Kept);
    let renewed = f.row(a.id).await;
    f.advance(REST_OF_LEASE).await;
    let _ = f.settle(hold(&b), release(Duration::ZERO)).await;
    let second = f.claim_again(&b).await;

    assert_eq!(f.sweep().await.total(), 1);
    assert_eq!(f.row(c.id).await.status, Status::Queued);
    assert_eq!(f.row(a.id).await, renewed);
    assert_eq!(f.row(b.id).await, second);
    assert_eq!(
        f.settle(hold(&a), complete()).await,
        Settled::Settled(Ended::Done)
    );
}

async fn three_claims(f: &Fixture) -> (Held, Held, Held) {
    (
        f.held(item()).await,
        f.held(item()).await,
        f.held(item()).await,
    )
}

type Held = leasehold_core::WorkItem;

pub async fn a_hold_lasts_as_long_as_it_is_renewed_through_any_handle(f: &Fixture) {
    let held = f.held(item()).await;
    let other = f.second_handle().await;
    for _ in 0..3 {
        f.advance(LEASE / 2).await;
        assert_eq!(
            other.work.renew(&[renewal(hold(&held))]).await.unwrap(),
            [Renewed::Kept]
        );
    }
    f.advance(HOUR).await;
    assert_eq!(
        other.work.renew(&[renewal(hold(&held))]).await.unwrap(),
        [Renewed::Lost]
    );
}
