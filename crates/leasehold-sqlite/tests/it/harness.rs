//! A file in a directory of its own, a clock that the test moves, and the rows that most tests use.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::work::{ClaimRequest, Enqueued};
use leasehold_core::{
    ClaimToken, Clock, JsonObject, Kind, Lane, ManualClock, NewItem, OrgId, Stores, WorkStore,
    WorkerId,
};
use leasehold_sqlite::{Options, SqliteStore};
use leasehold_testkit::Harness;
use rusqlite::Connection;
use tempfile::TempDir;

pub(crate) const ORG: OrgId = OrgId::SINGLE;

/// A fresh file that goes with the test.
pub(crate) struct OneFile {
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) folder: Folder,
}

/// A folder for a file, and the clock of whoever opens it.
pub(crate) struct Folder {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) path: PathBuf,
    _held: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leasehold.db");
        Self {
            clock: Arc::new(ManualClock::default()),
            path,
            _held: folder,
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(self.clock.clone())
    }

    /// A store on the file. Each is what another process would have.
    pub(crate) fn open(&self) -> Arc<SqliteStore> {
        leasehold_sqlite::open(&self.path, self.options()).unwrap()
    }

    /// Somebody else's connection to the file, who does not wait for locks.
    pub(crate) fn outsider(&self) -> Connection {
        let db = Connection::open(&self.path).unwrap();
        db.busy_timeout(Duration::ZERO).unwrap();
        db
    }
}

impl OneFile {
    pub(crate) fn new() -> Self {
        Self::opened_with(|options| options)
    }

    pub(crate) fn opened_with(change: impl FnOnce(Options) -> Options) -> Self {
        let folder = Folder::new();
        let options = change(folder.options());
        let store = leasehold_sqlite::open(&folder.path, options).unwrap();
        Self { store, folder }
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
        self.folder.clock.advance(duration);
    }

    async fn second_handle(&self) -> Stores {
        self.folder.open().stores()
    }
}

pub(crate) fn noop() -> Kind {
    Kind::parse("NOOP").unwrap()
}

pub(crate) fn item(store: &ManualClock) -> NewItem {
    NewItem::new(noop(), JsonObject::empty(), store.now())
}

pub(crate) fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        token: ClaimToken::mint(),
        worker: WorkerId::parse("worker").unwrap(),
        lanes: vec![Lane::default()],
        kinds: vec![noop()],
        lease: Duration::from_mins(1),
        limit,
        tenant_cap: None,
    }
}

/// Enqueues one plain item and expects it to be new.
pub(crate) async fn insert(store: &SqliteStore, clock: &ManualClock) {
    let fates = store.enqueue(ORG, vec![item(clock)]).await.unwrap();
    assert!(matches!(fates[..], [Enqueued::Inserted(_)]), "{fates:?}");
}
