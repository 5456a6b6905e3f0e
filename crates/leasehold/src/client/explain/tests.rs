use std::time::Duration;

use jiff::ToSpan;
use leasehold_core::store::liveness::WorkerBeat;
use leasehold_core::{
    AttemptError, JsonObject, Kind, Lane, NewItem, Progress, ShortText, WorkerId,
};

use super::*;

const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn item() -> WorkItem {
    let kind = Kind::parse("SEND_INVOICE").unwrap();
    NewItem::new(kind, JsonObject::empty(), NOW).into_row(NOW)
}

fn worker(lane: &str, kind: &str) -> LiveWorker {
    LiveWorker {
        beat: WorkerBeat {
            worker: WorkerId::parse("mailer/1/abc").unwrap(),
            lanes: vec![Lane::parse(lane).unwrap()],
            kinds: vec![Kind::parse(kind).unwrap()],
            capacity: 4,
            running: 4,
            draining: false,
            started_at: NOW,
        },
        beat_at: NOW,
    }
}

fn able() -> LiveWorker {
    worker("default", "SEND_INVOICE")
}

fn check(item: WorkItem, workers: &[LiveWorker], reasons: &[&str], next: Option<&str>) {
    let said = explain(item, NOW, &[], workers);
    assert_eq!(said.reasons, reasons);
    assert_eq!(said.next.as_deref(), next);
    let is_retry = next.is_some_and(|next| next.ends_with("retry it"));
    assert_eq!(said.next_is_retry, is_retry, "{next:?}");
}

#[test]
fn a_due_item_waits_for_a_slot() {
    let mut waiting = item();
    waiting.available_at = NOW - 90.seconds();
    let said = explain(waiting, NOW, &[], &[able()]);
    assert_eq!(said.reasons, ["due for 1m30s; waits for a free slot"]);
    assert_eq!(said.next, None);
}

#[test]
fn a_delayed_item_says_until_when() {
    let mut later = item();
    later.available_at = NOW + 30.seconds();
    let said = "not before 2026-01-01T00:00:30Z (in 30s)";
    check(later, &[able()], &[said], None);
}

#[test]
fn nobody_on_the_lane() {
    check(
        item(),
        &[worker("bulk", "SEND_INVOICE")],
        &["no live worker claims from the lane default"],
        Some("start a worker for the lane default"),
    );
}

#[test]
fn a_draining_worker_is_nobody() {
    let mut draining = able();
    draining.beat.draining = true;
    check(
        item(),
        &[draining],
        &["no live worker claims from the lane default"],
        Some("start a worker for the lane default"),
    );
}

#[test]
fn a_kind_that_nobody_on_the_lane_knows() {
    check(
        item(),
        &[worker("default", "OTHER"), worker("bulk", "SEND_INVOICE")],
        &["no live worker of the lane default knows the kind SEND_INVOICE"],
        Some("deploy a worker that handles SEND_INVOICE"),
    );
}

#[test]
fn a_paused_lane_comes_first() {
    let paused = PausedLane {
        lane: Lane::default(),
        reason: ShortText::new("the bank is closed"),
        by: ShortText::new("ada"),
        since: NOW,
    };
    let said = explain(item(), NOW, &[paused], &[]);
    assert_eq!(
        said.reasons,
        [
            "the lane default is paused since 2026-01-01T00:00:00Z by ada: the bank is closed",
            "no live worker claims from the lane default"
        ]
    );
    assert_eq!(said.next.as_deref(), Some("resume the lane default"));
}

fn failed_once() -> WorkItem {
    let mut failed = item();
    let message = ShortText::new("handler_error: no luck");
    failed.attempts = 1;
    failed.last_error = Some(message.clone());
    failed.errors.push(AttemptError {
        attempt: 1,
        at: NOW,
        message,
    });
    failed
}

#[test]
fn a_retry_says_what_the_last_attempt_ended_in() {
    check(
        failed_once(),
        &[able()],
        &["attempt 1 of 3 ended: handler_error: no luck"],
        None,
    );
}

#[test]
fn a_hand_back_after_a_failure_is_no_failure() {
    let mut parked = failed_once();
    parked.last_error = Some(ShortText::new("the guard says no"));
    check(parked, &[able()], &["handed back: the guard says no"], None);
}

fn held() -> WorkItem {
    let mut held = item();
    held.status = Status::Claimed;
    held.attempts = 2;
    held.claimed_by = Some(WorkerId::parse("mailer/1/abc").unwrap());
    held.lease_expires_at = Some(NOW + 40.seconds());
    held
}

#[test]
fn a_held_item_says_who_and_for_how_long() {
    let mut held = held();
    held.progress = Some(Progress::new(40, "half of it"));
    held.cancel_requested_at = Some(NOW);
    check(
        held,
        &[],
        &[
            "held by mailer/1/abc, attempt 2 of 3",
            "the lease runs 40s more",
            "cancel requested at 2026-01-01T00:00:00Z; told at the next renewal",
            "40 %: half of it",
        ],
        None,
    );
}

#[test]
fn an_expired_claim_waits_for_a_sweep() {
    let mut held = held();
    held.lease_expires_at = Some(NOW - 5.seconds());
    check(
        held,
        &[],
        &[
            "held by mailer/1/abc, attempt 2 of 3",
            "the lease ran out 5s ago",
        ],
        Some("the next sweep of any live worker recovers it; start one if none is"),
    );
}

fn ended(code: &'static str) -> WorkItem {
    let mut ended = failed_once();
    ended.status = Status::Failed;
    ended.attempts = 3;
    ended.failure_code = Some(FailureCode::own(code));
    ended
}

#[test]
fn a_dead_letter_names_its_cause_and_the_way_out() {
    let mut dead = ended(FailureCode::HANDLER_ERROR);
    dead.worker_losses = 2;
    check(
        dead,
        &[],
        &[
            "failed for good at 2026-01-01T00:00:00Z (handler_error), after 3 of 3 attempts",
            "its worker was lost 2 times",
            "handler_error: no luck",
        ],
        Some("correct the cause, then retry it"),
    );
}

#[test]
fn a_refused_payload_is_not_just_retried() {
    check(
        ended(FailureCode::PAYLOAD_INVALID),
        &[],
        &[
            "failed for good at 2026-01-01T00:00:00Z (payload_invalid), after 3 of 3 attempts",
            "handler_error: no luck",
        ],
        Some(
            "enqueue a corrected item; or deploy a worker that accepts this payload, then retry it",
        ),
    );
}

#[test]
fn cancelled_and_orphaned_items_are_no_dead_letters() {
    let cancelled = ended(FailureCode::CANCELLED);
    let said = "cancelled at 2026-01-01T00:00:00Z";
    let next = Some("to run it after all, retry it");
    check(cancelled, &[], &[said], next);
    let said = "its org was gone at 2026-01-01T00:00:00Z, and its work with it";
    check(ended(FailureCode::ORPHANED), &[], &[said], None);
}

#[test]
fn a_done_item_is_done() {
    let mut done = item();
    done.status = Status::Done;
    check(done, &[], &["done at 2026-01-01T00:00:00Z"], None);
}

#[test]
fn there_is_always_something_to_say() {
    for status in Status::ALL {
        for wait in [0, 3_600] {
            let mut any = item();
            any.status = status;
            any.available_at = leasehold_core::time::later(NOW, Duration::from_secs(wait));
            let said = explain(any, NOW, &[], &[able()]);
            assert!(!said.reasons.is_empty(), "{status}");
        }
    }
}
