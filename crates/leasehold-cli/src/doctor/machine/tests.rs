//! Machines that are not there.

use std::time::Duration;

use super::super::finding::{Finding, Level};
use super::{
    is_unreaped_by_first, judge_calendar, judge_children, judge_first, judge_kernel, judge_proc,
    judge_suspended, options_of_proc,
};

fn level(finding: &Finding) -> Level {
    finding.level
}

#[test]
fn kernels_are_told_by_their_version() {
    for (release, expected) in [
        ("4.19.0-generic", Level::Error),
        ("5.2.21", Level::Error),
        ("5.3.0", Level::Ok),
        ("5.15.0-91-generic", Level::Ok),
        ("6.1", Level::Ok),
        ("10.0.1", Level::Ok),
        ("rolling", Level::Warning),
        ("", Level::Warning),
    ] {
        assert_eq!(level(&judge_kernel(release)), expected, "{release}");
    }
}

#[test]
fn the_last_mount_of_proc_is_the_one_that_is_seen() {
    let mounts = "proc /proc proc rw,nosuid 0 0\n\
        tmpfs /proc/acpi tmpfs ro 0 0\n\
        proc /somewhere/proc proc rw,hidepid=2 0 0\n\
        proc /proc proc rw,relatime,hidepid=invisible 0 0\n";
    assert_eq!(options_of_proc(mounts), "rw,relatime,hidepid=invisible");
    assert_eq!(options_of_proc("tmpfs /tmp tmpfs rw 0 0"), "");
}

#[test]
fn hidden_processes_matter_to_those_who_are_not_root() {
    let judged = |options, is_root| level(&judge_proc(true, options, is_root));
    for hidden in ["rw,hidepid=2", "hidepid=invisible", "rw,hidepid=1,gid=5"] {
        assert_eq!(judged(hidden, false), Level::Warning, "{hidden}");
        assert_eq!(judged(hidden, true), Level::Ok, "{hidden}");
    }
    for open in ["rw,nosuid", "", "rw,hidepid=0", "hidepid=off"] {
        assert_eq!(judged(open, false), Level::Ok, "{open}");
    }
    assert_eq!(level(&judge_proc(false, "", true)), Level::Error);
    assert_eq!(level(&judge_children(false)), Level::Warning);
}

#[test]
fn a_first_process_that_does_not_reap_is_told_of() {
    assert!(is_unreaped_by_first("77 (a) b) c) Z 1 77 77 0"));
    assert!(!is_unreaped_by_first("77 (sh) S 1 77 77 0"));
    assert!(!is_unreaped_by_first("77 (sh) Z 12 77 77 0"));
    assert!(!is_unreaped_by_first("77 (Z 1"));
    assert_eq!(level(&judge_first(false, "node", 3)), Level::Warning);
    assert_eq!(level(&judge_first(false, "systemd", 0)), Level::Ok);
    assert_eq!(level(&judge_first(true, "leasehold", 3)), Level::Ok);
}

#[test]
fn a_calendar_before_2020_is_wrong() {
    let at = |text: &str| level(&judge_calendar(text.parse().unwrap()));
    assert_eq!(at("1970-01-01T00:02:00Z"), Level::Error);
    assert_eq!(at("2019-12-31T23:59:59Z"), Level::Error);
    assert_eq!(at("2020-01-01T00:00:00Z"), Level::Ok);
}

#[test]
fn suspended_time_is_told_and_no_fault() {
    let never = judge_suspended(Duration::from_micros(3));
    let once = judge_suspended(Duration::from_hours(2));
    assert_eq!((level(&never), level(&once)), (Level::Ok, Level::Ok));
    let told = serde_json::to_string(&once).unwrap();
    assert!(told.contains("suspended for 2h"), "{told}");
}
