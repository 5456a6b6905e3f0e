//! Servers that nobody has here.

use super::super::finding::Level;
use super::*;

fn good() -> Examination {
    Examination {
        version: 150_004,
        version_name: "15.4".to_owned(),
        now: Timestamp::UNIX_EPOCH,
        is_read_only: false,
        synchronous_commit: "on".to_owned(),
        fsync: true,
        connections_max: 97,
        connections: 3,
        login: "worker".to_owned(),
        login_connections_max: None,
        login_connections: 0,
    }
}

#[test]
fn a_good_server_is_found_good() {
    for judge in [
        judge_version,
        judge_writable,
        judge_durability,
        |seen: &Examination| judge_connections(seen, 9),
    ] {
        let found = judge(&good());
        assert_eq!(found.level, Level::Ok, "{found:?}");
    }
}

#[test]
fn an_old_server_and_a_standby_are_errors() {
    let old = Examination {
        version: 140_017,
        ..good()
    };
    assert_eq!(judge_version(&old).level, Level::Error);
    let first = Examination {
        version: 150_000,
        ..good()
    };
    assert_eq!(judge_version(&first).level, Level::Ok);
    let standby = Examination {
        is_read_only: true,
        ..good()
    };
    assert_eq!(judge_writable(&standby).level, Level::Error);
}

#[test]
fn a_server_that_may_forget_is_warned_of() {
    let judged = |synchronous_commit: &str, fsync| {
        let seen = Examination {
            synchronous_commit: synchronous_commit.to_owned(),
            fsync,
            ..good()
        };
        judge_durability(&seen).level
    };
    assert_eq!(judged("off", true), Level::Warning);
    assert_eq!(judged("on", false), Level::Warning);
    for setting in ["local", "remote_write", "remote_apply"] {
        assert_eq!(judged(setting, true), Level::Ok, "{setting}");
    }
}

#[test]
fn connections_must_be_enough_and_should_be_free() {
    let judged = |connections_max, connections| {
        let seen = Examination {
            connections_max,
            connections,
            ..good()
        };
        judge_connections(&seen, 9).level
    };
    assert_eq!(judged(8, 0), Level::Error);
    assert_eq!(judged(9, 0), Level::Ok);
    assert_eq!(judged(97, 88), Level::Ok);
    assert_eq!(judged(97, 89), Level::Warning);
    assert_eq!(judged(97, 120), Level::Warning);
}

#[test]
fn a_login_with_a_limit_of_its_own_must_have_enough() {
    assert!(judge_login(&good(), 9).is_none(), "it has none");
    let judged = |max, in_use| {
        let seen = Examination {
            login_connections_max: Some(max),
            login_connections: in_use,
            ..good()
        };
        judge_login(&seen, 9).unwrap().level
    };
    assert_eq!(judged(0, 0), Level::Error);
    assert_eq!(judged(8, 0), Level::Error);
    assert_eq!(judged(9, 0), Level::Ok);
    assert_eq!(judged(20, 12), Level::Warning);
}

#[test]
fn a_clock_that_is_off_is_told_with_its_way() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let judged = |theirs| judge_clock(at(theirs), at(100), at(110));
    // As far as the answer's time on its way can tell.
    for theirs in [98, 100, 105, 110, 112] {
        assert_eq!(judged(theirs).level, Level::Ok, "{theirs}");
    }
    for (theirs, way) in [(97, "3s behind this"), (113, "3s ahead of this")] {
        let found = judged(theirs);
        assert_eq!(found.level, Level::Warning);
        let told = serde_json::to_string(&found).unwrap();
        assert!(told.contains(way), "{told}");
    }
}
