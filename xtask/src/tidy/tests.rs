//! Each rule with a sample that breaks it and one that keeps it.

use super::edges::{between_members, core_is_pure};
use super::sources::{allowed_lints, ignored_tests, length, module_docs, sleeps_in_tests};
use super::words::{machine_paths, markers};
use super::*;
use crate::workspace::Member;

/// The lines a rule objects to.
#[track_caller]
fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
    rule(path, text)
        .into_iter()
        .map(|finding| finding.line)
        .collect()
}

#[track_caller]
fn breaks(rule: Rule, path: &str, text: &str) {
    assert_eq!(lines(rule, path, text), [1], "{path}: {text}");
}

#[track_caller]
fn keeps(rule: Rule, path: &str, text: &str) {
    assert_eq!(lines(rule, path, text), [0; 0], "{path}: {text}");
}

fn member(name: &str, dependencies: &[&str]) -> Member {
    Member {
        name: name.to_owned(),
        manifest: format!("crates/{name}/Cargo.toml"),
        binaries: Vec::new(),
        dependencies: dependencies.iter().map(|&name| name.to_owned()).collect(),
    }
}

#[test]
fn a_finding_reads_as_place_what_and_remedy() {
    let finding = Finding {
        path: "crates/a/src/lib.rs".to_owned(),
        line: 7,
        what: "this".to_owned(),
        remedy: "do that",
    };
    assert_eq!(finding.to_string(), "crates/a/src/lib.rs:7: this; do that");
}

#[test]
fn imports_follow_the_table() {
    let manifest = "[dependencies]\nserde.workspace = true\nleasehold-sqlite.workspace = true\n";
    let allowed = [
        member("leasehold-core", &["serde"]),
        member("leasehold-sqlite", &["leasehold-core", "rusqlite"]),
        member("leasehold", &["leasehold-core"]),
    ];
    assert_eq!(between_members(&allowed, |_| manifest.to_owned()), []);

    let forbidden = [
        member("leasehold-sqlite", &[]),
        member("leasehold-testkit", &[]),
        member("leasehold", &["leasehold-sqlite"]),
        member("leasehold-cli", &["leasehold-sqlite", "leasehold-testkit"]),
    ];
    let found = between_members(&forbidden, |_| manifest.to_owned());
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with(
            "crates/leasehold/Cargo.toml:3: `leasehold` may not import `leasehold-sqlite`; "
        ),
        "{found:?}"
    );
    assert!(
        found[1].contains("`leasehold-cli` may not import `leasehold-testkit`"),
        "{found:?}"
    );
}

#[test]
fn a_crate_outside_the_table_is_found_and_an_example_is_not() {
    let stranger = member("leasehold-extras", &[]);
    assert_eq!(between_members(&[stranger], |_| String::new()).len(), 1);

    let mut example = member("quickstart", &["leasehold-sqlite"]);
    example.manifest = "examples/quickstart/Cargo.toml".to_owned();
    assert_eq!(between_members(&[example], |_| String::new()), []);
}

#[test]
fn the_core_links_no_runtime() {
    let pure = "leasehold-core v0.1.0 (/somewhere)\nserde v1.0.1\ntokio-macros-like v1.0.0\n";
    assert_eq!(core_is_pure(pure), []);
    let found = core_is_pure("leasehold-core v0.1.0\nserde v1.0.1\ntokio v1.54.0 (*)\n");
    assert_eq!(found.len(), 1);
    assert!(found[0].what.contains("`tokio`"));
}

#[test]
fn a_file_has_one_subject() {
    let path = "crates/leasehold/src/worker.rs";
    keeps(length, path, &"//\n".repeat(600));
    keeps(length, "docs/operations.md", &"\n".repeat(601));
    assert_eq!(lines(length, path, &"//\n".repeat(601)), [601]);
    assert_eq!(lines(length, "xtask/src/ci.rs", &"//\n".repeat(601)), [601]);
}

#[test]
fn a_module_begins_with_docs() {
    let path = "crates/leasehold/src/worker.rs";
    keeps(module_docs, path, "//! The loop.\n\nuse std::fmt;\n");
    keeps(module_docs, path, "\n//! The loop.\n");
    keeps(module_docs, "crates/leasehold/build.rs", "fn main() {}\n");
    keeps(module_docs, "README.md", "# Leasehold\n");
    breaks(module_docs, path, "use std::fmt;\n//! Too late.\n");
    breaks(
        module_docs,
        "crates/leasehold/tests/it/main.rs",
        "mod worker;\n",
    );
    breaks(module_docs, "xtask/src/ci.rs", "");
}

