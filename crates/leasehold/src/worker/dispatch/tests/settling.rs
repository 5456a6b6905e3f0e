//! What an ending means for each reason to stop, and what the store's answer means.

use super::*;

#[derive(Debug, Clone, Copy)]
enum Why {
    NotStopped,
    Drain,
    Cancel,
    TimeLimit,
    Doubted,
    Refused,
}

/// What is written when item 1 ends so after it was stopped for that reason.
fn written(why: Why, ending: Ending) -> String {
    let mut bench = Bench::running("LIMITED");
    match why {
        Why::NotStopped => {}
        Why::Drain => drop(bench.tell(100, Event::Drain)),
        Why::Cancel => drop(bench.tell(100, Event::Loss(hold(1, 1), Loss::CancelRequested))),
        Why::TimeLimit => drop(bench.look(10 + TIME_LIMIT)),
        Why::Doubted => drop(bench.tell(100, Event::Loss(hold(1, 1), Loss::Doubted))),
        Why::Refused => drop(bench.tell(100, Event::Loss(hold(1, 1), Loss::Refused))),
    }
    let lines = bench.tell(1_300, Event::Ended(hold(1, 1), ending));
    let about_it: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| line.contains("1#1"))
        .collect();
    about_it.join(", ")
}

const DONE: &str = "settle 1#1 done";
const PARKED: &str = "settle 1#1 park: not yet";
const REFUSED: &str = "settle 1#1 bury: refused";
const LIMIT: &str = "settle 1#1 retry: timed_out";
const DRAIN: &str = "settle 1#1 release after 0: worker stopping";
const DOUBT: &str = "settle 1#1 release after 0: the lease could not be kept in time";
const CANCEL: &str = "settle 1#1 release after 0: cancelled";
const GONE: &str = "forget 1#1, note 1#1 lease_lost";

fn endings() -> [(&'static str, Ending); 6] {
    [
        ("done", Ending::Outcome(done())),
        ("parked", Ending::Outcome(parked())),
        ("refused", Ending::Outcome(refused())),
        ("failed", Ending::Outcome(failed())),
        ("released", Ending::Outcome(released())),
        ("killed", Ending::Killed),
    ]
}

#[test]
fn every_ending_under_every_reason_means_what_the_table_says() {
    let table = [
        (
            Why::NotStopped,
            [
                DONE,
                PARKED,
                REFUSED,
                "settle 1#1 retry: handler_error",
                "settle 1#1 release after 1000: not me",
                "settle 1#1 release after 0: the run was killed",
            ],
        ),
        (Why::Drain, [DONE, PARKED, REFUSED, DRAIN, DRAIN, DRAIN]),
        (Why::Cancel, [DONE, CANCEL, CANCEL, CANCEL, CANCEL, CANCEL]),
        (Why::TimeLimit, [DONE, LIMIT, LIMIT, LIMIT, LIMIT, LIMIT]),
        (Why::Doubted, [DONE, PARKED, REFUSED, DOUBT, DOUBT, DOUBT]),
        (Why::Refused, [GONE, GONE, GONE, GONE, GONE, GONE]),
    ];
    for (why, expected) in table {
        for ((name, ending), expected) in endings().into_iter().zip(expected) {
            assert_eq!(written(why, ending), expected, "{why:?}, {name}");
        }
    }
}

#[test]
fn the_last_attempt_is_buried_also_by_the_time_limit() {
    for (stopped, code) in [(false, "handler_error"), (true, "timed_out")] {
        let mut bench = Bench::new();
        let mut last = claimed(1, "LIMITED");
        last.item.attempts = last.item.max_attempts;
        bench.answer(10, vec![last]);
        if stopped {
            bench.look(10 + TIME_LIMIT);
        }
        let lines = bench.tell(if stopped { 1_300 } else { 20 }, ended(1, 1, failed()));
        assert_eq!(lines[0], format!("settle 1#1 bury: {code}"));
    }
}

#[test]
fn every_answer_to_a_settle_frees_the_item_and_is_told() {
    let answered = SettleAnswer::Answered;
    let cases = [
        (done(), answered(Settled::Settled(Ended::Done)), "done"),
        (done(), answered(Settled::AlreadySettled), "done"),
        (done(), answered(Settled::Conflict), "conflict"),
        (done(), SettleAnswer::GivenUp, "given_up"),
        (
            failed(),
            answered(Settled::Settled(Ended::Queued)),
            "failed",
        ),
        (failed(), answered(Settled::AlreadySettled), "failed"),
        (
            failed(),
            answered(Settled::Settled(Ended::Cancelled)),
            "cancelled",
        ),
        (
            parked(),
            answered(Settled::Settled(Ended::Queued)),
            "parked",
        ),
        (
            released(),
            answered(Settled::Settled(Ended::Queued)),
            "released",
        ),
        (refused(), answered(Settled::Conflict), "conflict"),
    ];
    for (outcome, answer, told) in cases {
        let mut bench = Bench::running("PLAIN");
        bench.tell(20, ended(1, 1, outcome));
        let lines = bench.tell(30, Event::Settled(hold(1, 1), answer));
        assert_eq!(lines, ["forget 1#1".to_owned(), format!("note 1#1 {told}")]);
        assert_eq!((bench.0.held(), bench.0.occupied()), (0, 0));
    }
}

#[test]
fn a_dead_letter_is_buried_also_when_its_acknowledgement_was_lost() {
    for answer in [Settled::Settled(Ended::DeadLetter), Settled::AlreadySettled] {
        let mut bench = Bench::running("PLAIN");
        bench.tell(20, ended(1, 1, refused()));
        let answer = SettleAnswer::Answered(answer);
        let lines = bench.tell(30, Event::Settled(hold(1, 1), answer));
        assert_eq!(lines, ["forget 1#1", "note 1#1 dead", "bury 1"]);
    }
}

#[test]
fn an_ending_is_taken_once() {
    let mut bench = Bench::running("PLAIN");
    bench.tell(20, ended(1, 1, done()));
    bench.answer(25, Vec::new());
    assert_eq!(bench.tell(30, ended(1, 1, failed())), [""; 0]);
    bench.tell(40, settled(1, 1, Ended::Done));
    assert_eq!(bench.tell(50, settled(1, 1, Ended::Done)), [""; 0]);
    assert_eq!(bench.0.occupied(), 0);
}
