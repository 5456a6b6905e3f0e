//! What a command is given, to the byte; and what it is not.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;

use leasehold_fence::{Command, Ending, Input, Output, SpawnFailure};

use crate::yard::{path, run, shell};

/// `NAME=` and the end of the text count, too.
const ONE_TEXT_BYTES_MAX: usize = 131_072;
const NAME: &str = "WORKER_REQUEST";

fn with_request(request: Vec<u8>) -> Command {
    let mut environment = path();
    environment.push((NAME.into(), OsString::from_vec(request)));
    Command::new("sh")
        .with_arguments(["-c", "printf %s \"$WORKER_REQUEST\""])
        .with_environment(environment)
}

#[tokio::test]
async fn a_request_is_delivered_up_to_what_the_system_takes() {
    let fits = ONE_TEXT_BYTES_MAX - NAME.len() - "=\0".len();
    assert_eq!(fits, 131_056);
    for size in [0, 1, 120_000, 131_000, fits] {
        for character in ["a", "ü", "\u{1f980}"] {
            let mut request = character.repeat(size / character.len());
            request.push_str(&"x".repeat(size - request.len()));
            let finished = run(with_request(request.clone().into_bytes())).await;
            assert_eq!(finished.ending, Ending::Exited { code: 0 });
            assert!(
                finished.stdout == request.as_bytes(),
                "{size} of {character}"
            );
        }
    }
    for size in [fits + 1, 131_072, 200_000, 262_144] {
        let finished = run(with_request(vec![b'a'; size])).await;
        let Ending::SpawnFailed(SpawnFailure::ArgumentListTooLong { bytes }) = finished.ending
        else {
            panic!("{size}: {}", finished.ending);
        };
        assert!(bytes > size);
        assert!(finished.stdout.is_empty());
    }
}

#[tokio::test]
async fn a_request_that_is_no_text_is_delivered() {
    let request: Vec<u8> = (1..=255).collect();
    let finished = run(with_request(request.clone())).await;
    assert_eq!(finished.stdout, request);
}

#[tokio::test]
async fn stdin_is_delivered_whole() {
    let bytes: Vec<u8> = (0..5_usize << 20)
        .map(|n| u8::try_from(n * 7 % 251).unwrap())
        .collect();
    let command = Command::new("cat")
        .with_environment(path())
        .with_stdin(Input::Bytes(bytes.clone()))
        .with_output_bytes_max(bytes.len(), 0);
    let finished = run(command).await;
    assert_eq!(finished.ending, Ending::Exited { code: 0 });
    assert!(finished.stdout == bytes);
}

#[tokio::test]
async fn stdin_cannot_be_written_to_and_is_at_its_beginning() {
    let script = "grep pos: /proc/self/fdinfo/0; echo x 1>&0";
    let finished = run(shell(script).with_stdin(Input::Bytes(b"abc".to_vec()))).await;
    assert_eq!(finished.stdout, b"pos:\t0\n");
    assert_ne!(finished.ending, Ending::Exited { code: 0 });
}

#[tokio::test]
async fn without_input_there_is_an_end_at_once() {
    let finished = run(shell("wc -c")).await;
    assert_eq!(finished.stdout.trim_ascii(), b"0");
}

#[tokio::test]
async fn streams_may_be_the_callers_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    let (read, write) = std::io::pipe().unwrap();
    let mut writer = write;
    writer.write_all(b"by a pipe").unwrap();
    drop(writer);
    let command = shell("cat; echo err >&2")
        .with_stdin(Input::From(OwnedFd::from(read)))
        .with_stdout(Output::To(File::create(&file).unwrap().into()))
        .with_stderr(Output::To(
            File::create(folder.path().join("err")).unwrap().into(),
        ));
    let finished = run(command).await;
    assert!(finished.stdout.is_empty());
    assert_eq!(std::fs::read(&file).unwrap(), b"by a pipe");
    assert_eq!(std::fs::read(folder.path().join("err")).unwrap(), b"err\n");
}

