//! Cancelling: a running item is told by its next renewal, and ends as cancelled unless it is done.

use std::time::Duration;

use leasehold::core::store::work::Cancelled;
use leasehold::{HandlerError, Run, Status, WorkerSettings};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Journal, Probe};

use crate::harness::{Job, Rig, SEC, jobs, leased, pass, settings};

const LEASE: Duration = Duration::from_secs(40);

/// A running item learns of it by its next renewal, and ends as cancelled: an operator's act, audited
/// as one, and no dead letter.
#[tokio::test(start_paused = true)]
async fn a_running_item_is_told_by_its_renewal_and_ends_as_cancelled() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let told = Journal::new();
    let handler = {
        let (told, clock, began) = (told.clone(), rig.clock.clone(), rig.clock.elapsed());
        move |_: Job, run: Run| {
            let (told, clock) = (told.clone(), clock.clone());
            async move {
                run.cancelled().await;
                told.note(clock.elapsed().since(began));
                Err::<(), _>(HandlerError::new("stopped half-way"))
            }
        }
    };
    let worker = rig.start(jobs(handler), leased(LEASE));
    rig.until_status(id, Status::Claimed).await;
    let answer = rig.client.cancel(id).await.unwrap();
    assert!(matches!(answer, Cancelled::Requested(_)), "{answer:?}");
    let at = told.wait_for(1).await[0];
    assert!(at >= LEASE / 4 && at < LEASE / 4 + SEC, "{at:?}");
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.as_ref().unwrap().as_str(), "cancelled");
    assert!(!item.is_dead_letter());
    let acts: Vec<String> = rig
        .audit()
        .await
        .into_iter()
        .map(|entry| entry.entry.kind)
        .collect();
    assert_eq!(acts, vec!["work.item.cancel"]);
    assert_eq!(worker.sum("leasehold_dead_letters_total"), 0);
    assert_eq!(
        worker.series(
            "leasehold_items_finished_total",
            r#"kind="JOB",outcome="cancelled""#
        ),
        1
    );
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 0);
    worker.stop().await;
}

/// Done beats cancel.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_done_within_the_grace_is_done() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let handler = |_: Job, run: Run| async move {
        run.cancelled().await;
        pass(5 * SEC).await;
    };
    let worker = rig.start(jobs(handler), leased(LEASE));
    rig.until_status(id, Status::Claimed).await;
    rig.client.cancel(id).await.unwrap();
    let item = rig
        .until_item(id, |item| item.status != Status::Claimed)
        .await;
    assert_eq!(item.status, Status::Done);
    worker.stop().await;
}

/// One that does not listen is dropped after the grace, and ends as cancelled too.
#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_listen_is_dropped_after_the_grace() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let handler = |_: Job, _: Run| std::future::pending::<()>();
    let settings = WorkerSettings {
        stop_grace: 7 * SEC,
        ..leased(LEASE)
    };
    let worker = rig.start(jobs(handler), settings);
    rig.until_status(id, Status::Claimed).await;
    rig.client.cancel(id).await.unwrap();
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    let took = rig.elapsed();
    let due = LEASE / 4 + 7 * SEC;
    assert!(took >= due && took < due + SEC, "{took:?}");
    worker.stop().await;
}

/// The grace is the setting's, also where it is longer than the lease.
#[tokio::test(start_paused = true)]
async fn a_grace_longer_than_the_lease_is_kept() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let tidied = Probe::new();
    let handler = {
        let tidied = tidied.clone();
        move |_: Job, run: Run| {
            let tidied = tidied.clone();
            async move {
                run.cancelled().await;
                pass(20 * SEC).await;
                tidied.hit();
                Err::<(), _>(HandlerError::new("stopped half-way"))
            }
        }
    };
    let settings = WorkerSettings {
        stop_grace: 30 * SEC,
        ..leased(4 * SEC)
    };
    let worker = rig.start(jobs(handler), settings);
    rig.until_status(id, Status::Claimed).await;
    rig.client.cancel(id).await.unwrap();
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    assert_eq!(tidied.count(), 1, "it was killed before its grace was over");
    worker.stop().await;
}

/// An item whose run fails after the cancel was asked, and before it was told, is not queued again.
#[tokio::test(start_paused = true)]
async fn a_run_that_fails_before_it_is_told_ends_as_cancelled() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let handler = |_: Job, _: Run| async {
        pass(5 * SEC).await;
        Err::<(), _>(HandlerError::new("by itself"))
    };
    let worker = rig.start(jobs(handler), leased(LEASE));
    rig.until_status(id, Status::Claimed).await;
    rig.client.cancel(id).await.unwrap();
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    assert!(rig.elapsed() < LEASE / 4);
    worker.stop().await;
}

/// A cancel of a worker's item that dies with its worker: the sweep ends it as cancelled.
#[tokio::test(start_paused = true)]
async fn a_cancelled_item_whose_worker_died_is_not_run_again() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    rig.claim_elsewhere(SEC).await;
    rig.client.cancel(id).await.unwrap();
    let runs = Probe::new();
    let handler = {
        let runs = runs.clone();
        move |_: Job, _: Run| {
            runs.hit();
            async {}
        }
    };
    let settings = WorkerSettings {
        sweep_interval: SEC,
        sweep_budget: SEC,
        ..settings()
    };
    let worker = rig.start(jobs(handler), settings);
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    assert_eq!(runs.count(), 0);
    worker.stop().await;
}

/// The answer that tells of it may be lost: the next one tells again.
#[tokio::test(start_paused = true)]
async fn a_cancel_whose_answer_was_lost_is_told_by_the_next() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    rig.faults.fail_next(Operation::Renew, Fault::LostAnswer);
    let handler = |_: Job, run: Run| async move {
        run.cancelled().await;
        Err::<(), _>(HandlerError::new("stopped half-way"))
    };
    let worker = rig.start(jobs(handler), leased(LEASE));
    rig.until_status(id, Status::Claimed).await;
    rig.client.cancel(id).await.unwrap();
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    let took = rig.elapsed();
    assert!(took >= 15 * SEC && took < 16 * SEC, "{took:?}");
    worker.stop().await;
}
