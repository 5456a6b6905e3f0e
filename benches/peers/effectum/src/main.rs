//! Drains no-op jobs with effectum, at its fastest documented setting: FILE [JOBS] [CONCURRENCY].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use effectum::{Job, JobRunner, Queue, RunningJob, Worker};

static DONE: AtomicU64 = AtomicU64::new(0);

async fn noop(_job: RunningJob, _context: Arc<()>) -> Result<(), effectum::Error> {
    DONE.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = PathBuf::from(arguments.next().expect("FILE [JOBS] [CONCURRENCY]"));
    let jobs: u64 = arguments.next().map_or(10_000, |text| text.parse().expect("JOBS"));
    let concurrency: u16 = arguments.next().map_or(50, |text| text.parse().expect("CONCURRENCY"));
    let queue = Queue::new(&file).await.expect("the queue opens");
    let began = Instant::now();
    for chunk in (0..jobs).collect::<Vec<_>>().chunks(1_000) {
        let batch = chunk.iter().map(|id| {
            Job::builder("noop").json_payload(id).expect("a payload").build()
        });
        queue.add_jobs(batch.collect()).await.expect("jobs are added");
    }
    let enqueued = jobs as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    let runner = JobRunner::builder("noop", noop).build();
    let _worker = Worker::builder(&queue, Arc::new(()))
        .max_concurrency(concurrency)
        .jobs([runner])
        .build()
        .await
        .expect("the worker starts");
    while DONE.load(Ordering::Relaxed) < jobs {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let drained = jobs as f64 / began.elapsed().as_secs_f64();
    println!(r#"{{"peer":"effectum 0.7.0","jobs":{jobs},"concurrency":{concurrency},"enqueue_bulk_per_second":{enqueued:.0},"drain_per_second":{drained:.0}}}"#);
}
