//! Items as people see them.

use std::time::Duration;

use leasehold::core::time::{earlier, later};
use leasehold::core::{IdempotencyKey, WorkerId};
use leasehold::{ItemId, JsonObject, Kind, NewItem};
use uuid::Uuid;

use super::*;
use crate::screen::{columns, table};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn item(number: u128) -> WorkItem {
    let kind = Kind::parse("SEND_INVOICE").expect("a kind");
    let payload = JsonObject::parse(r#"{"card": "4000-1234"}"#).expect("an object");
    let mut new = NewItem::new(kind, payload, earlier(NOW, Duration::from_secs(90)));
    new.id = ItemId::new(Uuid::from_u128(number));
    new.idempotency_key = IdempotencyKey::new(Uuid::from_u128(number));
    let created_at = new.created_at;
    new.into_row(created_at)
}

fn claimed(number: u128) -> WorkItem {
    let mut item = item(number);
    item.status = Status::Claimed;
    item.claimed_by = WorkerId::parse("worker-1/77/abc").ok();
    item.attempts = 1;
    item.claim_seq = 1;
    item.lease_expires_at = Some(later(NOW, Duration::from_secs(28)));
    item
}

fn failed(number: u128) -> WorkItem {
    let mut item = item(number);
    item.status = Status::Failed;
    item.attempts = 3;
    item.failure_code = Some(FailureCode::own(FailureCode::HANDLER_ERROR));
    item.last_error = Some("handler_error: no route\nto \u{1b}[31mhost".into());
    item
}

#[test]
fn a_list_for_people() {
    let mut done = item(4);
    done.status = Status::Done;
    let mut later_on = item(5);
    later_on.available_at = later(NOW, Duration::from_hours(2));
    let items = [later_on, done, failed(3), claimed(2), item(1)];
    insta::assert_snapshot!(table(HEADER, &for_people(&items, NOW)), @"
    ID                                    KIND          LANE     STATUS                  ATTEMPTS  WHEN               NOTE
    00000000-0000-0000-0000-000000000005  SEND_INVOICE  default  queued                  0/3       due in 2h
    00000000-0000-0000-0000-000000000004  SEND_INVOICE  default  done                    0/3       1m30s ago
    00000000-0000-0000-0000-000000000003  SEND_INVOICE  default  failed (handler_error)  3/3       1m30s ago          handler_error: no route to �[31mhost
    00000000-0000-0000-0000-000000000002  SEND_INVOICE  default  claimed                 1/3       lease ends in 28s  held by worker-1/77/abc
    00000000-0000-0000-0000-000000000001  SEND_INVOICE  default  queued                  0/3       due 1m30s ago
    ");
}

#[test]
fn one_item_in_full_hides_its_payload() {
    let times = Times::seen(Some(NOW));
    let shown = table(&[], &in_full(&claimed(2), &times, None));
    assert!(!shown.contains("4000"), "{shown}");
    insta::assert_snapshot!(shown, @"
    id          00000000-0000-0000-0000-000000000002
    kind        SEND_INVOICE
    lane        default
    status      claimed
    priority    0
    attempts    1 of 3
    claims      1
    created     2027-01-15T07:58:30Z  (1m30s ago)
    updated     2027-01-15T07:58:30Z  (1m30s ago)
    due         2027-01-15T07:58:30Z  (1m30s ago)
    held by     worker-1/77/abc
    lease ends  2027-01-15T08:00:28Z  (in 28s)
    key         00000000-0000-0000-0000-000000000002
    payload     21 bytes; --payload shows it
    ");
    let item = failed(3);
    let bodies = Bodies {
        payload: item.payload.clone(),
        result: item.result.clone(),
    };
    let shown = table(&[], &in_full(&item, &Times::seen(None), Some(&bodies)));
    assert!(shown.contains("4000-1234"), "{shown}");
}

#[test]
fn columns_for_pipes_do_not_move() {
    let rows = for_pipes(&[failed(3)]);
    let then = "2027-01-15T07:58:30Z";
    let expected = [
        "00000000-0000-0000-0000-000000000003",
        "SEND_INVOICE",
        "default",
        "failed",
        "3",
        "3",
        "0",
        then,
        then,
        then,
        "",
        "handler_error: no route to \u{fffd}[31mhost",
        "handler_error",
    ];
    assert_eq!(columns(&rows), expected.join("\t") + "\n");
}
