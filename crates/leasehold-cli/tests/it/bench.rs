//! The bench on files of its own: what it says, and what it refuses.

use serde_json::Value;

use crate::harness::Place;

/// Small enough for a test. What the rates come out at does not matter to it.
pub(crate) const SMALL: &[&str] = &["--items", "60", "--batch", "25", "--singles", "2"];

/// Figures that every store has, and that are never nothing.
pub(crate) const ALWAYS: &[&str] = &[
    "/sync_ms",
    "/enqueue/median/bulk/per_second",
    "/enqueue/median/bulk/worker_cpu_seconds_per_10_000",
    "/enqueue/median/single/per_second",
    "/enqueue/median/single_16_callers/per_second",
    "/drain/median/per_second",
    "/drain/median/items_per_settle",
    "/drain/median/worker_cpu_seconds_per_10_000",
    "/latency/median/p50_ms",
    "/latency/median/p99_ms",
    "/latency/median/sync_p50_ms",
    "/mixed/median/per_second",
    "/mixed/median/pickup_p50_ms",
    "/mixed/median/enqueue_p99_ms",
    "/backlog/median/without/per_second",
    "/backlog/median/with/per_second",
    "/backlog/median/ratio",
];

pub(crate) fn assert_positive(report: &Value, figures: &[&str]) {
    for figure in figures {
        let measured = report.pointer(figure).and_then(Value::as_f64);
        assert!(measured.is_some_and(|it| it > 0.0), "{figure}: {report}");
    }
}

#[test]
fn each_profile_is_measured_in_each_round() {
    let place = Place::new();
    let profiles = "enqueue,drain,latency,mixed,backlog";
    let bench = ["bench", "--dir", ".", "--profile", profiles];
    let more = ["--rounds", "2", "--backlog", "90"];
    let report = place.json(&[bench.as_slice(), &more, SMALL].concat());
    assert_eq!(report["schema"], 1);
    assert_eq!(report["store"], "sqlite");
    assert_eq!(report["settings"]["synchronous"], "full");
    assert_eq!(report["settings"]["journal_mode"], "wal");
    assert_positive(&report, ALWAYS);
    for profile in profiles.split(',') {
        let rounds = report[profile]["rounds"].as_array().expect(profile);
        assert_eq!(rounds.len(), 2, "{profile}: {report}");
    }
    assert_eq!(report["drain"]["median"]["items"], 60);
    let of_a_server = ["server_cpu_seconds_per_10_000", "wal_bytes_per_item"];
    for figure in of_a_server {
        assert_eq!(report["drain"]["median"][figure], Value::Null, "{figure}");
    }
    for not_asked_for in ["pinned", "idle"] {
        assert_eq!(report[not_asked_for], Value::Null);
    }
    let left = std::fs::read_dir(place.path()).expect("the folder");
    assert_eq!(left.count(), 0, "nothing is left");
}

#[test]
fn the_durability_that_was_asked_for_is_told() {
    let place = Place::new();
    let bench = ["bench", "--durability", "normal", "--rounds", "1"];
    let report = place.json(&[&bench, ["--profile", "drain"].as_slice(), SMALL].concat());
    assert_eq!(report["settings"]["synchronous"], "normal");
    assert_eq!(report["drain"]["rounds"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_table_for_people_names_store_and_cost() {
    let place = Place::new();
    let bench = ["bench", "--profile", "drain", "--rounds", "1"];
    let ended = place.run(&[bench.as_slice(), SMALL].concat());
    assert_eq!(ended.code, 0, "{}", ended.talk);
    for line in [
        "store\tsqlite, synchronous=full\n",
        "drain\t",
        "  CPU per 10,000\t",
    ] {
        assert!(ended.out.contains(line), "{line}: {}", ended.out);
    }
    assert!(
        ended.talk.contains("round 1 of 1: draining"),
        "{}",
        ended.talk
    );
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is() {
    let place = Place::new();
    let talk = place.refused(2, &["bench", "--profile", "pinned"]);
    assert!(talk.contains("--postgres"), "{talk}");
    for nonsense in [
        ["--profile", "everything"],
        ["--rounds", "0"],
        ["--items", "0"],
        ["--batch", "0"],
        ["--singles", "0"],
        ["--backlog", "0"],
        ["--seconds", "2"],
        ["--capacity", "0"],
    ] {
        let ended = place.run(&[["bench"].as_slice(), &nonsense].concat());
        assert_eq!(ended.code, 2, "{nonsense:?}: {}", ended.talk);
        assert!(ended.talk.contains(nonsense[0]), "{}", ended.talk);
    }
}
