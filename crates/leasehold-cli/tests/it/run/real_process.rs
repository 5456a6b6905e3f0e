//! Workers that are signalled, killed or replaced while their commands run.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use rustix::process::{Pid, Signal, kill_process};

use super::{item, place_of, run_until_empty};
use crate::harness::Place;
use crate::process::{Process, Seen, eventually, running_for};

/// Waits for a file, and with it for the case; a shell that is started by `sh -c`.
const GATED: &str = "until [ -e gate ]; do sleep 0.02; done; echo '{}'";

/// Says that it is there, and ends by nothing but a kill, with a child that is in a session of its own.
const STUBBORN: &str = "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & \
                        touch here; while :; do sleep 1; done";

fn start(place: &Place, arguments: &[&str]) -> Process {
    Process::start(place, place.command(&[&["run"], arguments].concat()))
}

#[track_caller]
fn until_exists(place: &Place, name: &str) {
    assert!(eventually(|| place.path().join(name).exists()), "{name}");
}

#[track_caller]
fn until_status(place: &Place, id: &str, status: &str) {
    let reached = eventually(|| item(place, id)["status"] == status);
    assert!(reached, "{}", item(place, id));
}

/// What the worker was given back of an item that ran: nothing was spent, nothing of it runs.
#[track_caller]
fn assert_handed_back(place: &Place, id: &str) {
    let item = item(place, id);
    assert_eq!(item["status"], "queued", "{item}");
    assert_eq!(item["attempts"], 0, "{item}");
    assert_eq!(item["fence"], 1, "{item}");
    assert_eq!(item["last_error"], "worker stopping", "{item}");
    assert_eq!(running_for(id), Vec::<i32>::new(), "{item}");
}

#[test]
fn a_lane_with_its_own_capacity_neither_waits_nor_keeps_waiting() {
    let place = place_of(
        r#"
        capacity = 3
        name = "mill"
        health = "127.0.0.1:0"
        [lanes.slow]
        capacity = 1
        [kinds.FAST]
        command = ["sh", "-c", "echo + >> fast; until [ -e gate ]; do sleep 0.02; done; echo '{}'"]
        [kinds.SLOW]
        lane = "slow"
        command = ["sh", "-c", "mkdir alone || exit 9; echo + >> slow; until [ -e gate ]; do sleep 0.02; done; rmdir alone; echo '{}'"]
        "#,
    );
    let kinds = ["SLOW", "SLOW", "FAST", "FAST", "FAST", "FAST"];
    let ids = kinds.map(|kind| place.enqueue(&[kind]));
    let worker = start(&place, &[]);
    let lines = |name: &str| {
        let text = std::fs::read_to_string(place.path().join(name)).unwrap_or_default();
        text.lines().count()
    };
    assert!(
        eventually(|| (lines("slow"), lines("fast")) == (1, 3)),
        "{}",
        worker.talk()
    );
    let claimed = place.json(&["items", "list", "--status", "claimed"]);
    assert_eq!(claimed["items"].as_array().map(Vec::len), Some(4));

    let (_, rest) = worker
        .talk()
        .split_once("are served address=")
        .map(|(before, rest)| (before.to_owned(), rest.to_owned()))
        .expect("the port");
    let address = rest.split_whitespace().next().expect("the port");
    assert_eq!(place.run(&["health", "--address", address]).out, "ok\n");
    let mut stream = TcpStream::connect(address).expect("the port");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    for name in ["mill", "mill-slow"] {
        assert!(
            page.contains(&format!("worker=\"{name}\"")),
            "{name}: {page}"
        );
    }
    let types = page.lines().filter(|line| line.starts_with("# TYPE"));
    let types: Vec<&str> = types.collect();
    let told: BTreeSet<&str> = types.iter().copied().collect();
    assert_eq!(types.len(), told.len(), "told twice: {page}");

    place.file("gate", "");
    for id in &ids {
        until_status(&place, id, "done");
        assert_eq!(
            item(&place, id)["attempts"],
            1,
            "two of the slow ones ran at once"
        );
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
}

#[test]
fn each_way_to_ask_for_an_end_hands_back_what_runs() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = place_of(&format!(
            "drain_timeout = \"300ms\"\n[kinds.SEND]\ncommand = [\"sh\", \"-c\", '''{STUBBORN}''']"
        ));
        let id = place.enqueue(&["SEND"]);
        let worker = start(&place, &[]);
        until_exists(&place, "here");
        assert!(eventually(|| running_for(&id).len() >= 3));
        worker.signal(signal);
        let ended = worker.ended();
        assert_eq!(ended.code, 0, "{}", ended.talk);
        assert!(ended.talk.contains(": 1 released"), "{}", ended.talk);
        assert_handed_back(&place, &id);
    }
}

