//! Enqueueing from Rust inside a transaction of the application's own.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::{Client, Work};
use leasehold_core::store::StoreError;
use leasehold_core::store::work::Enqueued;
use leasehold_core::time::ManualClock;
use leasehold_core::{
    Due, Hints, IdempotencyKey, ItemId, JsonObject, Kind, Lane, MemoryStore, NewItem, OrgId,
    WorkStore as _,
};
use leasehold_postgres::{Fate, Options, Placed, Producer};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::harness::{OneSchema, PATIENCE, lone};

const ORG: OrgId = OrgId::SINGLE;
const OTHER: OrgId = OrgId::new(Uuid::from_u128(2));

fn item() -> NewItem {
    NewItem::new(
        Kind::parse("SEND").unwrap(),
        JsonObject::empty(),
        Timestamp::UNIX_EPOCH,
    )
}

fn on_lane(name: &str) -> NewItem {
    NewItem {
        lane: Lane::parse(name).unwrap(),
        ..item()
    }
}

async fn hinted(hints: &mut Box<dyn Hints>) {
    tokio::time::timeout(PATIENCE, hints.next())
        .await
        .expect("no hint came");
}

fn is_silent(hints: &mut Box<dyn Hints>) -> bool {
    let next = pin!(hints.next());
    next.poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

#[derive(Serialize, Deserialize)]
struct Invoice {
    id: i64,
}

impl Work for Invoice {
    const KIND: &'static str = "SEND_INVOICE";
    const LANE: &'static str = "mail";
    const MAX_ATTEMPTS: u32 = 7;
}

/// A login that may execute the function and do anything with a table of its own.
async fn application(schema: &OneSchema) -> tokio_postgres::Client {
    let (name, application) = (&schema.schema, lone(schema.address()).await);
    let text = format!(
        "create role {name}_app;
         grant usage on schema {name} to {name}_app;
         grant execute on function {name}.enqueue_many to {name}_app;
         create schema {name}_own authorization {name}_app;
         set role {name}_app;
         create table {name}_own.invoices (id bigint primary key);
         set search_path = {name}_own"
    );
    application.batch_execute(&text).await.unwrap();
    application
}

async fn dismiss(schema: &OneSchema, application: tokio_postgres::Client) {
    let name = &schema.schema;
    let text = format!(
        "reset role; drop schema {name}_own cascade; drop owned by {name}_app; drop role {name}_app"
    );
    application.batch_execute(&text).await.unwrap();
}

#[tokio::test]
async fn a_commit_leaves_the_item_beside_the_applications_row_and_hints() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    schema.listens().await;
    let mut hints = schema.store.subscribe(&[Lane::parse("mail").unwrap()]);
    let client = Client::single_tenant(schema.store.stores()).unwrap();
    let producer = Producer::new(&schema.schema).unwrap();
    let mut application = application(&schema).await;

    let transaction = application.transaction().await.unwrap();
    transaction
        .batch_execute("insert into invoices values (7)")
        .await
        .unwrap();
    let invoice = client.enqueue(&Invoice { id: 7 }).key_text("invoice-7");
    let new = invoice.into_item().unwrap();
    let org = client.context().org_id();
    let placed = producer
        .enqueue_in(&transaction, org, std::slice::from_ref(&new))
        .await
        .unwrap();
    let (id, fate) = (new.id, Fate::Inserted);
    assert_eq!(placed, [Placed { id, fate }]);
    assert_eq!(schema.store.get(ORG, id).await.unwrap(), None);
    assert!(is_silent(&mut hints), "not before the commit");
    transaction.commit().await.unwrap();

    hinted(&mut hints).await;
    let stored = schema.store.get(ORG, id).await.unwrap().unwrap();
    assert_eq!(stored.payload.as_str(), r#"{"id":7}"#);
    assert_eq!(stored.max_attempts, 7);
    assert_eq!(stored.request_id, new.request_id);
    assert_eq!(
        stored.idempotency_key,
        IdempotencyKey::from_text("invoice-7")
    );
    dismiss(&schema, application).await;
}

#[tokio::test]
async fn a_rollback_leaves_nothing_and_hints_nobody() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    schema.listens().await;
    let mut hints = schema.store.subscribe(&[Lane::parse("mail").unwrap()]);
    let mut after = schema.store.subscribe(&[Lane::parse("after").unwrap()]);
    let producer = schema.store.producer();
    let mut application = application(&schema).await;
    let transaction = application.transaction().await.unwrap();
    let batch = [on_lane("mail")];
    producer
        .enqueue_in(&transaction, ORG, &batch)
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(schema.store.get(ORG, batch[0].id).await.unwrap(), None);

    // A hint that comes later, so that one before it would have come.
    producer
        .enqueue_in(&application, ORG, &[on_lane("after")])
        .await
        .unwrap();
    hinted(&mut after).await;
    assert!(is_silent(&mut hints));
    dismiss(&schema, application).await;
}

