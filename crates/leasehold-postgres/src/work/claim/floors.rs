//! From where on claims look at a queue.
//!
//! What was claimed leaves dead entries at the head of the index, which every claim from the head reads
//! past until a vacuum removes them, and while some old snapshot is held none can. So claims remember how
//! far they came in each queue (a lane, a kind and a priority) and begin there: at its floor.
//!
//! An item can appear below a floor: its transaction took long to commit, it was made due in the past, or
//! whoever had it locked let it go. Floors therefore stay some way behind what was claimed last, and now and
//! then a claim looks from the head. How often is a matter of what that costs beyond a claim from the
//! floors: at most a small share of the time. Where nothing is dead it costs nothing and is done always.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold_core::{Kind, Lane};
use uuid::Uuid;

/// A floor stays below so many of the items claimed last. It bounds what a claim reads in vain, and a queue
/// that few items were claimed from has no floor.
const ITEMS_BELOW: u64 = 1_000;

/// And no further below than that many of the store's time: commits that overtake each other do so within
/// less.
const TIME_BELOW: Duration = Duration::from_millis(100);

/// A claim from the head comes after that many times what the last one took beyond the usual: the share of
/// time that they cost is one twentieth.
const HEAD_COST: u32 = 20;

/// A claim from the head comes at least that often, whatever it costs.
const HEAD_WAIT_MAX: Duration = Duration::from_secs(20);

/// More queues than this are not kept apart: all are looked at from the head again.
const QUEUES_MAX: usize = 1_024;

/// Where an item stands in its queue.
pub(super) type Key = (Timestamp, Uuid);

/// What orders the items that one claim may merge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    pub(super) lane: Lane,
    pub(super) kind: Kind,
    pub(super) priority: i16,
}

/// The floors of all queues that were claimed from.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    queues: HashMap<Queue, Course>,
    /// What a claim from the floors usually takes.
    usual: Option<Duration>,
    /// When the next claim from the head is due; none was needed so far.
    head_due: Option<Instant>,
}

/// How far claims came in a queue.
#[derive(Debug, Default)]
struct Course {
    /// The last key of each claim and how many items it took, oldest first: as many as cover
    /// [`ITEMS_BELOW`].
    claims: VecDeque<(Key, u64)>,
    /// How many items were claimed after the first of `claims`.
    after_first: u64,
    /// How many were found below the floor.
    found_below: u64,
}

impl Course {
    fn floor(&self) -> Option<Key> {
        if self.after_first < ITEMS_BELOW {
            return None;
        }
        let (by_items, (last, _)) = (self.claims.front()?.0, self.claims.back()?.0);
        let by_time = last.checked_sub(TIME_BELOW).ok()?;
        Some(by_items.max((by_time, Uuid::nil())))
    }

    /// Notes what a claim took: its last key, and how many items.
    fn advance(&mut self, last: Key, items: u64) {
        if self.claims.back().is_some_and(|(back, _)| last <= *back) {
            self.found_below += items;
            if self.found_below >= ITEMS_BELOW {
                // The queue goes on below its floor, as it does where the store's clock was set back.
                *self = Self::default();
            }
            return;
        }
        if !self.claims.is_empty() {
            self.after_first += items;
        }
        self.claims.push_back((last, items));
        while let Some((_, second)) = self.claims.get(1) {
            if self.after_first - second < ITEMS_BELOW {
                break;
            }
            self.after_first -= second;
            self.claims.pop_front();
        }
    }
}

impl Floors {
    /// What claims are timed by.
    #[expect(
        clippy::disallowed_methods,
        reason = "paces looks at a real server; which items are claimed in the end does not hang on it"
    )]
    pub(super) fn now() -> Instant {
        Instant::now()
    }

    /// The floors to claim from now; none where a claim from the head is due.
    pub(super) fn from(&self, now: Instant) -> Vec<(&Queue, Key)> {
        if self.head_due.is_none_or(|due| now >= due) {
            return Vec::new();
        }
        let floors = self.queues.iter();
        floors
            .filter_map(|(queue, course)| Some((queue, course.floor()?)))
            .collect()
    }

    /// Notes what a claim from the head, or from the floors, took of each queue, and how long it lasted.
    pub(super) fn note(
        &mut self,
        taken: impl IntoIterator<Item = (Queue, Key, u64)>,
        is_from_head: bool,
        lasted: Duration,
        now: Instant,
    ) {
        if self.queues.len() > QUEUES_MAX {
            *self = Self::default();
        }
        for (queue, last, items) in taken {
            self.queues.entry(queue).or_default().advance(last, items);
        }
        if is_from_head {
            let beyond = lasted.saturating_sub(self.usual.unwrap_or_default());
            self.head_due = Some(now + (beyond * HEAD_COST).min(HEAD_WAIT_MAX));
        } else {
            let usual = self.usual.unwrap_or(lasted);
            self.usual = Some((usual * 7 + lasted) / 8);
        }
    }
}

#[cfg(test)]
mod tests;
