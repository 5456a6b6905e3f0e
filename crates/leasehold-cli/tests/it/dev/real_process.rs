//! The file changes, in every way in which files do, while the worker runs, drains or waits.

use std::fs::{self, File};
use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::Place;
use crate::process::{Process, eventually, running_for};
use crate::run::{QUICK, item};

/// A file whose one kind answers with this number, and what else stands in it.
fn settings(answer: u32, more: &str) -> String {
    format!("{QUICK}{more}\n[kinds.SEND]\ncommand = [\"echo\", '{{\"answer\": {answer}}}']\n")
}

fn place_with(text: impl AsRef<[u8]>) -> Place {
    let place = Place::new();
    place.file("leasehold.toml", text);
    place
}

fn dev(place: &Place, arguments: &[&str]) -> Process {
    let command = place.command(&[&["dev"], arguments].concat());
    let worker = Process::start(place, command);
    worker.until_said("Ctrl-C drains");
    worker
}

/// What the worker answers to an item that is made now.
#[track_caller]
fn answer(place: &Place) -> Value {
    let id = place.enqueue(&["SEND"]);
    assert!(
        eventually(|| item(place, &id)["status"] == "done"),
        "{}",
        item(place, &id)
    );
    item(place, &id)["result"]["answer"].clone()
}

#[track_caller]
fn ends_well(worker: Process, done: u32) {
    worker.signal(Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(
        ended.talk.contains(&format!(": {done} done")),
        "{}",
        ended.talk
    );
}

#[test]
fn a_change_starts_it_anew_with_what_the_file_says_now() {
    let place = place_with(settings(1, ""));
    let worker = dev(&place, &[]);
    assert_eq!(answer(&place), 1);
    place.file("leasehold.toml", settings(22, "name = \"second\""));
    worker.until_said_times(2, "Ctrl-C drains");
    assert!(
        worker.talk().contains("leasehold.toml has changed"),
        "{}",
        worker.talk()
    );
    assert_eq!(answer(&place), 22);
    ends_well(worker, 2);
}

#[test]
fn a_file_in_its_place_counts_though_it_looks_the_same() {
    let place = place_with(settings(1, ""));
    let file = place.path().join("leasehold.toml");
    let modified = fs::metadata(&file).and_then(|file| file.modified());
    let worker = dev(&place, &[]);
    let other = place.file("other.toml", settings(2, ""));
    let opened = File::options().write(true).open(&other).expect("a file");
    opened
        .set_modified(modified.expect("a time"))
        .expect("a time");
    fs::rename(&other, &file).expect("a rename");
    worker.until_said_times(2, "Ctrl-C drains");
    assert_eq!(answer(&place), 2);
    ends_well(worker, 1);
}

/// As a mounted folder of settings is changed: by turning a link.
#[test]
fn a_link_that_leads_elsewhere_counts() {
    let place = Place::new();
    for number in [1, 2] {
        place.file(
            &format!("{number}/leasehold.toml"),
            settings(number, "").replace(QUICK, &format!("database = \"../leasehold.db\"{QUICK}")),
        );
    }
    std::os::unix::fs::symlink("1", place.path().join("now")).expect("a link");
    let worker = dev(
        &place,
        &[
            "--config",
            "now/leasehold.toml",
            "--database",
            "leasehold.db",
        ],
    );
    assert_eq!(answer(&place), 1);
    std::os::unix::fs::symlink("2", place.path().join("next")).expect("a link");
    fs::rename(place.path().join("next"), place.path().join("now")).expect("a rename");
    worker.until_said_times(2, "Ctrl-C drains");
    assert_eq!(answer(&place), 2);
    ends_well(worker, 2);
}

/// The file is not the one that the other commands of the case would stumble over.
#[test]
fn a_file_that_is_wrong_or_gone_is_told_of_and_the_worker_goes_on() {
    let place = Place::new();
    let file = place.file("dev.toml", settings(1, ""));
    let worker = dev(
        &place,
        &["--config", "dev.toml", "--database", "leasehold.db"],
    );
    let wrongs = [
        ("[kinds.SEND", "dev.toml:1"),
        (
            "[worker]\ncapacty = 3\n[kinds.SEND]\ncommand = [\"true\"]",
            "capacity",
        ),
        (QUICK, "no kind of work has a command any more"),
    ];
    for (number, (text, told)) in wrongs.into_iter().enumerate() {
        place.file("dev.toml", text);
        worker.until_said_times(number + 1, "going on as before");
        assert!(worker.talk().contains(told), "{told}: {}", worker.talk());
        assert_eq!(answer(&place), 1);
    }
    fs::remove_file(&file).expect("a file");
    worker.until_said("dev.toml is gone; going on as before");
    assert_eq!(answer(&place), 1);
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).expect("a pipe");
    worker.until_said("it is a pipe, and a regular file is needed");
    assert_eq!(answer(&place), 1);
    fs::remove_file(file).expect("a pipe");
    place.file("dev.toml", settings(2, ""));
    worker.until_said_times(2, "Ctrl-C drains");
    assert_eq!(answer(&place), 2);
    ends_well(worker, 6);
}