#[test]
fn a_test_does_not_sleep() {
    let path = "crates/leasehold/tests/it/worker.rs";
    breaks(
        sleeps_in_tests,
        path,
        "    tokio::time::sleep(LEASE).await;\n",
    );
    breaks(
        sleeps_in_tests,
        path,
        "    std::thread::sleep(LEASE); // real time:\n",
    );
    breaks(
        sleeps_in_tests,
        path,
        "    std::thread::sleep(LEASE); // until it is over\n",
    );
    breaks(
        sleeps_in_tests,
        "crates/leasehold/src/worker/tests.rs",
        "thread::sleep(LEASE);\n",
    );
    keeps(
        sleeps_in_tests,
        path,
        "    thread::sleep(LEASE); // real time: the kernel kills late\n",
    );
    keeps(
        sleeps_in_tests,
        path,
        "    // No time::sleep here: the probe says when.\n",
    );
    keeps(
        sleeps_in_tests,
        "crates/leasehold/src/worker.rs",
        "tokio::time::sleep(poll).await;\n",
    );
}

#[test]
fn an_ignored_test_says_why() {
    let path = "crates/leasehold/tests/it/worker.rs";
    breaks(ignored_tests, path, "#[ignore]\n");
    breaks(ignored_tests, path, "#[ignore = \"\"]\n");
    keeps(
        ignored_tests,
        path,
        "#[ignore = \"takes an hour; run it before a release\"]\n",
    );
    keeps(ignored_tests, path, "/// Once this was `#[ignore]`.\n");
}

#[test]
fn a_lint_is_expected_never_allowed() {
    let path = "crates/leasehold/src/worker.rs";
    breaks(allowed_lints, path, "#[allow(dead_code)]\n");
    breaks(allowed_lints, path, "#![allow(clippy::pedantic)]\n");
    keeps(
        allowed_lints,
        path,
        "#[expect(dead_code, reason = \"read by the debugger\")]\n",
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let path = "crates/leasehold/src/worker.rs";
    for text in [
        "// TODO: later",
        "// FIXME",
        "/* XXX */",
        "// HACK",
        "todo!()",
        "dbg!(claim);",
    ] {
        breaks(markers, path, text);
    }
    breaks(markers, "scripts/test", "#!/bin/sh TODO\n");
    breaks(markers, "docs/operations.md", "unimplemented!(\"yet\")\n");
    keeps(
        markers,
        path,
        "// The HACKNEY carriage; my_dbg!(x); `todo` is a word.\n",
    );
    keeps(
        markers,
        "scripts/setup.sh",
        "mktemp -d /tmp/leasehold.XXXXXX\n",
    );
    keeps(markers, "pictures/TODO.svg", "<text>TODO</text>\n");
}

#[test]
fn no_path_of_one_machine() {
    let path = "docs/operations.md";
    for text in [
        "cd /home/alice/leasehold",
        "\"/root/.cache\"",
        "see file:///home/alice/x",
        "open /Users/alice/notes",
        r"C:\Users\alice\notes",
    ] {
        breaks(machine_paths, path, text);
    }
    for text in [
        "cd /home/user/leasehold",
        "homes are under `/home/` and `/root/`",
        "/home/$USER/leasehold",
        "https://leasehold.example/home/start",
        "${BASE}/root/cause",
        "docs/home/start.md",
    ] {
        keeps(machine_paths, path, text);
    }
    keeps(machine_paths, "deploy/Dockerfile", "WORKDIR /root/build\n");
}

#[test]
fn the_rules_may_spell_what_they_forbid_but_stay_short_and_documented() {
    assert_eq!(
        check("xtask/src/tidy/sources.rs", "//! Samples.\ndbg!(1);\n"),
        []
    );
    assert_eq!(check("xtask/src/tidy/sources.rs", "dbg!(1);\n").len(), 1);
    assert_eq!(check("xtask/src/ci.rs", "//! Steps.\ndbg!(1);\n").len(), 1);
}

#[test]
fn unit_tests_stand_without_a_header_and_integration_tests_do_not() {
    for path in ["crates/a/src/b/tests.rs", "crates/a/src/b/tests/c.rs"] {
        assert_eq!(check(path, "use super::*;\n"), [], "{path}");
    }
    assert_eq!(check("crates/a/tests/it/c.rs", "use a::B;\n").len(), 1);
}
