//! What a worker process of a case does: it works on the case's file until it is told to stop.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    HandlerError, InProcess, QueueSource, Run, Stopper, SystemClock, Work, Worker, WorkerSettings,
};
use leasehold_sqlite::{Durability, Options};
use serde::{Deserialize, Serialize};

use crate::harness::pass;

/// Says what a worker process does; without it the role is a test that passes.
pub(super) const ROLE: &str = "LEASEHOLD_TEST_ROLE";

/// How a worker process is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Role {
    /// Holds the file, and what the process writes down.
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) capacity: u32,
    pub(super) lease_ms: u64,
    pub(super) sweep_ms: u64,
    pub(super) poll_ms: u64,
    pub(super) busy_ms: u64,
}

impl Role {
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("queue.db")
    }

    pub(super) fn settings(&self) -> WorkerSettings {
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

    pub(super) fn open(&self) -> QueueSource {
        QueueSource::new(open(&self.file(), millis(self.busy_ms)).stores())
    }
}

pub(super) const fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A file that survives a kill, and need not survive a power cut: the cases start no fire.
pub(super) fn open(file: &Path, busy_timeout: Duration) -> Arc<leasehold_sqlite::SqliteStore> {
    let options = Options::new(Arc::new(SystemClock))
        .with_durability(Durability::Normal)
        .with_busy_timeout(busy_timeout);
    leasehold_sqlite::open(file, options).unwrap()
}

/// An item that takes so long, and listens.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) ms: u64,
}

impl Work for Step {
    const KIND: &'static str = "STEP";
}

/// An item that never ends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hang {}

impl Work for Hang {
    const KIND: &'static str = "HANG";
}

/// An item that kills its process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Poison {}

impl Work for Poison {
    const KIND: &'static str = "POISON";
}

/// One line of what handlers write down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) what: String,
    pub(super) item: String,
    pub(super) attempt: u32,
    pub(super) process: u32,
}

/// Where every handler of a case writes down what it does. One write a line, so that lines of several
/// processes do not mix, and no buffer, so that nothing is lost with the process.
#[derive(Debug, Clone)]
pub(super) struct Diary(PathBuf);

impl Diary {
    pub(super) fn of(folder: &Path) -> Self {
        Self(folder.join("diary"))
    }

    fn note(&self, what: &str, run: &Run) {
        let entry = Entry {
            what: what.to_owned(),
            item: run.item().id.to_string(),
            attempt: run.attempt(),
            process: std::process::id(),
        };
        let mut line = serde_json::to_string(&entry).unwrap();
        line.push('\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.0)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }
}

fn executor(diary: &Diary) -> InProcess {
    let step = {
        let diary = diary.clone();
        move |step: Step, run: Run| {
            let diary = diary.clone();
            async move {
                diary.note("began", &run);
                tokio::select! {
                    () = pass(millis(step.ms)) => {
                        diary.note("ended", &run);
                        Ok(())
                    }
                    () = run.cancelled() => {
                        diary.note("stopped", &run);
                        Err(HandlerError::new("stopped half-way"))
                    }
                }
            }
        }
    };
    let hang = {
        let diary = diary.clone();
        move |_: Hang, run: Run| {
            diary.note("began", &run);
            std::future::pending::<()>()
        }
    };
    let poison = {
        let diary = diary.clone();
        move |_: Poison, run: Run| {
            diary.note("began", &run);
            async { super::yard::kill_self() }
        }
    };
    let executor = InProcess::new().handle::<Step>(step).unwrap();
    let executor = executor.handle::<Hang>(hang).unwrap();
    executor.handle::<Poison>(poison).unwrap()
}

/// The worker process. Run as a test it passes at once: [`ROLE`] is not set then.
#[test]
fn worker() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let role: Role = serde_json::from_str(&role).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let executor = executor(&Diary::of(&role.folder));
        let worker = Worker::new(role.open(), executor, role.settings()).unwrap();
        let metrics = worker.metrics();
        let stopper = Stopper::new();
        stopper.on_signals().unwrap();
        worker.run(stopper).await.unwrap();
        let page = role.folder.join(format!("metrics-{}", std::process::id()));
        std::fs::write(page, metrics.encode()).unwrap();
    });
}