#[test]
fn a_command_that_listens_may_finish_while_the_worker_drains() {
    let place = place_of(
        r#"
        [kinds.SEND]
        command = ["sh", "-c", "trap 'echo {}; exit 0' TERM; touch here; while :; do sleep 0.02; done"]
        "#,
    );
    let id = place.enqueue(&["SEND"]);
    let worker = start(&place, &[]);
    until_exists(&place, "here");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
    assert_eq!(item(&place, &id)["status"], "done");
}

/// Each lane's worker drains by itself: the first that has nothing left must not cut short the others.
#[test]
fn every_lane_has_its_whole_drain() {
    let place = place_of(&format!(
        "drain_timeout = \"2s\"\n[lanes.slow]\ncapacity = 1\n\
         [kinds.SEND]\ncommand = [\"sh\", \"-c\", '''{STUBBORN}''']\nlane = \"slow\""
    ));
    let id = place.enqueue(&["SEND"]);
    let worker = start(&place, &[]);
    until_exists(&place, "here");
    let asked = SystemClock.elapsed();
    worker.signal(Signal::TERM);
    let ended = worker.ended();
    let took = SystemClock.elapsed().since(asked);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(took >= Duration::from_secs(2), "{took:?}: {}", ended.talk);
    assert_handed_back(&place, &id);
}

#[test]
fn asked_twice_it_does_not_wait() {
    let place = place_of(&format!(
        "drain_timeout = \"1h\"\n[lanes.slow]\ncapacity = 1\n\
         [kinds.SEND]\ncommand = [\"sh\", \"-c\", '''{STUBBORN}''']\nlane = \"slow\""
    ));
    let id = place.enqueue(&["SEND"]);
    let worker = start(&place, &[]);
    until_exists(&place, "here");
    worker.signal(Signal::TERM);
    worker.until_said("stopping a run");
    let asked = SystemClock.elapsed();
    worker.signal(Signal::INT);
    let ended = worker.ended();
    let took = SystemClock.elapsed().since(asked);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_handed_back(&place, &id);
}

/// `nohup leasehold run &` is to go on when its terminal is closed.
#[test]
fn a_hang_up_that_was_to_be_ignored_is() {
    let place = place_of(&format!(
        "[kinds.SEND]\ncommand = [\"sh\", \"-c\", '''{GATED}''']"
    ));
    let id = place.enqueue(&["SEND"]);
    let mut command = Command::new("nohup");
    command
        .arg(env!("CARGO_BIN_EXE_leasehold"))
        .arg("run")
        .current_dir(place.path())
        .env_clear();
    let worker = Process::start(&place, command);
    assert!(
        eventually(|| !running_for(&id).is_empty()),
        "{}",
        worker.talk()
    );
    worker.signal(Signal::HUP);
    place.file("gate", "");
    until_status(&place, &id, "done");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
}

