//! Durations and sizes, read and written.

use std::time::Duration;

use super::*;

#[test]
fn a_duration_is_written_as_it_is_read() {
    for (millis, text) in [
        (1, "1ms"),
        (500, "500ms"),
        (1_500, "1s500ms"),
        (60_000, "60s"),
        (90_000, "90s"),
        (120_000, "2m"),
        (150_000, "2m30s"),
        (900_000, "15m"),
        (5_400_000, "1h30m"),
        (86_400_000, "24h"),
        (172_800_000, "2d"),
        (176_461_001, "2d1h1m1s1ms"),
        (2_592_000_000, "30d"),
    ] {
        let length_read = Duration::from_millis(millis);
        assert_eq!(length_text(length_read), text);
        assert_eq!(length("key", text), Ok(length_read), "{text}");
    }
    assert_eq!(length_text(Duration::from_nanos(1_001)), "1us1ns");
    assert_eq!(length_text(Duration::ZERO), "0s");
}

#[test]
fn a_duration_without_unit_or_length_is_refused() {
    for text in ["60", "0s", "0ms", "-5s", "1y", "soon", ""] {
        let complaint = format!("{:?}", length("worker.lease", text).expect_err(text));
        assert!(complaint.contains("worker.lease"), "{complaint}");
    }
}

#[test]
fn a_size_is_written_as_it_is_read() {
    for (size, text) in [
        (1, "1B"),
        (1_000, "1000B"),
        (1_024, "1KiB"),
        (262_144, "256KiB"),
        (1_048_576, "1MiB"),
        (1_573_864, "1573864B"),
        (1 << 30, "1GiB"),
    ] {
        assert_eq!(bytes_text(size), text);
        assert_eq!(bytes("key", text), Ok(size), "{text}");
    }
    assert_eq!(bytes("key", "4 KiB"), Ok(4_096));
    for text in [
        "",
        "1",
        "MiB",
        "1MB",
        "-1B",
        "1.5MiB",
        "99999999999999999GiB",
    ] {
        assert!(bytes("key", text).is_err(), "{text}");
    }
}
