use leasehold_core::OrgId;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

/// Divides by eight, so that every moment of the schedule is a whole number.
const LEASE: u64 = 8_000;

/// All times are milliseconds after this moment.
const START: BootTime = BootTime::new(Duration::from_secs(100));

fn at(ms: u64) -> BootTime {
    START + Duration::from_millis(ms)
}

fn ms(instant: BootTime) -> u64 {
    u64::try_from(instant.since(START).as_millis()).unwrap()
}

fn hold(item: u128, token: u128) -> Hold {
    Hold {
        org_id: OrgId::SINGLE,
        item_id: ItemId::new(Uuid::from_u128(item)),
        token: ClaimToken::new(Uuid::from_u128(token)),
    }
}

fn number(hold: &Hold) -> u128 {
    hold.item_id.as_uuid().as_u128()
}

/// One lease, claimed by a request sent at 0.
fn one() -> (Leases, Hold) {
    let mut leases = Leases::default();
    leases.insert(hold(1, 7), Duration::from_millis(LEASE), at(0));
    (leases, hold(1, 7))
}

/// Steps from look to look, sends what is due and answers it as told, and notes when it was sent and
/// when a run was told to stop.
fn timeline(
    leases: &mut Leases,
    until: u64,
    mut answer: impl FnMut(u64) -> Option<Renewed>,
) -> (Vec<u64>, Vec<(u64, Loss)>) {
    let (mut sent, mut stops) = (Vec::new(), Vec::new());
    while let Some(now) = leases.next_look().filter(|now| *now <= at(until)) {
        let mut told = leases.doubted(now);
        let batch = leases.due(now);
        if !batch.is_empty() {
            sent.push(ms(now));
            match answer(ms(now)) {
                Some(renewed) => {
                    let answers = batch.into_iter().map(|renewal| (renewal.hold, renewed));
                    told.extend(leases.answered(now, answers));
                }
                None => leases.unanswered(batch),
            }
        }
        stops.extend(told.into_iter().map(|(_, loss)| (ms(now), loss)));
        assert!(
            leases.next_look().is_none_or(|next| next > now),
            "a look that changes nothing repeats at {now:?}"
        );
    }
    (sent, stops)
}

#[test]
fn a_lease_is_renewed_at_every_quarter() {
    let (mut leases, _) = one();
    let (sent, stops) = timeline(&mut leases, 10_000, |_| Some(Renewed::Kept));
    assert_eq!(sent, [2_000, 4_000, 6_000, 8_000, 10_000]);
    assert_eq!(stops, []);
}

#[test]
fn a_refusal_stops_at_that_instant_and_ends_renewals() {
    let (mut leases, _) = one();
    let (sent, stops) = timeline(&mut leases, 20_000, |_| Some(Renewed::Lost));
    assert_eq!(sent, [2_000]);
    assert_eq!(stops, [(2_000, Loss::Refused)]);
    assert_eq!(leases.next_look(), None);
}

#[test]
fn a_store_out_of_reach_is_tried_twice_and_doubted_at_half() {
    let (mut leases, held) = one();
    assert!(leases.is_trusted(&held, at(3_999)));
    assert!(!leases.is_trusted(&held, at(4_000)), "told or not");
    let (sent, stops) = timeline(&mut leases, 20_000, |_| None);
    assert_eq!(sent, [2_000, 3_000]);
    assert_eq!(stops, [(4_000, Loss::Doubted)]);
}

#[test]
fn a_second_try_that_is_accepted_saves_the_lease() {
    let (mut leases, _) = one();
    let (sent, stops) = timeline(&mut leases, 8_000, |now| {
        (now != 2_000).then_some(Renewed::Kept)
    });
    assert_eq!(sent, [2_000, 3_000, 5_000, 7_000]);
    assert_eq!(stops, []);
}

#[test]
fn trust_is_counted_from_the_sending_and_not_from_the_answer() {
    let (mut leases, held) = one();
    assert_eq!(leases.due(at(2_000)).len(), 1);
    assert_eq!(
        leases.answered(at(2_000), [(held, Renewed::Kept)]),
        [],
        "answered at 2900, say"
    );
    assert_eq!(leases.trusted_until(&held), Some(at(6_000)));
    assert_eq!(leases.over_at(&held), Some(at(10_000)));
    assert!(leases.is_trusted(&held, at(5_999)));
    assert!(!leases.is_trusted(&held, at(6_000)));
    assert_eq!(leases.next_look(), Some(at(4_000)));
}

