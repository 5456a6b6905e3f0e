//! Keeping: leases are renewed in time, a lost one stops its run, and a former holder writes nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::rules;
use leasehold::core::store::work::{Settlement, StaleRequest};
use leasehold::core::{Hold, OrgId};
use leasehold::{HandlerError, InProcess, ItemId, Outcome, Run, Status, WorkItem, WorkerSettings};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Journal, Latch, Probe};

use crate::harness::{Job, MS, Rig, SEC, Skewed, Started, jobs, leased, moments, pass};

const LEASE: Duration = Duration::from_secs(40);

/// What a handler saw, by the rig's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Saw {
    Began(Duration),
    Cancelled(Duration),
    /// Dropped before it ended by itself.
    Dropped(Duration),
}

/// Tells when the run is dropped.
struct Told<F: FnMut()>(F);

impl<F: FnMut()> Drop for Told<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs until it is cancelled, and then gives up.
fn cooperative(rig: &Arc<Rig>, saw: &Journal<Saw>) -> InProcess {
    let (rig, saw) = (rig.clone(), saw.clone());
    jobs(move |_: Job, run: Run| {
        let (rig, saw) = (rig.clone(), saw.clone());
        async move {
            saw.note(Saw::Began(rig.elapsed()));
            run.cancelled().await;
            saw.note(Saw::Cancelled(rig.elapsed()));
            Err::<(), _>(HandlerError::new("stopped half-way"))
        }
    })
}

/// Awaits for ever, whatever it is told.
fn deaf(rig: &Arc<Rig>, saw: &Journal<Saw>) -> InProcess {
    let (rig, saw) = (rig.clone(), saw.clone());
    jobs(move |_: Job, _: Run| {
        let (rig, saw) = (rig.clone(), saw.clone());
        async move {
            saw.note(Saw::Began(rig.elapsed()));
            let _told = Told(move || saw.note(Saw::Dropped(rig.elapsed())));
            std::future::pending::<()>().await;
        }
    })
}

fn began(saw: &[Saw]) -> Duration {
    match saw.first() {
        Some(Saw::Began(at)) => *at,
        other => panic!("{other:?}"),
    }
}

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

