//! Times as people write and read them: `5m`, `1h30m`, `in 5m`, `3m ago`.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};
use leasehold::core::time::{age, short_length};

use crate::failure::Failure;

/// Longer than any delay that is meant: ten years.
const DELAY_MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// Reads a duration such as `90s`, `5m`, `1h30m` or `2d`; a day counts as 24 hours.
pub(crate) fn duration(flag: &str, text: &str) -> Result<Duration, Failure> {
    let refuse = |why: &str| {
        Failure::usage(format!("{flag} {text:?} is not a duration"))
            .because(why)
            .remedy("write a number and a unit (w, d, h, m, s), such as 90s, 5m, 1h30m or 2d")
    };
    let out_of_range = || {
        Failure::usage(format!("{flag} {text:?} is out of range"))
            .because("anything from nothing to ten years is allowed")
            .remedy("give a time from 0s to 3650d, such as 5m or 2d")
    };
    let Ok(span) = text.trim().parse::<Span>() else {
        // Nothing but the size of its numbers may stand against it.
        if with_small_numbers(text).parse::<Span>().is_ok() {
            return Err(out_of_range());
        }
        return Err(match unknown_unit(text) {
            Some(unit) => refuse(&format!("the unit {unit:?} is unknown")),
            None => refuse("it does not read as numbers with units"),
        });
    };
    let length = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| refuse("months and years differ in length"))?;
    let length = Duration::try_from(length).map_err(|_| refuse("it is negative"))?;
    if length > DELAY_MAX {
        return Err(out_of_range());
    }
    Ok(length)
}

/// The first word after a number that is no unit of time, if there is one.
fn unknown_unit(text: &str) -> Option<&str> {
    let numbers = text.find(|c: char| c.is_ascii_digit())?;
    text[numbers..]
        .split(|c: char| !c.is_alphabetic())
        .find(|unit| !unit.is_empty() && format!("1{unit}").parse::<Span>().is_err())
}

/// The text with each of its numbers replaced by one.
fn with_small_numbers(text: &str) -> String {
    let mut small = String::new();
    for c in text.trim().chars() {
        match c {
            '0'..='9' if small.ends_with('1') => {}
            '0'..='9' => small.push('1'),
            other => small.push(other),
        }
    }
    small
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
        format!("in {}", short_length(ahead))
    } else if behind >= SECOND {
        format!("{} ago", short_length(behind))
    } else {
        "now".to_owned()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
