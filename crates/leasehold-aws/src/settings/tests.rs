use super::*;

type Set = fn(&mut StepFunctionsSettings, Duration);

/// SOURCE-5: each of these lengths in each setting is accepted, or refused by its name.
#[test]
fn lengths_are_refused_by_name_or_accepted() {
    let lengths = [
        Duration::ZERO,
        Duration::from_millis(1),
        Duration::from_secs(1),
        Duration::from_secs(5),
        Duration::from_secs(10 * 365 * DAY),
    ];
    let settings: [(&str, Set, [bool; 5]); 6] = [
        (
            "heartbeat_interval",
            |s, d| s.heartbeat_interval = d,
            [false, false, true, true, false],
        ),
        (
            "message_processing_timeout",
            |s, d| s.message_processing_timeout = d,
            // Longer than the heartbeat's interval.
            [false, false, false, false, false],
        ),
        (
            "poll_wait",
            |s, d| s.poll_wait = d,
            [true, false, true, true, false],
        ),
        (
            "protection_period",
            |s, d| s.protection_period = d,
            [false; 5],
        ),
        ("stop_time", |s, d| s.stop_time = d, [false; 5]),
        (
            "stop_grace",
            |s, d| s.stop_grace = d,
            [false, false, true, true, false],
        ),
    ];
    for (name, set, accepted) in settings {
        for (length, accepted) in lengths.into_iter().zip(accepted) {
            let mut settings = StepFunctionsSettings::default();
            set(&mut settings, length);
            match settings.check() {
                Ok(()) => {
                    assert!(accepted, "{name} = {length:?}");
                    let worker = settings.worker(WorkerSettings::default());
                    worker.check().expect(name);
                    assert!(settings.stale_after() < settings.lease());
                }
                Err(refused) => {
                    assert!(!accepted, "{refused}");
                    assert_eq!(refused.setting, name);
                    assert!(!refused.rule.is_empty());
                }
            }
        }
    }
}

/// SOURCE-2: periods outside 1 to 2,880 minutes are refused.
#[test]
fn periods_of_protection() {
    for (minutes, accepted) in [(0, false), (1, true), (2_880, true), (2_881, false)] {
        let settings = StepFunctionsSettings {
            protection_period: Duration::from_secs(minutes * 60),
            ..StepFunctionsSettings::default()
        };
        assert_eq!(settings.check().is_ok(), accepted, "{minutes}");
    }
}

#[test]
fn pairs_that_contradict_each_other_are_refused() {
    let mut settings = StepFunctionsSettings {
        poll_wait: Duration::from_secs(20),
        stop_time: Duration::from_secs(20),
        ..StepFunctionsSettings::default()
    };
    assert_eq!(settings.check().unwrap_err().setting, "poll_wait");
    settings.stop_time = Duration::from_mins(2);
    settings.check().unwrap();
    settings.message_processing_timeout = settings.heartbeat_interval;
    let refused = settings.check().unwrap_err();
    assert_eq!(refused.setting, "message_processing_timeout");
}
