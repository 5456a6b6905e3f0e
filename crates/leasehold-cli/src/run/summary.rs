//! What the workers of a process did, told when they have ended.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Metrics;
use leasehold::core::time::short_length;
use serde::Serialize;

use super::unhandled::Unhandled;
use crate::failure::{Answer, Failure};
use crate::screen::{SCHEMA, Screen};

/// What the workers did.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) workers: Vec<String>,
    pub(super) metrics: Vec<Arc<Metrics>>,
    pub(super) abandoned: usize,
    /// What they left because it is not theirs, where somebody looked.
    pub(super) unhandled: Option<Unhandled>,
    pub(super) took: Duration,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    worker: Vec<String>,
    finished: serde_json::Map<String, serde_json::Value>,
    abandoned: usize,
    unhandled: Option<usize>,
}

impl Summary {
    /// Counts in what others did after these.
    pub(super) fn add(&mut self, other: Self) {
        self.workers.extend(other.workers);
        self.metrics.extend(other.metrics);
        self.abandoned += other.abandoned;
        self.took += other.took;
    }

    /// Whether an item ended as a dead letter, by its run or by the sweep.
    pub(super) fn has_dead_letters(&self) -> bool {
        let mut counts = self
            .metrics
            .iter()
            .map(|metrics| metrics.sum("leasehold_dead_letters_total"));
        counts.any(|count| count > 0.0)
    }

    pub(super) fn show(self, screen: &Screen) -> Result<Answer, Failure> {
        let finished = self.finished();
        if screen.is_json() {
            let finished = finished
                .iter()
                .map(|(name, count)| ((*name).to_owned(), (*count).into()));
            let document = Document {
                schema: SCHEMA,
                worker: self.workers,
                finished: finished.collect(),
                abandoned: self.abandoned,
                unhandled: self.unhandled.map(|left| left.count),
            };
            screen.object(&document)?;
            return Ok(Answer::Yes);
        }
        let mut parts: Vec<String> = finished
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{count} {}", name.replace('_', " ")))
            .collect();
        if parts.is_empty() {
            parts.push("nothing to do".to_owned());
        }
        if self.abandoned > 0 {
            parts.push(format!("{} left to expire", self.abandoned));
        }
        let took = if self.took < Duration::from_secs(1) {
            format!("{} ms", self.took.as_millis())
        } else {
            short_length(self.took)
        };
        screen.talk(&format!("ended after {took}: {}", parts.join(", ")));
        if let Some(line) = self.unhandled.and_then(|left| left.line()) {
            screen.talk(&line);
        }
        Ok(Answer::Yes)
    }

    /// How many items left the workers, by outcome.
    fn finished(&self) -> Vec<(&'static str, u64)> {
        Metrics::outcomes()
            .map(|outcome| {
                let counts = self
                    .metrics
                    .iter()
                    .map(|metrics| metrics.finished_as(outcome));
                (outcome, counts.sum())
            })
            .collect()
    }
}