/// Takes the item away behind its holder's back, and gives it to somebody else.
async fn steal(rig: &Rig, id: ItemId) -> WorkItem {
    let item = rig.item(id).await;
    let hold = Hold {
        org_id: OrgId::SINGLE,
        item_id: id,
        token: item.claim_token.unwrap(),
    };
    let release = Settlement {
        hold,
        transition: rules::hand_back("stolen"),
    };
    let _ = rig.stores.work.settle(&[release]).await.unwrap();
    let claimed = rig.claim_elsewhere(Duration::from_hours(1)).await;
    assert_eq!(claimed[0].item.id, id);
    rig.item(id).await
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
    let after = at - start;
    assert!(after >= LEASE / 4 && after < LEASE / 4 + SEC, "{after:?}");
    pass(SEC).await;
    assert_eq!(rig.item(id).await, stolen, "a former holder wrote");
    assert_eq!(
        worker.series("leasehold_lease_lost_total", r#"reason="refused""#),
        1.0
    );
    assert_eq!(
        worker.series(
            "leasehold_items_finished_total",
            r#"kind="JOB",outcome="lease_lost""#
        ),
        1.0
    );
    assert_eq!(worker.sum("leasehold_worker_slots_busy"), 0.0);
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
    (moments(&calls, "renew", start), at - start, rig, worker)
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
        1.0
    );
    assert_eq!(
        worker.series("leasehold_lease_renewals_total", r#"outcome="error""#),
        2.0
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
    assert_eq!(worker.sum("leasehold_store_errors_total"), 0.0);
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 0.0);
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
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 0.0);
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

/// LEASE-5: cut off from the store, a handler that listens is cancelled and one that does not is
/// dropped, both before the lease can have lapsed; the next holder starts after.
#[tokio::test(start_paused = true)]
async fn a_worker_cut_off_from_the_store_stops_its_run_before_anyone_else_may_claim() {
    for listens in [true, false] {
        let rig = Arc::new(Rig::new());
        let id = rig.enqueue(&Job { n: 0 }).await;
        let saw = Journal::new();
        let executor = if listens {
            cooperative(&rig, &saw)
        } else {
            deaf(&rig, &saw)
        };
        let cut_off = rig.start(executor, leased(3 * SEC));
        saw.wait_for(1).await;
        // The black hole opens right after a renewal was accepted.
        let renewals = rig.faults.calls(Operation::Renew);
        rig.faults
            .wait_for_calls(Operation::Renew, renewals + 1)
            .await;
        pass(10 * MS).await;
        rig.faults.block_all();
        let expiry = rig.item(id).await.lease_expires_at.unwrap();

        // Another worker, with a store of its own, looks all the time and sweeps.
        let other = Rig::new_beside(&rig);
        let starts = Probe::new();
        let handler = {
            let (rig, starts) = (rig.clone(), starts.clone());
            move |_: Job, _: Run| {
                starts.hit();
                let at = rig.clock.now();
                assert!(at >= expiry, "a second start before the lease was over");
                async {}
            }
        };
        let busy = WorkerSettings {
            poll_interval: 50 * MS,
            sweep_interval: SEC,
            sweep_budget: SEC,
            requeue_spread: Duration::ZERO,
            ..leased(3 * SEC)
        };
        let second = other.start(jobs(handler), busy);
        let stopped = saw.wait_for(2).await[1];
        let at = match stopped {
            Saw::Cancelled(at) if listens => at,
            Saw::Dropped(at) if !listens => at,
            other => panic!("{other:?}"),
        };
        let left = expiry.duration_since(rig.clock.now());
        assert!(
            left.is_positive(),
            "stopped at {at:?}, after the lease was over"
        );
        let item = rig.until_status(id, Status::Done).await;
        assert_eq!(starts.count(), 1);
        assert_eq!(
            (item.attempts, item.worker_losses),
            (2, 1),
            "one attempt was spent on the loss"
        );
        assert_eq!(
            cut_off.series("leasehold_lease_lost_total", r#"reason="doubted""#),
            1.0
        );
        // Back in touch, the former holder changes nothing.
        rig.faults.unblock_all();
        pass(10 * SEC).await;
        assert_eq!(rig.item(id).await, item);
        assert_eq!(cut_off.sum("leasehold_worker_slots_busy"), 0.0);
        cut_off.stop().await;
        second.stop().await;
    }
}

/// LEASE-4: everything that a former holder's run may end in is refused and counted, and changes no
/// column; the names of the workers are the same.
#[tokio::test(start_paused = true)]
async fn a_former_holders_late_result_is_refused_whatever_it_is() {
    type Ending = fn() -> Outcome;
    let endings: [(&str, Ending); 5] = [
        ("complete", Outcome::done),
        ("fail", || {
            let failed: Result<(), _> = Err(HandlerError::new("late"));
            leasehold::IntoOutcome::into_outcome(failed)
        }),
        ("defer", || Outcome::Parked {
            reason: "late".into(),
            resume_after: SEC,
        }),
        ("refuse", || Outcome::Refused {
            reason: "late".into(),
        }),
        ("release", || Outcome::Released {
            note: "late".into(),
        }),
    ];
    for (name, ending) in endings {
        let rig = Arc::new(Rig::new());
        let id = rig.enqueue(&Job { n: 0 }).await;
        let (began, gate) = (Probe::new(), Latch::new());
        let handler = {
            let (began, gate) = (began.clone(), gate.clone());
            move |_: Job, _: Run| {
                let (began, gate) = (began.clone(), gate.clone());
                async move {
                    began.hit();
                    gate.passed().await;
                    ending()
                }
            }
        };
        // Its own time stands still: it is frozen, and believes in its lease.
        let clock = Skewed::new(rig.clock.clone());
        // One slot: it cannot claim the item again by itself.
        let settings = WorkerSettings {
            capacity: 1,
            ..leased(2 * SEC)
        };
        let frozen = rig.worker(rig.source(), jobs(handler), settings);
        let frozen = Started::here(frozen.with_clock(clock.clone()));
        began.wait_for(1).await;
        clock.freeze();
        pass(3 * SEC).await;
        let request = StaleRequest {
            limit: 10,
            spread: Duration::ZERO,
        };
        rig.stores
            .work
            .requeue_stale(OrgId::SINGLE, &request)
            .await
            .unwrap();

        let (second_began, second_gate) = (Probe::new(), Latch::new());
        let handler = {
            let (began, gate) = (second_began.clone(), second_gate.clone());
            move |_: Job, _: Run| {
                let (began, gate) = (began.clone(), gate.clone());
                async move {
                    began.hit();
                    gate.passed().await;
                }
            }
        };
        // A long lease: no renewal of its own moves the row while it is looked at.
        let second = rig.start(jobs(handler), leased(Duration::from_hours(1)));
        second_began.wait_for(1).await;
        let held = rig.item(id).await;
        gate.open();
        pass(100 * MS).await;
        assert_eq!(rig.item(id).await, held, "{name} changed the row");
        assert_eq!(
            frozen.series(
                "leasehold_stale_writes_refused_total",
                r#"operation="settle""#
            ),
            1.0,
            "{name}"
        );
        assert_eq!(
            frozen.series(
                "leasehold_items_finished_total",
                r#"kind="JOB",outcome="conflict""#
            ),
            1.0,
            "{name}"
        );
        second_gate.open();
        let done = rig.until_status(id, Status::Done).await;
        assert_eq!(done.attempts, 2, "{name}: a refusal spends no attempt");
        assert!(rig.audit().await.is_empty(), "{name}");
        second.stop().await;
        frozen.stop().await;
    }
}

/// LEASE-4, the fifth call: the late renewal is refused, and stops the run.
#[tokio::test(start_paused = true)]
async fn a_former_holders_late_renewal_is_refused_and_stops_it() {
    let rig = Arc::new(Rig::new());
    let id = rig.enqueue(&Job { n: 0 }).await;
    let saw = Journal::new();
    let clock = Skewed::new(rig.clock.clone());
    // Its renewal hangs on the way, through all of the time in which it is frozen.
    rig.faults
        .fail_next(Operation::Renew, Fault::Delay(20 * SEC));
    let worker = rig.worker(rig.source(), cooperative(&rig, &saw), leased(LEASE));
    let worker = Started::here(worker.with_clock(clock.clone()));
    saw.wait_for(1).await;
    rig.faults.wait_for_calls(Operation::Renew, 1).await;
    clock.freeze();
    let stolen = steal(&rig, id).await;
    clock.thaw();
    saw.wait_for(2).await;
    pass(SEC).await;
    assert_eq!(rig.item(id).await, stolen);
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 1.0);
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
    assert_eq!(claimed, 3.0);
    assert_eq!(worker.sum("leasehold_clock_jumps_total"), 1.0);
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
