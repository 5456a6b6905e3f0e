//! A server that is somebody's, on which the bench makes schemas of its own and drops them again.

use std::collections::BTreeMap;

use leasehold::Stores;
use leasehold_postgres::ConnectError;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::broke;
use super::machine::{Cpu, Stopwatch};
use super::spent::{Spent, postmaster_of, server_cpu_seconds};
use crate::failure::Failure;

pub(super) struct Server {
    address: String,
    /// For what no store does: schemas, and the commits that are timed.
    client: Client,
    pub(super) settings: BTreeMap<String, String>,
    /// The server's first process, where it is on this machine.
    postmaster: Option<u32>,
    /// What the names of all its schemas begin with; the first is just that.
    prefix: String,
    opened: u32,
    /// Of the stores that are there.
    schemas: Vec<String>,
}

/// What the figures depend on.
const SETTINGS: &str = "
    select name, current_setting(name) from pg_settings
    where name in ('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level',
        'wal_sync_method', 'shared_buffers', 'max_wal_size')";

/// Over the network the process of that id would be another machine's.
const BACKEND: &str = "
    select pg_backend_pid() where inet_server_addr() is not distinct from inet_client_addr()";

const TABLES: &str = "
    select format('%I.%I', n.nspname, c.relname)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any($1) and c.relkind = 'r'";

impl Server {
    pub(super) async fn reach(address: &str) -> Result<Self, Failure> {
        let client = connect(address).await?;
        drop_abandoned(&client).await?;
        let random = Uuid::new_v4().simple().to_string();
        let prefix = format!("leasehold_bench_{}", random.get(..12).unwrap_or(&random));
        // From before there is a schema until the session ends, however it does.
        client.query(HOLD, &[&prefix]).await.map_err(broke)?;
        let commits =
            format!("create schema {prefix}; create table {prefix}.commits (at timestamptz)");
        client
            .batch_execute(&commits)
            .await
            .map_err(|error| no_schema(&error))?;
        let mut server = Self {
            address: address.to_owned(),
            client,
            settings: BTreeMap::new(),
            postmaster: None,
            prefix,
            opened: 0,
            schemas: Vec::new(),
        };
        server.look().await?;
        Ok(server)
    }

    async fn look(&mut self) -> Result<(), Failure> {
        let rows = self.client.query(SETTINGS, &[]).await.map_err(broke)?;
        self.settings = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let row = self.client.query_opt(BACKEND, &[]).await.map_err(broke)?;
        let backend = row.and_then(|row| u32::try_from(row.get::<_, i32>(0)).ok());
        self.postmaster = backend.and_then(postmaster_of);
        Ok(())
    }

    pub(super) async fn open(&mut self) -> Result<Stores, Failure> {
        self.opened += 1;
        let schema = format!("{}_{}", self.prefix, self.opened);
        // Made here, so that it is nobody else's: a schema that is there already is refused.
        let create = format!("create schema {schema}");
        self.client
            .batch_execute(&create)
            .await
            .map_err(|error| no_schema(&error))?;
        self.schemas.push(schema.clone());
        let options = leasehold_postgres::Options::default().with_schema(schema);
        let store = leasehold_postgres::connect(&self.address, options)
            .await
            .map_err(refusal)?;
        Ok(store.stores())
    }

