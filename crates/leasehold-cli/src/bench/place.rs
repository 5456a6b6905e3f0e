//! Where the bench measures: a folder for SQLite files, or schemas on a Postgres server. Each measurement
//! gets an empty store of its own, and nothing of it is left at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold::{Stores, SystemClock};
use leasehold_sqlite::Durability;
use tempfile::TempDir;

use super::machine::Cpu;
use super::server::Server;
use super::spent::Spent;
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

    /// An empty store.
    pub(super) async fn open(&mut self) -> Result<Stores, Failure> {
        match self {
            Self::Folder(folder) => folder.open(),
            Self::Server(server) => server.open().await,
        }
    }

    /// Does at once what the server would do by itself to a backlog that stood for a while, so that no
    /// figure depends on when it comes.
    pub(super) async fn age(&self) -> Result<(), Failure> {
        match self {
            Self::Folder(_) => Ok(()),
            Self::Server(server) => server.age().await,
        }
    }

    /// Has an old snapshot held until the answer is dropped. Refused on SQLite.
    pub(super) async fn pin(&self) -> Result<tokio_postgres::Client, Failure> {
        match self {
            Self::Folder(_) => Err(not_pinned()),
            Self::Server(server) => server.pin().await,
        }
    }

    /// The counters of what is spent, as they are now.
    pub(super) async fn spent(&self) -> Result<Spent, Failure> {
        Ok(match self {
            Self::Folder(_) => Spent {
                worker: Cpu::now(),
                server: None,
                wal: None,
            },
            Self::Server(server) => server.spent().await?,
        })
    }

    pub(super) const fn store(&self) -> &'static str {
        match self {
            Self::Folder(_) => "sqlite",
            Self::Server(_) => "postgres",
        }
    }

    /// What decides over how much an answered write survives, and what else a reader must know to compare.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        match self {
            Self::Folder(folder) => folder.settings(),
            Self::Server(server) => server.settings.clone(),
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

    /// Deletes the stores that were opened, which nobody may use any more.
    pub(super) async fn discard(&mut self) -> Result<(), Failure> {
        match self {
            Self::Folder(folder) => folder.discard(),
            Self::Server(server) => server.discard().await,
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

/// SQLite keeps no rows for old snapshots.
pub(super) fn not_pinned() -> Failure {
    Failure::usage("SQLite cannot be measured beside an old snapshot")
        .because("the profile `pinned` asks how a server lives with rows it may not remove")
        .remedy("give one with --postgres, or leave the profile `pinned` out")
}

pub(super) struct Folder {
    dir: TempDir,
    durability: Durability,
    opened: u32,
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
            opened: 0,
        })
    }

    fn open(&mut self) -> Result<Stores, Failure> {
        let options = leasehold_sqlite::Options::new(Arc::new(SystemClock));
        let options = options.with_durability(self.durability);
        self.opened += 1;
        let file: PathBuf = self.dir.path().join(format!("{}.db", self.opened));
        let store = leasehold_sqlite::open(file, options).map_err(broke)?;
        Ok(store.stores())
    }

    fn discard(&self) -> Result<(), Failure> {
        let entries = std::fs::read_dir(self.dir.path()).map_err(broke)?;
        for entry in entries.flatten() {
            // The log of a database goes by itself when its last user does, maybe between these two.
            let _ = std::fs::remove_file(entry.path());
        }
        Ok(())
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let synchronous = match self.durability {
            Durability::Full => "full",
            Durability::Normal => "normal",
        };
        // A store that could not keep such a journal would not have opened.
        [("journal_mode", "wal"), ("synchronous", synchronous)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }
}
