//! Batches that meet themselves or each other.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::work::{Enqueued, Filter, Page};
use leasehold_core::time::ManualClock;
use leasehold_core::{
    IdempotencyKey, ItemId, JsonObject, Kind, MemoryStore, NewItem, OrgId, WorkStore,
};
use uuid::Uuid;

use crate::harness::{OneSchema, PATIENCE, lone};

/// Between two looks whether the batches wait.
const LOOK_EVERY: Duration = Duration::from_millis(5);

const ORG: OrgId = OrgId::new(Uuid::from_u128(1));
const OTHER: OrgId = OrgId::new(Uuid::from_u128(2));

fn item(id: u128, key: u128) -> NewItem {
    let kind = Kind::parse("MEET").unwrap();
    NewItem {
        id: ItemId::new(Uuid::from_u128(id)),
        idempotency_key: IdempotencyKey::new(Uuid::from_u128(key)),
        ..NewItem::new(kind, JsonObject::empty(), Timestamp::UNIX_EPOCH)
    }
}

/// Somebody holds key 3, so that both batches come to a halt there. If they went by id, each would by then
/// have a key that the other still needs.
#[tokio::test]
async fn batches_with_the_same_keys_in_opposite_orders_do_not_block_each_other() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let outsider = &schema.outsider;
    let holding = format!(
        "begin;
         insert into {}.items (id, org_id, created_at, created_by, kind, target_id, idempotency_key,
             request_id, lane, priority, max_attempts, payload)
         select gen_random_uuid(), '{ORG}', now(), '{nil}', 'MEET', '{nil}', '{key}',
             '{nil}', 'default', 0, 3, '{{}}'",
        schema.schema,
        nil = Uuid::nil(),
        key = Uuid::from_u128(3),
    );
    outsider.batch_execute(&holding).await.unwrap();

    let enqueue = |batch: [NewItem; 3]| {
        let store = schema.store.clone();
        tokio::spawn(async move { store.enqueue(ORG, batch.to_vec()).await })
    };
    let one = enqueue([item(1, 1), item(2, 3), item(3, 2)]);
    let two = enqueue([item(4, 2), item(5, 3), item(6, 1)]);
    until_two_wait(&schema).await;
    outsider.batch_execute("rollback").await.unwrap();

    let fates = [one.await.unwrap().unwrap(), two.await.unwrap().unwrap()];
    let inserted = |fates: &[Enqueued]| {
        let inserted = fates.iter().filter(|f| matches!(f, Enqueued::Inserted(_)));
        inserted.count()
    };
    let mut counts = fates.map(|fates| inserted(&fates));
    counts.sort_unstable();
    assert_eq!(counts, [0, 3], "one batch was first with every key");
}

/// Returns once two statements on the schema wait for somebody's lock.
async fn until_two_wait(schema: &OneSchema) {
    // Within a transaction every look would show what the first one saw.
    let onlooker = lone(schema.address()).await;
    let waiting = "select count(*) from pg_stat_activity
         where wait_event_type = 'Lock' and strpos(query, $1) > 0";
    let looks = async {
        loop {
            let row = onlooker.query_one(waiting, &[&schema.schema]).await;
            if row.unwrap().get::<_, i64>(0) == 2 {
                return;
            }
            // A server tells nobody that one of its sessions has begun to wait.
            tokio::time::sleep(LOOK_EVERY).await; // real time: the server's
        }
    };
    tokio::time::timeout(PATIENCE, looks)
        .await
        .expect("the batches do not wait");
}

/// Ids and keys from so few that most batches name some twice, and meet what earlier ones wrote.
#[tokio::test]
async fn a_batch_is_answered_as_if_its_items_came_one_by_one() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let memory = MemoryStore::new(Arc::new(ManualClock::default()));
    // A seed, and the multiplier of a generator that is as good as this needs.
    let mut state = 42_u64;
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
            .map(|at| NewItem {
                payload: JsonObject::parse(&format!(r#"{{"round":{round},"at":{at}}}"#)).unwrap(),
                ..item(next(names), next(names))
            })
            .collect();
        let fates = schema.store.enqueue(org, batch.clone()).await.unwrap();
        let expected = memory.enqueue(org, batch.clone()).await.unwrap();
        let tell = |fates: &[Enqueued]| fates.iter().map(told).collect::<Vec<_>>();
        assert_eq!(tell(&fates), tell(&expected), "round {round}: {batch:?}");
    }
    for org in [ORG, OTHER] {
        let stored = stored(&*schema.store, org).await;
        assert_eq!(stored, self::stored(&memory, org).await);
    }
}

/// What became of an item, and which one was stored.
fn told(fate: &Enqueued) -> (&'static str, Option<(ItemId, JsonObject)>) {
    let stored = |item: &leasehold_core::WorkItem| Some((item.id, item.payload.clone()));
    match fate {
        Enqueued::Inserted(item) => ("inserted", stored(item)),
        Enqueued::IdExists(item) => ("id exists", stored(item)),
        Enqueued::KeyExists(item) => ("key exists", stored(item)),
        Enqueued::IdTaken => ("id taken", None),
    }
}

async fn stored(store: &dyn WorkStore, org: OrgId) -> Vec<(ItemId, IdempotencyKey, JsonObject)> {
    let page = Page {
        before: None,
        limit: 1_000,
    };
    let listed = store.list(org, &Filter::default(), &page).await.unwrap();
    let items = listed.items.into_iter();
    items
        .map(|item| (item.id, item.idempotency_key, item.payload))
        .collect()
}
