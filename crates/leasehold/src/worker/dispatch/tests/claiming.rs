//! When the loop asks for work, for how much, and what it makes of the answer.

use super::*;

fn none() -> Vec<Claimed> {
    Vec::new()
}

fn items(numbers: &[u128]) -> Vec<Claimed> {
    let claimed = numbers.iter().map(|number| claimed(*number, "PLAIN"));
    claimed.collect()
}

#[test]
fn the_first_claim_is_for_all_slots_and_says_for_whom() {
    let mut dispatch = Dispatch::new(settings(), Box::new(Plain(0)), at(0));
    let mut out = Vec::new();
    dispatch.advance(at(0), &mut out);
    let [Action::Claim(request)] = &out[..] else {
        panic!("{out:?}");
    };
    let kinds: Vec<&str> = request.kinds.iter().map(Kind::as_str).collect();
    assert_eq!(kinds, ["LIMITED", "PLAIN"]);
    assert_eq!(request.limit, 2);
    assert_eq!(request.lease, Duration::from_millis(LEASE));
    assert_eq!(request.lanes, [Lane::default()]);
}

#[test]
fn a_full_answer_starts_them_and_claims_again_when_there_is_room() {
    let mut bench = Bench::new();
    let actions = bench.answer(10, items(&[1, 2]));
    assert_eq!(actions, ["hold 1#1 2#1 from 0", "start 1", "start 2"]);
    // Full: nothing to wait for but the endings.
    assert_eq!(bench.play(100_000), [""; 0]);
    let actions = bench.tell(200, ended(1, 1, done()));
    assert_eq!(actions, ["settle 1#1 done", "claim #2 up to 1"]);
}

#[test]
fn a_full_answer_with_prefetch_claims_the_rest_at_once() {
    let mut bench = Bench::new();
    bench.0.settings.prefetch = 2;
    let actions = bench.answer(10, items(&[1, 2]));
    let expected = [
        "hold 1#1 2#1 from 0",
        "start 1",
        "start 2",
        "claim #2 up to 2",
    ];
    assert_eq!(actions, expected);
    let actions = bench.answer(20, items(&[3]));
    assert_eq!(actions, ["hold 3#2 from 10"], "it waits for a slot");
    let actions = bench.tell(30, ended(2, 1, done()));
    let expected = ["settle 2#1 done", "start 3", "claim #3 up to 2"];
    assert_eq!(actions, expected);
}

#[test]
fn a_short_answer_waits_for_the_poll() {
    let mut bench = Bench::new();
    assert_eq!(bench.answer(10, none()), [""; 0]);
    assert_eq!(bench.play(POLL), ["3000: claim #2 up to 2"]);
}

#[test]
fn a_hint_ends_the_wait() {
    let mut bench = Bench::new();
    bench.answer(10, none());
    assert_eq!(bench.tell(20, Event::Hint), ["claim #2 up to 2"]);
}

#[test]
fn a_hint_during_a_claim_is_not_lost() {
    let mut bench = Bench::new();
    assert_eq!(bench.tell(5, Event::Hint), [""; 0], "one at a time");
    assert_eq!(bench.answer(10, none()), ["claim #2 up to 2"]);
    assert_eq!(bench.answer(20, none()), [""; 0], "and it counts once");
}

#[test]
fn a_freed_slot_looks_for_work() {
    let mut bench = Bench::running("PLAIN");
    let actions = bench.tell(20, ended(1, 1, done()));
    assert_eq!(actions, ["settle 1#1 done", "claim #2 up to 2"]);
}

#[test]
fn room_in_a_capped_lane_is_looked_for_once_the_settle_is_answered() {
    let mut bench = Bench::with(|settings| settings.tenant_cap = Some(1));
    bench.answer(10, items(&[1]));
    bench.tell(20, ended(1, 1, done()));
    assert_eq!(
        bench.answer(30, none()),
        [""; 0],
        "its own claim still counted"
    );
    let actions = bench.tell(40, settled(1, 1, Ended::Done));
    let expected = ["forget 1#1", "note 1#1 done", "claim #3 up to 2"];
    assert_eq!(actions, expected);
}

