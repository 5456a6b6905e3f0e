//! What goes wrong between the store and its server: sessions that are ended, waits that are cut short, no
//! connection left, a server that takes no writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::tenancy::OrgRecord;
use leasehold_core::store::work::{Ended, Settled, Settlement};
use leasehold_core::store::{LivenessStore as _, TenancyStore as _};
use leasehold_core::{ItemId, StoreError, WorkStore as _};
use leasehold_postgres::{Options, PostgresStore, Wakeup};
use leasehold_testkit::contract::samples::{
    CREATED, ORG, complete, hold, id, item, numbered, request_of, settlement, worker,
};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::harness::{OneSchema, PATIENCE, lone};
use crate::proxy::Proxy;

/// Long enough for any statement that waits for nobody, also on a busy machine.
const CUT_SHORT: &str = "1s";

/// The address with one parameter more, which wins over what it says already.
pub(crate) fn with_parameter(address: &str, name: &str, value: &str) -> String {
    let joint = if address.contains('?') { '&' } else { '?' };
    let value = value.replace(' ', "%20").replace('=', "%3D");
    format!("{address}{joint}{name}={value}")
}

async fn enqueue(on: &OneSchema, numbers: std::ops::RangeInclusive<u128>) {
    let batch = numbers.map(numbered).collect();
    on.store.enqueue(ORG, batch).await.unwrap();
}

/// Claims so many, and answers what completes each.
async fn claim(store: &PostgresStore, count: u32) -> Vec<Settlement> {
    let claimed = store.claim(&request_of(count)).await.unwrap();
    assert_eq!(claimed.len(), count as usize);
    let done = claimed.iter();
    done.map(|claimed| settlement(hold(&claimed.item), complete()))
        .collect()
}

/// Begins a transaction that holds all claims, so that whoever writes one waits.
async fn hold_claims(on: &OneSchema) -> Client {
    let holder = lone(on.address()).await;
    let text = format!("begin; select from {}.claims for update", on.schema);
    holder.batch_execute(&text).await.unwrap();
    holder
}

/// Returns once so many of the store's sessions wait for a lock.
pub(crate) async fn until_waiting(on: &OneSchema, count: u64) {
    let text = "select from pg_stat_activity
         where wait_event_type = 'Lock' and strpos(query, $1) > 0";
    let looks = async { while on.outsider.execute(text, &[&on.schema]).await.unwrap() < count {} };
    tokio::time::timeout(PATIENCE, looks)
        .await
        .expect("nobody waits");
}

#[tokio::test]
async fn a_settle_whose_session_is_ended_changes_nothing_and_can_be_asked_again() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=1).await;
    let done = claim(&on.store, 1).await;
    let holder = hold_claims(&on).await;
    let settling = {
        let (store, done) = (on.store.clone(), done.clone());
        tokio::spawn(async move { store.settle(&done).await })
    };
    until_waiting(&on, 1).await;
    let text = "select pg_terminate_backend(pid) from pg_stat_activity
         where wait_event_type = 'Lock' and strpos(query, $1) > 0";
    assert_eq!(on.outsider.execute(text, &[&on.schema]).await.unwrap(), 1);
    let error = settling.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(
        on.store.settle(&done).await.unwrap(),
        [Settled::Settled(Ended::Done)]
    );
}

