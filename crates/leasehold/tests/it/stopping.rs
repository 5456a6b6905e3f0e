//! Stopping: hand-back first, offline last, bounded in time, and nothing lost on the way.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{HandlerError, InProcess, QueueSource, Run, Status, Stopper, WorkerSettings};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Latch, Probe};

use crate::harness::{Job, MS, Other, Rig, SEC, Started, jobs, moments, pass, settings};
use crate::trouble::{Trouble, Troubled};

fn draining(timeout: Duration, kill: Duration) -> WorkerSettings {
    WorkerSettings {
        drain_timeout: timeout,
        drain_kill: kill,
        ..settings()
    }
}

/// Awaits for ever, whatever it is told.
fn deaf(began: &Probe) -> InProcess {
    let began = began.clone();
    jobs(move |_: Job, _: Run| {
        began.hit();
        std::future::pending::<()>()
    })
}

/// Gives up when told to stop, after some tidying.
fn tidy(executor: InProcess, began: &Probe, tidied: &Probe, takes: Duration) -> InProcess {
    let (began, tidied) = (began.clone(), tidied.clone());
    let handler = move |_: Other, run: Run| {
        let (began, tidied) = (began.clone(), tidied.clone());
        async move {
            began.hit();
            run.cancelled().await;
            pass(takes).await;
            tidied.hit();
            Err::<(), _>(HandlerError::new("stopped half-way"))
        }
    };
    executor.handle::<Other>(handler).unwrap()
}

async fn live_workers(rig: &Rig) -> usize {
    rig.stores.liveness.live_workers(10).await.unwrap().len()
}

/// STOP-1: fifty handlers that ignore cancellation and ten that need 300 ms, with a drain limit of 5 s
/// and 50 ms for every call: all are handed back before 8 s, in few round trips.
#[tokio::test(start_paused = true)]
async fn hand_back_comes_first_when_time_is_short() {
    let rig = Rig::new();
    let (began, tidied) = (Probe::new(), Probe::new());
    let deaf_ones = rig.enqueue_many((0..50).map(|n| Job { n })).await;
    let tidy_ones = rig.enqueue_many((0..10).map(|n| Other { n })).await;
    for _ in 0..1_000 {
        for operation in [Operation::Claim, Operation::Renew, Operation::Settle] {
            rig.faults.fail_next(operation, Fault::Delay(50 * MS));
        }
    }
    let executor = tidy(deaf(&began), &began, &tidied, 300 * MS);
    let settings = WorkerSettings {
        capacity: 60,
        ..draining(5 * SEC, 2 * SEC)
    };
    let source = rig.watched();
    let calls = source.calls.clone();
    let worker = rig.start_on(source, executor, settings);
    began.wait_for(60).await;
    let asked = rig.elapsed();
    let drained = worker.stop().await;
    let took = rig.elapsed().saturating_sub(asked);
    assert!(took < 8 * SEC, "{took:?}");
    assert_eq!(drained.abandoned, 0);
    assert_eq!(tidied.count(), 10);
    for id in deaf_ones.into_iter().chain(tidy_ones) {
        let item = rig.item(id).await;
        assert_eq!(
            (item.status, item.attempts),
            (Status::Queued, 0),
            "{item:?}"
        );
        assert_eq!(item.last_error.unwrap().as_str(), "worker stopping");
        assert!(item.available_at <= rig.clock.now());
    }
    let settles = moments(&calls, "settle", asked);
    assert!(settles.len() <= 4, "{settles:?}");
    assert_eq!(live_workers(&rig).await, 0);
}

/// What ends by itself during the drain counts, whatever it ends in.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_done_during_the_drain_counts_as_done() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |_: Job, _: Run| {
            began.hit();
            pass(3 * SEC)
        }
    };
    let worker = rig.start(jobs(handler), settings());
    began.wait_for(1).await;
    assert_eq!(worker.stop().await.abandoned, 0);
    assert_eq!(rig.status(id).await, Status::Done);
}

