//! One worker of the demo, in a process of its own.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    HandlerError, InProcess, Json, Metrics, QueueSource, Run, Stopper, Work, Worker, WorkerSettings,
};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::plan::{LEASE, Plan};
use super::report::{Report, Reporting};
use crate::database;
use crate::failure::{Answer, Failure};
use crate::runtime;

/// What the demo gives a worker that it starts.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    name: String,
    #[arg(long)]
    queue: PathBuf,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    capacity: u32,
    #[arg(long)]
    pace_ms: u64,
}

/// The work: one file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HashFile {
    /// Relative to the folder.
    pub(super) path: String,
}

impl Work for HashFile {
    const KIND: &'static str = "HASH_FILE";
    // Enough for an item that is unlucky every time a worker is lost.
    const MAX_ATTEMPTS: u32 = 10;
}

/// The result, as it stands on the item.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Hashed {
    /// Which file.
    pub(super) path: String,
    /// What was found.
    #[serde(flatten)]
    pub(super) digest: Digest,
    /// Who did it.
    pub(super) worker: String,
}

/// Runs one worker until its standard input ends.
pub(crate) fn work(arguments: &Arguments) -> Result<Answer, Failure> {
    runtime()?.block_on(run(arguments))
}

/// For handlers; the loop and the keeper have threads of their own.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    runtime::of_threads(2)
}

/// What kept a worker from its work.
pub(super) fn broken(error: &dyn std::error::Error) -> Failure {
    Failure::failed("a worker of the demo did not work").because(error)
}

async fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    let options = database::options().without_creating().without_migrating();
    let store = leasehold_sqlite::open(&arguments.queue, options).map_err(database::refusal)?;
    let source = Reporting {
        queue: QueueSource::new(store.stores()),
    };
    let desk = Arc::new(Desk {
        name: arguments.name.clone(),
        folder: arguments.folder.clone(),
        pace: Duration::from_millis(arguments.pace_ms),
    });
    let handler = move |work: HashFile, run: Run| hash(desk.clone(), work, run);
    let executor = InProcess::new()
        .handle::<HashFile>(handler)
        .map_err(|error| broken(&error))?;
    let worker =
        Worker::new(source, executor, settings(arguments)).map_err(|error| broken(&error))?;
    let metrics = worker.metrics();
    Report::Started {
        worker: worker.id().to_string(),
    }
    .tell();
    worker
        .run(stopped_by_input())
        .await
        .map_err(|error| broken(&error))?;
    Report::Drained {
        done: count(
            &metrics,
            "leasehold_items_finished_total",
            "outcome=\"done\"",
        ),
        refused: count(&metrics, "leasehold_stale_writes_refused_total", ""),
    }
    .tell();
    Ok(Answer::Yes)
}

fn settings(arguments: &Arguments) -> WorkerSettings {
    WorkerSettings {
        name: arguments.name.clone(),
        capacity: arguments.capacity,
        ..quick()
    }
}

/// All that waits is made short, so that what takes minutes in production takes seconds here.
pub(super) fn quick() -> WorkerSettings {
    WorkerSettings {
        lease: LEASE,
        poll_interval: Duration::from_millis(100),
        heartbeat_interval: Duration::from_secs(1),
        sweep_interval: Duration::from_millis(200),
        sweep_budget: Duration::from_millis(200),
        requeue_spread: Duration::from_millis(200),
        stop_grace: Duration::from_secs(1),
        drain_timeout: Duration::from_secs(3),
        drain_kill: Duration::from_secs(1),
        ..WorkerSettings::default()
    }
}

/// Asks for a drain when the standard input ends: the demo closed it, or is gone.
pub(super) fn stopped_by_input() -> Stopper {
    let stopper = Stopper::new();
    let asked = stopper.clone();
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        let mut input = std::io::stdin().lock();
        while input.read(&mut rest).is_ok_and(|length| length > 0) {}
        asked.stop();
    });
    stopper
}

struct Desk {
    name: String,
    folder: PathBuf,
    pace: Duration,
}

/// The handler. It does not listen to its cancellation, on purpose: what a frozen worker brings when
/// it is let go must reach the store, to be refused there.
async fn hash(desk: Arc<Desk>, work: HashFile, run: Run) -> Result<Json<Hashed>, HandlerError> {
    let path = desk.folder.join(Path::new(&work.path));
    let digest = tokio::task::spawn_blocking(move || Digest::of_file(&path)).await?;
    // A file that went away since it was found will not come back by trying again.
    let digest = digest.map_err(|error| HandlerError::from(error).for_good())?;
    let [.., bits] = run.item().id.as_uuid().into_bytes();
    tokio::time::sleep(Plan::spread(desk.pace, bits)).await;
    Ok(Json(Hashed {
        path: work.path,
        digest,
        worker: desk.name.clone(),
    }))
}

/// The sum of a metric's series that carry the label.
fn count(metrics: &Metrics, name: &str, label: &str) -> u64 {
    let page = metrics.encode();
    page.lines()
        .filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '))
        .filter(|(labels, _)| labels.contains(label))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}
