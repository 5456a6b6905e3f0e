//! The runtime's workers on a real server: several of them, one that crashes, and a burst.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    Client, InProcess, QueueSource, Run, Status, Stopper, Work, Worker, WorkerSettings,
};
use leasehold_core::WorkStore as _;
use leasehold_core::store::work::{Filter, Page};
use leasehold_postgres::{PostgresStore, Wakeup};
use leasehold_testkit::probe::{Journal, Probe};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::harness::{OneSchema, PATIENCE};

/// Long enough for a burst on a busy machine.
const BURST: Duration = Duration::from_mins(2);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) n: u32,
}

impl Work for Tally {
    const KIND: &'static str = "TALLY";
}

pub(crate) fn settings(capacity: u32) -> WorkerSettings {
    WorkerSettings {
        name: "case".to_owned(),
        capacity,
        poll_interval: Duration::from_secs(1),
        sweep_interval: Duration::from_millis(500),
        sweep_budget: Duration::from_millis(500),
        requeue_spread: Duration::ZERO,
        lease: Duration::from_secs(2),
        ..WorkerSettings::default()
    }
}

pub(crate) fn worker(
    store: &Arc<PostgresStore>,
    handler: impl leasehold::Handler<Tally>,
    settings: WorkerSettings,
) -> Worker<QueueSource, InProcess> {
    let executor = InProcess::new().handle::<Tally>(handler).unwrap();
    Worker::new(QueueSource::new(store.stores()), executor, settings).unwrap()
}

pub(crate) async fn stop<T>(stopper: Stopper, running: JoinHandle<T>) {
    stopper.stop();
    let ended = tokio::time::timeout(PATIENCE, running).await;
    ended.expect("the worker ends").unwrap();
}

#[tokio::test]
async fn a_pool_too_small_for_a_worker_is_refused_at_its_start() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let refused = async |connections| {
        let options = on.options().with_connections(connections);
        let store = on.connect_with(options).await;
        let executor = InProcess::new()
            .handle::<Tally>(|_: Tally, _: Run| async {})
            .unwrap();
        let source = QueueSource::new(store.stores());
        let made = Worker::new(source, executor, settings(16));
        made.err().map(|error| error.to_string())
    };
    let message = refused(5).await.unwrap();
    assert!(message.starts_with("capacity = 16: "), "{message}");
    assert!(message.contains("5 connections"), "{message}");
    assert_eq!(refused(6).await, None);
}

/// The runs that the crashed one held when it fell are begun twice and ended once, all others once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_one_crashes_and_the_other_finishes_what_it_held() {
    const ITEMS: u32 = 2_000;
    const CAPACITY: u32 = 8;
    /// What the one that crashes does before it gets stuck.
    const RUNS_FIRST: u64 = 200;
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let client = Client::single_tenant(on.store.stores()).unwrap();
    let items = (0..ITEMS).map(|n| client.typed(&Tally { n }).unwrap());
    for batch in items.collect::<Vec<_>>().chunks(500) {
        client.enqueue_many(batch.to_vec()).await.unwrap();
    }
    let (begun, ended, stuck) = (Journal::new(), Journal::new(), Probe::new());
    let falling = {
        let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
        let runs = Probe::new();
        move |tally: Tally, _: Run| {
            let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
            let gets_stuck = runs.hit() > RUNS_FIRST;
            async move {
                begun.note(tally.n);
                if gets_stuck {
                    stuck.hit();
                    std::future::pending::<()>().await;
                }
                ended.note(tally.n);
            }
        }
    };
    let lasting = {
        let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
        move |tally: Tally, _: Run| {
            let (begun, ended, stuck) = (begun.clone(), ended.clone(), stuck.clone());
            async move {
                // Leaves enough for the other to get stuck with.
                stuck.wait_for(u64::from(CAPACITY)).await;
                begun.note(tally.n);
                ended.note(tally.n);
            }
        }
    };
    let one = worker(&on.connect().await, falling, settings(CAPACITY));
    let falls = tokio::spawn(one.run_here(Stopper::new()));
    let stopper = Stopper::new();
    let other = worker(&on.connect().await, lasting, settings(CAPACITY));
    let lasts = tokio::spawn(other.run(stopper.clone()));
    stuck.wait_for(u64::from(CAPACITY)).await;
    falls.abort();
    let mut ended = ended.wait_for(ITEMS as usize).await;
    until_none(&on, Status::Claimed).await;
    stop(stopper, lasts).await;
    ended.sort_unstable();
    assert!(
        ended == (0..ITEMS).collect::<Vec<_>>(),
        "a run ended twice, or never"
    );
    assert_eq!(begun.entries().len(), (ITEMS + CAPACITY) as usize);
    let text = format!(
        "select attempts, worker_losses, count(*) from {}.ends
         where is_done group by 1, 2 order by 1",
        on.schema
    );
    let rows = on.outsider.query(&text, &[]).await.unwrap();
    let ends: Vec<(i32, i32, i64)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let (lost, rest) = (i64::from(CAPACITY), i64::from(ITEMS - CAPACITY));
    assert_eq!(ends, [(1, 0, rest), (2, 1, lost)]);
}

