//! What each transition does to a row, once its condition is met.

use jiff::Timestamp;

use super::items::Row;
use crate::ids::{ClaimToken, UserId};
use crate::item::{AttemptError, ERRORS_MAX, Status, WorkItem};
use crate::outcome::{Failure, FailureCode};
use crate::rules::{self, Requeue, Transition};
use crate::store::work::{ClaimRequest, Ended, lease_expired};
use crate::time::later;

/// Whether the token holds the item, whatever has become of its lease.
pub(super) fn is_held(item: &WorkItem, token: ClaimToken) -> bool {
    item.status == Status::Claimed && item.claim_token == Some(token)
}

/// Whether the claim's lease goes on at `now`. Its last instant no longer counts.
pub(super) fn is_live(item: &WorkItem, now: Timestamp) -> bool {
    item.lease_expires_at.is_some_and(|end| end > now)
}

pub(super) fn claim(item: &mut WorkItem, request: &ClaimRequest, now: Timestamp) {
    item.status = Status::Claimed;
    item.claimed_by = Some(request.worker.clone());
    item.claim_token = Some(request.token);
    item.claim_seq = item.claim_seq.saturating_add(1);
    item.lease_expires_at = Some(later(now, request.lease));
    item.attempts = rules::attempts_after_claim(item.attempts);
    item.progress = None;
    write(item, UserId::NIL, now);
}

/// Ends the claim as the transition says, and remembers its token.
pub(super) fn settle(row: &mut Row, transition: &Transition, now: Timestamp) -> Ended {
    row.settled_token = row.item.claim_token;
    let item = &mut row.item;
    end_claim(item);
    write(item, UserId::NIL, now);
    match transition {
        Transition::Complete { result } => {
            item.status = Status::Done;
            item.result.clone_from(result);
            Ended::Done
        }
        Transition::Retry { failure, delay } => {
            record(item, failure, now);
            if rules::is_exhausted(item.attempts, item.max_attempts) {
                fail(item, failure.code.clone());
                Ended::DeadLetter
            } else {
                queue_again(item, later(now, *delay))
            }
        }
        Transition::Bury { failure } => {
            record(item, failure, now);
            fail(item, failure.code.clone());
            Ended::DeadLetter
        }
        Transition::Park {
            reason: note,
            delay,
        }
        | Transition::Release { note, delay } => {
            item.attempts = rules::attempts_after_hand_back(item.attempts);
            item.last_error = Some(note.clone());
            queue_again(item, later(now, *delay))
        }
    }
}

/// Takes the item from a holder whose lease is over. `available_at` counts if it is queued again.
pub(super) fn requeue(item: &mut WorkItem, available_at: Timestamp, now: Timestamp) -> Ended {
    let fate = rules::requeue(
        item.attempts,
        item.max_attempts,
        item.cancel_requested_at.is_some(),
    );
    lose_worker(item, now);
    match fate {
        Requeue::Again | Requeue::Cancel => queue_again(item, available_at),
        Requeue::Bury => {
            fail(item, FailureCode::own(FailureCode::LEASE_EXPIRED));
            Ended::DeadLetter
        }
    }
}

/// As [`requeue`] for an item whose org is gone.
pub(super) fn orphan_stale(item: &mut WorkItem, now: Timestamp) {
    lose_worker(item, now);
    fail(item, FailureCode::own(FailureCode::ORPHANED));
}

/// Fails a claimed item whose org is gone, for its holder.
pub(super) fn orphan(item: &mut WorkItem, now: Timestamp) {
    end_claim(item);
    write(item, UserId::NIL, now);
    fail(item, FailureCode::own(FailureCode::ORPHANED));
}

/// Ends a queued item for an operator.
pub(super) fn cancel(item: &mut WorkItem, by: UserId, now: Timestamp) {
    item.cancel_requested_at = Some(now);
    write(item, by, now);
    fail(item, FailureCode::own(FailureCode::CANCELLED));
}

/// Puts a failed item back for an operator.
pub(super) fn retry(item: &mut WorkItem, by: UserId, now: Timestamp) {
    item.status = Status::Queued;
    item.available_at = now;
    item.attempts = 0;
    item.worker_losses = 0;
    item.last_error = None;
    item.failure_code = None;
    item.cancel_requested_at = None;
    item.audited_at = None;
    write(item, by, now);
}

/// Stamps a write.
pub(super) fn write(item: &mut WorkItem, by: UserId, now: Timestamp) {
    item.updated_by = by;
    item.updated_at = now;
}

/// Queues the item, unless a person asked for it to stop.
fn queue_again(item: &mut WorkItem, available_at: Timestamp) -> Ended {
    if item.cancel_requested_at.is_some() {
        fail(item, FailureCode::own(FailureCode::CANCELLED));
        Ended::Cancelled
    } else {
        item.status = Status::Queued;
        item.available_at = available_at;
        Ended::Queued
    }
}

fn fail(item: &mut WorkItem, code: FailureCode) {
    item.status = Status::Failed;
    item.failure_code = Some(code);
    item.audited_at = None;
}

fn lose_worker(item: &mut WorkItem, now: Timestamp) {
    record(item, &lease_expired(), now);
    item.worker_losses = item.worker_losses.saturating_add(1);
    end_claim(item);
    write(item, UserId::NIL, now);
}

fn end_claim(item: &mut WorkItem) {
    item.claimed_by = None;
    item.claim_token = None;
    item.lease_expires_at = None;
}

/// Keeps the error, and lets go of the oldest ones beyond [`ERRORS_MAX`].
fn record(item: &mut WorkItem, failure: &Failure, now: Timestamp) {
    let message = failure.to_text();
    item.last_error = Some(message.clone());
    item.errors.push(AttemptError {
        attempt: item.attempts,
        at: now,
        message,
    });
    let excess = item.errors.len().saturating_sub(ERRORS_MAX);
    item.errors.drain(..excess);
}
