//! The second fence: statements about orgs run by a login that sees the rows of those orgs alone.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::store::work::{Ended, Enqueued, Renewed, Settled};
use leasehold_core::{OrgId, StoreError, WorkStore as _};
use leasehold_postgres::{Options, PostgresStore, Wakeup};
use leasehold_testkit::contract::samples::{
    ORG, OTHER, complete, hold_in, id, numbered, renewal, request_of, settlement,
};

use crate::faults::with_parameter;
use crate::harness::{OneSchema, PATIENCE, lone};

/// Tables that have rows of orgs.
const TABLES: [&str; 5] = ["items", "ready", "claims", "ends", "troubles"];

/// A schema with two logins made by hand, each with a policy, and a store that uses both.
struct Fenced {
    on: OneSchema,
    runtime: String,
    system: String,
}

impl Fenced {
    async fn new() -> Option<Self> {
        let on = OneSchema::new().await?;
        let schema = &on.schema;
        let logins = ["runtime", "system"].map(|login| {
            let name = format!("{schema}_{login}");
            format!(
                "create role {name} login password 'word';
                 grant usage on schema {schema} to {name};
                 grant select, insert, update, delete on all tables in schema {schema} to {name};"
            )
        });
        let policies = TABLES.map(|table| {
            format!(
                "alter table {schema}.{table} enable row level security;
                 create policy of_system on {schema}.{table} to {schema}_system using (true);
                 create policy of_runtime on {schema}.{table} to {schema}_runtime
                 using (org_id = any (
                     string_to_array(current_setting('leasehold.orgs', true), ',')::uuid[]
                 ));"
            )
        });
        // The view shows what its reader may see.
        let view = format!("alter view {schema}.work_items set (security_invoker = true)");
        let text = logins.concat() + &policies.concat() + &view;
        on.outsider.batch_execute(&text).await.unwrap();
        let address_of = |login: &str| {
            let address = with_parameter(on.address(), "user", &format!("{schema}_{login}"));
            with_parameter(&address, "password", "word")
        };
        Some(Self {
            runtime: address_of("runtime"),
            system: address_of("system"),
            on,
        })
    }

    fn options(&self) -> Options {
        self.on
            .options()
            .without_migrating()
            .with_system_login(&self.system)
    }

    async fn store(&self) -> Arc<PostgresStore> {
        leasehold_postgres::connect(&self.runtime, self.options())
            .await
            .unwrap()
    }

    /// How many of the logins' sessions stand in a transaction that nobody goes on with.
    async fn left_open(&self) -> u64 {
        let text = "select from pg_stat_activity
             where starts_with(usename, $1) and state like 'idle in transaction%'";
        let outsider = &self.on.outsider;
        outsider.execute(text, &[&self.on.schema]).await.unwrap()
    }

    /// Removes the logins: a schema that is dropped leaves them behind.
    async fn end(self) {
        let schema = &self.on.schema;
        let text = format!(
            "set client_min_messages = warning;
             drop schema {schema} cascade;
             create schema {schema};
             drop role {schema}_runtime, {schema}_system"
        );
        self.on.outsider.batch_execute(&text).await.unwrap();
    }
}

#[tokio::test]
async fn the_items_of_two_orgs_live_their_lives_by_two_logins() {
    lives(Wakeup::Listen).await;
}

#[tokio::test]
async fn they_do_so_too_where_sessions_are_shared() {
    lives(Wakeup::Poll).await;
}

async fn lives(wakeup: Wakeup) {
    let Some(fenced) = Fenced::new().await else {
        return;
    };
    let options = fenced.options().with_wakeup(wakeup);
    let store = leasehold_postgres::connect(&fenced.runtime, options)
        .await
        .unwrap();
    assert!(store.is_fenced());
    assert!(!fenced.on.store.is_fenced());
    for (org, number) in [(ORG, 1), (OTHER, 2)] {
        let fates = store.enqueue(org, vec![numbered(number)]).await.unwrap();
        assert!(matches!(fates[..], [Enqueued::Inserted(_)]), "{fates:?}");
    }
    // An id of another org's, under a new key and under one that is taken.
    let mut borrowed = numbered(2);
    borrowed.idempotency_key = numbered(3).idempotency_key;
    let mut doubled = borrowed.clone();
    doubled.idempotency_key = numbered(1).idempotency_key;
    for batch in [
        vec![borrowed.clone()],
        vec![doubled],
        vec![borrowed.clone(), borrowed],
    ] {
        let fates = store.enqueue(ORG, batch).await.unwrap();
        assert!(
            fates.iter().all(|fate| *fate == Enqueued::IdTaken),
            "{fates:?}"
        );
    }
    let claimed = store.claim(&request_of(2)).await.unwrap();
    let holds: Vec<_> = claimed
        .iter()
        .map(|claimed| hold_in(claimed.org_id, &claimed.item))
        .collect();
    assert_eq!(holds.len(), 2);
    let renewals: Vec<_> = holds.iter().map(|hold| renewal(*hold)).collect();
    assert_eq!(store.renew(&renewals).await.unwrap(), [Renewed::Kept; 2]);
    let settlements: Vec<_> = holds
        .iter()
        .map(|hold| settlement(*hold, complete()))
        .collect();
    assert_eq!(
        store.settle(&settlements).await.unwrap(),
        [Settled::Settled(Ended::Done); 2]
    );
    assert_eq!(
        store.settle(&settlements).await.unwrap(),
        [Settled::AlreadySettled; 2]
    );
    fenced.end().await;
}

