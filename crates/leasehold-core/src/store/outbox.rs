//! The promises about outbox rows: effects that must happen ride a row.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::StoreResult;
use crate::ids::{OrgId, RequestId, TargetId, UserId};
use crate::json::JsonObject;
use crate::text::ShortText;

/// Rows that wait to be relayed.
#[async_trait]
pub trait OutboxStore: Send + Sync + Debug {
    /// Writes rows. A row whose id is there is left alone. How many were new.
    ///
    /// A backend that shares a database with the application also offers this inside the caller's
    /// own transaction, which is where an outbox belongs.
    async fn append_outbox(&self, org: OrgId, rows: &[NewOutboxRow]) -> StoreResult<u32>;

    /// Takes up to `limit` rows that are neither done nor failed, oldest id first, older than `grace`
    /// and not taken within their back-off.
    ///
    /// Owed, in one transaction: each row taken has its attempts raised and is not handed out again
    /// until [`crate::rules::retry_delay`] of that count under `base` and `cap` has passed. A row
    /// committed late is not skipped: no position is remembered.
    ///
    /// Takes no org: one relay serves all. Relaying a row twice is harmless, so a lost answer is too.
    async fn claim_pending(&self, request: &PendingRequest) -> StoreResult<Vec<OutboxRow>>;

    /// Marks rows done. Conditional on not done; repeating it is harmless.
    ///
    /// Takes no org: the relay's own, by the ids it was just given.
    async fn mark_done(&self, rows: &[Uuid]) -> StoreResult<()>;

    /// Records why a row could not be relayed; `dead` ends it. `false` if it was done or dead before.
    ///
    /// Takes no org: the relay's own, by the id it was just given.
    async fn mark_failed(&self, row: Uuid, error: &ShortText, dead: bool) -> StoreResult<bool>;

    /// How long the oldest pending row has waited; zero when none does.
    ///
    /// Takes no org: an operator's figure.
    async fn outbox_lag(&self) -> StoreResult<Duration>;

    /// Deletes up to `limit` done or dead rows that ended more than `retention` ago. How many.
    ///
    /// Takes no org: one bounded statement, for the sweep.
    async fn purge_outbox(&self, retention: Duration, limit: u32) -> StoreResult<u32>;
}

/// A row as its writer constructs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOutboxRow {
    /// `UUIDv7`. The item or event made from the row has this id.
    pub id: Uuid,
    /// `<namespace>.<entity>.<action>` for an event, `work.<kind in lower case>` for a work item.
    pub kind: String,
    /// The record it is about.
    pub target_id: TargetId,
    /// Ids only.
    pub payload: JsonObject,
    /// Who acted.
    pub actor_id: UserId,
    /// The request that caused it.
    pub request_id: RequestId,
    /// The W3C header of the cause.
    pub traceparent: Option<String>,
    /// The process that wrote it.
    pub app: String,
}

/// A row as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// The tenant: the relay has no context to take it from.
    pub org_id: OrgId,
    /// By the store's clock.
    pub created_at: Timestamp,
    /// How often it was taken for relaying.
    pub attempts: u32,
    /// What its writer constructed.
    pub row: NewOutboxRow,
}

/// What the relay asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingRequest {
    /// At most so many rows.
    pub limit: u32,
    /// Leave younger rows to the writer's own relay.
    pub grace: Duration,
    /// Back-off after the first attempt.
    pub base: Duration,
    /// Longest back-off.
    pub cap: Duration,
}
