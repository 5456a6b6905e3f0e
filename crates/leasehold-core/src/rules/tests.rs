use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::item::NewItem;
use crate::names::Kind;

fn item(attempts: u32, max_attempts: u32) -> WorkItem {
    let kind = Kind::parse("NOOP").unwrap();
    let mut row = NewItem::new(kind, JsonObject::empty(), Timestamp::UNIX_EPOCH)
        .into_row(Timestamp::UNIX_EPOCH);
    row.attempts = attempts;
    row.max_attempts = max_attempts;
    row
}

fn boom() -> Failure {
    Failure::own(FailureCode::HANDLER_ERROR, "boom")
}

fn settled(attempts: u32, max_attempts: u32, outcome: Outcome) -> Transition {
    settle(
        &item(attempts, max_attempts),
        outcome,
        &RetryPolicy::default(),
        0.0,
    )
}

#[test]
fn done_completes_whatever_attempt_it_is() {
    for attempts in 1..=3 {
        assert_eq!(
            settled(attempts, 3, Outcome::done()),
            Transition::Complete { result: None }
        );
    }
}

#[test]
fn a_failure_is_retried_with_a_growing_delay_and_then_buried() {
    let delays = [30, 60];
    for (attempts, seconds) in (1..).zip(delays) {
        let expected = Transition::Retry {
            failure: boom(),
            delay: Duration::from_secs(seconds),
        };
        assert_eq!(settled(attempts, 3, Outcome::failed(boom())), expected);
    }
    for attempts in [3, 4, u32::MAX] {
        let expected = Transition::Bury { failure: boom() };
        assert_eq!(settled(attempts, 3, Outcome::failed(boom())), expected);
    }
}

#[test]
fn a_failure_that_is_not_retryable_is_buried_at_once() {
    let failure = boom().for_good();
    assert_eq!(
        settled(1, 3, Outcome::failed(failure.clone())),
        Transition::Bury { failure }
    );
}

#[test]
fn retry_after_lengthens_the_delay_and_never_shortens_it() {
    for (asked, waits) in [(0, 30), (29, 30), (45, 45)] {
        let outcome = Outcome::Failed {
            failure: boom(),
            retry_after: Some(Duration::from_secs(asked)),
        };
        let expected = Transition::Retry {
            failure: boom(),
            delay: Duration::from_secs(waits),
        };
        assert_eq!(settled(1, 3, outcome), expected);
    }
}

