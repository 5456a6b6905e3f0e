//! How fast items come in.

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::machine::Stopwatch;
use super::place::Place;
use super::spent::Cost;
use super::trial::{Noop, Trial, enqueue_batch};
use super::{Arguments, broke};
use crate::failure::Failure;

/// As many as a busy web server has at the queue at once.
pub(super) const CALLERS: u64 = 16;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Enqueued {
    /// In calls of `--batch`, one after the other.
    pub(super) bulk: Pace,
    /// One at a time, each durable before the next.
    pub(super) single: Pace,
    /// The same, from so many callers at once.
    pub(super) single_16_callers: Pace,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pace {
    pub(super) items: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    #[serde(flatten)]
    pub(super) cost: Cost,
}

pub(super) async fn measure(args: &Arguments, place: &mut Place) -> Result<Enqueued, Failure> {
    let trial = Trial::open(place).await?;
    let bulk = paced(place, args.items, fill(&trial, args, args.items)).await?;
    // On an empty store again: no index is deep yet where somebody waits for a single answer.
    let trial = Trial::open(place).await?;
    let one = paced(place, args.singles, singles(&trial, args.singles, 1)).await?;
    let items = args.singles * CALLERS;
    let many = paced(place, items, singles(&trial, items, CALLERS)).await?;
    Ok(Enqueued {
        bulk,
        single: one,
        single_16_callers: many,
    })
}

/// Enqueues so many items in bulk.
pub(super) async fn fill(trial: &Trial, args: &Arguments, items: u64) -> Result<(), Failure> {
    let mut sent = 0;
    while sent < items {
        let size = args.batch.min(items - sent);
        enqueue_batch(&trial.client, sent, size).await?;
        sent += size;
    }
    Ok(())
}

async fn singles(trial: &Trial, items: u64, callers: u64) -> Result<(), Failure> {
    let mut calling = JoinSet::new();
    for caller in 0..callers {
        let client = trial.client.clone();
        calling.spawn(async move {
            for id in 0..items / callers {
                let id = caller * items + id;
                client.enqueue(&Noop { id }).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(ended) = calling.join_next().await {
        ended.map_err(broke)??;
    }
    Ok(())
}

async fn paced(
    place: &Place,
    items: u64,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<Pace, Failure> {
    let (before, watch) = (place.spent().await?, Stopwatch::start());
    work.await?;
    let seconds = watch.seconds();
    Ok(Pace {
        items,
        seconds,
        per_second: items as f64 / seconds,
        cost: before.until(&place.spent().await?, items),
    })
}
