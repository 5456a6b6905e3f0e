//! The room that the system gives: descriptors, processes, their numbers.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{Resource, geteuid, getrlimit};

use super::Case;
use super::finding::Finding;
use super::machine::number_in;

/// For each run, in the worker: two outputs, the warden's socket, and two on the way of starting it.
const DESCRIPTORS_PER_RUN: u64 = 5;
/// For what is no run: the database and its readers, the health port and who asks it, the log.
const DESCRIPTORS_BESIDE: u64 = 64;
/// For each run: its warden, the command, and two that it starts itself.
const PROCESSES_PER_RUN: u64 = 4;
/// For what is no run: the worker's threads, and wardens that wait for a run.
const PROCESSES_BESIDE: u64 = 32;

pub(super) fn descriptors(case: &Case) -> Vec<Finding> {
    let limit = getrlimit(Resource::Nofile);
    vec![judge_descriptors(
        limit.current,
        limit.maximum,
        case.capacity(),
    )]
}

fn judge_descriptors(soft: Option<u64>, hard: Option<u64>, capacity: u64) -> Finding {
    const CHECK: &str = "descriptors";
    let needed = DESCRIPTORS_BESIDE + DESCRIPTORS_PER_RUN * capacity;
    let Some(soft) = soft else {
        return Finding::ok(CHECK, "as many open descriptors as are needed");
    };
    if soft >= needed {
        return Finding::ok(
            CHECK,
            format!("{soft} open descriptors are allowed; {capacity} runs at once need {needed}"),
        );
    }
    let what =
        format!("{soft} open descriptors are allowed, and {capacity} runs at once need {needed}");
    let is_ours = hard.is_none_or(|hard| hard >= needed);
    let fix = if is_ours {
        format!(
            "allow them with `ulimit -n {needed}` or LimitNOFILE={needed}, or lower the capacity"
        )
    } else {
        format!(
            "have the hard limit raised to {needed} (LimitNOFILE, limits.conf, --ulimit nofile), or lower the capacity"
        )
    };
    Finding::error(CHECK, what, &fix)
}

pub(super) fn processes(case: &Case) -> Vec<Finding> {
    let limit = getrlimit(Resource::Nproc).current;
    // The system does not hold root to it.
    let limit = limit.filter(|_| !geteuid().is_root());
    let user = geteuid().as_raw();
    let in_use = tasks(|owner| owner == user);
    vec![judge_room(
        "processes",
        "processes and threads of this user",
        limit,
        in_use,
        case.capacity(),
        "raise it with `ulimit -u` or LimitNPROC, or lower the capacity",
    )]
}

pub(super) fn numbers(case: &Case) -> Vec<Finding> {
    let limit = number_in("/proc/sys/kernel/pid_max").ok().flatten();
    vec![judge_room(
        "pid-max",
        "processes and threads of the machine",
        limit,
        tasks(|_| true),
        case.capacity(),
        "raise kernel.pid_max with sysctl, or lower the capacity",
    )]
}

pub(super) fn group(case: &Case) -> Vec<Finding> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    let folder = format!("/sys/fs/cgroup{own}");
    // Where nothing is counted, nothing is limited by it.
    let Ok(limit) = number_in(&format!("{folder}/pids.max")) else {
        return Vec::new();
    };
    let in_use = number_in(&format!("{folder}/pids.current"));
    vec![judge_room(
        "pids-limit",
        "processes and threads of this control group",
        limit,
        in_use.ok().flatten().unwrap_or_default(),
        case.capacity(),
        "raise the container's or the service's limit (--pids-limit, TasksMax), or lower the capacity",
    )]
}

fn judge_room(
    check: &'static str,
    of_what: &str,
    limit: Option<u64>,
    in_use: u64,
    capacity: u64,
    fix: &str,
) -> Finding {
    let Some(limit) = limit else {
        return Finding::ok(check, format!("no limit on the {of_what}"));
    };
    let needed = PROCESSES_BESIDE + PROCESSES_PER_RUN * capacity;
    let told = format!("at most {limit} {of_what}, of which {in_use} are there");
    if limit.saturating_sub(in_use) >= needed {
        return Finding::ok(check, told);
    }
    let what = format!("{told}; {capacity} runs at once need about {needed} more");
    Finding::warning(check, what, fix)
}

/// How many threads there are of processes whose owner counts.
fn tasks(counts: impl Fn(u32) -> bool) -> u64 {
    let Ok(all) = fs::read_dir("/proc") else {
        return 0;
    };
    let processes = all.flatten().filter(|entry| {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process && entry.metadata().is_ok_and(|about| counts(about.uid()))
    });
    let threads = processes.map(|entry| {
        let threads = fs::read_dir(entry.path().join("task"));
        threads.map_or(1, Iterator::count) as u64
    });
    threads.sum()
}

#[cfg(test)]
mod tests;
