//! A fresh store with a client and, when asked, a worker on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{
    Client, Drained, InProcess, Metrics, NewItem, QueueSource, Run, Stopper, Stores, Work, Worker,
    WorkerError, WorkerSettings,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::broke;
use super::machine::Stopwatch;
use super::place::Place;
use crate::failure::Failure;

/// Work that is nothing but its overhead.
#[derive(Serialize, Deserialize)]
pub(super) struct Noop {
    pub(super) id: u64,
}

impl Work for Noop {
    const KIND: &'static str = "BENCH_NOOP";
}

/// A queue that does not move at all must not hang a script for ever.
const PATIENCE: Duration = Duration::from_mins(10);

pub(super) struct Trial {
    stores: Stores,
    pub(super) client: Client,
}

impl Trial {
    pub(super) async fn open(place: &mut Place) -> Result<Self, Failure> {
        let stores = place.open().await?;
        let client = Client::single_tenant(stores.clone())?;
        Ok(Self { stores, client })
    }

    pub(super) fn worker(
        &self,
        settings: WorkerSettings,
        executor: InProcess,
    ) -> Result<Worker<QueueSource, InProcess>, Failure> {
        Worker::new(QueueSource::new(self.stores.clone()), executor, settings).map_err(broke)
    }
}

/// Enqueues so many items that do nothing in one call.
pub(super) async fn enqueue_batch(client: &Client, from: u64, items: u64) -> Result<(), Failure> {
    let items = (from..from + items)
        .map(|id| client.typed(&Noop { id }))
        .collect::<Result<Vec<NewItem>, _>>()?;
    client.enqueue_many(items).await?;
    Ok(())
}

/// Counts what handlers saw: cheaper to look at than the metrics.
#[derive(Clone, Default)]
pub(super) struct Handled(Arc<AtomicU64>);

impl Handled {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs work that does nothing.
    pub(super) fn executor(&self) -> Result<InProcess, Failure> {
        let handled = self.clone();
        let noop = move |_: Noop, _: Run| {
            handled.add_one();
            async {}
        };
        InProcess::new().handle(noop).map_err(broke)
    }
}

/// A worker at work.
pub(super) struct Running {
    pub(super) metrics: Arc<Metrics>,
    stopper: Stopper,
    ended: JoinHandle<Result<Drained, WorkerError>>,
}

impl Running {
    pub(super) fn start(worker: Worker<QueueSource, InProcess>) -> Self {
        let (metrics, stopper) = (worker.metrics(), Stopper::new());
        let ended = tokio::spawn(worker.run(stopper.clone()));
        Self {
            metrics,
            stopper,
            ended,
        }
    }

    /// How many items were settled.
    pub(super) fn finished(&self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of items"
        )]
        let count = self.metrics.sum("leasehold_items_finished_total") as u64;
        count
    }

    /// Waits until so many are settled; answers how many are then.
    pub(super) async fn settled(&self, items: u64, handled: &Handled) -> Result<u64, Failure> {
        let watch = Stopwatch::start();
        // Until they are handled, looking more often would only cost.
        wait(watch, || handled.count() >= items, Duration::from_millis(5)).await?;
        let settled = || self.finished() >= items;
        wait(watch, settled, Duration::from_micros(500)).await?;
        Ok(self.finished())
    }

    pub(super) async fn stop(self) -> Result<(), Failure> {
        self.stopper.stop();
        self.ended.await.map_err(broke)?.map_err(broke)?;
        Ok(())
    }
}

async fn wait(
    watch: Stopwatch,
    until: impl Fn() -> bool,
    look_every: Duration,
) -> Result<(), Failure> {
    while !until() {
        if watch.elapsed() > PATIENCE {
            return Err(broke(format!("items were left after {PATIENCE:?}")));
        }
        tokio::time::sleep(look_every).await;
    }
    Ok(())
}
