//! Attempts: what spends one, what does not, how long the next waits, and where it ends.

use std::any::Any;
use std::future::Future;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::core::OrgId;
use leasehold::core::item::ERRORS_MAX;
use leasehold::core::rules::RetryPolicy;
use leasehold::{
    HandlerError, InProcess, Json, Outcome, Run, Status, Work, WorkItem, WorkerError,
    WorkerSettings,
};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Journal, Latch, Probe};
use serde::{Deserialize, Serialize};

use crate::harness::{Job, MS, Other, Rig, SEC, Started, jobs, leased, pass, settings};

/// The growing delays of the default policy: base 30 s, cap 15 min, up to a tenth more.
fn is_retry_delay(gap: Duration, attempts: u32) -> bool {
    let least = (30 * SEC * (1 << (attempts - 1))).min(Duration::from_mins(15));
    gap >= least && gap <= least.mul_f64(1.1) + 2 * SEC
}

/// ATTEMPT-2: default configuration, one second's poll, and a handler that answers `outcome`.
async fn tries(
    outcome: fn() -> Outcome,
    attempts_max: u32,
) -> (Vec<Duration>, WorkItem, Rig, Started) {
    let rig = Rig::new();
    let starts = Journal::new();
    let handler = {
        let (starts, clock, began) = (starts.clone(), rig.clock.clone(), rig.clock.elapsed());
        move |_: Job, run: Run| {
            starts.note((clock.elapsed().since(began), run.attempt()));
            async move { outcome() }
        }
    };
    let id = rig
        .client
        .enqueue(&Job { n: 0 })
        .max_attempts(attempts_max)
        .await;
    let id = crate::harness::inserted(id.unwrap());
    let source = rig.watched();
    let calls = source.calls.clone();
    let defaults = WorkerSettings {
        name: "case".to_owned(),
        ..WorkerSettings::default()
    };
    let worker = rig.start_on(source, jobs(handler), defaults);
    let item = rig.until_item(id, |item| item.status.is_final()).await;
    let starts = starts.entries();
    for (n, (_, attempt)) in starts.iter().enumerate() {
        assert_eq!(
            *attempt as usize,
            n + 1,
            "the count is stored after every try"
        );
    }
    // Near idle between tries: no more claims than the poll, the freed slots and the starts explain.
    let claims = crate::harness::moments(&calls, "claim", Duration::ZERO).len();
    let polls = rig.elapsed().as_secs_f64() / 0.9;
    assert!(
        (claims as f64) < polls + 10.0 * starts.len() as f64,
        "{claims} claims"
    );
    let moments = starts.into_iter().map(|(at, _)| at).collect();
    (moments, item, rig, worker)
}

/// ATTEMPT-2(a): a handler that always fails: a growing delay, and then a dead letter with every error.
#[tokio::test(start_paused = true)]
async fn a_handler_that_always_fails_ends_as_a_dead_letter_after_growing_delays() {
    let failing = || {
        let failed: Result<(), _> = Err(HandlerError::new("no luck"));
        leasehold::IntoOutcome::into_outcome(failed)
    };
    let (starts, item, rig, worker) = tries(failing, 5).await;
    assert_eq!(starts.len(), 5);
    for (n, pair) in starts.windows(2).enumerate() {
        let gap = pair[1] - pair[0];
        let attempts = u32::try_from(n + 1).unwrap();
        assert!(is_retry_delay(gap, attempts), "gap {n} was {gap:?}");
    }
    assert_eq!((item.status, item.attempts), (Status::Failed, 5));
    assert!(item.is_dead_letter());
    let errors: Vec<_> = item
        .errors
        .iter()
        .map(|error| (error.attempt, error.message.as_str()))
        .collect();
    let expected: Vec<_> = (1..=5).map(|n| (n, "handler_error: no luck")).collect();
    assert_eq!(errors, expected);
    pass(SEC).await;
    // G7: never silent.
    let audit = rig.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0].entry.kind, "work.item.dead_letter");
    assert_eq!(audit[0].entry.target_id, item.id.as_uuid());
    assert!(audit[0].entry.payload.as_str().contains("no luck"));
    assert_eq!(
        worker.series("leasehold_dead_letters_total", r#"kind="JOB""#),
        1.0
    );
    assert!(rig.item(item.id).await.audited_at.is_some());
    worker.stop().await;
}

