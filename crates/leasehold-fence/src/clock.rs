//! The one place of this crate where time is read: `CLOCK_BOOTTIME`, which goes on counting while the
//! machine is suspended, and the calendar beside it, to notice when it is set.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant on `CLOCK_BOOTTIME`, until which a command may run unless it is pushed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Deadline(u64);

impl Deadline {
    /// The instant that many nanoseconds and seconds after the machine started.
    pub fn at(since_boot: Duration) -> Self {
        Self(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX))
    }

    /// So much from now on.
    pub fn after(length: Duration) -> Self {
        Self::now().plus(length)
    }

    /// Time since the machine started, suspended time included.
    pub const fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(crate) fn now() -> Self {
        Self::at(reading(ClockId::Boottime))
    }

    pub(crate) fn plus(self, length: Duration) -> Self {
        Self::at(self.since_boot().saturating_add(length))
    }

    pub(crate) fn minus(self, length: Duration) -> Self {
        Self::at(self.since_boot().saturating_sub(length))
    }

    pub(crate) fn to_timespec(self) -> Timespec {
        let since_boot = self.since_boot();
        Timespec {
            // 584 years of nanoseconds are well within a signed count of seconds.
            tv_sec: i64::try_from(since_boot.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(since_boot.subsec_nanos()),
        }
    }
}

/// How far the calendar is ahead of the time since boot: constant unless somebody sets the calendar.
pub(crate) fn calendar_offset() -> Duration {
    let mut before = reading(ClockId::Boottime);
    for _ in 1..READINGS_MAX {
        let calendar = reading(ClockId::Realtime);
        let after = reading(ClockId::Boottime);
        if after.saturating_sub(before) < READING_MAX {
            return calendar.saturating_sub(before);
        }
        before = after;
    }
    reading(ClockId::Realtime).saturating_sub(before)
}

/// A process may be held up between its looks at the two clocks, which would look like a calendar that
/// was set. A pair of readings this close together is good.
const READING_MAX: Duration = Duration::from_millis(10);
/// On a machine where even this many tries are all held up, a doubtful reading is taken.
const READINGS_MAX: usize = 4;

fn reading(clock: ClockId) -> Duration {
    let reading = clock_gettime(clock);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(reading.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}
