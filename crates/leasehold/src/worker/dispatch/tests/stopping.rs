//! Who is asked to end and why, who is killed, and who is stuck.

use super::*;

fn loss(loss: Loss) -> Event {
    Event::Loss(hold(1, 1), loss)
}

/// What follows from a stop of item 1 at 100 that the run does not heed.
#[track_caller]
fn unheeded(mut bench: Bench, event: Event, told: &[&str], then: &[&str]) {
    assert_eq!(bench.tell(100, event), told);
    assert_eq!(bench.play(15_000), then);
}

/// A loop that runs item 1 and whose later claims find nothing, so that only the run matters.
fn quiet(kind: &str) -> Bench {
    let mut bench = Bench::running(kind);
    bench.0.settings.poll_interval = Duration::from_hours(1);
    bench.tell(20, Event::Hint);
    bench.answer(30, Vec::new());
    bench
}

#[test]
fn a_refused_lease_kills_at_once() {
    unheeded(
        quiet("PLAIN"),
        loss(Loss::Refused),
        &["cancel 1#1: lease_lost", "kill 1#1"],
        &["2100: renew 1#1 until 2100", "2100: stuck 1#1"],
    );
}

#[test]
fn a_doubted_lease_cancels_and_kills_a_quarter_later() {
    unheeded(
        quiet("PLAIN"),
        loss(Loss::Doubted),
        &["cancel 1#1: lease_doubted"],
        &[
            "2100: kill 1#1",
            "4100: renew 1#1 until 4100",
            "4100: stuck 1#1",
        ],
    );
}

#[test]
fn a_cancelled_item_gets_its_grace() {
    unheeded(
        quiet("PLAIN"),
        loss(Loss::CancelRequested),
        &["cancel 1#1: cancel", "renew 1#1 until 4600"],
        &[
            "600: kill 1#1",
            "2600: renew 1#1 until 2600",
            "2600: stuck 1#1",
        ],
    );
}

#[test]
fn a_time_limit_cancels_then_kills_then_gives_the_slot_up() {
    let mut bench = quiet("LIMITED");
    let expected = [
        "1210: cancel 1#1: time_limit",
        "1210: renew 1#1 until 5710",
        "1710: kill 1#1",
        "3710: renew 1#1 until 3710",
        "3710: stuck 1#1",
    ];
    assert_eq!(bench.play(60_000), expected);
    assert_eq!((bench.0.occupied(), bench.0.stuck()), (1, 1));
    // It ends after all: the slot is free again, and the store decides about the result.
    let actions = bench.tell(70_000, ended(1, 1, done()));
    assert_eq!(actions, ["settle 1#1 done", "claim #3 up to 2"]);
    assert_eq!((bench.0.occupied(), bench.0.stuck()), (0, 0));
}

#[test]
fn a_run_without_a_limit_is_left_alone() {
    assert_eq!(quiet("PLAIN").play(60_000), [""; 0]);
}

#[test]
fn a_graver_reason_takes_over_and_never_prolongs_the_stop() {
    let mut bench = quiet("PLAIN");
    bench.tell(100, loss(Loss::CancelRequested));
    // Alone it would have had until 2300.
    let actions = bench.tell(300, loss(Loss::Doubted));
    assert_eq!(actions, ["cancel 1#1: lease_doubted"]);
    assert_eq!(bench.play(700), ["600: kill 1#1"]);
}

#[test]
fn a_lesser_reason_changes_nothing() {
    let mut bench = quiet("PLAIN");
    bench.tell(100, loss(Loss::Doubted));
    assert_eq!(bench.tell(200, loss(Loss::CancelRequested)), [""; 0]);
    assert_eq!(bench.tell(200, loss(Loss::Doubted)), [""; 0]);
    assert_eq!(bench.play(2_100), ["2100: kill 1#1"]);
}

#[test]
fn the_time_limit_itself_does_not_shorten_another_stop() {
    let mut bench = quiet("LIMITED");
    bench.tell(1_200, loss(Loss::Doubted));
    assert_eq!(bench.play(4_000), ["3200: kill 1#1"]);
}

#[test]
fn a_graver_reason_counts_even_after_the_kill() {
    let mut bench = quiet("PLAIN");
    bench.tell(100, loss(Loss::Doubted));
    bench.play(2_100);
    assert_eq!(bench.tell(2_200, loss(Loss::Refused)), [""; 0]);
    let actions = bench.tell(2_300, ended(1, 1, done()));
    assert_eq!(actions[..2], ["forget 1#1", "note 1#1 lease_lost"]);
}

