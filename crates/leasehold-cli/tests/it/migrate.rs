//! Databases that are missing, behind, ahead, or none.

use rusqlite::Connection;

use crate::harness::Place;

const NOBODY: &str = "0197c2f4-7d0a-7000-8000-0123456789ab";

/// Every command that works on what is there.
const READERS: &[&[&str]] = &[
    &["items", "list"],
    &["items", "show", NOBODY],
    &["items", "explain", NOBODY],
    &["items", "retry", NOBODY],
    &["items", "cancel", NOBODY],
    &["migrate", "status", "--check"],
];

#[test]
fn a_missing_database_is_not_created_by_looking_at_it() {
    let place = Place::new();
    for command in READERS {
        let talk = place.refused(4, command);
        assert!(talk.contains("leasehold.db"), "{talk}");
        assert!(talk.contains("leasehold migrate"), "{talk}");
    }
    assert!(!place.path().join("leasehold.db").exists());
}

#[test]
fn migrate_creates_and_then_has_nothing_to_do() {
    let place = Place::new();
    let first = place.json(&["migrate"]);
    let all = first["migrations"].as_array().expect("migrations").len();
    assert_eq!(first["applied"].as_array().map(Vec::len), Some(all));
    let second = place.json(&["migrate"]);
    assert_eq!(second["applied"].as_array().map(Vec::len), Some(0));
    let status = place.run(&["migrate", "status", "--check"]);
    assert_eq!((status.code, status.out.lines().count()), (0, all));
}

#[test]
fn a_database_that_is_behind_is_told_and_left_as_it_is() {
    let place = Place::new();
    place.file("leasehold.db", "");
    let status = place.run(&["migrate", "status", "--check"]);
    assert_eq!(status.code, 3, "{}", status.talk);
    assert!(status.out.contains("pending"), "{}", status.out);
    assert_eq!(place.run(&["migrate", "status"]).code, 0);
    for command in [&["items", "list"][..], &["enqueue", "SEND"]] {
        let talk = place.refused(4, command);
        assert!(talk.contains("try: run `leasehold migrate`"), "{talk}");
    }
    assert_eq!(place.run(&["migrate"]).code, 0);
    place.enqueue(&["SEND"]);
}

#[test]
fn a_database_from_the_future_is_refused() {
    let place = Place::new();
    place.enqueue(&["SEND"]);
    let db = Connection::open(place.path().join("leasehold.db")).expect("the file");
    db.execute(
        "INSERT INTO leasehold_migrations (version, name, checksum, applied_at, took)
         SELECT max(version) + 1, 'future', 'x', 0, 0 FROM leasehold_migrations",
        (),
    )
    .expect("a later version");
    for command in [&["items", "list"][..], &["enqueue", "SEND"], &["migrate"]] {
        let talk = place.refused(4, command);
        assert!(talk.contains("upgrade this program"), "{talk}");
    }
}

#[test]
fn what_is_no_database_is_refused() {
    let place = Place::new();
    let text = "this is a letter, and no database at all. ".repeat(100);
    place.file("letter.txt", &text);
    for url in ["letter.txt", ".", "nowhere/leasehold.db"] {
        let talk = place.refused(4, &["enqueue", "SEND", "--database", url]);
        assert!(talk.contains(url.trim_start_matches("./")), "{talk}");
    }
    let kept = std::fs::read_to_string(place.path().join("letter.txt")).expect("the letter");
    assert_eq!(kept, text);
}

#[test]
fn a_folder_that_is_not_there_is_named_by_every_command() {
    let place = Place::new();
    place.file("plain", "");
    let makers: &[&[&str]] = &[
        &["migrate"],
        &["enqueue", "SEND"],
        &["run", "A", "--", "true"],
    ];
    for command in READERS.iter().chain(makers) {
        for (url, what) in [
            ("no/such/queue.db", "the folder no/such is not there"),
            ("plain/queue.db", "plain is no folder"),
        ] {
            let given: Vec<&str> = [&["--database", url], *command].concat();
            let talk = place.refused(4, &given);
            assert!(talk.contains(what) && talk.contains(url), "{talk}");
            assert!(talk.contains("--database"), "{talk}");
        }
    }
}

#[test]
fn a_url_of_another_database_is_refused_without_its_password() {
    let place = Place::new();
    let talk = place.refused(
        4,
        &["items", "list", "--database", "mysql://ann:secret@db/queue"],
    );
    assert!(talk.contains("mysql: is no database"), "{talk}");
    assert!(!talk.contains("secret"), "{talk}");
    place.refused(2, &["items", "list", "--database", ""]);
}

#[test]
fn a_file_has_no_schemas_and_nothing_to_print() {
    let place = Place::new();
    let talk = place.refused(2, &["migrate", "--schema", "jobs"]);
    assert!(talk.contains("leave --schema out"), "{talk}");
    let talk = place.refused(2, &["migrate", "print"]);
    assert!(talk.contains("run `leasehold migrate`"), "{talk}");
}
