//! Schedules: work that repeats.
//!
//! A [`ScheduleDefinition`] says what is to be enqueued and when; its expression and zone are read by
//! [`Timing`]. [`Client::declare_schedules`](crate::Client::declare_schedules) puts the schedules of a program
//! at its start; every worker makes the ticks of all schedules as they come, one item for each, however many
//! workers there are.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::schedules::tick_key;
use leasehold_core::time::later;
use leasehold_core::{Due, NewItem, RequestId, ScheduleId};

pub use leasehold_core::store::schedules::{
    Missed, Overlap, Schedule, ScheduleDefinition, SchedulePause,
};
pub use timing::{INTERVAL_MAX, INTERVAL_MIN, Latest, Timing, TimingError};

mod timing;

/// The timing of a definition.
///
/// # Errors
/// [`TimingError`] says what is wrong and what to write instead.
pub fn timing_of(definition: &ScheduleDefinition) -> Result<Timing, TimingError> {
    Timing::parse(
        &definition.expression,
        &definition.zone,
        definition.starts_at,
        definition.ends_at,
    )
}

/// What a schedule may be called, in words.
pub const NAME_RULE: &str =
    "use 1 to 100 bytes of a-z, A-Z, 0-9 and . _ : / - , beginning with a letter or digit";

/// Whether a schedule may be called that.
pub fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    text.len() <= 100
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
}

/// A tick that is later than this is missed: longer than workers take to restart, shorter than anybody would
/// call it the same moment.
pub(crate) const MISSED_AFTER: Duration = Duration::from_mins(1);

/// The ticks that have come, as the policy has them made, and how far the schedule is then.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Come {
    pub(crate) made: Vec<Timestamp>,
    pub(crate) last: Timestamp,
    pub(crate) next: Option<Timestamp>,
    /// Whether there were ticks that are not made.
    pub(crate) has_skipped: bool,
}

/// What is to be made of the ticks from `first`, which is one that has come, up to now.
pub(crate) fn come(timing: &Timing, missed: Missed, first: Timestamp, now: Timestamp) -> Come {
    let count = match missed {
        Missed::Skip | Missed::Once => 1,
        Missed::UpTo(count) => usize::try_from(count).unwrap_or(usize::MAX),
    };
    let latest = timing.latest(first, now, count);
    let last = latest.ticks.last().copied().unwrap_or(first);
    let mut made = latest.ticks;
    let mut has_skipped = !latest.is_whole;
    if missed == Missed::Skip && later(last, MISSED_AFTER) < now {
        made.clear();
        has_skipped = true;
    }
    Come {
        made,
        last,
        next: latest.next,
        has_skipped,
    }
}

/// The item of a tick: its key is the tick's, and it counts as created then.
pub(crate) fn tick_item(
    id: ScheduleId,
    definition: &ScheduleDefinition,
    tick: Timestamp,
    request: RequestId,
) -> NewItem {
    let mut item = plain_item(definition, tick);
    item.idempotency_key = tick_key(id, tick);
    item.request_id = request;
    if !definition.jitter.is_zero() {
        item.due = Due::At(later(tick, delay(id, tick, definition.jitter)));
    }
    item
}

/// An item of the schedule beside its ticks.
pub(crate) fn plain_item(definition: &ScheduleDefinition, created_at: Timestamp) -> NewItem {
    let mut item = NewItem::new(
        definition.kind.clone(),
        definition.payload.clone(),
        created_at,
    );
    item.lane = definition.lane.clone();
    item.priority = definition.priority;
    item.max_attempts = definition.max_attempts;
    item
}

/// A part of the jitter, the same for every worker.
fn delay(id: ScheduleId, tick: Timestamp, jitter: Duration) -> Duration {
    let (random, _) = tick_key(id, tick).as_uuid().as_u64_pair();
    let micros = (u128::from(random) * jitter.as_micros()) >> 64;
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
