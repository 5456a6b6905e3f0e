//! Times as people write and read them: `5m`, `1h30m`, `in 5m`, `3m ago`.

use std::time::Duration;

use jiff::{SpanRelativeTo, Timestamp};
use leasehold::core::time::age;

use crate::failure::Failure;

/// Longer than any delay that is meant: ten years.
const DELAY_MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// Reads a duration such as `90s`, `5m`, `1h30m` or `2d`; a day counts as 24 hours.
pub(crate) fn duration(flag: &str, text: &str) -> Result<Duration, Failure> {
    let refuse = |why: &str| {
        Failure::usage(format!("{flag} {text:?} is not a duration"))
            .because(why)
            .remedy("write a number and a unit, such as 90s, 5m, 1h30m or 2d")
    };
    let span: jiff::Span = text
        .trim()
        .parse()
        .map_err(|_| refuse("it does not read as numbers with units"))?;
    let length = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| refuse("months and years differ in length"))?;
    let length = Duration::try_from(length).map_err(|_| refuse("it is negative"))?;
    if length > DELAY_MAX {
        return Err(refuse("it is longer than ten years"));
    }
    Ok(length)
}

/// Reads an instant such as `2027-01-31T09:00:00Z` or one with an offset.
pub(crate) fn instant(flag: &str, text: &str) -> Result<Timestamp, Failure> {
    text.trim().parse().map_err(|_| {
        Failure::usage(format!("{flag} {text:?} is not an instant"))
            .because("it does not read as a date, a time and an offset (RFC 3339)")
            .remedy("write it as 2027-01-31T09:00:00Z or 2027-01-31T10:00:00+01:00")
    })
}

/// `in 5m`, `3m ago` or `now`, as seen from `now`.
pub(crate) fn relative(now: Timestamp, instant: Timestamp) -> String {
    let (ahead, behind) = (age(instant, now), age(now, instant));
    if ahead >= SECOND {
        format!("in {}", length(ahead))
    } else if behind >= SECOND {
        format!("{} ago", length(behind))
    } else {
        "now".to_owned()
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// The one or two largest units: `4s`, `5m`, `2h30m`, `3d`.
pub(crate) fn length(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..10) => two(minutes, 'm', seconds % 60, 's'),
        (0, 0, _) => format!("{minutes}m"),
        (0, 1..10, _) => two(hours, 'h', minutes % 60, 'm'),
        (0, ..) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

fn two(large: u64, large_unit: char, small: u64, small_unit: char) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

#[cfg(test)]
mod tests;
