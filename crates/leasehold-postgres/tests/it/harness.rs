//! A schema of its own for each test, and a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Lane, Stores, WorkStore as _};
use leasehold_postgres::{Options, PostgresStore};
use leasehold_testkit::Harness;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::cluster::{self, Shared};

/// Far more than a server takes for anything asked of it here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A fresh schema and a store on it.
pub(crate) struct OneSchema {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) schema: String,
    /// Names the sessions after the schema.
    address: String,
    /// Somebody else's connection.
    pub(crate) outsider: Client,
    shared: &'static Shared,
    /// How far the store's clock is ahead of the server's.
    ahead: Mutex<Duration>,
}

impl OneSchema {
    /// A schema on the server that the tests use; `None` where there is none, which another test tells.
    pub(crate) async fn new() -> Option<Self> {
        let shared = cluster::shared().ok()?;
        let schema = format!("t{}", Uuid::new_v4().simple());
        let options = Options::default().with_schema(&schema);
        let address = named(&shared.address, &schema);
        let store = leasehold_postgres::connect(&address, options).await;
        Some(Self {
            store: store.unwrap(),
            schema,
            address,
            outsider: lone(&shared.address).await,
            shared,
            ahead: Mutex::default(),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn options(&self) -> Options {
        Options::default().with_schema(&self.schema)
    }

    /// Another store on the schema, as another process would have.
    pub(crate) async fn connect(&self) -> Arc<PostgresStore> {
        self.connect_with(self.options()).await
    }

    pub(crate) async fn connect_with(&self, options: Options) -> Arc<PostgresStore> {
        leasehold_postgres::connect(self.address(), options)
            .await
            .unwrap()
    }

    /// Waits until the store hears other processes, and has given the false hint that says so.
    pub(crate) async fn listens(&self) {
        let mut hints = self.store.subscribe(&[Lane::default()]);
        tokio::time::timeout(PATIENCE, hints.next())
            .await
            .expect("the store does not listen");
    }
}

impl Harness for OneSchema {
    /// Every round is several commits, and several round trips to another process.
    const REPEATS: usize = 200;

    fn is_possible() -> bool {
        cluster::shared().is_ok()
    }

    async fn open() -> Self {
        let opened = Self::new().await.expect("it is possible");
        opened.listens().await;
        opened
    }

    fn stores(&self) -> Stores {
        self.store.stores()
    }

    /// Puts another function in the place of the one that every statement asks for the time. The distance
    /// is written into it, so that statements are planned as they are with the real one.
    async fn advance(&self, duration: Duration) {
        let mut ahead = self.ahead.lock().await;
        *ahead += duration;
        let text = format!(
            "create or replace function {}.clock() returns timestamptz
                 language sql stable parallel safe
                 as 'select pg_catalog.now() + {} * interval ''1 microsecond'''",
            self.schema,
            ahead.as_micros()
        );
        self.outsider.batch_execute(&text).await.unwrap();
    }

    async fn second_handle(&self) -> Stores {
        self.connect().await.stores()
    }
}

impl Drop for OneSchema {
    /// A server that somebody gave is left as it was; a throw-away one is thrown away as a whole.
    fn drop(&mut self) {
        if !self.shared.is_given {
            return;
        }
        let (address, schema) = (self.shared.address.clone(), self.schema.clone());
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                // A case's own sessions end with its runtime, which waits for this, and may hold locks.
                let text = format!(
                    "select pg_terminate_backend(l.pid)
                     from pg_locks l
                     join pg_class c on c.oid = l.relation
                     where c.relnamespace = '{schema}'::regnamespace and l.pid <> pg_backend_pid();
                     drop schema {schema} cascade"
                );
                let _ = lone(&address).await.batch_execute(&text).await;
            });
        });
        let _ = dropping.join();
    }
}

/// The address for sessions of that name.
fn named(address: &str, name: &str) -> String {
    let joint = if address.contains('?') { '&' } else { '?' };
    format!("{address}{joint}application_name={name}")
}

/// A connection of its own, which ends with its client.
pub(crate) async fn lone(address: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
