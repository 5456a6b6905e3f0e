//! The promises about events and audit entries: append-only, numbered without gaps per org.

use std::fmt::Debug;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::StoreResult;
use crate::ids::{ItemId, OrgId, RequestId, UserId};
use crate::json::JsonObject;

/// Two streams per org, each with a gapless sequence of its own.
#[async_trait]
pub trait EventStore: Send + Sync + Debug {
    /// Appends to a stream, and answers the entry's number.
    ///
    /// Owed, in one transaction: the number is the org's cursor plus one, never a maximum read
    /// earlier; an id that is there already takes no number and answers the stored one. Appending
    /// again after a lost answer is therefore safe.
    async fn append(&self, org: OrgId, stream: Stream, entry: &NewEntry) -> StoreResult<u64>;

    /// Up to `limit` entries of the org's stream with a number above `after`, in order.
    async fn read_after(
        &self,
        org: OrgId,
        stream: Stream,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<Entry>>;
}

/// Which stream of an org.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// What happened to the org's records; payloads of ids only.
    Events,
    /// What people must be able to look up: dead letters, operators' acts. Payloads may hold values.
    Audit,
}

impl Stream {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Audit => "audit",
        }
    }
}

/// An entry as its writer constructs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    /// Derived from what it records, so that writing it twice writes once.
    pub id: Uuid,
    /// `<namespace>.<entity>.<action>`, such as `work.item.dead_letter`.
    pub kind: String,
    /// The record it is about.
    pub target_id: Uuid,
    /// Who acted; nil for Leasehold itself.
    pub actor_id: UserId,
    /// The request that caused it.
    pub request_id: RequestId,
    /// The process that wrote it.
    pub app: String,
    /// What there is to say.
    pub payload: JsonObject,
}

/// An entry as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the org's stream, from 1.
    pub seq: u64,
    /// By the store's clock.
    pub produced_at: Timestamp,
    /// What its writer constructed.
    pub entry: NewEntry,
}

/// The id of the audit entry of one dead letter: the same however often it is repaired, another
/// after an operator's retry, since the fencing number has risen by then.
pub fn dead_letter_entry_id(item: ItemId, claim_seq: i64) -> Uuid {
    Uuid::new_v5(
        &item.as_uuid(),
        format!("dead_letter/{claim_seq}").as_bytes(),
    )
}
