use std::time::Duration;

use leasehold::{Failure, JsonObject};

use super::*;

fn told(transition: &Transition, course: Course) -> String {
    match Report::of(transition, course, 100) {
        Report::Success { output } => format!("success {output}"),
        Report::Failure { error, cause } => format!("{error}: {cause}"),
    }
}

/// Every row of the table, by its exact name.
#[test]
fn every_ending_has_its_name() {
    let done = |json: &str| Transition::Complete {
        result: Some(JsonObject::parse(json).unwrap()),
    };
    let failed = |code| Transition::Retry {
        failure: Failure::own(code, "why"),
        delay: Duration::ZERO,
    };
    let buried = |code| Transition::Bury {
        failure: Failure::own(code, "why").for_good(),
    };
    let released = Transition::Release {
        note: "worker stopping".into(),
        delay: Duration::ZERO,
    };
    let parked = Transition::Park {
        reason: "no quota".into(),
        delay: Duration::ZERO,
    };
    let rows = [
        (done("{\"n\": 1.0}"), "success {\"n\": 1.0}"),
        (Transition::Complete { result: None }, "success {}"),
        (buried("MalformedMessage"), "MalformedMessage: why"),
        (buried("payload_invalid"), "MalformedMessage: why"),
        (buried("RequestTooLarge"), "RequestTooLarge: why"),
        (failed("SubprocessCrashError"), "SubprocessCrashError: why"),
        (
            failed("MalformedSubprocessOutput"),
            "MalformedSubprocessOutput: why",
        ),
        (buried("result_invalid"), "MalformedSubprocessOutput: why"),
        (
            failed("UnknownSubprocessError"),
            "UnknownSubprocessError: why",
        ),
        (failed("UnsupportedAsset"), "UnsupportedAsset: why"),
        (failed("timed_out"), "ProcessingTimeout: why"),
        (buried("OutputTooLarge"), "OutputTooLarge: why"),
        (failed("SpawnFailed"), "SpawnFailed: why"),
        (failed("panicked"), "panicked: why"),
        (released.clone(), "Released: worker stopping"),
        (parked, "Parked: no quota"),
    ];
    for (transition, expected) in rows {
        assert_eq!(told(&transition, Course::Going), expected);
    }
    assert_eq!(
        told(&released, Course::Draining),
        "WorkerStopping: worker stopping"
    );
    let large = done(&format!("{{\"n\": \"{}\"}}", "x".repeat(200)));
    assert!(told(&large, Course::Going).starts_with("OutputTooLarge: the result has 209 bytes"));
}

/// SOURCE-3: within the limits, between characters, marked, and an empty message is one.
#[test]
fn failures_are_cut_to_what_the_service_takes() {
    let name = "Ä".repeat(400);
    let message = format!("begin {} end", "日本".repeat(900_000));
    let Report::Failure { error, cause } = Report::failure(&name, &message) else {
        panic!("a failure");
    };
    assert!(error.len() <= ERROR_BYTES_MAX && error.len() > ERROR_BYTES_MAX - 8);
    assert!(cause.len() <= CAUSE_BYTES_MAX && cause.len() > CAUSE_BYTES_MAX - 8);
    assert!(cause.starts_with("begin ") && cause.ends_with(" end") && cause.contains("[cut]"));
    let whole = Report::failure("E", "");
    assert_eq!(
        whole,
        Report::Failure {
            error: "E".into(),
            cause: String::new()
        }
    );
    for length in 250..260 {
        let text = "é".repeat(length / 2) + "x";
        assert!(cut(&text, ERROR_BYTES_MAX).len() <= ERROR_BYTES_MAX);
    }
}
