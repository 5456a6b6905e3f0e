//! Workers on one server, of which one is killed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

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

/// Runs until it is killed, with a descendant that is as deaf; the second run says when it began.
const BEATS: &str = r#"
lease = "3s"
capacity = 1
[kinds.BEAT]
command = ["sh", "-c", '''
    trap "" TERM
    [ "$LEASEHOLD_FENCE" = 2 ] && { date +%s%N > began; echo "{}"; exit; }
    beat() { while :; do date +%s%N > "$1.new"; mv "$1.new" "$1"; sleep 0.02; done; }
    beat below &
    beat above
''']
"#;

/// LEASE-5, with a command, and a worker that is cut off from its server without a word.
#[test]
fn what_a_worker_runs_that_is_cut_off_is_killed_before_anybody_else_begins_it() {
    let Some(ground) = Ground::with(&format!("{QUICK}{BEATS}")) else {
        return;
    };
    let way = Way::to(&ground.url());
    let url = way.url(&ground.name);
    let id = ground.enqueue(&["BEAT"]);
    let run = ground.command(&["run", "--database", &url]);
    let cut_off = Process::start(&ground, run);
    let nanoseconds = |name: &str| -> Option<i128> {
        let text = std::fs::read_to_string(ground.path().join(name)).ok()?;
        text.trim().parse().ok()
    };
    let beats = eventually(|| nanoseconds("above").is_some() && nanoseconds("below").is_some());
    assert!(beats, "{}", cut_off.talk());
    let expiry = || -> i128 {
        let text = item(&ground, &id)["lease_expires_at"].clone();
        let text = text.as_str().expect("it is held");
        let expiry: jiff::Timestamp = text.parse().expect("a time");
        expiry.as_nanosecond()
    };
    // Right after a renewal, so that all of the lease is left.
    let first = expiry();
    assert!(eventually(|| expiry() > first), "{}", cut_off.talk());
    way.swallow();
    let expiry = expiry();
    let second = Process::start(&ground, ground.command(&["run"]));
    let is_done = eventually(|| item(&ground, &id)["status"] == "done");
    assert!(is_done, "{}{}", cut_off.talk(), second.talk());
    for name in ["above", "below"] {
        let last = nanoseconds(name).expect("it has beaten");
        assert!(
            last <= expiry,
            "{name} went on {} ms too long",
            (last - expiry) / 1_000_000
        );
    }
    let began = nanoseconds("began").expect("the second run");
    assert!(
        expiry <= began,
        "begun {} ms too early",
        (expiry - began) / 1_000_000
    );
    let item = item(&ground, &id);
    assert_eq!(
        (&item["attempts"], &item["worker_losses"]),
        (&2.into(), &1.into())
    );
    assert!(
        cut_off.talk().contains("lease doubted"),
        "{}",
        cut_off.talk()
    );
}

/// A way to the server that can come to swallow everything, and closes nothing.
struct Way {
    address: SocketAddr,
    swallows: Arc<AtomicBool>,
}

impl Way {
    fn to(url: &str) -> Self {
        let server: Config = url.parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its number");
        let swallows = Arc::new(AtomicBool::new(false));
        let way = Self {
            address,
            swallows: swallows.clone(),
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let port = server.get_ports().first().copied().unwrap_or(5432);
                match &server.get_hosts()[0] {
                    Host::Unix(folder) => {
                        let socket = folder.join(format!(".s.PGSQL.{port}"));
                        let server = UnixStream::connect(socket).expect("the server");
                        let back = server.try_clone().expect("the same");
                        pass(&client, server, back, &swallows);
                    }
                    Host::Tcp(name) => {
                        let server = TcpStream::connect((name.as_str(), port));
                        let server = server.expect("the server");
                        let back = server.try_clone().expect("the same");
                        pass(&client, server, back, &swallows);
                    }
                }
            }
        });
        way
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address)
    }

    fn swallow(&self) {
        self.swallows.store(true, Ordering::SeqCst);
    }
}

/// Passes both directions on, each by a thread that lasts as long as its reader.
fn pass<S: Read + Write + Send + 'static>(
    client: &TcpStream,
    server: S,
    back: S,
    swallows: &Arc<AtomicBool>,
) {
    let there = client.try_clone().expect("the same");
    let here = client.try_clone().expect("the same");
    copy(there, server, swallows.clone());
    copy(back, here, swallows.clone());
}

fn copy(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    swallows: Arc<AtomicBool>,
) {
    thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if !swallows.load(Ordering::SeqCst) && to.write_all(&bytes[..length]).is_err() {
                return;
            }
        }
    });
}
