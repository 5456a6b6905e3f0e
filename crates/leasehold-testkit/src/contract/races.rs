//! Races on work items, through two handles: of any two that meet, one wins.
//!
//! The actors of a round leave a barrier together, one of them on another thread. Which is first is
//! the machine's affair: a case holds whatever the order, and repeats so that both come up.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::store::work::{
    Cancelled, ClaimRequest, Claimed, Ended, Enqueued, Filter, Page, Renewed, Settled,
};
use leasehold_core::{ClaimToken, IdempotencyKey, ItemId, NewItem, OrgId, Status};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::fixture::{Fixture, SharedWork, insist};
use super::samples::{
    OPERATOR, ORG, OTHER, complete, hold, item, numbered, request, request_of, settlement,
};

/// Rounds of a race of two.
pub(super) fn rounds(f: &Fixture) -> usize {
    f.repeats.min(1_000)
}

/// Runs `first` on another thread and `second` on this one, both from a barrier.
pub(super) async fn meet<A, B>(
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
        let listed = f.work().list(ORG, &filter, &page).await.unwrap();
        marked.extend(
            listed
                .items
                .iter()
                .map(|row| (row.id, row.claim_token.expect("a token"))),
        );
        let Some(next) = listed.next else {
            return marked;
        };
        let goes_on = page.before.is_none_or(|before| next < before);
        assert!(goes_on, "a page shows what an earlier one showed");
        page.before = Some(next);
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

pub async fn producers_of_one_id_make_one_item(f: &Fixture) {
    let handles = [f.stores.work.clone(), f.second_handle().await.work];
    let new = item();
    let mut producers = JoinSet::new();
    for at in 0..20_usize {
        let (store, new) = (handles[at % 2].clone(), new.clone());
        producers.spawn(async move { insist(|| store.enqueue(ORG, vec![new.clone()])).await });
    }
    let fates: Vec<_> = producers.join_all().await.into_iter().flatten().collect();
    let row = f.row(new.id).await;
    let inserted = fates
        .iter()
        .filter(|fate| **fate == Enqueued::Inserted(row.clone()))
        .count();
    let exists = fates
        .iter()
        .filter(|fate| **fate == Enqueued::IdExists(row.clone()))
        .count();
    assert_eq!((inserted, exists), (1, 19));
}

/// A claim whose answer is late is asked for again while the first asking is still under way.
pub async fn one_token_asked_for_twice_at_once_claims_once(f: &Fixture) {
    let other = f.second_handle().await.work;
    for _ in 0..rounds(f) / 5 {
        f.work()
            .enqueue(ORG, (0..4).map(|_| item()).collect())
            .await
            .unwrap();
        let request = request_of(2);
        let (mut a, mut b) = meet(
            claim(other.clone(), request.clone()),
            claim(f.stores.work.clone(), request.clone()),
        )
        .await;
        a.sort_by_key(|c| c.item.id);
        b.sort_by_key(|c| c.item.id);
        assert_eq!(a, b, "both answers are the same items");
        assert_eq!(a.len(), 2);
        for held in a.iter().chain(&f.claim(&request_of(10)).await) {
            let _ = f.settle(hold(&held.item), complete()).await;
        }
    }
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