#[test]
fn an_answer_that_overtakes_an_earlier_one_is_not_undone_by_it() {
    let (mut leases, held) = one();
    leases.answered(at(3_000), [(held, Renewed::Kept)]);
    leases.answered(at(2_000), [(held, Renewed::Kept)]);
    assert_eq!(leases.trusted_until(&held), Some(at(7_000)));
}

#[test]
fn nothing_that_comes_after_a_doubt_brings_trust_back() {
    for late in [Renewed::Kept, Renewed::CancelRequested, Renewed::Lost] {
        let (mut leases, held) = one();
        assert_eq!(leases.doubted(at(4_000)), [(held, Loss::Doubted)]);
        assert_eq!(leases.doubted(at(4_000)), [], "told once");
        assert_eq!(leases.answered(at(3_000), [(held, late)]), [], "{late:?}");
        assert!(!leases.is_trusted(&held, at(4_001)));
        assert_eq!(leases.due(at(5_000)), []);
        assert_eq!(leases.next_look(), None);
    }
}

#[test]
fn a_claim_answered_late_may_be_doubted_at_once() {
    let (mut leases, held) = one();
    assert_eq!(leases.next_look(), Some(at(2_000)));
    assert!(!leases.is_trusted(&held, at(30_000)));
    assert_eq!(leases.doubted(at(30_000)), [(held, Loss::Doubted)]);
    assert_eq!(leases.due(at(30_000)), []);
}

#[test]
fn while_settling_it_is_renewed_but_neither_trusted_nor_lost() {
    let (mut leases, held) = one();
    leases.settling(&held);
    assert!(!leases.is_trusted(&held, at(1)));
    let (sent, stops) = timeline(&mut leases, 9_000, |now| match now {
        2_000 => Some(Renewed::Lost),
        3_000 => None,
        _ => Some(Renewed::Kept),
    });
    assert_eq!(sent, [2_000, 3_000, 4_000, 6_000, 8_000]);
    assert_eq!(stops, []);
    leases.remove(&held);
    assert!(leases.is_empty());
}

#[test]
fn a_doubted_lease_that_is_handed_back_is_renewed_again() {
    let (mut leases, held) = one();
    leases.doubted(at(4_000));
    leases.settling(&held);
    assert_eq!(leases.due(at(4_100)).len(), 1);
    leases.answered(at(4_100), [(held, Renewed::Kept)]);
    assert_eq!(leases.over_at(&held), Some(at(12_100)));
    assert!(!leases.is_trusted(&held, at(4_200)));
}

#[test]
fn a_cancel_is_told_once_and_leaves_one_more_lease() {
    let (mut leases, _) = one();
    let (sent, stops) = timeline(&mut leases, 40_000, |_| Some(Renewed::CancelRequested));
    assert_eq!(sent, [2_000, 4_000, 6_000, 8_000]);
    assert_eq!(
        stops,
        [(2_000, Loss::CancelRequested), (12_000, Loss::Doubted)]
    );
}

#[test]
fn a_cancel_whose_answer_was_lost_is_told_by_the_next() {
    let (mut leases, _) = one();
    let (_, stops) = timeline(&mut leases, 4_000, |now| {
        (now != 2_000).then_some(Renewed::CancelRequested)
    });
    assert_eq!(stops, [(3_000, Loss::CancelRequested)]);
}

#[test]
fn a_cancel_of_an_item_being_settled_is_not_told() {
    let (mut leases, held) = one();
    leases.settling(&held);
    let stops = leases.answered(at(2_000), [(held, Renewed::CancelRequested)]);
    assert_eq!(stops, []);
}

#[test]
fn of_two_limits_on_renewing_the_earlier_counts() {
    let (mut leases, held) = one();
    leases.renew_until(&held, at(3_500));
    leases.renew_until(&held, at(9_000));
    // Neither a cancel nor an accepted renewal moves it.
    let (sent, stops) = timeline(&mut leases, 20_000, |_| Some(Renewed::CancelRequested));
    assert_eq!(sent, [2_000]);
    assert_eq!(
        stops,
        [(2_000, Loss::CancelRequested), (6_000, Loss::Doubted)]
    );
}

