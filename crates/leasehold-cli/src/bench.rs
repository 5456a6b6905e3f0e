//! `leasehold bench`: how fast this build is on this machine, in figures that can be repeated.
//!
//! Every profile runs on a fresh store, a SQLite file or a schema on a Postgres server, and says under which
//! durability it ran. Nothing is switched off: tokens, leases, idempotency keys, attempts, retention,
//! liveness, sweep.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::{
    Client, InProcess, Metrics, NewItem, QueueSource, Run, Stopper, Stores, Work, Worker,
    WorkerSettings,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::failure::{Answer, Failure};
use crate::runtime;
use crate::screen::{SCHEMA, Screen};
use crate::stops::Stops;

mod machine;
mod place;
mod report;

use machine::{Cpu, Stopwatch, resident_mib};
use place::Place;
use report::{Drain, Idle, Latency, Report};

/// Measure this build on this machine: enqueue, drain, pickup, idling.
///
/// Each profile runs on a fresh SQLite file of its own, or on a fresh schema of a Postgres server, with
/// everything on, and is deleted again. Compare ratios of one run, not figures of two.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to measure; all of it unless said.
    #[arg(long, value_enum, value_delimiter = ',')]
    profile: Vec<Profile>,

    /// How many items are enqueued and drained.
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one())]
    items: u64,

    /// How many items the worker runs at once.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    capacity: u32,

    /// How many items a bulk enqueue sends in one call.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one())]
    batch: u64,

    /// How many single items the latency and single-enqueue profiles send.
    #[arg(long, default_value_t = 500, value_parser = at_least_one())]
    singles: u64,

    /// Measure on that Postgres server, in schemas `leasehold_bench_…` that are dropped again. Its user must
    /// be allowed to create schemas. What survives a power cut is up to the server, and told; CPU and
    /// memory are those of this process, without the server's.
    #[arg(long, value_name = "URL", conflicts_with_all = ["durability", "dir"])]
    postgres: Option<String>,

    /// What survives a power cut: `full` (everything answered) or `normal` (all but the last moments).
    #[arg(long, value_enum, default_value_t = DurabilityName::Full)]
    durability: DurabilityName,

    /// Where the files are made; the system's folder for temporary files unless said. Mind that some
    /// systems keep that folder in memory, where nothing costs a sync.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Nothing can be measured of nothing.
fn at_least_one() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Enqueue in calls of `--batch`.
    EnqueueBulk,
    /// Enqueue one at a time, from one caller and from sixteen.
    EnqueueSingle,
    /// Drain a backlog of items that do nothing.
    Drain,
    /// From the call that enqueues one item to its handler's first line, on an idle queue.
    Latency,
    /// What a worker with nothing to do costs.
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DurabilityName {
    Full,
    Normal,
}

#[derive(Serialize, Deserialize)]
struct Noop {
    id: u64,
}

impl Work for Noop {
    const KIND: &'static str = "BENCH_NOOP";
}

/// Enough to see a regular tick, short enough to wait for.
const IDLE_FOR: Duration = Duration::from_secs(5);
/// A backlog that does not drain at all must not hang a script for ever.
const DRAIN_PATIENCE: Duration = Duration::from_mins(10);

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Answer, Failure> {
    let report = runtime::of_all_cores()?.block_on(measure_and_clear(arguments, screen))?;
    if screen.is_json() {
        screen.object(&report)?;
    } else {
        screen.table(&["what", "measured"], &report::rows(&report))?;
    }
    Ok(Answer::Yes)
}

fn broke(error: impl std::fmt::Display) -> Failure {
    Failure::failed("the bench did not come to its end").because(error)
}

/// Leaves nothing behind, however it ends: a file in a folder for temporary files is found some day, a
/// schema on somebody's server is not.
async fn measure_and_clear(args: &Arguments, screen: &Screen) -> Result<Report, Failure> {
    let mut stops = Stops::listen()?;
    let mut place = Place::make(args).await?;
    let measured = tokio::select! {
        measured = measure(args, &mut place, screen) => measured,
        () = stops.next() => Err(Failure::interrupted()),
    };
    let cleared = place.clear().await;
    let report = measured?;
    cleared?;
    Ok(report)
}

