//! The hint that a transaction owes, to be given after its commit.

use std::collections::BTreeSet;

use leasehold_core::Lane;
use leasehold_core::store::StoreResult;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::Fault;
use crate::hints::{TELL, channel_of};
use crate::store::Schema;

/// Tells workers of what a transaction gave them to do, once it has been committed. Lost, it costs a poll
/// interval and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "send it after the commit, or workers find the items by polling only"]
pub struct PendingHint {
    channel: String,
    lanes: BTreeSet<Lane>,
}

impl PendingHint {
    pub(super) fn new(schema: &Schema, lanes: BTreeSet<Lane>) -> Self {
        Self {
            channel: channel_of(schema),
            lanes,
        }
    }

    /// Sends it by one statement of its own. Given before the commit, it sends workers to look too early. A
    /// hint for no lane sends nothing.
    ///
    /// # Errors
    /// The database's; the items are committed all the same.
    pub async fn send<C: GenericClient + Sync>(self, client: &C) -> StoreResult<()> {
        if self.lanes.is_empty() {
            return Ok(());
        }
        client
            .query_typed(
                TELL,
                &[
                    (&self.channel(), Type::TEXT),
                    (&self.lanes(), Type::TEXT_ARRAY),
                ],
            )
            .await
            .map_err(Fault::from)?;
        Ok(())
    }

    /// The statement that sends it, for a driver of the caller's own: `$1` is [`PendingHint::channel`],
    /// `$2` is [`PendingHint::lanes`], a list of texts.
    pub const fn text(&self) -> &'static str {
        TELL
    }

    /// Where it is sent to.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The lanes that gained an item; none if nothing is to be told.
    pub fn lanes(&self) -> Vec<&str> {
        self.lanes.iter().map(Lane::as_str).collect()
    }

    pub(super) fn into_lanes(self) -> BTreeSet<Lane> {
        self.lanes
    }
}
