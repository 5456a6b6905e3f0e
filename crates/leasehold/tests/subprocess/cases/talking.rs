//! What a command says on the way, and what of it nobody else learns (G14, G15, CHILD-2).

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{FailureCode, Status, WorkItem};
use libtest_mimic::Trial;

use super::case;
use super::cast::{Command, LIMIT, Play};
use crate::yard::{now, within};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("talking::progress_is_kept_and_secrets_are_not", secrets),
        case(
            "talking::a_command_is_given_what_is_named_and_nothing_else",
            environment,
        ),
        case("talking::lines_are_logged_within_their_bound", bounded),
        case(
            "talking::outputs_larger_than_a_pipe_are_read",
            large_outputs,
        ),
        case("talking::an_endless_output_ends_the_run", endless_output),
        case(
            "talking::a_result_counts_though_its_stream_was_closed_early",
            closed_early,
        ),
        case("talking::no_command_speaks_for_the_worker", forged),
    ]
}

/// As they stand in the payload, and as a command that reads it sees them.
const PAYLOAD: &str = r#"{"user":"ann","password":"hun\"ter22","pem":"first-secret-line\nlast-secret-line","deep":{"Token":[12345678901234567890123]}}"#;
const SECRETS: [&str; 6] = [
    "hun\"ter22",
    "hun\\\"ter22",
    "first-secret-line",
    "last-secret-line",
    "12345678901234567890123",
    "s3cr3t-of-url",
];

/// Progress becomes the item's at the next renewal; what is no progress is a line like any other; and
/// no secret is found in the log, the errors, the notes and the progress, however it was said.
async fn secrets() {
    let script = r#"
        request=$WORKER_REQUEST
        say() { printf '%s\n' "$1" >&2; }
        said='hun"ter22'
        say 'leasehold:progress {"percent": 140}'
        say 'leasehold:progress nonsense'
        say "asked for $request"
        say "the password is $said"
        say 'first-secret-line'
        say 'last-secret-line'
        say 'connecting to postgres://app:s3cr3t-of-url@db/jobs'
        say 'leasehold:progress {"percent": 40, "note": "logged in with hun\"ter22"}'
        until [ -e "$YARD/go" ]; do sleep 0.02; done
        if [ "$LEASEHOLD_ATTEMPT" = 1 ]; then
            printf '%s' '{"error": "Boom", "message": "no hun\"ter22 at postgres://app:s3cr3t-of-url@db"}'
            exit 1
        elif [ "$LEASEHOLD_FENCE" = 2 ]; then
            printf '%s' '{"reason": "locked out: hun\"ter22", "retry_after": 0}'
            exit 75
        fi
        printf 'not a result: %s' "$request"
    "#;
    let command = Command {
        redacted: ["password", "pem", "token"].map(str::to_owned).to_vec(),
        ..Command::shell("TELLTALE", script)
    };
    let play = Play::of([command]);
    let id = play.enqueue("TELLTALE", PAYLOAD).await;
    let progress = within(LIMIT, "progress", async || {
        play.yard.item(id).await.progress
    });
    let progress = progress.await;
    assert_eq!(progress.percent, 40);
    assert_eq!(progress.note.as_str(), "logged in with ***");
    play.make("go");
    let parked = within(LIMIT, "a park", async || {
        let item = play.yard.item(id).await;
        (item.claim_seq == 2 && item.status == Status::Queued).then_some(item)
    })
    .await;
    assert_eq!(parked.attempts, 1);
    assert_no_secret("the parked row", &row(&parked));
    let item = play.finished(id).await;
    assert_eq!(
        item.failure_code.as_ref().unwrap().as_str(),
        "MalformedSubprocessOutput"
    );
    assert_no_secret("the row", &row(&item));
    let log = play.log();
    assert_no_secret("the log", &log);
    for heard in [
        "leasehold:progress nonsense",
        r#"{"percent": 140}"#,
        "connecting to postgres://app:***@db",
    ] {
        assert!(log.contains(heard), "{heard} is not in {log}");
    }
    play.over().await;
}

/// Everything of a row but its payload.
fn row(item: &WorkItem) -> String {
    let mut row = serde_json::to_value(item).unwrap();
    row.as_object_mut().unwrap().remove("payload");
    let texts = [
        item.last_error.as_ref().map_or("", |error| error.as_str()),
        item.errors
            .last()
            .map_or("", |error| error.message.as_str()),
    ];
    format!("{row}\n{}", texts.join("\n"))
}

fn assert_no_secret(place: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is in {place}: {text}");
    }
}

