//! What maintenance finds out and writes down: orgs to visit, owed audit entries, orphans.

use leasehold_core::store::work::{Ended, Settled};
use leasehold_core::{ClaimToken, FailureCode, ItemId, NewItem, OrgId, Status, UserId, WorkItem};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{
    DAY, HOUR, LEASE, OPERATOR, ORG, OTHER, bury, complete, hold, hold_in, id, ids, item,
    last_attempt, numbered, request, request_of, settlement,
};

/// Enqueues, claims and buries plain items of [`ORG`] under the numbers given.
async fn dead_letters(f: &Fixture, numbers: &[u128]) -> Vec<WorkItem> {
    let mut dead = Vec::new();
    for number in numbers {
        let held = f.held(numbered(*number)).await;
        assert_eq!(
            f.settle(hold(&held), bury()).await,
            Settled::Settled(Ended::DeadLetter)
        );
        dead.push(f.row(held.id).await);
    }
    dead
}

async fn unaudited(f: &Fixture) -> Vec<ItemId> {
    ids(&f.work().unaudited(ORG, 100).await.unwrap())
}

pub async fn dead_letters_are_owed_an_audit_entry_lowest_id_first(f: &Fixture) {
    let dead = dead_letters(f, &[3, 1, 2]).await;
    let owed = f.work().unaudited(ORG, 2).await.unwrap();
    assert_eq!(owed, [dead[1].clone(), dead[2].clone()]);
    assert_eq!(unaudited(f).await, [id(1), id(2), id(3)]);
    assert_eq!(f.work().unaudited(ORG, 0).await.unwrap(), []);
}

pub async fn a_marked_dead_letter_is_owed_nothing(f: &Fixture) {
    let dead = dead_letters(f, &[1, 2]).await;
    f.advance(HOUR).await;
    let mark = [(id(1), dead[0].claim_seq)];
    let (_, moment) = f.timed(f.work().mark_audited(ORG, &mark)).await;
    moment.assert_is(f.row(id(1)).await.audited_at.expect("a mark"));
    assert_eq!(unaudited(f).await, [id(2)]);
    f.work().mark_audited(ORG, &mark).await.unwrap();
    f.work().mark_audited(ORG, &[]).await.unwrap();
    assert_eq!(unaudited(f).await, [id(2)]);
}

pub async fn several_dead_letters_are_marked_at_once(f: &Fixture) {
    let dead = dead_letters(f, &[1, 2, 3]).await;
    let marks = [
        (id(3), dead[2].claim_seq),
        (id(9), 1),
        (id(1), dead[0].claim_seq),
    ];
    f.work().mark_audited(ORG, &marks).await.unwrap();
    assert_eq!(unaudited(f).await, [id(2)]);
}

pub async fn a_mark_for_another_claim_is_not_taken(f: &Fixture) {
    let dead = dead_letters(f, &[1]).await;
    for claim_seq in [dead[0].claim_seq - 1, dead[0].claim_seq + 1] {
        f.work()
            .mark_audited(ORG, &[(id(1), claim_seq)])
            .await
            .unwrap();
        assert_eq!(f.row(id(1)).await, dead[0]);
    }
}

pub async fn a_mark_that_comes_after_a_retry_is_not_taken(f: &Fixture) {
    let first = dead_letters(f, &[1]).await.remove(0);
    f.work().retry(ORG, id(1), OPERATOR).await.unwrap();
    f.work()
        .mark_audited(ORG, &[(id(1), first.claim_seq)])
        .await
        .unwrap();
    assert_eq!(
        f.row(id(1)).await.audited_at,
        None,
        "a queued item was marked"
    );
    let held = f.claim_again(&first).await;
    let _ = f.settle(hold(&held), bury()).await;
    f.work()
        .mark_audited(ORG, &[(id(1), first.claim_seq)])
        .await
        .unwrap();
    assert_eq!(
        unaudited(f).await,
        [id(1)],
        "the second death is owed an entry of its own"
    );
}

pub async fn what_is_not_failed_is_not_marked(f: &Fixture) {
    let queued = f.insert(item()).await;
    let held = f.claim_again(&queued).await;
    f.work()
        .mark_audited(ORG, &[(held.id, held.claim_seq)])
        .await
        .unwrap();
    assert_eq!(f.row(held.id).await, held);
}

pub async fn cancelled_and_orphaned_items_are_owed_nothing(f: &Fixture) {
    let queued = f.insert(item()).await;
    f.work().cancel(ORG, queued.id, OPERATOR).await.unwrap();
    let held = f.held(item()).await;
    assert!(
        f.work()
            .fail_orphaned(held.id, hold(&held).token)
            .await
            .unwrap()
    );
    assert_eq!(unaudited(f).await, []);
    assert_eq!(f.work().maintenance_due(None, 10).await.unwrap(), []);
}

