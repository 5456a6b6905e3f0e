//! Panics: an ordinary failure of their item, and nobody else's business.

use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use leasehold::core::OrgId;
use leasehold::{HandlerError, InProcess, Run, Status, Work};
use leasehold_testkit::probe::{Latch, Probe};
use serde::{Deserialize, Serialize};

use crate::harness::{Job, Rig, SEC, Started, jobs, leased, pass, settings};
use leasehold::WorkerSettings;
use std::any::Any;

/// Ten slow items, which go on whatever panics beside them.
async fn beside_ten_slow_items(rig: &Rig, executor: InProcess, check: impl AsyncFnOnce(&Started)) {
    let (began, gate) = (Probe::new(), Latch::new());
    let slow = {
        let (began, gate) = (began.clone(), gate.clone());
        move |_: Slow, _: Run| {
            let (began, gate) = (began.clone(), gate.clone());
            async move {
                began.hit();
                gate.passed().await;
            }
        }
    };
    let ids = rig.enqueue_many((0..10).map(|_| Slow {})).await;
    let settings = WorkerSettings {
        capacity: 14,
        ..leased(20 * SEC)
    };
    let worker = rig.start(executor.handle::<Slow>(slow).unwrap(), settings);
    began.wait_for(10).await;
    check(&worker).await;
    gate.open();
    for id in ids {
        assert_eq!(rig.until_status(id, Status::Done).await.attempts, 1);
    }
    // It goes on claiming.
    let last = rig.enqueue(&Slow {}).await;
    rig.until_status(last, Status::Done).await;
    assert_eq!(worker.sum("leasehold_worker_slots_stuck"), 0);
    assert_eq!(worker.stop().await.abandoned, 0);
}

#[derive(Debug, Serialize, Deserialize)]
struct Slow {}

impl Work for Slow {
    const KIND: &'static str = "SLOW";
}

async fn assert_panicked(rig: &Rig, id: leasehold::ItemId, says: &str) {
    let asked = rig.elapsed();
    let item = rig.until_item(id, |item| !item.errors.is_empty()).await;
    assert!(
        rig.elapsed().saturating_sub(asked) < SEC,
        "settled at once and not by lease expiry"
    );
    assert_eq!(
        (item.status, item.attempts, item.worker_losses),
        (Status::Queued, 1, 0)
    );
    let error = item.last_error.unwrap();
    assert!(
        error.as_str().starts_with("panicked: ") && error.as_str().contains(says),
        "{error}"
    );
}

/// ATTEMPT-4(a), (b): panics with a text and with a value that is none.
#[tokio::test(start_paused = true)]
async fn a_panic_is_an_ordinary_failure() {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            panic!("dropping it panics as well");
        }
    }
    let rig = Rig::new();
    let handler = |job: Job, _: Run| async move {
        match job.n {
            0 => panic!("out of cheese"),
            1 => panic!("out of {}", "luck"),
            2 => panic_any(42_i32),
            3 => panic_any(Nasty),
            _ => {}
        }
    };
    beside_ten_slow_items(&rig, jobs(handler), async |_| {
        for (n, says) in [
            (0, "out of cheese"),
            (1, "out of luck"),
            (2, "no text"),
            (3, "no text"),
        ] {
            let id = rig.enqueue(&Job { n }).await;
            assert_panicked(&rig, id, says).await;
        }
    })
    .await;
}

/// A panic before the first await, while the handler's future is made.
#[tokio::test(start_paused = true)]
async fn a_panic_in_making_the_future_is_an_ordinary_failure() {
    let rig = Rig::new();
    let handler = |job: Job, _: Run| {
        assert!(job.n > 1_000, "no future for {}", job.n);
        async {}
    };
    beside_ten_slow_items(&rig, jobs(handler), async |_| {
        let id = rig.enqueue(&Job { n: 7 }).await;
        assert_panicked(&rig, id, "no future for 7").await;
    })
    .await;
}

