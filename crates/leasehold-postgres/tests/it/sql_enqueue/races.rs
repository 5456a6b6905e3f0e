//! Producers that bring the same key at once, at either isolation level.

use std::time::Duration;

use leasehold_core::{IdempotencyKey, OrgId, WorkStore as _};
use tokio::task::JoinHandle;
use tokio_postgres::Client as Session;
use uuid::Uuid;

use super::code;
use crate::harness::{OneSchema, PATIENCE, lone};

/// Between two looks whether a producer waits.
const LOOK_EVERY: Duration = Duration::from_millis(5);

const LEVELS: [&str; 2] = ["read committed", "repeatable read"];

/// One producer's transaction, which has enqueued and is open.
async fn begin(
    session: &Session,
    schema: &str,
    level: &str,
    key: &str,
) -> Result<(Uuid, String), tokio_postgres::Error> {
    // The first statement takes the snapshot that a repeatable read keeps.
    let begin = format!("begin isolation level {level}; select 1");
    session.batch_execute(&begin).await.unwrap();
    let text = format!("select id, fate from {schema}.enqueue('MEET', '{{}}', key_text => $1)");
    let row = session.query_one(&text, &[&key]).await?;
    Ok((row.get(0), row.get(1)))
}

/// A second producer of the key, which waits for the first.
async fn waiting(
    on: &OneSchema,
    level: &'static str,
    key: &'static str,
) -> JoinHandle<(Session, Result<(Uuid, String), tokio_postgres::Error>)> {
    let session = lone(on.address()).await;
    let schema = on.schema.clone();
    let process = session
        .query_one("select pg_backend_pid()", &[])
        .await
        .unwrap();
    let process: i32 = process.get(0);
    let producer = tokio::spawn(async move {
        let answer = begin(&session, &schema, level, key).await;
        (session, answer)
    });
    let looks = async {
        let text = "select wait_event_type = 'Lock' from pg_stat_activity where pid = $1";
        loop {
            let row = on.outsider.query_one(text, &[&process]).await.unwrap();
            if row.get::<_, Option<bool>>(0) == Some(true) {
                return;
            }
            // A server tells nobody that one of its sessions has begun to wait.
            tokio::time::sleep(LOOK_EVERY).await; // real time: the server's
        }
    };
    tokio::time::timeout(PATIENCE, looks)
        .await
        .expect("the second producer does not wait");
    producer
}

async fn holder(schema: &OneSchema, key: &str) -> Option<Uuid> {
    let key = IdempotencyKey::from_text(key);
    let item = schema.store.get_by_key(OrgId::SINGLE, key).await.unwrap();
    item.map(|item| item.id.as_uuid())
}

#[tokio::test]
async fn a_key_whose_first_producer_rolls_back_is_the_seconds() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    for (level, key) in LEVELS.into_iter().zip(["one", "two"]) {
        let first = lone(schema.address()).await;
        begin(&first, &schema.schema, level, key).await.unwrap();
        let second = waiting(&schema, level, key).await;
        first.batch_execute("rollback").await.unwrap();
        let (session, answer) = second.await.unwrap();
        let (id, fate) = answer.unwrap();
        assert_eq!(fate, "inserted", "{level}");
        session.batch_execute("commit").await.unwrap();
        assert_eq!(holder(&schema, key).await, Some(id), "{level}");
    }
}

#[tokio::test]
async fn a_key_whose_first_producer_commits_is_found_or_asks_for_a_retry() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    for (level, key) in LEVELS.into_iter().zip(["one", "two"]) {
        let first = lone(schema.address()).await;
        let (id, _) = begin(&first, &schema.schema, level, key).await.unwrap();
        let second = waiting(&schema, level, key).await;
        first.batch_execute("commit").await.unwrap();
        let (_, answer) = second.await.unwrap();
        if level == "read committed" {
            assert_eq!(answer.unwrap(), (id, "key_exists".to_owned()));
        } else {
            assert_eq!(code(&answer.unwrap_err()), "40001");
        }
        assert_eq!(holder(&schema, key).await, Some(id), "{level}");
    }
}

/// Half of them roll back. Each that commits was told the truth.
#[tokio::test]
async fn of_many_producers_of_a_key_one_inserts_and_all_are_told_the_truth() {
    const PRODUCERS: usize = 50;
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    for (level, key) in LEVELS.into_iter().zip(["one", "two"]) {
        let mut producers = Vec::new();
        for at in 0..PRODUCERS {
            let session = lone(schema.address()).await;
            let schema = schema.schema.clone();
            producers.push(tokio::spawn(async move {
                let answer = begin(&session, &schema, level, key).await;
                let commits = at % 2 == 0 && answer.is_ok();
                let end = if commits { "commit" } else { "rollback" };
                session.batch_execute(end).await.unwrap();
                (commits, answer)
            }));
        }
        let mut told = Vec::new();
        let mut inserted = 0;
        for producer in producers {
            match producer.await.unwrap() {
                (true, Ok((id, fate))) => {
                    inserted += usize::from(fate == "inserted");
                    told.push(id);
                }
                (false, Ok(_)) => {}
                (_, Err(error)) => assert_eq!((code(&error), level), ("40001", "repeatable read")),
            }
        }
        let stored = holder(&schema, key).await;
        assert_eq!(inserted, 1, "{level}");
        assert!(
            told.iter().all(|id| Some(*id) == stored),
            "{level}: {told:?}"
        );
    }
}