/// Looks until no item has the status: what a run has done is settled a little later.
async fn until_none(on: &OneSchema, status: Status) {
    let org = leasehold_core::OrgId::SINGLE;
    let filter = Filter {
        status: Some(status),
        ..Filter::default()
    };
    let page = Page {
        before: None,
        limit: 1,
    };
    let first = async || on.store.list(org, &filter, &page).await.unwrap().items;
    let looks = async { while !first().await.is_empty() {} };
    tokio::time::timeout(PATIENCE, looks)
        .await
        .expect("items stay as they were");
}

/// RECOVER-3: a burst by eight producers while the worker runs, then one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_leaves_nothing_waiting() {
    burst(Wakeup::Listen, 1_250).await;
}

/// RECOVER-3, variant: no other process is heard, and polling alone finishes the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_that_is_not_heard_is_finished_by_polling() {
    let is_long = std::env::var_os("LEASEHOLD_LONG_TESTS").is_some();
    burst(Wakeup::Poll, if is_long { 1_250 } else { 250 }).await;
}

async fn burst(wakeup: Wakeup, each: u32) {
    const PRODUCERS: u32 = 8;
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let runs = Probe::new();
    let handler = {
        let runs = runs.clone();
        move |_: Tally, _: Run| {
            runs.hit();
            async {}
        }
    };
    // A store of its own, as in a process of its own: it hears of the items through the server, or not.
    let store = on.connect_with(on.options().with_wakeup(wakeup)).await;
    let settings = settings(4);
    let poll_interval = settings.poll_interval;
    let stopper = Stopper::new();
    let working = tokio::spawn(worker(&store, handler, settings).run(stopper.clone()));
    let client = Client::single_tenant(on.store.stores()).unwrap();
    let mut producers = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let client = client.clone();
        producers.spawn(async move {
            for n in 0..each {
                let tally = Tally {
                    n: producer * each + n,
                };
                client.enqueue(&tally).await.unwrap();
            }
        });
    }
    producers.join_all().await;
    let all = u64::from(PRODUCERS * each);
    tokio::time::timeout(BURST, async {
        while runs.count() < all {
            runs.wait_for(runs.count() + 1).await;
        }
    })
    .await
    .expect("the burst ends");
    until_none(&on, Status::Claimed).await;
    client.enqueue(&Tally { n: 0 }).await.unwrap();
    // The interval is jittered by a tenth; the rest is for a busy machine.
    let soon = poll_interval.mul_f64(1.1) + Duration::from_secs(1);
    tokio::time::timeout(soon, runs.wait_for(all + 1))
        .await
        .expect("the last one starts within a poll interval");
    until_none(&on, Status::Claimed).await;
    stop(stopper, working).await;
    assert_eq!(runs.count(), all + 1);
    let gauges = on.store.gauges().await.unwrap();
    assert!(gauges.lanes.is_empty(), "{gauges:?}");
}
