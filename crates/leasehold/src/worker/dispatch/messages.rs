//! What the loop hears and what it asks for: one closed set each.

use std::sync::Arc;

use leasehold_core::store::work::{ClaimRequest, Claimed, Settled, Settlement};
use leasehold_core::{BootTime, ClaimToken, Hold, Outcome, StoreError};

use crate::worker::trust::Loss;

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// There may be work.
    Hint,
    /// The claim of [`Action::Claim`] under this token was answered. The items are shared with whoever runs
    /// them: what is moved about is small.
    Claimed(ClaimToken, Result<Vec<Arc<Claimed>>, StoreError>),
    /// The run began: it may have waited for a thread, and its time limit counts from here.
    Began(Hold),
    /// A run ended.
    Ended(Hold, Ending),
    /// A settle of [`Action::Settle`] has its final answer.
    Settled(Hold, SettleAnswer),
    /// A lease is in danger, or its item is to be cancelled.
    Loss(Hold, Loss),
    /// Stop claiming, stop runs, hand everything back. A second one cuts the wait short.
    Drain,
    /// The machine slept, or its calendar was set: claim nothing for a moment.
    ClockJumped,
    /// Nothing but time has passed.
    Tick,
}

/// How a run came to its end.
#[derive(Debug)]
pub enum Ending {
    /// The handler answered, failed or panicked.
    Outcome(Outcome),
    /// It was killed, and is known to have ended.
    Killed,
    /// It was stopped before it began: nothing of it ever ran.
    Unbegun,
}

/// How a settle came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleAnswer {
    /// The store's answer.
    Answered(Settled),
    /// No answer was had while the lease lasted: the item is left to expire.
    GivenUp,
}

/// Why a run was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopReason {
    /// The worker is going away.
    Drain,
    /// It ran longer than its kind allows.
    TimeLimit,
    /// A person cancelled the item.
    Cancel,
    /// The lease could not be renewed in time.
    LeaseDoubted,
    /// The lease is gone.
    LeaseLost,
}

impl StopReason {
    /// The word for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::TimeLimit => "time_limit",
            Self::Cancel => "cancel",
            Self::LeaseDoubted => "lease_doubted",
            Self::LeaseLost => "lease_lost",
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Ask the source for items, and answer with [`Event::Claimed`].
    Claim(ClaimRequest),
    /// Take up the leases of items claimed by a request first sent at `sent`.
    Hold {
        /// Whose.
        holds: Vec<Hold>,
        /// From when trust counts.
        sent: BootTime,
    },
    /// Run it, and answer with [`Event::Ended`].
    Start(Arc<Claimed>),
    /// Ask the run to stop.
    Cancel(Hold, StopReason),
    /// End the run, whether it wants to or not.
    Kill(Hold),
    /// Write it, and answer with [`Event::Settled`].
    Settle(Settlement),
    /// The item is no longer held.
    Forget(Hold),
    /// Renew the lease no longer than until then.
    RenewUntil(Hold, BootTime),
    /// A run does not end; its slot is lost.
    Stuck(Hold),
    /// The item is a dead letter; its audit entry is owed.
    Bury(Arc<Claimed>),
    /// Tell what became of an item, for logs and metrics.
    Note(Arc<Claimed>, Hold, Verdict),
}

/// What became of a held item, for logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Completed.
    Done,
    /// Failed, to be tried again.
    Retried,
    /// Failed for good.
    Dead,
    /// Waits for a guard.
    Parked,
    /// Handed back, no attempt spent.
    Released,
    /// Ended as cancelled.
    Cancelled,
    /// The store refused the write.
    Conflict,
    /// The hold was gone; nothing was written.
    LeaseLost,
    /// No answer was had in time.
    GivenUp,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Retried,
        Self::Dead,
        Self::Parked,
        Self::Released,
        Self::Cancelled,
        Self::Conflict,
        Self::LeaseLost,
        Self::GivenUp,
    ];

    /// The word for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retried => "failed",
            Self::Dead => "dead",
            Self::Parked => "parked",
            Self::Released => "released",
            Self::Cancelled => "cancelled",
            Self::Conflict => "conflict",
            Self::LeaseLost => "lease_lost",
            Self::GivenUp => "given_up",
        }
    }
}
