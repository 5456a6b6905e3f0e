//! Workers that run some of a file's kinds until there is nothing to do, and what they say in the end.

use serde_json::Value;

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
