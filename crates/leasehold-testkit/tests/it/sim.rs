//! The simulation in small: fixed seeds hold, a seed replays, and every sabotage is noticed.

use leasehold_testkit::sim::{self, Faults, Report, Sabotage, Settings};

/// Enough to meet every kind of fault many times, and a second or two in a debug build.
const SEEDS: u64 = 100;

/// Within so many seeds each sabotage must show.
const SABOTAGED_SEEDS: u64 = 300;

#[test]
fn fixed_seeds_hold() {
    let mut report = Report::default();
    for seed in 0..SEEDS {
        match sim::run(seed, &Settings::default()) {
            Ok(played) => report.add(&played),
            Err(failure) => panic!("{failure}"),
        }
    }
    // A simulation in which nothing goes wrong proves nothing.
    for fault in [
        "crashes",
        "freezes",
        "loops starved",
        "keepers starved",
        "cuts",
        "outages",
        "drains finished",
        "calendar jumps",
        "lost answers",
        "black holes",
        "lost hints",
        "errors",
        "timeouts",
        "cancels told",
        "leases doubted",
        "leases refused",
        "killed by wardens",
        "settles asked again",
        "settles refused",
        "expired claims",
        "stuck",
        "dead letters",
    ] {
        assert!(
            report.of(fault) > 0,
            "no {fault} in {SEEDS} seeds: {report}"
        );
    }
}

#[test]
fn without_faults_no_claim_is_lost() {
    let settings = Settings {
        faults: Faults::None,
        ..Settings::default()
    };
    let mut report = Report::default();
    for seed in 0..SEEDS {
        match sim::run(seed, &settings) {
            Ok(played) => report.add(&played),
            Err(failure) => panic!("{failure}"),
        }
    }
    for loss in [
        "expired claims",
        "leases doubted",
        "leases refused",
        "settles refused",
        "starts called off",
        "stuck",
        "timeouts",
        "told conflict",
        "told given up",
        "told lost",
    ] {
        assert_eq!(
            report.of(loss),
            0,
            "{loss} though nothing went wrong: {report}"
        );
    }
    for change in ["drains finished", "cancels told", "told released"] {
        assert!(
            report.of(change) > 0,
            "no {change} in {SEEDS} seeds: {report}"
        );
    }
}

#[test]
fn a_seed_takes_the_same_course_each_time() {
    for seed in 0..10 {
        let [first, second] = [(); 2].map(|()| sim::run(seed, &Settings::default()));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first, second, "seed {seed}");
    }
    let other = sim::run(11, &Settings::default()).unwrap();
    assert_ne!(
        sim::run(10, &Settings::default()).unwrap().digest(),
        other.digest()
    );
}

/// The words of the oracle that is there for it. Others may notice it too.
fn words_for(sabotage: Sabotage) -> &'static str {
    match sabotage {
        Sabotage::SettleIgnoresToken | Sabotage::SettleIgnoresExpiry => {
            "a settle was accepted from one who does not hold the item"
        }
        Sabotage::SettleForgets => "a settle asked again was called a conflict",
        Sabotage::RenewIgnoresToken => "a renewal was accepted from one who holds nothing",
        Sabotage::SweepIgnoresExpiry => "the sweep took an item whose lease goes on",
        Sabotage::HandBackSpends => "a hand-back spent an attempt",
        Sabotage::TrustTooLong | Sabotage::TrustFromAnswer => " trusts ",
        Sabotage::DoubtsUntold => "was able to stop and still runs",
        Sabotage::ReasonUntold => "that was stopped for its lease spends an attempt",
        Sabotage::StartsUntrusted => "without trusting it",
        Sabotage::EndsTooSoon => " starts ",
        Sabotage::WardenAsleep => "still executes, though fenced",
        Sabotage::AuditSkipped => "has no audit entry",
    }
}

#[test]
fn every_sabotage_is_noticed() {
    for sabotage in Sabotage::ALL {
        let settings = Settings {
            sabotage: Some(sabotage),
            ..Settings::default()
        };
        let words = words_for(sabotage);
        let is_noticed = (0..SABOTAGED_SEEDS).any(|seed| {
            let failure = sim::run(seed, &settings).err();
            failure.is_some_and(|failure| failure.words.contains(words))
        });
        assert!(
            is_noticed,
            "{sabotage:?} went unnoticed in {SABOTAGED_SEEDS} seeds"
        );
    }
}
