//! The bench on a server that is somebody's.

use rustix::process::Signal;

use super::{Ground, on_server};
use crate::harness::Place;
use crate::process::Process;

const SCHEMAS: &str = "select from pg_namespace where nspname like 'leasehold%'";

#[test]
fn the_bench_measures_on_schemas_of_its_own_and_leaves_none() {
    let Some(ground) = Ground::new() else { return };
    let url = ground.url();
    let small = ["--items", "60", "--batch", "25", "--singles", "4"];
    let profiles = "enqueue-bulk,enqueue-single,drain,latency";
    let bench = ["bench", "--postgres", &url, "--profile", profiles];
    let report = ground.json(&[bench.as_slice(), &small].concat());
    assert_eq!(report["store"], "postgres");
    for setting in ["fsync=o", "synchronous_commit=o"] {
        let durability = report["durability"].as_str().expect("a text");
        assert!(durability.contains(setting), "{durability}");
    }
    for number in [
        "/sync_ms",
        "/enqueue_bulk_per_second",
        "/enqueue_single_per_second",
        "/enqueue_single_16_callers_per_second",
        "/drain/per_second",
        "/pickup_milliseconds/median",
    ] {
        let measured = report.pointer(number).and_then(serde_json::Value::as_f64);
        assert!(measured.is_some_and(|it| it > 0.0), "{number}: {report}");
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