#[test]
fn a_claim_under_way_for_long_is_waited_for_without_looking_around() {
    let bench = Bench::new();
    assert!(bench.0.next_look() > at(1_000_000));
}

#[test]
fn a_lost_answer_is_asked_for_with_the_same_token_until_half_a_lease() {
    let mut bench = Bench::new();
    let mut asked = Vec::new();
    assert_eq!(bench.fail(1, unavailable()), [""; 0]);
    while asked.len() < 7 {
        let now = ms(bench.0.next_look());
        for line in bench.look(now) {
            asked.push(format!("{now}: {line}"));
            bench.fail(now, unavailable());
        }
    }
    let expected = [
        "126: claim #1 up to 2",
        "376: claim #1 up to 2",
        "876: claim #1 up to 2",
        "1876: claim #1 up to 2",
        "3876: claim #1 up to 2",
        // The window ended at 4000, and no pause is longer than the poll interval.
        "6126: claim #2 up to 2",
        "8376: claim #2 up to 2",
    ];
    assert_eq!(asked, expected);
}

#[test]
fn a_claim_that_is_answered_again_backs_off_from_the_beginning() {
    let mut bench = Bench::new();
    bench.fail(1, unavailable());
    assert_eq!(bench.play(126), ["126: claim #1 up to 2"]);
    assert_eq!(
        bench.answer(130, items(&[1])),
        ["hold 1#1 from 0", "start 1"]
    );
    assert_eq!(bench.tell(140, Event::Hint), ["claim #2 up to 1"]);
    bench.fail(150, unavailable());
    assert_eq!(ms(bench.0.next_look()), 275);
}

#[test]
fn hints_do_not_cut_the_back_off_short() {
    let mut bench = Bench::new();
    bench.fail(1, unavailable());
    assert_eq!(bench.tell(50, Event::Hint), [""; 0]);
    assert_eq!(ms(bench.0.next_look()), 126);
}

#[test]
fn a_refused_claim_is_not_repeated_under_its_token() {
    let mut bench = Bench::new();
    let error = StoreError::Schema("migrate first".to_owned());
    bench.fail(1, error);
    assert_eq!(bench.play(126), ["126: claim #2 up to 2"]);
}

#[test]
fn a_repeated_claim_asks_for_no_more_than_the_first_did() {
    let mut bench = Bench::new();
    bench.answer(10, items(&[1, 2]));
    assert_eq!(
        bench.tell(20, ended(1, 1, done())),
        ["settle 1#1 done", "claim #2 up to 1"]
    );
    bench.fail(30, unavailable());
    assert_eq!(bench.tell(40, ended(2, 1, done())), ["settle 2#1 done"]);
    assert_eq!(bench.play(200), ["155: claim #2 up to 1"]);
}

#[test]
fn trust_counts_from_the_first_sending_of_a_repeated_claim() {
    let mut bench = Bench::new();
    bench.fail(1, unavailable());
    bench.look(126);
    let actions = bench.answer(2_000, items(&[1]));
    assert_eq!(actions, ["hold 1#1 from 0", "start 1"]);
}

#[test]
fn items_of_a_claim_answered_too_late_are_handed_back() {
    let mut bench = Bench::new();
    let actions = bench.answer(4_000, items(&[1, 2]));
    let expected = [
        "hold 1#1 2#1 from 0",
        "settle 1#1 release after 0: the lease could not be kept in time",
        "settle 2#1 release after 0: the lease could not be kept in time",
        "claim #2 up to 2",
    ];
    assert_eq!(actions, expected);
}

#[test]
fn an_unknown_kind_is_released_and_not_at_once_claimable() {
    let mut bench = Bench::new();
    let answer = vec![claimed(1, "FOREIGN"), claimed(2, "PLAIN")];
    let actions = bench.answer(10, answer);
    let expected = [
        "hold 1#1 2#1 from 0",
        "settle 1#1 release after 1000: this worker does not know the kind",
        "start 2",
        "claim #2 up to 1",
    ];
    assert_eq!(actions, expected);
}

