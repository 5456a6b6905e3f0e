//! The accounts of a demo: which completion was accepted from whom, and what that comes to.
//!
//! An acceptance is on record in one of two ways. A worker tells each completion that the store accepted
//! from it. The killed one may have died between the store's answer and its telling; so right after its
//! death, before any of its leases is over, the items that the store holds as done by it are put on
//! record as well. An item accepted twice therefore stands here twice.

use std::collections::BTreeMap;

use leasehold::{ItemId, Status, WorkItem};

use super::crew::Who;
use super::worker::Hashed;

/// What is on record.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<ItemId, Entry>,
    accepted: usize,
}

#[derive(Debug, Default)]
struct Entry {
    path: String,
    /// From whom a completion was accepted, each time it was.
    accepted_from: Vec<Who>,
}

impl Ledger {
    /// About these items.
    pub(super) fn new(items: impl IntoIterator<Item = (ItemId, String)>) -> Self {
        let entries = items.into_iter().map(|(id, path)| {
            let entry = Entry {
                path,
                accepted_from: Vec::new(),
            };
            (id, entry)
        });
        Self {
            entries: entries.collect(),
            accepted: 0,
        }
    }

    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Records that a completion was accepted.
    pub(super) fn accept(&mut self, item: ItemId, from: Who) {
        let entry = self.entries.entry(item).or_default();
        if entry.accepted_from.is_empty() {
            self.accepted += 1;
        }
        entry.accepted_from.push(from);
    }

    /// How many items have a completion on record.
    pub(super) fn accepted(&self) -> usize {
        self.accepted
    }

    /// How many completions are on record from a worker.
    pub(super) fn accepted_from(&self, who: Who) -> u64 {
        let all = self.entries.values().flat_map(|entry| &entry.accepted_from);
        all.filter(|from| **from == who).count() as u64
    }

    /// From whom the item's completion was accepted last.
    pub(super) fn finisher(&self, item: ItemId) -> Option<Who> {
        self.entries.get(&item)?.accepted_from.last().copied()
    }

    /// The file behind an item.
    pub(super) fn path(&self, item: ItemId) -> &str {
        self.entries.get(&item).map_or("", |entry| &entry.path)
    }

    /// Compares the record with what the store holds in the end.
    pub(super) fn close(&self, rows: &[WorkItem], name: impl Fn(Who) -> String) -> Tally {
        let rows: BTreeMap<ItemId, &WorkItem> = rows.iter().map(|row| (row.id, row)).collect();
        let mut tally = Tally {
            items: self.len(),
            ..Tally::default()
        };
        for (id, entry) in &self.entries {
            let row = rows.get(id);
            let status = row.map(|row| row.status);
            let accepted = entry.accepted_from.as_slice();
            match (status, accepted) {
                (Some(Status::Done), [from]) if finished_by(row, &name(*from)) => tally.once += 1,
                (Some(Status::Done), []) => tally.unexplained += 1,
                (Some(Status::Failed), []) => tally.failed += 1,
                (_, []) => tally.lost += 1,
                // More than one; or one, and yet it is not over and will be done again.
                _ => tally.twice += 1,
            }
        }
        tally
    }
}

/// What the accounts come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// All of them.
    pub(super) items: usize,
    /// Done, with one completion on record, and its result is the one that is stored.
    pub(super) once: usize,
    /// With more than one completion on record, or with one that something else came after.
    pub(super) twice: usize,
    /// Neither done nor failed.
    pub(super) lost: usize,
    /// Failed for good, as a file that went away does.
    pub(super) failed: usize,
    /// Done, and nobody's completion is on record.
    pub(super) unexplained: usize,
}

fn finished_by(row: Option<&&WorkItem>, name: &str) -> bool {
    row.and_then(|row| hashed(row))
        .is_some_and(|hashed| hashed.worker == name)
}

/// The result of an item that is done.
pub(super) fn hashed(row: &WorkItem) -> Option<Hashed> {
    row.result.as_ref()?.decode().ok()
}

#[cfg(test)]
mod tests;
