use std::time::Duration;

use leasehold::Status;
use serde_json::json;

use super::super::act::{Act, Blow};
use super::super::tree::Grown;
use super::Account;
use crate::screen::columns;

fn act(blow: Blow) -> Act {
    Act {
        blow,
        processes: vec![
            Grown::gone("command", Some(Duration::from_millis(3))),
            Grown::gone("child", Some(Duration::from_millis(5))),
        ],
        lease_left: Some(Duration::from_millis(1_400)),
        second_run_after: Duration::from_millis(2_100),
        silent_before: Some(Duration::from_secs(2)),
        marks: 40,
        late_marks: 0,
        status: Status::Done,
        attempts: 2,
        fence: 2,
    }
}

fn with(change: impl Fn(&mut Act)) -> Account {
    let mut frozen = act(Blow::Freeze);
    change(&mut frozen);
    Account::new(vec![act(Blow::Kill), frozen])
}

#[test]
fn all_that_was_promised_is_needed() {
    assert!(with(|_| ()).is_kept());
    let breaches: [&dyn Fn(&mut Act); 9] = [
        &|act| act.processes[0].gone_after = None,
        &|act| act.lease_left = None,
        &|act| act.silent_before = None,
        &|act| act.late_marks = 1,
        &|act| act.marks = 0,
        &|act| act.status = Status::Failed,
        &|act| act.attempts = 1,
        &|act| act.attempts = 3,
        &|act| act.fence = 3,
    ];
    for (number, breach) in breaches.into_iter().enumerate() {
        assert!(!with(breach).is_kept(), "breach {number}");
    }
}

#[test]
fn it_is_shown_side_by_side_and_as_an_object() {
    let account = with(|act| act.lease_left = None);
    insta::assert_snapshot!(columns(&account.rows()), @r"
    processes	2	2
    all gone after	5 ms	5 ms
    lease left then	1400 ms	none
    second run after	2100 ms	2100 ms
    silence before it	2000 ms	2000 ms
    marks of the first run	40	40
    of them during the second	0	0
    the item	done, attempt 2, fence 2	done, attempt 2, fence 2
    ");
    let object = serde_json::to_value(&account).unwrap();
    assert_eq!(object["kept"], false);
    let frozen = &object["acts"][1];
    assert_eq!(
        frozen,
        &json!({
            "blow": "frozen", "kept": false,
            "processes": [
                {"name": "command", "pid": 12, "parent": 11, "group": 12, "session": 10, "gone_after_ms": 3},
                {"name": "child", "pid": 12, "parent": 11, "group": 12, "session": 10, "gone_after_ms": 5},
            ],
            "gone_after_ms": 5, "lease_left_ms": null, "second_run_after_ms": 2100,
            "silent_before_ms": 2000, "marks": 40, "late_marks": 0,
            "status": "done", "attempts": 2, "fence": 2,
        })
    );
}