/// G10: no claim after the stop; a worker counts as up for as long as it owns items; offline is last.
#[tokio::test(start_paused = true)]
async fn a_draining_worker_claims_nothing_and_goes_offline_last() {
    let rig = Rig::new();
    let (began, tidied) = (Probe::new(), Probe::new());
    rig.enqueue(&Other { n: 0 }).await;
    let executor = tidy(deaf(&began), &began, &tidied, 15 * SEC);
    let settings = WorkerSettings {
        heartbeat_interval: SEC,
        ..draining(20 * SEC, SEC)
    };
    let worker = rig.start(executor, settings);
    began.wait_for(1).await;
    worker.stopper.stop();
    pass(SEC).await;
    let waiting = rig.enqueue(&Job { n: 0 }).await;
    pass(10 * SEC).await;
    let live = rig.stores.liveness.live_workers(10).await.unwrap();
    assert_eq!(live.len(), 1, "it still owns an item");
    assert!(live[0].beat.draining);
    assert_eq!(rig.item(waiting).await.claim_seq, 0);
    worker.ended().await.unwrap();
    assert_eq!(tidied.count(), 1);
    assert_eq!(live_workers(&rig).await, 0);
}

/// Facts 8.4: hand-backs that fail or hang stop nothing: bounded in time, and offline all the same.
#[tokio::test(start_paused = true)]
async fn a_drain_whose_hand_backs_fail_still_ends_and_goes_offline() {
    for hangs in [true, false] {
        let rig = Rig::new();
        let began = Probe::new();
        let ids = rig.enqueue_many((0..3).map(|n| Job { n })).await;
        let worker = rig.start(deaf(&began), draining(2 * SEC, 3 * SEC));
        began.wait_for(3).await;
        if hangs {
            rig.faults.block(Operation::Settle);
        } else {
            for _ in 0..1_000 {
                rig.faults
                    .fail_next(Operation::Settle, Fault::unavailable());
            }
        }
        let asked = rig.elapsed();
        let drained = worker.stop().await;
        let took = rig.elapsed().saturating_sub(asked);
        assert!(took <= 5 * SEC + 100 * MS, "{took:?}");
        assert_eq!(drained.abandoned, 3);
        assert_eq!(live_workers(&rig).await, 0);
        for id in ids {
            assert_eq!(rig.status(id).await, Status::Claimed, "left to expire");
        }
    }
}

/// A hand-back that fails once is asked for again within the drain.
#[tokio::test(start_paused = true)]
async fn a_hand_back_that_fails_once_is_asked_for_again() {
    let rig = Rig::new();
    let began = Probe::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let worker = rig.start(deaf(&began), draining(SEC, 3 * SEC));
    began.wait_for(1).await;
    rig.faults.fail_next(Operation::Settle, Fault::LostAnswer);
    rig.faults
        .fail_next(Operation::Settle, Fault::unavailable());
    assert_eq!(worker.stop().await.abandoned, 0);
    let item = rig.item(id).await;
    assert_eq!((item.status, item.attempts), (Status::Queued, 0));
}

/// Facts 8.4: a stop that lands during a claim returns what the claim brings, also if the answer is
/// lost on the way.
#[tokio::test(start_paused = true)]
async fn a_stop_during_a_claim_returns_the_items() {
    for faults in [
        vec![Fault::Delay(2 * SEC)],
        vec![Fault::Delay(2 * SEC), Fault::LostAnswer],
        vec![Fault::LostAnswer, Fault::Delay(2 * SEC)],
    ] {
        let rig = Rig::new();
        let began = Probe::new();
        let ids = rig.enqueue_many((0..3).map(|n| Job { n })).await;
        for fault in faults {
            rig.faults.fail_next(Operation::Claim, fault);
        }
        let worker = rig.start(deaf(&began), settings());
        rig.faults.wait_for_calls(Operation::Claim, 1).await;
        pass(SEC).await;
        assert_eq!(worker.stop().await.abandoned, 0);
        assert_eq!(began.count(), 0);
        for id in ids {
            let item = rig.item(id).await;
            assert_eq!(
                (item.status, item.attempts),
                (Status::Queued, 0),
                "{item:?}"
            );
        }
    }
}

