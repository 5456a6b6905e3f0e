//! Processes that multiply while they are hunted, with and without control groups.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_fence::{Command, Ending};

use crate::processes::{Process, now, until};
use crate::yard::{Outside, Yard, fence, path, run, shell};

/// Starts its successor in another session and goes; sixteen such lines at once. Each ends by itself
/// after so many generations, so that a fence that does not hold leaves nothing for ever.
const RUNNERS: &str = "\
printf . >>\"${0%/*}/beat\"
if [ \"$1\" -eq 0 ]; then exit; fi
if [ \"$2\" = start ]; then
    for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do setsid sh \"$0\" \"$1\" run & done
    exec sleep 60
fi
setsid sh \"$0\" $(($1 - 1)) run &
";

const GENERATIONS: &str = "500";

/// Answers how long it took to kill them.
async fn killed_runners() -> Duration {
    let yard = Yard::new();
    let script = yard.folder.path().join("runners.sh");
    fs::write(&script, RUNNERS).unwrap();
    let command = Command::new("sh")
        .with_arguments([script.as_os_str()])
        .with_arguments([GENERATIONS, "start"])
        .with_environment(path());
    let fence = fence();
    let child = fence.run(command, None).unwrap();
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    let beat = yard.folder.path().join("beat");
    until(Duration::from_secs(20), "they run", || {
        (fs::metadata(&beat).ok()?.len() > 100).then_some(())
    });
    let began = now();
    control.kill();
    let finished = tokio::time::timeout(Duration::from_mins(1), waiting).await;
    let taken = now().checked_sub(began).unwrap();
    assert_eq!(finished.unwrap().unwrap().ending, Ending::Killed);
    // Before they ended by themselves.
    let generations: u64 = GENERATIONS.parse().unwrap();
    assert!(fs::metadata(&beat).unwrap().len() < 16 * generations);
    yard.assert_deserted();
    fence.close();
    taken
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
async fn what_multiplies_is_killed_one_by_one() {
    let _outside = Outside::enter();
    let taken = killed_runners().await;
    println!(
        "without a control group: killed after {} ms",
        taken.as_millis()
    );
}

#[tokio::test]
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the figures are for people, and a skipped test says so"
)]
async fn what_multiplies_is_killed_as_a_group() {
    if let Err(reason) = leasehold_fence::delegated_cgroup() {
        eprintln!("skipped: {reason}");
        return;
    }
    let taken = killed_runners().await;
    assert!(taken < Duration::from_secs(1), "it took {taken:?}");
    println!(
        "with a control group: killed after {} ms",
        taken.as_millis()
    );
}

/// The group that a command says it is in.
async fn group_of_a_command() -> String {
    let finished = run(shell("grep ^0:: /proc/self/cgroup")).await;
    String::from_utf8(finished.stdout)
        .unwrap()
        .trim()
        .to_owned()
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
async fn a_run_has_a_group_that_goes_with_it() {
    let Ok(folder) = leasehold_fence::delegated_cgroup() else {
        eprintln!("skipped: there are no control groups to give");
        return;
    };
    let fence = fence();
    let child = fence
        .run(shell("grep ^0:: /proc/self/cgroup; exec sleep 60"), None)
        .unwrap();
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    let warden = until(Duration::from_secs(10), "the command runs", || {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let family = crate::processes::descendants_of(me).into_iter();
        let mut sleepers = family.filter(|one| one.name == "sleep");
        Process::of(sleepers.next()?.parent)
    });
    control.kill();
    let finished = waiting.await.unwrap();
    let said = String::from_utf8(finished.stdout).unwrap();
    let (_, name) = said.trim().rsplit_once('/').unwrap();
    assert!(name.starts_with("leasehold-run-"), "{name}");
    assert!(name.ends_with(&format!("-{}", warden.pid)), "{name}");
    let group: PathBuf = folder.join(name);
    until(Duration::from_secs(5), "its group is removed", || {
        (!group.exists()).then_some(())
    });

    // Those of wardens that were never used go, too.
    let waits = until(Duration::from_secs(10), "another warden waits", || {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let mut family = crate::processes::descendants_of(me).into_iter();
        family.find(|one| one.name == "fence-warden")
    });
    fence.close();
    let left: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("leasehold-run-"))
        .filter(|name| name.ends_with(&format!("-{}", waits.pid)))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn without_control_groups_everything_else_is_as_ever() {
    let _outside = Outside::enter();
    let group = group_of_a_command().await;
    assert!(!group.contains("leasehold-run-"), "{group}");
    let finished = run(shell("setsid sleep 60 & (setsid sleep 60 &) ; exit 3")).await;
    assert_eq!(finished.ending, Ending::Exited { code: 3 });
}