    pub(super) async fn age(&self) -> Result<(), Failure> {
        let tables = self.client.query(TABLES, &[&self.schemas]).await;
        for row in tables.map_err(broke)? {
            let vacuum = format!("vacuum (analyze) {}", row.get::<_, &str>(0));
            self.client.batch_execute(&vacuum).await.map_err(broke)?;
        }
        match self.client.batch_execute("checkpoint").await {
            // Not everybody may; then it comes when it comes.
            Err(error) if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                Err(broke(in_words(&error)))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn pin(&self) -> Result<Client, Failure> {
        let client = connect(&self.address).await?;
        // The transaction id pins it for other databases' rows as well.
        let hold = "begin isolation level repeatable read; select txid_current()";
        client.batch_execute(hold).await.map_err(broke)?;
        Ok(client)
    }

    pub(super) async fn spent(&self) -> Result<Spent, Failure> {
        let written = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8";
        let row = self.client.query_one(written, &[]).await.map_err(broke)?;
        Ok(Spent {
            worker: Cpu::now(),
            server: self.postmaster.and_then(server_cpu_seconds),
            wal: Some(row.get(0)),
        })
    }

    pub(super) async fn commit_times(&self, count: usize) -> Result<Vec<f64>, Failure> {
        let text = format!(
            "insert into {}.commits values (clock_timestamp())",
            self.prefix
        );
        let insert = self.client.prepare(&text).await.map_err(broke)?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let watch = Stopwatch::start();
            self.client.execute(&insert, &[]).await.map_err(broke)?;
            times.push(watch.seconds() * 1e3);
        }
        Ok(times)
    }

    pub(super) async fn discard(&mut self) -> Result<(), Failure> {
        if !self.schemas.is_empty() {
            self.drop_schemas(&self.schemas.join(", ")).await?;
            self.schemas.clear();
        }
        Ok(())
    }

    pub(super) async fn clear(self) -> Result<(), Failure> {
        let mut schemas = self.schemas.clone();
        schemas.push(self.prefix.clone());
        self.drop_schemas(&schemas.join(", ")).await
    }

    async fn drop_schemas(&self, schemas: &str) -> Result<(), Failure> {
        drop_schemas(&self.client, schemas).await
    }
}

async fn drop_schemas(client: &Client, schemas: &str) -> Result<(), Failure> {
    // Each dropped object would be a notice to us otherwise.
    let drop =
        format!("set client_min_messages = warning; drop schema if exists {schemas} cascade");
    let mut dropped = client.batch_execute(&drop).await;
    for _ in 1..DROPS_MAX {
        if !matches!(&dropped, Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED))
        {
            break;
        }
        dropped = client.batch_execute(&drop).await;
    }
    dropped.map_err(|error| {
        Failure::failed("the bench could not drop its schemas")
            .because(in_words(&error))
            .remedy(format_args!("drop them yourself: {schemas}"))
    })
}

/// Drops what benches left that were killed: each holds a lock in its session while it lives.
async fn drop_abandoned(client: &Client) -> Result<(), Failure> {
    for row in client.query(LEFT, &[]).await.map_err(broke)? {
        let (prefix, schemas): (&str, &str) = (row.get(0), row.get(1));
        let held = client
            .query_one(TRY_HOLD, &[&prefix])
            .await
            .map_err(broke)?;
        if held.get(0) {
            drop_schemas(client, schemas).await?;
            client.query(LET_GO, &[&prefix]).await.map_err(broke)?;
        }
    }
    Ok(())
}

/// The lock of a bench, by what the names of its schemas begin with.
const HOLD: &str = "select pg_advisory_lock(hashtextextended($1, 0))";
const TRY_HOLD: &str = "select pg_try_advisory_lock(hashtextextended($1, 0))";
const LET_GO: &str = "select pg_advisory_unlock(hashtextextended($1, 0))";

/// The schemas of every bench that whoever asks may drop.
const LEFT: &str = "
    select left(nspname, 28), string_agg(nspname, ', ')
    from pg_namespace
    where nspname ~ '^leasehold_bench_[0-9a-f]{12}(_[0-9]+)?$' and pg_has_role(nspowner, 'usage')
    group by left(nspname, 28)";

async fn connect(address: &str) -> Result<Client, Failure> {
    let options = leasehold_postgres::Options::default();
    let session = leasehold_postgres::session(address, &options).await;
    session.map_err(refusal)
}

/// Where the bench was interrupted, a worker's statements may still be at the tables, and lock them in
/// another order. Each try lasts until the server has found that out, and few are under way.
const DROPS_MAX: u32 = 5;

/// Why a server was no place to measure. None of it repeats the address, which may hold a password.
fn refusal(error: ConnectError) -> Failure {
    match error {
        // Its cause names the part, which may be one of a password.
        ConnectError::Address(_) => Failure::usage("the URL given to --postgres cannot be read")
            .because("a part of it, or an option, is not one that is known")
            .remedy("give one such as postgres://USER:PASSWORD@HOST:5432/DATABASE"),
        error => unusable(&error),
    }
}

fn no_schema(error: &tokio_postgres::Error) -> Failure {
    Failure::cannot_open("the bench cannot make its schema on the server")
        .because(in_words(error))
        .remedy("give a user who may create schemas in the database")
}

fn unusable(error: &dyn std::fmt::Display) -> Failure {
    Failure::cannot_open("the server given to --postgres cannot be used")
        .because(error)
        .remedy("check that it runs, that the URL is right, and that its user may connect")
}

/// The server's own sentence, where it said one.
fn in_words(error: &tokio_postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |said| said.message().to_owned())
}
