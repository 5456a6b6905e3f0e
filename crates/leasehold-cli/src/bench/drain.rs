//! How fast a backlog goes: as it is, with a million behind it, and while nothing dead may be removed.

use std::time::Duration;

use leasehold::Client;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::machine::{Stopwatch, resident_mib};
use super::place::Place;
use super::spent::Cost;
use super::trial::{Handled, Running, Trial, enqueue_batch};
use super::{Arguments, broke, enqueue};
use crate::failure::Failure;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Drained {
    /// Settled, not only handled.
    pub(super) items: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    #[serde(flatten)]
    pub(super) cost: Cost,
    pub(super) items_per_settle: f64,
    /// Resident memory before the worker starts, and its peak while it drains, MiB.
    pub(super) resident_before_mib: f64,
    pub(super) resident_peak_mib: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Backlog {
    pub(super) without: Drained,
    pub(super) with: Drained,
    /// Its rate with the backlog, in parts of that without.
    pub(super) ratio: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pinned {
    pub(super) items: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    /// Of the first and of the last ten seconds, or a third each where it was shorter. The very first
    /// second is left out, which begins with nothing to do.
    pub(super) first_per_second: f64,
    pub(super) last_per_second: f64,
    pub(super) last_to_first: f64,
    #[serde(flatten)]
    pub(super) cost: Cost,
    /// Items of each second.
    pub(super) series: Vec<u64>,
}

/// Between two looks at this process's memory.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How far items are enqueued ahead of the worker: enough that it never runs dry during a call.
const AHEAD: u64 = 20_000;

/// Drains `--items` items with so many more behind them.
pub(super) async fn measure(
    args: &Arguments,
    place: &mut Place,
    behind: u64,
) -> Result<Drained, Failure> {
    let trial = Trial::open(place).await?;
    enqueue::fill(&trial, args, args.items + behind).await?;
    place.age().await?;
    let handled = Handled::default();
    let worker = trial.worker(args.worker_settings(), handled.executor()?)?;
    let resident_before_mib = resident_mib();
    let (before, watch) = (place.spent().await?, Stopwatch::start());
    let running = Running::start(worker);
    let mut resident_peak_mib = resident_before_mib;
    let items = {
        let mut settled = std::pin::pin!(running.settled(args.items, &handled));
        loop {
            tokio::select! {
                items = &mut settled => break items?,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    resident_peak_mib = resident_peak_mib.max(resident_mib());
                }
            }
        }
    };
    let seconds = watch.seconds();
    let cost = before.until(&place.spent().await?, items);
    let settles = running.metrics.sum("leasehold_settle_batch_size_count");
    running.stop().await?;
    Ok(Drained {
        items,
        seconds,
        per_second: items as f64 / seconds,
        cost,
        items_per_settle: items as f64 / settles.max(1.0),
        resident_before_mib,
        resident_peak_mib,
    })
}

pub(super) async fn backlog(args: &Arguments, place: &mut Place) -> Result<Backlog, Failure> {
    let without = measure(args, place, 0).await?;
    place.discard().await?;
    let with = measure(args, place, args.backlog).await?;
    let ratio = with.per_second / without.per_second;
    Ok(Backlog {
        without,
        with,
        ratio,
    })
}

/// Keeps a worker and whoever enqueues busy for `--seconds`.
pub(super) async fn pinned(args: &Arguments, place: &mut Place) -> Result<Pinned, Failure> {
    let trial = Trial::open(place).await?;
    let handled = Handled::default();
    let worker = trial.worker(args.worker_settings(), handled.executor()?)?;
    let held = place.pin().await?;
    let (before, watch) = (place.spent().await?, Stopwatch::start());
    let running = Running::start(worker);
    // Ends with the set, however this ends.
    let mut ahead = JoinSet::new();
    ahead.spawn(keep_ahead(
        trial.client.clone(),
        args.batch,
        handled.clone(),
    ));
    let (mut series, mut counted) = (Vec::new(), 0);
    for second in 1..=args.seconds {
        let rest = Duration::from_secs(second).saturating_sub(watch.elapsed());
        tokio::select! {
            Some(ended) = ahead.join_next() => ended.map_err(broke)??,
            () = tokio::time::sleep(rest) => {}
        }
        let count = handled.count();
        series.push(count - counted);
        counted = count;
    }
    let (seconds, items) = (watch.seconds(), handled.count());
    let cost = before.until(&place.spent().await?, items);
    ahead.shutdown().await;
    running.stop().await?;
    drop(held);
    let (first_per_second, last_per_second) = ends(&series);
    Ok(Pinned {
        items,
        seconds,
        per_second: items as f64 / seconds,
        first_per_second,
        last_per_second,
        last_to_first: last_per_second / first_per_second.max(1.0),
        cost,
        series,
    })
}

/// Enqueues for ever, and ends only by an error.
async fn keep_ahead(client: Client, batch: u64, handled: Handled) -> Result<(), Failure> {
    let mut sent = 0;
    loop {
        if sent < handled.count() + AHEAD {
            enqueue_batch(&client, sent, batch).await?;
            sent += batch;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The mean of the first and of the last seconds.
fn ends(series: &[u64]) -> (f64, f64) {
    let settled = series.get(1..).unwrap_or_default();
    let width = (settled.len() / 3).clamp(1, 10).min(settled.len());
    let (first, last) = (settled.get(..width), settled.get(settled.len() - width..));
    let mean = |seconds: Option<&[u64]>| {
        let seconds = seconds.unwrap_or_default();
        seconds.iter().sum::<u64>() as f64 / seconds.len().max(1) as f64
    };
    (mean(first), mean(last))
}

#[cfg(test)]
mod tests;
