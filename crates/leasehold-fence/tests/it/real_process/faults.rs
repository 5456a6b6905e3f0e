//! What commands and callers do that once let something live on, or a word go astray.

use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

use leasehold_fence::{Command, Deadline, Ending};
use rustix::process::{Pid, Signal, getpid, setpgid};

use crate::processes::{Process, descendants_of, now, until};
use crate::yard::{Outside, PROGRAM, fence, path, run, shell};

const MINUTE: Duration = Duration::from_mins(1);
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);

/// Set in a process that leaves its process group: the file by which it says so.
const LEAVER: &str = "LEASEHOLD_FENCE_LEAVER";

/// Not a case by itself: does nothing unless it is started as a command that leaves its group.
#[test]
fn leaver() {
    let Some(file) = std::env::var_os(LEAVER) else {
        return;
    };
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .process_group(0)
        .spawn()
        .unwrap();
    setpgid(None, Some(Pid::from_child(&child))).unwrap();
    std::fs::write(file, "").unwrap();
    child.wait().unwrap();
}

fn leaver_noting(file: &std::path::Path) -> Command {
    let mut environment = path();
    environment.push((LEAVER.into(), file.into()));
    Command::new(std::env::current_exe().unwrap())
        .with_arguments(["--exact", "real_process::faults::leaver"])
        .with_environment(environment)
}

#[tokio::test]
async fn a_command_that_left_its_group_is_killed() {
    let _outside = Outside::enter();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("left");
    let fence = fence();
    let child = fence.run(leaver_noting(&file), None).unwrap();
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    until(SOON, "it has left its group", || {
        file.exists().then_some(())
    });
    control.kill();
    let finished = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    assert_eq!(finished.unwrap().unwrap().ending, Ending::Killed);
    fence.close();
}

#[tokio::test]
async fn a_command_that_left_its_group_is_asked_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("left");
    let fence = fence();
    let child = fence.run(leaver_noting(&file), None).unwrap();
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    until(SOON, "it has left its group", || {
        file.exists().then_some(())
    });
    // It does not refuse, so that the grace is not needed.
    control.terminate(Duration::from_secs(30));
    let finished = tokio::time::timeout(SOON, waiting).await;
    assert_eq!(finished.unwrap().unwrap().ending, Ending::Killed);
    fence.close();
}

/// A caller that says something while its command ends still learns how that was.
#[tokio::test]
async fn words_that_cross_the_ending_do_not_lose_it() {
    let fence = fence();
    for round in 0..60_u64 {
        let child = fence.run(shell("exit 6"), None).unwrap();
        let control = child.control();
        let talker = std::thread::spawn(move || {
            let end = now() + Duration::from_millis(5 + round % 10);
            while now() < end {
                control.push(Deadline::after(MINUTE));
            }
        });
        // Read late, when the warden is gone and has left words unread.
        talker.join().unwrap();
        let finished = tokio::time::timeout(SOON, child.finish(|_| ())).await;
        assert_eq!(finished.unwrap().ending, Ending::Exited { code: 6 });
    }
    fence.close();
}

#[tokio::test]
async fn orphans_are_reaped_however_often_the_deadline_is_pushed() {
    let fence = fence();
    let command = shell("(setsid true &); exec sleep 60");
    let child = fence.run(command, Some(Deadline::after(MINUTE))).unwrap();
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    let me = getpid().as_raw_nonzero().get();
    let zombies = || {
        let family = descendants_of(me).into_iter();
        family.filter(|one| one.state == 'Z').count()
    };
    until(SOON, "an orphan has ended", || {
        (zombies() > 0).then_some(())
    });
    until(SOON, "it was reaped", || {
        control.push(Deadline::after(MINUTE));
        (zombies() == 0).then_some(())
    });
    control.kill();
    assert_eq!(waiting.await.unwrap().ending, Ending::Killed);
    fence.close();
}

/// As somebody who does not care how his children end starts a caller.
#[test]
fn a_caller_that_inherited_deafness_to_its_children_learns_the_code() {
    let status = std::process::Command::new("env")
        .args(["--ignore-signal=CHLD", PROGRAM, "--", "sh", "-c", "exit 7"])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn what_the_caller_inherited_does_not_reach_the_command() {
    let script = format!("exec 7</dev/null 9</; exec {PROGRAM} -- ls /proc/self/fd");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // The last is the folder that is being listed.
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n");
}

#[tokio::test]
async fn a_stage_that_is_killed_early_is_a_failure_to_start() {
    let fence = fence();
    let me = getpid().as_raw_nonzero().get();
    let stage = until(SOON, "a stage waits", || {
        descendants_of(me)
            .into_iter()
            .rfind(|one| one.name == "fence-stage")
    });
    stage.signal(Signal::KILL);
    let is_dead = || Process::of(stage.pid).is_none_or(|now| now.state == 'Z');
    until(Duration::from_secs(5), "the stage is dead", || {
        is_dead().then_some(())
    });
    let child = fence.run(shell("exit 3"), None).unwrap();
    let finished = tokio::time::timeout(SOON, child.finish(|_| ())).await;
    let ending = finished.unwrap().ending;
    assert!(
        matches!(ending, Ending::SpawnFailed(_)),
        "{ending}, and it never ran"
    );
    // The next is as ever.
    let child = fence.run(shell("exit 3"), None).unwrap();
    assert_eq!(
        child.finish(|_| ()).await.ending,
        Ending::Exited { code: 3 }
    );
    fence.close();
}

#[tokio::test]
async fn a_warden_that_is_killed_while_it_waits_is_made_up_for() {
    let fence = fence();
    let me = getpid().as_raw_nonzero().get();
    for _ in 0..5 {
        let warden = until(SOON, "a warden waits", || {
            descendants_of(me)
                .into_iter()
                .rfind(|one| one.name == "fence-warden" && one.state != 'Z')
        });
        warden.signal(Signal::KILL);
        let child = fence.run(shell("exit 4"), None).unwrap();
        let finished = tokio::time::timeout(SOON, child.finish(|_| ())).await;
        let ending = finished.unwrap().ending;
        // Handed to the one that was being killed, or to another.
        let is_clear = matches!(
            ending,
            Ending::Exited { code: 4 } | Ending::WardenLost | Ending::SpawnFailed(_)
        );
        assert!(is_clear, "{ending}");
    }
    fence.close();
}

#[tokio::test]
async fn a_command_that_detaches_at_once_is_killed() {
    // The leader is gone before its child has begun to execute anything.
    for _ in 0..20 {
        let finished = run(shell("setsid setsid sleep 60 & exit 0")).await;
        assert_eq!(finished.ending, Ending::Exited { code: 0 });
    }
    let me = getpid().as_raw_nonzero().get();
    let left = descendants_of(me);
    assert!(left.is_empty(), "{left:?}");
}
