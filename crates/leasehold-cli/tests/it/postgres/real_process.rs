//! Workers on one server, of which one is killed.

use std::net::TcpListener;

use rustix::process::Signal;

use super::Ground;
use crate::harness::Place;
use crate::process::{Process, eventually};
use crate::run::{QUICK, item};

/// Each worker takes what it may; nothing ends before the gate is open.
const GATED: &str = r#"
lease = "2s"
capacity = 2
[kinds.WAIT]
command = ["sh", "-c", "until [ -e gate ]; do sleep 0.02; done; echo '{}'"]
"#;

#[test]
fn what_a_killed_worker_held_is_done_by_the_other() {
    let Some(ground) = Ground::with(&format!("{QUICK}{GATED}")) else {
        return;
    };
    let ids: Vec<String> = (0..4).map(|_| ground.enqueue(&["WAIT"])).collect();
    let start = || Process::start(&ground, ground.command(&["run"]));
    let (doomed, other) = (start(), start());
    let all_held = eventually(|| {
        ids.iter()
            .all(|id| item(&ground, id)["status"] == "claimed")
    });
    assert!(all_held, "{}{}", doomed.talk(), other.talk());
    doomed.signal(Signal::KILL);
    ground.file("gate", "");
    let all_done = eventually(|| ids.iter().all(|id| item(&ground, id)["status"] == "done"));
    assert!(all_done, "{}", other.talk());
    let mut attempts: Vec<i64> = ids
        .iter()
        .filter_map(|id| item(&ground, id)["attempts"].as_i64())
        .collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 1, 2, 2], "two were held by each");
    other.signal(Signal::TERM);
    let ended = other.ended();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(ended.talk.contains(": 4 done"), "{}", ended.talk);
}

#[test]
fn a_worker_that_hardly_ever_looks_is_told_of_new_work() {
    let settings = r#"
        [worker]
        poll_interval = "10m"
        [kinds.SEND]
        command = ["sh", "-c", "echo '{}'"]
    "#;
    let Some(ground) = Ground::with(settings) else {
        return;
    };
    let worker = Process::start(&ground, ground.command(&["run"]));
    worker.until_said("listening for work of other processes");
    // It looks once when it listens, so the second is one that it was told of.
    for _ in 0..2 {
        let id = ground.enqueue(&["SEND"]);
        let is_done = eventually(|| item(&ground, &id)["status"] == "done");
        assert!(is_done, "{}", worker.talk());
    }
    let dead = ground.enqueue(&["SEND", "--in", "1h"]);
    ground.run(&["items", "cancel", &dead]);
    ground.run(&["items", "retry", &dead]);
    let is_done = eventually(|| item(&ground, &dead)["status"] == "done");
    assert!(is_done, "{}", worker.talk());
}

#[test]
fn a_worker_that_waits_for_its_server_can_be_asked_to_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    let place = Place::new();
    let url = format!("postgres://ann@{address}/queue");
    let run = place.command(&["run", "SEND", "--database", &url, "--", "true"]);
    let worker = Process::start(&place, run);
    let silent = listener.accept().expect("the worker");
    worker.signal(Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(ended.talk.contains("nothing to do"), "{}", ended.talk);
    drop(silent);
}
