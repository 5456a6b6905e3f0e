//! An item as `--json` prints it: its own shape, so that a change of the library's does not change it.

use jiff::Timestamp;
use leasehold::core::{
    AttemptError, FailureCode, IdempotencyKey, Progress, RequestId, ShortText, WorkerId,
};
use leasehold::{ItemId, JsonObject, Kind, Lane, Status, WorkItem};
use serde::Serialize;

use super::Bodies;

/// The item of every JSON answer.
#[derive(Debug, Serialize)]
pub(crate) struct ItemDocument<'a> {
    id: ItemId,
    kind: &'a Kind,
    lane: &'a Lane,
    status: Status,
    priority: i16,
    attempts: u32,
    max_attempts: u32,
    worker_losses: u32,
    /// How often it was claimed; the fencing number of its last claim.
    fence: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
    available_at: Timestamp,
    claimed_by: Option<&'a WorkerId>,
    lease_expires_at: Option<Timestamp>,
    cancel_requested_at: Option<Timestamp>,
    progress: Option<&'a Progress>,
    last_error: Option<&'a ShortText>,
    failure_code: Option<&'a FailureCode>,
    idempotency_key: IdempotencyKey,
    payload_bytes: usize,
    result_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a [AttemptError]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a JsonObject>,
}

impl<'a> ItemDocument<'a> {
    /// What stands in a list.
    pub(crate) fn of(item: &'a WorkItem) -> Self {
        Self {
            id: item.id,
            kind: &item.kind,
            lane: &item.lane,
            status: item.status,
            priority: item.priority,
            attempts: item.attempts,
            max_attempts: item.max_attempts,
            worker_losses: item.worker_losses,
            fence: item.claim_seq,
            created_at: item.created_at,
            updated_at: item.updated_at,
            available_at: item.available_at,
            claimed_by: item.claimed_by.as_ref(),
            lease_expires_at: item.lease_expires_at,
            cancel_requested_at: item.cancel_requested_at,
            progress: item.progress.as_ref(),
            last_error: item.last_error.as_ref(),
            failure_code: item.failure_code.as_ref(),
            idempotency_key: item.idempotency_key,
            payload_bytes: item.payload.as_str().len(),
            result_bytes: item.result.as_ref().map(|result| result.as_str().len()),
            request_id: None,
            traceparent: None,
            errors: None,
            payload: None,
            result: None,
        }
    }

    /// All there is; payload and result only if asked for.
    pub(super) fn in_full(item: &'a WorkItem, bodies: Option<&'a Bodies>) -> Self {
        Self {
            request_id: (!item.request_id.is_nil()).then_some(item.request_id),
            traceparent: item.traceparent.as_deref(),
            errors: Some(&item.errors),
            payload: bodies.map(|bodies| &bodies.payload),
            result: bodies.and_then(|bodies| bodies.result.as_ref()),
            ..Self::of(item)
        }
    }
}
