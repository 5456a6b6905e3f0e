//! A clock on the runtime's own time, which a test can pause and advance.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::time::{BootTime, Clock, later};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Core's [`Clock`], read from the tokio runtime it was made in.
///
/// Under a paused runtime it moves with `tokio::time::advance` and with every timer that the
/// runtime skips to. It stays on that runtime's time when it is read on another thread.
#[derive(Debug, Clone)]
pub struct TokioClock {
    runtime: Handle,
    calendar: Timestamp,
    start: Instant,
}

impl TokioClock {
    /// What [`Clock::elapsed`] begins at: an hour after a made-up boot.
    const BOOT: Duration = Duration::from_hours(1);

    /// Starts at the beginning of 2026, on the time of the runtime it is called in.
    pub fn new() -> Self {
        Self::starting_at(Timestamp::constant(1_767_225_600, 0))
    }

    /// Starts at the given calendar time, on the time of the runtime it is called in.
    pub fn starting_at(calendar: Timestamp) -> Self {
        let runtime = Handle::current();
        let start = instant(&runtime);
        Self {
            runtime,
            calendar,
            start,
        }
    }

    fn since_start(&self) -> Duration {
        instant(&self.runtime).saturating_duration_since(self.start)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a clock module: it is where time is read"
)]
fn instant(runtime: &Handle) -> Instant {
    let _context = runtime.enter();
    Instant::now()
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        later(self.calendar, self.since_start())
    }

    fn elapsed(&self) -> BootTime {
        BootTime::new(Self::BOOT + self.since_start())
    }
}

#[cfg(test)]
mod tests;
