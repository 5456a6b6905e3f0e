//! Lengths of time, as people read them.

use super::*;

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
        assert_eq!(short_length(Duration::from_secs(seconds)), text);
    }
}
