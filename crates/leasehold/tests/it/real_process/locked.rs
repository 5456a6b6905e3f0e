//! A file that somebody else holds the lock of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::store::work::{Filter, Page as ListPage};
use leasehold::{ItemId, Status};
use rusqlite::Connection;

use super::role::Step;
use crate::yard::{Page, Process, Role, Yard, few_or, millis, pass, within};

/// How long things take, in a long run as LITE-1 has them, and a fifth of that otherwise.
struct Scale {
    items: usize,
    busy: Duration,
    lease: Duration,
    lock: Duration,
    locks: usize,
    between: Duration,
}

/// An outside writer that holds the file's lock for a while.
async fn hold_lock(yard: &Yard, time: Duration) {
    let file = yard.role("outside").file();
    let writer = tokio::task::spawn_blocking(move || {
        let db = Connection::open(file).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db.execute_batch("begin immediate").unwrap();
        db
    });
    let db = writer.await.unwrap();
    pass(time).await; // real time: the lock is held
    let released = tokio::task::spawn_blocking(move || db.execute_batch("rollback").unwrap());
    released.await.unwrap();
}

/// A dashboard that reads every 100 ms, and is never kept waiting.
struct Reader {
    reads: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Reader {
    fn start(yard: &Yard) -> Self {
        let (reads, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (client, stores) = (yard.client.clone(), yard.stores.clone());
        let task = {
            let (reads, stop) = (reads.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    stores.work.gauges().await.unwrap();
                    let page = ListPage {
                        before: None,
                        limit: 50,
                    };
                    client.list(&Filter::default(), &page).await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                    pass(millis(100)).await; // real time: as a person's dashboard would
                }
            })
        };
        Self { reads, stop, task }
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.reads.load(Ordering::Relaxed)
    }
}

impl Page {
    /// The store calls that failed, by operation.
    fn store_errors(&self) -> Vec<(String, u64)> {
        let prefix = "leasehold_store_errors_total{operation=\"";
        let lines = self.0.lines().filter_map(|line| line.strip_prefix(prefix));
        let errors = lines.filter_map(|line| {
            let (operation, value) = line.split_once("\"} ")?;
            Some((operation.to_owned(), value.parse().unwrap()))
        });
        errors.filter(|(_, count)| *count > 0).collect()
    }
}

/// Two processes of four slots on one file, a producer, a reader, and the locks of an outside writer.
/// The executions of each item, and what the processes counted.
async fn under_locks(scale: &Scale) -> (Yard, HashMap<ItemId, usize>, Vec<Page>) {
    let yard = Yard::new();
    let role = |name: &str| Role {
        busy_ms: u64::try_from(scale.busy.as_millis()).unwrap(),
        lease_ms: u64::try_from(scale.lease.as_millis()).unwrap(),
        ..yard.role(name)
    };
    let workers = [Process::start(&role("one")), Process::start(&role("two"))];
    let reader = Reader::start(&yard);
    let mut ids = Vec::new();
    let locks = async {
        for _ in 0..scale.locks {
            pass(scale.between).await; // real time: work goes on between the locks
            hold_lock(&yard, scale.lock).await;
        }
    };
    let produce = async {
        for n in 0..scale.items {
            // Some take long enough to be running whenever a lock is taken.
            let ms = if n % 20 == 0 { 300 } else { 2 };
            ids.push(enqueue(&yard, ms).await);
            pass(millis(1)).await; // real time: a producer with something else to do
        }
    };
    tokio::join!(locks, produce);
    let limit = Duration::from_mins(1) + scale.lock * 4;
    within(limit, "every item is done", async || {
        let gauges = yard.stores.work.gauges().await.unwrap();
        gauges.lanes.is_empty().then_some(())
    })
    .await;
    let reads = reader.stop().await;
    assert!(reads >= 5, "{reads}");
    let mut pages = Vec::new();
    for mut worker in workers {
        assert!(
            worker.has_ended().is_none(),
            "a worker process did not live on"
        );
        pages.push(worker.stop().await);
    }
    let mut executions: HashMap<String, usize> = HashMap::new();
    for entry in yard.diary() {
        if entry.what == "began" {
            *executions.entry(entry.item).or_default() += 1;
        }
    }
    let mut counted = HashMap::new();
    for id in ids {
        assert_eq!(yard.item(id).await.status, Status::Done);
        counted.insert(
            id,
            executions.get(&id.to_string()).copied().unwrap_or_default(),
        );
    }
    let done = r#"kind="STEP",outcome="done""#;
    let accepted: u64 = pages
        .iter()
        .map(|page| page.series("leasehold_items_finished_total", done))
        .sum();
    assert_eq!(accepted, scale.items as u64, "settled twice, or not at all");
    (yard, counted, pages)
}

/// Asks again while the file is locked, as the error says one may.
async fn enqueue(yard: &Yard, ms: u64) -> ItemId {
    let id = ItemId::mint();
    loop {
        match yard.client.enqueue(&Step { ms }).id(id).await {
            Ok(_) => return id,
            Err(leasehold::ClientError::Store(error)) if error.is_passing() => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// LITE-1, locks shorter than the busy timeout: no claim, renewal or settle surfaces an error, and
/// every item runs exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_shorter_than_the_busy_timeout_are_waited_for() {
    let scale = few_or(
        Scale {
            items: 400,
            busy: millis(2_000),
            lease: millis(4_000),
            lock: millis(800),
            locks: 2,
            between: millis(600),
        },
        Scale {
            items: 5_000,
            busy: millis(5_000),
            lease: Duration::from_secs(10),
            lock: millis(2_000),
            locks: 6,
            between: millis(8_000),
        },
    );
    let (_yard, executions, pages) = under_locks(&scale).await;
    for page in pages {
        assert_eq!(page.store_errors(), [], "operations that surfaced an error");
    }
    let twice: Vec<_> = executions
        .iter()
        .filter(|(_, count)| **count != 1)
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
}

/// LITE-1, a lock longer than the busy timeout and the lease: the error passes, holders whose lease
/// may have lapsed stop themselves, the processes live on, none is lost and none settled twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_longer_than_the_lease_loses_nothing() {
    let scale = few_or(
        Scale {
            items: 300,
            busy: millis(500),
            lease: millis(1_000),
            lock: millis(3_000),
            locks: 1,
            between: millis(600),
        },
        Scale {
            items: 5_000,
            busy: millis(5_000),
            lease: Duration::from_secs(10),
            lock: millis(30_000),
            locks: 1,
            between: Duration::from_secs(10),
        },
    );
    let (_yard, executions, pages) = under_locks(&scale).await;
    let errors: Vec<_> = pages.iter().flat_map(Page::store_errors).collect();
    assert!(!errors.is_empty(), "the lock was not felt");
    assert!(executions.values().all(|count| *count >= 1));
}
