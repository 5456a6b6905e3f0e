//! Opening a file, and the store that it becomes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use leasehold_core::store::StoreResult;
use leasehold_core::{Clock, Lane, StoreError, Stores};
use rusqlite::Connection;

use crate::connection;
use crate::error::{Answer, OpenError};
use crate::hints::{Board, Subscription};
use crate::migrations;
use crate::options::Options;
use crate::readers::Readers;
use crate::rows;
use crate::writer::{Stats, Unit, Urgency, Writer};

/// All stores on one SQLite file. Dropping the last handle lets what waits end, and closes the file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    hints: Arc<Board>,
    // Dropped in this order: the readers' connections need the log that the writer's keeps open.
    readers: Readers,
    writer: Writer,
}

/// Opens the file, creating and migrating it as the options say. Blocks while it does.
///
/// # Errors
/// [`OpenError`] says what is wrong and what to do.
pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<SqliteStore>, OpenError> {
    let path = path.as_ref();
    let db = connection::open_writer(path, &options)?;
    if options.migrates {
        migrations::apply(&db, &*options.clock).map_err(|refusal| refusal.at(path))?;
    } else {
        migrations::check(&db).map_err(|refusal| refusal.at(path))?;
    }
    let readers = Readers::start(path, &options)?;
    let hints = Arc::new(Board::default());
    let writer = Writer::start(db, Arc::clone(&options.clock), Arc::clone(&hints));
    let writer = writer.map_err(|error| OpenError::Unusable {
        path: path.into(),
        source: StoreError::Unavailable(format!("cannot start a thread: {error}")),
    })?;
    tracing::debug!(path = %path.display(), durability = ?options.durability, "opened");
    Ok(Arc::new(SqliteStore {
        path: path.into(),
        clock: options.clock,
        hints,
        readers,
        writer,
    }))
}

impl SqliteStore {
    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This store as every namespace's.
    pub fn stores(self: &Arc<Self>) -> Stores {
        Stores::from_one(Arc::clone(self))
    }

    /// What the writer has done since the store was opened.
    pub fn stats(&self) -> Stats {
        self.writer.stats()
    }

    pub(crate) fn clock_now(&self) -> Timestamp {
        rows::whole_microseconds(self.clock.now())
    }

    /// Runs `work` in a transaction of the writer's; `rows` is about how many it writes.
    pub(crate) async fn write<T, F>(&self, rows: usize, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Unit<'_>) -> Answer<T> + Send + 'static,
    {
        self.writer.call(Urgency::Ordinary, rows, work).await
    }

    /// As [`SqliteStore::write`], ahead of everything else.
    pub(crate) async fn write_first<T, F>(&self, rows: usize, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Unit<'_>) -> Answer<T> + Send + 'static,
    {
        self.writer.call(Urgency::Renewal, rows, work).await
    }

    /// Runs `query` on a reader, with the store's now.
    pub(crate) async fn read<T, F>(&self, query: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Answer<T> + Send + 'static,
    {
        let now = self.clock_now();
        self.readers.call(move |db| query(db, now)).await
    }

    pub(crate) fn listen(&self, lanes: &[Lane]) -> Subscription {
        let subscription = self.hints.subscribe(lanes);
        self.writer.look_for_foreign_commits();
        subscription
    }
}