#[test]
fn progress_is_shown_while_it_runs() {
    let place = place_of(&format!(
        r#"
        lease = "800ms"
        [kinds.SEND]
        command = ["sh", "-c", '''echo 'leasehold:progress {{"percent": 40, "note": "rows of anna"}}' >&2; {GATED}''']
        redact = ["to"]
        "#
    ));
    let id = place.enqueue(&["SEND", r#"{"to": "anna"}"#]);
    let worker = start(&place, &[]);
    let is_shown = || item(&place, &id)["progress"]["percent"] == 40;
    assert!(eventually(is_shown), "{}", worker.talk());
    let shown = place.run(&["items", "show", &id]).out;
    assert!(
        shown.contains("40") && shown.contains("rows of ***"),
        "{shown}"
    );
    place.file("gate", "");
    until_status(&place, &id, "done");
}

/// The one that is killed leaves nothing behind, long before anybody else may take its items.
#[test]
fn a_killed_worker_takes_its_commands_along_and_another_finishes_them() {
    let place = place_of(
        r#"
        capacity = 2
        lease = "2s"
        [kinds.SEND]
        command = ["sh", "-c", """
            echo "$LEASEHOLD_ITEM_ID $LEASEHOLD_FENCE" >> begun
            if [ "$LEASEHOLD_FENCE" = 1 ]; then setsid sleep 60 & until [ -e gate ]; do sleep 0.02; done; fi
            echo "$LEASEHOLD_ITEM_ID" >> finished; echo '{}'"""]
        "#,
    );
    let ids: Vec<String> = (0..6).map(|_| place.enqueue(&["SEND"])).collect();
    let workers = ["one", "two"].map(|name| start(&place, &["--name", name]));
    let held_by_one = || -> Vec<String> {
        let claimed = place.json(&["items", "list", "--status", "claimed"]);
        let rows = claimed["items"].as_array().cloned().unwrap_or_default();
        let of_one = rows.into_iter().filter(|row| {
            let by = row["claimed_by"].as_str().unwrap_or_default();
            by.starts_with("one/")
        });
        of_one
            .filter_map(|row| Some(row["id"].as_str()?.to_owned()))
            .collect()
    };
    let are_running = |held: &[String]| held.iter().all(|id| running_for(id).len() >= 2);
    assert!(eventually(|| {
        let held = held_by_one();
        held.len() == 2 && are_running(&held)
    }));
    let held = held_by_one();
    let leases: Vec<jiff::Timestamp> = held
        .iter()
        .map(|id| {
            item(&place, id)["lease_expires_at"]
                .as_str()
                .expect("a lease")
                .parse()
                .expect("a time")
        })
        .collect();
    let [one, two] = workers;
    one.signal(Signal::KILL);
    let is_gone = || held.iter().all(|id| running_for(id).is_empty());
    assert!(eventually(is_gone), "the tree outlives its worker");
    let now = SystemClock.now();
    assert!(
        leases.iter().all(|lease| *lease > now),
        "gone after the lease: {leases:?} {now}"
    );
    drop(one);
    place.file("gate", "");
    for id in &ids {
        until_status(&place, id, "done");
    }
    two.signal(Signal::TERM);
    assert_eq!(two.ended().code, 0);
    let finished = std::fs::read_to_string(place.path().join("finished")).expect("a list");
    let finished: Vec<&str> = finished.lines().collect();
    let once: BTreeSet<&str> = finished.iter().copied().collect();
    assert_eq!((finished.len(), once.len()), (6, 6), "{finished:?}");
    for id in &held {
        let item = item(&place, id);
        assert_eq!(
            (&item["attempts"], &item["worker_losses"]),
            (&2.into(), &1.into()),
            "{item}"
        );
    }
}

/// A warden that is stopped cannot kill nor tell, so that the run counts as stuck; with too many of them
/// the process ends, to be replaced.
#[test]
fn with_too_many_stuck_runs_it_fails() {
    let place = place_of(
        r#"
        lease = "600ms"
        stop_grace = "100ms"
        drain_timeout = "100ms"
        drain_kill = "500ms"
        stuck_max = 0
        [kinds.SEND]
        command = ["sh", "-c", "touch here; sleep 60"]
        "#,
    );
    let id = place.enqueue(&["SEND"]);
    let worker = start(&place, &[]);
    until_exists(&place, "here");
    let command = running_for(&id)[0];
    let parent = Seen::of(command).expect("a process").parent;
    // With its warden and the spawner behind it gone, nobody can say whether its tree is.
    let spawner = Seen::of(parent).expect("a process").parent;
    for process in [spawner, parent] {
        let process = Pid::from_raw(process).expect("a pid");
        kill_process(process, Signal::KILL).expect("a signal");
    }
    let cancelled = place.run(&["items", "cancel", &id]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.talk);
    let ended = worker.ended();
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{}", ended.talk);
    assert!(ended.talk.contains("stuck_max is 0"), "{}", ended.talk);
    assert!(ended.talk.contains("start it again"), "{}", ended.talk);
    assert!(
        eventually(|| !running_for(&id).contains(&command)),
        "the command dies with its warden"
    );
    for left in running_for(&id) {
        let _ = kill_process(Pid::from_raw(left).expect("a pid"), Signal::KILL);
    }
}

/// As an upgrade does it, by a rename over the file.
#[test]
fn the_program_may_be_replaced_while_it_runs() {
    let place = place_of("[kinds.SEND]\ncommand = [\"sh\", \"-c\", \"echo '{}'\"]");
    let program = place.path().join("bin/leasehold");
    std::fs::create_dir(place.path().join("bin")).expect("a folder");
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &program).expect("a copy");
    let mut command = Command::new(&program);
    command.arg("run").current_dir(place.path()).env_clear();
    let worker = Process::start(&place, command);
    let first = place.enqueue(&["SEND"]);
    until_status(&place, &first, "done");
    let next = place.file("bin/next", "#!/bin/sh\nexit 7\n");
    std::fs::rename(next, &program).expect("a rename");
    for _ in 0..3 {
        let id = place.enqueue(&["SEND"]);
        until_status(&place, &id, "done");
    }
    std::fs::remove_file(&program).expect("a file");
    let last = place.enqueue(&["SEND"]);
    until_status(&place, &last, "done");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
}

/// Nothing that the worker started outlives it, also where it held nothing.
#[test]
fn it_leaves_no_process() {
    let place = place_of("[kinds.SEND]\ncommand = [\"sh\", \"-c\", \"echo '{}'\"]");
    let id = place.enqueue(&["SEND"]);
    let worker = start(&place, &[]);
    until_status(&place, &id, "done");
    let mut below = Seen::children_of(worker.id());
    assert_eq!(below.len(), 1, "a spawner: {below:?}");
    let spawner = Pid::from_raw(below[0].pid).expect("a pid");
    below.extend(Seen::children_of(spawner));
    assert!(below.len() > 1, "a warden: {below:?}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
    let left: Vec<Seen> = below
        .iter()
        .filter_map(|one| Seen::of(one.pid))
        .filter(Seen::is_alive)
        .collect();
    assert!(left.is_empty(), "they end before it does: {left:?}");
}

/// As when everything of a system is started by one command, and the queue's file is not there yet.
#[test]
fn all_who_start_at_once_find_the_file_that_one_of_them_creates() {
    for _ in 0..3 {
        let place = place_of("[kinds.SEND]\ncommand = [\"sh\", \"-c\", \"echo '{}'\"]");
        let workers = [start(&place, &[]), start(&place, &[])];
        let clients = [(); 6].map(|()| Process::start(&place, place.command(&["enqueue", "SEND"])));
        for client in clients {
            let ended = client.ended();
            assert_eq!(ended.code, 0, "{}", ended.talk);
            until_status(&place, ended.out.trim(), "done");
        }
        for worker in workers {
            worker.signal(Signal::TERM);
            let ended = worker.ended();
            assert_eq!(ended.code, 0, "{}", ended.talk);
        }
    }
}

/// As behind `| head`, or when the collector of logs was restarted.
#[test]
fn it_goes_on_when_nobody_reads_its_log() {
    let place = place_of("[kinds.SEND]\ncommand = [\"sh\", \"-c\", \"echo said >&2; echo '{}'\"]");
    let mut worker = place
        .command(&["run"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the worker");
    drop(worker.stderr.take());
    let worker = Process::of(worker);
    for _ in 0..3 {
        let id = place.enqueue(&["SEND"]);
        until_status(&place, &id, "done");
        assert_eq!(item(&place, &id)["attempts"], 1);
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code, 0);
}

#[test]
fn until_empty_waits_for_what_it_holds() {
    let place = place_of(&format!(
        "[kinds.SEND]\ncommand = [\"sh\", \"-c\", '''{GATED}''']\n[lanes.other]\ncapacity = 1"
    ));
    let id = place.enqueue(&["SEND", "--lane", "other"]);
    let worker = start(&place, &["--until-empty"]);
    assert!(eventually(|| !running_for(&id).is_empty()));
    place.file("gate", "");
    let ended = worker.ended();
    assert_eq!(ended.code, 0);
    assert_eq!(item(&place, &id)["status"], "done");
    let again = run_until_empty(&place, &[]);
    assert!(again.talk.contains("nothing to do"), "{}", again.talk);
}
