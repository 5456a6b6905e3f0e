//! Items in a transaction of sqlx.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::{Client, Work};
use leasehold_core::{
    Hints, IdempotencyKey, JsonObject, Lane, NewItem, OrgId, StoreError, WorkStore as _,
};
use leasehold_postgres::{Fate, Options, Placed, PostgresStore};
use leasehold_sqlx::{enqueue_in, enqueue_in_unhinted, send_hint};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::cluster;

/// Far more than a server takes for anything asked of it here.
const PATIENCE: Duration = Duration::from_secs(20);

const ORG: OrgId = OrgId::SINGLE;

#[derive(Serialize, Deserialize)]
struct Invoice {
    id: i64,
}

impl Work for Invoice {
    const KIND: &'static str = "SEND_INVOICE";
    const LANE: &'static str = "mail";
}

/// A schema of its own, a store on it that listens, and an application with a table beside it.
struct Ground {
    store: Arc<PostgresStore>,
    client: Client,
    schema: String,
    application: PgConnection,
    hints: Box<dyn Hints>,
}

impl Ground {
    /// `None` where there is no server, which another test tells.
    async fn new() -> Option<Self> {
        let address = &cluster::shared().ok()?.address;
        let schema = format!("sqlx{}", uuid::Uuid::new_v4().simple());
        let options = Options::default().with_schema(&schema);
        let store = leasehold_postgres::connect(address, options).await.unwrap();
        let mut hints = store.subscribe(&[Lane::parse(Invoice::LANE).unwrap()]);
        // The false one that says that the store listens.
        hinted(&mut hints).await;
        let mut application = PgConnection::connect(address).await.unwrap();
        run(&mut application, "create temp table invoices (id bigint)").await;
        Some(Self {
            client: Client::single_tenant(store.stores()).unwrap(),
            store,
            schema,
            application,
            hints,
        })
    }

    fn invoice(&self, id: i64) -> NewItem {
        let invoice = self.client.enqueue(&Invoice { id });
        invoice
            .key_text(&format!("invoice-{id}"))
            .into_item()
            .unwrap()
    }

    /// A server that somebody gave is left as it was.
    async fn leave(mut self) {
        if !cluster::shared().is_ok_and(|shared| shared.is_given) {
            return;
        }
        let text = format!("drop schema {} cascade", self.schema);
        run(&mut self.application, &text).await;
    }
}

async fn run(application: &mut PgConnection, text: &str) {
    let text = sqlx::raw_sql(AssertSqlSafe(text));
    text.execute(application).await.unwrap();
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

#[tokio::test]
async fn a_commit_leaves_the_item_and_hints() {
    let Some(mut ground) = Ground::new().await else {
        return;
    };
    let producer = ground.store.producer();
    let new = ground.invoice(7);
    let mut transaction = ground.application.begin().await.unwrap();
    run(&mut transaction, "insert into invoices values (7)").await;
    let batch = [new.clone()];
    let placed = enqueue_in(&producer, &mut transaction, ORG, &batch)
        .await
        .unwrap();
    let (id, fate) = (new.id, Fate::Inserted);
    assert_eq!(placed, [Placed { id, fate }]);
    assert!(is_silent(&mut ground.hints), "not before the commit");
    transaction.commit().await.unwrap();

    hinted(&mut ground.hints).await;
    let stored = ground.store.get(ORG, id).await.unwrap().unwrap();
    assert_eq!(stored.payload.as_str(), r#"{"id":7}"#);
    let key = IdempotencyKey::from_text("invoice-7");
    assert_eq!(stored.idempotency_key, key);

    let again = [ground.invoice(7), new];
    let placed = enqueue_in(&producer, &mut ground.application, ORG, &again).await;
    let exist = [Fate::KeyExists, Fate::IdExists].map(|fate| Placed { id, fate });
    assert_eq!(placed.unwrap(), exist);
    ground.leave().await;
}

#[tokio::test]
async fn a_rollback_leaves_nothing() {
    let Some(mut ground) = Ground::new().await else {
        return;
    };
    let producer = ground.store.producer();
    let batch = [ground.invoice(7)];
    let mut transaction = ground.application.begin().await.unwrap();
    enqueue_in(&producer, &mut transaction, ORG, &batch)
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(ground.store.get(ORG, batch[0].id).await.unwrap(), None);
    ground.leave().await;
}

#[tokio::test]
async fn a_hint_that_is_owed_is_given_when_it_is_sent() {
    let Some(mut ground) = Ground::new().await else {
        return;
    };
    let producer = ground.store.producer();
    let batch = [ground.invoice(7)];
    let mut transaction = ground.application.begin().await.unwrap();
    let (_, hint) = enqueue_in_unhinted(&producer, &mut transaction, ORG, &batch)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    let mut other = ground.store.subscribe(&[Lane::default()]);
    let aside = [NewItem {
        lane: Lane::default(),
        ..ground.invoice(8)
    }];
    // A hint that comes later, so that one before it would have come.
    enqueue_in(&producer, &mut ground.application, ORG, &aside)
        .await
        .unwrap();
    hinted(&mut other).await;
    assert!(is_silent(&mut ground.hints));
    send_hint(&mut ground.application, hint).await.unwrap();
    hinted(&mut ground.hints).await;
    ground.leave().await;
}

#[tokio::test]
async fn a_refusal_says_which_item_and_why() {
    let Some(mut ground) = Ground::new().await else {
        return;
    };
    let producer = ground.store.producer();
    let bad = NewItem {
        max_attempts: 0,
        payload: JsonObject::empty(),
        ..ground.invoice(8)
    };
    let batch = [ground.invoice(7), bad];
    let refused = enqueue_in(&producer, &mut ground.application, ORG, &batch).await;
    assert!(
        matches!(&refused, Err(StoreError::Refused(text))
            if text.starts_with("item 1 of the batch (from 0): max_attempts is 0")),
        "{refused:?}"
    );
    ground.leave().await;
}
