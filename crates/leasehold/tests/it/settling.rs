//! Settling: a slot is freed whatever the store answers, and one row at fault takes no other along.

use std::time::Duration;

use leasehold::{Run, Status, WorkerSettings};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Latch, Probe};

use crate::harness::{Job, Rig, SEC, jobs, leased, pass, settings};

/// RECOVER-2: the first settle times out, capacity 1, three items: all end, and the slot is free.
#[tokio::test(start_paused = true)]
async fn a_slot_is_freed_whatever_its_settle_returns() {
    type Faulty = fn(&Rig);
    let faults: [(&str, Faulty); 4] = [
        ("times out", |rig| {
            rig.faults
                .fail_next(Operation::Settle, Fault::Delay(Duration::from_hours(1)));
        }),
        ("unavailable", |rig| {
            rig.faults
                .fail_next(Operation::Settle, Fault::unavailable());
        }),
        ("answer lost", |rig| {
            rig.faults.fail_next(Operation::Settle, Fault::LostAnswer);
        }),
        ("failed", |rig| {
            let failed = leasehold::StoreError::Failed("a fault of the test".into());
            rig.faults
                .fail_next(Operation::Settle, Fault::Error(failed));
        }),
    ];
    for (name, fault) in faults {
        let rig = Rig::new();
        fault(&rig);
        let ids = rig.enqueue_many((0..3).map(|n| Job { n })).await;
        let runs = Probe::new();
        let handler = {
            let runs = runs.clone();
            move |_: Job, _: Run| {
                runs.hit();
                async {}
            }
        };
        let lease = 4 * SEC;
        let settings = WorkerSettings {
            capacity: 1,
            sweep_interval: SEC,
            sweep_budget: SEC,
            requeue_spread: Duration::ZERO,
            poll_interval: SEC,
            ..leased(lease)
        };
        let worker = rig.start(jobs(handler), settings);
        for id in ids {
            let item = rig.until_status(id, Status::Done).await;
            assert!(item.attempts <= 2, "{name}: {}", item.attempts);
        }
        assert!(rig.elapsed() < 3 * lease, "{name}: {:?}", rig.elapsed());
        assert!(runs.count() <= 4, "{name}");
        pass(SEC).await;
        assert_eq!(worker.sum("leasehold_worker_slots_busy"), 0, "{name}");
        assert_eq!(worker.sum("leasehold_worker_slots"), 1, "{name}");
        worker.stop().await;
    }
}

/// The store refuses one row's data: the batch is bisected, its neighbours are settled, and the row
/// at fault is a dead letter that says so, counted and audited.
#[tokio::test(start_paused = true)]
async fn a_row_that_the_store_refuses_takes_no_neighbour_along() {
    let rig = Rig::new();
    let ids = rig.enqueue_many((0..4).map(|n| Job { n })).await;
    let (began, gate) = (Probe::new(), Latch::new());
    let handler = {
        let (began, gate) = (began.clone(), gate.clone());
        move |_: Job, _: Run| {
            let (began, gate) = (began.clone(), gate.clone());
            async move {
                began.hit();
                gate.passed().await;
            }
        }
    };
    let worker = rig.start(jobs(handler), settings());
    began.wait_for(4).await;
    // The batch of four, its first half, and that half's first row, or thereabouts.
    for _ in 0..3 {
        let refused = leasehold::StoreError::Refused("a fault of the test".into());
        rig.faults
            .fail_next(Operation::Settle, Fault::Error(refused));
    }
    gate.open();
    let mut done = 0;
    let mut dead = Vec::new();
    for id in ids {
        let item = rig.until_item(id, |item| item.status.is_final()).await;
        match item.status {
            Status::Done => done += 1,
            _ => dead.push(item),
        }
    }
    assert_eq!((done, dead.len()), (3, 1));
    assert_eq!(
        dead[0].failure_code.as_ref().unwrap().as_str(),
        "result_invalid"
    );
    assert!(
        dead[0]
            .last_error
            .as_ref()
            .unwrap()
            .as_str()
            .contains("a fault of the test")
    );
    pass(SEC).await;
    assert_eq!(rig.audit().await.len(), 1);
    assert_eq!(worker.sum("leasehold_dead_letters_total"), 1);
    assert_eq!(
        worker.series(
            "leasehold_items_finished_total",
            r#"kind="JOB",outcome="dead""#
        ),
        1
    );
    worker.stop().await;
}
