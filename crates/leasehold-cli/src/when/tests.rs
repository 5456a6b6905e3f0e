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
fn instants_need_an_offset() {
    let nine: Timestamp = "2027-01-31T09:00:00Z".parse().expect("an instant");
    assert_eq!(instant("--at", "2027-01-31T09:00:00Z"), Ok(nine));
    assert_eq!(instant("--at", "2027-01-31T10:00:00+01:00"), Ok(nine));
    for text in ["2027-01-31", "2027-01-31T09:00:00", "tomorrow", ""] {
        assert!(instant("--at", text).is_err(), "{text}");
    }
}

#[test]
fn lengths_show_their_largest_units() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (630, "10m"),
        (3_600, "1h"),
        (5_400, "1h30m"),
        (40_000, "11h"),
        (200_000, "2d"),
    ] {
        assert_eq!(length(Duration::from_secs(seconds)), text);
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
