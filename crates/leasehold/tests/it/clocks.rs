//! Clocks: the store's decides; a worker's own only measures how long it may trust.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, ToSpan};
use leasehold::{HandlerError, ItemId, Run, Status, WorkerSettings};
use leasehold_testkit::probe::{Journal, Probe};

use crate::harness::{Job, MS, Other, Rig, SEC, Skewed, Started, jobs, leased, pass, settings};

/// TIME-1: three workers, ten minutes ahead, ten minutes behind, and one that jumps back an hour
/// half-way. Due now, in a minute, and a retry after ten seconds: each runs when the store's clock
/// says, at most a poll later, and once.
#[tokio::test(start_paused = true)]
async fn workers_whose_clocks_disagree_follow_the_stores() {
    let rig = Arc::new(Rig::new());
    let runs: Journal<(ItemId, u32, jiff::Timestamp)> = Journal::new();
    let handler = {
        let (runs, rig) = (runs.clone(), rig.clone());
        move |job: Job, run: Run| {
            let (runs, rig) = (runs.clone(), rig.clone());
            async move {
                runs.note((run.item().id, run.attempt(), rig.clock.now()));
                // Longer than a lease, so that renewals matter.
                pass(if job.n == 0 { 45 * SEC } else { SEC }).await;
                if job.n == 2 && run.attempt() == 1 {
                    return Err(HandlerError::new("once"));
                }
                Ok(())
            }
        }
    };
    let settings = || WorkerSettings {
        poll_interval: SEC,
        sweep_interval: 5 * SEC,
        sweep_budget: SEC,
        ..leased(30 * SEC)
    };
    let clocks: Vec<_> = (0..3).map(|_| Skewed::new(rig.clock.clone())).collect();
    clocks[0].set_calendar(SignedDuration::from_mins(10));
    clocks[1].set_calendar(SignedDuration::from_mins(-10));
    let workers: Vec<Started> = clocks
        .iter()
        .map(|clock| {
            let worker = rig.worker(rig.source(), jobs(handler.clone()), settings());
            Started::here(worker.with_clock(clock.clone()))
        })
        .collect();
    let now = rig.enqueue_many((0..6).map(|_| Job { n: 0 })).await;
    let mut later = Vec::new();
    for _ in 0..6 {
        let fate = rig
            .client
            .enqueue(&Job { n: 1 })
            .delay(60 * SEC)
            .await
            .unwrap();
        later.push(crate::harness::inserted(fate));
    }
    let retried = rig.enqueue_many((0..6).map(|_| Job { n: 2 })).await;
    pass(30 * SEC).await;
    clocks[2].set_calendar(SignedDuration::from_hours(-1));
    let all: Vec<ItemId> = now.iter().chain(&later).chain(&retried).copied().collect();
    for id in &all {
        let item = rig.until_status(*id, Status::Done).await;
        assert_eq!(item.worker_losses, 0, "a live item was taken");
    }
    let runs = runs.entries();
    for id in now.iter().chain(&later) {
        assert_eq!(
            runs.iter().filter(|run| run.0 == *id).count(),
            1,
            "executions per item"
        );
    }
    for id in &later {
        let due = rig.item(*id).await.created_at + 60.seconds();
        let (_, _, at) = runs.iter().find(|run| run.0 == *id).unwrap();
        let late = at.duration_since(due);
        // A poll interval, a tenth of jitter, and the seconds' pause after the jump are over by then.
        assert!(
            !late.is_negative() && late <= SignedDuration::from_millis(1_150),
            "{late:?}"
        );
    }
    for id in &retried {
        let tries: Vec<_> = runs.iter().filter(|run| run.0 == *id).collect();
        assert_eq!(
            tries.iter().map(|run| run.1).collect::<Vec<_>>(),
            vec![1, 2]
        );
        let error = rig.item(*id).await.errors[0].at;
        let wait = tries[1].2.duration_since(error);
        assert!(wait >= SignedDuration::from_secs(30), "{wait:?}");
        assert!(
            wait <= SignedDuration::from_millis(33_000 + 1_150),
            "{wait:?}"
        );
    }
    // The skew is measured against the store's clock, for whoever must set the time.
    for (worker, ahead) in workers.iter().zip([600.0, -600.0, -3_600.0]) {
        let skew = worker.metrics.sum("leasehold_clock_skew_seconds");
        assert!((skew - ahead).abs() < 1.0, "{skew}");
    }
    assert_eq!(workers[2].sum("leasehold_clock_jumps_total"), 1);
    for worker in workers {
        worker.stop().await;
    }
}

/// After a suspend nothing is claimed and nothing recovered for a moment: whoever holds a lease that
/// ran out meanwhile stops first.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_claims_and_recovery_pause() {
    let rig = Arc::new(Rig::new());
    let clock = Skewed::new(rig.clock.clone());
    let starts = Journal::new();
    let handler = {
        let (starts, rig) = (starts.clone(), rig.clone());
        move |_: Job, _: Run| {
            starts.note(rig.elapsed());
            async {}
        }
    };
    let settings = WorkerSettings {
        poll_interval: 100 * MS,
        sweep_interval: 100 * MS,
        sweep_budget: 100 * MS,
        requeue_spread: Duration::ZERO,
        ..settings()
    };
    let worker = rig.worker(rig.source(), jobs(handler), settings);
    let worker = Started::here(worker.with_clock(clock.clone()));
    pass(5 * SEC).await;
    // Somebody's claim runs out while the machine sleeps; another item comes in the same moment.
    let lost = rig.enqueue(&Other { n: 0 }).await;
    rig.claim_elsewhere(100 * MS).await;
    clock.suspend(Duration::from_mins(1));
    let woke = rig.elapsed();
    let fresh = rig.enqueue(&Job { n: 0 }).await;
    rig.until_status(fresh, Status::Done).await;
    let waited = starts.entries()[0].saturating_sub(woke);
    assert!(waited >= 2 * SEC && waited < 3 * SEC, "{waited:?}");
    rig.until_status(lost, Status::Queued).await;
    let waited = rig.elapsed().saturating_sub(woke);
    assert!(waited >= 3 * SEC && waited < 10 * SEC, "{waited:?}");
    worker.stop().await;
}

/// A calendar that is set moves no lease: trust is elapsed time.
#[tokio::test(start_paused = true)]
async fn a_calendar_that_is_set_costs_no_lease() {
    for hours in [-1, 1, 24] {
        let rig = Rig::new();
        let clock = Skewed::new(rig.clock.clone());
        let (id, began) = (rig.enqueue(&Job { n: 0 }).await, Probe::new());
        let handler = {
            let began = began.clone();
            move |_: Job, run: Run| {
                began.hit();
                async move {
                    tokio::select! {
                        () = run.cancelled() => Err(HandlerError::new("cancelled")),
                        () = pass(60 * SEC) => Ok(()),
                    }
                }
            }
        };
        let worker = rig.worker(rig.source(), jobs(handler), leased(10 * SEC));
        let worker = Started::here(worker.with_clock(clock.clone()));
        began.wait_for(1).await;
        pass(7 * SEC).await;
        clock.set_calendar(SignedDuration::from_hours(hours));
        let item = rig.until_status(id, Status::Done).await;
        assert_eq!((item.attempts, began.count()), (1, 1));
        assert_eq!(worker.sum("leasehold_lease_lost_total"), 0);
        worker.stop().await;
    }
}
