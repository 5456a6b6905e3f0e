//! What happened, counted: that faults really happened is part of the proof.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name, of one seed or of many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    counts: BTreeMap<&'static str, u64>,
    /// Folds in everything that happened and when: two runs of one seed must agree.
    digest: u64,
}

impl Report {
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn fold(&mut self, value: u64) {
        // FNV-1a by words: cheap, and any difference shows.
        self.digest = (self.digest ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23);
    }

    /// How often it happened.
    pub fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// A figure that differs if anything went differently.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds another seed's figures, in whatever order seeds come to their ends.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (what, count)) in self.counts.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {what}")?;
        }
        Ok(())
    }
}
