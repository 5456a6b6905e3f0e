//! Text and JSON: what is stored comes back byte for byte.

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Renewal, Settled};
use leasehold_core::{
    Failure, FailureCode, JsonObject, Kind, Lane, NewItem, Progress, ShortText, WorkerId,
};

use super::fixture::Fixture;
use super::samples::{HOUR, failure, hold, item, json, renewal, request};

/// Objects that a store which parses, re-encodes or sorts them would change.
const OBJECTS: [&str; 10] = [
    "{}",
    r#"{"big":123456789012345678901234567890,"small":1e-400,"exact":1.50,"minus":-0}"#,
    r#"{"b":1,"a":2,"b2":{"z":1,"y":[3,2,1]}}"#,
    r#"{"\\u0000key":["\\u0000",{"\\\\u0000":"\u00e9"}]}"#,
    r#"{"alike":1,"Alike":2,"alike ":3}"#,
    r#"{ "spaced" :  [ 1 , 2 ],	"tab":	true }"#,
    r#"{"looks":"\\u0000","slash":"\/","quote":"\"","line":"a\nb"}"#,
    r#"{"😀":"é€😀e\u0301","escaped":"\ud83d\ude00\u20ac"}"#,
    r#"{"nested":{"nested":{"nested":[null,false,{"":""}]}}}"#,
    r#"{"sql":"'; drop table work_items; -- %s ? $1 :name"}"#,
];

fn large() -> JsonObject {
    json(&format!(r#"{{"blob":"{}"}}"#, "é".repeat(400_000)))
}

pub async fn a_payload_comes_back_byte_for_byte(f: &Fixture) {
    for payload in OBJECTS.map(json).into_iter().chain([large()]) {
        let row = f
            .insert(NewItem {
                payload: payload.clone(),
                ..item()
            })
            .await;
        assert_eq!(row.payload.as_str(), payload.as_str());
        assert_eq!(f.row(row.id).await.payload.as_str(), payload.as_str());
        assert_eq!(f.claim_again(&row).await.payload.as_str(), payload.as_str());
    }
}

pub async fn a_result_comes_back_byte_for_byte(f: &Fixture) {
    for result in OBJECTS.map(json).into_iter().chain([large()]) {
        let held = f.held(item()).await;
        let transition = Transition::Complete {
            result: Some(result.clone()),
        };
        assert_eq!(
            f.settle(hold(&held), transition).await,
            Settled::Settled(Ended::Done)
        );
        let stored = f.row(held.id).await.result.expect("a result");
        assert_eq!(stored.as_str(), result.as_str());
    }
}

/// Short texts at their limit and of every width of character, and some that need quoting.
fn texts() -> Vec<ShortText> {
    let full = |piece: &str| piece.repeat(ShortText::BYTES_MAX / piece.len());
    ["a", "é", "€", "😀", "e\u{301}"]
        .map(full)
        .iter()
        .map(String::as_str)
        .chain([
            "",
            " ",
            "it's \"quoted\"",
            "a\nb\tc\\d",
            "\u{FFFD}\u{202E}rtl",
            "%s ? $1 {}",
            "null",
        ])
        .map(ShortText::new)
        .collect()
}

pub async fn a_note_comes_back_byte_for_byte(f: &Fixture) {
    for note in texts() {
        let held = f.held(item()).await;
        let transition = Transition::Release {
            note: note.clone(),
            delay: HOUR,
        };
        let _ = f.settle(hold(&held), transition).await;
        assert_eq!(f.row(held.id).await.last_error, Some(note));
    }
}

pub async fn a_failure_comes_back_byte_for_byte(f: &Fixture) {
    for message in texts() {
        let held = f.held(item()).await;
        let failure = Failure {
            message,
            ..failure()
        };
        let text = failure.to_text();
        let _ = f.settle(hold(&held), Transition::Bury { failure }).await;
        let row = f.row(held.id).await;
        assert_eq!(row.errors[0].message, text);
        assert_eq!(row.last_error, Some(text));
    }
}

pub async fn a_progress_note_comes_back_byte_for_byte(f: &Fixture) {
    let held = f.held(item()).await;
    for (percent, note) in (0..).zip(texts()) {
        let progress = Some(Progress::new(percent, note));
        f.renew_as(Renewal {
            progress: progress.clone(),
            ..renewal(hold(&held))
        })
        .await;
        assert_eq!(f.row(held.id).await.progress, progress);
    }
}

pub async fn a_pause_reason_comes_back_byte_for_byte(f: &Fixture) {
    for reason in texts() {
        f.work()
            .pause_lane(&Lane::default(), &reason, &ShortText::new("ops"))
            .await
            .unwrap();
        assert_eq!(f.work().paused_lanes().await.unwrap()[0].reason, reason);
    }
}

pub async fn names_of_full_length_come_back(f: &Fixture) {
    let kind = Kind::parse(&"K".repeat(64)).unwrap();
    let lane = Lane::parse(&"l/".repeat(50)).unwrap();
    let worker = WorkerId::parse(&"😀".repeat(50)).unwrap();
    let code = FailureCode::parse(&"C".repeat(64)).unwrap();
    let row = f
        .insert(NewItem {
            kind: kind.clone(),
            lane: lane.clone(),
            ..item()
        })
        .await;
    let mut request = request();
    request.lanes = vec![lane.clone()];
    request.kinds = vec![kind.clone()];
    request.worker = worker.clone();
    let held = f.claim_one(&request).await;
    assert_eq!((&held.kind, &held.lane), (&kind, &lane));
    assert_eq!(f.row(row.id).await.claimed_by, Some(worker));
    let failure = Failure {
        code: code.clone(),
        ..failure()
    };
    let _ = f.settle(hold(&held), Transition::Bury { failure }).await;
    assert_eq!(f.row(row.id).await.failure_code, Some(code));
}

pub async fn a_traceparent_comes_back_or_stays_absent(f: &Fixture) {
    for traceparent in [None, Some(String::new()), Some("00-ab-cd-01".to_owned())] {
        let row = f
            .insert(NewItem {
                traceparent: traceparent.clone(),
                ..item()
            })
            .await;
        assert_eq!(f.row(row.id).await.traceparent, traceparent);
    }
}
