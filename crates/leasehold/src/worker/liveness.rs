//! Says that the worker lives, and at the very end that it is gone. Best effort: nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::WorkerId;
use leasehold_core::store::LivenessStore;
use leasehold_core::store::liveness::WorkerBeat;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::drive::Load;
use crate::telemetry::Metrics;

/// Going offline may take this long; the beat expires by itself otherwise.
const OFFLINE_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Liveness {
    pub(super) store: Arc<dyn LivenessStore>,
    pub(super) beat: WorkerBeat,
    pub(super) interval: Duration,
    pub(super) load: watch::Receiver<Load>,
    pub(super) metrics: Arc<Metrics>,
}

impl Liveness {
    /// Publishes until told to stop, then marks the worker offline.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut published = true;
        loop {
            let load = *self.load.borrow_and_update();
            self.beat.running = load.running;
            self.beat.draining = load.draining;
            let publish = self.store.publish(&self.beat, self.interval * 3);
            let publish = tokio::time::timeout(self.interval, publish);
            let answer = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                answer = publish => answer,
            };
            let problem = match answer {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {:?}", self.interval)),
            };
            self.note(problem, &mut published);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(self.interval) => {}
            }
        }
        offline(&*self.store, &self.beat.worker).await;
    }

    /// Logs the change, not each failure: an outage is one event.
    fn note(&self, problem: Option<String>, published: &mut bool) {
        match problem {
            Some(problem) => {
                self.metrics.publish_error();
                if std::mem::replace(published, false) {
                    tracing::warn!(problem, "liveness is not published; claiming goes on");
                }
            }
            None => {
                if !std::mem::replace(published, true) {
                    tracing::info!("liveness is published again");
                }
            }
        }
    }
}

async fn offline(store: &dyn LivenessStore, worker: &WorkerId) {
    let problem = match tokio::time::timeout(OFFLINE_PATIENCE, store.remove(worker)).await {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {OFFLINE_PATIENCE:?}"),
    };
    tracing::warn!(
        problem,
        "could not be marked offline; the last beat will expire"
    );
}