#[tokio::test]
async fn the_pipes_of_a_command_end_with_it() {
    // Nobody beside the command holds its output open: not its warden, nor the spawner.
    let (mut read, write) = std::io::pipe().unwrap();
    let fence = crate::yard::fence();
    let command = shell("echo all").with_stdout(Output::To(write.into()));
    let child = fence.run(command, None).unwrap();
    let finished = tokio::spawn(child.finish(|_| ()));
    let text = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(text.await.unwrap(), "all\n");
    finished.await.unwrap();
}

#[tokio::test]
async fn the_environment_is_what_was_given() {
    let odd = OsString::from_vec(b"\xff\nline".to_vec());
    let given = [
        ("A".into(), "1".into()),
        ("EMPTY".into(), OsString::new()),
        ("ODD".into(), odd),
    ];
    let env = Command::new("/usr/bin/env").with_arguments(["-0"]);
    let finished = run(env.with_environment(given)).await;
    assert_eq!(finished.stdout, b"A=1\0EMPTY=\0ODD=\xff\nline\0");

    let none = run(Command::new("/usr/bin/env").with_arguments(["-0"])).await;
    assert_eq!(none.stdout, b"");
}

#[tokio::test]
async fn arguments_are_what_was_given() {
    let command = Command::new("/bin/sh").with_arguments([
        "-c",
        "printf '%s|' \"$0\" \"$@\"",
        "",
        "a b",
        "--",
        "--leasehold-fence-role",
        "spawner",
        "*",
    ]);
    let finished = run(command).await;
    assert_eq!(
        finished.stdout,
        b"|a b|--|--leasehold-fence-role|spawner|*|"
    );
}

#[tokio::test]
async fn no_descriptor_but_three_reaches_the_command() {
    let finished = run(Command::new("/bin/ls").with_arguments(["/proc/self/fd"])).await;
    // The last is the folder that is being listed.
    assert_eq!(finished.stdout, b"0\n1\n2\n3\n");
}

#[tokio::test]
async fn signals_are_as_in_a_new_process() {
    let finished = run(Command::new("/bin/cat").with_arguments(["/proc/self/status"])).await;
    let status = String::from_utf8(finished.stdout).unwrap();
    // Two belong to the C library's threads; what it inherited of them nobody can change.
    let of_threads = (1 << 31) | (1 << 32);
    for field in ["SigPnd", "SigBlk", "SigIgn", "SigCgt"] {
        let mut lines = status.lines();
        let signals = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
        let signals = u64::from_str_radix(signals.unwrap(), 16).unwrap();
        assert_eq!(signals & !of_threads, 0, "{field}: {signals:x}");
    }
    // A broken pipe ends who writes to it, as everybody's scripts count on.
    let script = "(yes; echo $? >&2) | head -n 1 >/dev/null";
    let finished = run(shell(script)).await;
    assert_eq!(finished.stderr.to_text(), "141\n");
}

#[tokio::test]
async fn it_runs_in_its_folder_and_in_a_group_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let script = "pwd -P; read -r pid comm state ppid pgrp session tty rest </proc/self/stat; \
                  [ $$ = $pgrp ] && [ $session != $$ ] && [ $tty = 0 ]; echo $?";
    let finished = run(shell(script).in_directory(folder.path())).await;
    let expected = format!("{}\n0\n", folder.path().canonicalize().unwrap().display());
    assert_eq!(String::from_utf8(finished.stdout).unwrap(), expected);
}

#[tokio::test]
async fn it_gains_no_privileges_where_it_must_not() {
    let script = "grep NoNewPrivs /proc/self/status";
    let finished = run(shell(script)).await;
    assert_eq!(finished.stdout, b"NoNewPrivs:\t0\n");
    let finished = run(shell(script).without_new_privileges()).await;
    assert_eq!(finished.stdout, b"NoNewPrivs:\t1\n");
}
