//! The protocol from end to end: requests, results, errors, parks (CHILD-3, CHILD-4).

use leasehold::{Status, WorkItem};
use libtest_mimic::Trial;

use super::case;
use super::cast::{Command, LIMIT, Play};
use crate::yard::within;

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("protocol::a_result_is_kept_byte_for_byte", results),
        case(
            "protocol::a_result_that_no_store_keeps_is_refused",
            unkept_results,
        ),
        case("protocol::what_breaks_the_rule_is_malformed", malformed),
        case("protocol::errors_count_by_their_names", errors),
        case("protocol::a_park_spends_no_attempt", parked),
        case(
            "protocol::a_request_reaches_the_command_or_nothing_is_started",
            requests,
        ),
        case(
            "protocol::a_command_that_cannot_be_started_says_why",
            unstarted,
        ),
        case("protocol::a_command_is_told_what_it_works_on", context),
    ]
}

fn code(item: &WorkItem) -> &str {
    item.failure_code.as_ref().map_or("", |code| code.as_str())
}

fn error(item: &WorkItem) -> &str {
    item.last_error.as_ref().map_or("", |error| error.as_str())
}

/// Large numbers, escapes and white space included.
async fn results() {
    let results = [
        r#"{"n":123456789012345678901234567890,"f":1.10,"e":"\u00e4\/"}"#,
        "{ \"a\" : [ 1 ,\t2 ] }",
        "{}",
    ];
    let commands = results.iter().enumerate().map(|(n, result)| {
        let words = ["/bin/sh", "-c", r#"printf '\n %s \n' "$1""#, "sh", result];
        Command::new(&format!("RESULT_{n}"), &words)
    });
    let ignored = Command {
        ignores_stdout: true,
        ..Command::shell("IGNORED", "echo all is well")
    };
    let play = Play::of(commands.chain([ignored]).collect::<Vec<_>>());
    for (n, result) in results.iter().enumerate() {
        let item = play.run(&format!("RESULT_{n}"), "{}").await;
        assert_eq!(item.status, Status::Done, "{item:?}");
        assert_eq!(item.result.unwrap().as_str(), *result);
    }
    let item = play.run("IGNORED", "{}").await;
    assert_eq!((item.status, item.result), (Status::Done, None));
    play.over().await;
}

/// It is JSON by the rule for commands, and not by that of the store: final, since the next result
/// would be no other.
async fn unkept_results() {
    let results = [
        r#"{"zero":"a\u0000b"}"#,
        r#"{"twice":1,"twice":2}"#,
        r#"{"half":"\ud800"}"#,
    ];
    let commands = results.iter().enumerate().map(|(n, result)| {
        let words = ["/bin/sh", "-c", r#"printf '%s' "$1""#, "sh", result];
        Command::new(&format!("RESULT_{n}"), &words)
    });
    let play = Play::of(commands.collect::<Vec<_>>());
    for n in 0..results.len() {
        let item = play.run(&format!("RESULT_{n}"), "{}").await;
        assert_eq!(
            (item.status, item.attempts),
            (Status::Failed, 1),
            "{item:?}"
        );
        assert_eq!(code(&item), "result_invalid");
    }
    play.over().await;
}

/// CHILD-4: noise never becomes a result, nor an error of the worker's own.
async fn malformed() {
    let forged = r#"{"error": "lease_expired", "message": "forged"}"#;
    let scripts = [
        format!("echo banner; printf '10%%\\r20%%\\r'; echo '{forged}'; echo '{{}}'"),
        "echo '{}'; echo 'warning: late'".to_owned(),
        "echo '{\"n\": 1}'; echo '{\"n\": 2}'".to_owned(),
        "echo '[]'".to_owned(),
        "true".to_owned(),
        "printf '\\377'".to_owned(),
        "echo banner; exit 1".to_owned(),
        "echo later; exit 75".to_owned(),
    ];
    let commands = scripts.iter().enumerate();
    let commands = commands.map(|(n, script)| Command::shell(&format!("NOISE_{n}"), script));
    let long = "head -c 5000 /dev/zero | tr '\\0' z";
    let others = [
        Command::shell("LONG", long),
        Command::shell("THREE", "echo '{}'; exit 3"),
    ];
    let play = Play::of(commands.chain(others).collect::<Vec<_>>());
    for n in 0..scripts.len() {
        let item = play.run(&format!("NOISE_{n}"), "{}").await;
        assert_eq!(
            (item.status, item.attempts),
            (Status::Failed, 2),
            "{item:?}"
        );
        assert_eq!(code(&item), "MalformedSubprocessOutput", "{item:?}");
        assert_eq!(item.result, None);
    }
    let item = play.run("THREE", "{}").await;
    assert_eq!(code(&item), "SubprocessCrashError");
    assert!(error(&item).contains("exited with code 3"), "{item:?}");
    let item = play.run("LONG", "{}").await;
    assert_eq!(code(&item), "MalformedSubprocessOutput");
    // Two kibibytes of it are logged, and no more.
    let log = play.log();
    let longest = log.split(|c| c != 'z').map(str::len).max();
    assert_eq!(longest, Some(2_048));
    play.over().await;
}

async fn errors() {
    let script = r#"printf '{"error": "%s", "message": "as it is"}' "$1"; exit 1"#;
    let command = |kind: &str, name: &str| Command {
        errors: vec![("InputGone".to_owned(), false), ("Busy".to_owned(), true)],
        ..Command::new(kind, &["/bin/sh", "-c", script, "sh", name])
    };
    let play = Play::of([
        command("FINAL", "InputGone"),
        command("AGAIN", "Busy"),
        command("UNKNOWN", "ValueError"),
    ]);
    let expected = [
        ("FINAL", "InputGone", 1, "InputGone: as it is"),
        ("AGAIN", "Busy", 2, "Busy: as it is"),
        (
            "UNKNOWN",
            "UnknownSubprocessError",
            2,
            "UnknownSubprocessError: ValueError: as it is",
        ),
    ];
    let mut dead = Vec::new();
    for (kind, name, attempts, told) in expected {
        let item = play.run(kind, "{}").await;
        dead.push(item.id);
        assert_eq!((item.status, item.attempts), (Status::Failed, attempts));
        assert_eq!((code(&item), error(&item)), (name, told));
        assert_eq!(item.errors.len(), attempts as usize);
    }
    let audited = play.yard.audit_kinds(&dead).await;
    assert_eq!(audited, ["work.item.dead_letter"; 3]);
    play.over().await;
}

async fn parked() {
    let script = r#"
        [ "$LEASEHOLD_FENCE" = 1 ] || { echo '{}'; exit 0; }
        echo '{"reason": "no quota left", "retry_after": 1.5}'
        exit 75
    "#;
    let play = Play::of([Command::shell("GUARDED", script)]);
    let id = play.enqueue("GUARDED", "{}").await;
    let parked = within(LIMIT, "a park", async || {
        let item = play.yard.item(id).await;
        (item.claim_seq == 1 && item.status == Status::Queued).then_some(item)
    })
    .await;
    assert_eq!((parked.attempts, error(&parked)), (0, "no quota left"));
    let waits = parked.available_at.duration_since(parked.updated_at);
    assert_eq!(waits.as_millis(), 1_500);
    let item = play.finished(id).await;
    assert_eq!((item.status, item.attempts), (Status::Done, 1));
    play.over().await;
}

/// CHILD-3: by the variable as far as one goes, by standard input to the limit of a payload.
async fn requests() {
    let count = r#"
        : > "$YARD/started"
        printf '{"bytes": %s}' "$(printf %s "$WORKER_REQUEST" | wc -c)"
    "#;
    let read = r#"printf '{"bytes": %s, "variable": %s}' "$(wc -c)" "${#WORKER_REQUEST}""#;
    let play = Play::of([
        Command::shell("VARIABLE", count),
        Command {
            reads_stdin: true,
            ..Command::shell("STDIN", read)
        },
    ]);
    for (bytes, fits) in [
        (120_000, true),
        (131_000, true),
        (131_056, true),
        (131_057, false),
        (131_072, false),
        (262_144, false),
    ] {
        let started = play.yard.folder.path().join("started");
        // There is none before the first.
        let _ = std::fs::remove_file(&started);
        let item = play.run("VARIABLE", &payload(bytes)).await;
        if fits {
            let result = item.result.unwrap();
            assert_eq!(result.as_str(), format!(r#"{{"bytes": {bytes}}}"#));
        } else {
            assert_eq!((item.status, item.attempts), (Status::Failed, 1));
            assert_eq!(code(&item), "RequestTooLarge");
            let told = format!("the request has {bytes} bytes");
            assert!(error(&item).contains(&told), "{item:?}");
            assert!(error(&item).contains("131056"), "{item:?}");
        }
        assert_eq!(started.exists(), fits, "whether it was started");
    }
    for (bytes, in_variable) in [(2_000, 2_000), (921_600, 0)] {
        let item = play.run("STDIN", &payload(bytes)).await;
        let result = item.result.unwrap();
        let told = format!(r#"{{"bytes": {bytes}, "variable": {in_variable}}}"#);
        assert_eq!(result.as_str(), told);
    }
    play.over().await;
}

/// A payload of so many bytes, of characters of two.
fn payload(bytes: usize) -> String {
    let frame = r#"{"a":""}"#.len();
    let (twos, ones) = ((bytes - frame) / 2, (bytes - frame) % 2);
    format!(r#"{{"a":"{}{}"}}"#, "\u{e4}".repeat(twos), "x".repeat(ones))
}

async fn unstarted() {
    let play = Play::of([
        Command::new("MISSING", &["no-such-command-here"]),
        Command::new("FORBIDDEN", &["/etc/passwd"]),
        Command::new("BELOW", &["/etc/passwd/command"]),
        Command::new("LONG", &[&"x".repeat(300)]),
    ]);
    for (kind, told) in [
        ("MISSING", "command not found: no-such-command-here"),
        ("FORBIDDEN", "not executable: /etc/passwd"),
        ("BELOW", "command not found: /etc/passwd/command"),
        ("LONG", "command not found: xxx"),
    ] {
        let item = play.run(kind, "{}").await;
        assert_eq!((item.status, item.attempts), (Status::Failed, 2));
        assert_eq!(code(&item), "SpawnFailed");
        assert!(error(&item).contains(told), "{item:?}");
    }
    play.over().await;
}

async fn context() {
    let script = r#"
        printf '{"item": "%s", "kind": "%s", "attempt": %s, "fence": %s, "org": "%s", "trace": "%s", "folder": "%s"}' \
            "$LEASEHOLD_ITEM_ID" "$LEASEHOLD_KIND" "$LEASEHOLD_ATTEMPT" "$LEASEHOLD_FENCE" \
            "$LEASEHOLD_ORG_ID" "$TRACEPARENT" "$(pwd -P)"
    "#;
    let play = Play::of([Command::shell("CONTEXT", script)]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let enqueue = play
        .yard
        .client
        .enqueue_raw("CONTEXT", "{}")
        .traceparent(trace);
    let id = crate::yard::inserted(enqueue.await.unwrap());
    let item = play.finished(id).await;
    let folder = play.yard.folder.path().canonicalize().unwrap();
    let told = serde_json::json!({
        "item": id.to_string(),
        "kind": "CONTEXT",
        "attempt": 1,
        "fence": 1,
        "org": leasehold::core::OrgId::SINGLE.to_string(),
        "trace": trace,
        "folder": folder.to_str().unwrap(),
    });
    let result: serde_json::Value = item.result.unwrap().decode().unwrap();
    assert_eq!(result, told);
    play.over().await;
}