pub async fn orgs_with_something_due_are_named_once_in_order(f: &Fixture) {
    let org = |number| OrgId::new(Uuid::from_u128(number));
    for number in [5, 3, 9, 7] {
        for _ in 0..2 {
            f.insert_in(org(number), item()).await;
        }
    }
    let claimed = f.claim(&request_of(8)).await;
    assert_eq!(
        f.work().maintenance_due(None, 10).await.unwrap(),
        [],
        "nothing is due yet"
    );
    // Org 3 has dead letters, 5 and 9 expired claims, and 7 has finished.
    for c in &claimed {
        let ending = match c.org_id {
            of if of == org(3) => bury(),
            of if of == org(7) => complete(),
            _ => continue,
        };
        let held = hold_in(c.org_id, &c.item);
        let _ = f.work().settle(&[settlement(held, ending)]).await.unwrap();
    }
    assert_eq!(f.work().maintenance_due(None, 10).await.unwrap(), [org(3)]);
    f.advance(LEASE).await;
    f.insert_in(org(1), item()).await;
    let due = |after, limit| f.work().maintenance_due(after, limit);
    assert_eq!(due(None, 10).await.unwrap(), [org(3), org(5), org(9)]);
    assert_eq!(due(None, 2).await.unwrap(), [org(3), org(5)]);
    assert_eq!(due(Some(org(5)), 10).await.unwrap(), [org(9)]);
    assert_eq!(due(Some(org(4)), 1).await.unwrap(), [org(5)]);
    assert_eq!(due(Some(org(9)), 10).await.unwrap(), []);
}

pub async fn an_org_is_not_named_once_its_maintenance_was_done(f: &Fixture) {
    f.held(last_attempt()).await;
    f.advance(LEASE).await;
    assert_eq!(f.work().maintenance_due(None, 10).await.unwrap(), [ORG]);
    let dead = f.sweep().await.dead.remove(0);
    assert_eq!(
        f.work().maintenance_due(None, 10).await.unwrap(),
        [ORG],
        "an entry is owed"
    );
    f.work()
        .mark_audited(ORG, &[(dead.id, dead.claim_seq)])
        .await
        .unwrap();
    assert_eq!(f.work().maintenance_due(None, 10).await.unwrap(), []);
}

pub async fn a_claimed_item_whose_org_is_gone_is_failed_as_an_orphan(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE + HOUR).await;
    assert!(
        f.work()
            .fail_orphaned(held.id, hold(&held).token)
            .await
            .unwrap()
    );
    let after = f.row(held.id).await;
    assert_eq!(after.status, Status::Failed);
    assert_eq!(
        after.failure_code,
        Some(FailureCode::own(FailureCode::ORPHANED))
    );
    assert_eq!((after.claimed_by.clone(), after.claim_token), (None, None));
    assert_eq!(
        (after.lease_expires_at, after.updated_by),
        (None, UserId::NIL)
    );
    assert!(!after.is_dead_letter());
    assert!(
        !f.work()
            .fail_orphaned(held.id, hold(&held).token)
            .await
            .unwrap()
    );
    assert_eq!(f.row(held.id).await, after, "repeating it changes nothing");
}

pub async fn only_the_token_that_holds_an_item_may_fail_it_as_an_orphan(f: &Fixture) {
    let first = f.held(item()).await;
    f.advance(LEASE).await;
    f.sweep().await;
    let queued = f.row(first.id).await;
    assert!(
        !f.work()
            .fail_orphaned(first.id, hold(&first).token)
            .await
            .unwrap()
    );
    assert_eq!(f.row(first.id).await, queued);
    let second = f.claim_again(&first).await;
    for token in [hold(&first).token, ClaimToken::mint()] {
        assert!(!f.work().fail_orphaned(first.id, token).await.unwrap());
    }
    assert!(
        !f.work()
            .fail_orphaned(id(1), hold(&second).token)
            .await
            .unwrap()
    );
    assert_eq!(f.row(first.id).await, second);
}

pub async fn expired_claims_of_an_org_that_is_gone_are_failed_as_orphans(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=3).map(numbered).collect())
        .await
        .unwrap();
    f.insert_in(
        OTHER,
        NewItem {
            max_attempts: 1,
            ..numbered(4)
        },
    )
    .await;
    f.claim(&request_of(4)).await;
    f.insert(numbered(5)).await;
    f.advance(LEASE).await;
    f.claim_one(&request()).await;
    assert_eq!(f.work().orphan_stale(ORG, 2).await.unwrap(), 2);
    assert_eq!(f.work().orphan_stale(ORG, 2).await.unwrap(), 1);
    assert_eq!(f.work().orphan_stale(ORG, 2).await.unwrap(), 0);
    for number in 1..=3 {
        let row = f.row(id(number)).await;
        assert_eq!(row.status, Status::Failed);
        assert_eq!(
            row.failure_code,
            Some(FailureCode::own(FailureCode::ORPHANED))
        );
        assert_eq!((row.claim_token, row.lease_expires_at), (None, None));
    }
    assert_eq!(
        f.row_in(OTHER, id(4)).await.status,
        Status::Claimed,
        "another org's"
    );
    assert_eq!(
        f.row(id(5)).await.status,
        Status::Claimed,
        "its lease is live"
    );
    assert_eq!(unaudited(f).await, []);
}

pub async fn orphans_do_not_outlast_retention(f: &Fixture) {
    let held = f.held(item()).await;
    f.advance(LEASE).await;
    assert_eq!(f.work().orphan_stale(ORG, 10).await.unwrap(), 1);
    f.advance(2 * DAY).await;
    assert_eq!(f.work().purge(DAY, 10).await.unwrap(), 1);
    assert_eq!(f.work().get(ORG, held.id).await.unwrap(), None);
}
