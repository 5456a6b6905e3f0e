//! Rules for Rust files: their length, their docs, and what they may not do to the lints and tests.

use super::Finding;

/// Past this a file has two subjects; the usual one is a quarter of it.
const LINES_MAX: usize = 600;

/// What lets a sleep stand, followed by why only real time will do.
const REAL_TIME: &str = "// real time:";

pub(super) fn length(path: &str, text: &str) -> Vec<Finding> {
    let lines = text.lines().count();
    if !is_ours(path) || lines <= LINES_MAX {
        return Vec::new();
    }
    vec![Finding {
        path: path.to_owned(),
        line: LINES_MAX + 1,
        what: format!("{lines} lines, and {LINES_MAX} are the most"),
        remedy: "split it by subject",
    }]
}

pub(super) fn module_docs(path: &str, text: &str) -> Vec<Finding> {
    // A file of unit tests says what it is by standing beside its subject.
    let is_unit_test =
        path.ends_with("/tests.rs") || within(path, "src") && path.contains("/tests/");
    let is_module = is_ours(path)
        && !is_unit_test
        && ["src", "tests", "benches", "examples"]
            .iter()
            .any(|folder| within(path, folder));
    let first = text
        .lines()
        .enumerate()
        .find(|(_, line)| !line.trim().is_empty());
    match first {
        Some((_, line)) if line.starts_with("//!") => Vec::new(),
        _ if !is_module => Vec::new(),
        other => vec![Finding {
            path: path.to_owned(),
            line: other.map_or(1, |(at, _)| at + 1),
            what: "the file does not begin with `//!`".to_owned(),
            remedy: "say in a sentence what it is for",
        }],
    }
}

pub(super) fn sleeps_in_tests(path: &str, text: &str) -> Vec<Finding> {
    let is_test = is_ours(path) && (within(path, "tests") || path.ends_with("/tests.rs"));
    if !is_test {
        return Vec::new();
    }
    find(path, text, |line| {
        let (code, reason) = match line.split_once(REAL_TIME) {
            Some((code, reason)) => (code, reason.trim()),
            None => (code(line), ""),
        };
        let sleeps = code.contains("thread::sleep") || code.contains("time::sleep");
        (sleeps && reason.is_empty()).then_some((
            "a test sleeps".to_owned(),
            "await a probe or pause the clock; if only real time will do, end the line with \
             `// real time:` and why",
        ))
    })
}

pub(super) fn ignored_tests(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) {
        return Vec::new();
    }
    find(path, text, |line| {
        let (_, rest) = code(line).split_once("#[ignore")?;
        let has_reason = rest
            .trim_start()
            .strip_prefix('=')
            .and_then(|reason| reason.trim_start().strip_prefix('"'))
            .is_some_and(|reason| !reason.starts_with('"'));
        (!has_reason).then_some((
            "a test is ignored without a reason".to_owned(),
            "write `#[ignore = \"why, and how to run it\"]` or delete the test",
        ))
    })
}

pub(super) fn allowed_lints(path: &str, text: &str) -> Vec<Finding> {
    if !is_rust(path) {
        return Vec::new();
    }
    find(path, text, |line| {
        let code = code(line);
        (code.contains("#[allow(") || code.contains("#![allow(")).then_some((
            "a lint is allowed".to_owned(),
            "write `#[expect(…, reason = \"…\")]`, which complains when it is no longer needed",
        ))
    })
}

/// One finding for each line that `judge` objects to.
fn find(
    path: &str,
    text: &str,
    judge: impl Fn(&str) -> Option<(String, &'static str)>,
) -> Vec<Finding> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            let (what, remedy) = judge(line)?;
            Some(Finding {
                path: path.to_owned(),
                line: at + 1,
                what,
                remedy,
            })
        })
        .collect()
}

/// The line without its comment. A `//` within a string ends it early, which these rules survive.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

fn is_ours(path: &str) -> bool {
    let folders = ["crates/", "bridges/", "xtask/"];
    is_rust(path) && folders.iter().any(|folder| path.starts_with(folder))
}

fn is_rust(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "rs")
}

fn within(path: &str, folder: &str) -> bool {
    path.rsplit_once('/')
        .is_some_and(|(folders, _)| folders.split('/').any(|name| name == folder))
}