async fn measure(args: &Arguments, place: &mut Place, screen: &Screen) -> Result<Report, Failure> {
    let wants = |profile| args.profile.is_empty() || args.profile.contains(&profile);
    let mut report = Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        store: place.store(),
        server_version: place.server_version(),
        durability: place.durability(),
        items: args.items,
        capacity: args.capacity,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        ..Report::default()
    };
    screen.talk("timing a sync");
    report.sync_ms = median(place.sync_times(100).await?);
    if wants(Profile::EnqueueBulk) || wants(Profile::Drain) {
        screen.talk("enqueueing in bulk");
        let bench = Bench::on(place.open("bulk").await?)?;
        let rate = bench.enqueue_bulk(args).await?;
        report.enqueue_bulk_per_second = Some(rate);
        if wants(Profile::Drain) {
            screen.talk("draining");
            report.drain = Some(bench.drain(args).await?);
        }
    }
    if wants(Profile::EnqueueSingle) {
        screen.talk("enqueueing one at a time");
        let bench = Bench::on(place.open("single").await?)?;
        report.enqueue_single_per_second = Some(bench.enqueue_single(args.singles, 1).await?);
        let many = bench.enqueue_single(args.singles * 16, 16).await?;
        report.enqueue_single_16_callers_per_second = Some(many);
    }
    if wants(Profile::Latency) {
        screen.talk("picking up one at a time");
        let bench = Bench::on(place.open("latency").await?)?;
        report.pickup_milliseconds = Some(bench.latency(args, place).await?);
    }
    if wants(Profile::Idle) {
        screen.talk("idling");
        let bench = Bench::on(place.open("idle").await?)?;
        report.idle = Some(bench.idle().await?);
    }
    Ok(report)
}

struct Bench {
    stores: Stores,
    client: Client,
}

impl Bench {
    fn on(stores: Stores) -> Result<Self, Failure> {
        let client = Client::single_tenant(stores.clone())?;
        Ok(Self { stores, client })
    }

    async fn enqueue_bulk(&self, args: &Arguments) -> Result<f64, Failure> {
        let watch = Stopwatch::start();
        let mut sent = 0;
        while sent < args.items {
            let size = args.batch.clamp(1, args.items - sent);
            let items = (sent..sent + size)
                .map(|id| self.client.typed(&Noop { id }))
                .collect::<Result<Vec<NewItem>, _>>()?;
            self.client.enqueue_many(items).await?;
            sent += size;
        }
        Ok(args.items as f64 / watch.seconds())
    }

