//! Races on work items, through two handles: of any two that meet, one wins.
//!
//! The actors of a round leave a barrier together, one of them on another thread. Which is first is
//! the machine's affair; the case holds whatever the order, and repeats until both have been seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::work::{
    Cancelled, ClaimRequest, Claimed, Ended, Enqueued, Filter, Page, Renewed, Settled, StaleRequest,
};
use leasehold_core::{ClaimToken, IdempotencyKey, ItemId, NewItem, OrgId, Status, WorkItem};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::fixture::{Fixture, SharedWork, insist};
use super::samples::{
    LEASE, MOST_OF_LEASE, OPERATOR, ORG, OTHER, REST_OF_LEASE, bury, complete, failure, hold, id,
    item, last_attempt, numbered, release, renewal, request, request_of, settlement, sweep_of,
};

/// A sweep of all that a round makes.
const SWEEP: StaleRequest = sweep_of(20);

/// Rounds of a race of two.
fn rounds(f: &Fixture) -> usize {
    f.repeats.min(1_000)
}

/// Runs `first` on another thread and `second` on this one, both from a barrier.
async fn meet<A, B>(
    first: impl Future<Output = A> + Send + 'static,
    second: impl Future<Output = B>,
) -> (A, B)
where
    A: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(2));
    let other = tokio::spawn({
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
            first.await
        }
    });
    barrier.wait().await;
    let second = second.await;
    (other.await.unwrap(), second)
}

async fn claim(store: SharedWork, request: ClaimRequest) -> Vec<Claimed> {
    insist(|| store.claim(&request)).await
}

async fn settle_by(
    store: SharedWork,
    held: WorkItem,
    transition: leasehold_core::rules::Transition,
) -> Settled {
    let batch = [settlement(hold(&held), transition)];
    insist(|| store.settle(&batch)).await[0]
}

pub async fn of_two_claimers_of_one_item_one_wins(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) {
        let row = f.insert(item()).await;
        let (a, b) = meet(
            claim(other.clone(), request_of(5)),
            claim(f.stores.work.clone(), request_of(5)),
        )
        .await;
        let winners: Vec<_> = a.into_iter().chain(b).collect();
        assert_eq!(winners.len(), 1);
        let stored = f.row(row.id).await;
        assert_eq!(winners[0].item, stored);
        assert_eq!((stored.attempts, stored.claim_seq), (1, 1));
        assert_eq!(f.claim(&request()).await, []);
    }
}

pub async fn claimers_in_numbers_take_each_item_once_and_keep_to_their_limits(f: &Fixture) {
    let count = u128::try_from(f.repeats.min(2_000)).unwrap();
    for start in (0..count).step_by(500) {
        let batch = (start + 1..=(start + 500).min(count))
            .map(numbered)
            .collect();
        f.work().enqueue(ORG, batch).await.unwrap();
    }
    let handles = [f.stores.work.clone(), f.second_handle().await.work];
    let mut claimers = JoinSet::new();
    for at in 0..16_usize {
        let store = handles[at % 2].clone();
        let limit = if at < 8 { 1 } else { 7 };
        claimers.spawn(async move {
            let mut taken = BTreeMap::new();
            loop {
                let request = request_of(limit);
                let claimed = claim(store.clone(), request.clone()).await;
                assert!(claimed.len() <= limit as usize, "more than was asked for");
                if claimed.is_empty() {
                    return taken;
                }
                for c in claimed {
                    assert_eq!(c.item.claim_token, Some(request.token));
                    assert!(taken.insert(c.item.id, request.token).is_none());
                }
            }
        });
    }
    let mut taken: BTreeMap<ItemId, ClaimToken> = BTreeMap::new();
    for theirs in claimers.join_all().await {
        for (item, token) in theirs {
            assert!(
                taken.insert(item, token).is_none(),
                "{item} was handed out twice"
            );
        }
    }
    // Every row that was marked is among those returned, with its token.
    let marked = marked(f).await;
    assert_eq!(marked.len() as u128, count);
    assert_eq!(marked, taken);
}

/// The token of every claimed item of [`ORG`].
async fn marked(f: &Fixture) -> BTreeMap<ItemId, ClaimToken> {
    let filter = Filter {
        status: Some(Status::Claimed),
        ..Filter::default()
    };
    let mut page = Page {
        before: None,
        limit: 1_000,
    };
    let mut marked = BTreeMap::new();
    loop {
        let rows = f.work().list(ORG, &filter, &page).await.unwrap();
        let Some(last) = rows.last() else {
            return marked;
        };
        page.before = Some(last.id);
        marked.extend(
            rows.iter()
                .map(|row| (row.id, row.claim_token.expect("a token"))),
        );
    }
}

