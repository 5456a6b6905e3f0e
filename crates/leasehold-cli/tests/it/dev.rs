//! A worker that is started anew when its file of settings changes.

use crate::harness::Place;
use crate::run::QUICK;

mod real_process;

#[test]
fn without_a_file_to_watch_or_anything_to_run_it_says_what_to_do() {
    let place = Place::new();
    let talk = place.refused(2, &["dev"]);
    assert!(talk.contains("leasehold.toml"), "{talk}");
    let talk = place.refused(2, &["dev", "--config", "gone.toml"]);
    assert!(talk.contains("gone.toml"), "{talk}");
    place.file("leasehold.toml", QUICK);
    let talk = place.refused(2, &["dev"]);
    assert!(talk.contains("[kinds.HELLO]"), "{talk}");
    place.file(
        "leasehold.toml",
        "[kinds.SEND]\ncommand = [\"true\"]\n[worker]\nlease = \"never\"",
    );
    assert_eq!(place.run(&["dev"]).code, 2);
}
