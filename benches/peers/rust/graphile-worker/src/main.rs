//! The Rust port of graphile-worker, with the settings of its own performance benchmark.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use measure::setting;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;

#[derive(Clone, Serialize, Deserialize)]
struct Noop {
    id: u64,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        measure::handled();
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Peer {
    worker: Arc<Worker>,
    utils: Arc<WorkerUtils>,
}

impl measure::Peer for Peer {
    /// The worker has migrated already.
    async fn setup(&self) {}

    async fn one(&self, id: u64) {
        let added = self.utils.add_job(Noop { id }, JobSpec::default()).await;
        added.expect("the job is added");
    }

    async fn many(&self, ids: Range<u64>) {
        let spec = JobSpec::default();
        let jobs: Vec<_> = ids.map(|id| (Noop { id }, &spec)).collect();
        let added = self.utils.add_jobs::<Noop>(&jobs).await;
        added.expect("the jobs are added");
    }

    async fn start(&self) {
        let worker = self.worker.clone();
        tokio::spawn(async move { worker.run().await.expect("the worker runs") });
    }
}

#[tokio::main]
async fn main() {
    let pool = PgPoolOptions::new().max_connections(25);
    let pool = pool.connect(&measure::url()).await.expect("the database");
    let worker = WorkerOptions::default()
        .pg_pool(pool)
        .define_job::<Noop>()
        .concurrency(setting("CONCURRENCY", 500))
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(Duration::from_millis(5))
        .local_queue(LocalQueueConfig::default().with_size(setting("LOCAL_QUEUE", 5_000)))
        .init()
        .await
        .expect("the worker starts");
    let utils = Arc::new(worker.create_utils());
    measure::run(Peer {
        worker: Arc::new(worker),
        utils,
    })
    .await
}
