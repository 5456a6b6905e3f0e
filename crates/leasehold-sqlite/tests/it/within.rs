//! Enqueueing inside a transaction of the application's own.

use std::time::Duration;

use leasehold_core::store::OutboxStore;
use leasehold_core::store::outbox::{NewOutboxRow, PendingRequest};
use leasehold_core::store::work::Enqueued;
use leasehold_core::{JsonObject, Lane, RequestId, StoreError, TargetId, UserId, WorkStore};
use leasehold_sqlite::rusqlite::{Connection, TransactionBehavior};
use uuid::Uuid;

use crate::harness::{ORG, OneFile, item, request};

/// The application's own connection, and a table of its own.
fn application(file: &OneFile) -> Connection {
    let db = file.folder.outsider();
    db.execute_batch("CREATE TABLE invoices (id INTEGER PRIMARY KEY)")
        .unwrap();
    db
}

#[tokio::test]
async fn an_item_is_there_with_the_applications_row() {
    let file = OneFile::new();
    let mut db = application(&file);
    let mut hints = file.store.subscribe(&[Lane::default()]);
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    transaction
        .execute("INSERT INTO invoices VALUES (7)", ())
        .unwrap();
    let new = item(&file.folder.clock);
    let fates = file
        .store
        .enqueue_within(&transaction, ORG, vec![new.clone(), new])
        .unwrap();
    assert!(
        matches!(fates[..], [Enqueued::Inserted(_), Enqueued::IdExists(_)]),
        "{fates:?}"
    );
    assert_eq!(
        file.store.gauges().await.unwrap().lanes,
        [],
        "not before the commit"
    );

    transaction.commit().unwrap();
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, hints.next())
        .await
        .expect("no hint came");
    assert_eq!(file.store.claim(&request(10)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_item_goes_with_the_applications_row() {
    let file = OneFile::new();
    let mut db = application(&file);
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let fates = file
        .store
        .enqueue_within(&transaction, ORG, vec![item(&file.folder.clock)]);
    assert_eq!(fates.unwrap().len(), 1);
    transaction.rollback().unwrap();
    assert_eq!(file.store.claim(&request(10)).await.unwrap(), []);
}

#[tokio::test]
async fn an_outbox_row_is_there_with_the_applications_row() {
    let file = OneFile::new();
    let mut db = application(&file);
    let transaction = db
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    let row = NewOutboxRow {
        id: Uuid::now_v7(),
        kind: "work.noop".to_owned(),
        target_id: TargetId::NIL,
        payload: JsonObject::empty(),
        actor_id: UserId::NIL,
        request_id: RequestId::NIL,
        traceparent: None,
        app: "app@1".to_owned(),
    };
    let new = file
        .store
        .append_outbox_within(&transaction, ORG, std::slice::from_ref(&row));
    assert_eq!(new.unwrap(), 1);
    transaction.commit().unwrap();
    let pending = PendingRequest {
        limit: 10,
        grace: Duration::ZERO,
        base: Duration::from_secs(30),
        cap: Duration::from_mins(15),
    };
    assert_eq!(
        file.store.claim_pending(&pending).await.unwrap()[0].row,
        row
    );
}

#[test]
fn a_transaction_on_another_file_is_refused_and_left_as_it_was() {
    let file = OneFile::new();
    let mut db = Connection::open_in_memory().unwrap();
    let transaction = db.transaction().unwrap();
    transaction
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    let refused = file
        .store
        .enqueue_within(&transaction, ORG, vec![item(&file.folder.clock)]);
    assert!(
        matches!(&refused, Err(StoreError::Failed(text)) if text.contains("work_items")),
        "{refused:?}"
    );
    transaction
        .execute_batch("INSERT INTO theirs VALUES (1)")
        .unwrap();
    transaction.commit().unwrap();
}
