//! Maintenance beside other transactions: it takes what is free and never waits for the rest.

use std::time::Duration;

use leasehold_core::item::ERRORS_MAX;
use leasehold_core::store::OutboxStore as _;
use leasehold_core::store::outbox::{NewOutboxRow, PendingRequest};
use leasehold_core::store::work::StaleRequest;
use leasehold_core::{NewItem, RequestId, ShortText, TargetId, WorkStore as _};
use leasehold_testkit::Harness as _;
use leasehold_testkit::contract::samples::{
    DAY, LEASE, ORG, USER, complete, hold, id, item, json, numbered, request_of, settlement,
    sweep_of,
};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::harness::{OneSchema, PATIENCE, lone};

/// Begins a transaction that holds a row until the client is dropped.
async fn hold_row(on: &OneSchema, table: &str, row: Uuid) -> Client {
    let holder = lone(on.address()).await;
    holder.batch_execute("begin").await.unwrap();
    let text = format!("select from {}.{table} where id = $1 for update", on.schema);
    let held = holder.execute(&text, &[&row]).await.unwrap();
    assert_eq!(held, 1, "there is no such row");
    holder
}

async fn release(holder: Client) {
    holder.batch_execute("rollback").await.unwrap();
}

/// What the call answers, which must not wait for anybody.
async fn at_once<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, call)
        .await
        .expect("it waits for another transaction")
}

/// Enqueues and claims the items of the numbers.
async fn claim(on: &OneSchema, numbers: std::ops::RangeInclusive<u128>) {
    let batch: Vec<_> = numbers.map(numbered).collect();
    let count = u32::try_from(batch.len()).unwrap();
    on.store.enqueue(ORG, batch).await.unwrap();
    let claimed = on.store.claim(&request_of(count)).await.unwrap();
    assert_eq!(claimed.len(), count as usize);
}

#[tokio::test]
async fn a_sweep_passes_over_claims_that_another_transaction_holds() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    claim(&on, 1..=3).await;
    on.advance(LEASE).await;
    let holder = hold_row(&on, "claims", id(2).as_uuid()).await;
    let sweep = || at_once(on.store.requeue_stale(ORG, const { &sweep_of(2) }));
    assert_eq!(
        sweep().await.unwrap().recovered,
        2,
        "the limit counts what is free"
    );
    assert_eq!(sweep().await.unwrap().recovered, 0);
    release(holder).await;
    assert_eq!(sweep().await.unwrap().recovered, 1);
}

#[tokio::test]
async fn a_purge_passes_over_items_that_another_transaction_holds() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    claim(&on, 1..=3).await;
    for number in 1..=3 {
        let held = on.store.get(ORG, id(number)).await.unwrap().unwrap();
        let end = [settlement(hold(&held), complete())];
        let _ = on.store.settle(&end).await.unwrap();
    }
    on.advance(2 * DAY).await;
    let holder = hold_row(&on, "ends", id(2).as_uuid()).await;
    assert_eq!(at_once(on.store.purge(DAY, 2)).await.unwrap(), 2);
    assert_eq!(at_once(on.store.purge(DAY, 2)).await.unwrap(), 0);
    release(holder).await;
    assert_eq!(at_once(on.store.purge(DAY, 2)).await.unwrap(), 1);
}

#[tokio::test]
async fn a_purged_item_leaves_no_row_in_any_table() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let new = NewItem {
        max_attempts: 1,
        ..numbered(1)
    };
    on.store.enqueue(ORG, vec![new]).await.unwrap();
    on.store.claim(&request_of(1)).await.unwrap();
    on.advance(LEASE).await;
    let dead = on
        .store
        .requeue_stale(ORG, &sweep_of(1))
        .await
        .unwrap()
        .dead;
    let mark = [(dead[0].id, dead[0].claim_seq)];
    on.store.mark_audited(ORG, &mark).await.unwrap();
    on.advance(2 * DAY).await;
    assert_eq!(on.store.purge(DAY, 1).await.unwrap(), 1);
    for table in ["items", "ready", "claims", "tokens", "ends", "troubles"] {
        let text = format!("select count(*) from {}.{table}", on.schema);
        let left: i64 = on.outsider.query_one(&text, &[]).await.unwrap().get(0);
        assert_eq!(left, 0, "{table}");
    }
}