/// Facts 8.4: a second stop shortens the drain, and still hands back.
#[tokio::test(start_paused = true)]
async fn a_second_stop_cuts_the_wait_short() {
    let rig = Rig::new();
    let began = Probe::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let worker = rig.start(deaf(&began), draining(60 * SEC, 5 * SEC));
    began.wait_for(1).await;
    worker.stopper.stop();
    pass(SEC).await;
    assert!(!worker.has_ended());
    let asked = rig.elapsed();
    assert_eq!(worker.stop().await.abandoned, 0);
    assert!(rig.elapsed().saturating_sub(asked) < SEC);
    let item = rig.item(id).await;
    assert_eq!((item.status, item.attempts), (Status::Queued, 0));
}

/// Two requests that come before the loop looks are still two.
#[tokio::test(start_paused = true)]
async fn two_stops_at_once_are_two() {
    let rig = Rig::new();
    let began = Probe::new();
    rig.enqueue(&Job { n: 0 }).await;
    let worker = rig.start(deaf(&began), draining(60 * SEC, 5 * SEC));
    began.wait_for(1).await;
    let asked = rig.elapsed();
    worker.stopper.stop();
    worker.stop().await;
    assert!(rig.elapsed().saturating_sub(asked) < SEC);
}

/// A signal may come before the worker runs.
#[tokio::test(start_paused = true)]
async fn a_stop_before_the_run_is_not_lost() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let worker = rig.worker(rig.source(), deaf(&Probe::new()), settings());
    let stopper = Stopper::new();
    stopper.stop();
    let ended = tokio::time::timeout(SEC, worker.run_here(stopper)).await;
    assert_eq!(ended.expect("it ends at once").unwrap().abandoned, 0);
    let item = rig.item(id).await;
    assert_eq!((item.status, item.claim_seq), (Status::Queued, 0));
}

/// An idle worker goes at once.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_stops_at_once() {
    let rig = Rig::new();
    let worker = rig.start(deaf(&Probe::new()), settings());
    pass(SEC).await;
    let asked = rig.elapsed();
    worker.stop().await;
    assert!(rig.elapsed().saturating_sub(asked) < 100 * MS);
}

/// Leases are renewed during the drain: a long good-bye costs no item.
#[tokio::test(start_paused = true)]
async fn leases_are_kept_during_the_drain() {
    let rig = Rig::new();
    let (began, tidied) = (Probe::new(), Probe::new());
    let id = rig.enqueue(&Other { n: 0 }).await;
    let executor = tidy(deaf(&began), &began, &tidied, 50 * SEC);
    let settings = WorkerSettings {
        lease: 8 * SEC,
        ..draining(60 * SEC, SEC)
    };
    let worker = rig.start(executor, settings);
    began.wait_for(1).await;
    assert_eq!(worker.stop().await.abandoned, 0);
    let item = rig.item(id).await;
    assert_eq!((item.attempts, item.worker_losses), (0, 0));
    assert_eq!(item.last_error.unwrap().as_str(), "worker stopping");
}

/// Items that wait for a slot are handed back at once, not at the drain's limit.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_slot_is_handed_back_at_once() {
    let rig = Rig::new();
    let began = Probe::new();
    let ids = rig.enqueue_many((0..4).map(|n| Job { n })).await;
    let settings = WorkerSettings {
        capacity: 1,
        prefetch: 3,
        ..draining(30 * SEC, SEC)
    };
    let worker = rig.start(deaf(&began), settings);
    began.wait_for(1).await;
    worker.stopper.stop();
    pass(100 * MS).await;
    for id in &ids[1..] {
        let item = rig.item(*id).await;
        assert_eq!((item.status, item.attempts), (Status::Queued, 0));
    }
    worker.ended().await.unwrap();
}

