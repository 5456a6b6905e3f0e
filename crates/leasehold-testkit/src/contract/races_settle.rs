//! Races at the end of a claim: settling, expiring, renewing and cancelling one item at once.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Renewed, Settled, StaleRequest};
use leasehold_core::{NewItem, Status, WorkItem};

use super::fixture::{Fixture, SharedWork, insist};
use super::races::{meet, rounds};
use super::samples::{
    LEASE, MOST_OF_LEASE, OPERATOR, ORG, REST_OF_LEASE, bury, complete, failure, hold, id, item,
    last_attempt, numbered, release, renewal, settlement, sweep_of,
};

/// A sweep of all that a round makes.
const SWEEP: StaleRequest = sweep_of(20);

async fn settle_by(store: SharedWork, held: WorkItem, transition: Transition) -> Settled {
    let batch = [settlement(hold(&held), transition)];
    insist(|| store.settle(&batch)).await[0]
}

/// One item is claimed for each round; the clock reaches the end of its lease while the holder
/// settles, and the sweep follows on its heels. Answers how often the holder won.
async fn settle_against_expiry(
    f: &Fixture,
    new: impl Fn() -> NewItem,
    transition: Transition,
    judge: impl Fn(bool, &WorkItem, &[WorkItem]),
) -> usize {
    let other = f.second_handle().await.work;
    let (mut accepted, mut expired) = (0, 0);
    for _ in 0..rounds(f) {
        let held = f.held(new()).await;
        let sweep = async {
            f.advance(LEASE).await;
            insist(|| f.work().requeue_stale(ORG, &SWEEP)).await
        };
        let (answer, swept) = meet(
            settle_by(other.clone(), held.clone(), transition.clone()),
            sweep,
        )
        .await;
        let won = match answer {
            Settled::Settled(_) => true,
            Settled::Conflict => false,
            Settled::AlreadySettled => panic!("nobody else settles"),
        };
        // The sweep either met an expired claim, or came when it was settled.
        let swept_now = u32::from(!won);
        assert_eq!(swept.total(), swept_now, "both had the item, or neither");
        accepted += usize::from(won);
        expired += swept.total() as usize;
        let row = f.row(held.id).await;
        judge(won, &row, &swept.dead);
        // Out of the way of the next round.
        if row.status == Status::Queued {
            f.work().cancel(ORG, row.id, OPERATOR).await.unwrap();
        }
    }
    assert_eq!(accepted + expired, rounds(f));
    accepted
}

pub async fn a_completion_and_its_expiry_have_one_outcome(f: &Fixture) {
    settle_against_expiry(f, item, complete(), |won, row, _| {
        let expected = if won {
            (Status::Done, 0)
        } else {
            (Status::Queued, 1)
        };
        assert_eq!((row.status, row.worker_losses), expected);
        assert_eq!(row.attempts, 1);
    })
    .await;
}

pub async fn a_last_failure_and_its_expiry_make_one_dead_letter(f: &Fixture) {
    let accepted = settle_against_expiry(f, last_attempt, bury(), |won, row, dead| {
        assert!(row.is_dead_letter());
        assert_eq!(row.errors.len(), 1, "one failure was recorded");
        assert_eq!(dead.len(), usize::from(!won));
        assert_eq!(row.worker_losses, u32::from(!won));
        assert_eq!(row.last_error == Some(failure().to_text()), won);
    })
    .await;
    let owed = f.work().unaudited(ORG, 2_000).await.unwrap();
    let own = owed.iter().filter(|row| row.worker_losses == 0).count();
    assert_eq!((owed.len(), own), (rounds(f), accepted));
}

pub async fn a_completion_and_a_release_have_one_outcome(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) {
        let held = f.held(item()).await;
        let (completed, released) = meet(
            settle_by(other.clone(), held.clone(), complete()),
            settle_by(f.stores.work.clone(), held.clone(), release(LEASE)),
        )
        .await;
        let row = f.row(held.id).await;
        match (completed, released) {
            (Settled::Settled(Ended::Done), Settled::AlreadySettled) => {
                assert_eq!((row.status, row.attempts), (Status::Done, 1));
                assert_eq!(row.last_error, None);
            }
            (Settled::AlreadySettled, Settled::Settled(Ended::Queued)) => {
                assert_eq!((row.status, row.attempts), (Status::Queued, 0));
            }
            answers => panic!("not one outcome: {answers:?}"),
        }
    }
}

