//! Fencing: a holder that lost its lease is stopped before anyone else may begin, and writes nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::OrgId;
use leasehold::core::store::work::StaleRequest;
use leasehold::{HandlerError, Outcome, Run, Status, WorkerSettings};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Journal, Latch, Probe};

use crate::harness::{Job, MS, Rig, SEC, Skewed, Started, jobs, leased, pass};
use crate::seen::{Saw, cooperative, deaf, steal};

const LEASE: Duration = Duration::from_secs(40);

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
            1
        );
        // Back in touch, the former holder changes nothing.
        rig.faults.unblock_all();
        pass(10 * SEC).await;
        assert_eq!(rig.item(id).await, item);
        assert_eq!(cut_off.sum("leasehold_worker_slots_busy"), 0);
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
            1,
            "{name}"
        );
        assert_eq!(
            frozen.series(
                "leasehold_items_finished_total",
                r#"kind="JOB",outcome="conflict""#
            ),
            1,
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
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 1);
    worker.stop().await;
}
