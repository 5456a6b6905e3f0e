//! Keeping: leases are renewed in time, and a run whose lease is in danger is stopped.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Run, Status, WorkItem, WorkerSettings};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Journal, Latch};

use crate::harness::{Job, MS, Rig, SEC, Skewed, Started, jobs, leased, moments, pass};
use crate::seen::{Saw, began, cooperative, steal};

const LEASE: Duration = Duration::from_secs(40);

/// Facts 8.4: renewed on schedule, a quarter of the lease after the last renewal was sent.
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_every_quarter_of_it() {
    let rig = Arc::new(Rig::new());
    let id = rig.enqueue(&Job { n: 0 }).await;
    let saw = Journal::new();
    let source = rig.watched();
    let calls = source.calls.clone();
    let worker = rig.start_on(source, cooperative(&rig, &saw), leased(LEASE));
    let start = began(&saw.wait_for(1).await);
    pass(5 * LEASE).await;
    let renewals = moments(&calls, "renew", start);
    assert_eq!(renewals.len(), 19, "{renewals:?}");
    for (n, at) in renewals.iter().enumerate() {
        let due = LEASE / 4 * u32::try_from(n + 1).unwrap();
        assert!(*at >= due && *at < due + SEC, "renewal {n} at {at:?}");
    }
    assert_eq!(saw.entries().len(), 1, "it was not disturbed");
    let item = rig.item(id).await;
    assert_eq!((item.status, item.attempts), (Status::Claimed, 1));
    worker.stop().await;
}

