//! The accounts find what went wrong.

use jiff::Timestamp;
use leasehold::{JsonObject, Kind, NewItem};
use uuid::Uuid;

use super::*;

fn id(number: u128) -> ItemId {
    ItemId::new(Uuid::from_u128(number))
}

fn name(who: Who) -> String {
    format!("worker-{}", who + 1)
}

fn row(number: u128, status: Status, worker: Option<Who>) -> WorkItem {
    let kind = Kind::parse("HASH_FILE").expect("a kind");
    let new = NewItem::new(kind, JsonObject::empty(), Timestamp::UNIX_EPOCH);
    let mut row = new.into_row(Timestamp::UNIX_EPOCH);
    row.id = id(number);
    row.status = status;
    row.result = worker.map(|who| {
        let text = format!(
            r#"{{"path":"p","bytes":1,"lines":0,"sha256":"00","worker":"{}"}}"#,
            name(who)
        );
        JsonObject::parse(&text).expect("a result")
    });
    row
}

fn ledger(items: u128, accepted: &[(u128, Who)]) -> Ledger {
    let mut ledger = Ledger::new((1..=items).map(|number| (id(number), "p".to_owned())));
    for (number, who) in accepted {
        ledger.accept(id(*number), *who);
    }
    ledger
}

fn tally(ledger: &Ledger, rows: &[WorkItem]) -> Tally {
    ledger.close(rows, name)
}

#[test]
fn one_completion_each_is_what_is_wanted() {
    let ledger = ledger(2, &[(1, 0), (2, 1)]);
    let rows = [row(1, Status::Done, Some(0)), row(2, Status::Done, Some(1))];
    let expected = Tally {
        items: 2,
        once: 2,
        ..Tally::default()
    };
    assert_eq!(tally(&ledger, &rows), expected);
    assert_eq!((ledger.accepted(), ledger.accepted_from(1)), (2, 1));
}

#[test]
fn two_completions_are_a_duplicate_whoever_was_last() {
    let rows = [row(1, Status::Done, Some(1))];
    let twice = |accepted: &[(u128, Who)]| tally(&ledger(1, accepted), &rows).twice;
    assert_eq!(twice(&[(1, 0), (1, 1)]), 1);
    assert_eq!(twice(&[(1, 1), (1, 1)]), 1);
    // Only one is on record, and its result is not the one that is stored: another came after it.
    assert_eq!(twice(&[(1, 0)]), 1);
    assert_eq!(twice(&[(1, 1)]), 0);
}

#[test]
fn a_completion_that_was_undone_is_a_duplicate_to_be() {
    for status in [Status::Queued, Status::Claimed, Status::Failed] {
        let tally = tally(&ledger(1, &[(1, 0)]), &[row(1, status, None)]);
        assert_eq!(tally.twice, 1, "{status}");
    }
    assert_eq!(tally(&ledger(1, &[(1, 0)]), &[]).twice, 1);
}

#[test]
fn what_is_not_over_is_lost_and_what_nobody_did_is_unexplained() {
    let ledger = ledger(4, &[]);
    let rows = [
        row(1, Status::Queued, None),
        row(2, Status::Failed, None),
        row(3, Status::Done, Some(0)),
    ];
    let expected = Tally {
        items: 4,
        lost: 2,
        failed: 1,
        unexplained: 1,
        ..Tally::default()
    };
    assert_eq!(tally(&ledger, &rows), expected);
}