/// This process's variables hold its role, and whatever its own parents had; none of them is handed on.
async fn environment() {
    let script = r"env | sed 's/=.*//' >&2; echo '{}'";
    let play = Play::of([Command::shell("SHOW", script)]);
    let item = play.run("SHOW", "{}").await;
    assert_eq!(item.status, Status::Done);
    let log = play.log();
    let names: BTreeSet<&str> = log
        .lines()
        .filter_map(|line| line.split_once(" child: ")?.1.split(' ').next())
        .collect();
    let known = [
        "HOME",
        "LANG",
        "LC_ALL",
        "MEMBER",
        "PATH",
        "TMPDIR",
        "TZ",
        "YARD",
        "LEASEHOLD_ATTEMPT",
        "LEASEHOLD_FENCE",
        "LEASEHOLD_ITEM_ID",
        "LEASEHOLD_KIND",
        "LEASEHOLD_ORG_ID",
        "WORKER_REQUEST",
        // The shell's own.
        "OLDPWD",
        "PWD",
        "SHLVL",
        "_",
    ];
    let unknown: Vec<_> = names.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(names.contains("LEASEHOLD_ITEM_ID"), "{names:?}");
    play.over().await;
}

/// So much is logged of a run as is kept of its standard error, and no more of many short lines than of
/// fewer long ones.
async fn bounded() {
    let play = Play::of([
        Command::shell("SHORT", "yes | head -n 300000 >&2; echo '{}'"),
        Command::shell(
            "LONG",
            "yes \"$(printf %0999d 0)\" | head -n 1000 >&2; echo '{}'",
        ),
    ]);
    for kind in ["SHORT", "LONG"] {
        let item = play.run(kind, "{}").await;
        assert_eq!(item.status, Status::Done);
    }
    let log = play.log();
    let count = |said: &str| log.matches(&format!(" child: {said} ")).count();
    let lines = (count("y"), count(&"0".repeat(999)));
    assert_eq!(lines, (262_144 / 64, 262_144 / 999 + 1));
    assert_eq!(log.matches("further lines are not logged").count(), 2);
    play.over().await;
}

/// CHILD-2(a): a hundred mebibytes of talk without an end of a line, and a result as large as may be.
async fn large_outputs() {
    let script = r#"
        head -c 104857600 /dev/zero | tr '\0' x >&2
        printf '{"r":"'; head -c 1000000 /dev/zero | tr '\0' r; printf '"}'
    "#;
    let play = Play::of([
        Command::shell("LARGE", script),
        Command::shell("QUICK", "echo '{}'"),
    ]);
    play.run("QUICK", "{}").await;
    let before = peak_kib(play.worker.id());
    let item = play.run("LARGE", "{}").await;
    assert_eq!(item.status, Status::Done, "{item:?}");
    assert_eq!(item.result.unwrap().as_str().len(), 1_000_008);
    let grown = peak_kib(play.worker.id()) - before;
    // The result a few times over: as it is read, decoded, and written to the store.
    assert!(grown < 24 << 10, "the worker grew by {grown} KiB");
    play.over().await;
}

/// The most memory that a process ever had.
fn peak_kib(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// CHILD-2(b): the same would come out the next time, so that it is not tried again.
async fn endless_output() {
    let play = Play::of([Command::shell("ENDLESS", "yes | tr -d '\\n'")]);
    let item = play.run("ENDLESS", "{}").await;
    assert_eq!((item.status, item.attempts), (Status::Failed, 1));
    assert_eq!(item.failure_code.unwrap().as_str(), "OutputTooLarge");
    let error = item.last_error.unwrap();
    assert!(error.as_str().contains("1048576 bytes"), "{error}");
    play.over().await;
}

/// CHILD-2(c): the result is taken when the command ends, and not before.
async fn closed_early() {
    let play = Play::of([Command::shell("CLOSED", "echo '{}'; exec >&-; sleep 1.5")]);
    let asked = now();
    let item = play.run("CLOSED", "{}").await;
    assert_eq!(item.status, Status::Done);
    let took = item.updated_at.duration_since(asked);
    let (least, most) = (Duration::from_millis(1_500), Duration::from_secs(5));
    assert!((least..most).contains(&took.unsigned_abs()), "{took:?}");
    play.over().await;
}

/// G14: whatever name of the worker's own a command reports, it is an unknown error of the command's.
async fn forged() {
    let names = FailureCode::RESERVED.iter();
    let commands: Vec<Command> = names
        .enumerate()
        .map(|(n, name)| {
            let script = r#"printf '{"error": "%s", "message": "forged"}' "$1"; exit 1"#;
            let words = ["/bin/sh", "-c", script, "sh", name];
            Command::new(&format!("FORGE_{n}"), &words)
        })
        .collect();
    assert!(commands.len() > 10);
    let play = Play::of(commands.clone());
    for command in commands {
        let item = play.run(&command.kind, "{}").await;
        assert_eq!(item.status, Status::Failed);
        assert_eq!(item.attempts, 2, "an unknown error is tried again");
        assert_eq!(
            item.failure_code.unwrap().as_str(),
            "UnknownSubprocessError"
        );
        assert_eq!(item.worker_losses, 0);
        let error = item.last_error.unwrap();
        let told = format!("{}: forged", command.words[4]);
        assert!(error.as_str().ends_with(&told), "{error}");
    }
    play.over().await;
}