#[test]
fn a_refusal_is_buried_at_once() {
    match settled(
        1,
        3,
        Outcome::Refused {
            reason: "never".into(),
        },
    ) {
        Transition::Bury { failure } => {
            assert_eq!(failure.code.as_str(), FailureCode::REFUSED);
            assert!(!failure.retryable);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_handler_hands_back_waits_at_least_a_second() {
    let park = |resume_after| Outcome::Parked {
        reason: "later".into(),
        resume_after,
    };
    for (asked, waits) in [(0, 1_000), (999, 1_000), (1_500, 1_500)] {
        let expected = Transition::Park {
            reason: "later".into(),
            delay: Duration::from_millis(waits),
        };
        assert_eq!(settled(1, 3, park(Duration::from_millis(asked))), expected);
    }
    assert_eq!(
        settled(
            1,
            3,
            Outcome::Released {
                note: "not mine".into()
            }
        ),
        Transition::Release {
            note: "not mine".into(),
            delay: HAND_BACK_DELAY_MIN
        }
    );
}

#[test]
fn only_a_release_does_without_a_live_lease() {
    let needs = [
        (settled(1, 3, Outcome::done()), true),
        (settled(1, 3, Outcome::failed(boom())), true),
        (settled(3, 3, Outcome::failed(boom())), true),
        (
            settled(
                1,
                3,
                Outcome::Parked {
                    reason: "p".into(),
                    resume_after: Duration::ZERO,
                },
            ),
            true,
        ),
        (hand_back("stopping"), false),
    ];
    for (transition, live) in needs {
        assert_eq!(transition.needs_live_lease(), live, "{}", transition.name());
    }
}

#[test]
fn an_expired_claim_is_cancelled_before_it_is_counted() {
    assert_eq!(requeue(1, 3, false), Requeue::Again);
    assert_eq!(requeue(3, 3, false), Requeue::Bury);
    assert_eq!(requeue(1, 3, true), Requeue::Cancel);
    assert_eq!(requeue(3, 3, true), Requeue::Cancel);
}

#[test]
fn the_last_attempt_after_a_lost_worker_runs_alone() {
    let mut last = item(3, 3);
    assert!(!runs_alone(&last));
    last.worker_losses = 1;
    assert!(runs_alone(&last));
    last.attempts = 2;
    assert!(!runs_alone(&last));
}

#[test]
fn a_lone_recovered_item_does_not_wait_and_a_full_batch_fills_the_window() {
    let window = Duration::from_secs(10);
    assert_eq!(stagger(0, 100, window), Duration::ZERO);
    assert_eq!(stagger(50, 100, window), Duration::from_secs(5));
    assert!(stagger(99, 100, window) < window);
    assert_eq!(stagger(7, 0, window), window);
    assert_eq!(stagger(u32::MAX, 1, Duration::MAX), Duration::MAX);
}

#[test]
fn trust_ends_before_anyone_else_may_claim_and_leaves_room_for_a_second_try() {
    let lease = Duration::from_mins(1);
    assert!(renewal_due_after(lease) * 2 <= trust_ends_after(lease));
    assert!(trust_ends_after(lease) * 2 <= lease);
}

#[test]
fn a_delay_without_end_can_carry_jitter() {
    let longest = RetryPolicy {
        base: Duration::MAX,
        cap: Duration::MAX,
        jitter: 1.0,
    };
    assert_eq!(retry_delay(1, &longest, 1.0), Duration::MAX);
    let long = RetryPolicy {
        cap: Duration::from_millis(5_762_914_898_368_021),
        ..longest
    };
    assert_eq!(retry_delay(1, &long, 1.0), long.cap * 2);
}

#[test]
fn a_jitter_that_is_no_number_adds_nothing() {
    let policy = RetryPolicy {
        jitter: f64::NAN,
        ..RetryPolicy::default()
    };
    assert_eq!(retry_delay(1, &policy, 1.0), policy.base);
    assert_eq!(
        retry_delay(1, &RetryPolicy::default(), f64::NAN),
        policy.base
    );
}

proptest! {
    #[test]
    fn the_delay_grows_stays_positive_and_is_capped(
        attempts in any::<u32>(),
        base_ms in 1_u64..=u64::MAX,
        cap_ms in 1_u64..=u64::MAX,
        jitter in any::<f64>(),
        drawn in any::<f64>(),
    ) {
        let policy = RetryPolicy {
            base: Duration::from_millis(base_ms),
            cap: Duration::from_millis(cap_ms),
            jitter: 0.0,
        };
        let plain = retry_delay(attempts, &policy, 0.0);
        prop_assert!(plain > Duration::ZERO && plain <= policy.cap);
        prop_assert!(retry_delay(attempts.saturating_add(1), &policy, 0.0) >= plain);
        let with_jitter = retry_delay(attempts, &RetryPolicy { jitter, ..policy }, drawn);
        prop_assert!(with_jitter >= plain);
        prop_assert!(with_jitter <= plain.saturating_mul(2));
    }

    #[test]
    fn a_claim_and_its_hand_back_cancel_out(attempts in 0..u32::MAX) {
        prop_assert_eq!(attempts_after_hand_back(attempts_after_claim(attempts)), attempts);
    }

    #[test]
    fn a_handler_never_gets_more_attempts_than_allowed(attempts in any::<u32>(), max in 1_u32..) {
        let transition = settled(attempts, max, Outcome::failed(boom()));
        let buried = matches!(transition, Transition::Bury { .. });
        prop_assert_eq!(buried, attempts >= max);
    }
}