/// Claimers that ask again for whatever was answered with an outage, by the same token.
#[tokio::test]
async fn with_sessions_ended_all_the_time_each_item_is_claimed_and_settled_once() {
    const ITEMS: u128 = 400;
    const CLAIMERS: usize = 4;
    const ENDED_MIN: u64 = 40;
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=ITEMS).await;
    // Not those of the harness, which hears hints.
    let name = format!("{}_hit", on.schema);
    let options = on.options().with_wakeup(Wakeup::Poll);
    let address = with_parameter(on.address(), "application_name", &name);
    let store = leasehold_postgres::connect(&address, options)
        .await
        .unwrap();
    let mut claimers = JoinSet::new();
    for _ in 0..CLAIMERS {
        claimers.spawn(drain(store.clone()));
    }
    // Those that are in the middle of a statement.
    let text = "select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = $1 and state = 'active'";
    let parameters: [&(dyn ToSql + Sync); 1] = [&name];
    let mut settled: HashMap<ItemId, u32> = HashMap::new();
    let (mut ended, mut outages) = (0, 0);
    loop {
        tokio::select! {
            joined = claimers.join_next() => match joined {
                Some(drained) => {
                    let drained = drained.unwrap();
                    outages += drained.outages;
                    for item in drained.settled {
                        *settled.entry(item).or_default() += 1;
                    }
                }
                None => break,
            },
            hit = on.outsider.execute(text, &parameters), if ended < ENDED_MIN => {
                ended += hit.unwrap();
            }
        }
    }
    assert!(outages > 0, "no call met one of {ended} ended sessions");
    let twice: Vec<_> = settled.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "settled more than once: {twice:?}");
    let text = format!(
        "select from {}.ends where is_done and claim_seq = 1 and attempts = 1",
        on.schema
    );
    let once = on.outsider.execute(&text, &[]).await.unwrap();
    assert_eq!(u128::from(once), ITEMS);
}

/// What a claimer met.
#[derive(Default)]
struct Drained {
    outages: u32,
    /// What was answered as settled by that very call.
    settled: Vec<ItemId>,
}

async fn drain(store: Arc<PostgresStore>) -> Drained {
    let mut drained = Drained::default();
    loop {
        let request = request_of(3);
        let claimed = asked_again(&mut drained.outages, || store.claim(&request)).await;
        if claimed.is_empty() {
            return drained;
        }
        let done: Vec<_> = claimed
            .iter()
            .map(|claimed| settlement(hold(&claimed.item), complete()))
            .collect();
        let settled = asked_again(&mut drained.outages, || store.settle(&done)).await;
        for (entry, settled) in done.iter().zip(settled) {
            match settled {
                Settled::Settled(Ended::Done) => drained.settled.push(entry.hold.item_id),
                Settled::AlreadySettled => {}
                other => panic!("{:?} was answered {other:?}", entry.hold),
            }
        }
    }
}

/// Asks until there is an answer; every error must be one that passes.
async fn asked_again<T, F>(outages: &mut u32, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable(_)) => *outages += 1,
            Err(StoreError::Retry(_)) => {}
            Err(error) => panic!("that does not pass: {error:?}"),
        }
    }
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_to_be_tried_again() {
    cut_short("statement_timeout").await;
}

#[tokio::test]
async fn a_lock_that_takes_too_long_is_to_be_tried_again() {
    cut_short("lock_timeout").await;
}

async fn cut_short(setting: &str) {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=1).await;
    let address = with_parameter(
        on.address(),
        "options",
        &format!("-c {setting}={CUT_SHORT}"),
    );
    let store = leasehold_postgres::connect(&address, on.options())
        .await
        .unwrap();
    let done = claim(&store, 1).await;
    let holder = hold_claims(&on).await;
    let settling = tokio::time::timeout(PATIENCE, store.settle(&done));
    let error = settling.await.expect("it is cut short").unwrap_err();
    assert!(matches!(error, StoreError::Retry(_)), "{error:?}");
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(
        store.settle(&done).await.unwrap(),
        [Settled::Settled(Ended::Done)]
    );
}

#[tokio::test]
async fn without_a_free_connection_a_call_ends_with_the_patience() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=2).await;
    let patience = Duration::from_millis(300);
    let options = on.options().with_connections(2).with_patience(patience);
    let store = on.connect_with(options).await;
    let done = claim(&store, 2).await;
    let holder = hold_claims(&on).await;
    let mut settling = JoinSet::new();
    for done in done {
        let store = store.clone();
        settling.spawn(async move { store.settle(&[done]).await });
    }
    until_waiting(&on, 2).await;
    // Twice is far less than the call would wait for the holder.
    let asked = tokio::time::timeout(PATIENCE, store.now());
    let error = asked.await.expect("its patience ends").unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable(text) if text.contains("allow more of them")),
        "{error:?}"
    );
    holder.batch_execute("rollback").await.unwrap();
    for settled in settling.join_all().await {
        assert_eq!(settled.unwrap(), [Settled::Settled(Ended::Done)]);
    }
    store.now().await.unwrap();
}

