//! Hints between stores, as between processes: NOTIFY after the commit, LISTEN, and what becomes of both
//! when the connection breaks.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{Hints, JsonObject, Kind, Lane, NewItem, OrgId, WorkStore as _};
use leasehold_postgres::{PostgresStore, Wakeup};

use crate::harness::{OneSchema, PATIENCE};
use crate::proxy::Proxy;

/// How long a store waits for an answer where a test lets it wait in vain.
const SHORT: Duration = Duration::from_millis(300);

/// Between two looks at the server's sessions.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn lane(name: &str) -> Lane {
    Lane::parse(name).unwrap()
}

fn subscribe(store: &PostgresStore, name: &str) -> Box<dyn Hints> {
    store.subscribe(&[lane(name)])
}

async fn insert(store: &PostgresStore, name: &str) {
    let now = store.now().await.unwrap();
    let item = NewItem {
        lane: lane(name),
        ..NewItem::new(Kind::parse("NOOP").unwrap(), JsonObject::empty(), now)
    };
    store.enqueue(OrgId::SINGLE, vec![item]).await.unwrap();
}

async fn assert_hinted(hints: &mut Box<dyn Hints>) {
    tokio::time::timeout(PATIENCE, hints.next())
        .await
        .expect("no hint came");
}

fn assert_silent(hints: &mut Box<dyn Hints>) {
    let next = pin!(hints.next());
    let answer = next.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(answer, Poll::Pending, "there was no reason for a hint");
}

/// A schema whose store listens, and another store on it.
async fn pair() -> Option<(OneSchema, Arc<PostgresStore>)> {
    let schema = OneSchema::new().await?;
    schema.listens().await;
    let other = schema.connect().await;
    Some((schema, other))
}

/// Waits until the stores that were connected under the schema's name have so many sessions.
async fn until_sessions(schema: &OneSchema, count: i64) {
    let text = "select count(*) from pg_stat_activity where application_name like $1 || '%'";
    let looks = async {
        loop {
            let row = schema.outsider.query_one(text, &[&schema.schema]).await;
            if row.unwrap().get::<_, i64>(0) == count {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await; // real time: the server's sessions end by it
        }
    };
    let reached = tokio::time::timeout(PATIENCE, looks).await;
    reached.expect("another number of sessions");
}

/// Cuts the connections that listen; there must be one.
async fn cut_listener(schema: &OneSchema) {
    let text = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1";
    let name = format!("{} listener", schema.schema);
    let cut = schema.outsider.query(text, &[&name]).await.unwrap();
    assert_eq!(cut.len(), 1, "one connection listens");
}

#[tokio::test]
async fn a_commit_of_another_store_hints_its_lane() {
    let Some((schema, other)) = pair().await else {
        return;
    };
    let mut mail = subscribe(&schema.store, "mail");
    let mut print = subscribe(&schema.store, "print");
    insert(&other, "mail").await;
    assert_hinted(&mut mail).await;
    assert_silent(&mut print);
}

#[tokio::test]
async fn a_store_does_not_take_its_own_notice_for_another_hint() {
    let Some((schema, other)) = pair().await else {
        return;
    };
    let mut mine = subscribe(&schema.store, "mine");
    let mut theirs = subscribe(&schema.store, "theirs");
    insert(&schema.store, "mine").await;
    assert_hinted(&mut mine).await;
    schema.store.hints_sent().await;
    // Notices come in the order of their commits, so this one comes after our own.
    insert(&other, "theirs").await;
    assert_hinted(&mut theirs).await;
    assert_silent(&mut mine);
}

#[tokio::test]
async fn a_notice_of_anybody_is_a_hint() {
    let Some((schema, _)) = pair().await else {
        return;
    };
    let mut mail = subscribe(&schema.store, "mail");
    let mut print = subscribe(&schema.store, "print");
    let notify = format!("notify leasehold_{}", schema.schema);
    schema
        .outsider
        .batch_execute(&format!("{notify}, 'mail'"))
        .await
        .unwrap();
    assert_hinted(&mut mail).await;
    assert_silent(&mut print);
    // One that names no lane may mean any.
    schema.outsider.batch_execute(&notify).await.unwrap();
    assert_hinted(&mut mail).await;
    assert_hinted(&mut print).await;
}

#[tokio::test]
async fn a_store_that_polls_tells_and_does_not_listen() {
    let Some((schema, _)) = pair().await else {
        return;
    };
    let polling = schema.options().with_wakeup(Wakeup::Poll);
    let polling = schema.connect_with(polling).await;
    let mut theirs = subscribe(&schema.store, "default");
    let mut its = subscribe(&polling, "default");
    insert(&polling, "default").await;
    assert_hinted(&mut theirs).await;
    assert_hinted(&mut its).await;

    let text = "select count(*) from pg_stat_activity where application_name = $1";
    let name = format!("{} listener", schema.schema);
    let listening = schema.outsider.query_one(text, &[&name]).await.unwrap();
    assert_eq!(
        listening.get::<_, i64>(0),
        1,
        "only the other store listens"
    );
}

#[tokio::test]
async fn a_connection_that_was_cut_is_made_again() {
    let Some((schema, other)) = pair().await else {
        return;
    };
    let mut hints = subscribe(&schema.store, "default");
    cut_listener(&schema).await;
    // What came meanwhile is not known, so everybody is hinted.
    assert_hinted(&mut hints).await;
    insert(&other, "default").await;
    assert_hinted(&mut hints).await;
}

#[tokio::test]
async fn a_server_that_is_away_is_listened_to_when_it_is_back() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let proxy = Proxy::to(schema.address());
    let options = schema.options();
    let away = leasehold_postgres::connect(proxy.address(), options).await;
    let away = away.unwrap();
    let mut hints = subscribe(&away, "default");
    assert_hinted(&mut hints).await;

    proxy.refuse();
    cut_listener(&schema).await;
    proxy.refused(3).await;
    assert_silent(&mut hints);
    proxy.admit();
    assert_hinted(&mut hints).await;
    insert(&schema.store, "default").await;
    assert_hinted(&mut hints).await;
}