#[test]
fn after_a_clock_jump_nothing_is_claimed_for_two_seconds() {
    let mut bench = Bench::new();
    bench.answer(10, none());
    assert_eq!(bench.tell(1_000, Event::ClockJumped), [""; 0]);
    assert_eq!(bench.tell(1_500, Event::Hint), [""; 0]);
    assert_eq!(bench.play(3_000), ["3000: claim #2 up to 2"]);
}

#[test]
fn a_store_that_cannot_settle_gets_no_new_claims() {
    let mut bench = Bench::new();
    bench.answer(10, items(&[1, 2]));
    bench.tell(20, ended(1, 1, done()));
    let actions = bench.answer(30, items(&[3]));
    assert_eq!(actions, ["hold 3#2 from 20", "start 3"]);
    let actions = bench.tell(40, ended(2, 1, done()));
    assert_eq!(actions, ["settle 2#1 done", "claim #3 up to 1"]);
    bench.answer(50, items(&[4]));
    // Four are held, of which two run: as many wait to be settled as there are slots.
    assert_eq!(bench.tell(60, ended(3, 2, done())), ["settle 3#2 done"]);
    assert_eq!(bench.tell(70, Event::Hint), [""; 0]);
    assert_eq!(bench.play(100_000), [""; 0]);
    let actions = bench.tell(80, settled(1, 1, Ended::Done));
    let expected = ["forget 1#1", "note 1#1 done", "claim #4 up to 1"];
    assert_eq!(actions, expected);
}

#[test]
fn a_poison_item_waits_for_the_others_and_runs_alone() {
    let mut bench = Bench::new();
    let answer = vec![poison(1), claimed(2, "PLAIN")];
    let actions = bench.answer(10, answer);
    assert_eq!(actions, ["hold 1#1 2#1 from 0", "start 2"]);
    assert_eq!(bench.tell(20, Event::Hint), [""; 0], "nothing is claimed");
    assert_eq!(bench.play(100_000), [""; 0]);
    let actions = bench.tell(30, ended(2, 1, done()));
    assert_eq!(
        actions,
        ["settle 2#1 done"],
        "its settle is not lost either"
    );
    let actions = bench.tell(35, settled(2, 1, Ended::Done));
    assert_eq!(actions, ["forget 2#1", "note 2#1 done", "start 1"]);
    assert_eq!(bench.tell(40, Event::Hint), [""; 0]);
    let actions = bench.tell(50, ended(1, 1, done()));
    assert_eq!(actions, ["settle 1#1 done", "claim #2 up to 2"]);
}

#[test]
fn of_two_poison_items_one_is_handed_back_before_the_other_starts() {
    let mut bench = Bench::new();
    let actions = bench.answer(10, vec![poison(1), poison(2)]);
    let note = "this worker holds another last attempt, which runs alone";
    let handed_back = format!("settle 2#1 release after 1000: {note}");
    assert_eq!(actions, ["hold 1#1 2#1 from 0", handed_back.as_str()]);
    let actions = bench.tell(20, settled(2, 1, Ended::Queued));
    assert_eq!(actions, ["forget 2#1", "note 2#1 released", "start 1"]);
    assert_eq!(bench.tell(30, Event::Hint), [""; 0], "nothing is claimed");
}

#[test]
fn a_poison_item_does_not_wait_for_a_run_that_never_ends() {
    let mut bench = Bench::running("PLAIN");
    bench.tell(20, Event::Loss(hold(1, 1), Loss::Refused));
    assert_eq!(bench.tell(30, Event::Hint), ["claim #2 up to 1"]);
    let actions = bench.answer(40, vec![poison(2)]);
    assert_eq!(actions, ["hold 2#2 from 30"]);
    let expected = [
        "2020: renew 1#1 until 2020",
        "2020: stuck 1#1",
        "2020: start 2",
    ];
    assert_eq!(bench.play(2_500), expected);
}

