//! Limits that this machine does not have.

use super::super::finding::Level;
use super::{judge_descriptors, judge_room};

#[test]
fn descriptors_must_do_for_every_run_at_once() {
    let judged = |soft, hard, capacity| judge_descriptors(soft, hard, capacity).level;
    assert_eq!(judged(Some(1_024), Some(1_024), 192), Level::Ok);
    assert_eq!(judged(Some(1_024), Some(1_024), 193), Level::Error);
    assert_eq!(judged(None, None, 10_000), Level::Ok);
}

#[test]
fn the_fix_is_one_that_the_asker_can_carry_out() {
    let told = |hard| serde_json::to_string(&judge_descriptors(Some(256), hard, 100)).unwrap();
    assert!(
        told(Some(4_096)).contains("ulimit -n 564"),
        "{}",
        told(Some(4_096))
    );
    assert!(told(None).contains("ulimit -n 564"));
    assert!(told(Some(512)).contains("hard limit raised to 564"));
}

#[test]
fn room_is_what_the_limit_leaves() {
    let judged = |limit, in_use| judge_room("x", "processes", limit, in_use, 8, "raise it").level;
    assert_eq!(judged(Some(100), 36), Level::Ok);
    assert_eq!(judged(Some(100), 37), Level::Warning);
    assert_eq!(judged(Some(100), 4_000), Level::Warning);
    assert_eq!(judged(None, 4_000), Level::Ok);
}
