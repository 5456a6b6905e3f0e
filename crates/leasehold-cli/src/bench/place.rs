//! Where the bench measures: a folder for SQLite files, or schemas on a Postgres server. Each profile
//! gets an empty store of its own, and nothing of it is left at the end.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold::{Stores, SystemClock};
use leasehold_postgres::ConnectError;
use leasehold_sqlite::Durability;
use tempfile::TempDir;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::{Arguments, DurabilityName, broke, machine};
use crate::failure::Failure;

/// Where stores are made.
pub(super) enum Place {
    Folder(Folder),
    // Boxed: it is ten times as large.
    Server(Box<Server>),
}

impl Place {
    pub(super) async fn make(args: &Arguments) -> Result<Self, Failure> {
        Ok(match &args.postgres {
            Some(address) => Self::Server(Box::new(Server::reach(address).await?)),
            None => Self::Folder(Folder::make(args)?),
        })
    }

    /// An empty store. The name is one word in lower case, and no other's.
    pub(super) async fn open(&mut self, name: &str) -> Result<Stores, Failure> {
        match self {
            Self::Folder(folder) => folder.open(name),
            Self::Server(server) => server.open(name).await,
        }
    }

    pub(super) const fn store(&self) -> &'static str {
        match self {
            Self::Folder(_) => "sqlite",
            Self::Server(_) => "postgres",
        }
    }

    pub(super) fn server_version(&self) -> Option<String> {
        match self {
            Self::Folder(_) => None,
            Self::Server(server) => Some(server.version.clone()),
        }
    }

    /// What an answered write survives, in the words of the store.
    pub(super) fn durability(&self) -> String {
        match self {
            Self::Folder(folder) => folder.durability_name().to_owned(),
            Self::Server(server) => server.durability.clone(),
        }
    }

    /// How long small writes take until they are safe, in milliseconds: an append to a file and its sync;
    /// on a server an insert and its commit, there and back.
    pub(super) async fn sync_times(&self, count: usize) -> Result<Vec<f64>, Failure> {
        match self {
            Self::Folder(folder) => machine::sync_times(folder.dir.path(), count).map_err(broke),
            Self::Server(server) => server.commit_times(count).await,
        }
    }

    /// Deletes all that was made.
    pub(super) async fn clear(self) -> Result<(), Failure> {
        match self {
            Self::Folder(folder) => folder.dir.close().map_err(broke),
            Self::Server(server) => server.clear().await,
        }
    }
}

pub(super) struct Folder {
    dir: TempDir,
    durability: Durability,
}

impl Folder {
    fn make(args: &Arguments) -> Result<Self, Failure> {
        let mut making = tempfile::Builder::new();
        making.prefix("leasehold-bench-");
        let dir = match &args.dir {
            Some(dir) => making.tempdir_in(dir),
            None => making.tempdir(),
        };
        let dir = dir.map_err(|error| {
            Failure::usage("the folder for the bench's files cannot be made")
                .because(error)
                .remedy("name another with --dir")
        })?;
        Ok(Self {
            dir,
            durability: match args.durability {
                DurabilityName::Full => Durability::Full,
                DurabilityName::Normal => Durability::Normal,
            },
        })
    }

    fn open(&self, name: &str) -> Result<Stores, Failure> {
        let options = leasehold_sqlite::Options::new(Arc::new(SystemClock));
        let options = options.with_durability(self.durability);
        let file: PathBuf = self.dir.path().join(format!("{name}.db"));
        let store = leasehold_sqlite::open(file, options).map_err(broke)?;
        Ok(store.stores())
    }

    const fn durability_name(&self) -> &'static str {
        match self.durability {
            Durability::Full => "full",
            Durability::Normal => "normal",
        }
    }
}

pub(super) struct Server {
    address: String,
    /// For what no store does: schemas, and the commits that are timed.
    client: tokio_postgres::Client,
    version: String,
    durability: String,
    /// What the names of all its schemas begin with; the first is just that.
    prefix: String,
    schemas: Vec<String>,
}

impl Server {
    async fn reach(address: &str) -> Result<Self, Failure> {
        let seen = leasehold_postgres::examine(address)
            .await
            .map_err(refusal)?;
        let (client, connection) = tokio_postgres::connect(address, NoTls)
            .await
            .map_err(|error| unusable(&error))?;
        // What breaks it is told to whoever uses the client.
        tokio::spawn(connection);
        let random = Uuid::new_v4().simple().to_string();
        let prefix = format!("leasehold_bench_{}", random.get(..12).unwrap_or(&random));
        let commits =
            format!("create schema {prefix}; create table {prefix}.commits (at timestamptz)");
        client.batch_execute(&commits).await.map_err(|error| {
            Failure::cannot_open("the bench cannot make its schema on the server")
                .because(in_words(&error))
                .remedy("give a user who may create schemas in the database")
        })?;
        Ok(Self {
            address: address.to_owned(),
            client,
            version: seen.version_name,
            durability: format!(
                "fsync={}, synchronous_commit={}",
                if seen.fsync { "on" } else { "off" },
                seen.synchronous_commit
            ),
            schemas: vec![prefix.clone()],
            prefix,
        })
    }

    async fn open(&mut self, name: &str) -> Result<Stores, Failure> {
        let schema = format!("{}_{name}", self.prefix);
        self.schemas.push(schema.clone());
        let options = leasehold_postgres::Options::default().with_schema(schema);
        let store = leasehold_postgres::connect(&self.address, options)
            .await
            .map_err(refusal)?;
        Ok(store.stores())
    }

    async fn commit_times(&self, count: usize) -> Result<Vec<f64>, Failure> {
        let text = format!(
            "insert into {}.commits values (clock_timestamp())",
            self.prefix
        );
        let insert = self.client.prepare(&text).await.map_err(broke)?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let watch = machine::Stopwatch::start();
            self.client.execute(&insert, &[]).await.map_err(broke)?;
            times.push(watch.seconds() * 1e3);
        }
        Ok(times)
    }

    async fn clear(self) -> Result<(), Failure> {
        let schemas = self.schemas.join(", ");
        // Each dropped object would be a notice to us otherwise.
        let drop =
            format!("set client_min_messages = warning; drop schema if exists {schemas} cascade");
        let mut dropped = self.client.batch_execute(&drop).await;
        for _ in 1..DROPS_MAX {
            if !matches!(&dropped, Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED))
            {
                break;
            }
            dropped = self.client.batch_execute(&drop).await;
        }
        dropped.map_err(|error| {
            Failure::failed("the bench could not drop its schemas")
                .because(in_words(&error))
                .remedy(format_args!("drop them yourself: {schemas}"))
        })
    }
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