/// ATTEMPT-2(b): a handler that always asks for 0 s: the policy's delay holds.
#[tokio::test(start_paused = true)]
async fn a_handler_cannot_shorten_its_delay() {
    let hasty = || {
        let failed: Result<(), _> = Err(HandlerError::new("now!").retry_after(Duration::ZERO));
        leasehold::IntoOutcome::into_outcome(failed)
    };
    let (starts, item, _rig, worker) = tries(hasty, 3).await;
    assert_eq!(starts.len(), 3);
    assert!(is_retry_delay(starts[1] - starts[0], 1));
    assert!(is_retry_delay(starts[2] - starts[1], 2));
    assert_eq!((item.status, item.attempts), (Status::Failed, 3));
    worker.stop().await;
}

/// A handler may ask for longer.
#[tokio::test(start_paused = true)]
async fn a_handler_may_lengthen_its_delay() {
    let patient = || {
        let failed: Result<(), _> = Err(HandlerError::new("later").retry_after(120 * SEC));
        leasehold::IntoOutcome::into_outcome(failed)
    };
    let (starts, _, _rig, worker) = tries(patient, 2).await;
    let gap = starts[1] - starts[0];
    assert!(gap >= 120 * SEC && gap < 123 * SEC, "{gap:?}");
    worker.stop().await;
}

/// ATTEMPT-2(c): success the first time is exactly one attempt.
#[tokio::test(start_paused = true)]
async fn success_the_first_time_is_one_attempt() {
    let (starts, item, rig, worker) = tries(Outcome::done, 3).await;
    assert_eq!(starts.len(), 1);
    assert_eq!((item.status, item.attempts), (Status::Done, 1));
    assert!(item.errors.is_empty() && item.last_error.is_none());
    assert!(rig.audit().await.is_empty());
    worker.stop().await;
}

/// Many attempts keep the newest errors and no more.
#[tokio::test(start_paused = true)]
async fn the_newest_errors_are_kept() {
    let rig = Rig::new();
    let handler = |_: Quick, run: Run| async move {
        Err::<(), _>(HandlerError::new(format!("try {}", run.attempt())))
    };
    let fate = rig.client.enqueue(&Quick {}).max_attempts(30).await;
    let id = crate::harness::inserted(fate.unwrap());
    let executor = InProcess::new().handle::<Quick>(handler).unwrap();
    let quick = WorkerSettings {
        poll_interval: 50 * MS,
        ..settings()
    };
    let worker = rig.start(executor, quick);
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.errors.len(), ERRORS_MAX);
    assert_eq!(
        item.errors.last().unwrap().message.as_str(),
        "handler_error: try 30"
    );
    worker.stop().await;
}

#[derive(Debug, Serialize, Deserialize)]
struct Quick {}

impl Work for Quick {
    const KIND: &'static str = "QUICK";

    fn retry() -> RetryPolicy {
        RetryPolicy {
            base: MS,
            cap: 10 * MS,
            jitter: 0.0,
        }
    }
}

