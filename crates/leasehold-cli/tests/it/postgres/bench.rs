//! The bench on a server that is somebody's.

use rustix::process::Signal;

use super::{Ground, on_server};
use crate::bench::{ALWAYS, SMALL, assert_positive};
use crate::harness::Place;
use crate::process::Process;

const SCHEMAS: &str = "select from pg_namespace where nspname like 'leasehold%'";

#[test]
fn the_bench_measures_on_schemas_of_its_own_and_leaves_none() {
    let Some(ground) = Ground::new() else { return };
    let url = ground.url();
    let profiles = "enqueue,drain,latency,mixed,backlog,pinned,idle";
    let bench = ["bench", "--postgres", &url, "--profile", profiles];
    let more = ["--rounds", "1", "--backlog", "90", "--seconds", "3"];
    let report = ground.json(&[bench.as_slice(), &more, SMALL].concat());
    assert_eq!(report["store"], "postgres");
    for setting in ["server_version", "fsync", "synchronous_commit", "wal_level"] {
        let told = report["settings"][setting].as_str();
        assert!(told.is_some_and(|it| !it.is_empty()), "{setting}: {report}");
    }
    assert_positive(&report, ALWAYS);
    let of_a_server = [
        "/enqueue/median/bulk/wal_bytes_per_item",
        "/drain/median/wal_bytes_per_item",
        "/pinned/median/per_second",
        "/pinned/median/last_to_first",
        "/pinned/median/last_per_second",
    ];
    assert_positive(&report, &of_a_server);
    let seconds = report["pinned"]["rounds"][0]["series"].as_array();
    assert_eq!(seconds.map(Vec::len), Some(3), "{report}");
    if !ground.shared.is_given {
        // It runs on this machine, and the longest of the profiles keeps it busy.
        assert_positive(&report, &["/pinned/median/server_cpu_seconds_per_10_000"]);
    }
    assert_eq!(on_server(&url, &[SCHEMAS]), 0);
}

#[test]
fn an_interrupted_bench_leaves_no_schema() {
    let Some(ground) = Ground::new() else { return };
    let url = ground.url();
    let command = ground.command(&["bench", "--postgres", &url, "--profile", "idle"]);
    let bench = Process::start(&ground, command);
    bench.until_said("idling");
    assert_ne!(on_server(&url, &[SCHEMAS]), 0);
    bench.signal(Signal::INT);
    let ended = bench.ended();
    assert_eq!(ended.code, 130, "{}", ended.talk);
    assert_eq!(on_server(&url, &[SCHEMAS]), 0);
}

#[test]
fn the_next_bench_drops_what_a_killed_one_left() {
    let Some(ground) = Ground::new() else { return };
    let url = ground.url();
    let bench = || {
        let command = ground.command(&["bench", "--postgres", &url, "--profile", "idle"]);
        let bench = Process::start(&ground, command);
        bench.until_said("idling");
        bench
    };
    let killed = bench();
    killed.signal(Signal::KILL);
    let _ = killed.ended();
    let left = on_server(&url, &[SCHEMAS]);
    assert_ne!(left, 0);
    // The server notices on its own when a client is gone.
    on_server(
        &url,
        &[
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity
           where datname = current_database() and pid <> pg_backend_pid()",
        ],
    );
    // One that lives keeps its own, also from the next.
    let living = bench();
    assert_eq!(on_server(&url, &[SCHEMAS]), left);
    let next = bench();
    assert_eq!(on_server(&url, &[SCHEMAS]), 2 * left);
    for bench in [living, next] {
        bench.signal(Signal::INT);
        assert_eq!(bench.ended().code, 130);
    }
    assert_eq!(on_server(&url, &[SCHEMAS]), 0);
}

#[test]
fn the_bench_refuses_what_is_no_server_without_repeating_it() {
    let place = Place::new();
    let unreadable = "postgres://me:s3cret@somewhere/queue?no_such_option=1";
    let talk = place.refused(2, &["bench", "--postgres", unreadable]);
    assert!(talk.contains("--postgres"), "{talk}");
    assert!(!talk.contains("s3cret"), "{talk}");
    let nobody = "postgres://me:s3cret@127.0.0.1:1/queue";
    let talk = place.refused(4, &["bench", "--postgres", nobody]);
    assert!(!talk.contains("s3cret"), "{talk}");
    let ended = place.run(&["bench", "--postgres", nobody, "--durability", "normal"]);
    assert_eq!(ended.code, 2, "{}", ended.talk);
    assert!(ended.talk.contains("--durability"), "{}", ended.talk);
}
