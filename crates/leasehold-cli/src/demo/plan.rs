//! How fast the demo goes: some seconds, whether there is one file or twenty thousand.

use std::time::Duration;

/// The pace of one demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// How many items a worker runs at once.
    pub(super) capacity: u32,
    /// About how long one item takes; each differs, so that they do not march in step.
    pub(super) pace: Duration,
    /// How many items there are.
    pub(super) items: usize,
}

/// How many workers: one to kill, one to freeze, one to go on.
pub(super) const WORKERS: usize = 3;

/// Short, so that a loss is mended before anyone is bored. In production a minute is usual.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// What all items together would keep one worker busy for. Three begin, two are soon gone.
const WORK: Duration = Duration::from_secs(6);

/// Shorter, and a worker might have finished what it held by the time the signal arrives.
const PACE_MIN: Duration = Duration::from_millis(60);
/// Longer, and one that was rescued twice would keep the reader waiting.
const PACE_MAX: Duration = Duration::from_millis(1_200);

/// Between the two strokes.
const BETWEEN: Duration = Duration::from_millis(500);

/// How many at once: enough to have several rescued, few enough to follow.
const CAPACITY: usize = 4;
/// For a folder of many thousand files.
const CAPACITY_MAX: usize = 64;
/// With this many files to a slot, the shortest pace makes up [`WORK`].
const FILES_PER_SLOT: usize = 100;

impl Plan {
    /// For so many items.
    pub(super) fn of(items: usize) -> Self {
        // With few files, nobody takes more than a share, so that each worker holds something.
        let share = items.div_ceil(WORKERS).clamp(1, CAPACITY);
        let slots = (items / FILES_PER_SLOT).clamp(share, CAPACITY_MAX);
        let capacity = u32::try_from(slots).unwrap_or(1);
        let items_each = u32::try_from(items.max(1)).unwrap_or(u32::MAX);
        let pace = (WORK * capacity / items_each).clamp(PACE_MIN, PACE_MAX);
        Self {
            capacity,
            pace,
            items,
        }
    }

    /// How long an item with these random bits takes: half to one and a half of the pace.
    pub(super) fn spread(pace: Duration, bits: u8) -> Duration {
        pace / 2 + pace * u32::from(bits) / 255
    }

    /// How many items are done before the first signal is sent: it is to come in the middle.
    pub(super) const fn warm_up(&self) -> usize {
        self.items / 8
    }

    /// Between the two strokes, so that a reader can tell them apart; but with few items soon enough
    /// for the second to find another worker at its first item.
    pub(super) fn between(&self) -> Duration {
        let slots = WORKERS * self.capacity as usize;
        if self.items > 4 * slots {
            BETWEEN
        } else {
            self.pace / 4
        }
    }

    /// How long nothing may happen, and the whole may take, before the demo gives up.
    pub(super) fn patience(&self) -> Duration {
        let alone = self.pace * u32::try_from(self.items).unwrap_or(u32::MAX) / self.capacity;
        Duration::from_mins(1) + alone * 3
    }
}

#[cfg(test)]
mod tests;