#[tokio::test]
async fn what_could_not_be_told_is_told_by_the_next_connection() {
    let Some((schema, _)) = pair().await else {
        return;
    };
    let proxy = Proxy::to(schema.address());
    let options = schema.options().with_patience(SHORT);
    let silent = leasehold_postgres::connect(proxy.address(), options).await;
    let silent = silent.unwrap();
    let mut its = subscribe(&silent, "default");
    assert_hinted(&mut its).await;

    proxy.silence_listeners();
    let mut theirs = subscribe(&schema.store, "default");
    insert(&silent, "default").await;
    assert_hinted(&mut its).await;
    assert_hinted(&mut theirs).await;
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_found_without_anything_to_tell() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let proxy = Proxy::to(schema.address());
    let options = schema.options().with_patience(SHORT);
    let silent = leasehold_postgres::connect(proxy.address(), options).await;
    let silent = silent.unwrap();
    let mut hints = subscribe(&silent, "default");
    assert_hinted(&mut hints).await;

    proxy.silence_listeners();
    assert_hinted(&mut hints).await;
    insert(&schema.store, "default").await;
    assert_hinted(&mut hints).await;
}

#[tokio::test]
async fn dropping_the_store_ends_its_connections() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let other = schema.connect().await;
    until_sessions(&schema, 2).await;
    let mut hints = subscribe(&other, "default");
    assert_hinted(&mut hints).await;
    until_sessions(&schema, 3).await;
    drop(other);
    until_sessions(&schema, 1).await;
}

#[tokio::test]
async fn dropping_the_store_while_the_server_is_away_leaves_nothing_running() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let proxy = Proxy::to(schema.address());
    let alive = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = alive();
    let store = leasehold_postgres::connect(proxy.address(), schema.options()).await;
    let store = store.unwrap();
    let mut hints = subscribe(&store, "default");
    assert_hinted(&mut hints).await;

    proxy.refuse();
    cut_listener(&schema).await;
    proxy.refused(2).await;
    drop(store);
    let ended = async {
        while alive() > before {
            tokio::time::sleep(LOOK_EVERY).await; // real time: connections are closed by it
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    ended.expect("a task is left");
}

#[tokio::test]
async fn what_is_to_be_told_is_told_although_the_store_is_dropped() {
    let Some((schema, other)) = pair().await else {
        return;
    };
    let mut hints = subscribe(&schema.store, "default");
    insert(&other, "default").await;
    drop(other);
    assert_hinted(&mut hints).await;
}
