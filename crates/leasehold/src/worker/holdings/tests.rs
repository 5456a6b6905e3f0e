use leasehold_core::{ItemId, OrgId};
use uuid::Uuid;

use super::*;

const LEASE: Duration = Duration::from_secs(8);

fn at(seconds: u64) -> BootTime {
    BootTime::new(Duration::from_secs(1_000 + seconds))
}

fn hold(token: u128) -> Hold {
    Hold {
        org_id: OrgId::SINGLE,
        item_id: ItemId::new(Uuid::from_u128(1)),
        token: leasehold_core::ClaimToken::new(Uuid::from_u128(token)),
    }
}

fn start(holdings: &Holdings, token: u128, now: BootTime) -> Option<Control> {
    holdings.start([hold(token)], now).remove(0)
}

fn held() -> (Holdings, Control) {
    let holdings = Holdings::new(Duration::ZERO);
    holdings.take_up(&[hold(1)], LEASE, at(0));
    let control = start(&holdings, 1, at(0)).unwrap();
    (holdings, control)
}

#[test]
fn a_run_whose_trust_has_ended_does_not_start() {
    let holdings = Holdings::new(Duration::ZERO);
    holdings.take_up(&[hold(1)], LEASE, at(0));
    assert!(start(&holdings, 2, at(0)).is_none(), "never held");
    assert!(start(&holdings, 1, at(4)).is_none(), "half a lease");
    assert!(start(&holdings, 1, at(3)).is_some());
}

#[test]
fn a_run_left_to_itself_ends_for_no_reason_of_the_keepers() {
    let (holdings, control) = held();
    assert_eq!(holdings.ended(&hold(1), at(1)), RunEnd::default());
    assert!(!control.cancel.is_cancelled());
}

/// The run may end before the keeper's word reaches the loop: the reason goes along with the ending.
#[test]
fn a_run_that_the_keeper_stopped_ends_with_the_reason() {
    let (holdings, control) = held();
    holdings.doubted(at(4));
    assert!(control.cancel.is_cancelled() && !control.kill.is_cancelled());
    assert_eq!(holdings.ended(&hold(1), at(4)).loss, Some(Loss::Doubted));
    assert_eq!(
        holdings.ended(&hold(1), at(4)),
        RunEnd::default(),
        "told once"
    );

    let (holdings, control) = held();
    holdings.answered(at(2), [(hold(1), Renewed::Lost)]);
    assert!(control.kill.is_cancelled());
    assert_eq!(holdings.ended(&hold(1), at(4)).loss, Some(Loss::Refused));
}

/// Whoever sees first that the lease has run out tells of it, and nobody else does.
#[test]
fn a_run_that_ends_before_the_keeper_looks_is_overdue_all_the_same() {
    let (holdings, _) = held();
    let end = RunEnd {
        overdue: Some(Loss::Doubted),
        loss: Some(Loss::Doubted),
    };
    assert_eq!(holdings.ended(&hold(1), at(4)), end);
    assert_eq!(holdings.doubted(at(5)), []);

    let (holdings, _) = held();
    assert_eq!(holdings.ended(&hold(1), at(3)), RunEnd::default());
}

#[test]
fn an_older_hold_stops_and_ends_nothing_of_a_newer_one() {
    let (holdings, older) = held();
    holdings.take_up(&[hold(2)], LEASE, at(3));
    let newer = start(&holdings, 2, at(3)).unwrap();
    holdings.kill(&hold(1));
    assert!(older.kill.is_cancelled());
    holdings.doubted(at(4));
    assert_eq!(holdings.ended(&hold(1), at(4)).loss, Some(Loss::Doubted));
    holdings.forget(&[hold(1)]);
    assert!(!newer.cancel.is_cancelled());
    holdings.kill(&hold(2));
    assert!(newer.kill.is_cancelled());
}

#[test]
fn a_settle_is_waited_for_no_longer_than_its_lease() {
    let (holdings, _) = held();
    let settlement = |token| Settlement {
        hold: hold(token),
        transition: leasehold_core::rules::hand_back("a note"),
    };
    let patience = |batch: &[Settlement], seconds| {
        holdings.settle_patience(batch, at(seconds), Duration::from_secs(10))
    };
    assert_eq!(patience(&[settlement(1)], 5), Duration::from_secs(3));
    let brief = Duration::from_millis(500);
    assert_eq!(patience(&[settlement(1)], 7), Duration::from_secs(1));
    holdings.take_up(&[hold(2)], Duration::from_millis(7_100), at(0));
    assert_eq!(patience(&[settlement(1), settlement(2)], 7), brief);
    // What is over has nothing to lose, and does not hurry the others.
    assert_eq!(patience(&[settlement(1)], 9), Duration::from_secs(10));
    assert_eq!(patience(&[settlement(9)], 0), Duration::from_secs(10));
}
