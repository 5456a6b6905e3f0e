//! What the doctor finds on this machine, and on ones that something is wrong with.

use std::process::Command;

use serde_json::Value;

use crate::harness::Place;

/// The findings of one check: level, what, and the fix.
fn findings(answer: &Value, check: &str) -> Vec<(String, String, String)> {
    let all = answer["findings"].as_array().expect("findings");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter()
        .filter(|one| one["check"] == check)
        .map(|one| (text(&one["level"]), text(&one["what"]), text(&one["fix"])))
        .collect()
}

#[track_caller]
fn expect(answer: &Value, check: &str, level: &str, words: &str) {
    let found = findings(answer, check);
    let fits = |one: &(String, String, String)| {
        one.0 == level && (one.1.contains(words) || one.2.contains(words))
    };
    assert!(found.iter().any(fits), "{check} {level} {words}: {found:?}");
}

fn asked(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.arg("--json").output().expect("the command");
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), answer)
}

#[test]
fn a_good_machine_has_no_errors_and_is_left_as_it_was() {
    let place = Place::new();
    let (code, answer) = asked(&mut place.command(&["doctor"]));
    assert_eq!(code, Some(0), "{answer}");
    assert_eq!(
        (&answer["schema"], &answer["errors"]),
        (&1.into(), &0.into())
    );
    for check in [
        "kernel",
        "proc",
        "pidfd",
        "subreaper",
        "timer",
        "cgroup",
        "temporary",
    ] {
        expect(&answer, check, "ok", "");
    }
    expect(
        &answer,
        "database",
        "warning",
        "`leasehold migrate` creates it",
    );
    expect(&answer, "settings", "ok", "defaults hold");
    let left = std::fs::read_dir(place.path()).expect("the folder");
    assert_eq!(left.count(), 0, "the doctor leaves nothing behind");
}

#[test]
fn people_and_pipes_get_a_line_for_each_finding() {
    let place = Place::new();
    let ended = place.run(&["doctor"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.talk);
    for line in ended.out.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        assert!(
            matches!(columns.as_slice(), ["ok" | "warning" | "error", check, what, _]
                if !check.is_empty() && !what.is_empty()),
            "{line}"
        );
        assert!(
            columns[0] == "ok" || !columns[3].is_empty(),
            "no fix: {line}"
        );
    }
    assert!(ended.talk.starts_with("no errors, "), "{}", ended.talk);
}

#[test]
fn a_database_is_looked_at_and_not_changed() {
    let place = Place::new();
    place.enqueue(&["SEND"]);
    let (code, answer) = asked(&mut place.command(&["doctor"]));
    assert_eq!(code, Some(0), "{answer}");
    expect(&answer, "database", "ok", "this build's schema");
    expect(&answer, "journal", "ok", "write-ahead log");
    expect(&answer, "permissions", "ok", "may be written to");

    place.file("text.db", "this is no database, however long it may be");
    let (code, answer) = asked(&mut place.command(&["doctor", "--database", "text.db"]));
    assert_eq!(code, Some(3), "{answer}");
    expect(&answer, "database", "error", "text.db");

    let (code, answer) = asked(&mut place.command(&["doctor", "--database", "no/q.db"]));
    assert_eq!(code, Some(3), "{answer}");
    expect(&answer, "database", "error", "the folder no is not there");
    assert!(!place.path().join("no").exists());
}

#[test]
fn every_kind_s_command_is_looked_for_where_it_will_be() {
    let place = Place::new();
    place.file("bin/run.sh", "#!/bin/sh\n");
    place.file(
        "leasehold.toml",
        r#"
        [kinds.GOOD]
        command = ["sh", "-c", "true"]
        environment = ["APP_SET", "APP_UNSET", "DB_*"]

        [kinds.MISSING]
        command = ["no-such-program"]

        [kinds.UNFIT]
        command = ["./run.sh"]
        directory = "bin"

        [kinds.NOWHERE]
        command = ["sh"]
        directory = "nowhere"
        "#,
    );
    let (code, answer) = asked(place.command(&["doctor"]).env("APP_SET", "1"));
    assert_eq!(code, Some(3), "{answer}");
    expect(
        &answer,
        "settings",
        "ok",
        "leasehold.toml is valid, with 4 kinds",
    );
    expect(&answer, "kind", "ok", "GOOD: runs ");
    expect(&answer, "kind", "warning", "not set here: APP_UNSET, DB_*");
    expect(
        &answer,
        "kind",
        "error",
        "MISSING: no-such-program is in none of the folders",
    );
    expect(&answer, "kind", "error", "run.sh may not be executed");
    expect(
        &answer,
        "kind",
        "error",
        "NOWHERE: the folder nowhere is not there",
    );
}

#[test]
fn all_that_is_wrong_with_the_file_is_told() {
    let place = Place::new();
    place.file(
        "leasehold.toml",
        "[worker]\nlease = 5\ncapacity = \"many\"\n",
    );
    let (code, answer) = asked(&mut place.command(&["doctor"]));
    assert_eq!(code, Some(3), "{answer}");
    expect(&answer, "settings", "error", "leasehold.toml:2: ");
    expect(&answer, "settings", "error", "leasehold.toml:3: ");
    assert_eq!(findings(&answer, "database"), []);
}

mod real_process {
    use std::process::Command;

    use super::{asked, expect, findings};
    use crate::harness::Place;

    #[test]
    fn the_trial_kills_a_tree_that_does_not_want_to_die() {
        let place = Place::new();
        let (code, answer) = asked(&mut place.command(&["doctor"]));
        assert_eq!(code, Some(0), "{answer}");
        let trial = findings(&answer, "trial");
        assert!(
            matches!(trial.as_slice(), [(level, what, _)]
                if level != "error" && what.contains(" ms after the end of its lease")),
            "{trial:?}"
        );
    }

    #[test]
    fn too_low_a_limit_is_told_with_a_number_that_would_do() {
        let place = Place::new();
        let program = env!("CARGO_BIN_EXE_leasehold");
        let script = format!("ulimit -n 48; exec {program} doctor --json");
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(place.path())
            .env_clear()
            .output()
            .expect("the command");
        let answer = serde_json::from_slice(&output.stdout).expect("an object");
        assert_eq!(output.status.code(), Some(3), "{answer}");
        expect(
            &answer,
            "descriptors",
            "error",
            "48 open descriptors are allowed",
        );
    }
}
