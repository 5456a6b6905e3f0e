//! Two kinds of time, kept apart: the calendar's, and what has elapsed since the machine started.
//!
//! A store decides due, lease and purge by its own calendar clock. A worker judges its own lease by
//! elapsed time alone, on a clock that goes on counting while the machine is suspended.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Elapsed time since some fixed moment of this boot (`CLOCK_BOOTTIME`). Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(Duration);

impl BootTime {
    /// Wraps a reading.
    pub const fn new(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// The reading.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Where time comes from. Injected, so that tests and the simulation own it.
pub trait Clock: Send + Sync + Debug {
    /// The calendar's time. May jump either way.
    fn now(&self) -> Timestamp;

    /// Elapsed time. Counts suspended time and never goes back.
    fn elapsed(&self) -> BootTime;
}

/// Where [`later`] stops: the calendar's last whole second, since what lies beyond it cannot be counted
/// in the microseconds that stores keep.
pub const CALENDAR_END: Timestamp = Timestamp::constant(253_402_207_200, 0);

/// `instant + duration`, stopping at [`CALENDAR_END`] instead of failing.
pub fn later(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    let later = instant.checked_add(duration).unwrap_or(CALENDAR_END);
    later.min(CALENDAR_END)
}

/// `instant - duration`, stopping at the beginning of the calendar instead of failing.
pub fn earlier(instant: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    instant.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// How long before `now` the `instant` was; zero if it is still to come.
pub fn age(now: Timestamp, instant: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(instant)).unwrap_or(Duration::ZERO)
}

/// The one or two largest units of a length, for people: `4s`, `5m`, `1m30s`, `2h30m`, `3d`. What is
/// smaller than the units shown is left out, so less than a second is `0s`.
pub fn short_length(length: Duration) -> String {
    let seconds = length.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: u64, large_unit: char, small: u64, small_unit: char| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 1..10) => two(minutes, 'm', seconds % 60, 's'),
        (0, 0, _) => format!("{minutes}m"),
        (0, 1..10, _) => two(hours, 'h', minutes % 60, 'm'),
        (0, ..) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock {
    reading: Mutex<(Timestamp, BootTime)>,
}

impl ManualClock {
    /// Starts at the given calendar time, an hour after a made-up boot.
    pub fn starting_at(now: Timestamp) -> Self {
        Self {
            reading: Mutex::new((now, BootTime::new(Duration::from_hours(1)))),
        }
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, duration: Duration) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.0 = later(reading.0, duration);
        reading.1 = reading.1 + duration;
    }

    /// Sets the calendar, as an operator or a time server would; elapsed time does not move.
    pub fn set_calendar(&self, now: Timestamp) {
        self.reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0 = now;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::starting_at(Timestamp::constant(1_767_225_600, 0))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn elapsed(&self) -> BootTime {
        self.reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .1
    }
}

#[cfg(test)]
mod tests;
