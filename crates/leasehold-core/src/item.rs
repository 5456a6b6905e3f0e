//! The work item: every field, who owns it, and what it starts as.
//!
//! ```text
//!             claim                     complete
//!  queued ───────────────▶ claimed ───────────────▶ done
//!    ▲                        │
//!    │  retry · park ·        │  no attempt left · refused · orphaned · cancelled
//!    └──release · requeue─────┴───────────────────▶ failed
//! ```
//!
//! Only the transitions of [`crate::rules`] move an item, each in one conditional write.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{ClaimToken, IdempotencyKey, ItemId, RequestId, TargetId, UserId};
use crate::json::JsonObject;
use crate::names::{Kind, Lane, WorkerId};
use crate::outcome::FailureCode;
use crate::text::ShortText;

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waits to be claimed, now or later.
    Queued,
    /// Held by one worker, under a lease.
    Claimed,
    /// Finished.
    Done,
    /// Ended otherwise; [`WorkItem::failure_code`] says how.
    Failed,
}

impl Status {
    /// Every status, in the order of an item's life.
    pub const ALL: [Self; 4] = [Self::Queued, Self::Claimed, Self::Done, Self::Failed];

    /// The word that stands in tables, on the command line and in the dashboard.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// The status of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing moves the item any more but an operator's retry.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One failed attempt, kept for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// Which attempt, from 1.
    pub attempt: u32,
    /// When the store learned of it, by the store's clock.
    pub at: Timestamp,
    /// What went wrong: code and message.
    pub message: ShortText,
}

/// How many [`AttemptError`]s a row keeps, newest last: enough for a person, a bound for the row.
pub const ERRORS_MAX: usize = 20;

/// How far a run has come, as its handler reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// What is being done, for people.
    pub note: ShortText,
}

impl Progress {
    /// A percentage above 100 counts as 100.
    pub fn new(percent: u8, note: impl Into<ShortText>) -> Self {
        Self {
            percent: percent.min(100),
            note: note.into(),
        }
    }
}

/// One unit of durable work, as its store holds it.
///
/// The org is not a field: it is the store's column, and a claim returns it beside the item, so that
/// nothing a handler is given can be turned into another tenant's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkItem {
    /// Minted above storage.
    pub id: ItemId,
    /// As the producer constructed it.
    pub created_at: Timestamp,
    /// The last write, by the store's clock.
    pub updated_at: Timestamp,
    /// Who asked.
    pub created_by: UserId,
    /// Nil on every write after the enqueue but an operator's.
    pub updated_by: UserId,
    /// What to do.
    pub kind: Kind,
    /// The record that the work advances.
    pub target_id: TargetId,
    /// Unique within the org from enqueue until purge.
    pub idempotency_key: IdempotencyKey,
    /// The request that caused the item.
    pub request_id: RequestId,
    /// The W3C header of the cause. A run is linked to it and never its child.
    pub traceparent: Option<String>,
    /// What the handler is given.
    pub payload: JsonObject,
    /// Where it is routed.
    pub lane: Lane,
    /// Lower goes first.
    pub priority: i16,
    /// Where it stands.
    pub status: Status,
    /// Not claimed before this, by the store's clock.
    pub available_at: Timestamp,
    /// For people; never a fence.
    pub claimed_by: Option<WorkerId>,
    /// The fence.
    #[serde(skip)]
    pub claim_token: Option<ClaimToken>,
    /// Rises at every claim, never falls: the fencing number for guarding other stores.
    pub claim_seq: i64,
    /// When the claim ends unless renewed, by the store's clock.
    pub lease_expires_at: Option<Timestamp>,
    /// Claims that were not handed back. Rises at the claim and nowhere else.
    pub attempts: u32,
    /// Claims it may have before it is a dead letter.
    pub max_attempts: u32,
    /// Attempts that ended with the loss of their worker.
    pub worker_losses: u32,
    /// The last error, or the note of the last hand-back.
    pub last_error: Option<ShortText>,
    /// Why it is `failed`.
    pub failure_code: Option<FailureCode>,
    /// Failed attempts, newest last, at most [`ERRORS_MAX`].
    pub errors: Vec<AttemptError>,
    /// What the handler returned.
    pub result: Option<JsonObject>,
    /// How far the current or last run came.
    pub progress: Option<Progress>,
    /// When a person asked for it to stop.
    pub cancel_requested_at: Option<Timestamp>,
    /// When its audit entry was known to be written; `None` on a dead letter means it is owed.
    pub audited_at: Option<Timestamp>,
}

