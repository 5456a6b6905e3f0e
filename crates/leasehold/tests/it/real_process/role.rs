//! What a worker process of a case does: it works on the case's file until it is told to stop.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use leasehold::{HandlerError, InProcess, ItemId, QueueSource, Run, Stopper, Work, Worker};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::yard::{Page, Part, ROLE, Role, Yard, inserted, millis, pass};

impl Part for Role {
    const ARGUMENTS: &[&str] = &["--exact", "real_process::role::worker", "--nocapture"];

    fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Yard {
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

/// Dies as by the out-of-memory killer: no unwinding, no destructor.
fn kill_self() {
    kill_process(getpid(), Signal::KILL).unwrap();
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
            async { kill_self() }
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
        let source = QueueSource::new(role.stores());
        let worker = Worker::new(source, executor, role.settings()).unwrap();
        let metrics = worker.metrics();
        let stopper = Stopper::new();
        stopper.on_signals().unwrap();
        worker.run(stopper).await.unwrap();
        Page::write(&role.folder, &metrics);
    });
}
