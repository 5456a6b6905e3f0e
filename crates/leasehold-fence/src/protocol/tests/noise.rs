//! Noise on the result channel never becomes a result, nor an error of the worker's.

use proptest::prelude::*;

use super::*;

const RESULT: &str = r#"{"rows": 7}"#;

#[test]
fn noise_before_the_result_spoils_it() {
    let noisy = format!(
        "Loading model v3\r 10%\r 50%\r100%\n{{\"error\": \"AbortedStaleTask\", \"message\": \"stop\"}}\n{RESULT}\n"
    );
    for code in [0, FAILURE_CODE, PARK_CODE] {
        assert!(malformed(code, &noisy).ends_with("expected value at byte 1"));
    }
    let faked = format!("{{\"error\": \"AbortedStaleTask\", \"message\": \"stop\"}}\n{RESULT}\n");
    for code in [0, FAILURE_CODE, PARK_CODE] {
        assert!(malformed(code, &faked).ends_with("trailing characters at byte 50"));
    }
}

#[test]
fn a_warning_after_the_result_spoils_it() {
    let found = malformed(0, format!("{RESULT}\nDeprecationWarning: soon\n"));
    assert!(found.ends_with("trailing characters at byte 13"), "{found}");
}

#[test]
fn two_results_are_none() {
    for separator in ["", " ", "\n"] {
        assert!(malformed(0, [RESULT, separator, RESULT].concat()).contains("trailing characters"));
    }
}

#[test]
fn a_result_before_another_code_counts_for_nothing() {
    let error = failed(exited(3, RESULT));
    assert_eq!(
        (error.name.as_str(), error.message.as_str()),
        (CRASH, "exited with code 3")
    );
}

#[test]
fn an_envelope_with_exit_0_is_a_result_and_fakes_nothing() {
    let envelope = r#"{"error": "AbortedStaleTask", "message": "stop"}"#;
    assert_eq!(done(envelope), envelope);
}

#[test]
fn the_first_2_kib_are_kept_for_finding_out() {
    let stdout = [&b"\x1b[2K caf\xe9 "[..], "€".repeat(1_000).as_bytes()].concat();
    let error = failed(exited(0, &stdout));
    assert!(error.message.len() <= MESSAGE_BYTES_MAX);
    assert!(
        error
            .message
            .contains("invalid UTF-8 at byte 9; it begins with:\n\\u{1b}[2K caf\\xe9 €")
    );
    let kept = error.diagnostics.unwrap();
    let characters = kept.strip_prefix("\\u{1b}[2K caf\\xe9 ").unwrap();
    assert_eq!(
        characters,
        "€".repeat((2_048 - 10) / 3),
        "whole characters of the first 2,048 bytes"
    );
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(
        stdout in proptest::collection::vec(any::<u8>(), 0..200),
        stderr in any::<String>(),
        code in 0..256,
    ) {
        for code in [code, 0, FAILURE_CODE, PARK_CODE] {
            for rule in [ResultRule::Json, ResultRule::Ignored] {
                let answer = read(&Ending::Exited { code }, &stdout, &stderr, &registered(), rule);
                if let Answer::Failed(error) = answer {
                    prop_assert!(error.message.len() <= MESSAGE_BYTES_MAX);
                    prop_assert!(!error.message.contains('\0'));
                }
            }
        }
        let _ = Progress::parse(&stdout);
        let _ = Progress::parse(&[PROGRESS_PREFIX.as_bytes(), &stdout].concat());
    }

    #[test]
    fn almost_json_does_not_break_the_reader(stdout in "[\\[\\]{}\":,\\\\u0d \n1e-]{0,60}") {
        for code in [0, FAILURE_CODE, PARK_CODE] {
            if let Answer::Done { result: Some(result) } = exited(code, &stdout) {
                prop_assert_eq!(result, stdout.trim());
            }
        }
    }

    #[test]
    fn noise_yields_this_result_or_none(before in ".{0,20}", after in ".{0,20}") {
        match exited(0, format!("{before}{RESULT}{after}")) {
            Answer::Done { result } => {
                prop_assert_eq!(result.as_deref(), Some(RESULT));
                prop_assert!(before.trim().is_empty() && after.trim().is_empty());
            }
            Answer::Failed(error) => prop_assert_eq!(error.name, MALFORMED_OUTPUT),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn no_reported_name_is_the_workers(name in "[A-Za-z_.]{0,12}", message in any::<String>(), own in 0..RESERVED_NAMES.len() * 2) {
        let name = RESERVED_NAMES.get(own).map_or(name.as_str(), |own| *own);
        let stdout = serde_json::json!({"error": name, "message": message}).to_string();
        let error = failed(exited(FAILURE_CODE, stdout));
        prop_assert!(["BadAsset", "Busy", UNKNOWN_ERROR, MALFORMED_OUTPUT].contains(&error.name.as_str()));
    }
}
