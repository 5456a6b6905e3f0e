//! What the store says of the demo's items. Everything is asked through the library, as a user would.

use std::time::Duration;

use leasehold::core::WorkerId;
use leasehold::core::store::work::{Filter, LIST_MAX, Page};
use leasehold::core::time::age;
use leasehold::{Client, ItemId, Status, StoreError, WorkItem};

use crate::failure::Failure;

/// How long the demo itself waits for the file's lock. It only writes to find out who has it.
pub(super) const LOCK_PATIENCE: Duration = Duration::from_millis(300);

/// The demo's queue, as it looks from outside the workers.
#[derive(Clone, Copy)]
pub(super) struct Queue<'a> {
    client: &'a Client,
}

/// One item that somebody holds.
pub(super) struct Held {
    /// Which.
    pub(super) item: ItemId,
    /// The fencing number of the hold.
    pub(super) fence: i64,
    /// Who says to hold it.
    pub(super) worker: String,
    /// How long ago it was claimed or renewed.
    pub(super) age: Duration,
}

impl<'a> Queue<'a> {
    /// Through this client.
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// What is held now.
    pub(super) async fn held(&self) -> Result<Vec<Held>, Failure> {
        let now = self.client.stores().work.now().await?;
        let rows = self.rows(Some(Status::Claimed)).await?;
        let held = rows.into_iter().map(|row| Held {
            item: row.id,
            fence: row.claim_seq,
            age: age(now, row.updated_at),
            worker: row.claimed_by.map_or_else(String::new, |id| id.to_string()),
        });
        Ok(held.collect())
    }

    /// Whether the hold of that fencing number is still in force, as far as the row says.
    pub(super) async fn is_held(&self, item: ItemId, fence: i64) -> Result<bool, Failure> {
        let row = self.client.get(item).await?;
        Ok(row.is_some_and(|row| row.status == Status::Claimed && row.claim_seq == fence))
    }

    /// How many items are queued or held.
    pub(super) async fn left(&self) -> Result<u64, Failure> {
        let gauges = self.client.stores().work.gauges().await?;
        let lanes = gauges.lanes.iter();
        Ok(lanes
            .map(|lane| lane.ready + lane.delayed + lane.claimed)
            .sum())
    }

    /// Whether the file can be written to, which changes nothing in it.
    pub(super) async fn can_write(&self) -> Result<bool, Failure> {
        let nobody = WorkerId::parse("nobody").map_err(leasehold::ClientError::from)?;
        match self.client.stores().liveness.remove(&nobody).await {
            Ok(_) => Ok(true),
            Err(StoreError::Retry(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// All items, or those in one status.
    pub(super) async fn rows(&self, status: Option<Status>) -> Result<Vec<WorkItem>, Failure> {
        let filter = Filter {
            status,
            ..Filter::default()
        };
        let mut rows = Vec::new();
        let mut page = Page {
            before: None,
            limit: LIST_MAX,
        };
        loop {
            let more = self.client.list(&filter, &page).await?;
            rows.extend(more.items);
            page.before = more.next;
            if page.before.is_none() {
                return Ok(rows);
            }
        }
    }
}