#[test]
fn a_limit_in_the_past_leaves_nothing_to_look_for_but_the_doubt() {
    let (mut leases, held) = one();
    leases.renew_until(&held, at(2_500));
    // Looks later than planned: the renewal was due, and no longer is.
    assert_eq!(leases.doubted(at(3_000)), []);
    assert_eq!(leases.due(at(3_000)), []);
    assert_eq!(leases.next_look(), Some(at(4_000)));
}

#[test]
fn leases_of_different_phases_fall_into_step_in_id_order() {
    let mut leases = Leases::default();
    let length = Duration::from_millis(LEASE);
    leases.insert(hold(3, 1), length, at(0));
    leases.insert(hold(2, 2), length, at(500));
    leases.insert(hold(1, 3), length, at(1_500));
    let batch = leases.due(at(2_000));
    let numbers: Vec<u128> = batch.iter().map(|renewal| number(&renewal.hold)).collect();
    // The third was claimed less than an eighth of a lease ago.
    assert_eq!(numbers, [2, 3]);
    assert_eq!(leases.len(), 3);
}

#[test]
fn a_lease_near_its_end_does_not_cut_the_others_short() {
    let mut leases = Leases::default();
    let length = Duration::from_millis(LEASE);
    leases.insert(hold(1, 1), length, at(0));
    leases.due(at(2_000));
    leases.due(at(3_000));
    leases.insert(hold(2, 2), length, at(1_900));
    let batch = leases.due(at(3_900));
    assert_eq!(batch.len(), 1);
    assert_eq!(number(&batch[0].hold), 2);
    assert_eq!(leases.patience(&batch, at(3_900)), length / 8);
}

#[test]
fn a_renewal_may_take_until_the_next_try_or_the_end_of_trust() {
    let (mut leases, held) = one();
    let batch = leases.due(at(2_000));
    assert_eq!(leases.patience(&batch, at(2_000)), Duration::from_secs(1));
    let batch = leases.due(at(3_400));
    assert_eq!(
        leases.patience(&batch, at(3_400)),
        Duration::from_millis(600)
    );
    // One that waits to be settled has no trust to lose, and is not in the others' way.
    leases.settling(&held);
    let batch = leases.due(at(30_000));
    assert_eq!(leases.patience(&batch, at(30_000)), Duration::from_secs(1));
}

#[test]
fn progress_goes_along_once_and_is_put_back_after_a_failure() {
    let (mut leases, held) = one();
    leases.report(&held, Progress::new(10, "begun"));
    let batch = leases.due(at(2_000));
    assert_eq!(batch[0].progress, Some(Progress::new(10, "begun")));
    leases.unanswered(batch);
    let batch = leases.due(at(3_000));
    assert_eq!(batch[0].progress, Some(Progress::new(10, "begun")));
    leases.report(&held, Progress::new(50, "half-way"));
    leases.unanswered(batch);
    leases.answered(at(3_000), [(held, Renewed::Kept)]);
    let batch = leases.due(at(5_000));
    assert_eq!(batch[0].progress, Some(Progress::new(50, "half-way")));
    leases.answered(at(5_000), [(held, Renewed::Kept)]);
    assert_eq!(leases.due(at(7_000))[0].progress, None);
}

#[test]
fn an_older_hold_on_an_item_is_kept_apart_from_a_newer_one() {
    let length = Duration::from_millis(LEASE);
    let (mut leases, old) = one();
    let new = hold(1, 8);
    leases.insert(new, length, at(9_000));
    assert!(leases.is_trusted(&new, at(9_001)));
    assert!(!leases.is_trusted(&old, at(9_001)));
    // The older run still has to be stopped.
    assert_eq!(leases.doubted(at(9_001)), [(old, Loss::Doubted)]);
    leases.remove(&old);
    assert!(leases.is_trusted(&new, at(9_002)));
    assert_eq!(leases.trusted_until(&old), None);
}

