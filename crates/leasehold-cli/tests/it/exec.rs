//! Running a handler without a queue.

use serde_json::Value;

use crate::harness::{Ended, Place};

/// Runs a shell's script as a handler of the kind SEND.
fn script(options: &[&str], text: &str) -> Ended {
    let arguments = [&["exec", "SEND"], options, &["--", "sh", "-c", text]].concat();
    Place::new().run(&arguments)
}

/// The talk, without how long it took.
fn told(ended: &Ended) -> String {
    let lines = ended
        .talk
        .lines()
        .map(|line| match line.split_once(", after ") {
            Some((how, _)) => how,
            None => line,
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_result_is_the_output_and_all_else_is_talk() {
    let ended = script(
        &["--payload", r#"{"id": 7}"#],
        r#"echo working >&2
        echo 'leasehold:progress {"percent": 40.9, "note": "rows 2 of 5"}' >&2
        echo 'leasehold:progress {"percent": 100}' >&2
        printf '\033[31mred\n' >&2
        printf ' { "id" : 12345678901234567890123 } \n'"#,
    );
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert_eq!(ended.out, "{ \"id\" : 12345678901234567890123 }\n");
    insta::assert_snapshot!(told(&ended), @r"
    working
    progress: 40% rows 2 of 5
    progress: 100%
    \u{1b}[31mred
    ended: exited with code 0
    wrote: 37 bytes to stdout (at most 1048576), 113 to stderr (262144 are kept)
    done: the item would be completed with this result
    ");
}

#[test]
fn the_command_is_told_what_it_works_on_and_nothing_else() {
    let place = Place::new();
    let output = place
        .command(&[
            "exec",
            "SEND",
            "--payload",
            r#"{"id": 7}"#,
            "--env",
            "APP_*",
            "--",
        ])
        .args(["sh", "-c", "env >&2; echo '{}'"])
        .env("PATH", std::env::var_os("PATH").expect("a PATH"))
        .env("APP_KEY", "told")
        .env("OTHER", "secret")
        .env("LEASEHOLD_DATABASE", "sqlite:secret.db")
        .output()
        .expect("the command");
    let talk = String::from_utf8_lossy(&output.stderr);
    for line in [
        r#"WORKER_REQUEST={"id": 7}"#,
        "LEASEHOLD_KIND=SEND",
        "LEASEHOLD_ATTEMPT=1",
        "LEASEHOLD_FENCE=1",
        "LEASEHOLD_ORG_ID=00000000-0000-0000-0000-000000000000",
        "APP_KEY=told",
    ] {
        assert!(talk.lines().any(|one| one == line), "{line}: {talk}");
    }
    assert!(talk.contains("LEASEHOLD_ITEM_ID="), "{talk}");
    assert!(!talk.contains("secret"), "{talk}");
}

#[test]
fn the_payload_comes_from_a_file_and_goes_by_either_way() {
    let place = Place::new();
    let large = format!(r#"{{"text": "{}"}}"#, "x".repeat(200_000));
    place.file("large.json", &large);
    let by = |options: &[&str]| {
        let arguments = [&["exec", "SEND", "--payload", "@large.json"], options].concat();
        place.run(&arguments)
    };
    let ended = by(&["--stdin", "--", "cat"]);
    assert_eq!((ended.code, ended.out.trim()), (0, large.as_str()));

    let ended = by(&["--", "cat"]);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    insta::assert_snapshot!(told(&ended), @"
    failed: RequestTooLarge: the request has 200012 bytes, and WORKER_REQUEST takes at most 131056; hand it over by stdin, or store the data elsewhere and send its id
      logged at the level error
      the item would be a dead letter at once: it is not to be tried again
    ");
}

#[test]
fn failures_say_what_the_worker_would_make_of_them() {
    let unknown = script(
        &[],
        r#"echo '{"error": "BadAsset", "message": "no such key"}'; exit 1"#,
    );
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""));
    insta::assert_snapshot!(told(&unknown), @"
    ended: exited with code 1
    wrote: 48 bytes to stdout (at most 1048576), 0 to stderr (262144 are kept)
    failed: UnknownSubprocessError: BadAsset: no such key
      logged at the level error
      the item would be tried again, while it has attempts left
      to pass the error on by its own name, register it in [kinds.SEND.errors]
    ");

    let malformed = script(&[], r#"echo banner; echo '{"rows": 7}'"#);
    assert_eq!((malformed.code, malformed.out.as_str()), (1, ""));
    insta::assert_snapshot!(told(&malformed), @r#"
    ended: exited with code 0
    wrote: 19 bytes to stdout (at most 1048576), 0 to stderr (262144 are kept)
    failed: MalformedSubprocessOutput: stdout is not one JSON object: expected value at byte 1; it begins with:
        banner
        {"rows": 7}
      logged at the level error
      the item would be tried again, while it has attempts left
    "#);

    let crashed = script(&[], "echo 'panic: oh no' >&2; exit 9");
    assert_eq!(crashed.code, 1);
    insta::assert_snapshot!(told(&crashed), @"
    panic: oh no
    ended: exited with code 9
    wrote: 0 bytes to stdout (at most 1048576), 13 to stderr (262144 are kept)
    failed: SubprocessCrashError: exited with code 9; stderr ended with:
        panic: oh no
      logged at the level error
      the item would be tried again, while it has attempts left
    ");

    let missing = Place::new().run(&["exec", "SEND", "--", "no-such-program"]);
    assert_eq!(missing.code, 1);
    insta::assert_snapshot!(told(&missing), @"
    failed: SpawnFailed: command not found: no-such-program; correct the command, or the PATH it is looked up in
      logged at the level error
      the item would be tried again, while it has attempts left
    ");
}

#[test]
fn only_a_name_that_can_be_registered_is_asked_to_be() {
    for (name, advice) in [
        ("BadAsset", "register it in [kinds.SEND.errors]"),
        (
            "AbortedStaleTask",
            "  AbortedStaleTask is an error of the worker's own",
        ),
        (
            "States.Timeout",
            "errors are Step Functions' own; choose another name",
        ),
        (
            "my.pkg.BadAsset",
            "\"my.pkg.BadAsset\" is no name for an error",
        ),
        ("Bad: Asset", "\"Bad: Asset\" is no name for an error"),
    ] {
        let answer = format!(r#"echo '{{"error": "{name}", "message": "no such key"}}'; exit 1"#);
        let told = script(&[], &answer).talk;
        assert!(told.contains(advice), "{name}: {told}");
        let is_asked = told.contains("register it");
        assert_eq!(is_asked, name == "BadAsset", "{name}: {told}");
    }
}

#[test]
fn not_now_is_a_no() {
    let ended = script(
        &[],
        r#"echo '{"reason": "no quota left", "retry_after": 90}'; exit 75"#,
    );
    assert_eq!((ended.code, ended.out.as_str()), (3, ""));
    assert!(
        told(&ended).ends_with(
            "parked: no quota left\n  the item would be tried again in 1m30s, and no attempt be spent"
        ),
        "{}",
        ended.talk
    );
}

#[test]
fn talk_on_stdout_is_no_result_if_the_kind_says_so() {
    let ended = script(&["--result", "ignored"], "echo hello");
    assert_eq!((ended.code, ended.out.as_str()), (0, ""));
    assert!(
        ended.talk.ends_with("completed without a result\n"),
        "{}",
        ended.talk
    );
}

#[test]
fn the_object_tells_all_of_it() {
    let place = Place::new();
    let answer = |text: &str| {
        let arguments = ["exec", "SEND", "--json", "--", "sh", "-c", text];
        let ended = place.run(&arguments);
        let mut answer: Value = serde_json::from_str(&ended.out).expect("an object");
        assert!(answer["duration_ms"].take().is_u64(), "{answer}");
        (ended.code, answer.to_string())
    };
    let (code, done) = answer(r#"echo talk >&2; echo '{"rows": 7}'"#);
    assert_eq!(code, 0);
    insta::assert_snapshot!(done, @r#"{"answer":{"is":"done"},"duration_ms":null,"ending":{"code":0,"how":"exited","signal":null,"text":"exited with code 0"},"kind":"SEND","result":{"rows":7},"schema":1,"stderr_bytes":5,"stdout_bytes":12}"#);
    let (code, failed) = answer("kill -SEGV $$");
    assert_eq!(code, 1);
    insta::assert_snapshot!(failed, @r#"{"answer":{"is":"failed","level":"error","message":"killed by signal 11 (SIGSEGV)","name":"SubprocessCrashError","retryable":true},"duration_ms":null,"ending":{"code":null,"how":"signalled","signal":11,"text":"killed by signal 11 (SIGSEGV)"},"kind":"SEND","result":null,"schema":1,"stderr_bytes":0,"stdout_bytes":0}"#);
    let (code, parked) = answer(r#"echo '{"reason": "later", "retry_after": 0.5}'; exit 75"#);
    assert_eq!(code, 3);
    insta::assert_snapshot!(parked, @r#"{"answer":{"is":"parked","reason":"later","retry_after_ms":500},"duration_ms":null,"ending":{"code":75,"how":"exited","signal":null,"text":"exited with code 75"},"kind":"SEND","result":null,"schema":1,"stderr_bytes":0,"stdout_bytes":40}"#);
}

#[test]
fn the_kind_s_section_says_what_is_left_out() {
    let place = Place::new();
    place.file("folder/handler.sh", "cat; pwd >&2; exit \"$CODE\"");
    place.file(
        "folder/leasehold.toml",
        r#"
        [kinds.SEND]
        command = ["sh", "handler.sh"]
        request = "stdin"
        environment = ["CODE"]
        errors = { BadAsset = { level = "warn", retryable = false } }
        "#,
    );
    let run = |code: &str, arguments: &[&str]| {
        let output = place
            .command(
                &[
                    &["exec", "SEND", "--config", "folder/leasehold.toml"],
                    arguments,
                ]
                .concat(),
            )
            .env("CODE", code)
            .env("PATH", std::env::var_os("PATH").expect("a PATH"))
            .output()
            .expect("the command");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, out, talk) = run("0", &["--payload", r#"{"id": 7}"#]);
    assert_eq!((code, out.as_str()), (Some(0), "{\"id\": 7}\n"), "{talk}");
    assert!(talk.lines().any(|line| line.ends_with("/folder")), "{talk}");

    let envelope = r#"{"error": "BadAsset", "message": "gone"}"#;
    let (code, _, talk) = run("1", &["--payload", envelope]);
    assert_eq!(code, Some(1));
    assert!(
        talk.contains(
            "failed: BadAsset: gone\n  logged at the level warn\n  the item would be a dead letter"
        ),
        "{talk}"
    );

    // What is typed runs where it is typed, and has the section's settings all the same.
    let own = [
        "--payload",
        envelope,
        "--",
        "sh",
        "-c",
        "pwd >&2; cat; exit 1",
    ];
    let (_, _, talk) = run("0", &own);
    assert!(
        !talk.lines().any(|line| line.ends_with("/folder")),
        "{talk}"
    );
    assert!(talk.contains("failed: BadAsset: gone"), "{talk}");
}

#[test]
fn what_cannot_be_run_is_a_usage_error() {
    let place = Place::new();
    let talk = place.refused(2, &["exec", "SEND"]);
    assert!(talk.contains("there is no command for SEND"), "{talk}");
    place.refused(2, &["exec", "send", "--", "true"]);
    place.refused(2, &["exec", "SEND", "--payload", "[1]", "--", "true"]);
    place.refused(2, &["exec", "SEND", "--time-limit", "0s", "--", "true"]);
    let talk = place.refused(2, &["exec", "SEND", "--env", "KEY=secret", "--", "true"]);
    assert!(!talk.contains("secret"), "{talk}");
    place.refused(
        2,
        &["exec", "SEND", "--env", "WORKER_REQUEST", "--", "true"],
    );
    let ended = place.run(&["exec", "SEND", "--result", "xml", "--", "true"]);
    assert_eq!(ended.code, 2, "{}", ended.talk);
}

mod real_process {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::{Child, ChildStderr, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process, test_kill_process};

    use super::script;
    use crate::harness::Place;

    /// Ignores TERM, has a child in a session of its own, and says who they are.
    const STUBBORN: &str = "trap '' TERM
        setsid sh -c 'echo $$ >&2; while :; do sleep 60; done' &
        echo $$ >&2
        while :; do sleep 60; done";

    fn pid(line: &str) -> Pid {
        Pid::from_raw(line.trim().parse().expect("a number")).expect("a process")
    }

    /// Starts the command, and waits for so many lines of talk.
    fn started(
        command: &mut Command,
        lines: usize,
    ) -> (Child, Vec<String>, BufReader<ChildStderr>) {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command");
        let mut talk = BufReader::new(child.stderr.take().expect("its talk"));
        let mut heard = Vec::new();
        for _ in 0..lines {
            let mut line = String::new();
            talk.read_line(&mut line).expect("a line");
            heard.push(line);
        }
        (child, heard, talk)
    }

    fn signal(child: &Child, signal: Signal) {
        let pid = i32::try_from(child.id()).expect("a number");
        kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("a signal");
    }

    #[test]
    fn the_time_limit_ends_the_whole_tree() {
        let config = Place::new();
        let config = config.file("leasehold.toml", "[worker]\nstop_grace = \"100ms\"");
        let config = config.to_str().expect("text");
        let ended = script(&["--time-limit", "200ms", "--config", config], STUBBORN);
        assert_eq!(ended.code, 1, "{}", ended.talk);
        let pids: Vec<Pid> = ended.talk.lines().take(2).map(pid).collect();
        assert!(
            ended
                .talk
                .contains("ended: killed: it ran longer than its time limit"),
            "{}",
            ended.talk
        );
        for pid in pids {
            assert!(test_kill_process(pid).is_err(), "{pid} is left");
        }
    }

    #[test]
    fn an_interruption_asks_first_and_hears_the_last_word() {
        let place = Place::new();
        let script = r#"trap 'echo "{\"saved\": 3}"; exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done"#;
        for one in [Signal::INT, Signal::TERM, Signal::HUP] {
            let mut command = place.command(&["exec", "SEND", "--", "sh", "-c", script]);
            command.stdout(Stdio::piped());
            let (mut child, _, mut talk) = started(&mut command, 1);
            signal(&child, one);
            let (mut out, mut rest) = (String::new(), String::new());
            talk.read_to_string(&mut rest).expect("talk");
            let stdout = child.stdout.as_mut().expect("its output");
            stdout.read_to_string(&mut out).expect("output");
            assert_eq!(child.wait().expect("an end").code(), Some(130), "{rest}");
            assert_eq!(out, "{\"saved\": 3}\n", "{rest}");
            assert!(rest.contains("error: interrupted"), "{rest}");
        }
    }

    #[test]
    fn a_second_interruption_kills() {
        let place = Place::new();
        let mut command = place.command(&["exec", "SEND", "--", "sh", "-c", STUBBORN]);
        let (mut child, heard, mut talk) = started(&mut command, 2);
        // The first is ignored by the command, whose grace is ten seconds.
        signal(&child, Signal::INT);
        signal(&child, Signal::TERM);
        let mut rest = String::new();
        talk.read_to_string(&mut rest).expect("talk");
        assert_eq!(child.wait().expect("an end").code(), Some(130), "{rest}");
        assert!(rest.contains("ended: stopped on request"), "{rest}");
        for line in heard {
            assert!(test_kill_process(pid(&line)).is_err(), "{line} is left");
        }
    }

    /// Kills the spawner above it, so that its own warden and the one in waiting are handed to PID 1,
    /// where the latter ends; and tells what is left of it.
    const BEREAVED: &str = r#"
        parent() { sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f2; }
        warden=$(parent $$)
        spawner=$(parent "$warden")
        tries=0
        until [ $tries = 1000 ]; do
            waiting=$(tr ' ' '\n' < "/proc/$spawner/task/$spawner/children" | grep -vx "$warden")
            if [ -n "$waiting" ]; then break; fi
            sleep 0.01
            tries=$((tries + 1))
        done
        kill -9 "$spawner"
        until [ $tries = 1000 ] || [ ! -e "/proc/${waiting:?}" ]; do
            sleep 0.01
            tries=$((tries + 1))
        done
        left=$(sed 's/.*) //; s/ .*//' "/proc/$waiting/stat" 2>/dev/null)
        echo "{\"parent\": $(parent "$warden"), \"left\": \"$left\"}""#;

    #[test]
    #[expect(clippy::print_stderr, reason = "a case that cannot be tried says so")]
    fn as_the_first_process_it_reaps_what_it_is_handed() {
        let namespace = [
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ];
        let mut probe = Command::new("unshare");
        let can = probe.args(namespace).arg("true").output();
        if !can.is_ok_and(|ended| ended.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "no namespaces here");
            eprintln!("skipped: this user may make no user and PID namespaces");
            return;
        }
        let place = Place::new();
        let output = Command::new("unshare")
            .args(namespace)
            .args([
                env!("CARGO_BIN_EXE_leasehold"),
                "exec",
                "SEND",
                "--",
                "sh",
                "-c",
                BEREAVED,
            ])
            .current_dir(place.path())
            .env_clear()
            .output()
            .expect("the command");
        let talk = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{talk}");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "{\"parent\": 1, \"left\": \"\"}\n",
            "{talk}"
        );
    }
}
