//! Handlers that block their threads: the leases go on, and one that cannot be stopped is reported.
//!
//! In real time, with the loop and the keeper on threads of their own.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use leasehold::{HandlerError, InProcess, Run, Status, Stopper, Work, WorkerError, WorkerSettings};
use leasehold_testkit::fault::Operation;
use leasehold_testkit::probe::{Journal, Probe};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::harness::{Job, MS, Other, Rig, Started, jobs, leased, moments, until};

/// Blocks its thread until let go, deaf to everything.
fn blocking(began: &Probe, gate: &Arc<Barrier>) -> InProcess {
    let (began, gate) = (began.clone(), gate.clone());
    let handler = move |_: Blocked, _: Run| {
        let (began, gate) = (began.clone(), gate.clone());
        async move {
            began.hit();
            gate.wait();
        }
    };
    InProcess::new().handle::<Blocked>(handler).unwrap()
}

#[derive(Debug, Serialize, Deserialize)]
struct Blocked {}

impl Work for Blocked {
    const KIND: &'static str = "BLOCKED";
    const TIME_LIMIT: Option<Duration> = Some(Duration::from_millis(100));
}

/// A run that cannot be stopped is reported stuck, its lease runs out, the item is taken over, and its
/// late result is refused; the slot comes back when it ends after all.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_does_not_end_is_stuck_and_its_item_is_taken_over() {
    let rig = Rig::real();
    let id = rig.enqueue(&Blocked {}).await;
    let (began, gate) = (Probe::new(), Arc::new(Barrier::new(2)));
    let settings = |name: &str| WorkerSettings {
        name: name.to_owned(),
        capacity: 1,
        stop_grace: 100 * MS,
        sweep_interval: 100 * MS,
        sweep_budget: 100 * MS,
        requeue_spread: Duration::ZERO,
        poll_interval: 50 * MS,
        ..leased(400 * MS)
    };
    let stuck = rig.worker(rig.source(), blocking(&began, &gate), settings("stuck"));
    let stuck = Started::apart(stuck);
    began.wait_for(1).await;
    let handler = |_: Blocked, _: Run| async {};
    let executor = InProcess::new().handle::<Blocked>(handler).unwrap();
    let beside = Rig::new_beside(&rig);
    let second = Started::apart(beside.worker(beside.source(), executor, settings("second")));
    let done = rig.until_status(id, Status::Done).await;
    assert_eq!((done.attempts, done.worker_losses), (2, 1));
    assert_eq!(stuck.sum("leasehold_worker_slots_stuck"), 1);
    assert_eq!(stuck.sum("leasehold_worker_slots_busy"), 1);
    gate.wait();
    until(async || (stuck.sum("leasehold_worker_slots_busy") == 0).then_some(())).await;
    until(async || (stuck.sum("leasehold_stale_writes_refused_total") == 1).then_some(())).await;
    assert_eq!(stuck.sum("leasehold_worker_slots_stuck"), 0);
    assert_eq!(rig.item(id).await, done);
    stuck.stop().await;
    second.stop().await;
}

/// With more stuck runs than are put up with, the worker drains and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn too_many_stuck_runs_end_the_worker() {
    let rig = Rig::real();
    let tidy = rig.enqueue(&Other { n: 0 }).await;
    rig.enqueue(&Blocked {}).await;
    let (began, gate) = (Probe::new(), Arc::new(Barrier::new(2)));
    let cooperative = |_: Other, run: Run| async move {
        run.cancelled().await;
        Err::<(), _>(HandlerError::new("stopped half-way"))
    };
    let executor = blocking(&began, &gate)
        .handle::<Other>(cooperative)
        .unwrap();
    let settings = WorkerSettings {
        stop_grace: 50 * MS,
        stuck_max: Some(0),
        ..leased(400 * MS)
    };
    let worker = Started::apart(rig.worker(rig.source(), executor, settings));
    let error = worker.ended().await.unwrap_err();
    assert!(
        matches!(
            error,
            WorkerError::Stuck {
                stuck: 1,
                stuck_max: 0
            }
        ),
        "{error}"
    );
    let item = rig.item(tidy).await;
    assert_eq!(
        (item.status, item.attempts),
        (Status::Queued, 0),
        "its neighbour was handed back"
    );
    gate.wait();
}

/// A handler of jobs that occupies its thread until let go.
fn hogging(began: &Probe, gate: &Arc<Barrier>) -> InProcess {
    let (began, gate) = (began.clone(), gate.clone());
    jobs(move |_: Job, _: Run| {
        let (began, gate) = (began.clone(), gate.clone());
        async move {
            began.hit();
            gate.wait();
        }
    })
}

