//! Everything another program may rely on, held still.

use std::fmt::Write as _;

use super::*;

#[test]
fn the_names_of_the_wire() {
    let mut wire = format!(
        "request bytes: {REQUEST_BYTES_MAX}\nmessage bytes: {MESSAGE_BYTES_MAX}\n\
         exit codes: done 0, failed {FAILURE_CODE}, parked {PARK_CODE}\n\
         progress: {PROGRESS_PREFIX:?}\n"
    );
    for (what, names) in [
        ("variables", &PROTOCOL_VARIABLES[..]),
        ("inherited", &crate::INHERITED),
        ("inherited prefix", &[crate::INHERITED_PREFIX]),
        (
            "levels",
            &[Level::Error, Level::Warn, Level::Info, Level::Debug].map(Level::as_str),
        ),
        ("reserved", &RESERVED_NAMES),
    ] {
        writeln!(wire, "{what}: {}", names.join(" ")).unwrap();
    }
    insta::assert_snapshot!(wire, @r#"
    request bytes: 131056
    message bytes: 2048
    exit codes: done 0, failed 1, parked 75
    progress: "leasehold:progress "
    variables: WORKER_REQUEST LEASEHOLD_ITEM_ID LEASEHOLD_KIND LEASEHOLD_ATTEMPT LEASEHOLD_FENCE LEASEHOLD_ORG_ID TRACEPARENT
    inherited: PATH HOME LANG TZ TMPDIR
    inherited prefix: LC_
    levels: error warn info debug
    reserved: MalformedMessage AbortedStaleTask SubprocessCrashError MalformedSubprocessOutput UnknownSubprocessError RequestTooLarge OutputTooLarge SpawnFailed ProcessingTimeout WorkerStopping Parked Released handler_error panicked timed_out lease_expired refused payload_invalid result_invalid cancelled orphaned
    "#);
}

#[test]
fn one_example_of_each_answer() {
    let read = |ending: Ending, stdout: &str, stderr: &str, rule| {
        super::read(&ending, stdout.as_bytes(), stderr, &registered(), rule)
    };
    let json = |code, stdout| read(Ending::Exited { code }, stdout, "", ResultRule::Json);
    let plain = |ending| read(ending, "", "last words\n", ResultRule::Ignored);
    let answers = [
        ("result", json(0, "{\"rows\": 7.0}\n")),
        ("no result", json(0, "{\"rows\": 7.0}\nbye")),
        (
            "registered",
            json(1, r#"{"error": "BadAsset", "message": "no such key"}"#),
        ),
        (
            "not registered",
            json(1, r#"{"error": "Unheard", "message": "what now"}"#),
        ),
        (
            "reserved",
            json(1, r#"{"error": "AbortedStaleTask", "message": "stop"}"#),
        ),
        ("no envelope", json(1, r#"{"error": "BadAsset"}"#)),
        (
            "parked",
            json(75, r#"{"reason": "no quota", "retry_after": 1.5}"#),
        ),
        ("not parked", json(75, "")),
        (
            "a task's park",
            read(
                Ending::Exited { code: 75 },
                r#"{"reason": "no quota", "retry_after": 1.5}"#,
                "last words",
                ResultRule::Task,
            ),
        ),
        ("talk", plain(Ending::Exited { code: 0 })),
        ("code", plain(Ending::Exited { code: 3 })),
        ("signal", plain(Ending::Signalled { signal: 9 })),
        ("too long", plain(Ending::TimedOut)),
        (
            "too much",
            plain(Ending::OutputTooLarge { limit: 1_048_576 }),
        ),
        (
            "not started",
            plain(Ending::SpawnFailed(SpawnFailure::NotFound {
                program: "resize".to_owned(),
            })),
        ),
        ("lease lost", plain(Ending::LeaseLost)),
        ("killed", plain(Ending::Killed)),
        (
            "too large a request",
            Answer::Failed(
                deliver(&b" ".repeat(200_000), Channel::Environment)
                    .unwrap_err()
                    .into(),
            ),
        ),
    ];
    let mut examples = String::new();
    for (what, answer) in answers {
        match answer {
            Answer::Failed(ChildError {
                name,
                message,
                level,
                retryable,
                ..
            }) => {
                let again = if retryable { "retryable" } else { "final" };
                writeln!(examples, "{what}: {name}, {level}, {again}: {message:?}").unwrap();
            }
            answer => writeln!(examples, "{what}: {answer:?}").unwrap(),
        }
    }
    insta::assert_snapshot!(examples, @r#"
    result: Done { result: Some("{\"rows\": 7.0}") }
    no result: MalformedSubprocessOutput, error, retryable: "stdout is not one JSON object: trailing characters at byte 15; it begins with:\n{\"rows\": 7.0}\nbye"
    registered: BadAsset, warn, final: "no such key"
    not registered: UnknownSubprocessError, error, retryable: "Unheard: what now"
    reserved: UnknownSubprocessError, error, retryable: "AbortedStaleTask: stop"
    no envelope: MalformedSubprocessOutput, error, retryable: "exited with code 1, and stdout is not {\"error\": \"…\", \"message\": \"…\"}: missing field `message` at byte 21; it begins with:\n{\"error\": \"BadAsset\"}"
    parked: Parked { reason: "no quota", retry_after: 1.5s }
    not parked: MalformedSubprocessOutput, error, retryable: "exited with code 75, and stdout is not {\"reason\": \"…\", \"retry_after\": seconds}: it is empty"
    a task's park: SubprocessCrashError, error, retryable: "exited with code 75; stderr ended with:\nlast words"
    talk: Done { result: None }
    code: SubprocessCrashError, error, retryable: "exited with code 3; stderr ended with:\nlast words"
    signal: SubprocessCrashError, error, retryable: "killed by signal 9 (SIGKILL); stderr ended with:\nlast words"
    too long: timed_out, error, retryable: "killed: it ran longer than its time limit; stderr ended with:\nlast words"
    too much: OutputTooLarge, error, final: "killed: it wrote more than 1048576 bytes to its standard output"
    not started: SpawnFailed, error, retryable: "command not found: resize; correct the command, or the PATH it is looked up in"
    lease lost: Stopped(LeaseLost)
    killed: Stopped(Killed)
    too large a request: RequestTooLarge, error, final: "the request has 200000 bytes, and WORKER_REQUEST takes at most 131056; hand it over by stdin, or store the data elsewhere and send its id"
    "#);
}
