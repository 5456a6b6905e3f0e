//! The one place where time is read.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::{BootTime, Clock};
use rustix::time::{ClockId, clock_gettime};

/// The machine's own clocks: the calendar, and `CLOCK_BOOTTIME`, which counts suspended time.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that reads the calendar"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> BootTime {
        let reading = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(reading.tv_nsec).unwrap_or_default();
        BootTime::new(Duration::new(seconds, nanoseconds))
    }
}
