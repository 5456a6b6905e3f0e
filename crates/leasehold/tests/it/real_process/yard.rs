//! Where the cases keep their processes: started, signalled, and gone when the case is over.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::store::events::Stream;
use leasehold::core::{Clock, OrgId};
use leasehold::{Client, ItemId, Status, Stores, SystemClock, Work, WorkItem};
use leasehold_sqlite::SqliteStore;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tempfile::TempDir;

use super::role::{Diary, Entry, ROLE, Role, millis, open};
use crate::harness::{inserted, pass};

/// Set for the counts and lengths of a long run.
const LONG: &str = "LEASEHOLD_LONG_TESTS";

/// `few` as a rule, `many` in a long run.
pub(super) fn few_or<T>(few: T, many: T) -> T {
    if std::env::var_os(LONG).is_some() {
        many
    } else {
        few
    }
}

/// A folder with a file, open on the case's side as well.
pub(super) struct Yard {
    pub(super) folder: TempDir,
    pub(super) stores: Stores,
    pub(super) client: Client,
    store: Arc<SqliteStore>,
}

impl Yard {
    pub(super) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = open(&folder.path().join("queue.db"), Duration::from_secs(10));
        let stores = store.stores();
        let client = Client::single_tenant(stores.clone()).unwrap();
        Self {
            folder,
            stores,
            client,
            store,
        }
    }

    /// Four slots, a lease of a second, a sweep three times a second.
    pub(super) fn role(&self, name: &str) -> Role {
        Role {
            folder: self.folder.path().to_owned(),
            name: name.to_owned(),
            capacity: 4,
            lease_ms: 1_000,
            sweep_ms: 300,
            poll_ms: 100,
            busy_ms: 5_000,
        }
    }

    pub(super) fn diary(&self) -> Vec<Entry> {
        Diary::of(self.folder.path()).entries()
    }

    /// How often a run of the item was begun, and by which processes.
    pub(super) fn began(&self, id: ItemId) -> Vec<u32> {
        let id = id.to_string();
        let entries = self.diary().into_iter();
        let began = entries.filter(|entry| entry.what == "began" && entry.item == id);
        began.map(|entry| entry.process).collect()
    }

    pub(super) async fn enqueue<W: Work + Sync>(&self, work: &W) -> ItemId {
        inserted(self.client.enqueue(work).await.unwrap())
    }

    pub(super) async fn item(&self, id: ItemId) -> WorkItem {
        self.client.get(id).await.unwrap().unwrap()
    }

    pub(super) async fn until_status(
        &self,
        id: ItemId,
        status: Status,
        limit: Duration,
    ) -> WorkItem {
        let what = format!("{id} is {status}");
        within(limit, &what, async || {
            let item = self.item(id).await;
            (item.status == status).then_some(item)
        })
        .await
    }

    pub(super) async fn audit_kinds(&self) -> Vec<String> {
        let audit = &self.stores.events;
        let entries = audit
            .read_after(OrgId::SINGLE, Stream::Audit, 0, 1_000)
            .await;
        let kinds = entries.unwrap().into_iter().map(|entry| entry.entry.kind);
        kinds.collect()
    }

    pub(super) fn store(&self) -> Arc<SqliteStore> {
        self.store.clone()
    }
}

/// Looks until there is an answer, and fails saying what it waited for if none comes in time.
pub(super) async fn within<T>(limit: Duration, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let found = tokio::time::timeout(limit, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            pass(millis(20)).await; // real time: other processes move at their own pace
        }
    });
    let found = found.await.ok();
    found.unwrap_or_else(|| panic!("waited {limit:?}, and this did not come about: {what}"))
}

/// A worker process. Killed and reaped when dropped.
pub(super) struct Process {
    child: Child,
    folder: std::path::PathBuf,
}

impl Process {
    pub(super) fn start(role: &Role) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "real_process::role::worker", "--nocapture"])
            .env(ROLE, serde_json::to_string(role).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            folder: role.folder.clone(),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks it to stop, waits until it has, and answers its metrics.
    pub(super) async fn stop(mut self) -> Page {
        self.signal(Signal::TERM);
        let id = self.id();
        for _ in 0..500 {
            if let Some(status) = self.has_ended() {
                assert!(status.success(), "the worker process ended with {status}");
                return Page::read(&self.folder, id);
            }
            pass(millis(20)).await; // real time: another process ends
        }
        panic!("the worker process does not stop");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a worker process counted, as it left it.
pub(super) struct Page(String);

impl Page {
    fn read(folder: &Path, process: u32) -> Self {
        let file = folder.join(format!("metrics-{process}"));
        Self(std::fs::read_to_string(file).unwrap())
    }

    /// One series; `labels` as they stand between the braces.
    pub(super) fn series(&self, metric: &str, labels: &str) -> u64 {
        let series = format!("{metric}{{{labels}}} ");
        let value = self.0.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// The store calls that failed, by operation.
    pub(super) fn store_errors(&self) -> Vec<(String, u64)> {
        let prefix = "leasehold_store_errors_total{operation=\"";
        let lines = self.0.lines().filter_map(|line| line.strip_prefix(prefix));
        let errors = lines.filter_map(|line| {
            let (operation, value) = line.split_once("\"} ")?;
            Some((operation.to_owned(), value.parse().unwrap()))
        });
        errors.filter(|(_, count)| *count > 0).collect()
    }
}

/// Dies as by the out-of-memory killer: no unwinding, no destructor.
pub(super) fn kill_self() {
    kill_process(getpid(), Signal::KILL).unwrap();
}

pub(super) fn now() -> jiff::Timestamp {
    SystemClock.now()
}