/// Facts 8.4: a renewal refused cancels the run at once, and nothing is written.
#[tokio::test(start_paused = true)]
async fn a_refused_renewal_cancels_at_once() {
    let rig = Arc::new(Rig::new());
    let id = rig.enqueue(&Job { n: 0 }).await;
    let saw = Journal::new();
    let worker = rig.start(cooperative(&rig, &saw), leased(LEASE));
    let start = began(&saw.wait_for(1).await);
    let stolen = steal(&rig, id).await;
    let Saw::Cancelled(at) = saw.wait_for(2).await[1] else {
        panic!()
    };
    let after = at.saturating_sub(start);
    assert!(after >= LEASE / 4 && after < LEASE / 4 + SEC, "{after:?}");
    pass(SEC).await;
    assert_eq!(rig.item(id).await, stolen, "a former holder wrote");
    assert_eq!(
        worker.series("leasehold_lease_lost_total", r#"reason="refused""#),
        1
    );
    assert_eq!(
        worker.series(
            "leasehold_items_finished_total",
            r#"kind="JOB",outcome="lease_lost""#
        ),
        1
    );
    assert_eq!(worker.sum("leasehold_worker_slots_busy"), 0);
    worker.stop().await;
}

/// When a run whose renewals come out as `break_renewals` says is cancelled, and when it was renewed.
async fn doubted(
    break_renewals: impl FnOnce(&Rig),
) -> (Vec<Duration>, Duration, Arc<Rig>, Started) {
    let rig = Arc::new(Rig::new());
    let id = rig.enqueue(&Job { n: 0 }).await;
    break_renewals(&rig);
    let saw = Journal::new();
    let source = rig.watched();
    let calls = source.calls.clone();
    let worker = rig.start_on(source, cooperative(&rig, &saw), leased(LEASE));
    let start = began(&saw.wait_for(1).await);
    let Saw::Cancelled(at) = saw.wait_for(2).await[1] else {
        panic!()
    };
    // The hand-back goes through, so the attempt is not spent.
    let item = rig.until_item(id, |item| {
        item.claim_seq == 2 || item.status == Status::Queued
    });
    let item = item.await;
    assert!(item.attempts <= 1, "{item:?}");
    let renewals = moments(&calls, "renew", start);
    (renewals, at.saturating_sub(start), rig, worker)
}

fn near(moments: &[Duration], due: &[u64]) {
    assert_eq!(moments.len(), due.len(), "{moments:?}");
    for (at, due) in moments.iter().zip(due) {
        let due = Duration::from_secs(*due);
        assert!(*at >= due && *at < due + SEC, "{moments:?}");
    }
}

/// Facts 8.4: other failures are retried, and the run is cancelled at half a lease.
#[tokio::test(start_paused = true)]
async fn renewals_that_fail_are_retried_and_the_run_is_cancelled_at_half_a_lease() {
    let (renewals, cancelled, _rig, worker) = doubted(|rig| {
        for _ in 0..2 {
            rig.faults.fail_next(Operation::Renew, Fault::unavailable());
        }
    })
    .await;
    near(&renewals[..2], &[10, 15]);
    near(&[cancelled], &[20]);
    assert_eq!(
        worker.series("leasehold_lease_lost_total", r#"reason="doubted""#),
        1
    );
    assert_eq!(
        worker.series("leasehold_lease_renewals_total", r#"outcome="error""#),
        2
    );
    worker.stop().await;
}

/// Facts 8.4: a stall counts as a failure.
#[tokio::test(start_paused = true)]
async fn renewals_that_stall_are_retried_and_the_run_is_cancelled_at_half_a_lease() {
    let (renewals, cancelled, rig, worker) =
        doubted(|rig| rig.faults.block(Operation::Renew)).await;
    near(&renewals[..2], &[10, 15]);
    near(&[cancelled], &[20]);
    rig.faults.unblock(Operation::Renew);
    worker.stop().await;
}

/// Facts 8.4: fail, then stall.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_and_then_one_that_stalls_come_to_the_same() {
    let (renewals, cancelled, _rig, worker) = doubted(|rig| {
        rig.faults.fail_next(Operation::Renew, Fault::retry());
        rig.faults
            .fail_next(Operation::Renew, Fault::Delay(Duration::from_hours(1)));
    })
    .await;
    near(&renewals[..2], &[10, 15]);
    near(&[cancelled], &[20]);
    worker.stop().await;
}

/// LITE-1, the keeper's part: a store that makes a renewal wait, for less than a quarter of the lease,
/// is waited for, and no error is made of it.
#[tokio::test(start_paused = true)]
async fn a_slow_renewal_is_waited_for_and_counts() {
    let rig = Arc::new(Rig::new());
    rig.enqueue(&Job { n: 0 }).await;
    // Longer than until the next try, which waits as well.
    rig.faults
        .fail_next(Operation::Renew, Fault::Delay(LEASE / 5));
    rig.faults
        .fail_next(Operation::Renew, Fault::Delay(LEASE / 5));
    let saw = Journal::new();
    let source = rig.watched();
    let calls = source.calls.clone();
    let worker = rig.start_on(source, cooperative(&rig, &saw), leased(LEASE));
    let start = began(&saw.wait_for(1).await);
    pass(LEASE).await;
    near(&moments(&calls, "renew", start)[..2], &[10, 15]);
    assert_eq!(saw.entries().len(), 1);
    assert_eq!(worker.sum("leasehold_store_errors_total"), 0);
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 0);
    worker.stop().await;
}

/// A renewal that fails once costs nothing.
#[tokio::test(start_paused = true)]
async fn one_failed_renewal_does_not_disturb_the_run() {
    let rig = Arc::new(Rig::new());
    rig.enqueue(&Job { n: 0 }).await;
    rig.faults.fail_next(Operation::Renew, Fault::unavailable());
    let saw = Journal::new();
    let worker = rig.start(cooperative(&rig, &saw), leased(LEASE));
    saw.wait_for(1).await;
    pass(3 * LEASE).await;
    assert_eq!(saw.entries().len(), 1);
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 0);
    worker.stop().await;
}

/// A renewal whose answer was lost was made: the lease goes on, and so does the run.
#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_does_not_disturb_the_run() {
    let rig = Arc::new(Rig::new());
    rig.enqueue(&Job { n: 0 }).await;
    for _ in 0..3 {
        rig.faults.fail_next(Operation::Renew, Fault::LostAnswer);
        rig.faults
            .fail_next(Operation::Renew, Fault::Delay(Duration::ZERO));
    }
    let saw = Journal::new();
    let worker = rig.start(cooperative(&rig, &saw), leased(LEASE));
    saw.wait_for(1).await;
    pass(3 * LEASE).await;
    assert_eq!(saw.entries().len(), 1);
    worker.stop().await;
}

