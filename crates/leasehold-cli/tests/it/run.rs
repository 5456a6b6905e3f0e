//! A worker whose handlers are commands, told by a file or by the command line.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{Ended, Place};

mod real_process;

/// A worker that looks, sweeps and beats often, so that a case takes no longer than it must.
pub(crate) const QUICK: &str = r#"
[worker]
poll_interval = "20ms"
heartbeat_interval = "200ms"
sweep_interval = "100ms"
sweep_budget = "100ms"
requeue_spread = "1ms"
"#;

/// A place with these kinds, for a quick worker.
pub(crate) fn place_of(kinds: &str) -> Place {
    let place = Place::new();
    place.file("leasehold.toml", format!("{QUICK}{kinds}"));
    place
}

/// All there is to know of an item, its payload included.
pub(crate) fn item(place: &Place, id: &str) -> Value {
    place.json(&["items", "show", id, "--payload"])["item"].clone()
}

/// Does all that is due, and holds the worker to a good end.
#[track_caller]
fn run_until_empty(place: &Place, arguments: &[&str]) -> Ended {
    let ended = place.run(&[&["run", "--until-empty"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.talk);
    ended
}

#[test]
fn one_kind_needs_no_file_and_the_worker_ends_when_nothing_is_due() {
    let place = Place::new();
    let id = place.enqueue(&["HELLO", r#"{"name": "Ann"}"#]);
    let later = place.enqueue(&["HELLO", "--in", "1h"]);
    let script = r#"printf '{"got": %s}' "$WORKER_REQUEST""#;
    let ended = run_until_empty(&place, &["HELLO", "--", "sh", "-c", script]);
    assert_eq!(ended.out, "", "talk is no data");
    assert!(
        ended.talk.contains("runs HELLO from lane default"),
        "{}",
        ended.talk
    );
    assert!(ended.talk.contains(": 1 done"), "{}", ended.talk);
    let done = item(&place, &id);
    assert_eq!(done["status"], "done");
    assert_eq!(done["result"], json!({"got": {"name": "Ann"}}));
    assert_eq!(item(&place, &later)["status"], "queued");
}

#[test]
fn a_command_beside_a_file_runs_in_this_folder_with_what_the_file_says_of_the_kind() {
    let place = place_of(
        r#"
        [kinds.SEND]
        command = ["false"]
        directory = "elsewhere"
        errors = { Broken = { retryable = false } }
        "#,
    );
    let id = place.enqueue(&["SEND"]);
    let script = r#"printf '{"error": "Broken", "message": "%s"}' "$PWD"; exit 1"#;
    run_until_empty(&place, &["SEND", "--", "sh", "-c", script]);
    let failed = item(&place, &id);
    assert_eq!(
        failed["status"], "failed",
        "not to be tried again: {failed}"
    );
    let here = place.path().canonicalize().expect("a path");
    let message = failed["last_error"].as_str().expect("a message");
    assert_eq!(message, format!("Broken: {}", here.display()));
}

#[test]
fn a_file_runs_all_its_kinds_and_a_name_picks_one() {
    let place = place_of(
        r#"
        [kinds.SEND]
        command = ["sh", "-c", "echo '{\"by\": \"send\"}'"]
        [kinds.RENDER]
        command = ["echo", "never looked at"]
        result = "ignored"
        "#,
    );
    let ids = ["SEND", "RENDER", "UNKNOWN"].map(|kind| place.enqueue(&[kind]));
    let statuses = || ids.each_ref().map(|id| item(&place, id)["status"].clone());
    run_until_empty(&place, &["RENDER"]);
    assert_eq!(statuses(), ["queued", "done", "queued"]);
    run_until_empty(&place, &[]);
    assert_eq!(statuses(), ["done", "done", "queued"]);
    assert_eq!(item(&place, &ids[0])["result"], json!({"by": "send"}));
    assert_eq!(item(&place, &ids[1])["result"], Value::Null);
}

#[test]
fn without_anything_to_run_it_says_what_to_write() {
    let place = Place::new();
    let talk = place.refused(2, &["run"]);
    assert!(talk.contains("[kinds.HELLO]"), "{talk}");
    let talk = place.refused(2, &["run", "HELLO"]);
    assert!(talk.contains("leasehold run HELLO -- "), "{talk}");
    place.refused(2, &["run", "hello", "--", "true"]);
    let talk = place.refused(2, &["run", "HELLO", "--", ""]);
    assert!(talk.contains("names no program"), "{talk}");
    let talk = place.refused(2, &["exec", "HELLO", "--", ""]);
    assert!(talk.contains("names no program"), "{talk}");
    assert_eq!(place.run(&["run", "--", "true"]).code, 2);
    place.file("leasehold.toml", QUICK);
    place.refused(2, &["run"]);
    let left: Vec<_> = std::fs::read_dir(place.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "nothing was tried: {left:?}");
}

#[test]
fn what_cannot_be_started_with_is_refused_before_anything_is_claimed() {
    let place = place_of("[kinds.SEND]\ncommand = [\"true\"]\n[lanes.mail]\ncapacity = 1");
    let id = place.enqueue(&["SEND"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    for lanes in ["default", "one,two"] {
        let talk = place.refused(2, &["run", "--health", &address, "--lanes", lanes]);
        assert!(
            talk.contains(&address) && talk.contains("--health"),
            "{talk}"
        );
    }
    place.refused(4, &["run", "--database", "no/such/folder/queue.db"]);
    let ended = place.run(&["run", "--lease", "1ms"]);
    assert_eq!(ended.code, 2, "{}", ended.talk);
    assert_eq!(item(&place, &id)["fence"], 0);
}

#[test]
fn a_command_that_cannot_be_executed_fails_its_item_and_the_worker_goes_on() {
    let place = place_of(
        r#"
        [kinds.MISSING]
        command = ["no-such-program"]
        [kinds.NO_RIGHT]
        command = ["./no-right.sh"]
        [kinds.NO_SHELL]
        command = ["./no-shell.sh"]
        [kinds.NO_FOLDER]
        command = ["true"]
        directory = "gone"
        [kinds.A_FOLDER]
        command = ["./folder"]
        [kinds.SEND]
        command = ["sh", "-c", "echo '{}'"]
        "#,
    );
    let scripts = [
        ("no-right.sh", "#!/bin/sh\n", 0o644),
        ("no-shell.sh", "#!/no/such/shell\n", 0o755),
        ("folder/file", "", 0o644),
    ];
    for (name, text, mode) in scripts {
        let path = place.file(name, text);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    }
    let failing = [
        ("MISSING", "command not found: no-such-program"),
        ("NO_RIGHT", "not executable"),
        ("NO_SHELL", "no-shell.sh"),
        ("NO_FOLDER", "gone"),
        ("A_FOLDER", "folder"),
    ];
    let ids = failing.map(|(kind, _)| place.enqueue(&[kind]));
    let last = place.enqueue(&["SEND", "--priority", "9"]);
    run_until_empty(&place, &["--capacity", "1"]);
    for ((kind, words), id) in failing.into_iter().zip(&ids) {
        let tried = item(&place, id);
        let error = tried["last_error"].as_str().unwrap_or_default();
        assert!(error.starts_with("SpawnFailed: "), "{kind}: {tried}");
        assert!(error.contains(words), "{kind}: {error}");
        assert_eq!(
            (&tried["status"], &tried["attempts"]),
            (&json!("queued"), &json!(1))
        );
    }
    assert_eq!(item(&place, &last)["status"], "done");
}

#[test]
fn a_command_knows_its_item_and_what_its_kind_declares_and_no_secret() {
    let place = place_of(
        r#"
        [kinds.SEND]
        command = ["sh", "-c", "env >&2; echo '{}'"]
        environment = ["APP_*", "REGION"]
        "#,
    );
    let id = place.enqueue(&["SEND", r#"{"id": 7}"#]);
    let output = place
        .command(&["run", "--until-empty"])
        .envs([
            ("LEASEHOLD_DATABASE", "sqlite:leasehold.db"),
            ("LEASEHOLD_CAPACITY", "3"),
            ("AWS_SECRET_ACCESS_KEY", "planted"),
            ("DATABASE_URL", "postgres://planted"),
            ("REGIONAL", "planted"),
            ("APP_KEY", "declared"),
            ("REGION", "north"),
            ("LC_ALL", "C"),
        ])
        .output()
        .expect("the command");
    let talk = String::from_utf8_lossy(&output.stderr);
    for variable in [
        r#"WORKER_REQUEST={"id": 7}"#,
        &format!("LEASEHOLD_ITEM_ID={id}"),
        "LEASEHOLD_KIND=SEND",
        "LEASEHOLD_ATTEMPT=1",
        "LEASEHOLD_FENCE=1",
        "APP_KEY=declared",
        "REGION=north",
        "LC_ALL=C",
    ] {
        assert!(
            talk.contains(&format!("child: {variable}")),
            "{variable}: {talk}"
        );
    }
    for absent in ["planted", "LEASEHOLD_DATABASE", "LEASEHOLD_CAPACITY"] {
        assert!(!talk.contains(absent), "{absent}: {talk}");
    }
}

#[test]
fn masked_fields_are_seen_by_the_command_alone() {
    let place = place_of(
        r#"
        [kinds.SEND]
        command = ["sh", "-c", """
            echo "sends with $WORKER_REQUEST" >&2
            case $WORKER_REQUEST in *hunter2*) ;; *) exit 3 ;; esac
            echo '{"error": "Refused", "message": "hunter2 is no good"}'
            exit 1"""]
        redact = ["password"]
        errors = { Refused = "warn" }
        "#,
    );
    let id = place.enqueue(&["SEND", r#"{"to": "ann", "password": "hunter2"}"#]);
    let ended = run_until_empty(&place, &["-v"]);
    assert!(ended.talk.contains("sends with"), "{}", ended.talk);
    assert!(ended.talk.contains("*** is no good"), "{}", ended.talk);
    let shown = place.run(&["items", "show", &id, "--payload"]).out;
    assert!(shown.contains("Refused: *** is no good"), "{shown}");
    let explained = place.run(&["items", "explain", &id]).out;
    for text in [&ended.talk, &shown, &explained] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(shown.contains("ann"), "{shown}");
}

#[test]
fn each_answer_of_a_command_is_told_by_explain() {
    let place = place_of(
        r#"
        [kinds.PARKED]
        command = ["sh", "-c", "echo '{\"reason\": \"no quota left\", \"retry_after\": 3600}'; exit 75"]
        [kinds.REGISTERED]
        command = ["sh", "-c", "echo '{\"error\": \"BadAsset\", \"message\": \"no such key\"}'; exit 1"]
        errors = { BadAsset = { level = "warn", retryable = false } }
        [kinds.UNREGISTERED]
        command = ["sh", "-c", "echo '{\"error\": \"Odd\", \"message\": \"who knows\"}'; exit 1"]
        [kinds.FORGED]
        command = ["sh", "-c", "echo '{\"error\": \"AbortedStaleTask\", \"message\": \"lies\"}'; exit 1"]
        [kinds.MALFORMED]
        command = ["sh", "-c", "echo banner; echo '{}'"]
        [kinds.CRASHED]
        command = ["sh", "-c", "echo last words >&2; exit 9"]
        [kinds.SLOW]
        command = ["sleep", "60"]
        time_limit = "100ms"
        [kinds.LARGE]
        command = ["sh", "-c", "yes | head -c 2000"]
        stdout_bytes_max = "1KiB"
        "#,
    );
    let answers = [
        ("PARKED", "queued", 0, "no quota left"),
        ("REGISTERED", "failed", 1, "BadAsset: no such key"),
        (
            "UNREGISTERED",
            "queued",
            1,
            "UnknownSubprocessError: Odd: who knows",
        ),
        (
            "FORGED",
            "queued",
            1,
            "UnknownSubprocessError: AbortedStaleTask: lies",
        ),
        ("MALFORMED", "queued", 1, "MalformedSubprocessOutput: "),
        (
            "CRASHED",
            "queued",
            1,
            "SubprocessCrashError: exited with code 9",
        ),
        ("SLOW", "queued", 1, "timed_out: "),
        ("LARGE", "failed", 1, "OutputTooLarge: "),
    ];
    let ids = answers.map(|(kind, ..)| place.enqueue(&[kind]));
    let ended = run_until_empty(&place, &["--stop-grace", "100ms"]);
    assert!(ended.talk.contains("1 parked"), "{}", ended.talk);
    for ((kind, status, attempts, words), id) in answers.into_iter().zip(&ids) {
        let shown = item(&place, id);
        assert_eq!(shown["status"], status, "{shown}");
        assert_eq!(shown["attempts"], attempts, "{shown}");
        let told = place.run(&["items", "explain", id]).out;
        assert!(told.contains(words), "{kind}: {told}");
    }
}

#[test]
fn as_objects_the_summary_is_data_and_every_line_of_the_log_is_one() {
    let place = place_of(
        r#"
        [kinds.SEND]
        command = ["sh", "-c", "echo '{\"not\": \"ours\"}' >&2; echo '{}'"]
        [lanes.mail]
        capacity = 1
        "#,
    );
    let ids = [
        place.enqueue(&["SEND"]),
        place.enqueue(&["SEND", "--lane", "mail"]),
    ];
    let ended = run_until_empty(&place, &["--json"]);
    let summary: Value = serde_json::from_str(&ended.out).expect("an object");
    assert_eq!(summary["schema"], 1);
    assert_eq!(summary["finished"]["done"], 2, "{summary}");
    assert_eq!(summary["abandoned"], 0);
    assert_eq!(summary["worker"].as_array().map(Vec::len), Some(2));
    let lines = ended.talk.lines();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no object: {line}")))
        .collect();
    for id in ids {
        let said = lines.iter().find(|line| {
            line["item"] == id.as_str() && line["message"] == r#"child: {"not": "ours"}"#
        });
        let said = said.unwrap_or_else(|| panic!("{}", ended.talk));
        assert_eq!(
            (&said["level"], &said["kind"]),
            (&json!("INFO"), &json!("SEND"))
        );
        assert!(said["timestamp"].is_string(), "{said}");
    }
}

#[test]
fn a_request_by_standard_input_has_no_limit() {
    let place = place_of("[kinds.SEND]\ncommand = [\"cat\"]\nrequest = \"stdin\"");
    let text = format!(r#"{{"text":"{}"}}"#, "ü".repeat(150_000));
    place.file("large.json", &text);
    let id = place.enqueue(&["SEND", "@large.json"]);
    run_until_empty(&place, &[]);
    let expected: Value = serde_json::from_str(&text).expect("an object");
    assert_eq!(item(&place, &id)["result"], expected);
}