/// What a statement sees that forgot its tenant predicate.
#[tokio::test]
async fn a_runtime_session_sees_the_orgs_that_are_set_and_a_system_session_all() {
    let Some(fenced) = Fenced::new().await else {
        return;
    };
    let store = fenced.store().await;
    for (org, number) in [(ORG, 1), (OTHER, 2)] {
        store.enqueue(org, vec![numbered(number)]).await.unwrap();
    }
    let text = format!("select from {}.items", fenced.on.schema);
    let seen = async |address: &str, orgs: &[OrgId]| {
        let mut client = lone(address).await;
        let transaction = client.transaction().await.unwrap();
        let ids: Vec<String> = orgs.iter().map(ToString::to_string).collect();
        let setting = "select set_config('leasehold.orgs', $1, true)";
        transaction.query(setting, &[&ids.join(",")]).await.unwrap();
        transaction.execute(&text, &[]).await.unwrap()
    };
    assert_eq!(seen(&fenced.runtime, &[]).await, 0);
    assert_eq!(seen(&fenced.runtime, &[ORG]).await, 1);
    assert_eq!(seen(&fenced.runtime, &[ORG, OTHER]).await, 2);
    assert_eq!(seen(&fenced.system, &[]).await, 2);
    fenced.end().await;
}

/// It is done or not, and nothing of it stays.
#[tokio::test]
async fn a_call_that_is_dropped_at_its_first_step_leaves_nothing_open() {
    let Some(fenced) = Fenced::new().await else {
        return;
    };
    let store = fenced.store().await;
    // So that there is a connection that knows the statement.
    store.enqueue(ORG, vec![numbered(1)]).await.unwrap();
    let mut call = store.enqueue(ORG, vec![numbered(2)]);
    let step = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(step, Poll::Pending), "{step:?}");
    drop(call);
    // One that is under way has the item's id to itself until it has ended.
    let again = store.enqueue(ORG, vec![numbered(2)]).await.unwrap();
    let is_there = matches!(again[..], [Enqueued::Inserted(_) | Enqueued::IdExists(_)]);
    assert!(is_there, "{again:?}");
    assert!(store.get(ORG, id(2)).await.unwrap().is_some());
    let looks = async { while fenced.left_open().await > 0 {} };
    tokio::time::timeout(PATIENCE, looks)
        .await
        .expect("a transaction stays open");
    fenced.end().await;
}

#[tokio::test]
async fn a_statement_that_fails_says_why_and_its_connection_goes_on() {
    let Some(fenced) = Fenced::new().await else {
        return;
    };
    let options = fenced.options().with_connections(2);
    let address = with_parameter(&fenced.runtime, "options", "-c lock_timeout=50ms");
    let store = leasehold_postgres::connect(&address, options)
        .await
        .unwrap();
    store.enqueue(ORG, vec![numbered(1)]).await.unwrap();
    let claimed = store.claim(&request_of(1)).await.unwrap();
    let done = [settlement(hold_in(ORG, &claimed[0].item), complete())];
    let holder = lone(fenced.on.address()).await;
    let text = format!("begin; select from {}.claims for update", fenced.on.schema);
    holder.batch_execute(&text).await.unwrap();
    for _ in 0..3 {
        let error = store.settle(&done).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Retry(text) if text.contains("lock timeout")),
            "{error:?}"
        );
    }
    assert_eq!(fenced.left_open().await, 0);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(
        store.settle(&done).await.unwrap(),
        [Settled::Settled(Ended::Done)]
    );
    fenced.end().await;
}

#[tokio::test]
async fn neither_address_is_shown() {
    let Some(fenced) = Fenced::new().await else {
        return;
    };
    let options = fenced.options().with_patience(Duration::from_secs(1));
    let stranger = with_parameter(&fenced.system, "user", "nobody_of_this_name");
    let shown = [
        format!("{:?}", fenced.store().await),
        format!("{options:?}"),
        leasehold_postgres::connect(&fenced.runtime, options.clone().with_system_login(stranger))
            .await
            .unwrap_err()
            .to_string(),
        leasehold_postgres::connect(
            &fenced.runtime,
            options.with_system_login("postgres://who:word@[::where/what"),
        )
        .await
        .unwrap_err()
        .to_string(),
    ];
    for text in &shown {
        assert!(!text.contains("word"), "{text}");
    }
    assert!(shown[2].contains("by the system login"), "{}", shown[2]);
    assert!(shown[3].contains("by the system login"), "{}", shown[3]);
    fenced.end().await;
}
