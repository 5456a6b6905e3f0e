//! Several stores on one file, as several processes would have.

use std::time::Duration;

use leasehold_core::{Lane, WorkStore};

use crate::harness::{ORG, OneFile, insert, item, request};

/// Far more than a hint across processes takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_item_of_one_store_is_claimed_by_the_other_once() {
    let OneFile { store, folder } = OneFile::new();
    let other = folder.open();
    insert(&store, &folder.clock).await;
    assert_eq!(other.claim(&request(10)).await.unwrap().len(), 1);
    assert_eq!(store.claim(&request(10)).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_write_of_the_other_store_hints() {
    let OneFile { store, folder } = OneFile::new();
    let other = folder.open();
    let mut hints = store.subscribe(&[Lane::default()]);
    insert(&other, &folder.clock).await;
    tokio::time::timeout(PATIENCE, hints.next())
        .await
        .expect("no hint came");
}

#[tokio::test]
async fn a_write_of_the_store_itself_hints_nobody_elses_lane() {
    let OneFile { store, folder } = OneFile::new();
    let mut mine = store.subscribe(&[Lane::default()]);
    let mut others = store.subscribe(&[Lane::parse("other").unwrap()]);
    insert(&store, &folder.clock).await;
    mine.next().await;
    // Three looks at what other processes wrote, none of which may take our own write for theirs.
    let looks = Duration::from_millis(350);
    tokio::time::timeout(looks, others.next())
        .await
        .expect_err("a false hint came");
}

#[tokio::test]
async fn many_writers_in_two_stores_meet_no_error() {
    let OneFile { store, folder } = OneFile::new();
    let other = folder.open();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200 {
        let store = if number % 2 == 0 {
            store.clone()
        } else {
            other.clone()
        };
        let new = item(&folder.clock);
        calls.spawn(async move { store.enqueue(ORG, vec![new]).await });
    }
    while let Some(answer) = calls.join_next().await {
        answer.unwrap().unwrap();
    }
    assert_eq!(store.claim(&request(1_000)).await.unwrap().len(), 200);
}
