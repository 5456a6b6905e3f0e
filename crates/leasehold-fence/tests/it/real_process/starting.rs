//! What cannot be started says so, each in its own words; and what is started again is the same program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_fence::{Command, Deadline, Ending, Fence, SpawnFailure, StartError};

use crate::yard::{PROGRAM, fence, path, run, shell};

async fn failure(command: Command) -> SpawnFailure {
    match run(command).await.ending {
        Ending::SpawnFailed(failure) => failure,
        other => panic!("{other}"),
    }
}

#[test]
fn a_program_that_never_entered_is_refused_with_the_remedy() {
    let refused = Fence::start().unwrap_err();
    assert!(matches!(refused, StartError::NotEntered));
    let words = refused.to_string();
    assert!(words.contains("leasehold_fence::enter()"), "{words}");
    assert!(words.contains("first line of `main`"), "{words}");
    assert!(words.contains("Fence::with_program"), "{words}");
}

#[test]
fn a_program_that_is_not_there_is_refused() {
    let refused = Fence::with_program("/nowhere/leasehold-fence").unwrap_err();
    assert!(matches!(refused, StartError::System { .. }), "{refused}");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    for program in ["no-such-program", "/nowhere/program", ""] {
        let expected = SpawnFailure::NotFound {
            program: program.to_owned(),
        };
        let command = Command::new(program).with_environment(path());
        assert_eq!(failure(command).await, expected);
    }
    // It is looked up in the PATH it is given.
    let elsewhere = Command::new("sh").with_environment([("PATH".into(), "/nowhere".into())]);
    assert!(matches!(
        failure(elsewhere).await,
        SpawnFailure::NotFound { .. }
    ));
}

#[tokio::test]
async fn what_may_not_be_executed_is_not_executable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("script");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    for program in [file, folder.path().to_owned()] {
        let failed = failure(Command::new(&program)).await;
        assert!(
            matches!(failed, SpawnFailure::NotExecutable { .. }),
            "{failed}"
        );
        assert!(failed.to_string().contains(program.to_str().unwrap()));
    }
}

fn script(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let file = folder.path().join("script");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[tokio::test]
async fn a_script_runs_by_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let finished = run(Command::new(script(&folder, "#!/bin/sh\nexit 3\n"))).await;
    assert_eq!(finished.ending, Ending::Exited { code: 3 });
    let lost = Command::new(script(&folder, "#!/nowhere/sh\nexit 3\n"));
    assert!(matches!(
        failure(lost).await,
        SpawnFailure::NoInterpreter { .. }
    ));
}

/// Some systems hand it to `sh`, as shells do; others refuse. Either way it is clear what happened.
#[tokio::test]
async fn a_script_without_an_interpreter_runs_by_the_shell_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    match run(Command::new(script(&folder, "exit 3\n"))).await.ending {
        Ending::Exited { code: 3 } | Ending::SpawnFailed(SpawnFailure::NotExecutable { .. }) => {}
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let failed = failure(shell("exit 0").in_directory("/nowhere/at/all")).await;
    let SpawnFailure::Directory { directory, .. } = &failed else {
        panic!("{failed}");
    };
    assert_eq!(directory, "/nowhere/at/all");
}

#[tokio::test]
async fn what_can_never_run_is_refused_before_anything_is_started() {
    let fence = fence();
    let relative = shell("exit 0").in_directory("here");
    let zero = Command::new("true").with_arguments(["a\0b"]);
    for command in [relative, zero] {
        let refused = fence.run(command, None).unwrap_err();
        assert!(matches!(refused, StartError::Invalid(_)), "{refused}");
    }
}

#[tokio::test]
async fn what_has_no_time_left_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("begun");
    let touch = || shell(&format!("echo > {}", file.display()));
    let fence = fence();
    let over = fence
        .run(touch(), Some(Deadline::after(Duration::ZERO)))
        .unwrap();
    assert_eq!(over.finish(|_| ()).await.ending, Ending::LeaseLost);
    for grace in [Duration::ZERO, Duration::from_secs(20)] {
        let limited = touch().with_time_limit(Duration::ZERO, grace);
        let over = fence.run(limited, None).unwrap();
        assert_eq!(over.finish(|_| ()).await.ending, Ending::TimedOut);
    }
    assert!(!file.exists());
}

#[tokio::test]
async fn a_program_may_be_replaced_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("leasehold-fence");
    fs::copy(PROGRAM, &program).unwrap();
    let fence = Fence::with_program(&program).unwrap();
    let before = fence.run(shell("sleep 0.5; exit 1"), None).unwrap();

    // As an upgrade does it: another file under the same name, and then none.
    let other = folder.path().join("other");
    fs::write(&other, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&other, &program).unwrap();
    for code in 2..6 {
        let child = fence.run(shell(&format!("exit {code}")), None).unwrap();
        assert_eq!(child.finish(|_| ()).await.ending, Ending::Exited { code });
    }
    fs::remove_file(&program).unwrap();
    for code in 6..9 {
        let child = fence.run(shell(&format!("exit {code}")), None).unwrap();
        assert_eq!(child.finish(|_| ()).await.ending, Ending::Exited { code });
    }
    assert_eq!(
        before.finish(|_| ()).await.ending,
        Ending::Exited { code: 1 }
    );
    fence.close();
}

#[tokio::test]
async fn a_signal_that_was_not_ours_is_told() {
    let finished = run(shell("kill -SEGV $$")).await;
    assert_eq!(finished.ending, Ending::Signalled { signal: 11 });
    let finished = run(shell("kill -KILL $$")).await;
    assert_eq!(finished.ending, Ending::Signalled { signal: 9 });
}

#[tokio::test]
async fn who_ends_within_the_grace_says_how() {
    let command = shell("trap 'exit 8' TERM; while :; do sleep 0.05; done")
        .with_time_limit(Duration::from_millis(300), Duration::from_secs(20));
    assert_eq!(run(command).await.ending, Ending::Exited { code: 8 });
    // Who does not listen, and leaves it to the signal, has run out of time.
    let command = Command::new("sleep")
        .with_arguments(["60"])
        .with_environment(path())
        .with_time_limit(Duration::from_millis(300), Duration::from_secs(20));
    assert_eq!(run(command).await.ending, Ending::TimedOut);
}

#[tokio::test]
async fn a_command_that_stopped_itself_hears_the_request_to_end() {
    let fence = fence();
    let child = fence
        .run(shell("trap 'exit 8' TERM; kill -STOP $$; sleep 0.05"), None)
        .unwrap();
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    let me = rustix::process::getpid().as_raw_nonzero().get();
    crate::processes::until(Duration::from_secs(10), "it has stopped", || {
        let mut family = crate::processes::descendants_of(me).into_iter();
        family.find(|one| one.state == 'T')
    });
    control.terminate(Duration::from_secs(20));
    assert_eq!(waiting.await.unwrap().ending, Ending::Exited { code: 8 });
    fence.close();
}
