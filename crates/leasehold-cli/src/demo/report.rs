//! What a worker of the demo tells on its standard output, one JSON object a line.

use std::io::Write as _;

use async_trait::async_trait;
use leasehold::core::rules::Transition;
use leasehold::core::store::work::{ClaimRequest, Renewal, Renewed, Settled, Settlement};
use leasehold::core::{Hints, Hold};
use leasehold::{
    Assignments, ItemId, Lane, Metrics, QueueSource, Source, StoreError, Stores, Tenancy,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Report {
    /// It runs, under this id.
    Started {
        /// As it stands on the items it claims.
        worker: String,
    },
    /// The store accepted its completion of the item.
    Accepted {
        /// Which.
        item: ItemId,
    },
    /// The store refused what it wrote about the item.
    Refused {
        /// Which.
        item: ItemId,
        /// What it wanted to write, in words.
        write: String,
    },
    /// It has handed everything back and ends; what its metrics say.
    Drained {
        /// `leasehold_items_finished_total{outcome="done"}`.
        done: u64,
        /// `leasehold_stale_writes_refused_total`, over all operations.
        refused: u64,
    },
}

/// What a refused renewal is called. It may be followed by a refused result, if the run had ended.
pub(super) const RENEWAL: &str = "renewal";

impl Report {
    /// Prints the line. If nobody listens any more, the worker is about to be told by its input.
    pub(super) fn tell(&self) {
        if let Ok(mut line) = serde_json::to_vec(self) {
            line.push(b'\n');
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(&line);
            let _ = out.flush();
        }
    }

    /// Reads the line.
    pub(super) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// The queue, with every answer of the store that matters to the demo told as it comes.
///
/// An acceptance is told once for each hold: an answer that was lost is asked for again, and told then.
pub(super) struct Reporting {
    pub(super) queue: QueueSource,
}

#[async_trait]
impl Source for Reporting {
    async fn claim(&self, request: &ClaimRequest) -> Result<Assignments, StoreError> {
        self.queue.claim(request).await
    }

    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Option<Renewed>>, StoreError> {
        let answers = self.queue.renew(batch).await?;
        for (renewal, answer) in batch.iter().zip(&answers) {
            if *answer == Some(Renewed::Lost) {
                let item = renewal.hold.item_id;
                let write = RENEWAL.to_owned();
                Report::Refused { item, write }.tell();
            }
        }
        Ok(answers)
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let answers = self.queue.settle(batch).await?;
        for (settlement, answer) in batch.iter().zip(&answers) {
            let item = settlement.hold.item_id;
            let completes = matches!(settlement.transition, Transition::Complete { .. });
            match answer {
                Settled::Settled(_) | Settled::AlreadySettled if completes => {
                    Report::Accepted { item }.tell();
                }
                Settled::Settled(_) | Settled::AlreadySettled => {}
                Settled::Conflict => {
                    let write = if completes { "result" } else { "hand-back" }.to_owned();
                    Report::Refused { item, write }.tell();
                }
            }
        }
        Ok(answers)
    }

    fn forget(&self, holds: &[Hold]) {
        self.queue.forget(holds);
    }

    fn drain(&self) {
        self.queue.drain();
    }

    async fn close(&self) {
        self.queue.close().await;
    }

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        self.queue.subscribe(lanes)
    }

    fn attach(&self, metrics: &Arc<Metrics>) {
        self.queue.attach(metrics);
    }

    fn stores(&self) -> Option<&Stores> {
        self.queue.stores()
    }

    fn tenancy(&self) -> &Arc<dyn Tenancy> {
        self.queue.tenancy()
    }
}
