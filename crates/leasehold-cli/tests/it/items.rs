//! Looking at items, and operating on them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::store::work::ClaimRequest;
use leasehold::core::{ClaimToken, WorkerId};
use leasehold::{Kind, Lane, SystemClock};

use crate::harness::Place;

/// Holds whatever is due on the default lane, as a worker would.
#[cfg(test)]
fn claim_all(place: &Place) {
    let options = leasehold_sqlite::Options::new(Arc::new(SystemClock));
    let store = leasehold_sqlite::open(place.path().join("leasehold.db"), options);
    let work = store.expect("the database").stores().work;
    let request = ClaimRequest {
        token: ClaimToken::mint(),
        worker: WorkerId::parse("tester").expect("a worker"),
        lanes: vec![Lane::default()],
        kinds: vec![Kind::parse("SEND").expect("a kind")],
        lease: Duration::from_mins(1),
        limit: 10,
        tenant_cap: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let claimed = runtime.expect("a runtime").block_on(work.claim(&request));
    assert_eq!(claimed.expect("a claim").len(), 1);
}

const NOBODY: &str = "0197c2f4-7d0a-7000-8000-0123456789ab";

#[test]
fn an_item_goes_round_cancel_and_retry() {
    let place = Place::new();
    let id = place.enqueue(&["SEND", r#"{"id": 7}"#]);

    let shown = place.json(&["items", "show", &id]);
    assert_eq!(shown["item"]["status"], "queued");
    assert_eq!(shown["item"]["payload_bytes"], 9);
    assert!(shown["item"].get("payload").is_none());
    let shown = place.json(&["items", "show", &id, "--payload"]);
    assert_eq!(shown["item"]["payload"]["id"], 7);

    let cancelled = place.json(&["items", "cancel", &id]);
    assert_eq!(cancelled["items"][0]["answer"], "cancelled");
    assert_eq!(cancelled["items"][0]["status"], "failed");
    assert_eq!(
        place.json(&["items", "show", &id])["item"]["failure_code"],
        "cancelled"
    );
    let again = place.run(&["items", "cancel", &id]);
    assert_eq!(
        (again.code, again.out),
        (3, format!("{id}\talready_over\n"))
    );

    assert_eq!(
        place.json(&["items", "retry", &id])["items"][0]["answer"],
        "queued"
    );
    let again = place.run(&["items", "retry", &id]);
    assert_eq!((again.code, again.out), (3, format!("{id}\tnot_failed\n")));
    assert!(again.talk.contains("is queued"), "{}", again.talk);
    assert_eq!(
        place.json(&["items", "show", &id])["item"]["status"],
        "queued"
    );
}

#[test]
fn a_running_item_is_asked_to_stop() {
    let place = Place::new();
    let id = place.enqueue(&["SEND"]);
    claim_all(&place);
    let line = place.run(&["items", "list", "--status", "claimed"]).out;
    assert!(line.contains("claimed\t1\t3\t0\t"), "{line:?}");
    assert!(line.contains("\theld by tester\t\n"), "{line:?}");
    let retried = place.run(&["items", "retry", &id]);
    assert_eq!(
        (retried.code, retried.out),
        (3, format!("{id}\tnot_failed\n"))
    );
    let cancelled = place.run(&["items", "cancel", &id]);
    assert_eq!(
        (cancelled.code, cancelled.out),
        (0, format!("{id}\trequested\n"))
    );
    let explained = place.run(&["items", "explain", &id]).out;
    assert!(explained.contains("held by tester"), "{explained}");
    assert!(explained.contains("cancel requested"), "{explained}");
}

#[test]
fn several_items_are_answered_one_by_one() {
    let place = Place::new();
    let one = place.enqueue(&["SEND"]);
    let two = place.enqueue(&["SEND"]);
    let ended = place.run(&["items", "cancel", &one, NOBODY, &two]);
    assert_eq!(ended.code, 3);
    assert_eq!(
        ended.out,
        format!("{one}\tcancelled\n{NOBODY}\tnot_found\n{two}\tcancelled\n")
    );
    assert_eq!(place.run(&["items", "retry", &one, &two]).code, 0);
    // One that is no id refuses them all, before any is touched.
    place.refused(2, &["items", "cancel", &one, "7"]);
    assert_eq!(
        place.json(&["items", "show", &one])["item"]["status"],
        "queued"
    );
}

#[test]
fn an_unknown_item_is_a_no() {
    let place = Place::new();
    place.enqueue(&["SEND"]);
    for command in ["show", "explain"] {
        let talk = place.refused(3, &["items", command, NOBODY]);
        assert!(talk.contains(NOBODY), "{talk}");
        let ended = place.run(&["items", command, NOBODY, "--json"]);
        assert_eq!((ended.code, ended.out.as_str()), (3, ""));
        let answer: serde_json::Value = serde_json::from_str(&ended.talk).expect("an object");
        assert_eq!(answer["error"]["exit"], 3);
    }
    place.refused(2, &["items", "show", "seven"]);
}

#[test]
fn explain_says_why_it_waits_and_what_to_do() {
    let place = Place::new();
    let id = place.enqueue(&["SEND", "--in", "1h", "--lane", "slow"]);
    let answer = place.json(&["items", "explain", &id]);
    let reasons = answer["reasons"].as_array().expect("reasons");
    assert!(!reasons.is_empty());
    assert_eq!(answer["next"], "start a worker for the lane slow");
    let text = place.run(&["items", "explain", &id]).out;
    assert!(
        text.contains("no live worker") && text.contains("next: start a worker"),
        "{text}"
    );
}

#[test]
fn explain_ends_in_a_command_to_paste() {
    let place = Place::new();
    let id = place.enqueue(&["SEND", "--database", "my jobs.db"]);
    place.run(&["items", "cancel", &id, "--database", "my jobs.db"]);
    let retry = format!("leasehold items retry {id}");

    let given = ["items", "explain", &id, "--database", "my jobs.db"];
    let with_place = format!("{retry} --database 'my jobs.db'");
    let text = place.run(&given).out;
    let last = text.lines().last().map(str::trim);
    assert_eq!(last, Some(with_place.as_str()), "{text}");
    assert_eq!(place.json(&given)["command"], with_place);

    let output = place
        .command(&given[..3])
        .env("LEASEHOLD_DATABASE", "my jobs.db")
        .output()
        .expect("the command");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.lines().last().map(str::trim), Some(retry.as_str()));

    let waiting = place.enqueue(&["SEND"]);
    let answer = place.json(&["items", "explain", &waiting]);
    assert!(answer["next"].is_string() && answer["command"].is_null());
}

#[test]
fn what_people_call_a_failed_item_leads_to_its_status() {
    let place = Place::new();
    for word in ["cancelled", "orphaned", "dead"] {
        let talk = place.refused(2, &["items", "list", "--status", word]);
        assert!(talk.contains("in the status failed"), "{talk}");
        assert!(talk.contains("try: give --status failed"), "{talk}");
    }
    let id = place.enqueue(&["SEND"]);
    place.run(&["items", "cancel", &id]);
    let line = place.run(&["items", "list", "--status", "failed"]).out;
    assert!(line.ends_with("\tcancelled\n"), "{line:?}");
}

#[test]
fn lists_are_filtered_and_paged() {
    let place = Place::new();
    let mut ids: Vec<String> = (0..5).map(|_| place.enqueue(&["SEND"])).collect();
    place.enqueue(&["REPORT", "--lane", "slow"]);
    place.run(&["items", "cancel", &ids[0]]);
    ids.reverse();
    let listed = |arguments: &[&str]| -> Vec<String> {
        let ended = place.run(&[&["jobs", "ls"], arguments].concat());
        assert_eq!(ended.code, 0, "{}", ended.talk);
        let first = |line: &str| line.split('\t').next().map(str::to_owned);
        ended.out.lines().filter_map(first).collect()
    };
    assert_eq!(listed(&["--kind", "SEND"]), ids);
    assert_eq!(listed(&["--status", "failed"]), ids[4..]);
    assert_eq!(listed(&["--queue", "slow"]).len(), 1);
    assert_eq!(listed(&["--kind", "SEND", "--limit", "2"]), ids[..2]);
    assert_eq!(
        listed(&["--kind", "SEND", "--limit", "2", "--before", &ids[1]]),
        ids[2..4]
    );
    assert_eq!(listed(&["--kind", "NOBODY"]).len(), 0);
    let page = place.json(&["items", "list", "--kind", "SEND", "--limit", "2"]);
    assert_eq!(page["next_before"], ids[1].as_str());
    let all = place.json(&["items", "list"]);
    assert!(all["next_before"].is_null());
    place.refused(2, &["items", "list", "--status", "running"]);
    place.refused(2, &["items", "list", "--kind", "send"]);
    place.refused(2, &["items", "list", "--before", "7"]);
    assert_eq!(place.run(&["items", "list", "--limit", "1001"]).code, 2);
}

#[test]
fn columns_in_a_pipe_are_those_of_the_help() {
    let place = Place::new();
    place.enqueue(&["SEND"]);
    let line = place.run(&["items", "list"]).out;
    let columns: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
    assert_eq!(columns.len(), 13, "{line:?}");
    assert_eq!(columns[1..7], ["SEND", "default", "queued", "0", "3", "0"]);
    assert!(columns[7].parse::<jiff::Timestamp>().is_ok(), "{line:?}");
    assert!(!line.contains('\u{1b}'), "colour in a pipe: {line:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    // More than a pipe holds, so that the command is still writing when its reader goes.
    let ended = place.run_with(&["enqueue", "SEND", "--batch", "-"], "{}\n".repeat(1_000));
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let lists: [&[&str]; 2] = [&[], &["--json"]];
    for more in lists {
        let mut child = place
            .command(&[&["items", "list", "--limit", "1000"], more].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command");
        let mut out = BufReader::with_capacity(64, child.stdout.take().expect("its output"));
        out.fill_buf().expect("the first bytes");
        drop(out);
        let mut talk = String::new();
        let mut stderr = child.stderr.take().expect("its talk");
        stderr.read_to_string(&mut talk).expect("its talk");
        assert_eq!(child.wait().expect("its end").code(), Some(0));
        assert_eq!(talk, "");
    }
}
