//! The rules: (item, outcome, policy, jitter) in, [`Transition`] out.
//!
//! Pure, written once. A store applies a transition in one conditional write and adds durations to
//! its own now. Where SQL must evaluate a rule itself, the statement names the rule, and a contract
//! case holds both spellings together.
//!
//! | outcome | attempts left | transition | attempt | lease must be live |
//! |---|---|---|---|---|
//! | done | any | [`Transition::Complete`] | kept | yes |
//! | failed, retryable | yes | [`Transition::Retry`] | spent | yes |
//! | failed, retryable | no | [`Transition::Bury`] | spent | yes |
//! | failed, not retryable; refused | any | [`Transition::Bury`] | spent | yes |
//! | parked | any | [`Transition::Park`] | given back | yes |
//! | released, handed back | any | [`Transition::Release`] | given back | no: the token alone |
//!
//! An item whose cancel was requested is never queued again: retry, park, release and requeue end it
//! as cancelled, in the same statement. Done beats cancel, and so does a dead letter.

use std::time::Duration;

use crate::item::WorkItem;
use crate::json::JsonObject;
use crate::outcome::{Failure, FailureCode, Outcome};
use crate::text::ShortText;

/// How a held item leaves its holder. Carries durations, never instants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// To done.
    Complete {
        /// Kept on the item.
        result: Option<JsonObject>,
    },
    /// To queued, the attempt spent.
    Retry {
        /// Why this attempt failed.
        failure: Failure,
        /// Not before the store's now plus this.
        delay: Duration,
    },
    /// To failed: a dead letter.
    Bury {
        /// Why.
        failure: Failure,
    },
    /// To queued, the attempt given back; needs a live lease.
    Park {
        /// What it waits for.
        reason: ShortText,
        /// Not before the store's now plus this.
        delay: Duration,
    },
    /// To queued, the attempt given back; needs the token alone, so that a late hand-back of a run
    /// known to have ended still counts.
    Release {
        /// Why.
        note: ShortText,
        /// Not before the store's now plus this.
        delay: Duration,
    },
}

impl Transition {
    /// Whether the claim's lease must still be live for it.
    pub const fn needs_live_lease(&self) -> bool {
        !matches!(self, Self::Release { .. })
    }

    /// The word for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Complete { .. } => "complete",
            Self::Retry { .. } => "fail",
            Self::Bury { .. } => "bury",
            Self::Park { .. } => "park",
            Self::Release { .. } => "release",
        }
    }
}

/// How long a failed item waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// After the first failure.
    pub base: Duration,
    /// Never longer than this, before jitter.
    pub cap: Duration,
    /// Up to this fraction of the delay is added, so that items that failed together part. 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(30),
            cap: Duration::from_mins(15),
            jitter: 0.1,
        }
    }
}

/// A hand-back or a park that a handler asks for waits at least this long: no hot loop.
pub const HAND_BACK_DELAY_MIN: Duration = Duration::from_secs(1);

/// What the sweep writes where a lease ran out.
pub const LEASE_EXPIRED_NOTE: &str = "the lease ran out: the worker died, froze or was cut off";

/// Turns what a run ended in into how its item leaves its holder.
///
/// `jitter` is a random number from 0 to 1, drawn by the caller.
pub fn settle(item: &WorkItem, outcome: Outcome, policy: &RetryPolicy, jitter: f64) -> Transition {
    match outcome {
        Outcome::Done { result } => Transition::Complete { result },
        Outcome::Failed {
            failure,
            retry_after,
        } => {
            if !failure.retryable || is_exhausted(item.attempts, item.max_attempts) {
                Transition::Bury { failure }
            } else {
                let delay = retry_delay(item.attempts, policy, jitter);
                Transition::Retry {
                    failure,
                    delay: delay.max(retry_after.unwrap_or_default()),
                }
            }
        }
        Outcome::Parked {
            reason,
            resume_after,
        } => Transition::Park {
            reason,
            delay: resume_after.max(HAND_BACK_DELAY_MIN),
        },
        Outcome::Refused { reason } => Transition::Bury {
            failure: Failure::own(FailureCode::REFUSED, reason).for_good(),
        },
        Outcome::Released { note } => Transition::Release {
            note,
            delay: HAND_BACK_DELAY_MIN,
        },
    }
}

/// How a worker hands back an item that it stopped for reasons of its own: claimable at once.
pub fn hand_back(note: impl Into<ShortText>) -> Transition {
    Transition::Release {
        note: note.into(),
        delay: Duration::ZERO,
    }
}

/// What the sweep does with a claim whose lease ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Queued again, the attempt spent.
    Again,
    /// No attempt left: a dead letter.
    Bury,
    /// A person wanted it stopped.
    Cancel,
}

/// Decides [`Requeue`]: a requested cancel goes first, then the attempts.
pub const fn requeue(attempts: u32, max_attempts: u32, cancel_requested: bool) -> Requeue {
    if cancel_requested {
        Requeue::Cancel
    } else if is_exhausted(attempts, max_attempts) {
        Requeue::Bury
    } else {
        Requeue::Again
    }
}

/// Whether no further claim is allowed.
pub const fn is_exhausted(attempts: u32, max_attempts: u32) -> bool {
    attempts >= max_attempts
}

/// The count after a claim.
pub const fn attempts_after_claim(attempts: u32) -> u32 {
    attempts.saturating_add(1)
}

/// The count after a hand-back.
pub const fn attempts_after_hand_back(attempts: u32) -> u32 {
    attempts.saturating_sub(1)
}

/// `min(base · 2^(attempts−1), cap)`, plus up to `policy.jitter` of it. Clamped throughout.
pub fn retry_delay(attempts: u32, policy: &RetryPolicy, jitter: f64) -> Duration {
    let doublings = attempts.saturating_sub(1).min(31);
    let delay = policy
        .base
        .saturating_mul(1_u32 << doublings)
        .min(policy.cap);
    let share = policy.jitter.clamp(0.0, 1.0) * jitter.clamp(0.0, 1.0);
    // Durations hold more digits than a float: of the longest ones the product may come out above
    // its factor, or not fit at all.
    let added = Duration::try_from_secs_f64(delay.as_secs_f64() * share);
    if share.is_nan() {
        delay
    } else {
        delay.saturating_add(added.unwrap_or(delay).min(delay))
    }
}

/// How long the recovered item at `position` (from 0) of a batch of at most `limit` waits, so that a
/// full batch spreads over `window` and a lone item does not wait.
pub fn stagger(position: u32, limit: u32, window: Duration) -> Duration {
    (window / limit.max(1)).saturating_mul(position).min(window)
}

/// Whether the claimed item must run with no other beside it: its last attempt, after a worker was
/// lost under it, so that a poison item takes no neighbour along.
pub const fn runs_alone(item: &WorkItem) -> bool {
    item.worker_losses > 0 && is_exhausted(item.attempts, item.max_attempts)
}

/// When a renewal is due: a quarter of the lease after the last accepted request was sent.
pub fn renewal_due_after(lease: Duration) -> Duration {
    lease / 4
}

/// When a holder's trust in its lease ends: half of it after the last accepted request was sent.
pub fn trust_ends_after(lease: Duration) -> Duration {
    lease / 2
}

#[cfg(test)]
mod tests;
