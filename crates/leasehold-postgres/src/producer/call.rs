//! A batch as calls of the function `enqueue_many`.

use jiff::Timestamp;
use leasehold_core::{Due, IdempotencyKey, JsonObject, NewItem, OrgId, StoreError};
use serde::Serialize;
use uuid::Uuid;

use crate::error::Answer;
use crate::rows::{microseconds, whole_microseconds};
use crate::store::Schema;

/// What the function takes at once.
const ROWS_MAX: usize = 1_000;

/// Payloads of one call: far below what the function takes, and a bound for the memory of both sides. One
/// item alone may have more.
const BYTES_MAX: usize = 16 << 20;

/// The first year that is written with four digits: what is older is as much in the past.
const EARLIEST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// The items were made by this program, whose [`JsonObject`] has kept the rules for JSON.
const TEXT: &str = "select id, fate
     from {schema}.enqueue_many($1::text::json, $2::uuid, $3::boolean, checked => true)
     order by place";

/// One call of the function `enqueue_many`, for a driver of the caller's own. It answers a row for each item,
/// in order: its id (`uuid`) and its fate (`text`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    text: String,
    items: String,
    org: OrgId,
    hints: bool,
}

impl Call {
    /// The statement, with three parameters.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// `$1`, a text: the items as a JSON list.
    pub fn items(&self) -> &str {
        &self.items
    }

    /// `$2`, a uuid: the org.
    pub const fn org(&self) -> Uuid {
        self.org.as_uuid()
    }

    /// `$3`, a boolean: whether the commit hints the workers.
    pub const fn hints(&self) -> bool {
        self.hints
    }
}

pub(super) fn calls(
    schema: &Schema,
    org: OrgId,
    batch: &[NewItem],
    hints: bool,
) -> Answer<Vec<Call>> {
    let mut calls = Vec::new();
    let mut rest = batch;
    while !rest.is_empty() {
        let (part, later) = rest.split_at(fitting(rest));
        let sent: Vec<Sent<'_>> = part.iter().map(Sent::from).collect();
        let items = serde_json::to_string(&sent)
            .map_err(|error| StoreError::Refused(format!("an item cannot be sent: {error}")))?;
        calls.push(Call {
            text: schema.within(TEXT),
            items,
            org,
            hints,
        });
        rest = later;
    }
    Ok(calls)
}

/// How many items go first; at least one.
fn fitting(batch: &[NewItem]) -> usize {
    let mut bytes = 0;
    let fitting = batch.iter().take(ROWS_MAX).take_while(|item| {
        bytes += item.payload.as_str().len();
        bytes <= BYTES_MAX
    });
    fitting.count().max(1)
}

/// An item as the function reads it: what differs from its defaults.
#[derive(Serialize)]
struct Sent<'a> {
    kind: &'a str,
    payload: &'a JsonObject,
    id: Uuid,
    created_at: Timestamp,
    lane: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Uuid>,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    max_attempts: u32,
    #[serde(skip_serializing_if = "Uuid::is_nil")]
    target_id: Uuid,
    #[serde(skip_serializing_if = "Uuid::is_nil")]
    created_by: Uuid,
    #[serde(skip_serializing_if = "Uuid::is_nil")]
    request_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the attribute passes a reference"
)]
const fn is_zero(number: &i16) -> bool {
    *number == 0
}

impl<'a> From<&'a NewItem> for Sent<'a> {
    fn from(item: &'a NewItem) -> Self {
        // The function's own default.
        let is_default = item.idempotency_key == IdempotencyKey::new(item.id.as_uuid());
        let (delay, due_at) = match item.due {
            Due::Now => (None, None),
            Due::After(delay) => (Some(format!("{} microseconds", microseconds(delay))), None),
            Due::At(instant) => (None, Some(writable(instant))),
        };
        Self {
            kind: item.kind.as_str(),
            payload: &item.payload,
            id: item.id.as_uuid(),
            created_at: writable(item.created_at),
            lane: item.lane.as_str(),
            key: (!is_default).then(|| item.idempotency_key.as_uuid()),
            priority: item.priority,
            delay,
            due_at,
            max_attempts: item.max_attempts,
            target_id: item.target_id.as_uuid(),
            created_by: item.created_by.as_uuid(),
            request_id: item.request_id.as_uuid(),
            traceparent: item.traceparent.as_deref(),
        }
    }
}

fn writable(at: Timestamp) -> Timestamp {
    whole_microseconds(at.max(EARLIEST))
}
