//! A file that somebody else holds locked: calls wait, and never see a bare "database is locked".

use std::time::Duration;

use leasehold_core::{StoreError, WorkStore};

use crate::harness::{ORG, OneFile, insert, item, request};

const LOCK: &str = "BEGIN IMMEDIATE; UPDATE leasehold_migrations SET name = name";

#[tokio::test]
async fn a_lock_held_for_a_while_is_waited_for() {
    let OneFile { store, folder } = OneFile::new();
    let outsider = folder.outsider();
    outsider.execute_batch(LOCK).unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_millis(300)).await; // real time: SQLite's own waiting
        outsider.execute_batch("COMMIT").unwrap();
    };
    tokio::join!(insert(&store, &folder.clock), release);
    assert_eq!(store.claim(&request(10)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_lock_not_had_in_time_asks_for_a_retry_and_writes_nothing() {
    let OneFile { store, folder } =
        OneFile::opened_with(|options| options.with_busy_timeout(Duration::from_millis(50)));
    let outsider = folder.outsider();
    outsider.execute_batch(LOCK).unwrap();

    let enqueued = store.enqueue(ORG, vec![item(&folder.clock)]).await;
    assert!(
        matches!(enqueued, Err(StoreError::Retry(_))),
        "{enqueued:?}"
    );
    assert!(
        store
            .renew(&[])
            .await
            .is_err_and(|error| error.is_passing())
    );
    assert_eq!(store.stats().commits, 0);

    outsider.execute_batch("COMMIT").unwrap();
    insert(&store, &folder.clock).await;
    assert_eq!(store.claim(&request(10)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn reading_does_not_wait_for_a_lock() {
    let OneFile { store, folder } =
        OneFile::opened_with(|options| options.with_busy_timeout(Duration::from_millis(50)));
    insert(&store, &folder.clock).await;
    let outsider = folder.outsider();
    outsider.execute_batch(LOCK).unwrap();
    assert_eq!(store.gauges().await.unwrap().lanes[0].ready, 1);
}

#[tokio::test]
async fn a_reader_that_lingers_does_not_hold_up_the_writer() {
    let OneFile { store, folder } =
        OneFile::opened_with(|options| options.with_busy_timeout(Duration::from_millis(50)));
    insert(&store, &folder.clock).await;
    let outsider = folder.outsider();
    outsider
        .execute_batch("BEGIN; SELECT count(*) FROM work_items")
        .unwrap();
    insert(&store, &folder.clock).await;
    assert_eq!(store.claim(&request(10)).await.unwrap().len(), 2);
}
