//! `leasehold bench`: how fast this build is on this machine, in figures that can be repeated.
//!
//! Every measurement is made on a fresh store, a SQLite file or a schema on a Postgres server, and the report
//! says under which durability. Nothing is switched off: tokens, leases, idempotency keys, attempts,
//! retention, liveness, sweep.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use leasehold::WorkerSettings;

use crate::failure::{Answer, Failure};
use crate::runtime;
use crate::screen::{SCHEMA, Screen};
use crate::stops::Stops;

mod drain;
mod enqueue;
mod idle;
mod machine;
mod pickup;
mod place;
mod report;
mod rounds;
mod server;
mod spent;
mod trial;

use place::Place;
use report::Report;
use rounds::Rounds;

/// Measure this build on this machine: enqueue, drain, pickup, idling.
///
/// Each measurement is made on a fresh SQLite file, or on a fresh schema of a Postgres server, with
/// everything on, which is deleted again. The figures are medians over the rounds. Compare ratios of one
/// run, not figures of two.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to measure; all that takes seconds unless said, which leaves `backlog` and `pinned` out.
    #[arg(long, value_enum, value_delimiter = ',')]
    profile: Vec<Profile>,

    /// How many times to measure each, in turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// How many items are enqueued and drained.
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one())]
    items: u64,

    /// How many items the worker runs at once.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    capacity: u32,

    /// How many items a bulk enqueue sends in one call.
    #[arg(long, default_value_t = 1_000, value_parser = at_least_one())]
    batch: u64,

    /// How many items are enqueued one at a time, and picked up one at a time.
    #[arg(long, default_value_t = 200, value_parser = at_least_one())]
    singles: u64,

    /// How many items are pending behind those that the profile `backlog` drains.
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one())]
    backlog: u64,

    /// How long the profile `pinned` holds an old snapshot, in seconds.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(3..=86_400))]
    seconds: u64,

    /// Measure on that Postgres server, in schemas `leasehold_bench_…` that are dropped again, those of a
    /// bench that was killed by the next one. Its user must
    /// be allowed to create schemas. What survives a power cut is up to the server, and told; its CPU time
    /// is told apart, where it runs on this machine and is not busy for others.
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
    /// Enqueue in calls of `--batch`, and one at a time from one caller and from sixteen.
    Enqueue,
    /// Drain a backlog of items that do nothing.
    Drain,
    /// From the call that enqueues one item to its handler's first line, on an idle queue.
    Latency,
    /// Sixteen callers enqueue one at a time while a worker drains.
    Mixed,
    /// Drain with a large backlog behind, beside a drain without.
    Backlog,
    /// Enqueue and drain while another session holds an old snapshot (Postgres only).
    Pinned,
    /// What a worker with nothing to do costs.
    Idle,
}

/// What is measured unless said.
const QUICK: [Profile; 5] = [
    Profile::Enqueue,
    Profile::Drain,
    Profile::Latency,
    Profile::Mixed,
    Profile::Idle,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DurabilityName {
    Full,
    Normal,
}

impl Arguments {
    fn profiles(&self) -> &[Profile] {
        if self.profile.is_empty() {
            &QUICK
        } else {
            &self.profile
        }
    }

    fn worker_settings(&self) -> WorkerSettings {
        WorkerSettings {
            capacity: self.capacity,
            ..WorkerSettings::default()
        }
    }
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Answer, Failure> {
    if arguments.postgres.is_none() && arguments.profile.contains(&Profile::Pinned) {
        return Err(place::not_pinned());
    }
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

/// What the rounds found, profile by profile.
#[derive(Default)]
struct Found {
    enqueue: Vec<enqueue::Enqueued>,
    drain: Vec<drain::Drained>,
    latency: Vec<pickup::Latency>,
    mixed: Vec<pickup::Mixed>,
    backlog: Vec<drain::Backlog>,
    pinned: Vec<drain::Pinned>,
    idle: Vec<idle::Idle>,
}

async fn measure(args: &Arguments, place: &mut Place, screen: &Screen) -> Result<Report, Failure> {
    screen.talk("timing a sync");
    let sync_ms = machine::median(place.sync_times(100).await?);
    let mut found = Found::default();
    for round in 1..=args.rounds {
        for profile in args.profiles() {
            let doing = match profile {
                Profile::Enqueue => "enqueueing",
                Profile::Drain => "draining",
                Profile::Latency => "picking up one at a time",
                Profile::Mixed => "enqueueing and draining at once",
                Profile::Backlog => "draining with a backlog behind",
                Profile::Pinned => "draining beside an old snapshot",
                Profile::Idle => "idling",
            };
            screen.talk(&format!("round {round} of {}: {doing}", args.rounds));
            match profile {
                Profile::Enqueue => found.enqueue.push(enqueue::measure(args, place).await?),
                Profile::Drain => found.drain.push(drain::measure(args, place, 0).await?),
                Profile::Latency => found.latency.push(pickup::latency(args, place).await?),
                Profile::Mixed => found.mixed.push(pickup::mixed(args, place).await?),
                Profile::Backlog => found.backlog.push(drain::backlog(args, place).await?),
                Profile::Pinned => found.pinned.push(drain::pinned(args, place).await?),
                Profile::Idle => found.idle.push(idle::measure(place).await?),
            }
            place.discard().await?;
        }
    }
    Ok(Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        store: place.store(),
        settings: place.settings(),
        items: args.items,
        batch: args.batch,
        capacity: args.capacity,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        sync_ms,
        resident_peak_mib: machine::resident_peak_mib(),
        enqueue: Rounds::of(found.enqueue)?,
        drain: Rounds::of(found.drain)?,
        latency: Rounds::of(found.latency)?,
        mixed: Rounds::of(found.mixed)?,
        backlog: Rounds::of(found.backlog)?,
        pinned: Rounds::of(found.pinned)?,
        idle: Rounds::of(found.idle)?,
    })
}