#[test]
fn an_item_that_this_worker_still_runs_is_handed_back_and_the_old_run_stopped() {
    let mut bench = Bench::running("PLAIN");
    // Frozen for long, the loop claims before anyone tells it of a loss.
    assert_eq!(bench.tell(50_000, Event::Hint), ["claim #2 up to 1"]);
    let actions = bench.answer(50_010, items(&[1]));
    let expected = [
        "hold 1#2 from 50000",
        "cancel 1#1: lease_lost",
        "kill 1#1",
        "settle 1#2 release after 1000: this worker still runs an earlier attempt of the item",
        "claim #3 up to 1",
    ];
    assert_eq!(actions, expected);
    // Each hold goes its own way.
    let actions = bench.tell(50_020, settled(1, 2, Ended::Queued));
    assert_eq!(actions, ["forget 1#2", "note 1#2 released"]);
    let actions = bench.tell(50_030, Event::Ended(hold(1, 1), Ending::Killed));
    assert_eq!(actions, ["forget 1#1", "note 1#1 lease_lost"]);
    assert_eq!((bench.0.held(), bench.0.occupied()), (0, 0));
}

#[test]
fn an_item_whose_earlier_run_is_stuck_here_is_run_again() {
    let mut bench = Bench::running("PLAIN");
    bench.tell(20, Event::Loss(hold(1, 1), Loss::Refused));
    assert_eq!(bench.play(2_500).last().unwrap(), "2020: stuck 1#1");
    assert_eq!(bench.tell(50_000, Event::Hint), ["claim #2 up to 1"]);
    let actions = bench.answer(50_010, items(&[1]));
    assert_eq!(actions, ["hold 1#2 from 50000", "start 1"]);
    let actions = bench.tell(50_020, ended(1, 1, done()));
    assert_eq!(actions[..2], ["forget 1#1", "note 1#1 lease_lost"]);
    let actions = bench.tell(50_030, ended(1, 2, done()));
    assert_eq!(actions[0], "settle 1#2 done");
}

#[test]
fn an_older_hold_that_only_waits_makes_room_for_the_newer() {
    let mut bench = Bench::new();
    bench.0.settings.prefetch = 1;
    bench.answer(10, items(&[1, 2]));
    bench.answer(20, items(&[3]));
    bench.0.settings.prefetch = 2;
    assert_eq!(bench.tell(50_000, Event::Hint), ["claim #3 up to 1"]);
    let actions = bench.answer(50_010, items(&[3]));
    let expected = [
        "hold 3#3 from 50000",
        "forget 3#2",
        "note 3#2 lease_lost",
        "claim #4 up to 1",
    ];
    assert_eq!(actions, expected);
    let actions = bench.tell(50_020, ended(1, 1, done()));
    assert_eq!(actions[..2], ["settle 1#1 done", "start 3"]);
}

#[test]
fn an_older_hold_that_is_being_settled_is_left_to_its_answer() {
    let mut bench = Bench::running("PLAIN");
    bench.tell(20, ended(1, 1, failed()));
    let actions = bench.answer(30, items(&[1]));
    assert_eq!(actions, ["hold 1#2 from 20", "start 1"]);
    let actions = bench.tell(40, settled(1, 1, Ended::Queued));
    assert_eq!(actions, ["forget 1#1", "note 1#1 failed"]);
    assert_eq!(bench.0.occupied(), 1);
}

/// A loop of four slots whose claims are for two, and whose first one has brought items 1 and 2.
fn two_at_once() -> Bench {
    let mut bench = Bench::with(|settings| (settings.capacity, settings.claim_max) = (4, 2));
    let actions = bench.answer(10, items(&[1, 2]));
    let expected = [
        "hold 1#1 2#1 from 0",
        "start 1",
        "start 2",
        "claim #2 up to 2",
    ];
    assert_eq!(actions, expected);
    bench
}

