//! The small program, as people and scripts use it.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::processes::{Process, now, reap_ours, signal_to, take_in_orphans, until};
use crate::yard::{PROGRAM, TREE, Yard};

fn output(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The code it ends with, having said this on its standard error.
fn check(arguments: &[&str], code: i32, said: &str) {
    let Output {
        status,
        stdout,
        stderr,
    } = output(arguments);
    assert_eq!(status.code(), Some(code), "{arguments:?}: {status}");
    assert_eq!(text(&stdout), "");
    let stderr = text(&stderr);
    if said.is_empty() {
        assert_eq!(stderr, "", "{arguments:?}");
    }
    assert!(stderr.contains(said), "{arguments:?}: {stderr}");
}

#[test]
fn it_tells_what_it_is() {
    for option in ["-h", "--help"] {
        let help = output(&[option]);
        assert!(help.status.success());
        for said in ["--for LENGTH", "--grace LENGTH", "124", "125", "126", "127"] {
            assert!(text(&help.stdout).contains(said), "{said}");
        }
    }
    for option in ["-V", "--version"] {
        let version = output(&[option]);
        assert!(version.status.success());
        assert!(text(&version.stdout).starts_with("leasehold-fence 0."));
    }
}

#[test]
fn what_it_cannot_make_sense_of_is_refused() {
    check(&[], 125, "no command is given");
    check(&["--"], 125, "no command is given");
    check(&["--nonsense", "true"], 125, "--nonsense");
    check(&["--for"], 125, "--for");
    for length in [
        "",
        "1",
        "s",
        "1 s",
        "-1s",
        "1.5s",
        "1d",
        "9999999999999999999h",
    ] {
        check(&["--for", length, "true"], 125, "500ms, 30s, 1m30s or 2h");
    }
}

#[test]
fn it_ends_as_the_command_does() {
    check(&["true"], 0, "");
    check(&["--", "sh", "-c", "exit 77"], 77, "");
    check(&["sh", "-c", "kill -TERM $$"], 128 + 15, "");
    check(&["sh", "-c", "kill -KILL $$"], 128 + 9, "");
    check(&["--for", "100ms", "sleep", "60"], 124, "");
    check(&["--for", "0s", "true"], 124, "");
    check(
        &["no-such-program"],
        127,
        "command not found: no-such-program",
    );
    check(&["/etc/passwd"], 126, "not executable: /etc/passwd");
}

#[test]
fn options_end_where_the_command_begins() {
    let said = output(&[
        "--for",
        "1m",
        "sh",
        "-c",
        "echo \"$@\"",
        "sh",
        "--for",
        "-x",
    ]);
    assert_eq!(text(&said.stdout), "--for -x\n");
}

#[test]
fn a_grace_lets_the_command_end_by_itself() {
    let script = "trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done";
    let said = output(&["--for", "300ms", "--grace", "20s", "sh", "-c", script]);
    assert_eq!(text(&said.stdout), "bye\n");
    // It says how it ended, though its time was over.
    assert_eq!(said.status.code(), Some(9));
}

#[test]
fn streams_pass_through() {
    let mut child = Command::new(PROGRAM)
        .args(["sh", "-c", "tr a-z A-Z; echo talk >&2; pwd"])
        .current_dir("/usr")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"by pipe\n").unwrap();
    let said = child.wait_with_output().unwrap();
    assert_eq!(text(&said.stdout), "BY PIPE\n/usr\n");
    assert_eq!(text(&said.stderr), "talk\n");
}

#[test]
fn the_environment_is_passed_on() {
    let said = Command::new(PROGRAM)
        .args(["/usr/bin/env"])
        .env_clear()
        .env("ONE", "1")
        .output()
        .unwrap();
    assert_eq!(text(&said.stdout), "ONE=1\n");
}

#[test]
fn it_works_in_a_pipe() {
    let script = format!("yes | {PROGRAM} cat | head -n 2; echo ok");
    let began = now();
    let said = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(text(&said.stdout), "y\ny\nok\n");
    assert!(now().checked_sub(began).unwrap() < Duration::from_secs(10));
}

/// Runs the yard's tree by the program, which is told to end when all of it is there.
fn check_tree(yard: &Yard, arguments: &[&str], signal: Option<Signal>) -> Option<i32> {
    take_in_orphans();
    let folder = yard.folder.path();
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .arg("sh")
        .args([folder.join("tree.sh").as_os_str(), folder.as_os_str()])
        .args(["0.05", TREE[0]])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let tree = yard.until_ready();
    if let Some(signal) = signal {
        signal_to(child.id().try_into().unwrap(), signal);
    }
    let status = wait(&mut child);
    until(
        Duration::from_secs(1),
        "nothing is left of the tree",
        || (!tree.iter().any(Process::is_there)).then_some(()),
    );
    until(
        Duration::from_secs(5),
        "nothing is left of the fence",
        || {
            reap_ours();
            let me = rustix::process::getpid().as_raw_nonzero().get();
            crate::processes::children_of(me).is_empty().then_some(())
        },
    );
    yard.assert_deserted();
    status
}

fn wait(child: &mut Child) -> Option<i32> {
    let status = until(Duration::from_secs(20), "the program ends", || {
        child.try_wait().unwrap()
    });
    status.code()
}

#[test]
fn its_end_is_the_end_of_the_tree() {
    let yard = Yard::new();
    assert_eq!(
        check_tree(&yard, &["--for", "2s", "--grace", "0s"], None),
        Some(124)
    );
}

#[test]
fn asked_to_end_it_ends_the_tree() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        for grace in ["0s", "200ms"] {
            let yard = Yard::new();
            // The tree does not listen, and is killed when the grace is over.
            let ended = check_tree(&yard, &["--grace", grace], Some(signal));
            assert_eq!(ended, Some(code), "{signal:?} with {grace}");
        }
    }
}

#[test]
fn killed_it_takes_the_tree_along() {
    let yard = Yard::new();
    assert_eq!(check_tree(&yard, &[], Some(Signal::KILL)), None);
}

/// One fence within another: whoever ends the outer one ends what the inner one runs.
#[test]
fn fences_nest() {
    let yard = Yard::new();
    let code = check_tree(&yard, &["--for", "2s", "--grace", "0s", PROGRAM], None);
    assert_eq!(code, Some(124));
    let yard = Yard::new();
    let code = check_tree(
        &yard,
        &["--for", "1m", PROGRAM, "--for", "1s", "--grace", "0s"],
        None,
    );
    assert_eq!(code, Some(124));
}

#[test]
fn it_may_be_removed_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy(PROGRAM, &program).unwrap();
    let mut child = Command::new(&program)
        .args([
            "--for",
            "1m",
            "sh",
            "-c",
            "echo begun; read -r end; (setsid sleep 60 &); exit 6",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begun = [0; 6];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut begun)
        .unwrap();
    std::fs::remove_file(&program).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(wait(&mut child), Some(6));
}
