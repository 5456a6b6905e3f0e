//! Durations and instants, read and written.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::failure::Exit;

#[test]
fn durations_are_read_as_people_write_them() {
    for (text, seconds) in [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("0s", 0),
        (" 5 minutes ", 300),
    ] {
        assert_eq!(
            duration("--in", text),
            Ok(Duration::from_secs(seconds)),
            "{text}"
        );
    }
}

#[test]
fn a_bad_duration_is_refused_with_its_rule() {
    for text in ["", "5", "5x", "m5", "-5m", "1y", "1mo", "999999d", "soon"] {
        let failure = duration("--in", text).expect_err(text);
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(failure.what().contains("--in"), "{failure:?}");
        assert!(failure.why().is_some(), "{failure:?}");
        assert!(failure.how().is_some_and(|how| how.contains("5m")));
    }
}

#[test]
fn a_duration_out_of_range_is_not_called_unreadable() {
    for text in [
        "999999d",
        "99999999d",
        "1h 99999999999999999999m",
        "-99999999d",
        "99999999d ago",
        "P99999999D",
    ] {
        let failure = duration("--in", text).expect_err(text);
        assert!(failure.what().contains("out of range"), "{failure:?}");
        assert!(failure.how().is_some_and(|how| how.contains("3650d")));
    }
}

#[test]
fn an_unknown_unit_is_named_and_the_units_are_listed() {
    for (text, unit) in [
        ("5M", "M"),
        ("5x", "x"),
        ("1h 30 parsecs", "parsecs"),
        ("1d2q", "q"),
    ] {
        let failure = duration("--in", text).expect_err(text);
        let why = format!("the unit {unit:?} is unknown");
        assert_eq!(failure.why(), Some(why.as_str()), "{text}");
        assert!(
            failure
                .how()
                .is_some_and(|how| how.contains("w, d, h, m, s"))
        );
    }
}

#[test]
fn instants_need_an_offset() {
    let nine: Timestamp = "2027-01-31T09:00:00Z".parse().expect("an instant");
    assert_eq!(instant("--at", "2027-01-31T09:00:00Z"), Ok(nine));
    assert_eq!(instant("--at", "2027-01-31T10:00:00+01:00"), Ok(nine));
    for text in ["2027-01-31", "2027-01-31T09:00:00", "tomorrow", ""] {
        assert!(instant("--at", text).is_err(), "{text}");
    }
}

#[test]
fn times_are_told_as_seen_from_now() {
    let now = Timestamp::constant(1_000_000, 0);
    let at = |seconds: i64| Timestamp::constant(1_000_000 + seconds, 0);
    assert_eq!(relative(now, at(0)), "now");
    assert_eq!(relative(now, at(300)), "in 5m");
    assert_eq!(relative(now, at(-300)), "5m ago");
}
