//! Disks that this machine does not have.

use std::path::Path;

use super::super::finding::Level;
use super::{
    Journal, judge_file_system, judge_journal, judge_schema, judge_space, judge_temporary, missing,
    read_journal,
};
use crate::database::Step;
use crate::failure::Failure;

fn step(version: u32, is_applied: bool) -> Step {
    Step {
        version,
        name: "x".to_owned(),
        applied_at: is_applied.then_some(jiff::Timestamp::UNIX_EPOCH),
        is_later: false,
    }
}

#[test]
fn a_disk_that_is_not_local_is_warned_of() {
    let judged = |number| judge_file_system(Path::new("/q"), number).level;
    for number in [
        0x6969,
        0xff53_4d42,
        0x0102_1997,
        0x6573_5546,
        0x0102_1994,
        0x794c_7630,
    ] {
        assert_eq!(judged(number), Level::Warning, "{number:x}");
    }
    // The same number, as a machine with signed ones gives it.
    assert_eq!(judged(0xff53_4d42 - (1 << 32)), Level::Warning);
    for (name, number) in [
        ("ext4", 0xef53),
        ("xfs", 0x5846_5342),
        ("btrfs", 0x9123_683e),
    ] {
        assert_eq!(judged(number), Level::Ok, "{name}");
    }
}

#[test]
fn a_full_disk_is_an_error_before_it_is_full() {
    let judged = |mib: u64| judge_space(Path::new("/q"), mib << 20).level;
    assert_eq!(judged(63), Level::Error);
    assert_eq!(judged(64), Level::Warning);
    assert_eq!(judged(1_023), Level::Warning);
    assert_eq!(judged(1_024), Level::Ok);
}

#[test]
fn a_schema_is_missing_behind_current_or_none_of_ours() {
    let judged = |schema| judge_schema(&"q.db", schema);
    assert_eq!(missing(&"q.db").level, Level::Warning);
    let current = judged(Ok(vec![step(1, true), step(2, true)]));
    assert_eq!(current.level, Level::Ok);
    let behind = judged(Ok(vec![step(1, true), step(2, false)]));
    assert_eq!(behind.level, Level::Error);
    let told = serde_json::to_string(&behind).unwrap();
    assert!(told.contains("it would apply 2\""), "{told}");
    let foreign = Failure::cannot_open("it cannot be used").remedy("give another");
    assert_eq!(judged(Err(foreign)).level, Level::Error);
}

#[test]
fn the_header_says_how_a_file_is_written() {
    let mut header = [0; super::HEADER_BYTES];
    header[18..].copy_from_slice(&[2, 2]);
    assert_eq!(read_journal(header), Journal::WriteAhead);
    header[18..].copy_from_slice(&[1, 1]);
    assert_eq!(read_journal(header), Journal::Rollback);
    assert_eq!(judge_journal(Journal::Rollback).level, Level::Warning);
}

#[test]
fn no_temporary_files_are_a_warning() {
    let refused = Err(std::io::ErrorKind::ReadOnlyFilesystem.into());
    assert_eq!(
        judge_temporary(Path::new("/t"), refused).level,
        Level::Warning
    );
}