impl WorkItem {
    /// Whether it failed for good, which is never silent: neither cancelled nor orphaned.
    pub fn is_dead_letter(&self) -> bool {
        self.status == Status::Failed
            && self
                .failure_code
                .as_ref()
                .is_some_and(FailureCode::makes_dead_letter)
    }
}

/// When an item becomes claimable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// At the store's now.
    #[default]
    Now,
    /// That long after the store's now.
    After(Duration),
    /// At that instant of the store's clock.
    At(Timestamp),
}

/// An item as its producer constructs it. The store adds what it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewItem {
    /// The row's id; enqueueing it again finds the row.
    pub id: ItemId,
    /// Kept as constructed.
    pub created_at: Timestamp,
    /// Who asked.
    pub created_by: UserId,
    /// What to do.
    pub kind: Kind,
    /// The record that the work advances; nil when there is none.
    pub target_id: TargetId,
    /// Deduplicates within the org.
    pub idempotency_key: IdempotencyKey,
    /// The request that caused it.
    pub request_id: RequestId,
    /// The W3C header of the cause.
    pub traceparent: Option<String>,
    /// What the handler is given.
    pub payload: JsonObject,
    /// Where it is routed.
    pub lane: Lane,
    /// Lower goes first.
    pub priority: i16,
    /// When it becomes claimable.
    pub due: Due,
    /// Claims it may have; at least 1.
    pub max_attempts: u32,
}

impl NewItem {
    /// Claims an item may have unless its producer or its kind says otherwise.
    pub const MAX_ATTEMPTS: u32 = 3;

    /// An item that is due at once, on the default lane, with a fresh id and key.
    pub fn new(kind: Kind, payload: JsonObject, created_at: Timestamp) -> Self {
        let id = ItemId::mint();
        Self {
            id,
            created_at,
            created_by: UserId::NIL,
            kind,
            target_id: TargetId::NIL,
            idempotency_key: IdempotencyKey::new(id.as_uuid()),
            request_id: RequestId::NIL,
            traceparent: None,
            payload,
            lane: Lane::default(),
            priority: 0,
            due: Due::Now,
            max_attempts: Self::MAX_ATTEMPTS,
        }
    }

    /// The row that a store writes for it at its own `now`.
    pub fn into_row(self, now: Timestamp) -> WorkItem {
        WorkItem {
            id: self.id,
            created_at: self.created_at,
            updated_at: now,
            created_by: self.created_by,
            updated_by: self.created_by,
            kind: self.kind,
            target_id: self.target_id,
            idempotency_key: self.idempotency_key,
            request_id: self.request_id,
            traceparent: self.traceparent,
            payload: self.payload,
            lane: self.lane,
            priority: self.priority,
            status: Status::Queued,
            available_at: match self.due {
                Due::Now => now,
                Due::After(delay) => crate::time::later(now, delay),
                Due::At(instant) => instant.min(crate::time::CALENDAR_END),
            },
            claimed_by: None,
            claim_token: None,
            claim_seq: 0,
            lease_expires_at: None,
            attempts: 0,
            max_attempts: self.max_attempts.max(1),
            worker_losses: 0,
            last_error: None,
            failure_code: None,
            errors: Vec::new(),
            result: None,
            progress: None,
            cancel_requested_at: None,
            audited_at: None,
        }
    }
}
