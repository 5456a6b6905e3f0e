//! `leasehold bench`: how fast this build is on this machine, in figures that can be repeated.
//!
//! Every profile runs on a fresh SQLite file and says under which durability it ran. Nothing is
//! switched off: tokens, leases, idempotency keys, attempts, retention, liveness, sweep.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::{
    Client, InProcess, Metrics, NewItem, QueueSource, Run, Stopper, Stores, SystemClock, Work,
    Worker, WorkerSettings,
};
use leasehold_sqlite::{Durability, Options, SqliteStore};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::failure::{Answer, Failure};
use crate::runtime;
use crate::screen::{Field, SCHEMA, Screen};

mod machine;

use machine::{Cpu, Stopwatch, resident_mib};

/// Measure this build on this machine: enqueue, drain, pickup, idling.
///
/// Each profile runs on a fresh SQLite file of its own, with everything on, and is deleted again.
/// Compare ratios of one run, not figures of two.
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

/// What was measured. Fields that a profile did not measure are absent.
#[derive(Debug, Default, Serialize)]
struct Report {
    schema: u32,
    version: &'static str,
    store: &'static str,
    durability: &'static str,
    items: u64,
    capacity: u32,
    cores: usize,
    /// Median time of a small write and its sync in the same folder, milliseconds.
    sync_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueue_bulk_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueue_single_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueue_single_16_callers_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<Drain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pickup_milliseconds: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<Idle>,
}

#[derive(Debug, Serialize)]
struct Drain {
    per_second: f64,
    cpu_seconds_per_10_000: f64,
    items_per_settle: f64,
    /// Resident memory before the worker starts, and its peak while it drains, MiB.
    resident_before_mib: f64,
    resident_peak_mib: f64,
}

/// In milliseconds.
#[derive(Debug, Serialize)]
struct Latency {
    median: f64,
    percentile_99: f64,
    /// A small write and its sync in the same folder, timed between the pickups.
    sync_median: f64,
    /// The median above what two such syncs take: the part that is ours.
    median_above_two_syncs: f64,
}

#[derive(Debug, Serialize)]
struct Idle {
    seconds: f64,
    percent_of_a_core: f64,
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
    let report = runtime::of_all_cores()?.block_on(measure(arguments, screen))?;
    if screen.is_json() {
        screen.object(&report)?;
    } else {
        screen.table(&["what", "measured"], &rows(&report))?;
    }
    Ok(Answer::Yes)
}

fn broke(error: impl std::fmt::Display) -> Failure {
    Failure::failed("the bench did not come to its end").because(error)
}

async fn measure(args: &Arguments, screen: &Screen) -> Result<Report, Failure> {
    let mut making = tempfile::Builder::new();
    making.prefix("leasehold-bench-");
    let folder = match &args.dir {
        Some(dir) => making.tempdir_in(dir),
        None => making.tempdir(),
    };
    let folder = folder.map_err(|error| {
        Failure::usage("the folder for the bench's files cannot be made")
            .because(error)
            .remedy("name another with --dir")
    })?;
    let wants = |profile| args.profile.is_empty() || args.profile.contains(&profile);
    let mut report = Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        store: "sqlite",
        durability: match args.durability {
            DurabilityName::Full => "full",
            DurabilityName::Normal => "normal",
        },
        items: args.items,
        capacity: args.capacity,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        ..Report::default()
    };
    screen.talk("timing a sync");
    report.sync_ms = median(machine::sync_times(folder.path(), 100).map_err(broke)?);
    if wants(Profile::EnqueueBulk) || wants(Profile::Drain) {
        screen.talk("enqueueing in bulk");
        let bench = Bench::open(folder.path(), "bulk", args)?;
        let rate = bench.enqueue_bulk(args).await?;
        report.enqueue_bulk_per_second = Some(rate);
        if wants(Profile::Drain) {
            screen.talk("draining");
            report.drain = Some(bench.drain(args).await?);
        }
    }
    if wants(Profile::EnqueueSingle) {
        screen.talk("enqueueing one at a time");
        let bench = Bench::open(folder.path(), "single", args)?;
        report.enqueue_single_per_second = Some(bench.enqueue_single(args.singles, 1).await?);
        let many = bench.enqueue_single(args.singles * 16, 16).await?;
        report.enqueue_single_16_callers_per_second = Some(many);
    }
    if wants(Profile::Latency) {
        screen.talk("picking up one at a time");
        let bench = Bench::open(folder.path(), "latency", args)?;
        report.pickup_milliseconds = Some(bench.latency(args, folder.path()).await?);
    }
    if wants(Profile::Idle) {
        screen.talk("idling");
        let bench = Bench::open(folder.path(), "idle", args)?;
        report.idle = Some(bench.idle().await?);
    }
    Ok(report)
}

struct Bench {
    stores: Stores,
    client: Client,
    _store: Arc<SqliteStore>,
}

impl Bench {
    fn open(folder: &Path, name: &str, args: &Arguments) -> Result<Self, Failure> {
        let durability = match args.durability {
            DurabilityName::Full => Durability::Full,
            DurabilityName::Normal => Durability::Normal,
        };
        let options = Options::new(Arc::new(SystemClock)).with_durability(durability);
        let store =
            leasehold_sqlite::open(folder.join(format!("{name}.db")), options).map_err(broke)?;
        let stores = store.stores();
        let client = Client::single_tenant(stores.clone())?;
        Ok(Self {
            stores,
            client,
            _store: store,
        })
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

    async fn latency(&self, args: &Arguments, folder: &Path) -> Result<Latency, Failure> {
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
            syncs.extend(machine::sync_times(folder, 1).map_err(broke)?);
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

/// The report for people.
fn rows(report: &Report) -> Vec<Vec<Field>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.into(), value.into()]);
    row(
        "store",
        format!("{}, synchronous={}", report.store, report.durability),
    );
    row("cores", report.cores.to_string());
    row("one sync", format!("{:.2} ms", report.sync_ms));
    let rate = |value: f64| format!("{value:.0} items/s");
    if let Some(value) = report.enqueue_bulk_per_second {
        row("enqueue, in bulk", rate(value));
    }
    if let Some(value) = report.enqueue_single_per_second {
        row("enqueue, one caller", rate(value));
    }
    if let Some(value) = report.enqueue_single_16_callers_per_second {
        row("enqueue, 16 callers", rate(value));
    }
    if let Some(drain) = &report.drain {
        row(
            "drain",
            format!("{} at capacity {}", rate(drain.per_second), report.capacity),
        );
        row(
            "  CPU per 10,000",
            format!("{:.2} s", drain.cpu_seconds_per_10_000),
        );
        row(
            "  items per settle",
            format!("{:.0}", drain.items_per_settle),
        );
        let (before, peak) = (drain.resident_before_mib, drain.resident_peak_mib);
        row(
            "  resident memory",
            format!("{before:.0} MiB before, {peak:.0} MiB at most"),
        );
    }
    if let Some(latency) = &report.pickup_milliseconds {
        row(
            "pickup, idle queue",
            format!(
                "median {:.2} ms, p99 {:.2} ms",
                latency.median, latency.percentile_99
            ),
        );
        let above = latency.median_above_two_syncs;
        row(
            "  above two syncs",
            format!("{above:.2} ms, at {:.2} ms a sync", latency.sync_median),
        );
    }
    if let Some(idle) = &report.idle {
        row(
            "idle worker",
            format!("{:.2} % of a core", idle.percent_of_a_core),
        );
    }
    rows
}
