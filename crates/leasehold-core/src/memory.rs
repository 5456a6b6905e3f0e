//! The store promises, kept in memory: the reference every other backend is held against.
//!
//! Tests and the simulation use it in place of a database, and so may a program whose work need not
//! survive it. One mutex guards everything, so each call is atomic and calls happen one after the
//! other. Maps are ordered: the same calls at the same readings of the clock give the same answers,
//! which is what makes a seeded simulation replay. Nothing here waits but [`Hints::next`], and
//! nothing needs an async runtime.
//!
//! - `items`: the rows of work items, and the indexes that every write keeps beside them;
//! - `moves`: what each transition does to a row;
//! - `claims`: which items a claim takes;
//! - `work`: the promises of [`WorkStore`], over those three;
//! - one file for each other namespace.
//!
//! [`Hints::next`]: crate::store::Hints::next
//! [`WorkStore`]: crate::store::WorkStore

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use uuid::Uuid;

use crate::names::Lane;
use crate::text::ShortText;
use crate::time::Clock;

mod claims;
mod credentials;
mod events;
mod hints;
mod items;
mod liveness;
mod markers;
mod moves;
mod outbox;
mod schedules;
mod tenancy;
mod work;

/// Every namespace of one installation, in memory. Shared by `Arc`; gone when the last one is.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    hints: hints::Board,
}

/// All that is stored, one part per namespace.
#[derive(Default)]
struct State {
    work: work::Work,
    tenancy: tenancy::Tenancy,
    credentials: credentials::Credentials,
    outbox: outbox::Outbox,
    events: events::Events,
    markers: markers::Markers,
    schedules: schedules::Schedules,
    liveness: liveness::Liveness,
}

impl MemoryStore {
    /// An empty store, whose clock is the calendar of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            hints: hints::Board::default(),
        }
    }

    /// Why the outbox row could last not be relayed, if it could not.
    pub fn outbox_error(&self, row: Uuid) -> Option<ShortText> {
        self.call(|state, _| state.outbox.last_error(row))
    }

    /// Runs one call alone, at one reading of the clock, taken once it has its turn: what a call
    /// writes is never dated before what the call ahead of it wrote, unless the clock went back.
    fn call<T>(&self, body: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        body(&mut state, now)
    }

    /// As [`Self::call`] for a body that also names lanes to hint. They are hinted once the call is
    /// over, so that whoever wakes finds what was written.
    fn call_and_hint<T>(
        &self,
        body: impl FnOnce(&mut State, Timestamp, &mut BTreeSet<Lane>) -> T,
    ) -> T {
        let mut lanes = BTreeSet::new();
        let answer = self.call(|state, now| body(state, now, &mut lanes));
        self.hints.hint(&lanes);
        answer
    }
}

impl fmt::Debug for MemoryStore {
    /// Says what it is and not what it holds: payloads stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