#[test]
fn an_item_that_waits_for_its_slot_is_handed_back_or_dropped() {
    let cases = [
        (
            loss(Loss::Doubted),
            vec!["settle 1#1 release after 0: the lease could not be kept in time"],
        ),
        (
            loss(Loss::CancelRequested),
            vec!["settle 1#1 release after 0: cancelled"],
        ),
        (
            loss(Loss::Refused),
            vec!["forget 1#1", "note 1#1 lease_lost"],
        ),
        (
            Event::Drain,
            vec!["settle 1#1 release after 0: worker stopping"],
        ),
    ];
    for (event, expected) in cases {
        let mut bench = Bench::new();
        bench.answer(10, vec![poison(1), claimed(2, "PLAIN")]);
        let lines = bench.tell(20, event);
        let mine: Vec<&str> = lines
            .iter()
            .map(String::as_str)
            .filter(|line| line.contains("1#1"))
            .collect();
        assert_eq!(mine, expected);
        // It is not started later on.
        let lines = bench.tell(30, ended(2, 1, done()));
        assert!(
            !lines.iter().any(|line| line.contains("start")),
            "{lines:?}"
        );
    }
}

#[test]
fn a_loss_of_an_item_that_is_being_settled_is_left_to_the_answer() {
    for told in [Loss::Refused, Loss::Doubted, Loss::CancelRequested] {
        let mut bench = quiet("PLAIN");
        bench.tell(100, ended(1, 1, done()));
        bench.answer(110, Vec::new());
        assert_eq!(bench.tell(200, loss(told)), [""; 0]);
        assert_eq!(bench.0.held(), 1);
    }
}

#[test]
fn a_stale_hold_stops_nobody() {
    let mut bench = quiet("PLAIN");
    let stale = Event::Loss(hold(1, 99), Loss::Refused);
    assert_eq!(bench.tell(100, stale), [""; 0]);
    assert_eq!(bench.tell(100, ended(1, 99, done())), [""; 0]);
    assert_eq!(bench.0.occupied(), 1);
}

#[test]
fn an_overrun_is_a_failure_whatever_becomes_of_its_lease() {
    // The stuck run's lease is let go, so the keeper doubts it; that must not turn the overrun into a
    // hand-back, or a handler that always overruns would run for ever without an attempt spent.
    let mut bench = quiet("LIMITED");
    bench.play(3_710);
    assert_eq!(bench.0.stuck(), 1);
    bench.tell(4_000, loss(Loss::Doubted));
    let actions = bench.tell(5_000, ended(1, 1, failed()));
    assert_eq!(actions[0], "settle 1#1 retry: timed_out");
}

#[test]
fn a_time_limit_counts_from_where_the_run_began() {
    let mut bench = quiet("LIMITED");
    bench.tell(1_000, Event::Began(hold(1, 1)));
    assert_eq!(bench.play(2_199), [""; 0]);
    assert_eq!(bench.play(2_200)[0], "2200: cancel 1#1: time_limit");
}

#[test]
fn a_run_that_never_began_is_handed_back_whatever_it_was_stopped_for() {
    let unbegun = || Event::Ended(hold(1, 1), Ending::Unbegun);
    let mut bench = quiet("LIMITED");
    bench.play(1_210);
    let actions = bench.tell(1_300, unbegun());
    assert_eq!(
        actions[0],
        "settle 1#1 release after 1000: the run did not begin in time"
    );
    for (event, note) in [
        (Event::Drain, "worker stopping"),
        (loss(Loss::Doubted), "the lease could not be kept in time"),
        (loss(Loss::CancelRequested), "cancelled"),
    ] {
        let mut bench = quiet("PLAIN");
        bench.tell(100, event);
        let actions = bench.tell(200, unbegun());
        assert_eq!(actions[0], format!("settle 1#1 release after 0: {note}"));
    }
    let mut bench = quiet("PLAIN");
    bench.tell(100, loss(Loss::Refused));
    assert_eq!(bench.tell(200, unbegun())[0], "forget 1#1");
}

#[test]
fn nothing_waits_for_a_slot_once_all_are_stuck() {
    let mut bench = Bench(Dispatch::new(
        DispatchSettings {
            capacity: 1,
            prefetch: 2,
            ..settings()
        },
        Box::new(Plain(0)),
        at(0),
    ));
    assert_eq!(bench.look(0), ["claim #1 up to 3"]);
    let items = (1..=3).map(|number| claimed(number, "LIMITED")).collect();
    bench.answer(10, items);
    let actions = bench.play(3_710);
    let handed_back =
        |item| format!("3710: settle {item}#1 release after 0: every slot of the worker is stuck");
    assert!(
        actions.contains(&handed_back(2)) && actions.contains(&handed_back(3)),
        "{actions:?}"
    );
    // Nor is anything claimed for slots that do not come back.
    assert!(!bench.play(60_000).iter().any(|line| line.contains("claim")));
}

/// An outage takes the leases of all workers at once; what they hand back after it is not to be due at once.
#[test]
fn what_is_handed_back_for_want_of_its_store_is_due_spread_over_a_while() {
    let mut bench = quiet("PLAIN");
    bench.0.settings.requeue_spread = Duration::from_secs(10);
    bench.tell(100, loss(Loss::Doubted));
    let actions = bench.tell(200, Event::Ended(hold(1, 1), Ending::Killed));
    assert_eq!(
        actions[0],
        "settle 1#1 release after 5000: the lease could not be kept in time"
    );
}
