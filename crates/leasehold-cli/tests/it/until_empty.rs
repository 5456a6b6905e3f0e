//! Workers that run some of a file's kinds until there is nothing to do, and what they say in the end.

use serde_json::Value;

use crate::process::Process;
use crate::run::{item, place_of};

const THREE: &str = r#"
[kinds.SEND]
command = ["sh", "-c", "echo '{}'"]
[kinds.RENDER]
command = ["sh", "-c", "echo '{}'"]
[kinds.CLEAN]
command = ["sh", "-c", "echo '{}'"]
"#;

#[test]
fn several_kinds_of_the_file_can_be_picked() {
    let place = place_of(THREE);
    let ids = ["SEND", "RENDER", "CLEAN"].map(|kind| place.enqueue(&[kind]));
    let ended = place.run(&["run", "--until-empty", "SEND", "CLEAN"]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(
        ended.talk.contains("runs CLEAN, SEND from"),
        "{}",
        ended.talk
    );
    let statuses: Vec<Value> = ids
        .iter()
        .map(|id| item(&place, id)["status"].clone())
        .collect();
    assert_eq!(statuses, ["done", "queued", "done"]);
}

#[test]
fn a_command_needs_exactly_one_kind_and_each_name_must_be_known() {
    let place = place_of(THREE);
    let talk = place.refused(2, &["run", "SEND", "CLEAN", "--", "true"]);
    assert!(talk.contains("one kind"), "{talk}");
    let talk = place.refused(2, &["run", "SEND", "RENDERS"]);
    assert!(
        talk.contains("RENDERS") && talk.contains("did you mean RENDER?"),
        "{talk}"
    );
    let talk = place.refused(2, &["run", "SEND", "XYZ"]);
    assert!(talk.contains("leasehold run XYZ -- "), "{talk}");
}

#[test]
fn the_last_line_says_what_was_done() {
    let place = place_of(&format!(
        "{THREE}[kinds.BROKEN]\ncommand = [\"sh\", \"-c\", \"exit 9\"]\n"
    ));
    for kind in ["SEND", "SEND", "BROKEN"] {
        place.enqueue(&[kind]);
    }
    let last_line = || {
        let ended = place.run(&["run", "--until-empty"]);
        assert_eq!(ended.code, 0, "{}", ended.talk);
        ended.talk.lines().last().expect("a line").to_owned()
    };
    let line = last_line();
    assert!(line.starts_with("ended after "), "{line}");
    assert!(line.ends_with(": 2 done, 1 failed"), "{line}");
    let line = last_line();
    assert!(line.ends_with(": nothing to do"), "{line}");
}

#[test]
fn due_items_that_nobody_here_has_a_handler_for_are_told_of() {
    let place = place_of(THREE);
    place.enqueue(&["SEND"]);
    let run = ["run", "--until-empty"];
    assert_eq!(place.json(&run)["unhandled"], 0);
    for arguments in [
        ["SENT"].as_slice(),
        &["SENT"],
        &["SEND", "--lane", "slow"],
        // Neither due nor of a kind that is known: its time may bring a handler.
        &["SENT", "--in", "1h"],
    ] {
        place.enqueue(arguments);
    }
    let ended = place.run(&run);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let told = "3 due items have no handler here: SEND on slow, SENT on default";
    assert_eq!(ended.talk.lines().last(), Some(told), "{}", ended.talk);
    assert_eq!(place.json(&run)["unhandled"], 3);
    let ended = place.run(&["run", "--until-empty", "SEND", "--lanes", "default,slow"]);
    let told = "2 due items have no handler here: SENT on default";
    assert_eq!(ended.talk.lines().last(), Some(told), "{}", ended.talk);
}

#[test]
fn a_dead_letter_of_the_run_fails_it_if_that_is_asked_for() {
    let place = place_of(&format!(
        "{THREE}[kinds.BROKEN]\ncommand = [\"sh\", \"-c\", \"exit 9\"]\n"
    ));
    let run = ["run", "--until-empty", "--fail-on-dead"];
    // One that will be tried again is not dead.
    place.enqueue(&["BROKEN"]);
    place.enqueue(&["SEND"]);
    let ended = place.run(&run);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    place.enqueue(&["BROKEN", "--max-attempts", "1"]);
    let ended = place.run(&run);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.talk);
    assert!(ended.talk.contains(": 1 dead\n"), "{}", ended.talk);
    let told = ended.talk.lines().last().unwrap_or_default();
    assert!(
        told.contains("`leasehold items list --status failed`"),
        "{told}"
    );
    // Those of earlier runs are not this one's.
    assert_eq!(place.run(&run).code, 0);
    place.enqueue(&["BROKEN", "--max-attempts", "1"]);
    let ended = place.run(&[run.as_slice(), &["--json"]].concat());
    assert_eq!(ended.code, 1, "{}", ended.talk);
    let summary: Value = serde_json::from_str(&ended.out).expect("an object");
    assert_eq!(summary["finished"]["dead"], 1, "{summary}");
    place.enqueue(&["BROKEN", "--max-attempts", "1"]);
    assert_eq!(place.run(&run[..2]).code, 0, "unless it is asked for");
}

#[test]
fn a_dead_letter_that_the_sweep_makes_fails_the_run_as_well() {
    let place = place_of(
        r#"
        [kinds.WAIT]
        command = ["sh", "-c", "until [ -e gate ]; do sleep 0.02; done; echo '{}'"]
        [kinds.LOST]
        command = ["true"]
        "#,
    );
    let lost = place.enqueue(&["LOST", "--max-attempts", "1"]);
    let db = rusqlite::Connection::open(place.path().join("leasehold.db")).expect("the file");
    // As a worker leaves it that was killed long ago.
    let changed = db.execute(
        "UPDATE work_items SET status = 'claimed', attempts = 1, claim_seq = 1,
             claim_token = randomblob(16), claimed_by = 'gone', lease_expires_at = 1",
        (),
    );
    assert_eq!(changed.expect("a claim"), 1);
    place.enqueue(&["WAIT"]);
    let run = place.command(&["run", "--until-empty", "--fail-on-dead"]);
    let worker = Process::start(&place, run);
    worker.until_said("dead letter: its worker was lost");
    place.file("gate", "");
    let ended = worker.ended();
    assert_eq!(ended.code, 1, "{}", ended.talk);
    assert!(ended.talk.contains(": 1 done\n"), "{}", ended.talk);
    assert_eq!(item(&place, &lost)["status"], "failed");
}
