//! Starting: settings that are accepted are kept, and what is refused is refused before anything runs.

use std::time::Duration;

use leasehold::core::rules::RetryPolicy;
use leasehold::{InProcess, Run, Status, Work, Worker, WorkerError, WorkerSettings};
use leasehold_testkit::fault::Operation;
use leasehold_testkit::probe::Probe;
use serde::{Deserialize, Serialize};

use crate::harness::{Job, MS, Rig, SEC, jobs, moments, pass, settings};

type Set = (&'static str, fn(&mut WorkerSettings, Duration));

const DURATIONS: [Set; 10] = [
    ("lease", |s, d| s.lease = d),
    ("poll_interval", |s, d| s.poll_interval = d),
    ("heartbeat_interval", |s, d| s.heartbeat_interval = d),
    ("sweep_interval", |s, d| s.sweep_interval = d),
    ("sweep_budget", |s, d| s.sweep_budget = d),
    ("requeue_spread", |s, d| s.requeue_spread = d),
    ("item_retention", |s, d| s.item_retention = d),
    ("stop_grace", |s, d| s.stop_grace = d),
    ("drain_timeout", |s, d| s.drain_timeout = d),
    ("drain_kill", |s, d| s.drain_kill = d),
];

/// SOURCE-5: each duration at 0, its least, 1 ms, 1 s, 5 s and ten years: refused by name before
/// anything runs, or ten seconds' run in which every lease is renewed at least once per lease, nothing
/// fails, and nothing spins.
#[tokio::test(start_paused = true)]
async fn accepted_settings_are_kept_and_others_refused_by_name() {
    let mut accepted = 0;
    let lengths = [
        Duration::ZERO,
        MS,
        10 * MS,
        50 * MS,
        200 * MS,
        SEC,
        5 * SEC,
        Duration::from_hours(24 * 3_650),
    ];
    for (name, set) in DURATIONS {
        for length in lengths {
            let mut given = WorkerSettings {
                sweep_budget: 10 * MS,
                ..settings()
            };
            set(&mut given, length);
            let rig = Rig::new();
            let refused = Worker::new(rig.source(), jobs(|_: Job, _: Run| async {}), given.clone());
            if let Err(error) = refused {
                assert!(matches!(error, WorkerError::Settings(_)), "{error}");
                assert!(
                    error.to_string().starts_with(name),
                    "{name} = {length:?}: {error}"
                );
                assert_eq!(rig.faults.calls(Operation::Claim), 0);
                continue;
            }
            accepted += 1;
            ten_seconds(name, length, given).await;
        }
    }
    assert!(accepted >= 30, "{accepted}");
}

async fn ten_seconds(name: &str, length: Duration, given: WorkerSettings) {
    let rig = Rig::new();
    let what = format!("{name} = {length:?}");
    let id = rig.enqueue(&Job { n: 0 }).await;
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |_: Job, _: Run| {
            began.hit();
            pass(10 * SEC)
        }
    };
    let source = rig.watched();
    let calls = source.calls.clone();
    let (lease, poll) = (given.lease, given.poll_interval);
    let worker = rig.start_on(source, jobs(handler), given);
    began.wait_for(1).await;
    let start = rig.elapsed();
    let item = rig
        .until_item(id, |item| item.status != Status::Claimed)
        .await;
    assert_eq!((item.status, item.attempts), (Status::Done, 1), "{what}");
    let mut renewals = moments(&calls, "renew", start);
    renewals.insert(0, Duration::ZERO);
    renewals.push(10 * SEC);
    let widest = renewals
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .max()
        .unwrap();
    assert!(
        widest < lease.max(MS) || lease > 20 * SEC,
        "{what}: {widest:?} without a renewal"
    );
    let per_lease = 10.0 / lease.as_secs_f64();
    let renewals = renewals.len() as f64 - 2.0;
    assert!(
        renewals <= per_lease * 5.0 + 2.0,
        "{what}: {renewals} renewals"
    );
    let claims = moments(&calls, "claim", Duration::ZERO).len() as f64;
    let polls = 10.0 / poll.as_secs_f64();
    assert!(claims <= polls * 1.2 + 10.0, "{what}: {claims} claims");
    worker.stop().await;
}

#[derive(Serialize, Deserialize)]
struct Odd<const N: u8> {}

const POLICY: RetryPolicy = RetryPolicy {
    base: Duration::from_secs(30),
    cap: Duration::from_mins(15),
    jitter: 0.1,
};

impl<const N: u8> Work for Odd<N> {
    const KIND: &'static str = "ODD";
    const TIME_LIMIT: Option<Duration> = match N {
        1 => Some(Duration::ZERO),
        2 => Some(Duration::from_millis(1)),
        3 => Some(Duration::MAX),
        _ => None,
    };

    fn retry() -> RetryPolicy {
        match N {
            4 => RetryPolicy {
                base: Duration::ZERO,
                ..POLICY
            },
            5 => RetryPolicy {
                cap: Duration::from_secs(1),
                ..POLICY
            },
            6 => RetryPolicy {
                cap: Duration::MAX,
                ..POLICY
            },
            7 => RetryPolicy {
                jitter: -0.1,
                ..POLICY
            },
            8 => RetryPolicy {
                jitter: f64::NAN,
                ..POLICY
            },
            _ => POLICY,
        }
    }
}

fn refusal<const N: u8>() -> String {
    let rig = Rig::new();
    let executor = InProcess::new()
        .handle::<Odd<N>>(|_: Odd<N>, _: Run| async {})
        .unwrap();
    let refused = Worker::new(rig.source(), executor, settings());
    refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

/// SOURCE-5, ATTEMPT-2: what a kind says of itself is a setting too. No item fails because of it, and
/// no failure loops without a delay.
#[tokio::test(start_paused = true)]
async fn a_kinds_own_settings_are_checked_by_name() {
    let refusals = [
        ("time_limit", refusal::<1>()),
        ("time_limit", refusal::<2>()),
        ("time_limit", refusal::<3>()),
        ("retry.base", refusal::<4>()),
        ("retry.cap", refusal::<5>()),
        ("retry.cap", refusal::<6>()),
        ("retry.jitter", refusal::<7>()),
        ("retry.jitter", refusal::<8>()),
    ];
    for (setting, refusal) in refusals {
        assert!(refusal.starts_with(setting), "{setting}: {refusal:?}");
        assert!(refusal.contains("ODD"), "{refusal}");
    }
    assert_eq!(refusal::<0>(), "");
}

/// Two workers of one name are two workers.
#[tokio::test(start_paused = true)]
async fn a_name_is_made_unique_at_each_start() {
    let rig = Rig::new();
    let one = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    let two = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    assert_ne!(one.id, two.id);
    pass(SEC).await;
    assert_eq!(rig.stores.liveness.live_workers(9).await.unwrap().len(), 2);
    one.stop().await;
    two.stop().await;
}
