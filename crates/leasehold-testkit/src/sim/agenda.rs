//! What is to happen and when: a queue in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::worker::dispatch::Event as Heard;
use leasehold_core::{BootTime, ItemId, OrgId};

use super::dice::Dice;

/// One life of one worker's process: its seat, and the how-manieth process sits there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) seat: usize,
    pub(super) life: u32,
}

pub(super) type CallId = u64;
pub(super) type RunId = u64;

#[derive(Debug)]
pub(super) enum Event {
    /// Something reaches, or is due in, a process that may stand still.
    Within(Who, Inner),
    /// A request reaches the store.
    Arrives(CallId),
    /// Something becomes of a run.
    Run(RunId, Turn),
    Sweep(Who, SweepStep),
    /// A process starts in the seat.
    Boots(usize),
    /// The producer sends the planned item of that number, perhaps again.
    Enqueue(usize),
    /// An operator does something.
    Operates,
    /// Something bad befalls a worker, the network or a clock.
    Blow,
    /// A paused lane is opened again.
    Resumes,
    /// From here on nothing bad happens any more.
    Quiet,
}

#[derive(Debug)]
pub(super) enum Inner {
    /// The loop takes its turn; only the latest ticket counts.
    Loop(u64),
    /// The keeper takes its turn; only the latest ticket counts.
    Keeper(u64),
    /// An answer comes in.
    Answer(CallId),
    /// The caller waits no longer.
    TimesOut(CallId),
    /// A settle that failed is asked again.
    SettlesAgain,
    /// Somebody of the process tells the loop, in this order.
    Tell(Vec<Heard>),
}

/// What becomes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It ends by itself.
    Ends,
    /// The wish to end reaches it.
    Cancelled,
    /// The kill reaches it.
    Killed,
    /// The kill has worked.
    Dies,
    /// It takes its whole process along.
    TakesWorkerAlong,
    /// Its warden looks at the deadline.
    Deadline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SweepStep {
    /// Begins a pass.
    Probe,
    /// Recovers what is stale in the org.
    Requeue(OrgId),
    /// Looks for dead letters whose entry is owed.
    Repair(OrgId),
    /// Writes the entry of a dead letter.
    Audit(OrgId, ItemId, i64),
    /// Records that it is written.
    Mark(OrgId, ItemId, i64),
}

/// Ordered by time; what falls on the same instant comes in an order that the dice decide.
pub(super) struct Agenda {
    entries: BTreeMap<(BootTime, u64, u64), Event>,
    next: u64,
    pub(super) now: BootTime,
}

impl Agenda {
    pub(super) const fn starting_at(now: BootTime) -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
            now,
        }
    }

    pub(super) fn at(&mut self, dice: &mut Dice, at: BootTime, event: Event) {
        self.next += 1;
        let key = (at.max(self.now), dice.number(), self.next);
        self.entries.insert(key, event);
    }

    pub(super) fn after(&mut self, dice: &mut Dice, wait: Duration, event: Event) {
        self.at(dice, self.now + wait, event);
    }

    /// The next event, and how long nothing happens until then.
    pub(super) fn pop(&mut self) -> Option<(Duration, Event)> {
        let ((at, _, _), event) = self.entries.pop_first()?;
        let passed = at.since(self.now);
        self.now = at;
        Some((passed, event))
    }
}