pub async fn a_renewal_and_the_sweep_agree(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) {
        let held = f.held(item()).await;
        f.advance(MOST_OF_LEASE).await;
        let renewal = [renewal(hold(&held))];
        let store = other.clone();
        let renew = async move { insist(|| store.renew(&renewal)).await[0] };
        let sweep = async {
            f.advance(REST_OF_LEASE).await;
            insist(|| f.work().requeue_stale(ORG, &SWEEP)).await
        };
        let (renewed, swept) = meet(renew, sweep).await;
        let row = f.row(held.id).await;
        match (renewed, swept.recovered) {
            (Renewed::Kept, 0) => assert_eq!(row.claim_token, held.claim_token),
            (Renewed::Lost, 1) => assert_eq!((row.claim_token, row.worker_losses), (None, 1)),
            answers => panic!("they disagree: {answers:?}"),
        }
        let _ = f.settle(hold(&held), complete()).await;
        f.work().cancel(ORG, held.id, OPERATOR).await.unwrap();
    }
}

pub async fn a_cancel_and_a_completion_agree(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) {
        let held = f.held(item()).await;
        let cancel = insist(|| f.work().cancel(ORG, held.id, OPERATOR));
        let (completed, _) = meet(settle_by(other.clone(), held.clone(), complete()), cancel).await;
        assert_eq!(
            completed,
            Settled::Settled(Ended::Done),
            "done beats cancel"
        );
        assert_eq!(f.row(held.id).await.status, Status::Done);
    }
}

pub async fn two_sweeps_at_once_move_each_item_once(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) / 50 {
        f.work()
            .enqueue(ORG, (0..20).map(|_| last_attempt()).collect())
            .await
            .unwrap();
        f.claim_many(20).await;
        f.advance(LEASE).await;
        let store = other.clone();
        let theirs = async move { insist(|| store.requeue_stale(ORG, &SWEEP)).await };
        let ours = insist(|| f.work().requeue_stale(ORG, &SWEEP));
        let (theirs, ours) = meet(theirs, ours).await;
        let rest = f.sweep().await;
        let mut dead = BTreeSet::new();
        for row in theirs.dead.iter().chain(&ours.dead).chain(&rest.dead) {
            assert!(dead.insert(row.id), "a dead letter was announced twice");
            assert_eq!((row.worker_losses, row.errors.len()), (1, 1));
        }
        assert_eq!(dead.len(), 20);
    }
}

/// Rows are locked in id order whatever the batch's, so that batches cannot block each other.
pub async fn batches_in_opposite_orders_do_not_block_each_other(f: &Fixture) {
    const BATCH: u32 = 20;
    let other = f.second_handle().await.work;
    let limit = Duration::from_mins(1);
    f.work()
        .enqueue(ORG, (1..=u128::from(BATCH)).map(numbered).collect())
        .await
        .unwrap();
    for _ in 0..rounds(f) / 20 {
        let held = f.claim_many(BATCH).await;
        let renewals: Vec<_> = held.iter().map(|item| renewal(hold(item))).collect();
        let backwards: Vec<_> = renewals.iter().rev().cloned().collect();
        let store = other.clone();
        let theirs = async move { insist(|| store.renew(&backwards)).await };
        let both = meet(theirs, insist(|| f.work().renew(&renewals)));
        let (theirs, ours) = tokio::time::timeout(limit, both)
            .await
            .expect("they are blocked");
        assert!(
            theirs
                .iter()
                .chain(&ours)
                .all(|answer| *answer == Renewed::Kept)
        );

        let forwards: Vec<_> = held
            .iter()
            .map(|item| settlement(hold(item), release(Duration::ZERO)))
            .collect();
        let backwards: Vec<_> = forwards.iter().rev().cloned().collect();
        let store = other.clone();
        let theirs = async move { insist(|| store.settle(&backwards)).await };
        let both = meet(theirs, insist(|| f.work().settle(&forwards)));
        let (theirs, ours) = tokio::time::timeout(limit, both)
            .await
            .expect("they are blocked");
        let settled = theirs
            .iter()
            .chain(&ours)
            .filter(|a| matches!(a, Settled::Settled(_)));
        assert_eq!(settled.count(), held.len(), "each was settled once");
    }
    assert_eq!(f.row(id(1)).await.attempts, 0);
}
