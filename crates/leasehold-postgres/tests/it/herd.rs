//! TIME-2: everything at once after a restart. What many workers did together before an outage they do not
//! do at one moment after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, HandlerError, Metrics, Run, Stopper, WorkerSettings};
use leasehold_core::WorkStore as _;
use leasehold_postgres::{Options, PostgresStore};
use leasehold_testkit::probe::{Journal, Latch};

use crate::harness::PATIENCE;
use crate::outages::{few_or, pass};
use crate::own::{OwnServer, Stop};
use crate::worker::{Tally, settings, stop, worker};

/// How much of it there is: in a long run as the case has it, but for its five processes, which are one here.
#[derive(Debug, Clone, Copy)]
struct Scale {
    workers: u32,
    capacity: u32,
    lease: Duration,
    down: Duration,
}

fn scale() -> Scale {
    let secs = Duration::from_secs;
    few_or(
        Scale {
            workers: 10,
            capacity: 100,
            lease: secs(2),
            down: secs(4),
        },
        Scale {
            workers: 50,
            capacity: 100,
            lease: secs(20),
            down: secs(60),
        },
    )
}

/// What the server logs, and enough sessions.
const LOGGING: [&str; 4] = [
    "log_connections=on",
    "log_statement=all",
    // Seconds and milliseconds since 1970, and whose session.
    "log_line_prefix=%n %a ",
    "max_connections=600",
];

/// A slot of the histograms, in milliseconds.
const SLOT: u64 = 100;

/// A series of so many is large enough for a slot to be held to a tenth of it.
const LARGE: usize = 1_000;

/// How many of a series, in milliseconds, fall into its fullest slot.
fn fullest_slot(series: &[u64]) -> usize {
    let mut slots: BTreeMap<u64, usize> = BTreeMap::new();
    for at in series {
        *slots.entry(at / SLOT).or_default() += 1;
    }
    slots.into_values().max().unwrap_or(0)
}

/// Holds that no slot of a large series has more than a tenth of it, and none of a small one more than half.
fn assert_spread(what: &str, series: &[u64]) {
    let share = if series.len() >= LARGE { 10 } else { 2 };
    let fullest = fullest_slot(series);
    let first = series.iter().min().copied().unwrap_or_default();
    let told: Vec<_> = series.iter().map(|at| at - first).collect();
    assert!(
        fullest * share <= series.len(),
        "{fullest} of {} {what} fall into one slot: {told:?}",
        series.len()
    );
}

/// The moments of the server's log, in milliseconds, at which it says that.
fn logged(log: &str, words: &str) -> Vec<u64> {
    let lines = log.lines().filter(|line| line.contains(words));
    let moments = lines.filter_map(|line| {
        let (seconds, rest) = line.split_once('.')?;
        let milliseconds = rest.get(..3)?;
        format!("{seconds}{milliseconds}").parse().ok()
    });
    moments.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_nothing_comes_back_at_one_moment() {
    let scale = scale();
    let Some(mut server) = OwnServer::start(&LOGGING).await else {
        return;
    };
    let running = usize::try_from(scale.workers * scale.capacity).unwrap();
    let application = server.store(Options::default()).await;
    let (begun, over) = (Journal::<(u32, i64)>::new(), Latch::new());
    let handler = {
        let (begun, over) = (begun.clone(), over.clone());
        move |_: Tally, run: Run| {
            let over = over.clone();
            begun.note((run.attempt(), run.item().available_at.as_millisecond()));
            async move {
                tokio::select! {
                    () = over.passed() => Ok(()),
                    () = run.cancelled() => Err(HandlerError::new("stopped half-way")),
                }
            }
        }
    };
    let mut workers = Vec::new();
    for number in 0..scale.workers {
        let address = server.address_for(&format!("worker-{number}"));
        let store = leasehold_postgres::connect(&address, Options::default()).await;
        let store: Arc<PostgresStore> = store.unwrap();
        let settings = WorkerSettings {
            lease: scale.lease,
            requeue_spread: WorkerSettings::default().requeue_spread,
            ..settings(scale.capacity)
        };
        let worker = worker(&store, handler.clone(), settings);
        let (metrics, stopper) = (worker.metrics(), Stopper::new());
        let running = tokio::spawn(worker.run(stopper.clone()));
        workers.push((metrics, stopper, running));
    }
    let client = Client::single_tenant(application.stores()).unwrap();
    let items = (0..running).map(|_| client.typed(&Tally { n: 0 }).unwrap());
    client.enqueue_many(items.collect()).await.unwrap();
    tokio::time::timeout(PATIENCE, begun.wait_for(running))
        .await
        .expect("not everything runs");

    server.stop(Stop::Fast);
    let before = server.log().len();
    pass(scale.down).await;
    let lost: f64 = workers.iter().map(|(metrics, ..)| stopped(metrics)).sum();
    assert!(
        (lost - f64::from(scale.workers * scale.capacity)).abs() < 0.1,
        "{lost} of {running} runs were stopped"
    );
    server.start_again().await;
    // All of them come to run again.
    tokio::time::timeout(Duration::from_mins(2), begun.wait_for(2 * running))
        .await
        .expect("the system is not steady in time");
    over.open();
    let settled = async {
        loop {
            let gauges = application.gauges().await;
            if gauges.is_ok_and(|gauges| gauges.lanes.is_empty()) {
                return;
            }
            pass(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled)
        .await
        .expect("not everything is done");

    let again = &begun.entries()[running..];
    let due: Vec<u64> = again
        .iter()
        .map(|(_, due)| u64::try_from(*due).unwrap())
        .collect();
    assert_spread("due times", &due);
    let log = server.log();
    let log = &log[before..];
    assert_spread("connections", &logged(log, "connection authorized"));
    assert_spread("claims", &logged(log, "-- The claim, part one"));
    assert_spread("sweeps", &logged(log, "-- $1 lowest org"));
    let gauges = application.gauges().await.unwrap();
    assert_eq!(gauges.dead, 0, "the outage alone made dead letters");
    for (_, stopper, running) in workers {
        stop(stopper, running).await;
    }
}

/// How many runs a worker stopped because of their leases.
fn stopped(metrics: &Metrics) -> f64 {
    metrics.sum("leasehold_lease_lost_total")
}