pub async fn claimers_at_once_stay_under_the_tenant_cap(f: &Fixture) {
    const CAP: u32 = 3;
    let handles = [f.stores.work.clone(), f.second_handle().await.work];
    for round in 0..rounds(f) / 20 {
        for org in [ORG, OTHER] {
            f.work()
                .enqueue(org, (0..20).map(|_| item()).collect())
                .await
                .unwrap();
        }
        let mut claimers = JoinSet::new();
        for at in 0..8_usize {
            let store = handles[at % 2].clone();
            let limit = if at < 4 { 1 } else { 2 };
            let request = ClaimRequest {
                tenant_cap: Some(CAP),
                ..request_of(limit)
            };
            claimers.spawn(claim(store, request));
        }
        let claimed: Vec<_> = claimers.join_all().await.into_iter().flatten().collect();
        for org in [ORG, OTHER] {
            let of = claimed.iter().filter(|c| c.org_id == org).count();
            assert!(
                of <= CAP as usize,
                "{of} claims of one org in round {round}"
            );
        }
        assert_eq!(
            claimed.len(),
            2 * CAP as usize,
            "twelve slots were asked for"
        );
        for c in claimed {
            let end = settlement(super::samples::hold_in(c.org_id, &c.item), complete());
            assert_eq!(
                f.work().settle(&[end]).await.unwrap(),
                [Settled::Settled(Ended::Done)]
            );
        }
    }
}

/// One item is claimed for each round; the clock reaches the end of its lease while the holder
/// settles, and the sweep follows on its heels. Answers how often the holder won.
async fn settle_against_expiry(
    f: &Fixture,
    new: impl Fn() -> NewItem,
    transition: leasehold_core::rules::Transition,
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

pub async fn a_cancel_and_a_claim_agree(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) {
        let row = f.insert(item()).await;
        let cancel = insist(|| f.work().cancel(ORG, row.id, OPERATOR));
        let (claimed, cancelled) = meet(claim(other.clone(), request()), cancel).await;
        let now = f.row(row.id).await;
        match (claimed.len(), cancelled) {
            (0, Cancelled::Ended(_)) => {
                assert_eq!((now.status, now.claim_seq), (Status::Failed, 0));
            }
            (1, Cancelled::Requested(_)) => {
                assert_eq!(f.renew(hold(&now)).await, Renewed::CancelRequested);
            }
            answers => panic!("they disagree: {answers:?}"),
        }
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

pub async fn a_hundred_producers_of_one_key_make_one_item(f: &Fixture) {
    let handles = [f.stores.work.clone(), f.second_handle().await.work];
    let barrier = Arc::new(Barrier::new(100));
    let key = IdempotencyKey::from_text("nightly report");
    let mut producers = JoinSet::new();
    for at in 0..100_usize {
        let (store, barrier) = (handles[at % 2].clone(), barrier.clone());
        let new = NewItem {
            idempotency_key: key,
            ..item()
        };
        producers.spawn(async move {
            barrier.wait().await;
            insist(|| store.enqueue(ORG, vec![new.clone()]))
                .await
                .remove(0)
        });
    }
    let fates = producers.join_all().await;
    let stored = f
        .work()
        .get_by_key(ORG, key)
        .await
        .unwrap()
        .expect("one item");
    let mut inserted = 0;
    for fate in fates {
        match fate {
            Enqueued::Inserted(row) => {
                inserted += 1;
                assert_eq!(row, stored);
            }
            Enqueued::KeyExists(row) => assert_eq!(row.id, stored.id, "an id that exists"),
            other => panic!("no such fate is possible: {other:?}"),
        }
    }
    assert_eq!(inserted, 1);
    assert_eq!(f.claim(&request_of(10)).await.len(), 1);
}

pub async fn two_orgs_that_enqueue_one_id_make_one_item(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) / 5 {
        let new = item();
        let theirs = new.clone();
        let store = other.clone();
        let enqueue = |store: SharedWork, org: OrgId, new: NewItem| async move {
            insist(|| store.enqueue(org, vec![new.clone()]))
                .await
                .remove(0)
        };
        let (a, b) = meet(
            enqueue(store, OTHER, theirs),
            enqueue(f.stores.work.clone(), ORG, new.clone()),
        )
        .await;
        match (a, b) {
            (Enqueued::Inserted(_), Enqueued::IdTaken) => {
                assert_eq!(f.work().get(ORG, new.id).await.unwrap(), None);
            }
            (Enqueued::IdTaken, Enqueued::Inserted(_)) => {
                assert_eq!(f.work().get(OTHER, new.id).await.unwrap(), None);
            }
            answers => panic!("not one owner: {answers:?}"),
        }
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