/// ATTEMPT-4(c): in a task that the handler spawned and awaits.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_spawned_task_is_an_ordinary_failure() {
    let rig = Rig::new();
    let handler = |_: Job, _: Run| async move {
        let task = tokio::spawn(async { panic!("in a task") });
        task.await?;
        Ok::<(), HandlerError>(())
    };
    beside_ten_slow_items(&rig, jobs(handler), async |_| {
        let id = rig.enqueue(&Job { n: 0 }).await;
        let item = rig.until_item(id, |item| !item.errors.is_empty()).await;
        assert_eq!((item.status, item.attempts), (Status::Queued, 1));
        let error = item.last_error.unwrap();
        assert!(
            error.as_str().contains("panicked") && error.as_str().contains("in a task"),
            "{error}"
        );
    })
    .await;
}

/// Panics when it is dropped, and never ends by itself.
struct PanicsOnDrop;

impl Future for PanicsOnDrop {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("while being dropped");
    }
}

/// ATTEMPT-4(d): while being cancelled: by the token, and by being dropped.
#[tokio::test(start_paused = true)]
async fn a_panic_while_being_cancelled_goes_no_further() {
    let rig = Rig::new();
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |job: Job, run: Run| {
            let began = began.clone();
            async move {
                began.hit();
                if job.n == 0 {
                    run.cancelled().await;
                    panic!("while being cancelled");
                }
                PanicsOnDrop.await;
            }
        }
    };
    beside_ten_slow_items(&rig, jobs(handler), async |worker| {
        for n in 0..2 {
            let id = rig.enqueue(&Job { n }).await;
            began.wait_for(u64::from(n) + 1).await;
            rig.client.cancel(id).await.unwrap();
            let item = rig.until_status(id, Status::Failed).await;
            assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
        }
        assert_eq!(worker.sum("leasehold_worker_slots_busy"), 10);
    })
    .await;
}

/// ATTEMPT-4(e): while holding a lock that is shared with other handlers of the kind: theirs is
/// poisoned, the worker's own are not.
#[tokio::test(start_paused = true)]
async fn a_panic_under_a_shared_lock_leaves_the_worker_whole() {
    let rig = Rig::new();
    let shared = Arc::new(Mutex::new(0));
    let handler = move |job: Job, _: Run| {
        let shared = shared.clone();
        async move {
            let mut count = shared
                .lock()
                .map_err(|_| HandlerError::new("the lock is poisoned"))?;
            *count += 1;
            assert!(job.n > 0, "under the lock");
            Ok::<(), HandlerError>(())
        }
    };
    beside_ten_slow_items(&rig, jobs(handler), async |_| {
        let first = rig.enqueue(&Job { n: 0 }).await;
        assert_panicked(&rig, first, "under the lock").await;
        let second = rig.enqueue(&Job { n: 1 }).await;
        let item = rig.until_item(second, |item| !item.errors.is_empty()).await;
        assert_eq!(
            item.last_error.unwrap().as_str(),
            "handler_error: the lock is poisoned"
        );
    })
    .await;
}

/// Whatever an executor lets through, the slot is not lost.
#[tokio::test(start_paused = true)]
async fn an_executor_that_panics_loses_no_slot() {
    struct Broken(InProcess);
    impl leasehold::Executor for Broken {
        fn kinds(&self) -> &std::collections::BTreeMap<leasehold::Kind, leasehold::KindSettings> {
            self.0.kinds()
        }

        fn run(&self, _: Run, _: tokio_util::sync::CancellationToken) -> leasehold::Running {
            Box::pin(async {
                let value: Box<dyn Any + Send> = Box::new("a defect of the executor");
                std::panic::resume_unwind(value)
            })
        }
    }
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let worker = rig.start(Broken(jobs(|_: Job, _: Run| async {})), settings());
    let item = rig.until_item(id, |item| !item.errors.is_empty()).await;
    assert_eq!((item.status, item.attempts), (Status::Queued, 1));
    pass(SEC).await;
    assert_eq!(worker.sum("leasehold_worker_slots_busy"), 0);
    let due = rig.stores.work.maintenance_due(None, 1).await.unwrap();
    assert_eq!(due, Vec::<OrgId>::new());
    worker.stop().await;
}
