//! Attempts: what spends one, what does not, how long the next waits, and where it ends.

use std::time::Duration;

use leasehold::core::item::ERRORS_MAX;
use leasehold::core::rules::RetryPolicy;
use leasehold::{
    HandlerError, InProcess, Json, Outcome, Run, Status, Work, WorkItem, WorkerSettings,
};
use leasehold_testkit::probe::Journal;
use serde::{Deserialize, Serialize};

use crate::harness::{Job, MS, Rig, SEC, Started, jobs, pass, settings};

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
        let gap = pair[1].saturating_sub(pair[0]);
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
        1
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
    assert!(is_retry_delay(starts[1].saturating_sub(starts[0]), 1));
    assert!(is_retry_delay(starts[2].saturating_sub(starts[1]), 2));
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
    let gap = starts[1].saturating_sub(starts[0]);
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
    type Ending = (&'static str, &'static str, fn() -> Outcome);
    let outcomes: [Ending; 3] = [
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
        let took = rig.elapsed().saturating_sub(at);
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
