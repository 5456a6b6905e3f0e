//! Where cases keep their worker processes: started, signalled, and gone when the case is over.
//!
//! Shared by the test binaries of this crate, each of which is its own worker process in a [`Role`].

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::store::events::Stream;
use leasehold::core::store::work::Enqueued;
use leasehold::core::{Clock, OrgId};
use leasehold::{Client, ItemId, Metrics, Status, Stores, SystemClock, WorkItem, WorkerSettings};
use leasehold_sqlite::{Durability, Options, SqliteStore};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// The variable that says what a worker process does.
pub(crate) const ROLE: &str = "LEASEHOLD_TEST_ROLE";

/// Set for the counts and lengths of a long run.
const LONG: &str = "LEASEHOLD_LONG_TESTS";

/// `few` as a rule, `many` in a long run.
pub(crate) fn few_or<T>(few: T, many: T) -> T {
    if std::env::var_os(LONG).is_some() {
        many
    } else {
        few
    }
}

const FILE: &str = "queue.db";

/// A folder with a file, open on the case's side as well.
pub(crate) struct Yard {
    pub(crate) folder: TempDir,
    pub(crate) stores: Stores,
    pub(crate) client: Client,
}

impl Yard {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join(FILE);
        let stores = open(&file, Duration::from_secs(10)).stores();
        let client = Client::single_tenant(stores.clone()).unwrap();
        Self {
            folder,
            stores,
            client,
        }
    }

    /// Four slots, a lease of a second, a sweep three times a second.
    pub(crate) fn role(&self, name: &str) -> Role {
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

    pub(crate) async fn item(&self, id: ItemId) -> WorkItem {
        self.client.get(id).await.unwrap().unwrap()
    }

    pub(crate) async fn until_status(
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

    /// What the audit entries are, once each of the dead has its own: a worker writes them after the item.
    pub(crate) async fn audit_kinds(&self, dead: &[ItemId]) -> Vec<String> {
        for id in dead {
            within(Duration::from_secs(30), "the audit entry", async || {
                self.item(*id).await.audited_at
            })
            .await;
        }
        let audit = &self.stores.events;
        let entries = audit
            .read_after(OrgId::SINGLE, Stream::Audit, 0, 1_000)
            .await;
        let kinds = entries.unwrap().into_iter().map(|entry| entry.entry.kind);
        kinds.collect()
    }
}

/// How a worker process is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Role {
    /// Holds the file, and what the process writes down.
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) capacity: u32,
    pub(crate) lease_ms: u64,
    pub(crate) sweep_ms: u64,
    pub(crate) poll_ms: u64,
    pub(crate) busy_ms: u64,
}

impl Role {
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    pub(crate) fn settings(&self) -> WorkerSettings {
        WorkerSettings {
            name: self.name.clone(),
            capacity: self.capacity,
            lease: millis(self.lease_ms),
            poll_interval: millis(self.poll_ms),
            sweep_interval: millis(self.sweep_ms),
            sweep_budget: millis(self.sweep_ms),
            requeue_spread: Duration::ZERO,
            drain_timeout: millis(2_000),
            drain_kill: millis(2_000),
            ..WorkerSettings::default()
        }
    }

    pub(crate) fn stores(&self) -> Stores {
        open(&self.file(), millis(self.busy_ms)).stores()
    }
}

/// A file that survives a kill, and need not survive a power cut: the cases start no fire.
fn open(file: &Path, busy_timeout: Duration) -> Arc<SqliteStore> {
    let options = Options::new(Arc::new(SystemClock))
        .with_durability(Durability::Normal)
        .with_busy_timeout(busy_timeout);
    leasehold_sqlite::open(file, options).unwrap()
}

/// What a process of this binary needs to be told to become a worker.
pub(crate) trait Part: Serialize {
    /// What follows the program's name.
    const ARGUMENTS: &[&str];

    /// Where it leaves what it counted.
    fn folder(&self) -> &Path;
}

/// Looks until there is an answer, and fails saying what it waited for if none comes in time.
pub(crate) async fn within<T>(limit: Duration, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
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
pub(crate) struct Process {
    child: Child,
    folder: PathBuf,
}

impl Process {
    pub(crate) fn start<P: Part>(part: &P) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(P::ARGUMENTS)
            .env(ROLE, serde_json::to_string(part).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            folder: part.folder().to_owned(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks it to stop, waits until it has, and answers its metrics.
    pub(crate) async fn stop(mut self) -> Page {
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
pub(crate) struct Page(pub(crate) String);

impl Page {
    /// Leaves what this process counted.
    pub(crate) fn write(folder: &Path, metrics: &Metrics) {
        std::fs::write(Self::file(folder, std::process::id()), metrics.encode()).unwrap();
    }

    fn read(folder: &Path, process: u32) -> Self {
        Self(std::fs::read_to_string(Self::file(folder, process)).unwrap())
    }

    fn file(folder: &Path, process: u32) -> PathBuf {
        folder.join(format!("metrics-{process}"))
    }

    /// One series; `labels` as they stand between the braces.
    pub(crate) fn series(&self, metric: &str, labels: &str) -> u64 {
        let series = format!("{metric}{{{labels}}} ");
        let value = self.0.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

pub(crate) fn now() -> jiff::Timestamp {
    SystemClock.now()
}

pub(crate) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Lets time pass: virtual time skips to it once nothing else is to be done.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

pub(crate) fn inserted(fate: Enqueued) -> ItemId {
    match fate {
        Enqueued::Inserted(item) => item.id,
        fate => panic!("not inserted: {fate:?}"),
    }
}
