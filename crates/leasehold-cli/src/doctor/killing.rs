//! By what runs are ended: what the kernel offers, and a trial of the whole.

use std::ffi::OsString;
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::{BootTime, Clock as _};
use leasehold_fence::{Command, Deadline, Ending, Fence};
use rustix::process::{
    Pid, PidfdFlags, child_subreaper, getpid, pidfd_open, set_child_subreaper, test_kill_process,
};
use rustix::thread::no_new_privs;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::Case;
use super::finding::Finding;
use crate::block_on;
use crate::failure::Failure;

pub(super) fn descriptors(_: &Case) -> Vec<Finding> {
    let opened = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
    vec![judge_offer(
        "pidfd",
        "process descriptors",
        opened.map_err(Into::into),
    )]
}

pub(super) fn subreaper(_: &Case) -> Vec<Finding> {
    let tried = child_subreaper().and_then(|before| {
        set_child_subreaper(Some(getpid()))?;
        set_child_subreaper(before)
    });
    vec![judge_offer(
        "subreaper",
        "being handed orphans (child subreaper)",
        tried.map_err(Into::into),
    )]
}

pub(super) fn timer(_: &Case) -> Vec<Finding> {
    let made = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).map(drop);
    vec![judge_offer(
        "timer",
        "timers that count suspended time (CLOCK_BOOTTIME)",
        made.map_err(Into::into),
    )]
}

fn judge_offer(check: &'static str, offer: &str, tried: Result<(), std::io::Error>) -> Finding {
    match tried {
        Ok(()) => Finding::ok(check, format!("the kernel offers {offer}")),
        Err(error) => Finding::error(
            check,
            format!("no {offer}: {error}"),
            "use a newer kernel, or a sandbox (seccomp profile) that allows it",
        ),
    }
}

pub(super) fn groups(_: &Case) -> Vec<Finding> {
    let delegated = leasehold_fence::delegated_cgroup();
    vec![judge_groups(
        delegated.map(|folder| folder.display().to_string()),
    )]
}

fn judge_groups(delegated: Result<String, &str>) -> Finding {
    const CHECK: &str = "cgroup";
    match delegated {
        Ok(folder) => Finding::ok(
            CHECK,
            format!(
                "each run is given a control group of its own below {folder}, killed as a whole"
            ),
        ),
        Err(why) => Finding::ok(
            CHECK,
            format!("runs are killed process by process, without control groups: {why}"),
        )
        .with_fix(
            "nothing is needed; Delegate=yes in a systemd service would give each run a group",
        ),
    }
}

pub(super) fn privileges(_: &Case) -> Vec<Finding> {
    vec![judge_privileges(no_new_privs().unwrap_or_default())]
}

fn judge_privileges(are_none_gained: bool) -> Finding {
    const CHECK: &str = "privileges";
    if are_none_gained {
        return Finding::ok(
            CHECK,
            "no command gains privileges here, so none escapes its kill",
        );
    }
    Finding::ok(
        CHECK,
        "a set-user-ID program such as sudo becomes another user, and may escape its kill",
    )
    .with_fix("where commands need none, set no_new_privileges = true for their kinds")
}

/// The lease that the trial's tree is given, once it stands.
const LEASE: Duration = Duration::from_millis(300);
/// In which it must stand: shells start within milliseconds, on a machine that is not out of order.
const START_MAX: Duration = Duration::from_secs(10);
/// In which it must be gone altogether. Longer, and something of it cannot be killed.
const TRIAL_MAX: Duration = Duration::from_secs(30);
/// Later than this after its deadline, the half lease that is left to others shrinks noticeably.
const LATE_MAX: Duration = Duration::from_secs(1);

