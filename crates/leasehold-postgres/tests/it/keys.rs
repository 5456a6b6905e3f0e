//! ORDER-2: one key, asked for by transactions of which some roll back.

use std::sync::Arc;

use leasehold_core::store::work::Enqueued;
use leasehold_core::{IdempotencyKey, NewItem, OrgId, StoreError, WorkStore as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::contract::samples::{ORG, id, item};
use tokio::sync::Barrier;
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::faults::{until_waiting, with_parameter};
use crate::harness::{OneSchema, lone};

/// What a transaction sees, as an address asks for it.
const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

const KEY: IdempotencyKey = IdempotencyKey::new(Uuid::from_u128(7));

/// An item of that number under the key that all want.
fn of_key(number: u128) -> NewItem {
    NewItem {
        id: id(number),
        idempotency_key: KEY,
        ..item()
    }
}

/// A store whose transactions are of that level.
async fn store(on: &OneSchema, level: &str) -> Arc<PostgresStore> {
    let setting = format!(
        "-c default_transaction_isolation={}",
        level.replace(' ', "\\ ")
    );
    let address = with_parameter(on.address(), "options", &setting);
    let options = on.options().with_connections(16);
    let store = leasehold_postgres::connect(&address, options).await;
    store.unwrap()
}

/// Enqueues in a transaction that stays open.
async fn begin(on: &OneSchema, number: u128) -> Client {
    let open = lone(on.address()).await;
    let text = format!(
        "begin;
         insert into {schema}.items (id, org_id, created_at, created_by, kind, target_id,
             idempotency_key, request_id, lane, priority, max_attempts, payload)
         values ('{id}', '{ORG}', now(), '{nil}', 'NOTE', '{nil}', '{KEY}', '{nil}', 'default', 0, 3,
             '{{}}')
         on conflict do nothing;
         insert into {schema}.ready (id, org_id, lane, kind, priority, available_at, updated_at,
             updated_by, attempts, worker_losses, claim_seq)
         select id, org_id, lane, kind, priority, created_at, created_at, created_by, 0, 0, 0
         from {schema}.items where id = '{id}'",
        schema = on.schema,
        id = id(number),
        nil = Uuid::nil(),
    );
    open.batch_execute(&text).await.unwrap();
    open
}

/// Asks until the answer is none that says to ask again.
async fn enqueue(store: &PostgresStore, number: u128) -> Enqueued {
    loop {
        match store.enqueue(ORG, vec![of_key(number)]).await {
            Ok(fates) => return fates.into_iter().next().unwrap(),
            Err(StoreError::Retry(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Enqueues beside an open transaction that has the key, and waits for it.
async fn enqueue_behind(on: &OneSchema, level: &str, number: u128) -> JoinHandle<Enqueued> {
    let store = store(on, level).await;
    let waiting = tokio::spawn(async move { enqueue(&store, number).await });
    until_waiting(on, 1).await;
    waiting
}

/// The id of the one item that has the key, and where it stands.
async fn the_one(on: &OneSchema) -> Uuid {
    let text = format!(
        "select id from {}.work_items where idempotency_key = $1 and status = 'queued'",
        on.schema
    );
    let rows = on.outsider.query(&text, &[&KEY.as_uuid()]).await.unwrap();
    assert_eq!(rows.len(), 1, "the key has another number of items");
    rows[0].get(0)
}

#[tokio::test]
async fn a_key_whose_transaction_rolls_back_goes_to_who_waits() {
    for level in LEVELS {
        let Some(on) = OneSchema::new().await else {
            return;
        };
        let first = begin(&on, 1).await;
        let second = enqueue_behind(&on, level, 2).await;
        first.batch_execute("rollback").await.unwrap();
        let fate = second.await.unwrap();
        assert!(matches!(fate, Enqueued::Inserted(_)), "{level}: {fate:?}");
        assert_eq!(the_one(&on).await, id(2).as_uuid(), "{level}");
    }
}

#[tokio::test]
async fn a_key_whose_transaction_commits_is_there_for_who_waits() {
    for level in LEVELS {
        let Some(on) = OneSchema::new().await else {
            return;
        };
        let first = begin(&on, 1).await;
        let second = enqueue_behind(&on, level, 2).await;
        first.batch_execute("commit").await.unwrap();
        match second.await.unwrap() {
            Enqueued::KeyExists(stored) => assert_eq!(stored.id, id(1), "{level}"),
            fate => panic!("{level}: {fate:?}"),
        }
        assert_eq!(the_one(&on).await, id(1).as_uuid(), "{level}");
    }
}

/// A hundred producers of one key, of which every second rolls back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_producers_of_which_half_roll_back_one_makes_the_item() {
    const PRODUCERS: u128 = 100;
    for level in LEVELS {
        let Some(on) = OneSchema::new().await else {
            return;
        };
        let on = Arc::new(on);
        let store = store(&on, level).await;
        let together = Arc::new(Barrier::new(usize::try_from(PRODUCERS).unwrap()));
        let mut producers = JoinSet::new();
        for number in 1..=PRODUCERS {
            let (on, store, together) = (on.clone(), store.clone(), together.clone());
            producers.spawn(async move {
                together.wait().await;
                if number.is_multiple_of(2) {
                    let open = begin(&on, number).await;
                    open.batch_execute("rollback").await.unwrap();
                    return None;
                }
                Some((number, enqueue(&store, number).await))
            });
        }
        let told: Vec<_> = producers.join_all().await.into_iter().flatten().collect();
        let one = the_one(&on).await;
        let mut inserted = 0;
        for (number, fate) in told {
            match fate {
                Enqueued::Inserted(_) => {
                    assert_eq!(
                        id(number).as_uuid(),
                        one,
                        "{level}: a success without a row"
                    );
                    inserted += 1;
                }
                Enqueued::KeyExists(stored) => assert_eq!(stored.id.as_uuid(), one, "{level}"),
                fate => panic!("{level}: {fate:?}"),
            }
        }
        assert_eq!(inserted, 1, "{level}");
    }
}

/// The org of the samples has the key; another may have it too.
#[tokio::test]
async fn a_key_of_an_open_transaction_holds_up_no_other_org() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let _open = begin(&on, 1).await;
    let other = OrgId::new(Uuid::from_u128(99));
    let enqueue = on.store.enqueue(other, vec![of_key(2)]);
    let fates = tokio::time::timeout(crate::harness::PATIENCE, enqueue).await;
    let fates = fates.expect("it waits for another org's transaction");
    assert!(matches!(fates.unwrap()[..], [Enqueued::Inserted(_)]));
}