/// G7: a dead letter of the drain is audited before the worker ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_in_the_drain_is_audited_before_the_worker_ends() {
    let rig = Rig::real();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |_: Job, run: Run| {
            let began = began.clone();
            async move {
                began.hit();
                run.cancelled().await;
                leasehold::Outcome::Refused {
                    reason: "never".into(),
                }
            }
        }
    };
    let (stores, audit) = Troubled::events(rig.faulty());
    audit.set(Trouble::Slow(100 * MS));
    let source = QueueSource::new(stores);
    let worker = Started::apart(rig.worker(source, jobs(handler), settings()));
    began.wait_for(1).await;
    worker.stop().await;
    let item = rig.item(id).await;
    assert_eq!(item.status, Status::Failed);
    assert!(item.audited_at.is_some(), "its audit entry is owed");
    assert_eq!(rig.audit().await.len(), 1);
}

/// Dropping the future of `run` asks for a drain, which goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_run_still_drains() {
    let rig = Rig::real();
    let (began, tidied) = (Probe::new(), Probe::new());
    let id = rig.enqueue(&Other { n: 0 }).await;
    let executor = tidy(deaf(&began), &began, &tidied, Duration::ZERO);
    let worker = rig.worker(rig.source(), executor, draining(20 * SEC, SEC));
    let running = tokio::spawn(worker.run(Stopper::new()));
    began.wait_for(1).await;
    running.abort();
    let item = rig.until_item(id, |item| item.attempts == 0).await;
    assert_eq!(item.status, Status::Queued);
    assert_eq!(item.last_error.unwrap().as_str(), "worker stopping");
    crate::harness::until(async || (live_workers(&rig).await == 0).then_some(())).await;
    assert_eq!(tidied.count(), 1);
}

/// Workers that share a stopper do not hurry each other: one request each, whoever ends first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_share_a_stopper_do_not_hurry_each_other() {
    let rig = Arc::new(Rig::real());
    let (began, tidied, gate) = (Probe::new(), Probe::new(), Latch::new());
    rig.enqueue(&Job { n: 0 }).await;
    let handler = {
        let (began, tidied, gate) = (began.clone(), tidied.clone(), gate.clone());
        move |_: Job, run: Run| {
            let (began, tidied, gate) = (began.clone(), tidied.clone(), gate.clone());
            async move {
                began.hit();
                run.cancelled().await;
                gate.passed().await;
                tidied.hit();
            }
        }
    };
    let busy = rig.worker(rig.source(), jobs(handler), draining(20 * SEC, SEC));
    let idle = rig.worker(rig.source(), deaf(&Probe::new()), draining(20 * SEC, SEC));
    let stopper = Stopper::new();
    let busy = tokio::spawn(busy.run(stopper.clone()));
    began.wait_for(1).await;
    let idle = tokio::spawn(idle.run(stopper.clone()));
    stopper.stop();
    idle.await.unwrap().unwrap();
    // Had the other one's end counted as a second request, the run would be killed meanwhile.
    pass(100 * MS).await; // real time: for what must not happen there is nothing to await
    gate.open();
    busy.await.unwrap().unwrap();
    assert_eq!(tidied.count(), 1);
}

/// `run` and `run_here` behave alike; this one has threads of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_threads_of_its_own_drains_and_ends() {
    let rig = Rig::real();
    let began = Probe::new();
    let ids = rig.enqueue_many((0..4).map(|n| Job { n })).await;
    let worker = rig.worker(rig.source(), deaf(&began), draining(100 * MS, SEC));
    let worker = Started::apart(worker);
    began.wait_for(4).await;
    assert_eq!(worker.stop().await.abandoned, 0);
    for id in ids {
        let item = rig.item(id).await;
        assert_eq!((item.status, item.attempts), (Status::Queued, 0));
    }
}
