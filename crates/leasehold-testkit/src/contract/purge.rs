//! The purge: the only hard delete, bounded, and never of what is still owed.

use leasehold_core::{Due, NewItem, Status};

use super::fixture::Fixture;
use super::samples::{
    DAY, HOUR, LEASE, OPERATOR, ORG, OTHER, bury, complete, hold, id, item, numbered, request_of,
    retry, settlement,
};

async fn purge(f: &Fixture, limit: u32) -> u32 {
    f.work().purge(DAY, limit).await.unwrap()
}

pub async fn finished_items_go_after_retention_in_every_org(f: &Fixture) {
    let ours = f.held(item()).await;
    let _ = f.settle(hold(&ours), complete()).await;
    let theirs = f.insert_in(OTHER, item()).await;
    let claimed = f.claim(&request_of(1)).await.remove(0);
    let held = super::samples::hold_in(OTHER, &claimed.item);
    let _ = f
        .work()
        .settle(&[settlement(held, complete())])
        .await
        .unwrap();
    f.advance(DAY / 2).await;
    assert_eq!(purge(f, 10).await, 0, "retention is not over");
    f.advance(DAY).await;
    assert_eq!(purge(f, 10).await, 2);
    assert_eq!(f.work().get(ORG, ours.id).await.unwrap(), None);
    assert_eq!(f.work().get(OTHER, theirs.id).await.unwrap(), None);
    assert_eq!(purge(f, 10).await, 0);
}

pub async fn queued_and_claimed_items_stay_however_old(f: &Fixture) {
    let claimed = f.held(item()).await;
    let retried = f.held(item()).await;
    let _ = f.settle(hold(&retried), retry(HOUR)).await;
    let queued = f.insert(item()).await;
    let delayed = f
        .insert(NewItem {
            due: Due::After(365 * DAY),
            ..item()
        })
        .await;
    f.advance(30 * DAY).await;
    assert_eq!(purge(f, 10).await, 0);
    for row in [claimed, retried, queued, delayed] {
        f.row(row.id).await;
    }
}

pub async fn retention_counts_from_the_last_write(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE / 2).await;
    let old = f.held(item()).await;
    let _ = f.settle(hold(&old), complete()).await;
    f.advance(LEASE / 4).await;
    assert_eq!(
        f.renew(hold(&held)).await,
        leasehold_core::store::work::Renewed::Kept
    );
    let _ = f.settle(hold(&held), bury()).await;
    f.work()
        .mark_audited(ORG, &[(held.id, held.claim_seq)])
        .await
        .unwrap();
    f.advance(2 * DAY).await;
    f.work().retry(ORG, held.id, OPERATOR).await.unwrap();
    let again = f.claim_again(&held).await;
    let _ = f.settle(hold(&again), complete()).await;
    assert_eq!(purge(f, 10).await, 1, "the other one was written just now");
    assert_eq!(f.row(held.id).await.status, Status::Done);
    assert_eq!(f.work().get(ORG, old.id).await.unwrap(), None);
}

pub async fn a_dead_letter_stays_until_its_audit_entry_is_written(f: &Fixture) {
    let dead = f.held(item()).await;
    let _ = f.settle(hold(&dead), bury()).await;
    f.advance(30 * DAY).await;
    assert_eq!(purge(f, 10).await, 0);
    f.work()
        .mark_audited(ORG, &[(dead.id, dead.claim_seq)])
        .await
        .unwrap();
    f.advance(2 * DAY).await;
    assert_eq!(purge(f, 10).await, 1);
    assert_eq!(f.work().get(ORG, dead.id).await.unwrap(), None);
}

pub async fn cancelled_and_orphaned_items_go_after_retention(f: &Fixture) {
    let cancelled = f.insert(item()).await;
    f.work().cancel(ORG, cancelled.id, OPERATOR).await.unwrap();
    let orphan = f.held(item()).await;
    f.work()
        .fail_orphaned(orphan.id, hold(&orphan).token)
        .await
        .unwrap();
    f.advance(2 * DAY).await;
    assert_eq!(purge(f, 10).await, 2);
}

pub async fn a_purge_deletes_no_more_than_its_limit(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    for held in f.claim_many(5).await {
        let _ = f.settle(hold(&held), complete()).await;
    }
    f.advance(2 * DAY).await;
    for (limit, deleted) in [(2, 2), (0, 0), (2, 2), (2, 1), (2, 0)] {
        assert_eq!(purge(f, limit).await, deleted);
    }
    assert_eq!(f.work().get(ORG, id(5)).await.unwrap(), None);
}
