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