/// A shell that ignores TERM, and its child that does so too and has left its session, where there is a
/// program for that. Both say their numbers, and end by themselves only long after the trial.
const TREE: &str = "trap '' TERM
stay='echo $$ >&2; i=0; while [ $i -lt 60 ]; do sleep 1; i=$((i+1)); done'
if command -v setsid >/dev/null 2>&1; then setsid sh -c \"$stay\" & else sh -c \"$stay\" & fi
eval \"$stay\"";
/// So many processes say their numbers.
const TREE_SIZE: usize = 2;

/// What the trial came to.
#[derive(Debug)]
struct Trial {
    ending: Ending,
    /// How many processes of the tree were seen.
    seen: usize,
    /// How many of them are still there.
    left: usize,
    /// From the deadline until nothing of it executed any more.
    late: Duration,
}

pub(super) fn trial(_: &Case) -> Vec<Finding> {
    vec![match block_on(run_trial()) {
        Ok(trial) => judge_trial(&trial),
        Err(failure) => Finding::error(
            TRIAL,
            match failure.why() {
                Some(why) => format!("{}: {why}", failure.what()),
                None => failure.what().to_owned(),
            },
            "correct what the findings above name; a container's seccomp profile may be in the way, too",
        ),
    }]
}

const TRIAL: &str = "trial";

async fn run_trial() -> Result<Trial, Failure> {
    let refused =
        |error: &dyn std::fmt::Display| Failure::failed("no command can be run").because(error);
    let fence = Fence::start().map_err(|error| refused(&error))?;
    let path = std::env::var_os("PATH").map(|path| (OsString::from("PATH"), path));
    let command = Command::new("/bin/sh")
        .with_arguments(["-c", TREE])
        .with_environment(path);
    let mut deadline = Deadline::after(START_MAX);
    let child = fence
        .run(command, Some(deadline))
        .map_err(|error| refused(&error))?;
    let control = child.control();
    let mut said = Vec::new();
    let mut stands = false;
    let finish = child.finish(|piece| {
        said.extend_from_slice(piece);
        let lines = said.split_inclusive(|byte| *byte == b'\n');
        let whole = lines.filter(|line| line.ends_with(b"\n")).count();
        if whole >= TREE_SIZE && !stands {
            stands = true;
            deadline = Deadline::after(LEASE);
            control.push(deadline);
        }
    });
    let finished = tokio::time::timeout(TRIAL_MAX, finish)
        .await
        .map_err(|_| refused(&"the trial's processes are not dead after 30 seconds"))?;
    let ended = SystemClock.elapsed();
    fence.close();
    let said = String::from_utf8_lossy(&said);
    let pids: Vec<Pid> = said
        .lines()
        .filter_map(|line| Pid::from_raw(line.trim().parse().ok()?))
        .collect();
    let left = pids.iter().filter(|pid| test_kill_process(**pid).is_ok());
    Ok(Trial {
        ending: finished.ending,
        seen: pids.len(),
        left: left.count(),
        late: ended.since(BootTime::new(deadline.since_boot())),
    })
}

fn judge_trial(trial: &Trial) -> Finding {
    let Trial {
        ending,
        seen,
        left,
        late,
    } = trial;
    let late_ms = late.as_millis();
    if *left > 0 {
        return Finding::error(
            TRIAL,
            format!("{left} of {seen} processes outlived their lease"),
            "do not run commands here; report it, with what this command prints",
        );
    }
    if *ending != Ending::LeaseLost || *seen < TREE_SIZE {
        return Finding::error(
            TRIAL,
            format!(
                "the trial did not go as it should: {ending}, with {seen} of {TREE_SIZE} processes seen"
            ),
            "see that /bin/sh works here; run it again if the machine was busy",
        );
    }
    let what = format!(
        "a tree that ignores TERM and leaves its session was dead {late_ms} ms after the end of its lease"
    );
    if *late > LATE_MAX {
        return Finding::warning(
            TRIAL,
            what,
            "give the machine less to do, or the worker a longer lease: kills have half of it",
        );
    }
    Finding::ok(TRIAL, what)
}

#[cfg(test)]
mod tests;
