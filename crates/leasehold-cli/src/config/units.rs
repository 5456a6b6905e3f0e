//! Durations and sizes as the file writes them: a number and its unit, always.

use std::fmt::Write as _;
use std::time::Duration;

use super::problem::Complaint;
use crate::when;

/// Reads a duration such as `60s`, `1m30s` or `500ms`. None of them may be zero: where "at once" makes
/// sense, a millisecond is as good, and everywhere else zero is a slip.
pub(super) fn length(key: &str, text: &str) -> Result<Duration, Complaint> {
    let length = when::duration(key, text).map_err(|failure| Complaint::of(&failure))?;
    if length.is_zero() {
        return Err(Complaint::new(
            format!("{key} = {text:?} is no time at all"),
            "give it a length, such as 500ms, 60s or 24h",
        ));
    }
    Ok(length)
}

/// The duration as [`length`] reads it.
pub(super) fn length_text(length: Duration) -> String {
    let seconds = length.as_secs();
    // Two of a unit are shown as that unit; less reads better in the one below: 90s, 36h.
    let mut left = seconds;
    let mut text = String::new();
    for (unit, unit_seconds, from) in [("d", 86_400, 172_800), ("h", 3_600, 3_600), ("m", 60, 120)]
    {
        if seconds >= from && left >= unit_seconds {
            // Writing to a string does not fail.
            let _ = write!(text, "{}{unit}", left / unit_seconds);
            left %= unit_seconds;
        }
    }
    let nanos = length.subsec_nanos();
    for (unit, count) in [
        ("s", left),
        ("ms", u64::from(nanos / 1_000_000)),
        ("us", u64::from(nanos / 1_000 % 1_000)),
        ("ns", u64::from(nanos % 1_000)),
    ] {
        if count > 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    if text.is_empty() {
        text.push_str("0s");
    }
    text
}

const UNITS: &[(&str, usize)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Reads a size such as `1MiB` or `256KiB`.
pub(super) fn bytes(key: &str, text: &str) -> Result<usize, Complaint> {
    let refuse = |why: &str| {
        Complaint::new(
            format!("{key} = {text:?} is not a size: {why}"),
            "write a whole number and a unit (B, KiB, MiB, GiB), such as 256KiB or 1MiB",
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    if number.is_empty() {
        return Err(refuse("it does not begin with a whole number"));
    }
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(refuse(&match unit {
            "" => "it has no unit".to_owned(),
            unit => format!("the unit {unit:?} is unknown"),
        }));
    };
    number
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(*scale))
        .ok_or_else(|| refuse("it is too large"))
}

/// The size as [`bytes`] reads it.
pub(super) fn bytes_text(bytes: usize) -> String {
    let whole = |(_, scale): &&(&str, usize)| bytes > 0 && bytes.is_multiple_of(*scale);
    match UNITS.iter().find(whole) {
        Some((unit, scale)) => format!("{}{unit}", bytes / scale),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests;