#[test]
fn an_unknown_hold_is_passed_over() {
    let (mut leases, held) = one();
    let stale = hold(1, 99);
    leases.settling(&stale);
    leases.renew_until(&stale, at(0));
    leases.report(&stale, Progress::new(1, "lost"));
    leases.remove(&stale);
    assert_eq!(leases.answered(at(2_000), [(stale, Renewed::Lost)]), []);
    assert!(leases.is_trusted(&held, at(2_000)));
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Claim(u8, u64),
    Settle(u8),
    Limit(u8, u64),
    Remove(u8),
    Look,
    Answer(Option<Renewed>, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let renewed = prop_oneof![
        3 => Just(Some(Renewed::Kept)),
        1 => Just(Some(Renewed::CancelRequested)),
        1 => Just(Some(Renewed::Lost)),
        2 => Just(None),
    ];
    prop_oneof![
        3 => (0..3_000_u64).prop_map(Step::Wait),
        2 => (0..4_u8, 0..5_000_u64).prop_map(|(item, age)| Step::Claim(item, age)),
        1 => (0..4_u8).prop_map(Step::Settle),
        1 => (0..4_u8, 0..9_000_u64).prop_map(|(item, wait)| Step::Limit(item, wait)),
        1 => (0..4_u8).prop_map(Step::Remove),
        4 => Just(Step::Look),
        4 => (renewed, 0..2_500_u64).prop_map(|(answer, took)| Step::Answer(answer, took)),
    ]
}

/// What may be said of a lease without looking into it.
#[derive(Debug, Clone, Copy)]
struct Known {
    hold: Hold,
    accepted: u64,
    stopped: bool,
    settling: bool,
}

/// Plays the steps against a plain record of what was accepted when, and compares after each.
fn check_against_a_record(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let length = Duration::from_millis(LEASE);
    let mut leases = Leases::default();
    let mut known: Vec<Known> = Vec::new();
    let mut under_way: Option<(u64, Vec<Renewal>)> = None;
    let (mut now, mut token) = (10_000_u64, 0_u128);
    for step in steps {
        match step {
            Step::Wait(wait) => now += wait,
            Step::Claim(item, age) => {
                token += 1;
                let claimed = hold(u128::from(item), token);
                leases.insert(claimed, length, at(now - age));
                known.push(Known {
                    hold: claimed,
                    accepted: now - age,
                    stopped: false,
                    settling: false,
                });
            }
            Step::Settle(item) => {
                for lease in known.iter_mut().filter(|k| number(&k.hold) == item.into()) {
                    leases.settling(&lease.hold);
                    lease.settling = true;
                }
            }
            Step::Limit(item, wait) => {
                for lease in known.iter().filter(|k| number(&k.hold) == item.into()) {
                    leases.renew_until(&lease.hold, at(now + wait));
                }
            }
            Step::Remove(item) => known.retain(|lease| {
                let goes = number(&lease.hold) == u128::from(item);
                if goes {
                    leases.remove(&lease.hold);
                }
                !goes
            }),
            Step::Look => {
                for (doubted, loss) in leases.doubted(at(now)) {
                    prop_assert_eq!(loss, Loss::Doubted);
                    let lease = known.iter_mut().find(|k| k.hold == doubted).unwrap();
                    prop_assert!(!lease.stopped && !lease.settling, "told for no reason");
                    prop_assert!(now >= lease.accepted + LEASE / 2, "doubted too early");
                    lease.stopped = true;
                }
                let due = leases.due(at(now));
                prop_assert!(leases.next_look().is_none_or(|next| next > at(now)));
                if !due.is_empty() {
                    let patience = leases.patience(&due, at(now));
                    prop_assert!(patience > Duration::ZERO && patience <= length / 8);
                    if under_way.is_none() {
                        under_way = Some((now, due));
                    }
                }
            }
            Step::Answer(answer, took) => {
                let Some((sent, batch)) = under_way.take() else {
                    continue;
                };
                now += took;
                let Some(renewed) = answer else {
                    leases.unanswered(batch);
                    continue;
                };
                let holds: Vec<Hold> = batch.iter().map(|renewal| renewal.hold).collect();
                let answers = holds.iter().map(|hold| (*hold, renewed));
                let stops = leases.answered(at(sent), answers);
                for lease in known.iter_mut().filter(|k| holds.contains(&k.hold)) {
                    if (!lease.stopped || lease.settling) && renewed != Renewed::Lost {
                        lease.accepted = lease.accepted.max(sent);
                    }
                    let refused = stops.contains(&(lease.hold, Loss::Refused));
                    prop_assert!(!refused || !lease.stopped && !lease.settling);
                    lease.stopped |= refused;
                }
            }
        }
        for lease in &known {
            let trusted = !lease.stopped && !lease.settling && now < lease.accepted + LEASE / 2;
            prop_assert_eq!(leases.is_trusted(&lease.hold, at(now)), trusted);
        }
        prop_assert_eq!(leases.len(), known.len());
    }
    Ok(())
}

proptest! {
    #[test]
    fn trust_is_what_was_accepted_within_half_a_lease(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        check_against_a_record(steps)?;
    }
}