/// A server that has no room for one connection more, by the limit of a login.
#[tokio::test]
async fn a_server_without_a_free_connection_is_an_outage_that_says_what_to_do() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let login = format!("{}_limited", on.schema);
    // A superuser has no limit, and who owns the schema may migrate it.
    let text = format!(
        "create role {login} login password 'word' connection limit 1;
         grant usage on schema {0} to {login};
         grant select on all tables in schema {0} to {login}",
        on.schema
    );
    on.outsider.batch_execute(&text).await.unwrap();
    let address = with_parameter(on.address(), "user", &login);
    let address = with_parameter(&address, "password", "word");
    let options = on.options().without_migrating();
    let store = leasehold_postgres::connect(&address, options.clone())
        .await
        .unwrap();
    store.now().await.unwrap();
    let error: StoreError = leasehold_postgres::connect(&address, options.clone())
        .await
        .unwrap_err()
        .into();
    assert!(
        matches!(&error, StoreError::Unavailable(text) if text.contains("raise its max_connections")),
        "{error:?}"
    );
    // It passes, as soon as somebody goes.
    drop(store);
    asked_again(&mut 0, || async {
        let connected = leasehold_postgres::connect(&address, options.clone()).await;
        connected?.now().await
    })
    .await;
    let text = format!(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = '{login}';
         drop owned by {login};
         drop role {login}"
    );
    on.outsider.batch_execute(&text).await.unwrap();
}

/// Otherwise every call that comes to use it waits in vain, for as long as nobody closes it.
#[tokio::test]
async fn a_connection_on_which_a_call_was_given_up_is_not_used_again() {
    const SHORT: Duration = Duration::from_millis(100);
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=1).await;
    let proxy = Proxy::to(on.address());
    let options = on.options().with_wakeup(Wakeup::Poll);
    let store = leasehold_postgres::connect(proxy.address(), options).await;
    let store = store.unwrap();
    let done = claim(&store, 1).await;
    proxy.swallow();
    for _ in 0..3 {
        let given_up = tokio::time::timeout(SHORT, store.settle(&done)).await;
        assert!(given_up.is_err(), "it was answered");
    }
    proxy.admit();
    let settled = tokio::time::timeout(PATIENCE, store.settle(&done)).await;
    let settled = settled.expect("a connection that says nothing was used again");
    assert_eq!(settled.unwrap(), [Settled::Settled(Ended::Done)]);
}

#[tokio::test]
async fn sessions_of_calls_that_were_given_up_do_not_wait_on() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=1).await;
    let done = claim(&on.store, 1).await;
    let holder = hold_claims(&on).await;
    for _ in 0..3 {
        let (store, done) = (on.store.clone(), done.clone());
        let settling = tokio::spawn(async move { store.settle(&done).await });
        until_waiting(&on, 1).await;
        settling.abort();
        let gone = async {
            let text = "select from pg_stat_activity
                 where wait_event_type = 'Lock' and strpos(query, $1) > 0";
            while on.outsider.execute(text, &[&on.schema]).await.unwrap() > 0 {}
        };
        tokio::time::timeout(PATIENCE, gone)
            .await
            .expect("the session waits on although nobody wants its answer");
    }
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(
        on.store.settle(&done).await.unwrap(),
        [Settled::Settled(Ended::Done)]
    );
}

/// As after a failover, where the server that this store is connected to has become a standby.
#[tokio::test]
async fn a_server_that_takes_no_writes_is_an_outage_until_it_takes_them_again() {
    let Some(database) = OwnDatabase::new().await else {
        return;
    };
    let store = &database.store;
    store.enqueue(ORG, vec![numbered(1)]).await.unwrap();
    let done = claim(store, 1).await;
    database.take_no_writes().await;
    refused(async || store.enqueue(ORG, vec![item()]).await.map(drop)).await;
    refused(async || store.claim(&request_of(1)).await.map(drop)).await;
    refused(async || store.settle(&done).await.map(drop)).await;
    let held = store.get(ORG, id(1)).await.unwrap();
    assert!(held.is_some(), "what is there can be read");
    // Sessions from before still refuse to write: a store that kept them would go on being refused.
    database.new_sessions_write(true).await;
    let settled = asked_again(&mut 0, || store.settle(&done)).await;
    assert_eq!(settled, [Settled::Settled(Ended::Done)]);
    database.remove().await;
}

