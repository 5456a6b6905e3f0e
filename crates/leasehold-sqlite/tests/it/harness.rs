//! A file in a directory of its own, and a clock that the test moves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ManualClock, Stores};
use leasehold_sqlite::{Options, SqliteStore};
use leasehold_testkit::Harness;
use tempfile::TempDir;

/// A fresh file that goes with the test.
pub(crate) struct OneFile {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) path: PathBuf,
    _folder: TempDir,
}

impl OneFile {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.db");
        let clock = Arc::new(ManualClock::default());
        let store = leasehold_sqlite::open(&path, Options::new(clock.clone())).unwrap();
        Self {
            store,
            clock,
            path,
            _folder: folder,
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(self.clock.clone())
    }

    /// Another store on the same file, as another process would have.
    pub(crate) fn reopen(&self) -> Arc<SqliteStore> {
        leasehold_sqlite::open(&self.path, self.options()).unwrap()
    }
}

impl Harness for OneFile {
    async fn open() -> Self {
        Self::new()
    }

    fn stores(&self) -> Stores {
        self.store.stores()
    }

    async fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    async fn second_handle(&self) -> Stores {
        self.reopen().stores()
    }
}
