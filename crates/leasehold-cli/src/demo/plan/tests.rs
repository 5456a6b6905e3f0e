//! The pace for few and for many files.

use super::*;

#[test]
fn few_files_are_shared_out_and_take_their_time() {
    for items in 1..=3 {
        let plan = Plan::of(items);
        assert_eq!((plan.capacity, plan.pace), (1, PACE_MAX), "{items}");
    }
    assert_eq!(Plan::of(6).capacity, 2);
    assert_eq!(Plan::of(12).capacity, 4);
}

#[test]
fn many_files_take_no_longer_than_some() {
    for items in [20, 100, 400, 2_000, 6_000] {
        let plan = Plan::of(items);
        let alone = plan.pace * u32::try_from(items).expect("few") / plan.capacity;
        assert!(
            (Duration::from_secs(5)..=Duration::from_millis(6_500)).contains(&alone),
            "{items}: {alone:?}"
        );
    }
    assert_eq!(Plan::of(20_000).pace, PACE_MIN);
    assert_eq!(Plan::of(20_000).capacity, 64);
}

#[test]
fn items_differ_in_length() {
    let pace = Duration::from_millis(100);
    assert_eq!(Plan::spread(pace, 0), pace / 2);
    assert_eq!(Plan::spread(pace, 255), pace * 3 / 2);
}

#[test]
fn no_files_divide_nothing() {
    assert_eq!(Plan::of(0).capacity, 1);
}