/// What holds for work items holds for the rest: each call of the test is of another namespace.
#[tokio::test]
async fn sessions_that_take_no_writes_are_given_up_whatever_they_were_asked() {
    let Some(database) = OwnDatabase::new().await else {
        return;
    };
    let store = &database.store;
    let org = OrgRecord {
        id: ORG,
        name: "one".to_owned(),
        created_at: CREATED,
        deleted_at: None,
    };
    let gone = worker("gone");
    database.take_no_writes().await;
    refused(async || store.create_org(&org).await.map(drop)).await;
    database.new_sessions_write(true).await;
    assert!(!asked_again(&mut 0, || store.remove(&gone)).await);
    database.take_no_writes().await;
    refused(async || store.remove(&gone).await.map(drop)).await;
    database.new_sessions_write(true).await;
    assert!(asked_again(&mut 0, || store.create_org(&org)).await);
    database.remove().await;
}

/// Asks until the server itself refuses, since the first call may meet a session that was just ended. In
/// either case it must be an outage.
async fn refused(ask: impl AsyncFn() -> Result<(), StoreError>) {
    let refusal = async {
        loop {
            match ask().await {
                Err(StoreError::Unavailable(text)) if text.contains("read-only") => return,
                Err(StoreError::Unavailable(_)) => {}
                other => panic!("a server that takes no writes answered {other:?}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, refusal)
        .await
        .expect("the server does not refuse");
}

/// A database apart from the one of all other tests, which must not notice what becomes of it.
struct OwnDatabase {
    name: String,
    store: Arc<PostgresStore>,
    beside: OneSchema,
}

impl OwnDatabase {
    async fn new() -> Option<Self> {
        let beside = OneSchema::new().await?;
        let name = format!("d{}", Uuid::new_v4().simple());
        let text = format!("create database {name}");
        beside.outsider.batch_execute(&text).await.unwrap();
        let address = with_parameter(beside.address(), "dbname", &name);
        let options = Options::default().with_wakeup(Wakeup::Poll);
        leasehold_postgres::migrate(&address, &options)
            .await
            .unwrap();
        let store = leasehold_postgres::connect(&address, options).await;
        Some(Self {
            name,
            store: store.unwrap(),
            beside,
        })
    }

    /// Lets no session write any more: not those to come, and those that were there are ended.
    async fn take_no_writes(&self) {
        self.new_sessions_write(false).await;
        let name = &self.name;
        self.run(&format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
        ))
        .await;
    }

    /// Lets the sessions to come write, or not.
    async fn new_sessions_write(&self, write: bool) {
        let name = &self.name;
        self.run(&format!(
            "alter database {name} set default_transaction_read_only = {}",
            !write
        ))
        .await;
    }

    async fn remove(self) {
        self.run(&format!("drop database {} with (force)", self.name))
            .await;
    }

    /// One by one: some of it must not be in a transaction with anything else.
    async fn run(&self, statements: &str) {
        for statement in statements.split(';') {
            self.beside.outsider.batch_execute(statement).await.unwrap();
        }
    }
}

/// It would take texts that it cannot hand out again, and every claim that meets one would fail.
#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let Some(beside) = OneSchema::new().await else {
        return;
    };
    let name = format!("d{}", Uuid::new_v4().simple());
    let text = format!(
        "create database {name} encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
    );
    beside.outsider.batch_execute(&text).await.unwrap();
    let address = with_parameter(beside.address(), "dbname", &name);
    let migrated = leasehold_postgres::migrate(&address, &Options::default()).await;
    let connected = leasehold_postgres::connect(&address, Options::default()).await;
    let text = format!("drop database {name} with (force)");
    beside.outsider.batch_execute(&text).await.unwrap();
    for refusal in [migrated.err(), connected.err()] {
        let words = refusal.expect("it is refused").to_string();
        assert!(
            words.contains("SQL_ASCII") && words.contains("UTF8"),
            "{words}"
        );
    }
}
