//! How a worker goes: stop claiming, stop runs, hand everything back, within its limits.

use super::*;

/// Runs 1 and 2; nothing else is claimed or under way.
fn busy() -> Bench {
    let mut bench = Bench::new();
    let both = vec![claimed(1, "PLAIN"), claimed(2, "LIMITED")];
    bench.answer(10, both);
    bench
}

#[test]
fn an_idle_worker_is_finished_at_once() {
    let mut bench = Bench::new();
    bench.answer(10, Vec::new());
    assert!(!bench.0.is_finished(at(10)));
    assert_eq!(bench.tell(20, Event::Drain), [""; 0]);
    assert!(bench.0.is_draining() && bench.0.is_finished(at(20)));
}

#[test]
fn every_run_is_asked_to_end_and_handed_back() {
    let mut bench = busy();
    let lines = bench.tell(100, Event::Drain);
    assert_eq!(lines, ["cancel 1#1: drain", "cancel 2#1: drain"]);
    assert_eq!(bench.tell(150, Event::Hint), [""; 0], "claims no more");
    let lines = bench.tell(200, ended(1, 1, failed()));
    assert_eq!(lines, ["settle 1#1 release after 0: worker stopping"]);
    let lines = bench.tell(300, ended(2, 1, done()));
    assert_eq!(lines, ["settle 2#1 done"]);
    bench.tell(400, settled(1, 1, Ended::Queued));
    assert!(!bench.0.is_finished(at(400)));
    bench.tell(500, settled(2, 1, Ended::Done));
    assert!(bench.0.is_finished(at(500)));
}

#[test]
fn runs_that_do_not_end_are_killed_and_then_given_up() {
    let mut bench = busy();
    bench.tell(100, Event::Drain);
    let expected = ["5100: kill 1#1", "5100: kill 2#1", "6100: finished"];
    assert_eq!(bench.play(60_000), expected);
    assert_eq!(bench.0.held(), 2, "left to expire");
}

#[test]
fn a_drain_does_not_wait_for_what_is_stuck() {
    let mut bench = Bench::with(|settings| settings.drain_kill = Duration::from_mins(1));
    bench.answer(10, vec![claimed(1, "PLAIN")]);
    bench.tell(100, Event::Drain);
    let expected = [
        "5100: kill 1#1",
        "7100: renew 1#1 until 7100",
        "7100: stuck 1#1",
        "7100: finished",
    ];
    assert_eq!(bench.play(60_000), expected);
}

#[test]
fn a_second_drain_kills_at_once_and_keeps_the_time_for_hand_backs() {
    let mut bench = busy();
    bench.tell(100, Event::Drain);
    let lines = bench.tell(300, Event::Drain);
    assert_eq!(lines, ["kill 1#1", "kill 2#1"]);
    let lines = bench.tell(400, Event::Ended(hold(1, 1), Ending::Killed));
    assert_eq!(lines, ["settle 1#1 release after 0: worker stopping"]);
    assert_eq!(
        bench.tell(500, Event::Drain),
        [""; 0],
        "a third adds no time"
    );
    assert_eq!(bench.play(60_000), ["1300: finished"]);
}

#[test]
fn a_drain_ends_the_time_limit_and_graver_reasons_still_count() {
    let mut bench = busy();
    bench.tell(100, Event::Drain);
    assert_eq!(bench.play(4_000), [""; 0], "the time limit was at 1210");
    let lines = bench.tell(4_100, Event::Loss(hold(2, 1), Loss::Refused));
    assert_eq!(lines, ["cancel 2#1: lease_lost", "kill 2#1"]);
}

#[test]
fn items_that_arrive_during_a_drain_are_handed_back() {
    let mut bench = Bench::new();
    assert_eq!(bench.tell(5, Event::Drain), [""; 0]);
    assert!(!bench.0.is_finished(at(5)), "a claim is under way");
    let lines = bench.answer(10, vec![claimed(1, "PLAIN")]);
    let expected = [
        "hold 1#1 from 0",
        "settle 1#1 release after 0: worker stopping",
    ];
    assert_eq!(lines, expected);
    bench.tell(20, settled(1, 1, Ended::Queued));
    assert!(bench.0.is_finished(at(20)));
}

#[test]
fn a_claim_whose_answer_was_lost_is_asked_again_to_hand_back() {
    let mut bench = Bench::new();
    bench.tell(5, Event::Drain);
    assert_eq!(bench.fail(10, unavailable()), [""; 0]);
    assert!(!bench.0.is_finished(at(10)));
    assert_eq!(bench.play(200), ["135: claim #1 up to 2"]);
    let lines = bench.answer(210, vec![claimed(1, "PLAIN")]);
    assert_eq!(lines[1], "settle 1#1 release after 0: worker stopping");
}

#[test]
fn a_lost_claim_is_given_up_with_its_window() {
    let mut bench = Bench::new();
    bench.tell(5, Event::Drain);
    bench.fail(10, unavailable());
    let mut lines = Vec::new();
    while !bench.0.is_finished(bench.0.next_look()) {
        let now = ms(bench.0.next_look());
        for line in bench.look(now) {
            lines.push(format!("{now}: {line}"));
            bench.fail(now, unavailable());
        }
        if bench.0.is_finished(at(now)) {
            lines.push(format!("{now}: finished"));
            break;
        }
    }
    let expected = [
        "135: claim #1 up to 2",
        "385: claim #1 up to 2",
        "885: claim #1 up to 2",
        "1885: claim #1 up to 2",
        "3885: claim #1 up to 2",
        "4000: finished",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_claim_that_is_never_answered_does_not_hold_up_the_end() {
    let mut bench = Bench::new();
    bench.tell(5, Event::Drain);
    assert_eq!(bench.play(60_000), ["6005: finished"]);
}

#[test]
fn runs_may_go_on_for_a_while_when_the_settings_say_so() {
    let mut bench = Bench::with(|settings| settings.drain_finish = Duration::from_secs(30));
    let both = vec![
        claimed(1, "PLAIN"),
        claimed(2, "PLAIN"),
        claimed(3, "PLAIN"),
    ];
    bench.answer(10, both);
    let lines = bench.tell(100, Event::Drain);
    let back = "settle 3#1 release after 0: worker stopping";
    assert_eq!(lines, [back], "what has not begun goes back at once");
    bench.tell(150, settled(3, 1, Ended::Queued));
    assert_eq!(bench.tell(200, ended(2, 1, done())), ["settle 2#1 done"]);
    bench.tell(300, settled(2, 1, Ended::Done));
    let expected = ["30100: cancel 1#1: drain", "35100: kill 1#1"];
    assert_eq!(bench.play(36_000), expected);
}

#[test]
fn a_second_request_ends_the_while() {
    let mut bench = Bench::with(|settings| settings.drain_finish = Duration::from_secs(30));
    bench.answer(10, vec![claimed(1, "PLAIN")]);
    assert_eq!(bench.tell(100, Event::Drain), [""; 0]);
    let lines = bench.tell(200, Event::Drain);
    assert_eq!(lines, ["cancel 1#1: drain", "kill 1#1"]);
}