/// LEASE-3(a): a handler that never yields for five leases, on a runtime of one thread: renewals keep
/// their cadence, and another worker that polls all the time gets nothing. One execution.
#[test]
fn a_handler_that_never_yields_starves_no_renewal() {
    const LEASE: Duration = Duration::from_secs(1);
    let rig = Arc::new(Rig::real());
    let (began, gate) = (Probe::new(), Arc::new(Barrier::new(2)));
    let eager = WorkerSettings {
        poll_interval: 20 * MS,
        sweep_interval: 100 * MS,
        sweep_budget: 100 * MS,
        requeue_spread: Duration::ZERO,
        ..leased(LEASE)
    };
    let source = rig.watched();
    let calls = source.calls.clone();
    let hog = rig.worker(source, hogging(&began, &gate), leased(LEASE));
    let stopper = Stopper::new();
    let hogs = {
        let stopper = stopper.clone();
        std::thread::spawn(move || one_thread().block_on(hog.run(stopper)))
    };
    let runtime = one_thread();
    let (start, item) = runtime.block_on(async {
        let id = rig.enqueue(&Job { n: 0 }).await;
        began.wait_for(1).await;
        let start = rig.elapsed();
        let runs = Probe::new();
        let handler = {
            let runs = runs.clone();
            move |_: Job, _: Run| {
                runs.hit();
                async {}
            }
        };
        let beside = Rig::new_beside(&rig);
        let other = Started::apart(beside.worker(beside.source(), jobs(handler), eager));
        // Five leases' worth of renewals, told apart by their number and not by a sleep.
        until(async || (moments(&calls, "renew", start).len() >= 20).then_some(())).await;
        gate.wait();
        let item = rig.until_status(id, Status::Done).await;
        assert_eq!(runs.count(), 0, "a second execution");
        other.stop().await;
        (start, item)
    });
    assert_eq!((item.attempts, item.worker_losses), (1, 0));
    assert_eq!(began.count(), 1);
    let mut renewals = moments(&calls, "renew", start);
    renewals.insert(0, Duration::ZERO);
    let widest = renewals
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .max()
        .unwrap();
    assert!(widest < LEASE, "{widest:?} between two renewals");
    assert!(renewals.last().unwrap() >= &(LEASE * 9 / 2), "{renewals:?}");
    stopper.stop();
    hogs.join().unwrap().unwrap();
}

fn one_thread() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// LEASE-5, for a handler that does not listen and cannot be dropped: cut off from the store, its slot
/// is reported stuck, the item is taken over once its lease is over, and its result is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_cannot_be_stopped_is_stuck_and_its_result_refused() {
    let rig = Rig::real();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let (began, gate) = (Probe::new(), Arc::new(Barrier::new(2)));
    let settings = || WorkerSettings {
        capacity: 1,
        sweep_interval: 100 * MS,
        sweep_budget: 100 * MS,
        requeue_spread: Duration::ZERO,
        poll_interval: 20 * MS,
        ..leased(600 * MS)
    };
    let cut_off = Started::apart(rig.worker(rig.source(), hogging(&began, &gate), settings()));
    began.wait_for(1).await;
    rig.faults.wait_for_calls(Operation::Renew, 1).await;
    rig.faults.block_all();
    let beside = Rig::new_beside(&rig);
    let starts = Journal::new();
    let handler = {
        let (starts, clock) = (starts.clone(), rig.clock.clone());
        move |_: Job, _: Run| {
            starts.note(clock.now());
            async {}
        }
    };
    let second = Started::apart(beside.worker(beside.source(), jobs(handler), settings()));
    until(async || (cut_off.sum("leasehold_worker_slots_stuck") == 1).then_some(())).await;
    let done = rig.until_status(id, Status::Done).await;
    assert_eq!(starts.entries().len(), 1);
    assert_eq!(
        (done.attempts, done.worker_losses),
        (2, 1),
        "one attempt was spent on it"
    );
    assert!(starts.entries()[0] >= done.errors[0].at);
    assert_eq!(
        cut_off.series("leasehold_lease_lost_total", r#"reason="doubted""#),
        1
    );
    rig.faults.unblock_all();
    gate.wait();
    let refused = r#"operation="settle""#;
    until(async || {
        let count = cut_off.series("leasehold_stale_writes_refused_total", refused);
        (count == 1).then_some(())
    })
    .await;
    assert_eq!(rig.item(id).await, done);
    until(async || (cut_off.sum("leasehold_worker_slots_busy") == 0).then_some(())).await;
    assert_eq!(cut_off.sum("leasehold_worker_slots_stuck"), 0);
    cut_off.stop().await;
    second.stop().await;
}

/// A run that the keeper stops may end before the keeper's word of it reaches the loop: it is handed
/// back all the same, and no attempt is spent. In real time, since it takes threads to overtake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_faster_than_the_keepers_word_spends_no_attempt() {
    let rig = Rig::real();
    let ids = rig.enqueue_many((0..200).map(|n| Job { n })).await;
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |_: Job, run: Run| {
            began.hit();
            async move {
                run.cancelled().await;
                Err::<(), _>(HandlerError::new("stopped half-way"))
            }
        }
    };
    rig.faults.block(Operation::Renew);
    let settings = WorkerSettings {
        capacity: 200,
        ..leased(Duration::from_secs(2))
    };
    let worker = Started::apart(rig.worker(rig.source(), jobs(handler), settings));
    began.wait_for(200).await;
    until(async || (worker.sum("leasehold_lease_lost_total") >= 200).then_some(())).await;
    for id in ids {
        let item = rig.until_item(id, |item| item.last_error.is_some()).await;
        assert!(item.errors.is_empty(), "{:?}", item.errors);
    }
    rig.faults.unblock(Operation::Renew);
    worker.stop().await;
}
