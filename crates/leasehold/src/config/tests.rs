use super::*;

/// A setting and how it is set to a length of time.
type Setting = (&'static str, fn(&mut WorkerSettings, Duration));

const DURATIONS: [Setting; 10] = [
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

const TEN_YEARS: Duration = Duration::from_secs(10 * YEAR);

/// Which of 0, 1 ms, 1 s, 5 s and ten years the setting takes.
const MATRIX: [(&str, [bool; 5]); 10] = [
    ("lease", [false, false, true, true, false]),
    ("poll_interval", [false, false, true, true, false]),
    ("heartbeat_interval", [false, false, true, true, false]),
    ("sweep_interval", [false, false, true, true, false]),
    ("sweep_budget", [false, false, true, true, false]),
    ("requeue_spread", [true, true, true, true, false]),
    ("item_retention", [false, false, true, true, true]),
    ("stop_grace", [false, false, true, true, false]),
    ("drain_timeout", [true, true, true, true, false]),
    ("drain_kill", [false, false, true, true, false]),
];

fn set(name: &str, given: Duration) -> WorkerSettings {
    let mut settings = WorkerSettings {
        // Out of the way of the pair that it stands in.
        sweep_budget: Duration::from_millis(10),
        ..WorkerSettings::default()
    };
    if name == "sweep_budget" {
        settings.sweep_interval = Duration::from_secs(DAY);
    }
    for (setting, set) in DURATIONS {
        if setting == name {
            set(&mut settings, given);
        }
    }
    settings
}

fn refusal(settings: &WorkerSettings) -> SettingsError {
    settings.check().expect_err("a refusal")
}

#[test]
fn the_defaults_pass() {
    WorkerSettings::default().check().expect("defaults");
}

/// SOURCE-5: each duration at 0, 1 ms, 1 s, 5 s and 10 years is accepted, or refused by its name and
/// with its rule. What the accepted ones do at run time is seen in `tests/it`.
#[test]
fn every_duration_is_accepted_or_refused_by_name() {
    let lengths = [
        Duration::ZERO,
        Duration::from_millis(1),
        Duration::from_secs(1),
        Duration::from_secs(5),
        TEN_YEARS,
    ];
    for (name, accepted) in MATRIX {
        for (length, accepted) in lengths.into_iter().zip(accepted) {
            let answer = set(name, length).check();
            match answer {
                Ok(()) => assert!(accepted, "{name} = {length:?} was accepted"),
                Err(error) => {
                    assert!(!accepted, "{error}");
                    assert_eq!(error.setting, name, "{error}");
                    assert_eq!(error.given, format!("{length:?}"));
                    let message = error.to_string();
                    assert!(message.starts_with(name), "{message}");
                    assert!(message.contains("between"), "{message}");
                }
            }
        }
    }
}

#[test]
fn the_matrix_holds_every_duration() {
    let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        names(&DURATIONS.map(|(name, _)| name)),
        names(&MATRIX.map(|(name, _)| name))
    );
    // A duration added to the settings shows here as one more `Duration` in their debug output.
    let shown = format!("{:?}", set_all(Duration::from_secs(7)));
    assert_eq!(shown.matches(": 7s").count(), DURATIONS.len(), "{shown}");
}

fn set_all(given: Duration) -> WorkerSettings {
    let mut settings = WorkerSettings::default();
    for (_, set) in DURATIONS {
        set(&mut settings, given);
    }
    settings
}

/// SOURCE-5: pairs that contradict each other are refused by name, with the other one named.
#[test]
fn contradicting_pairs_are_refused() {
    let settings = WorkerSettings {
        sweep_interval: Duration::from_secs(5),
        sweep_budget: Duration::from_millis(5_001),
        ..WorkerSettings::default()
    };
    let error = refusal(&settings);
    assert_eq!(error.setting, "sweep_budget");
    assert!(error.rule.contains("sweep_interval (5s)"), "{error}");
}

#[test]
fn counts_are_bounded() {
    let base = WorkerSettings::default;
    let with = |change: fn(&mut WorkerSettings)| {
        let mut settings = base();
        change(&mut settings);
        refusal(&settings).setting
    };
    assert_eq!(with(|s| s.capacity = 0), "capacity");
    assert_eq!(with(|s| s.capacity = SLOTS_MAX + 1), "capacity");
    assert_eq!(with(|s| s.prefetch = SLOTS_MAX + 1), "prefetch");
    assert_eq!(with(|s| s.sweep_batch = 0), "sweep_batch");
    assert_eq!(with(|s| s.tenant_cap = Some(0)), "tenant_cap");
    assert_eq!(with(|s| s.lanes.clear()), "lanes");
    assert_eq!(with(|s| s.name = String::new()), "name");
    assert_eq!(with(|s| s.name = "two words".into()), "name");
    assert_eq!(with(|s| s.name = "n".repeat(101)), "name");
    let lanes = |count: usize| {
        (0..count)
            .map(|n| Lane::parse(&format!("lane-{n}")).expect("a lane"))
            .collect::<Vec<_>>()
    };
    let mut settings = base();
    settings.lanes = lanes(LANES_MAX);
    settings.check().expect("as many as allowed");
    settings.lanes = lanes(LANES_MAX + 1);
    assert_eq!(refusal(&settings).setting, "lanes");
}

#[test]
fn a_worker_id_is_unique_to_its_start() {
    let settings = WorkerSettings {
        name: "mailer".to_owned(),
        ..WorkerSettings::default()
    };
    let (one, two) = (settings.worker_id(), settings.worker_id());
    let (one, two) = (one.expect("an id"), two.expect("an id"));
    assert_ne!(one, two);
    assert!(one.as_str().starts_with("mailer/"));
}

#[test]
fn the_longest_name_still_makes_an_id() {
    let settings = WorkerSettings {
        name: "é".repeat(NAME_BYTES_MAX / 2),
        ..WorkerSettings::default()
    };
    settings.check().expect("a name of 100 bytes");
    settings.worker_id().expect("an id");
}