/// ATTEMPT-3, in small: deferrals and releases spend nothing, wait at least a second, and leave the
/// first failure its first delay.
#[tokio::test(start_paused = true)]
async fn deferral_and_release_spend_no_attempt() {
    const ROUNDS: u64 = 400;
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let starts = Journal::new();
    let handler = {
        let (starts, clock) = (starts.clone(), rig.clock.clone());
        move |_: Job, run: Run| {
            starts.note((clock.elapsed(), run.attempt()));
            let number = starts.entries().len() as u64;
            async move {
                match number {
                    n if n <= ROUNDS && n.is_multiple_of(2) => Outcome::Parked {
                        reason: "the guard says no".into(),
                        resume_after: Duration::ZERO,
                    },
                    n if n <= ROUNDS => Outcome::Released {
                        note: "not mine".into(),
                    },
                    n if n == ROUNDS + 1 => {
                        let failed: Result<(), _> = Err(HandlerError::new("once"));
                        leasehold::IntoOutcome::into_outcome(failed)
                    }
                    _ => Outcome::done(),
                }
            }
        }
    };
    let settings = WorkerSettings {
        poll_interval: 100 * MS,
        ..settings()
    };
    let worker = rig.start(jobs(handler), settings);
    let failed = rig.until_item(id, |item| !item.errors.is_empty()).await;
    assert_eq!(
        failed.attempts, 1,
        "untouched by {ROUNDS} deferrals and releases"
    );
    assert_eq!(failed.claim_seq, i64::try_from(ROUNDS).unwrap() + 1);
    let item = rig.until_status(id, Status::Done).await;
    assert_eq!(item.attempts, 2);
    let starts = starts.entries();
    assert!(
        starts[..starts.len() - 1]
            .iter()
            .all(|(_, attempt)| *attempt == 1)
    );
    let gaps: Vec<_> = starts
        .windows(2)
        .map(|pair| pair[1].0.since(pair[0].0))
        .collect();
    let (last, deferred) = gaps.split_last().unwrap();
    assert!(deferred.iter().all(|gap| *gap >= SEC), "no hot loop");
    assert!(is_retry_delay(*last, 1), "{last:?}");
    worker.stop().await;
}

/// Fail for good, refuse: a dead letter at once, whatever attempts are left.
#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_a_dead_letter_at_once() {
    let outcomes: [(&str, &str, fn() -> Outcome); 3] = [
        ("handler_error", "handler_error: bad data", || {
            let failed: Result<(), _> = Err(HandlerError::new("bad data").for_good());
            leasehold::IntoOutcome::into_outcome(failed)
        }),
        ("refused", "refused: never", || Outcome::Refused {
            reason: "never".into(),
        }),
        ("NoSuchCustomer", "NoSuchCustomer: 7", || {
            let failed: Result<(), _> = Err(HandlerError::new("7")
                .with_code("NoSuchCustomer")
                .for_good());
            leasehold::IntoOutcome::into_outcome(failed)
        }),
    ];
    for (code, error, outcome) in outcomes {
        let (starts, item, _rig, worker) = tries(outcome, 5).await;
        assert_eq!((starts.len(), item.attempts), (1, 1));
        assert_eq!(item.failure_code.unwrap().as_str(), code);
        assert_eq!(item.last_error.unwrap().as_str(), error);
        worker.stop().await;
    }
}

/// G16: a payload that does not fit its kind is a dead letter at once, and says where.
#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_fit_is_a_dead_letter() {
    let rig = Rig::new();
    let fate = rig.client.enqueue_raw("JOB", r#"{"n":"seven"}"#).await;
    let id = crate::harness::inserted(fate.unwrap());
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    let item = rig.until_status(id, Status::Failed).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "payload_invalid");
    let error = item.last_error.unwrap();
    assert!(
        error.as_str().contains("seven") && error.as_str().contains("JOB"),
        "{error}"
    );
    worker.stop().await;
}