#[tokio::test]
async fn a_hint_that_is_owed_is_given_when_it_is_sent() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    schema.listens().await;
    let other = schema.connect().await;
    let mut hints = schema.store.subscribe(&[Lane::parse("mail").unwrap()]);
    let mut after = schema.store.subscribe(&[Lane::parse("after").unwrap()]);
    let producer = schema.store.producer();
    let mut session = lone(schema.address()).await;
    let transaction = session.transaction().await.unwrap();
    let (placed, hint) = producer
        .enqueue_in_unhinted(&transaction, ORG, &[on_lane("mail")])
        .await
        .unwrap();
    assert_eq!(placed[0].fate, Fate::Inserted);
    transaction.commit().await.unwrap();
    producer
        .enqueue_in(&session, ORG, &[on_lane("after")])
        .await
        .unwrap();
    hinted(&mut after).await;
    assert!(is_silent(&mut hints));
    hint.clone().send(&session).await.unwrap();
    hinted(&mut hints).await;
    // Through a store, which tells this store as another process would be told.
    other.send_hint(hint);
    hinted(&mut hints).await;

    let (_, nothing) = producer
        .enqueue_in_unhinted(&session, ORG, &[])
        .await
        .unwrap();
    assert_eq!(nothing.lanes(), Vec::<&str>::new());
    nothing.send(&session).await.unwrap();
}

/// A row that the store writes and one that a producer writes, of every way to be due.
#[tokio::test]
async fn a_row_is_as_the_store_writes_it() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let dues = [
        Due::Now,
        Due::After(Duration::from_micros(1_500_001)),
        Due::After(Duration::MAX),
        Due::At(at("2100-01-02T03:04:05.678901999Z")),
        Due::At(at("1500-01-02T03:04:05Z")),
        Due::At(Timestamp::MAX),
    ];
    for due in dues {
        let new = |id| NewItem {
            due,
            id: ItemId::new(Uuid::from_u128(id)),
            created_by: Uuid::from_u128(3).into(),
            target_id: Uuid::from_u128(4).into(),
            request_id: Uuid::from_u128(5).into(),
            traceparent: Some("a \"quoted\"\nheader".to_owned()),
            priority: -7,
            max_attempts: 9,
            payload: JsonObject::parse(r#"{ "big":123456789012345678901234567890,"e":"\u00e9" }"#)
                .unwrap(),
            ..on_lane("a/b")
        };
        let mut by_store = new(Uuid::new_v4().as_u128());
        let mut by_producer = new(Uuid::new_v4().as_u128());
        // Rules of the client, which the function keeps and the store leaves to it.
        by_store.traceparent =
            Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
        by_producer.traceparent.clone_from(&by_store.traceparent);
        by_store.created_at = at("2024-02-29T12:00:00.123456789Z");
        by_producer.created_at = by_store.created_at;
        let (store, producer) = (&schema.store, schema.store.producer());
        store.enqueue(ORG, vec![by_store.clone()]).await.unwrap();
        let batch = [by_producer.clone()];
        producer
            .enqueue_in(&schema.outsider, ORG, &batch)
            .await
            .unwrap();
        let mut one = store.get(ORG, by_store.id).await.unwrap().unwrap();
        let other = store.get(ORG, by_producer.id).await.unwrap().unwrap();
        let wait =
            |item: &leasehold_core::WorkItem| item.available_at.duration_since(item.updated_at);
        match due {
            Due::Now | Due::After(_) if one.available_at < leasehold_core::time::CALENDAR_END => {
                assert_eq!(wait(&one), wait(&other), "{due:?}");
                one.available_at = other.available_at;
            }
            _ => {}
        }
        one.updated_at = other.updated_at;
        one.id = other.id;
        one.idempotency_key = other.idempotency_key;
        assert_eq!(one, other, "{due:?}");
        assert_eq!(other.idempotency_key, by_producer.idempotency_key);
    }
}

