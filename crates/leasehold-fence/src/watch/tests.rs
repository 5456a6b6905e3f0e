use proptest::prelude::*;

use super::*;

const OFFSET: Duration = Duration::from_secs(1_000_000);

fn at(ms: u64) -> Deadline {
    Deadline::at(Duration::from_millis(ms))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Begun at zero, with a lease until `until`, a time limit and its grace, all in milliseconds.
fn watch(until: Option<u64>, limit: Option<u64>, grace: u64) -> Watch {
    let bounds = Bounds {
        until: until.map(at),
        time_limit: limit.map(ms),
        grace: ms(grace),
    };
    Watch::begin(bounds, at(0), OFFSET)
}

fn push(watch: &mut Watch, until: u64, now: u64) {
    let act = watch.heard(Order::Until(at(until)), at(now), OFFSET);
    assert_eq!(act, Act::Wait);
}

fn terminate(watch: &mut Watch, grace: u64, now: u64) -> Act {
    let grace_ns = grace * 1_000_000;
    watch.heard(Order::Terminate { grace_ns }, at(now), OFFSET)
}

/// What a look at each instant answers, and which cause stands in the end.
fn check(mut watch: Watch, looks: &[(u64, Act)], cause: Option<Cause>) {
    for (now, act) in looks {
        assert_eq!(watch.look(at(*now), OFFSET), *act, "at {now} ms");
    }
    assert_eq!(watch.cause(), cause);
}

#[test]
fn a_lease_ends_at_its_instant() {
    let looks = [(0, Act::Wait), (99, Act::Wait), (100, Act::Kill)];
    check(watch(Some(100), None, 0), &looks, Some(Cause::LeaseLost));
}

#[test]
fn a_lease_that_is_over_at_the_start_is_lost() {
    let looks = [(0, Act::Kill)];
    check(watch(Some(0), None, 0), &looks, Some(Cause::LeaseLost));
}

#[test]
fn without_bounds_it_waits_for_ever() {
    let watch = watch(None, None, 0);
    assert_eq!(watch.next(), None);
    check(watch, &[(u64::MAX / 2_000_000, Act::Wait)], None);
}

#[test]
fn the_latest_push_counts_also_if_it_is_earlier() {
    let mut later = watch(Some(100), None, 0);
    push(&mut later, 200, 50);
    let looks = [(150, Act::Wait), (200, Act::Kill)];
    check(later, &looks, Some(Cause::LeaseLost));

    let mut earlier = watch(Some(100), None, 0);
    push(&mut earlier, 60, 50);
    let looks = [(59, Act::Wait), (60, Act::Kill)];
    check(earlier, &looks, Some(Cause::LeaseLost));
}

/// The push was sent in time and read late: the warden hears before it looks.
#[test]
fn a_push_that_is_read_late_counts() {
    let mut late = watch(Some(100), None, 0);
    push(&mut late, 300, 150);
    check(late, &[(150, Act::Wait)], None);
}

#[test]
fn a_run_without_a_lease_may_be_given_one() {
    let mut given = watch(None, None, 0);
    push(&mut given, 80, 10);
    let looks = [(79, Act::Wait), (80, Act::Kill)];
    check(given, &looks, Some(Cause::LeaseLost));
}

#[test]
fn a_time_limit_without_a_grace_kills() {
    let looks = [(99, Act::Wait), (100, Act::Kill)];
    check(watch(None, Some(100), 0), &looks, Some(Cause::TimedOut));
}

#[test]
fn a_time_limit_with_a_grace_asks_first() {
    let looks = [
        (99, Act::Wait),
        (100, Act::Terminate),
        (101, Act::Wait),
        (149, Act::Wait),
        (150, Act::Kill),
    ];
    check(watch(None, Some(100), 50), &looks, Some(Cause::TimedOut));
}

#[test]
fn a_lease_goes_ahead_of_a_grace() {
    let looks = [(100, Act::Terminate), (120, Act::Kill)];
    // Why it is ended is still that it was asked to.
    check(
        watch(Some(120), Some(100), 50),
        &looks,
        Some(Cause::TimedOut),
    );
}

#[test]
fn a_grace_is_only_shortened() {
    let mut longer = watch(None, None, 0);
    assert_eq!(terminate(&mut longer, 100, 0), Act::Terminate);
    assert_eq!(terminate(&mut longer, 500, 50), Act::Wait);
    let looks = [(99, Act::Wait), (100, Act::Kill)];
    check(longer, &looks, Some(Cause::Killed));

    let mut shorter = watch(None, None, 0);
    assert_eq!(terminate(&mut shorter, 100, 0), Act::Terminate);
    assert_eq!(terminate(&mut shorter, 10, 50), Act::Wait);
    let looks = [(59, Act::Wait), (60, Act::Kill)];
    check(shorter, &looks, Some(Cause::Killed));
}

#[test]
fn a_request_without_a_grace_kills() {
    let mut asked = watch(None, None, 0);
    assert_eq!(terminate(&mut asked, 0, 0), Act::Kill);
    assert_eq!(asked.cause(), Some(Cause::Killed));
}

#[test]
fn the_first_cause_counts() {
    let mut asked = watch(Some(100), Some(50), 20);
    assert_eq!(terminate(&mut asked, 1_000, 0), Act::Terminate);
    // Its time limit shortens the grace and changes nothing else.
    let looks = [(50, Act::Wait), (69, Act::Wait), (70, Act::Kill)];
    check(asked, &looks, Some(Cause::Killed));

    let mut lost = watch(Some(100), None, 0);
    assert_eq!(lost.look(at(100), OFFSET), Act::Kill);
    let order = Order::Kill(Cause::OutputTooLarge);
    assert_eq!(lost.heard(order, at(100), OFFSET), Act::Kill);
    assert_eq!(lost.orphaned(), Act::Kill);
    assert_eq!(lost.cause(), Some(Cause::LeaseLost));
}

#[test]
fn a_caller_that_is_gone_has_lost_its_lease() {
    let mut orphan = watch(Some(100), None, 0);
    assert_eq!(orphan.orphaned(), Act::Kill);
    assert_eq!(orphan.cause(), Some(Cause::LeaseLost));
}

#[test]
fn a_calendar_set_forward_shortens_the_lease_by_as_much() {
    let mut jumped = watch(Some(5_000), None, 0);
    let ahead = OFFSET + ms(2_000);
    assert_eq!(jumped.look(at(100), ahead), Act::Wait);
    assert_eq!(jumped.next(), Some(at(3_000)));
    // Counted once.
    assert_eq!(jumped.look(at(2_999), ahead), Act::Wait);
    assert_eq!(jumped.look(at(3_000), ahead), Act::Kill);
    assert_eq!(jumped.cause(), Some(Cause::LeaseLost));
}

#[test]
fn a_calendar_set_forward_past_the_lease_ends_it_at_once() {
    let mut jumped = watch(Some(5_000), None, 0);
    assert_eq!(jumped.look(at(100), OFFSET + ms(4_900)), Act::Kill);
}

#[test]
fn a_push_after_the_calendar_was_set_counts_in_full() {
    let mut jumped = watch(Some(5_000), None, 0);
    let ahead = OFFSET + ms(4_000);
    assert_eq!(jumped.look(at(100), ahead), Act::Wait);
    let order = Order::Until(at(6_000));
    assert_eq!(jumped.heard(order, at(200), ahead), Act::Wait);
    assert_eq!(jumped.look(at(5_999), ahead), Act::Wait);
    assert_eq!(jumped.look(at(6_000), ahead), Act::Kill);
}

#[test]
fn a_calendar_set_back_changes_nothing() {
    let mut set_back = watch(Some(5_000), None, 0);
    assert_eq!(
        set_back.look(at(100), OFFSET.saturating_sub(ms(60_000))),
        Act::Wait
    );
    assert_eq!(set_back.next(), Some(at(5_000)));
    // And forward again, to where it was.
    assert_eq!(set_back.look(at(200), OFFSET), Act::Wait);
    assert_eq!(set_back.next(), Some(at(5_000)));
}

#[test]
fn a_calendar_that_is_slewed_changes_nothing() {
    let mut slewed = watch(Some(5_000), None, 0);
    assert_eq!(slewed.look(at(4_999), OFFSET + JUMP), Act::Wait);
    assert_eq!(slewed.next(), Some(at(5_000)));
}

#[test]
fn a_calendar_that_is_set_leaves_the_time_limit() {
    let mut jumped = watch(None, Some(5_000), 0);
    assert_eq!(jumped.look(at(100), OFFSET + ms(60_000)), Act::Wait);
    assert_eq!(jumped.next(), Some(at(5_000)));
}

/// Something that happens to a watch, a while after what happened before.
#[derive(Debug, Clone, Copy)]
enum Event {
    Push(u64),
    Terminate(u64),
    Jump(u64),
    Look,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        (1..400_u64).prop_map(Event::Push),
        (0..400_u64).prop_map(Event::Terminate),
        (0..2_000_u64).prop_map(Event::Jump),
        Just(Event::Look),
    ];
    prop::collection::vec((0..200_u64, event), 1..30)
}