/// A result is kept on the item; one that is no object, or too large, is a failure that says so.
#[tokio::test(start_paused = true)]
async fn a_result_is_kept_or_refused_with_a_reason() {
    let rig = Rig::new();
    let ids = rig.enqueue_many((0..3).map(|n| Job { n })).await;
    let handler = |job: Job, _: Run| async move {
        match job.n {
            0 => Json(serde_json::json!({"sum": 12_345_678_901_234_567_890_u64})),
            1 => Json(serde_json::json!([1, 2])),
            _ => Json(serde_json::json!({"blob": "x".repeat(1 << 20)})),
        }
    };
    let worker = rig.start(jobs(handler), settings());
    let item = rig.until_status(ids[0], Status::Done).await;
    assert_eq!(
        item.result.unwrap().as_str(),
        r#"{"sum":12345678901234567890}"#
    );
    for (id, says) in [(ids[1], "a list"), (ids[2], "1048576")] {
        let item = rig.until_status(id, Status::Failed).await;
        assert_eq!(item.failure_code.unwrap().as_str(), "result_invalid");
        let error = item.last_error.unwrap();
        assert!(error.as_str().contains(says), "{error}");
    }
    worker.stop().await;
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
    assert_eq!(worker.sum("leasehold_dead_letters_total"), 1.0);
    assert_eq!(
        worker.series(
            "leasehold_items_finished_total",
            r#"kind="JOB",outcome="dead""#
        ),
        1.0
    );
    worker.stop().await;
}

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
    assert_eq!(worker.sum("leasehold_worker_slots_stuck"), 0.0);
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
        rig.elapsed() - asked < SEC,
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
        assert_eq!(worker.sum("leasehold_worker_slots_busy"), 10.0);
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
                .fail_next(Operation::Settle, Fault::unavailable())
        }),
        ("answer lost", |rig| {
            rig.faults.fail_next(Operation::Settle, Fault::LostAnswer)
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
        assert_eq!(worker.sum("leasehold_worker_slots_busy"), 0.0, "{name}");
        assert_eq!(worker.sum("leasehold_worker_slots"), 1.0, "{name}");
        worker.stop().await;
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Limited {}

impl Work for Limited {
    const KIND: &'static str = "LIMITED";
    const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(5));
}

/// A run that takes too long is told, then dropped after the grace, and failed as timed out; one that
/// is done within the grace counts as done.
#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_timed_out() {
    for done_late in [false, true] {
        let rig = Rig::new();
        let id = rig.enqueue(&Limited {}).await;
        let told = Journal::new();
        let handler = {
            let (told, clock, began) = (told.clone(), rig.clock.clone(), rig.clock.elapsed());
            move |_: Limited, run: Run| {
                let (told, clock) = (told.clone(), clock.clone());
                async move {
                    run.cancelled().await;
                    told.note(clock.elapsed().since(began));
                    if !done_late {
                        std::future::pending::<()>().await;
                    }
                }
            }
        };
        let executor = InProcess::new().handle::<Limited>(handler).unwrap();
        let settings = WorkerSettings {
            stop_grace: 3 * SEC,
            ..settings()
        };
        let worker = rig.start(executor, settings);
        let at = told.wait_for(1).await[0];
        assert!(at >= 5 * SEC && at < 6 * SEC, "{at:?}");
        let item = rig
            .until_item(id, |item| item.status != Status::Claimed)
            .await;
        let took = rig.elapsed() - at;
        if done_late {
            assert_eq!(item.status, Status::Done);
        } else {
            assert!(took >= 3 * SEC && took < 4 * SEC, "{took:?}");
            assert_eq!((item.status, item.attempts), (Status::Queued, 1));
            let error = item.last_error.unwrap();
            assert_eq!(error.as_str(), "timed_out: the run took longer than 5s");
            assert!(item.available_at > rig.clock.now(), "a retry waits");
        }
        worker.stop().await;
    }
}

/// Blocks its thread until let go, deaf to everything.
fn blocking(began: &Probe, gate: &Arc<std::sync::Barrier>) -> InProcess {
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
    let (began, gate) = (Probe::new(), Arc::new(std::sync::Barrier::new(2)));
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
    assert_eq!(stuck.sum("leasehold_worker_slots_stuck"), 1.0);
    assert_eq!(stuck.sum("leasehold_worker_slots_busy"), 1.0);
    gate.wait();
    crate::harness::until(async || (stuck.sum("leasehold_worker_slots_busy") == 0.0).then_some(()))
        .await;
    crate::harness::until(async || {
        (stuck.sum("leasehold_stale_writes_refused_total") == 1.0).then_some(())
    })
    .await;
    assert_eq!(stuck.sum("leasehold_worker_slots_stuck"), 0.0);
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
    let (began, gate) = (Probe::new(), Arc::new(std::sync::Barrier::new(2)));
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
    assert_eq!(worker.sum("leasehold_worker_slots_busy"), 0.0);
    let due = rig.stores.work.maintenance_due(None, 1).await.unwrap();
    assert_eq!(due, Vec::<OrgId>::new());
    worker.stop().await;
}