#[tokio::test]
async fn a_token_is_forgotten_once_it_has_long_held_nothing() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let [ended, held, young] = [request_of(1), request_of(2), request_of(1)];
    on.store
        .enqueue(ORG, (1..=4).map(numbered).collect())
        .await
        .unwrap();
    let first = on.store.claim(&ended).await.unwrap();
    let others = on.store.claim(&held).await.unwrap();
    let settled = [&first[0], &others[0]].map(|one| settlement(hold(&one.item), complete()));
    let _ = on.store.settle(&settled).await.unwrap();
    on.advance(DAY).await;
    let last = on.store.claim(&young).await.unwrap();
    let settled = [settlement(hold(&last[0].item), complete())];
    let _ = on.store.settle(&settled).await.unwrap();
    on.store.purge(2 * DAY, 1).await.unwrap();
    let text = format!("select token from {}.tokens", on.schema);
    let rows = on.outsider.query(&text, &[]).await.unwrap();
    let mut kept: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    kept.sort_unstable();
    let mut known = [&held, &young].map(|request| request.token.as_uuid());
    known.sort_unstable();
    assert_eq!(kept, known, "of three, one has long held nothing");
    let again = on.store.claim(&held).await.unwrap();
    let again: Vec<_> = again.iter().map(|claimed| claimed.item.id).collect();
    assert_eq!(again, [others[1].item.id], "it answers what it still holds");
}

#[tokio::test]
async fn a_relay_passes_over_rows_that_another_transaction_holds() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let rows: Vec<_> = (1..=3).map(outbox_row).collect();
    on.store.append_outbox(ORG, &rows).await.unwrap();
    let holder = hold_row(&on, "outbox", Uuid::from_u128(1)).await;
    let request = PendingRequest {
        limit: 2,
        grace: Duration::ZERO,
        base: LEASE,
        cap: LEASE,
    };
    let taken = async || -> Vec<u128> {
        let taken = at_once(on.store.claim_pending(&request)).await.unwrap();
        taken.iter().map(|row| row.row.id.as_u128()).collect()
    };
    assert_eq!(taken().await, [2, 3]);
    assert_eq!(taken().await, []);
    release(holder).await;
    assert_eq!(taken().await, [1]);
}

fn outbox_row(number: u128) -> NewOutboxRow {
    NewOutboxRow {
        id: Uuid::from_u128(number),
        kind: "work.note".to_owned(),
        target_id: TargetId::NIL,
        payload: json("{}"),
        actor_id: USER,
        request_id: RequestId::NIL,
        traceparent: None,
        app: "test".to_owned(),
    }
}

#[tokio::test]
async fn the_newest_errors_of_an_item_that_loses_its_workers_are_kept() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let losses = u32::try_from(ERRORS_MAX).unwrap() + 3;
    let new = NewItem {
        max_attempts: losses,
        ..item()
    };
    let row = new.id;
    on.store.enqueue(ORG, vec![new]).await.unwrap();
    for _ in 0..losses {
        assert_eq!(on.store.claim(&request_of(1)).await.unwrap().len(), 1);
        on.advance(LEASE).await;
        on.store.requeue_stale(ORG, &sweep_of(1)).await.unwrap();
    }
    let dead = on.store.get(ORG, row).await.unwrap().unwrap();
    let attempts: Vec<_> = dead.errors.iter().map(|error| error.attempt).collect();
    assert_eq!(attempts, (4..=losses).collect::<Vec<_>>());
    assert_eq!(dead.worker_losses, losses);
}

/// Retention, grace and leases as long as a length can be: nothing is due, and nothing overflows.
#[tokio::test]
async fn endless_lengths_are_cut() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    claim(&on, 1..=1).await;
    on.advance(LEASE).await;
    let endless = StaleRequest {
        limit: 1,
        spread: Duration::MAX,
    };
    assert_eq!(
        on.store
            .requeue_stale(ORG, &endless)
            .await
            .unwrap()
            .recovered,
        1
    );
    assert_eq!(on.store.purge(Duration::MAX, 1).await.unwrap(), 0);
    assert_eq!(on.store.purge_outbox(Duration::MAX, 1).await.unwrap(), 0);
    on.store.append_outbox(ORG, &[outbox_row(1)]).await.unwrap();
    let mut request = PendingRequest {
        limit: 1,
        grace: Duration::MAX,
        base: Duration::MAX,
        cap: Duration::MAX,
    };
    assert!(on.store.claim_pending(&request).await.unwrap().is_empty());
    request.grace = Duration::ZERO;
    assert_eq!(on.store.claim_pending(&request).await.unwrap().len(), 1);
    let error = ShortText::new("no such kind");
    assert!(
        on.store
            .mark_failed(Uuid::from_u128(1), &error, false)
            .await
            .unwrap()
    );
}
