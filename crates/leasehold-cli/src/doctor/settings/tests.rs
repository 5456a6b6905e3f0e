//! Programs in folders that are not there.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use leasehold::Kind;

use super::super::finding::Level;
use super::{Found, is_given, judge_file, judge_program, locate};

/// `/b/tool` may be executed, `/a/tool` may not, and nothing else is there but `/srv/run.sh`.
fn disk(path: &Path) -> Found {
    match path.to_str() {
        Some("/b/tool" | "/srv/run.sh" | "/srv/./run.sh" | "/srv/bin/own") => Found::Program,
        Some("/a/tool") => Found::NotExecutable,
        _ => Found::Nothing,
    }
}

fn found(program: &str, path: Option<&str>) -> (Found, PathBuf) {
    locate(program, path.map(OsStr::new), Path::new("/srv"), disk)
}

#[test]
fn a_program_is_found_as_the_system_finds_it() {
    let program = |place: &str| (Found::Program, PathBuf::from(place));
    assert_eq!(found("tool", Some("/none:/a:/b")), program("/b/tool"));
    assert_eq!(found("./run.sh", None), program("/srv/./run.sh"));
    assert_eq!(found("run.sh", Some("/a:")), program("/srv/run.sh"));
    assert_eq!(found("own", Some("bin")), program("/srv/bin/own"));
    assert_eq!(found("/b/tool", Some("/a")), program("/b/tool"));
    assert_eq!(
        found("tool", Some("/a:/c")),
        (Found::NotExecutable, "/a/tool".into())
    );
    assert_eq!(found("tool", None), (Found::Nothing, "tool".into()));
}

#[test]
fn a_program_that_is_not_found_is_an_error_that_says_where_it_was_looked_for() {
    let kind = Kind::parse("SEND").unwrap();
    let judged = |program: &str, path: Option<&str>| {
        let at = found(program, path);
        judge_program(&kind, program, path.map(OsStr::new), at)
    };
    assert_eq!(judged("tool", Some("/b")).level, Level::Ok);
    assert_eq!(judged("tool", Some("/a")).level, Level::Error);
    let nowhere = judged("tool", Some("/c:/d"));
    assert_eq!(nowhere.level, Level::Error);
    let told = serde_json::to_string(&nowhere).unwrap();
    assert!(told.contains("SEND") && told.contains("(/c:/d)"), "{told}");
    assert_eq!(judged("./none.sh", None).level, Level::Error);
}

#[test]
fn declared_names_are_exact_or_beginnings() {
    let given: Vec<OsString> = vec!["APP_KEY".into(), "HOME".into()];
    let given: Vec<&OsString> = given.iter().collect();
    for (declared, expected) in [
        ("APP_KEY", true),
        ("APP_*", true),
        ("APP", false),
        ("DB_*", false),
    ] {
        assert_eq!(is_given(declared, &given), expected, "{declared}");
    }
}

#[test]
fn a_file_without_kinds_runs_nothing() {
    let file = Path::new("leasehold.toml");
    assert_eq!(judge_file(None, 0).level, Level::Ok);
    assert_eq!(judge_file(Some(file), 0).level, Level::Warning);
    assert_eq!(judge_file(Some(file), 1).level, Level::Ok);
}
