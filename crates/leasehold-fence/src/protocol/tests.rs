mod noise;
mod real_process;
mod requests;
mod wire;

use std::time::Duration;

use super::*;
use crate::ending::{Ending, SpawnFailure};

/// One registered error of each kind of treatment.
fn registered() -> RegisteredErrors {
    let error = |level, retryable| RegisteredError { level, retryable };
    RegisteredErrors::new([
        ("BadAsset", error(Level::Warn, false)),
        ("Busy", error(Level::Info, true)),
    ])
    .unwrap()
}

/// What an exit with `code` after `stdout` comes to.
fn exited(code: i32, stdout: impl AsRef<[u8]>) -> Answer {
    read(
        &Ending::Exited { code },
        stdout.as_ref(),
        "",
        &registered(),
        ResultRule::Json,
    )
}

#[track_caller]
fn done(stdout: impl AsRef<[u8]>) -> String {
    match exited(0, stdout) {
        Answer::Done {
            result: Some(result),
        } => result,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn failed(answer: Answer) -> ChildError {
    match answer {
        Answer::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

/// The words of a malformed output, without what it began with.
#[track_caller]
fn malformed(code: i32, stdout: impl AsRef<[u8]>) -> String {
    let error = failed(exited(code, stdout));
    assert_eq!(error.name, MALFORMED_OUTPUT);
    assert!(error.retryable);
    error
        .message
        .split("; it begins")
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn the_result_is_forwarded_as_it_was_written() {
    let text =
        "{ \"n\": 123456789012345678901234567890.10, \"e\": 1e999,\n\t\"é\": [\"\\u00e9\"] }";
    assert_eq!(done(text), text);
    assert_eq!(
        done(format!("\r\n\t {text} \n\n")),
        text,
        "white space around it is none of it"
    );
}

#[test]
fn nothing_but_an_object_is_a_result() {
    for (stdout, words) in [
        (&b""[..], "it is empty"),
        (b" \n", "it is empty"),
        (b"[1]", "it is JSON and no object"),
        (b"7", "it is JSON and no object"),
        (b"null", "it is JSON and no object"),
        (b"\"{}\"", "it is JSON and no object"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
        (b"{}\xef\xbb\xbf", "trailing characters at byte 3"),
        (b"{}\x0b", "trailing characters at byte 3"),
        (b"{\"a\": \"\xff\"}", "invalid UTF-8 at byte 8"),
        (b"{\"a\": 1", "EOF while parsing an object at byte 7"),
        (b"{'a': 1}", "key must be a string at byte 2"),
        (b"{\"a\": NaN}", "expected value at byte 7"),
        (
            b"{\"a\": 1}\n{\"b\": 2}\n",
            "trailing characters at byte 10",
        ),
        (b"\n\n{\"a\":\n1} x", "trailing characters at byte 12"),
    ] {
        let expected = format!("stdout is not one JSON object: {words}");
        assert_eq!(
            malformed(0, stdout),
            expected,
            "{}",
            crate::text::escape(stdout)
        );
    }
}

#[test]
fn depth_is_refused_and_does_not_overflow_the_stack() {
    let nested = |levels: usize| {
        let lists = levels - 1;
        format!("{{\"a\": {}{}}}", "[".repeat(lists), "]".repeat(lists))
    };
    assert_eq!(done(nested(128)), nested(128));
    assert!(malformed(0, nested(129)).ends_with("more than 128 levels at byte 134"));
    assert!(malformed(0, nested(500_000)).contains("more than 128 levels"));
    assert!(malformed(0, "{\"a\":".repeat(200_000)).contains("EOF while parsing"));
    let brackets_in_text = format!("{{\"a\": \"\\\"{}\"}}", "[{".repeat(200));
    assert_eq!(done(&brackets_in_text), brackets_in_text);
}

#[test]
fn a_registered_error_is_passed_on_as_registered() {
    let error = failed(exited(
        1,
        r#"{"error": "BadAsset", "message": "no such key", "at": 7}"#,
    ));
    assert_eq!(
        (error.name.as_str(), error.message.as_str()),
        ("BadAsset", "no such key")
    );
    assert_eq!((error.level, error.retryable), (Level::Warn, false));
    let error = failed(exited(1, r#"{"error": "Busy", "message": ""}"#));
    assert_eq!((error.message.as_str(), error.retryable), ("", true));
}

#[test]
fn no_command_speaks_for_the_worker() {
    for name in RESERVED_NAMES
        .into_iter()
        .chain(["Unheard", "States.ALL", "busy"])
    {
        let stdout = format!(r#"{{"error": "{name}", "message": "stop everything"}}"#);
        let error = failed(exited(1, stdout));
        assert_eq!(error.name, UNKNOWN_ERROR, "{name}");
        assert_eq!(error.message, format!("{name}: stop everything"));
        assert_eq!((error.level, error.retryable), (Level::Error, true));
    }
}

#[test]
fn an_envelope_has_a_name_and_a_message() {
    for (stdout, words) in [
        ("", "it is empty"),
        (r#"["Busy", "later"]"#, "it is JSON and no object"),
        (
            r#"{"message": "later"}"#,
            "missing field `error` at byte 20",
        ),
        (r#"{"error": "Busy"}"#, "missing field `message` at byte 17"),
        (r#"{"error": "", "message": "later"}"#, "`error` is empty"),
        (r#"{"error": " ", "message": "later"}"#, "`error` is empty"),
        (
            r#"{"error": 7, "message": "later"}"#,
            "invalid type: integer `7`, expected a string at byte 11",
        ),
        (
            r#"{"error": "Busy", "message": null}"#,
            "invalid type: null, expected a string at byte 33",
        ),
        (
            r#"{"error": "Busy", "error": "BadAsset", "message": ""}"#,
            "duplicate field `error` at byte 25",
        ),
        (
            "Traceback\n{\"error\": \"Busy\", \"message\": \"\"}",
            "expected value at byte 1",
        ),
    ] {
        let found = malformed(1, stdout);
        assert!(
            found.ends_with(&format!("}}: {words}")),
            "{stdout}: {found}"
        );
    }
}

#[test]
fn an_exception_that_nobody_caught_is_told_by_stderr() {
    let ending = Ending::Exited { code: FAILURE_CODE };
    let traceback = "Traceback\n  line 7\nKeyError: 'path'\n";
    let error = failed(read(
        &ending,
        b"\n",
        traceback,
        &registered(),
        ResultRule::Json,
    ));
    assert_eq!(error.name, MALFORMED_OUTPUT);
    assert!(
        error
            .message
            .contains("it is empty; stderr ended with:\nTraceback\n")
    );
    assert!(
        error.message.ends_with("KeyError: 'path'"),
        "{}",
        error.message
    );
}

#[test]
fn a_fault_does_not_quote_without_end() {
    let stdout = format!(
        r#"{{"reason": "x", "retry_after": "{}"}}"#,
        "y".repeat(9_000)
    );
    let found = malformed(PARK_CODE, stdout);
    assert!(
        found.len() < 400 && found.ends_with("… at byte 9033"),
        "{found}"
    );
}

#[test]
fn a_childs_words_are_made_printable_and_bounded() {
    let error = failed(exited(
        1,
        r#"{"error": "Busy", "message": "a\u0000b \u001b[31m caf\udce9"}"#,
    ));
    assert_eq!(error.message, "a\\u{0}b \\u{1b}[31m caf\\xed\\xb3\\xa9");
    let stdout = format!(r#"{{"error": "Busy", "message": "{}"}}"#, "€".repeat(2_000));
    let error = failed(exited(1, &stdout));
    assert!(error.message.len() <= MESSAGE_BYTES_MAX && error.message.ends_with('…'));
}

#[test]
fn exit_75_parks() {
    let second = |seconds| Duration::from_secs_f64(seconds);
    let year = second(365.0 * 86_400.0);
    for (asked, waits) in [
        ("30", second(30.0)),
        ("0", Duration::ZERO),
        ("-0.0", Duration::ZERO),
        ("1.5", second(1.5)),
        ("31536000", year),
        ("1e300", year),
    ] {
        let stdout = format!(r#"{{"reason": "no quota", "retry_after": {asked}}}"#);
        let parked = Answer::Parked {
            reason: "no quota".to_owned(),
            retry_after: waits,
        };
        assert_eq!(exited(PARK_CODE, &stdout), parked);
    }
    for (stdout, words) in [
        ("", "it is empty"),
        (r#"{"retry_after": 1}"#, "missing field `reason` at byte 18"),
        (
            r#"{"reason": "x"}"#,
            "missing field `retry_after` at byte 15",
        ),
        (r#"{"reason": "", "retry_after": 1}"#, "`reason` is empty"),
        (
            r#"{"reason": "x", "retry_after": -1}"#,
            "`retry_after` is no number of seconds",
        ),
        (
            r#"{"reason": "x", "retry_after": 1e400}"#,
            "number out of range at byte 36",
        ),
        (
            r#"{"reason": "x", "retry_after": "1"}"#,
            "invalid type: string \"1\", expected f64 at byte 34",
        ),
    ] {
        let found = malformed(PARK_CODE, stdout);
        assert!(
            found.ends_with(&format!("}}: {words}")),
            "{stdout}: {found}"
        );
    }
}

#[test]
fn other_codes_and_signals_are_crashes() {
    for (ending, words) in [
        (Ending::Exited { code: 2 }, "exited with code 2"),
        (Ending::Exited { code: 255 }, "exited with code 255"),
        (
            Ending::Signalled { signal: 11 },
            "killed by signal 11 (SIGSEGV)",
        ),
        (
            Ending::WardenLost,
            "killed, because its warden was killed from outside",
        ),
    ] {
        for rule in [ResultRule::Json, ResultRule::Ignored] {
            let error = failed(read(&ending, b"{}", " \n", &registered(), rule));
            assert_eq!(
                (error.name.as_str(), error.message.as_str()),
                (CRASH, words)
            );
            assert_eq!((error.level, error.retryable), (Level::Error, true));
        }
    }
}

#[test]
fn a_crash_tells_the_last_lines_of_stderr() {
    let tail = format!(
        "{}\nlast line\nerror: \u{1b}[31mno space\0\n\n",
        "x".repeat(1_010)
    );
    let ending = Ending::Exited { code: 3 };
    let error = failed(read(&ending, b"", &tail, &registered(), ResultRule::Json));
    assert_eq!(
        error.message,
        "exited with code 3; stderr ended with:\nlast line\nerror: \\u{1b}[31mno space\\u{0}"
    );
}

#[test]
fn ignored_output_is_talk() {
    let ignored = |code, stdout: &str| {
        let ending = Ending::Exited { code };
        read(
            &ending,
            stdout.as_bytes(),
            "",
            &registered(),
            ResultRule::Ignored,
        )
    };
    for stdout in ["", "hello", r#"{"a": 1}"#] {
        assert_eq!(ignored(0, stdout), Answer::Done { result: None });
    }
    let error = failed(ignored(1, r#"{"error": "Busy", "message": "later"}"#));
    assert_eq!(
        (error.name.as_str(), error.message.as_str()),
        (CRASH, "exited with code 1")
    );
    assert_eq!(
        ignored(PARK_CODE, r#"{"reason": "later", "retry_after": 1}"#),
        Answer::Parked {
            reason: "later".to_owned(),
            retry_after: Duration::from_secs(1)
        }
    );
    let error = failed(ignored(PARK_CODE, "temporary failure"));
    assert_eq!(
        (error.name.as_str(), error.message.as_str()),
        (CRASH, "exited with code 75")
    );
}

#[test]
fn a_run_that_was_ended_has_no_answer_of_its_own() {
    let result = br#"{"a": 1}"#;
    let answer = |ending| {
        read(
            &ending,
            result,
            "last words",
            &registered(),
            ResultRule::Json,
        )
    };
    assert_eq!(
        answer(Ending::LeaseLost),
        Answer::Stopped(Stopped::LeaseLost)
    );
    assert_eq!(answer(Ending::Killed), Answer::Stopped(Stopped::Killed));
    let error = failed(answer(Ending::TimedOut));
    assert_eq!((error.name.as_str(), error.retryable), (TIMED_OUT, true));
    assert!(error.message.ends_with("last words"), "{}", error.message);
    let error = failed(answer(Ending::OutputTooLarge { limit: 10 }));
    assert_eq!(
        (error.name.as_str(), error.retryable),
        (OUTPUT_TOO_LARGE, false)
    );
}

#[test]
fn a_failed_spawn_is_retried_unless_it_must_fail_again() {
    let program = || "resize".to_owned();
    for (failure, retryable) in [
        (SpawnFailure::NotFound { program: program() }, true),
        (SpawnFailure::NotExecutable { program: program() }, true),
        (
            SpawnFailure::System {
                reason: "no memory".to_owned(),
            },
            true,
        ),
        (
            SpawnFailure::ArgumentListTooLong { bytes: 3_000_000 },
            false,
        ),
    ] {
        let words = failure.to_string();
        let ending = Ending::SpawnFailed(failure);
        let error = failed(read(&ending, b"", "", &registered(), ResultRule::Json));
        assert_eq!((error.name.as_str(), error.message), (SPAWN_FAILED, words));
        assert_eq!(error.retryable, retryable);
    }
}

#[test]
fn progress_is_a_line_with_a_prefix() {
    let parse = |line: &str| Progress::parse(line.as_bytes()).map(|p| (p.percent, p.note));
    let progress = |percent, note: &str| Some((percent, note.to_owned()));
    assert_eq!(
        parse(r#"leasehold:progress {"percent": 40, "note": "rows 400 of 1000"}"#),
        progress(40, "rows 400 of 1000")
    );
    assert_eq!(
        parse(r#"leasehold:progress {"percent":0}"#),
        progress(0, "")
    );
    assert_eq!(
        parse(r#"leasehold:progress {"percent":99.99,"note":null,"x":1} "#),
        progress(99, "")
    );
    assert_eq!(
        parse(r#"leasehold:progress {"percent":100,"note":"\u0000"}"#),
        progress(100, "\\u{0}")
    );
    for line in [
        "",
        "leasehold:progress",
        "leasehold:progress 40",
        "leasehold:progress [40]",
        r#"leasehold:progress {"note": "half"}"#,
        r#"leasehold:progress {"percent": -1}"#,
        r#"leasehold:progress {"percent": 100.1}"#,
        r#"leasehold:progress {"percent": "40"}"#,
        r#"leasehold:progress {"percent": 40} done"#,
        r#" leasehold:progress {"percent": 40}"#,
        r#"Leasehold:progress {"percent": 40}"#,
    ] {
        assert_eq!(parse(line), None, "{line}");
    }
}

#[test]
fn names_are_registered_once_and_are_those_of_classes() {
    let plain = RegisteredError {
        level: Level::Error,
        retryable: true,
    };
    let refused = |name: &str| RegisteredErrors::new([(name, plain)]).unwrap_err();
    for name in RESERVED_NAMES {
        assert!(
            matches!(refused(name), ErrorNameRefused::Reserved { .. }),
            "{name}"
        );
    }
    for name in ["States.ALL", "States.Timeout", "States."] {
        assert!(
            matches!(refused(name), ErrorNameRefused::States { .. }),
            "{name}"
        );
    }
    for name in ["", "_Private", "7Up", "a.b", "Füll", "a b", &"x".repeat(65)] {
        assert!(
            matches!(refused(name), ErrorNameRefused::Malformed { .. }),
            "{name}"
        );
    }
    assert_eq!(
        RegisteredErrors::new([("Busy", plain), ("Busy", plain)]),
        Err(ErrorNameRefused::Twice {
            name: "Busy".to_owned()
        })
    );
    for name in ["x", "States", &"x".repeat(64)] {
        assert_eq!(
            RegisteredErrors::new([(name, plain)]).unwrap().get(name),
            Some(plain)
        );
    }
}

#[test]
fn settings_are_words() {
    for level in [Level::Error, Level::Warn, Level::Info, Level::Debug] {
        assert_eq!(level.as_str().parse(), Ok(level));
    }
    assert_eq!("warning".parse(), Ok(Level::Warn));
    assert_eq!("env".parse(), Ok(Channel::Environment));
    assert_eq!("stdin".parse(), Ok(Channel::Stdin));
    assert_eq!("json".parse(), Ok(ResultRule::Json));
    assert_eq!("ignored".parse(), Ok(ResultRule::Ignored));
    assert_eq!(
        "loud".parse::<Level>().unwrap_err().to_string(),
        "\"loud\" is no level; use \"error\", \"warn\", \"info\" or \"debug\""
    );
}