#[test]
fn a_second_claim_goes_out_beside_another_once_there_is_room_for_a_whole_one() {
    let mut bench = two_at_once();
    let actions = bench.tell(20, ended(1, 1, done()));
    assert_eq!(actions, ["settle 1#1 done"], "not for one item");
    let actions = bench.tell(30, ended(2, 1, done()));
    assert_eq!(actions, ["settle 2#1 done", "claim #3 up to 2"]);
    assert_eq!(bench.tell(40, Event::Hint), [""; 0], "and no third");
    let actions = bench.answer(50, items(&[3, 4]));
    assert_eq!(actions, ["hold 3#2 4#2 from 10", "start 3", "start 4"]);
    let actions = bench.answer(60, items(&[5]));
    let expected = ["hold 5#3 from 30", "start 5", "claim #4 up to 1"];
    assert_eq!(actions, expected, "the hint is not lost");
}

#[test]
fn no_second_claim_goes_out_where_the_last_one_was_not_filled() {
    let mut bench = Bench::with(|settings| (settings.capacity, settings.claim_max) = (4, 2));
    bench.answer(10, items(&[1]));
    assert_eq!(bench.tell(20, Event::Hint), ["claim #2 up to 2"]);
    assert_eq!(bench.tell(30, ended(1, 1, done())), ["settle 1#1 done"]);
}

#[test]
fn of_two_claims_each_lost_answer_is_asked_for_under_its_own_token() {
    let mut bench = two_at_once();
    bench.tell(20, ended(1, 1, done()));
    bench.tell(20, ended(2, 1, done()));
    let [second, third] = bench.under_way()[..] else {
        panic!("two are under way");
    };
    assert_eq!(bench.fail_of(third, 30, unavailable()), [""; 0]);
    let actions = bench.answer_of(second, 40, items(&[3, 4]));
    assert_eq!(actions, ["hold 3#2 4#2 from 10", "start 3", "start 4"]);
    assert_eq!(bench.play(200), ["155: claim #3 up to 2"]);
    let actions = bench.answer_of(third, 210, items(&[5]));
    assert_eq!(actions, ["hold 5#3 from 20", "start 5"]);
}

#[test]
fn a_poison_item_waits_for_the_claim_beside_it() {
    let mut bench = two_at_once();
    bench.tell(20, ended(1, 1, done()));
    bench.tell(20, ended(2, 1, done()));
    bench.tell(25, settled(1, 1, Ended::Done));
    bench.tell(25, settled(2, 1, Ended::Done));
    let actions = bench.answer(30, vec![poison(3)]);
    assert_eq!(actions, ["hold 3#2 from 10"]);
    let actions = bench.answer(40, items(&[4]));
    assert_eq!(actions, ["hold 4#3 from 20", "start 4"]);
    bench.tell(50, ended(4, 3, done()));
    let actions = bench.tell(60, settled(4, 3, Ended::Done));
    assert_eq!(actions, ["forget 4#3", "note 4#3 done", "start 3"]);
}

/// Item 1, as it was claimed for the `claim_seq`th time.
fn seen(claim_seq: i64) -> Vec<Claimed> {
    let mut claimed = claimed(1, "PLAIN");
    claimed.item.claim_seq = claim_seq;
    vec![claimed]
}

#[test]
fn of_two_claims_of_one_item_the_later_one_counts_in_whatever_order_they_are_answered() {
    let mut bench = two_at_once();
    bench.tell(20, ended(1, 1, done()));
    bench.tell(20, ended(2, 1, done()));
    bench.tell(25, settled(1, 1, Ended::Done));
    let [second, third] = bench.under_way()[..] else {
        panic!("two are under way");
    };
    assert_eq!(
        bench.answer_of(third, 30, seen(3)),
        ["hold 1#3 from 20", "start 1"]
    );
    let actions = bench.answer_of(second, 40, seen(2));
    let expected = ["hold 1#2 from 10", "forget 1#2", "note 1#2 lease_lost"];
    assert_eq!(actions[..3], expected);
    assert_eq!(bench.0.occupied(), 1, "the later one runs on");
}
