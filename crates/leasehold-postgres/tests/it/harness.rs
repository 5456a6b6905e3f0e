//! A schema of its own for each test, and a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Lane, Stores, WorkStore as _};
use leasehold_postgres::{Logins, MadeLogin, Options, Password, PostgresStore, Purpose};
use leasehold_testkit::Harness;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::cluster::{self, Shared};

/// Far more than a server takes for anything asked of it here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Of the logins that tests make, for a server that asks for one.
const PASSWORD: &str = "of-a-test";

/// A fresh schema and a store on it.
pub(crate) struct OneSchema {
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) schema: String,
    /// Names the sessions after the schema.
    address: String,
    /// Somebody else's connection.
    pub(crate) outsider: Client,
    shared: &'static Shared,
    /// Whether its stores have a login for each purpose, and not one for all.
    is_fenced: bool,
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
            is_fenced: false,
            ahead: Mutex::default(),
        })
    }

    /// As [`OneSchema::new`], with logins of its own and the fence between tenants raised.
    pub(crate) async fn fenced() -> Option<Self> {
        let mut on = Self::new().await?;
        on.make_logins().await;
        on.is_fenced = true;
        on.store = on.connect().await;
        Some(on)
    }

    /// Makes the logins, or puts right what was changed since.
    pub(crate) async fn make_logins(&self) -> Vec<MadeLogin> {
        let password = Password::Given(PASSWORD.to_owned());
        let logins = Logins::default()
            .with_password(Purpose::Runtime, password.clone())
            .with_password(Purpose::System, password);
        leasehold_postgres::create_logins(&self.shared.address, &self.options(), &logins)
            .await
            .unwrap()
    }

    /// What the login is called.
    pub(crate) fn login(&self, purpose: Purpose) -> String {
        Logins::default().name(purpose, &self.schema)
    }

    /// The address by which that login connects.
    pub(crate) fn address_of(&self, purpose: Purpose) -> String {
        let (scheme, rest) = self.address.split_once("://").unwrap();
        let (_, place) = rest.split_once('@').unwrap_or(("", rest));
        format!("{scheme}://{}:{PASSWORD}@{place}", self.login(purpose))
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
        let (address, options) = if self.is_fenced {
            let system = self.address_of(Purpose::System);
            let options = options.without_migrating().with_system_login(system);
            (self.address_of(Purpose::Runtime), options)
        } else {
            (self.address.clone(), options)
        };
        leasehold_postgres::connect(&address, options)
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

/// A schema whose stores have a login for each purpose, with the fence raised.
pub(crate) struct Fenced(OneSchema);

impl Harness for Fenced {
    const REPEATS: usize = OneSchema::REPEATS;

    fn is_possible() -> bool {
        OneSchema::is_possible()
    }

    async fn open() -> Self {
        let on = OneSchema::fenced().await.expect("it is possible");
        on.listens().await;
        Self(on)
    }

    fn stores(&self) -> Stores {
        Harness::stores(&self.0)
    }

    async fn advance(&self, duration: Duration) {
        self.0.advance(duration).await;
    }

    async fn second_handle(&self) -> Stores {
        self.0.second_handle().await
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
                     drop schema {schema} cascade;
                     drop role if exists {schema}_runtime, {schema}_system, {schema}_enqueuer"
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
