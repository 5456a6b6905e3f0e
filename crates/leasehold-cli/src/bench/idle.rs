//! What a worker with nothing to do costs.

use std::time::Duration;

use leasehold::WorkerSettings;
use serde::{Deserialize, Serialize};

use super::machine::Stopwatch;
use super::place::Place;
use super::trial::{Handled, Running, Trial};
use crate::failure::Failure;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Idle {
    pub(super) seconds: f64,
    pub(super) percent_of_a_core: f64,
    /// The server's; `null` where it is not to be seen.
    pub(super) server_percent_of_a_core: Option<f64>,
}

/// Enough to see a regular tick, short enough to wait for.
const IDLE_FOR: Duration = Duration::from_secs(5);

pub(super) async fn measure(place: &mut Place) -> Result<Idle, Failure> {
    let trial = Trial::open(place).await?;
    let worker = trial.worker(WorkerSettings::default(), Handled::default().executor()?)?;
    let running = Running::start(worker);
    // The start itself is not idling.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, watch) = (place.spent().await?, Stopwatch::start());
    tokio::time::sleep(IDLE_FOR).await;
    let (seconds, after) = (watch.seconds(), place.spent().await?);
    running.stop().await?;
    let server = before.server.zip(after.server);
    Ok(Idle {
        seconds,
        percent_of_a_core: 100.0 * before.worker.seconds_until(after.worker) / seconds,
        server_percent_of_a_core: server.map(|(before, after)| 100.0 * (after - before) / seconds),
    })
}