proptest! {
    /// Whatever happens: nothing is due before the instant that is named, and that instant is dealt with
    /// when it is there. A timer set to it sleeps through nothing, and never spins.
    #[test]
    fn what_is_next_is_neither_late_nor_early(
        until in prop::option::of(1..500_u64),
        limit in prop::option::of(1..500_u64),
        grace in 0..300_u64,
        events in events(),
    ) {
        let mut watch = watch(until, limit, grace);
        let (mut now, mut offset) = (0, OFFSET);
        for (pause, event) in events {
            if let Some(next) = watch.next() {
                let next_ms = u64::try_from(next.since_boot().as_millis()).unwrap();
                if next_ms > now {
                    let before = at(next_ms - 1);
                    prop_assert_eq!(watch.look(before, offset), Act::Wait);
                }
                if next_ms <= now + pause {
                    let late = at(next_ms.max(now));
                    if watch.look(late, offset) == Act::Kill {
                        prop_assert!(watch.cause().is_some());
                        return Ok(());
                    }
                    // A timer that is set to the next instant does not fire for this one again.
                    prop_assert_ne!(watch.next(), Some(next));
                }
            }
            now += pause;
            let act = match event {
                Event::Push(length) => watch.heard(Order::Until(at(now + length)), at(now), offset),
                Event::Terminate(grace) => {
                    let grace_ns = grace * 1_000_000;
                    watch.heard(Order::Terminate { grace_ns }, at(now), offset)
                }
                Event::Jump(length) => {
                    offset += ms(length);
                    watch.look(at(now), offset)
                }
                Event::Look => watch.look(at(now), offset),
            };
            if act == Act::Kill {
                prop_assert!(watch.cause().is_some());
                return Ok(());
            }
        }
    }

    /// The cause that was given first is never replaced.
    #[test]
    fn the_cause_stands(until in 1..500_u64, limit in 1..500_u64, events in events()) {
        let mut watch = watch(Some(until), Some(limit), 50);
        let (mut now, mut cause) = (0, None);
        for (pause, event) in events {
            now += pause;
            match event {
                Event::Push(length) => push(&mut watch, now + length, now),
                Event::Terminate(grace) => {
                    terminate(&mut watch, grace, now);
                }
                Event::Jump(_) | Event::Look => {
                    watch.look(at(now), OFFSET);
                }
            }
            if cause.is_some() {
                prop_assert_eq!(watch.cause(), cause);
            }
            cause = watch.cause();
        }
    }

    /// Asked again and again, the end never moves away.
    #[test]
    fn a_grace_never_grows(graces in prop::collection::vec((1..100_u64, 1..500_u64), 1..20)) {
        let mut watch = watch(None, None, 0);
        let (mut now, mut end) = (0, None);
        for (pause, grace) in graces {
            now += pause;
            terminate(&mut watch, grace, now);
            prop_assert!(end.is_none() || watch.next() <= end);
            end = watch.next();
        }
    }
}