/// The port of all lanes is free again for the next workers, and a taken one is waited for.
#[test]
fn a_start_that_does_not_work_is_tried_again_until_it_does() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let free = free.expect("an address");
    let with_port = |answer: u32, port: &dyn std::fmt::Display| {
        settings(
            answer,
            &format!("health = \"{port}\"\n[lanes.mail]\ncapacity = 1"),
        )
    };
    let place = place_with(with_port(1, &free));
    let worker = dev(&place, &[]);
    assert_eq!(answer(&place), 1);
    place.file("leasehold.toml", with_port(2, &free));
    worker.until_said_times(2, "Ctrl-C drains");
    assert!(
        !worker.talk().contains("error:"),
        "its own port is in its way: {}",
        worker.talk()
    );

    let address = taken.local_addr().expect("an address");
    place.file("leasehold.toml", with_port(3, &address));
    worker.until_said("trying again until it works");
    assert!(
        worker.talk().contains(&address.to_string()),
        "{}",
        worker.talk()
    );
    drop(taken);
    worker.until_said_times(3, "Ctrl-C drains");
    assert_eq!(
        worker.talk().matches("error:").count(),
        1,
        "told once: {}",
        worker.talk()
    );
    assert_eq!(answer(&place), 3);

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    place.file(
        "leasehold.toml",
        with_port(4, &taken.local_addr().expect("an address")),
    );
    worker.until_said_times(2, "trying again until it works");
    place.file("leasehold.toml", with_port(5, &free));
    worker.until_said_times(4, "Ctrl-C drains");
    assert_eq!(answer(&place), 5);

    place.file(
        "leasehold.toml",
        with_port(6, &taken.local_addr().expect("an address")),
    );
    worker.until_said_times(3, "trying again until it works");
    ends_well(worker, 3);
}

/// What is written while the worker drains for an earlier change counts, and what it held is done then.
#[test]
fn a_change_during_the_drain_is_not_missed() {
    let stubborn = format!(
        "{QUICK}drain_timeout = \"1500ms\"\n[kinds.SEND]\n\
         command = [\"sh\", \"-c\", '''trap \"\" TERM; while :; do sleep 1; done''']"
    );
    let place = place_with(&stubborn);
    let worker = dev(&place, &[]);
    let id = place.enqueue(&["SEND"]);
    assert!(eventually(|| !running_for(&id).is_empty()));
    place.file("leasehold.toml", settings(1, ""));
    worker.until_said("stopping a run");
    place.file("leasehold.toml", settings(222, ""));
    worker.until_said_times(3, "Ctrl-C drains");
    assert!(eventually(|| item(&place, &id)["status"] == "done"));
    assert_eq!(
        item(&place, &id)["attempts"],
        1,
        "the first was handed back"
    );
    assert_eq!(answer(&place), 222);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
}

#[test]
fn asked_to_stop_while_it_drains_for_a_change_it_ends() {
    let stubborn = format!(
        "{QUICK}drain_timeout = \"1h\"\n[kinds.SEND]\n\
         command = [\"sh\", \"-c\", '''trap \"\" TERM; while :; do sleep 1; done''']"
    );
    let place = place_with(&stubborn);
    let worker = dev(&place, &[]);
    let id = place.enqueue(&["SEND"]);
    assert!(eventually(|| !running_for(&id).is_empty()));
    place.file("leasehold.toml", settings(1, ""));
    worker.until_said("stopping a run");
    worker.signal(Signal::INT);
    let ended = worker.ended();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(ended.talk.contains(": 1 released"), "{}", ended.talk);
    assert_eq!(running_for(&id), Vec::<i32>::new());
    assert_eq!(item(&place, &id)["status"], "queued");
}

#[test]
fn as_objects_every_line_is_one_and_the_summary_is_of_all_workers() {
    let place = place_with(settings(1, ""));
    let worker = Process::start(
        &place,
        place.command(&["dev", "--json", "--health", "127.0.0.1:0"]),
    );
    worker.until_said("are served");
    assert_eq!(answer(&place), 1);
    place.file("leasehold.toml", "[worker");
    worker.until_said("going on as before");
    place.file("leasehold.toml", settings(22, ""));
    worker.until_said_times(2, "are served");
    assert_eq!(answer(&place), 22);
    worker.signal(Signal::TERM);
    let ended = worker.ended();
    let summary: Value = serde_json::from_str(&ended.out).expect("an object");
    assert_eq!(summary["finished"]["done"], 2, "{summary}");
    assert_eq!(summary["worker"].as_array().map(Vec::len), Some(2));
    for line in ended.talk.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}