/// After a suspend, what was claimed before it is not started on the strength of a lease long gone.
#[tokio::test(start_paused = true)]
async fn an_item_whose_trust_has_ended_is_not_started() {
    let rig = Arc::new(Rig::new());
    rig.enqueue_many([Job { n: 1 }, Job { n: 2 }]).await;
    let clock = Skewed::new(rig.clock.clone());
    let (starts, gate) = (Journal::new(), Latch::new());
    let handler = {
        let (starts, gate, clock) = (starts.clone(), gate.clone(), clock.clone());
        move |job: Job, run: Run| {
            starts.note((job.n, run.is_cancelled()));
            let (gate, clock) = (gate.clone(), clock.clone());
            async move {
                gate.passed().await;
                if job.n == 1 {
                    // The machine sleeps for most of a lease, and wakes to find the first run over.
                    clock.suspend(LEASE * 3 / 4);
                }
            }
        }
    };
    let settings = WorkerSettings {
        capacity: 1,
        prefetch: 1,
        ..leased(LEASE)
    };
    let worker = rig.worker(rig.source(), jobs(handler), settings);
    let worker = Started::here(worker.with_clock(clock.clone()));
    starts.wait_for(1).await;
    gate.open();
    let seen = starts.wait_for(2).await;
    assert_eq!(
        seen,
        vec![(1, false), (2, false)],
        "(2, true) is a run that may not begin"
    );
    // It was handed back, and claimed anew.
    let claimed = worker.sum("leasehold_items_claimed_total");
    assert_eq!(claimed, 3);
    assert_eq!(worker.sum("leasehold_clock_jumps_total"), 1);
    worker.stop().await;
}

/// Progress reaches the item with the next renewal, and the newest counts.
#[tokio::test(start_paused = true)]
async fn progress_reaches_the_item() {
    let rig = Arc::new(Rig::new());
    let id = rig.enqueue(&Job { n: 0 }).await;
    // The renewal that carries it fails once: it is not lost.
    rig.faults.fail_next(Operation::Renew, Fault::unavailable());
    let gate = Latch::new();
    let handler = {
        let gate = gate.clone();
        move |_: Job, run: Run| {
            let gate = gate.clone();
            async move {
                run.progress(10, "begun");
                run.progress(250, "as good as done");
                gate.passed().await;
            }
        }
    };
    let worker = rig.start(jobs(handler), leased(LEASE));
    let item = rig.until_item(id, |item| item.progress.is_some()).await;
    let progress = item.progress.unwrap();
    assert_eq!(
        (progress.percent, progress.note.as_str()),
        (100, "as good as done")
    );
    assert!(rig.elapsed() < LEASE / 2);
    gate.open();
    rig.until_status(id, Status::Done).await;
    worker.stop().await;
}

/// A slow renewal that fails in the end does not put old progress over new.
#[tokio::test(start_paused = true)]
async fn progress_never_goes_back() {
    let rig = Arc::new(Rig::new());
    let id = rig.enqueue(&Job { n: 0 }).await;
    // The first renewal hangs until it is given up; the second is answered meanwhile.
    rig.faults
        .fail_next(Operation::Renew, Fault::Delay(Duration::from_hours(1)));
    let handler = |_: Job, run: Run| async move {
        run.progress(10, "begun");
        pass(LEASE * 5 / 16).await;
        run.progress(20, "further");
        pass(10 * LEASE).await;
    };
    let worker = rig.start(jobs(handler), leased(LEASE));
    let newest = |item: &WorkItem| item.progress.as_ref().is_some_and(|p| p.percent == 20);
    rig.until_item(id, newest).await;
    for _ in 0..20 {
        pass(LEASE / 8).await;
        assert!(newest(&rig.item(id).await));
    }
    worker.stop().await;
}

/// Many leases are renewed by one statement, and fall into step.
#[tokio::test(start_paused = true)]
async fn all_leases_are_renewed_together() {
    let rig = Arc::new(Rig::new());
    let saw = Journal::new();
    let source = rig.watched();
    let calls = source.calls.clone();
    let settings = WorkerSettings {
        capacity: 50,
        ..leased(LEASE)
    };
    let worker = rig.start_on(source, cooperative(&rig, &saw), settings);
    for n in 0..50 {
        rig.enqueue(&Job { n }).await;
        pass(100 * MS).await;
    }
    saw.wait_for(50).await;
    pass(LEASE).await;
    let from = rig.elapsed();
    pass(LEASE).await;
    let renewals: Vec<usize> = calls
        .entries()
        .iter()
        .filter(|call| call.name == "renew" && call.at > from)
        .map(|call| call.count)
        .collect();
    assert!(renewals.len() <= 5, "{renewals:?}");
    assert!(renewals.iter().all(|count| *count == 50), "{renewals:?}");
    worker.stop().await;
}