/// Ids and keys from so few that most batches name some twice, and meet what earlier ones wrote.
#[tokio::test]
async fn a_batch_is_answered_as_if_its_items_came_one_by_one() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let memory = MemoryStore::new(Arc::new(ManualClock::default()));
    let producer = schema.store.producer();
    // A seed, and the multiplier of a generator that is as good as this needs.
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u128::from((state >> 33) % below)
    };
    for round in 0..100 {
        let org = if next(2) == 0 { ORG } else { OTHER };
        let names = 6 + round;
        let batch: Vec<NewItem> = (0..=next(8))
            .map(|_| NewItem {
                id: ItemId::new(Uuid::from_u128(next(names))),
                idempotency_key: IdempotencyKey::new(Uuid::from_u128(next(names))),
                ..item()
            })
            .collect();
        let placed = producer
            .enqueue_in(&schema.outsider, org, &batch)
            .await
            .unwrap();
        let expected: Vec<Placed> = memory
            .enqueue(org, batch.clone())
            .await
            .unwrap()
            .iter()
            .zip(&batch)
            .map(|(fate, new)| expected(fate, new))
            .collect();
        assert_eq!(placed, expected, "round {round}: {batch:?}");
    }
}

fn expected(fate: &Enqueued, new: &NewItem) -> Placed {
    let (id, fate) = match fate {
        Enqueued::Inserted(item) => (item.id, Fate::Inserted),
        Enqueued::IdExists(item) => (item.id, Fate::IdExists),
        Enqueued::KeyExists(item) => (item.id, Fate::KeyExists),
        Enqueued::IdTaken => (new.id, Fate::IdTaken),
    };
    Placed { id, fate }
}

/// More than one call takes, by rows and by bytes; all in one transaction.
#[tokio::test]
async fn a_large_batch_is_enqueued_whole() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let producer = schema.store.producer();
    let many: Vec<NewItem> = (0..2_001).map(|_| item()).collect();
    let placed = producer.enqueue_in(&schema.outsider, ORG, &many).await;
    let placed = placed.unwrap();
    assert!(
        placed
            .iter()
            .map(|placed| placed.id)
            .eq(many.iter().map(|new| new.id))
    );
    let text = format!("{{\"a\":\"{}\"}}", "x".repeat(JsonObject::BYTES_MAX - 8));
    let payload = JsonObject::parse(&text).unwrap();
    let large: Vec<NewItem> = (0..20)
        .map(|_| NewItem {
            payload: payload.clone(),
            ..item()
        })
        .collect();
    let placed = producer.enqueue_in(&schema.outsider, ORG, &large).await;
    assert!(
        placed
            .unwrap()
            .iter()
            .all(|placed| placed.fate == Fate::Inserted)
    );
}

#[tokio::test]
async fn an_item_that_breaks_a_rule_is_refused_and_a_savepoint_saves_the_rest() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let producer = schema.store.producer();
    let mut session = lone(schema.address()).await;
    let mut transaction = session.transaction().await.unwrap();
    let none = NewItem {
        max_attempts: 0,
        ..item()
    };
    let zero = NewItem {
        traceparent: Some("a\0b".to_owned()),
        ..item()
    };
    for (bad, words) in [(none, "max_attempts is 0"), (zero, "the zero character")] {
        let savepoint = transaction.savepoint("before").await.unwrap();
        let batch = [item(), bad];
        let refused = producer.enqueue_in(&savepoint, ORG, &batch).await;
        assert!(
            matches!(&refused, Err(StoreError::Refused(text))
                if text.contains(words) && text.starts_with("item 1 of the batch (from 0): ")),
            "{refused:?}"
        );
        savepoint.rollback().await.unwrap();
    }
    let batch = [item()];
    producer
        .enqueue_in(&transaction, ORG, &batch)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    assert!(schema.store.get(ORG, batch[0].id).await.unwrap().is_some());
}

#[tokio::test]
async fn what_keeps_a_producer_from_enqueueing_is_told() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let nowhere = Producer::new("not_there").unwrap();
    let answer = nowhere.enqueue_in(&schema.outsider, ORG, &[item()]).await;
    assert!(matches!(&answer, Err(StoreError::Schema(_))), "{answer:?}");
    assert!(Producer::new("Not a name").is_err());
    assert!(Producer::new(Options::SCHEMA).is_ok());

    let name = &schema.schema;
    let session = lone(schema.address()).await;
    let role = format!(
        "create role {name}_none; grant usage on schema {name} to {name}_none; set role {name}_none"
    );
    session.batch_execute(&role).await.unwrap();
    let answer = schema
        .store
        .producer()
        .enqueue_in(&session, ORG, &[item()])
        .await;
    assert!(
        matches!(&answer, Err(StoreError::Failed(text)) if text.contains("permission denied for function enqueue_many")),
        "{answer:?}"
    );
    let away = format!("reset role; drop owned by {name}_none; drop role {name}_none");
    session.batch_execute(&away).await.unwrap();
}
