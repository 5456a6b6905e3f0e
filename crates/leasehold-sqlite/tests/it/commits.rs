//! The writer: many calls in one commit, none of which takes another along, renewals first.
//!
//! Somebody else holds the file's lock while the calls gather, so that what waits is known.

use std::future::Future;

use leasehold_core::rules::hand_back;
use leasehold_core::store::ScheduleStore;
use leasehold_core::store::schedules::{Missed, Overlap, PutSchedule, ScheduleDefinition};
use leasehold_core::store::work::{Ended, Renewal, Renewed, Settled, Settlement};
use leasehold_core::{Hold, JsonObject, Lane, ScheduleId, StoreError, WorkStore};
use std::time::Duration;
use uuid::Uuid;

use crate::harness::{ORG, OneFile, insert, item, noop, request};

/// Runs the calls while the lock is held, so that all wait before the first is applied.
async fn gathered<T>(file: &OneFile, calls: impl Future<Output = T>) -> T {
    let outsider = file.folder.outsider();
    outsider.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = async {
        // Joined last, so it is polled after every call has been put into its queue.
        outsider.execute_batch("COMMIT").unwrap();
    };
    tokio::join!(biased; calls, release).0
}

fn schedule(name: &str) -> PutSchedule {
    PutSchedule {
        id: ScheduleId::new(Uuid::now_v7()),
        definition: ScheduleDefinition {
            name: name.to_owned(),
            kind: noop(),
            lane: Lane::default(),
            payload: JsonObject::empty(),
            priority: 0,
            max_attempts: 1,
            expression: "@daily".to_owned(),
            zone: "UTC".to_owned(),
            starts_at: None,
            ends_at: None,
            missed: Missed::Once,
            overlap: Overlap::Allow,
            jitter: Duration::ZERO,
        },
        declared_by: None,
        next_tick: None,
    }
}

#[tokio::test]
async fn calls_that_wait_together_share_a_commit() {
    const CALLS: usize = 200;
    let file = OneFile::new();
    let calls = async {
        let calls = (0..CALLS).map(|_| insert(&file.store, &file.folder.clock));
        futures_util::future::join_all(calls).await;
    };
    gathered(&file, calls).await;
    let stats = file.store.stats();
    assert_eq!(stats.operations, CALLS as u64);
    assert!(stats.commits <= 2, "{stats:?}");
}

#[tokio::test]
async fn a_call_that_fails_takes_no_other_along() {
    let file = OneFile::new();
    let store = &file.store;
    store.put_schedule(ORG, &schedule("taken")).await.unwrap();
    let before = store.stats().commits;
    let (again, third) = (schedule("taken"), schedule("free"));
    let calls = async {
        tokio::join!(
            biased;
            insert(store, &file.folder.clock),
            store.put_schedule(ORG, &again),
            store.put_schedule(ORG, &third),
            insert(store, &file.folder.clock),
        )
    };
    let ((), refused, accepted, ()) = gathered(&file, calls).await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    accepted.unwrap();
    assert_eq!(store.stats().commits, before + 1);
    assert_eq!(store.claim(&request(10)).await.unwrap().len(), 2);
    assert_eq!(store.schedules(ORG, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_first_call_that_fails_takes_no_other_along() {
    let file = OneFile::new();
    let store = &file.store;
    store.put_schedule(ORG, &schedule("taken")).await.unwrap();
    let again = schedule("taken");
    let calls = async {
        tokio::join!(biased; store.put_schedule(ORG, &again), insert(store, &file.folder.clock))
    };
    let (refused, ()) = gathered(&file, calls).await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(store.claim(&request(10)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_renewal_goes_ahead_of_what_waited_before_it() {
    let file = OneFile::new();
    let store = &file.store;
    insert(store, &file.folder.clock).await;
    let claimed = store.claim(&request(1)).await.unwrap().remove(0);
    let hold = Hold {
        org_id: claimed.org_id,
        item_id: claimed.item.id,
        token: claimed.item.claim_token.unwrap(),
    };
    let release = [Settlement {
        hold,
        transition: hand_back("stopping"),
    }];
    let renewal = [Renewal {
        hold,
        lease: Duration::from_mins(1),
        progress: None,
    }];
    let calls = async { tokio::join!(biased; store.settle(&release), store.renew(&renewal)) };
    let (settled, renewed) = gathered(&file, calls).await;
    assert_eq!(
        renewed.unwrap(),
        [Renewed::Kept],
        "after the release it would be lost"
    );
    assert_eq!(settled.unwrap(), [Settled::Settled(Ended::Queued)]);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_waits_harms_nobody() {
    let file = OneFile::new();
    let store = &file.store;
    let calls = async {
        tokio::select! {
            biased;
            _ = store.enqueue(ORG, vec![item(&file.folder.clock)]) => {}
            () = std::future::ready(()) => {}
        }
        insert(store, &file.folder.clock).await;
    };
    gathered(&file, calls).await;
    assert_eq!(
        store.claim(&request(10)).await.unwrap().len(),
        1,
        "nobody waited for the other"
    );
}

#[tokio::test]
async fn an_empty_claim_commits_nothing() {
    let file = OneFile::new();
    assert_eq!(file.store.claim(&request(10)).await.unwrap(), []);
    assert_eq!(file.store.stats().commits, 0);
}