    async fn enqueue_single(&self, items: u64, callers: u64) -> Result<f64, Failure> {
        let watch = Stopwatch::start();
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..callers {
            let client = self.client.clone();
            tasks.spawn(async move {
                for id in 0..items / callers {
                    client
                        .enqueue(&Noop {
                            id: caller * items + id,
                        })
                        .await?;
                }
                Ok::<_, Failure>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(broke)??;
        }
        Ok(items as f64 / watch.seconds())
    }

    async fn drain(&self, args: &Arguments) -> Result<Drain, Failure> {
        let settings = WorkerSettings {
            capacity: args.capacity,
            ..WorkerSettings::default()
        };
        let worker = self.worker(settings, InProcess::new().handle(noop).map_err(broke)?)?;
        let metrics = worker.metrics();
        let resident_before_mib = resident_mib();
        let mut resident_peak_mib = resident_before_mib;
        let stopper = Stopper::new();
        let (watch, cpu) = (Stopwatch::start(), Cpu::now());
        let running = tokio::spawn(worker.run(stopper.clone()));
        let finished = || metrics.sum("leasehold_items_finished_total");
        while finished() < args.items as f64 {
            if watch.elapsed() > DRAIN_PATIENCE {
                let (done, all) = (finished(), args.items);
                return Err(broke(format!(
                    "{done} of {all} items in {DRAIN_PATIENCE:?}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            resident_peak_mib = resident_peak_mib.max(resident_mib());
        }
        let (seconds, cpu_seconds) = (watch.seconds(), cpu.seconds_since());
        stopper.stop();
        running.await.map_err(broke)?.map_err(broke)?;
        let settles = metrics.sum("leasehold_settle_batch_size_count").max(1.0);
        Ok(Drain {
            per_second: args.items as f64 / seconds,
            cpu_seconds_per_10_000: cpu_seconds * 10_000.0 / args.items as f64,
            items_per_settle: args.items as f64 / settles,
            resident_before_mib,
            resident_peak_mib,
        })
    }

    async fn latency(&self, args: &Arguments, place: &Place) -> Result<Latency, Failure> {
        let started = Arc::new((AtomicU64::new(0), Notify::new()));
        let seen = started.clone();
        let clock = Stopwatch::start();
        let handler = move |_: Noop, _: Run| {
            let seen = seen.clone();
            async move {
                seen.0.store(clock.nanoseconds(), Ordering::Release);
                seen.1.notify_one();
            }
        };
        let settings = WorkerSettings::default();
        let worker = self.worker(settings, InProcess::new().handle(handler).map_err(broke)?)?;
        let metrics = worker.metrics();
        let stopper = Stopper::new();
        let running = tokio::spawn(worker.run(stopper.clone()));
        let mut times = Vec::new();
        let mut syncs = Vec::new();
        for id in 0..args.singles {
            // Disks change their pace by the second, so each pickup has its sync beside it.
            syncs.extend(place.sync_times(1).await?);
            let sent = clock.nanoseconds();
            self.client.enqueue(&Noop { id }).await?;
            started.1.notified().await;
            let picked = started.0.load(Ordering::Acquire);
            times.push(picked.saturating_sub(sent) as f64 / 1e6);
            settled(&metrics, id + 1).await;
        }
        stopper.stop();
        running.await.map_err(broke)?.map_err(broke)?;
        times.sort_by(f64::total_cmp);
        let median = percentile(&times, 0.5);
        let sync_median = self::median(syncs);
        Ok(Latency {
            median,
            percentile_99: percentile(&times, 0.99),
            sync_median,
            median_above_two_syncs: median - 2.0 * sync_median,
        })
    }

    async fn idle(&self) -> Result<Idle, Failure> {
        let worker = self.worker(
            WorkerSettings::default(),
            InProcess::new().handle(noop).map_err(broke)?,
        )?;
        let stopper = Stopper::new();
        let running = tokio::spawn(worker.run(stopper.clone()));
        // The start itself is not idling.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (watch, cpu) = (Stopwatch::start(), Cpu::now());
        tokio::time::sleep(IDLE_FOR).await;
        let (seconds, cpu_seconds) = (watch.seconds(), cpu.seconds_since());
        stopper.stop();
        running.await.map_err(broke)?.map_err(broke)?;
        Ok(Idle {
            seconds,
            percent_of_a_core: 100.0 * cpu_seconds / seconds,
        })
    }

    fn worker(
        &self,
        settings: WorkerSettings,
        executor: InProcess,
    ) -> Result<Worker<QueueSource, InProcess>, Failure> {
        Worker::new(QueueSource::new(self.stores.clone()), executor, settings).map_err(broke)
    }
}

async fn noop(_: Noop, _: Run) {}

/// Waits until the worker has settled so many: the queue is idle again.
async fn settled(metrics: &Metrics, items: u64) {
    while metrics.sum("leasehold_items_finished_total") < items as f64 {
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    percentile(&times, 0.5)
}

/// Of sorted values; 0 of none.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is within the length"
    )]
    let at = (last * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}
