//! Purges: what has been kept for long enough is deleted, a batch at a time.

use leasehold_core::StoreError;

use futures_util::future::BoxFuture;

use super::{Pass, Sweep};

/// Deletes up to so many rows of one kind that are past their retention, of every org. How many.
struct Purge {
    /// What they are, for the log, the metric and the report.
    what: &'static str,
    /// For the count of failures.
    step: &'static str,
    call: for<'s> fn(&'s Sweep, u32) -> BoxFuture<'s, Result<u32, StoreError>>,
}

/// All of them, in the order of their first turn.
const PURGES: [Purge; 1] = [Purge {
    what: "items",
    step: "purge",
    call: |sweep, limit| {
        sweep
            .stores
            .work
            .purge(sweep.settings.item_retention, limit)
    },
}];

/// What is purged, as the label `rows` has it.
pub(crate) fn purged_rows() -> impl Iterator<Item = &'static str> {
    PURGES.iter().map(|purge| purge.what)
}

impl Pass<'_> {
    /// A batch of each; then again those that came back full, in turn.
    pub(super) async fn purge(&mut self) {
        let Self { sweep, .. } = *self;
        let limit = sweep.settings.sweep_batch;
        let mut left: Vec<&Purge> = PURGES.iter().collect();
        loop {
            let mut full = Vec::new();
            for purge in left {
                let Some(count) = self.ask(purge.step, (purge.call)(sweep, limit)).await else {
                    continue;
                };
                if count > 0 {
                    *self.swept.purged.entry(purge.what).or_default() += u64::from(count);
                }
                if count >= limit {
                    full.push(purge);
                }
            }
            if full.is_empty() {
                return;
            }
            if self.is_over() {
                self.swept.unfinished = true;
                return;
            }
            left = full;
        }
    }
}
