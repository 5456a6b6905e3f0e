//! How long an item waits for its handler: on an idle queue, and beside sixteen callers that enqueue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{InProcess, Run, Work, WorkerSettings};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::enqueue::CALLERS;
use super::machine::{Stopwatch, median, percentile};
use super::place::Place;
use super::spent::Cost;
use super::trial::{Handled, Running, Trial};
use super::{Arguments, broke};
use crate::failure::Failure;

/// In milliseconds; of a pickup, from the call that enqueues to the handler's first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) items: u64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// The same from the call's answer on, which is when the item is durable.
    pub(super) after_answer_p50_ms: f64,
    pub(super) after_answer_p99_ms: f64,
    /// A small write and its sync, as `sync_ms`, timed between the pickups.
    pub(super) sync_p50_ms: f64,
    /// The median above what two such syncs take: the part that is ours.
    pub(super) p50_above_two_syncs_ms: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Mixed {
    pub(super) items: u64,
    pub(super) seconds: f64,
    /// Enqueued and settled.
    pub(super) per_second: f64,
    pub(super) pickup_p50_ms: f64,
    pub(super) pickup_p99_ms: f64,
    /// Of the call that enqueues.
    pub(super) enqueue_p50_ms: f64,
    pub(super) enqueue_p99_ms: f64,
    #[serde(flatten)]
    pub(super) cost: Cost,
}

/// Pickups that are not counted: the first ones prepare statements.
const WARM_UPS: u64 = 3;

/// A worker that has just started is not idle yet.
const IDLE_AFTER: Duration = Duration::from_millis(1_500);

/// Work that knows when it was enqueued.
#[derive(Serialize, Deserialize)]
struct Timed {
    id: u64,
    /// By the bench's stopwatch.
    sent_nanoseconds: u64,
}

impl Work for Timed {
    const KIND: &'static str = "BENCH_TIMED";
}

/// What the handlers of timed work saw.
#[derive(Clone)]
struct Seen {
    clock: Stopwatch,
    handled: Handled,
    /// How long each waited, by id.
    waited_nanoseconds: Arc<[AtomicU64]>,
    any: Arc<Notify>,
}

impl Seen {
    fn of(items: u64) -> Self {
        Self {
            clock: Stopwatch::start(),
            handled: Handled::default(),
            waited_nanoseconds: (0..items).map(|_| AtomicU64::default()).collect(),
            any: Arc::default(),
        }
    }

    fn timed(&self, id: u64) -> Timed {
        let sent_nanoseconds = self.clock.nanoseconds();
        Timed {
            id,
            sent_nanoseconds,
        }
    }

    /// Milliseconds since it was sent.
    fn since(&self, timed: &Timed) -> f64 {
        milliseconds(self.clock.nanoseconds() - timed.sent_nanoseconds)
    }

    fn executor(&self) -> Result<InProcess, Failure> {
        let seen = self.clone();
        let handler = move |timed: Timed, _: Run| {
            let waited = seen.clock.nanoseconds() - timed.sent_nanoseconds;
            let own = usize::try_from(timed.id).ok();
            if let Some(own) = own.and_then(|id| seen.waited_nanoseconds.get(id)) {
                own.store(waited, Ordering::Release);
            }
            seen.handled.add_one();
            seen.any.notify_one();
            async {}
        };
        InProcess::new().handle(handler).map_err(broke)
    }

    /// In milliseconds, by id.
    fn waited(&self) -> Vec<f64> {
        let nanoseconds = self.waited_nanoseconds.iter();
        nanoseconds
            .map(|one| milliseconds(one.load(Ordering::Acquire)))
            .collect()
    }
}

pub(super) async fn latency(args: &Arguments, place: &mut Place) -> Result<Latency, Failure> {
    let trial = Trial::open(place).await?;
    let seen = Seen::of(args.singles + WARM_UPS);
    let running = Running::start(trial.worker(WorkerSettings::default(), seen.executor()?)?);
    tokio::time::sleep(IDLE_AFTER).await;
    let (mut answers, mut syncs) = (Vec::new(), Vec::new());
    for id in 0..args.singles + WARM_UPS {
        let timed = seen.timed(id);
        trial.client.enqueue(&timed).await?;
        answers.push(seen.since(&timed));
        seen.any.notified().await;
        running.settled(id + 1, &seen.handled).await?;
        // Disks change their pace by the second, so each pickup has its sync beside it.
        syncs.extend(place.sync_times(1).await?);
        // Never twice the same, so that no tick of the worker's is always met.
        tokio::time::sleep(Duration::from_millis(20 + id * 37 % 90)).await;
    }
    running.stop().await?;
    let counted = |times: Vec<f64>| {
        let by_id = (0..).zip(times).filter(|(id, _)| *id >= WARM_UPS);
        by_id.map(|(_, time)| time)
    };
    let mut waited: Vec<f64> = counted(seen.waited()).collect();
    let mut after: Vec<f64> = waited
        .iter()
        .zip(counted(answers))
        .map(|(waited, answer)| waited - answer)
        .collect();
    waited.sort_by(f64::total_cmp);
    after.sort_by(f64::total_cmp);
    let (p50_ms, sync_p50_ms) = (percentile(&waited, 0.5), median(syncs));
    Ok(Latency {
        items: args.singles,
        p50_ms,
        p99_ms: percentile(&waited, 0.99),
        after_answer_p50_ms: percentile(&after, 0.5),
        after_answer_p99_ms: percentile(&after, 0.99),
        sync_p50_ms,
        p50_above_two_syncs_ms: p50_ms - 2.0 * sync_p50_ms,
    })
}

pub(super) async fn mixed(args: &Arguments, place: &mut Place) -> Result<Mixed, Failure> {
    let trial = Trial::open(place).await?;
    let items = args.items;
    let seen = Seen::of(items);
    let worker = trial.worker(args.worker_settings(), seen.executor()?)?;
    let (before, watch) = (place.spent().await?, Stopwatch::start());
    let running = Running::start(worker);
    let mut calling = JoinSet::new();
    for caller in 0..CALLERS {
        let (client, seen) = (trial.client.clone(), seen.clone());
        calling.spawn(async move {
            let mut calls = Vec::new();
            let mut id = caller;
            while id < items {
                let timed = seen.timed(id);
                client.enqueue(&timed).await?;
                calls.push(seen.since(&timed));
                id += CALLERS;
            }
            Ok::<_, Failure>(calls)
        });
    }
    let mut calls = Vec::new();
    while let Some(ended) = calling.join_next().await {
        calls.extend(ended.map_err(broke)??);
    }
    running.settled(items, &seen.handled).await?;
    let seconds = watch.seconds();
    let cost = before.until(&place.spent().await?, items);
    running.stop().await?;
    let mut waited = seen.waited();
    waited.sort_by(f64::total_cmp);
    calls.sort_by(f64::total_cmp);
    Ok(Mixed {
        items,
        seconds,
        per_second: items as f64 / seconds,
        pickup_p50_ms: percentile(&waited, 0.5),
        pickup_p99_ms: percentile(&waited, 0.99),
        enqueue_p50_ms: percentile(&calls, 0.5),
        enqueue_p99_ms: percentile(&calls, 0.99),
        cost,
    })
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
