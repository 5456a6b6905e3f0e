//! Commands that fight their own fence, with nothing but the rights of the user they share with it.

use std::time::Duration;

use leasehold_fence::Ending;

use crate::processes::{take_in_orphans, until};
use crate::yard::{fence, shell};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);

/// The warden's number is that of the command's parent, the spawner's that of the warden's.
const PARENTS: &str = "warden=$PPID; spawner=$(cut -d' ' -f4 /proc/$PPID/stat);";

/// Runs it with a limit of half a second, and holds that nothing of it executes after its end: a
/// descendant in a session of its own goes on writing for as long as it can.
#[cfg(test)]
async fn ends_in_time(attack: &str) {
    take_in_orphans();
    let folder = tempfile::tempdir().unwrap();
    let beats = folder.path().join("beats");
    let file = beats.display();
    let script = format!(
        "{PARENTS} {attack}\n\
         setsid sh -c 'trap \"\" TERM; while :; do echo >> {file}; sleep 0.01; done' & wait"
    );
    let limited = shell(&script).with_time_limit(Duration::from_millis(500), Duration::ZERO);
    let fence = fence();
    let child = fence.run(limited, None).unwrap();
    let finished = tokio::time::timeout(SOON, child.finish(|_| ())).await;
    let ending = finished.expect("it ends").ending;
    assert!(
        matches!(ending, Ending::TimedOut | Ending::WardenLost),
        "{attack}: {ending:?}"
    );
    let length = || std::fs::metadata(&beats).map_or(0, |beats| beats.len());
    let at_the_end = length();
    assert!(at_the_end > 0, "{attack}: it never ran");
    let fine = tokio::time::timeout(
        SOON,
        fence.run(shell("exit 3"), None).unwrap().finish(|_| ()),
    );
    assert_eq!(fine.await.unwrap().ending, Ending::Exited { code: 3 });
    assert_eq!(length(), at_the_end, "{attack}: something went on");
    fence.close();
}

#[tokio::test]
async fn a_stopped_warden_is_woken() {
    ends_in_time("kill -STOP $warden").await;
}

#[tokio::test]
async fn a_warden_that_is_stopped_again_and_again_is_killed_and_its_run_with_it() {
    ends_in_time("(while kill -STOP $warden; do sleep 0.01; done) &").await;
}

#[tokio::test]
async fn a_stopped_spawner_is_woken() {
    ends_in_time("kill -STOP $spawner").await;
}

#[tokio::test]
async fn both_stopped_are_woken() {
    ends_in_time("kill -STOP $warden $spawner").await;
}

/// A warden that may open nothing any more has opened before what it needs.
#[tokio::test]
async fn a_warden_without_descriptors_kills_all_the_same() {
    if std::process::Command::new("prlimit")
        .arg("--version")
        .output()
        .is_err()
    {
        assert!(
            std::env::var_os("CI").is_none(),
            "no prlimit on this machine"
        );
        return;
    }
    ends_in_time("prlimit --pid $warden --nofile=3:3").await;
}

/// A stopped ready warden is no trap for the run that it is handed.
#[tokio::test]
async fn a_ready_warden_that_was_stopped_is_woken_or_replaced() {
    let fence = fence();
    let command = shell(
        "spawner=$(cut -d' ' -f4 /proc/$PPID/stat); \
         for other in $(cat /proc/$spawner/task/$spawner/children); do \
             [ $other = $PPID ] || kill -STOP $other; \
         done; exit 3",
    );
    let first = fence.run(command, None).unwrap().finish(|_| ()).await;
    assert_eq!(first.ending, Ending::Exited { code: 3 });
    for _ in 0..3 {
        let next = fence.run(shell("exit 4"), None).unwrap();
        let finished = tokio::time::timeout(SOON, next.finish(|_| ())).await;
        assert_eq!(
            finished.expect("it ends").ending,
            Ending::Exited { code: 4 }
        );
    }
    fence.close();
}

/// Fork after fork, each in a session of its own, whose parent is gone at once.
#[tokio::test]
async fn chains_of_forks_are_caught_and_leave_no_numbers_taken() {
    take_in_orphans();
    let fence = fence();
    let link = "f() { setsid sh -c \"$1\" sh \"$1\" & }; f \"$1\"";
    let script = format!("for i in 1 2 3 4; do setsid sh -c '{link}' sh '{link}' & done; sleep 60");
    let limited = shell(&script).with_time_limit(Duration::from_millis(700), Duration::ZERO);
    let child = fence.run(limited, None).unwrap();
    let finished = tokio::time::timeout(SOON, child.finish(|_| ())).await;
    assert_eq!(finished.expect("it ends").ending, Ending::TimedOut);
    until(SOON, "every number is free again", || {
        crate::processes::mentioning("sh -c f()")
            .is_empty()
            .then_some(())
    });
    fence.close();
}
