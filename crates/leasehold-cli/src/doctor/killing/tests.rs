//! Trials that ended in ways which none ends here.

use std::time::Duration;

use leasehold_fence::Ending;

use super::super::finding::Level;
use super::{Trial, judge_groups, judge_offer, judge_privileges, judge_trial};

fn good() -> Trial {
    Trial {
        ending: Ending::LeaseLost,
        seen: 2,
        left: 0,
        late: Duration::from_millis(4),
    }
}

#[test]
fn a_trial_is_good_if_all_of_it_is_dead_in_time() {
    let judged = |trial| judge_trial(&trial).level;
    assert_eq!(judged(good()), Level::Ok);
    let slow = Trial {
        late: Duration::from_millis(1_001),
        ..good()
    };
    assert_eq!(judged(slow), Level::Warning);
    let survived = Trial { left: 1, ..good() };
    assert_eq!(judged(survived), Level::Error);
    let unseen = Trial { seen: 1, ..good() };
    assert_eq!(judged(unseen), Level::Error);
    let ended = Trial {
        ending: Ending::Exited { code: 127 },
        ..good()
    };
    assert_eq!(judged(ended), Level::Error);
}

#[test]
fn what_is_never_needed_is_no_warning() {
    for finding in [
        judge_groups(Err("it is read-only")),
        judge_groups(Ok("/sys/fs/cgroup/worker".to_owned())),
        judge_privileges(false),
        judge_privileges(true),
    ] {
        assert_eq!(finding.level, Level::Ok, "{finding:?}");
    }
}

#[test]
fn what_the_fence_cannot_do_without_is_an_error() {
    let refused = Err(std::io::ErrorKind::PermissionDenied.into());
    assert_eq!(
        judge_offer("pidfd", "process descriptors", refused).level,
        Level::Error
    );
    assert_eq!(
        judge_offer("pidfd", "process descriptors", Ok(())).level,
        Level::Ok
    );
}
