//! When a warden terminates and when it kills: every decision, without a system call.
//!
//! # States
//! ```text
//!  running ──terminate, time limit──▶ terminating ──grace over──▶ killing
//!     └──────deadline, kill, caller gone──────────────────────────▶ killing
//! ```
//! The first cause counts: it is what the ending is reported as.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Deadline;

/// Why a warden ends its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// The deadline passed, or the caller is gone.
    LeaseLost,
    /// The command ran longer than it may.
    TimedOut,
    /// The caller asked for it.
    Killed,
    /// The command wrote more than it may.
    OutputTooLarge,
}

/// What the caller asks of a warden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The lease is good until then. The latest counts.
    Until(Deadline),
    /// Ask the command to end; kill it after so many nanoseconds.
    Terminate { grace_ns: u64 },
    /// Kill at once.
    Kill(Cause),
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing before [`Watch::next`].
    Wait,
    /// Signal the command to end.
    Terminate,
    /// Kill the tree.
    Kill,
}

/// How a command is bounded from its start on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    /// The lease; `None` if the command has none.
    pub(crate) until: Option<Deadline>,
    pub(crate) time_limit: Option<Duration>,
    /// How long the command may take to end once its time limit has passed.
    pub(crate) grace: Duration,
}

/// One command's deadlines.
#[derive(Debug)]
pub(crate) struct Watch {
    until: Option<Deadline>,
    limit: Option<Deadline>,
    grace: Duration,
    kill_at: Option<Deadline>,
    cause: Option<Cause>,
    /// How far the calendar was ahead of elapsed time when the lease was last heard of.
    offset: Duration,
}

/// A calendar that drifts by less is being slewed, not set.
const JUMP: Duration = Duration::from_millis(500);

impl Watch {
    pub(crate) fn begin(bounds: Bounds, now: Deadline, offset: Duration) -> Self {
        Self {
            until: bounds.until,
            limit: bounds.time_limit.map(|limit| now.plus(limit)),
            grace: bounds.grace,
            kill_at: None,
            cause: None,
            offset,
        }
    }

    /// Why the command was ended, if it was.
    pub(crate) const fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Takes an order in. What follows from it is answered by [`Watch::look`].
    pub(crate) fn heard(&mut self, order: Order, now: Deadline, offset: Duration) -> Act {
        match order {
            Order::Until(until) => {
                // Orders come in the order they were sent, and a lease never shrinks but by a calendar
                // that was set; the store has counted that in when it renewed.
                self.until = Some(until);
                self.offset = offset;
                Act::Wait
            }
            Order::Terminate { grace_ns } => {
                self.terminate(Cause::Killed, Duration::from_nanos(grace_ns), now)
            }
            Order::Kill(cause) => self.kill(cause),
        }
    }

    /// The caller is gone.
    pub(crate) fn orphaned(&mut self) -> Act {
        self.kill(Cause::LeaseLost)
    }

    /// What is due at `now`, with the calendar so far ahead of elapsed time.
    pub(crate) fn look(&mut self, now: Deadline, offset: Duration) -> Act {
        // A store that counts by this machine's calendar has seen the lease shrink by as much.
        let jump = offset.saturating_sub(self.offset);
        if jump > JUMP {
            self.until = self.until.map(|until| until.minus(jump));
            self.offset = offset;
        }
        if self.until.is_some_and(|until| until <= now) {
            return self.kill(Cause::LeaseLost);
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            return self.kill(Cause::Killed);
        }
        if self.limit.is_some_and(|limit| limit <= now) {
            self.limit = None;
            return self.terminate(Cause::TimedOut, self.grace, now);
        }
        Act::Wait
    }

    /// When [`Watch::look`] has something to do, unless the calendar is set before.
    pub(crate) fn next(&self) -> Option<Deadline> {
        [self.until, self.limit, self.kill_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn terminate(&mut self, cause: Cause, grace: Duration, now: Deadline) -> Act {
        self.cause = self.cause.or(Some(cause));
        if grace.is_zero() {
            return self.kill(cause);
        }
        let kill_at = now.plus(grace);
        let is_first = self.kill_at.is_none();
        // Asked again, it may only become sooner.
        self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        if is_first { Act::Terminate } else { Act::Wait }
    }

    fn kill(&mut self, cause: Cause) -> Act {
        self.cause = self.cause.or(Some(cause));
        Act::Kill
    }
}

#[cfg(test)]
mod tests;
