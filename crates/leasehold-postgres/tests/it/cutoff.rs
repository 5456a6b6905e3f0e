//! LEASE-5 with handlers in the worker's process: a worker is cut off from its store without a word, and what
//! it runs is stopped before anybody else may run it.
//!
//! The same with a command is a test of the program, whose own wardens it needs.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::core::store::work::Enqueued;
use leasehold::core::{Clock as _, OrgId};
use leasehold::{
    Client, HandlerError, InProcess, ItemId, Metrics, QueueSource, Run, Status, Stopper,
    SystemClock, Work, WorkItem, Worker, WorkerSettings,
};
use leasehold_core::WorkStore as _;
use leasehold_testkit::probe::Journal;
use serde::{Deserialize, Serialize};

use crate::harness::{OneSchema, PATIENCE};
use crate::outages::pass;
use crate::proxy::Proxy;
use crate::worker::{settings, stop};

const LEASE: Duration = Duration::from_secs(3);

/// A run that ends when it is asked to.
#[derive(Debug, Serialize, Deserialize)]
struct Listens {}

impl Work for Listens {
    const KIND: &'static str = "LISTENS";
}

/// A run that does not listen, and keeps its thread.
#[derive(Debug, Serialize, Deserialize)]
struct Deaf {}

impl Work for Deaf {
    const KIND: &'static str = "DEAF";
}

/// What a handler tells, when, and in which attempt of which item.
type Told = (&'static str, ItemId, u32, Timestamp);

/// Runs a first attempt until it is stopped, or for one that is deaf until it is met, and a later one at once.
fn executor(told: &Journal<Told>, deaf_end: &Arc<Barrier>) -> InProcess {
    let note = |told: &Journal<Told>, what, run: &Run| {
        told.note((what, run.item().id, run.attempt(), SystemClock.now()));
    };
    let listens = {
        let told = told.clone();
        move |_: Listens, run: Run| {
            let told = told.clone();
            async move {
                note(&told, "began", &run);
                if run.attempt() > 1 {
                    return Ok(());
                }
                run.cancelled().await;
                note(&told, "stopped", &run);
                Err(HandlerError::new("stopped half-way"))
            }
        }
    };
    let deaf = {
        let (told, end) = (told.clone(), deaf_end.clone());
        move |_: Deaf, run: Run| {
            let (told, end) = (told.clone(), end.clone());
            async move {
                note(&told, "began", &run);
                if run.attempt() == 1 {
                    end.wait();
                    note(&told, "ended", &run);
                }
            }
        }
    };
    let executor = InProcess::new().handle::<Listens>(listens).unwrap();
    executor.handle::<Deaf>(deaf).unwrap()
}

fn leased(name: &str) -> WorkerSettings {
    WorkerSettings {
        name: name.to_owned(),
        lease: LEASE,
        stop_grace: Duration::from_millis(200),
        ..settings(2)
    }
}

fn inserted(fate: Enqueued) -> ItemId {
    match fate {
        Enqueued::Inserted(item) => item.id,
        fate => panic!("not inserted: {fate:?}"),
    }
}

/// Looks until the item is as it is to be.
async fn until(on: &OneSchema, id: ItemId, is: impl Fn(&WorkItem) -> bool) -> WorkItem {
    let looks = async {
        loop {
            let item = on.store.get(OrgId::SINGLE, id).await.unwrap().unwrap();
            if is(&item) {
                return item;
            }
            pass(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looks).await;
    found.expect("the item does not become so")
}

/// Looks until the metric says so. A worker counts what it did after the store has it.
async fn reaches(metrics: &Metrics, name: &str, value: f64) {
    let looks = async {
        while (metrics.sum(name) - value).abs() > 0.1 {
            pass(Duration::from_millis(5)).await;
        }
    };
    let reached = tokio::time::timeout(PATIENCE, looks).await;
    assert!(reached.is_ok(), "{name} is {}", metrics.sum(name));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_is_cut_off_stops_its_runs_before_anybody_else_begins_them() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let proxy = Proxy::to(on.address());
    let (told, deaf_end) = (Journal::<Told>::new(), Arc::new(Barrier::new(2)));
    let reach = leasehold_postgres::connect(proxy.address(), on.options()).await;
    let source = QueueSource::new(reach.unwrap().stores());
    let cut_off = Worker::new(source, executor(&told, &deaf_end), leased("cut-off")).unwrap();
    let metrics = cut_off.metrics();
    let stopper = Stopper::new();
    let running = tokio::spawn(cut_off.run(stopper.clone()));

    let client = Client::single_tenant(on.store.stores()).unwrap();
    let listens = inserted(client.enqueue(&Listens {}).await.unwrap());
    let deaf = inserted(client.enqueue(&Deaf {}).await.unwrap());
    let mut held = Vec::new();
    for id in [listens, deaf] {
        held.push(until(&on, id, |item| item.status == Status::Claimed).await);
    }
    told.wait_for(2).await;
    // Right after a renewal, so that all of the lease is left.
    let first = held[0].lease_expires_at;
    until(&on, listens, |item| item.lease_expires_at > first).await;
    proxy.swallow();
    // What was under way to the server is there by now.
    pass(Duration::from_millis(100)).await;
    let mut expiries = Vec::new();
    for id in [listens, deaf] {
        let item = on.store.get(OrgId::SINGLE, id).await.unwrap().unwrap();
        expiries.push((id, item.lease_expires_at.unwrap()));
    }

    let source = QueueSource::new(on.connect().await.stores());
    let second = Worker::new(source, executor(&told, &deaf_end), leased("second")).unwrap();
    let seconds = second.metrics();
    let second_stopper = Stopper::new();
    let second_running = tokio::spawn(second.run(second_stopper.clone()));
    for (id, expiry) in expiries {
        let item = until(&on, id, |item| item.status == Status::Done).await;
        assert_eq!((item.attempts, item.worker_losses), (2, 1), "{item:?}");
        let told = told.entries();
        let (.., began) = told
            .iter()
            .find(|(what, of, attempt, _)| (*what, *of, *attempt) == ("began", id, 2))
            .unwrap();
        assert!(
            expiry <= *began,
            "begun at {began}, the lease was over at {expiry}"
        );
        let stopped = told
            .iter()
            .find(|(what, of, ..)| (*what, *of) == ("stopped", id));
        match stopped {
            Some((.., at)) => {
                assert_eq!(id, listens);
                assert!(
                    *at <= expiry,
                    "stopped at {at}, the lease was over at {expiry}"
                );
            }
            None => assert_eq!(id, deaf),
        }
    }
    reaches(&metrics, "leasehold_lease_lost_total", 2.0).await;
    reaches(&metrics, "leasehold_worker_slots_stuck", 1.0).await;
    reaches(&seconds, "leasehold_items_finished_total", 2.0).await;
    assert_eq!(seconds.finished_as("done"), 2);

    // It ends after all, and finds its store again: nothing that it says counts.
    let before = on.store.get(OrgId::SINGLE, deaf).await.unwrap();
    proxy.admit();
    deaf_end.wait();
    reaches(&metrics, "leasehold_items_finished_total", 2.0).await;
    assert_eq!(metrics.finished_as("done"), 0);
    assert_eq!(on.store.get(OrgId::SINGLE, deaf).await.unwrap(), before);
    // Its slots are free again, and it goes on.
    stop(second_stopper, second_running).await;
    let next = inserted(client.enqueue(&Listens {}).await.unwrap());
    until(&on, next, |item| item.status == Status::Claimed).await;
    stop(stopper, running).await;
}
