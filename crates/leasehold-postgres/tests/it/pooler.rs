//! PG-3: a pooler in transaction mode between the stores and the server, which lends every transaction one of
//! two sessions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Client, Run, Stopper};
use leasehold_core::Stores;
use leasehold_postgres::{Logins, Options, PostgresStore, Wakeup};
use leasehold_testkit::Harness;
use leasehold_testkit::probe::{Journal, Probe};
use tempfile::TempDir;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};

use crate::cluster;
use crate::faults::with_parameter;
use crate::harness::{OneSchema, PATIENCE, lone};
use crate::server::{Programs, Server};
use crate::worker::{Tally, settings, stop, worker};

/// Where the program is if it is not on the path: Debian's folder is on the path of administrators alone.
const PLACES: [&str; 3] = [
    "/usr/sbin/pgbouncer",
    "/opt/homebrew/bin/pgbouncer",
    "/usr/local/bin/pgbouncer",
];

/// Between two looks whether it has started.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How many sessions of the server it lends.
const SESSIONS: usize = 2;

/// A pooler that runs.
struct Pooler {
    folder: TempDir,
    process: Child,
}

impl Pooler {
    /// Why there is none, for people.
    fn absent() -> Option<&'static str> {
        if let Err(why) = cluster::shared() {
            return Some(why);
        }
        if Self::program().is_some() {
            return None;
        }
        assert!(
            std::env::var_os("CI").is_none(),
            "there must be a pooler where CI is set; install pgbouncer"
        );
        Some("no pooler is installed; install it (Debian, Homebrew: pgbouncer)")
    }

    fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|folder| folder.join("pgbouncer"));
        let places = on_path.chain(PLACES.map(PathBuf::from));
        places.into_iter().find(|program| program.is_file())
    }

    /// Starts one before the server at the address.
    async fn start(address: &str) -> Self {
        let programs = Programs::find().expect("who has a pooler has a server");
        let folder = tempfile::Builder::new()
            .prefix("leasehold-pooler-")
            .tempdir()
            .unwrap();
        // It runs as another user where the tests run as root.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let settings = format!(
            "[databases]\n* = {}\n\
             [pgbouncer]\n\
             unix_socket_dir = {}\n\
             listen_port = 6432\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = {SESSIONS}\n\
             max_db_connections = {SESSIONS}\n\
             max_client_conn = 500\n",
            target(address),
            folder.path().display()
        );
        let file = folder.path().join("pooler.ini");
        fs::write(&file, settings).unwrap();
        let log = fs::File::create(folder.path().join("pooler.log")).unwrap();
        let program = Self::program().expect("it is there");
        let process = programs
            .command_for_life(program.to_str().unwrap())
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let started = Self { folder, process };
        let address = started.address();
        let answered = async {
            while tokio_postgres::connect(&address, NoTls).await.is_err() {
                tokio::time::sleep(LOOK_EVERY).await; // real time: another program starts
            }
        };
        let answered = tokio::time::timeout(PATIENCE, answered).await;
        assert!(
            answered.is_ok(),
            "the pooler does not answer: {}",
            started.log()
        );
        started
    }

    fn address(&self) -> String {
        let folder = self.folder.path().to_str().unwrap();
        let folder = folder.replace('/', "%2F");
        format!("postgres://postgres@{folder}:6432/postgres")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("pooler.log")).unwrap()
    }

    /// A store that reaches the schema by the pooler.
    async fn store(&self, schema: &str) -> Arc<PostgresStore> {
        let address = with_parameter(&self.address(), "application_name", schema);
        let options = Options::default()
            .with_schema(schema)
            .with_wakeup(Wakeup::Poll);
        leasehold_postgres::connect(&address, options)
            .await
            .unwrap()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The server in the pooler's notation.
fn target(address: &str) -> String {
    let config: Config = address.parse().unwrap();
    let host = match &config.get_hosts()[0] {
        Host::Tcp(name) => name.clone(),
        Host::Unix(folder) => folder.display().to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or("postgres");
    let password = config.get_password().map(String::from_utf8_lossy);
    let password = password.map_or_else(String::new, |word| format!(" password={word}"));
    let database = config.get_dbname().unwrap_or(user);
    format!("host={host} port={port} user={user} dbname={database}{password}")
}

fn log_of(server: &Server) -> String {
    let config: Config = server.address().parse().unwrap();
    let Host::Unix(folder) = &config.get_hosts()[0] else {
        panic!("the server listens on a socket");
    };
    fs::read_to_string(folder.join("server.log")).unwrap()
}

/// What people are told who look for what went wrong. A client that ends in the middle of a statement, as a
/// worker that is killed does, takes the pooler's session along.
fn complaints(log: &str) -> Vec<&str> {
    let is_complaint = |line: &&str| {
        let is_loud = ["ERROR", "FATAL", "PANIC", "WARNING"]
            .iter()
            .any(|word| line.contains(word));
        is_loud && !line.ends_with("FATAL:  connection to client lost")
    };
    log.lines().filter(is_complaint).collect()
}

/// Shown by nextest although it passes, as the server's is.
#[tokio::test]
async fn tells_whether_a_pooler_is_tested() {
    use std::io::Write as _;
    if let Some(why) = Pooler::absent() {
        let words = format!("leasehold-postgres: SKIPPED: every test that needs a pooler; {why}");
        writeln!(std::io::stderr(), "{words}").unwrap();
    }
}

/// Three workers and a producer, each with a store of its own; one worker's process goes in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_behind_a_pooler_finish_what_one_of_them_leaves() {
    const ITEMS: u32 = 500;
    const CAPACITY: u32 = 4;
    /// What the worker that goes does before.
    const RUNS_FIRST: u64 = 50;
    if Pooler::absent().is_some() {
        return;
    }
    // Of its own, for the sake of its log.
    let programs = Programs::find().expect("who has a pooler has a server");
    let server = Server::start(&programs, |_| {}).await;
    // Who comes too early is sent away.
    let told_at_start = log_of(&server).len();
    let options = Options::default();
    let pooler = Pooler::start(&server.address()).await;
    leasehold_postgres::migrate(&pooler.address(), &options)
        .await
        .unwrap();
    let schema = Options::SCHEMA;

    let (begun, ended, stuck) = (Journal::new(), Journal::new(), Probe::new());
    let going = {
        let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
        let runs = Probe::new();
        move |tally: Tally, _: Run| {
            let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
            let gets_stuck = runs.hit() > RUNS_FIRST;
            async move {
                begun.note(tally.n);
                if gets_stuck {
                    stuck.hit();
                    std::future::pending::<()>().await;
                }
                ended.note(tally.n);
            }
        }
    };
    let lasting = || {
        let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
        move |tally: Tally, _: Run| {
            let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
            async move {
                // Leaves enough for the other to get stuck with.
                stuck.wait_for(u64::from(CAPACITY)).await;
                begun.note(tally.n);
                ended.note(tally.n);
            }
        }
    };

    let client = Client::single_tenant(pooler.store(schema).await.stores()).unwrap();
    let items = (0..ITEMS).map(|n| client.typed(&Tally { n }).unwrap());
    for batch in items.collect::<Vec<_>>().chunks(100) {
        client.enqueue_many(batch.to_vec()).await.unwrap();
    }
    // A runtime of its own, with which all of it ends.
    let process = tokio::runtime::Runtime::new().unwrap();
    let store = pooler.store(schema).await;
    let one = worker(&store, going, settings(CAPACITY));
    drop(store);
    process.spawn(one.run_here(Stopper::new()));
    let mut others = Vec::new();
    for _ in 0..2 {
        let stopper = Stopper::new();
        let other = worker(&pooler.store(schema).await, lasting(), settings(CAPACITY));
        others.push((stopper.clone(), tokio::spawn(other.run(stopper))));
    }
    stuck.wait_for(u64::from(CAPACITY)).await;
    process.shutdown_background();

    let ends = ended.wait_for(ITEMS as usize);
    let mut ends = tokio::time::timeout(PATIENCE, ends)
        .await
        .expect("items are left");
    for (stopper, running) in others {
        stop(stopper, running).await;
    }
    ends.sort_unstable();
    assert!(
        ends == (0..ITEMS).collect::<Vec<_>>(),
        "a run ended twice, or never"
    );
    assert_eq!(begun.entries().len(), (ITEMS + CAPACITY) as usize);

    let outsider = lone(&server.address()).await;
    let done = format!("select from {schema}.ends where is_done");
    assert_eq!(
        outsider.execute(&done, &[]).await.unwrap(),
        u64::from(ITEMS)
    );
    let locks = "select from pg_locks where pid <> pg_backend_pid()";
    let free = async { while outsider.execute(locks, &[]).await.unwrap() > 0 {} };
    tokio::time::timeout(PATIENCE, free)
        .await
        .expect("a lock is left");
    assert_left_clean(&pooler).await;
    drop(client);
    let of_server = log_of(&server).split_off(told_at_start);
    assert!(complaints(&of_server).is_empty(), "{of_server}");
    let of_pooler = pooler.log();
    assert!(complaints(&of_pooler).is_empty(), "{of_pooler}");
}

/// What commands do beside a store: many of them at once, each by a connection that it closes right after.
#[tokio::test]
async fn looks_and_logins_need_no_session_of_a_pooler() {
    if Pooler::absent().is_some() {
        return;
    }
    let on = OneSchema::new().await.expect("it is possible");
    let pooler = Pooler::start(on.address()).await;
    let (address, options) = (pooler.address(), on.options());
    let logins = Logins::default();
    leasehold_postgres::create_logins(&address, &options, &logins)
        .await
        .unwrap();
    let looks = (0..20).map(|_| async {
        leasehold_postgres::examine(&address).await.unwrap();
        let view = leasehold_postgres::look_at_fence(&address, &options).await;
        assert!(view.unwrap().is_raised);
    });
    join_all(looks).await;
}

/// Looks into both sessions: nothing is prepared, held or set but what the pooler sets itself.
async fn assert_left_clean(pooler: &Pooler) {
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        clients.push(lone(&pooler.address()).await);
    }
    for client in &clients {
        client.batch_execute("begin").await.unwrap();
        let text = "select pg_backend_pid(),
            (select count(*) from pg_prepared_statements),
            (select count(*) from pg_locks where locktype = 'advisory'),
            (select coalesce(string_agg(name, ', '), '') from pg_settings
             where source = 'session' and name not in ('application_name', 'client_encoding')),
            coalesce(current_setting('leasehold.orgs', true), '')";
        let row = client.query_typed_one(text, &[]).await.unwrap();
        let left: (i64, i64, &str, &str) = (row.get(1), row.get(2), row.get(3), row.get(4));
        assert_eq!(left, (0, 0, "", ""));
    }
}

/// The contract by a pooler, with whose help hints of other processes are not heard.
struct Pooled {
    on: OneSchema,
    pooler: Pooler,
    store: Arc<PostgresStore>,
}

impl Harness for Pooled {
    const REPEATS: usize = 20;

    fn is_possible() -> bool {
        Pooler::absent().is_none()
    }

    async fn open() -> Self {
        let on = OneSchema::new().await.expect("it is possible");
        let pooler = Pooler::start(on.address()).await;
        let store = pooler.store(&on.schema).await;
        Self { on, pooler, store }
    }

    fn stores(&self) -> Stores {
        self.store.stores()
    }

    async fn advance(&self, duration: Duration) {
        self.on.advance(duration).await;
    }

    async fn second_handle(&self) -> Stores {
        self.pooler.store(&self.on.schema).await.stores()
    }
}

mod contract {
    //! Every promise of the stores, kept without sessions.
    use super::Pooled;

    leasehold_testkit::store_contract!(Pooled);
}
