//! The system: its kernel, what it shows of processes, who reaps, and its clocks.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::SystemClock;
use leasehold::core::Clock as _;
use leasehold::core::time::short_length;
use rustix::process::{geteuid, getpid};
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};

use super::Case;
use super::finding::Finding;

pub(super) fn kernel(_: &Case) -> Vec<Finding> {
    let release = uname().release().to_string_lossy().into_owned();
    vec![judge_kernel(&release)]
}

/// The first with all that the fence needs: process descriptors, and clocks that count suspended time.
const KERNEL_MIN: (u32, u32) = (5, 3);

fn judge_kernel(release: &str) -> Finding {
    const CHECK: &str = "kernel";
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse::<u32>().ok();
    let (Some(major), Some(minor)) = (number(), number()) else {
        return Finding::warning(
            CHECK,
            format!("the kernel's version {release:?} cannot be read"),
            "go by the other findings",
        );
    };
    let (least_major, least_minor) = KERNEL_MIN;
    if (major, minor) < KERNEL_MIN {
        return Finding::error(
            CHECK,
            format!("Linux {release} is too old to watch over commands"),
            &format!("use {least_major}.{least_minor} or later"),
        );
    }
    Finding::ok(CHECK, format!("Linux {release}"))
}

pub(super) fn processes(_: &Case) -> Vec<Finding> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_readable = fs::read_to_string("/proc/self/stat").is_ok();
    let has_children = fs::read_to_string("/proc/thread-self/children").is_ok();
    let shown = judge_proc(is_readable, options_of_proc(&mounts), geteuid().is_root());
    if !is_readable {
        return vec![shown];
    }
    vec![shown, judge_children(has_children)]
}

/// How `/proc` is mounted, as the kernel lists it: of several mounts the last is the one that is seen.
fn options_of_proc(mounts: &str) -> &str {
    let options = |line| {
        let mut fields = str::split(line, ' ').skip(1);
        let (place, kind) = (fields.next()?, fields.next()?);
        (place == "/proc" && kind == "proc").then(|| fields.next())?
    };
    mounts.lines().rev().find_map(options).unwrap_or_default()
}

fn judge_proc(is_readable: bool, options: &str, is_root: bool) -> Finding {
    const CHECK: &str = "proc";
    if !is_readable {
        return Finding::error(
            CHECK,
            "/proc cannot be read, and without it the processes of a command are not found",
            "mount it: mount -t proc proc /proc",
        );
    }
    let hidden = options
        .split(',')
        .find_map(|option| option.strip_prefix("hidepid="))
        .filter(|how| !matches!(*how, "0" | "off"));
    match hidden {
        Some(how) if !is_root => Finding::warning(
            CHECK,
            format!(
                "/proc hides the processes of other users (hidepid={how}): a command that becomes another user is not found"
            ),
            "set no_new_privileges = true for the kinds, or mount /proc without hidepid",
        ),
        _ => Finding::ok(CHECK, "/proc is mounted, and shows every process"),
    }
}

fn judge_children(is_there: bool) -> Finding {
    const CHECK: &str = "children";
    if is_there {
        Finding::ok(CHECK, "the kernel lists the children of a process")
    } else {
        Finding::warning(
            CHECK,
            "the kernel keeps no lists of children (CONFIG_PROC_CHILDREN): every process there is has to be looked at to end a run, which takes longer",
            "use a kernel that keeps them, if many processes run beside the worker",
        )
    }
}

pub(super) fn first_process(_: &Case) -> Vec<Finding> {
    let name = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    // Whoever reaps needs a moment for it: only what is there at both looks was left.
    let (before, after) = (unreaped_by_first(), unreaped_by_first());
    let left = before.intersection(&after).count();
    vec![judge_first(getpid().is_init(), name.trim(), left)]
}

/// Processes that have ended as children of PID 1, by number.
fn unreaped_by_first() -> BTreeSet<i32> {
    let Ok(all) = fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    let numbers = all
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| is_unreaped_by_first(&stat))
        })
        .collect()
}

fn is_unreaped_by_first(stat: &str) -> bool {
    // The name stands in brackets and may hold anything, brackets included.
    stat.rsplit_once(") ").is_some_and(|(_, after)| {
        let mut fields = after.split(' ');
        (fields.next(), fields.next()) == (Some("Z"), Some("1"))
    })
}

fn judge_first(is_us: bool, name: &str, unreaped: usize) -> Finding {
    const CHECK: &str = "pid-1";
    if is_us {
        return Finding::ok(
            CHECK,
            "this process is PID 1; as such a worker reaps what it is handed",
        );
    }
    if unreaped > 0 {
        return Finding::warning(
            CHECK,
            format!(
                "PID 1 ({name}) does not reap: {unreaped} ended processes are left, and their numbers stay taken"
            ),
            "let the worker itself be PID 1 of the container (exec form of the start command), or start the container with an init",
        );
    }
    Finding::ok(CHECK, format!("PID 1 ({name}) has left no ended process"))
}

pub(super) fn calendar(_: &Case) -> Vec<Finding> {
    let suspended = reading(ClockId::Boottime).saturating_sub(reading(ClockId::Monotonic));
    vec![
        judge_calendar(SystemClock.now()),
        judge_suspended(suspended),
    ]
}

fn reading(clock: ClockId) -> Duration {
    let reading = clock_gettime(clock);
    let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(reading.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// 2020 began then: no machine that keeps time is earlier.
const CALENDAR_MIN: i64 = 1_577_836_800;

fn judge_calendar(now: Timestamp) -> Finding {
    const CHECK: &str = "calendar";
    if now.as_second() < CALENDAR_MIN {
        return Finding::error(
            CHECK,
            format!("the calendar says {now:.0}, which is long past"),
            "set the clock, and keep it with an NTP service: due times and leases of a database file go by it",
        );
    }
    Finding::ok(CHECK, format!("the calendar says {now:.0}"))
}

fn judge_suspended(length: Duration) -> Finding {
    const CHECK: &str = "suspends";
    // The two clocks are read one after the other.
    if length < Duration::from_secs(1) {
        return Finding::ok(CHECK, "the machine was never suspended since it started");
    }
    let what = format!(
        "the machine was suspended for {} since it started; leases go on meanwhile, so runs are lost by it",
        short_length(length)
    );
    Finding::ok(CHECK, what)
}

/// What a file in `/proc/sys` or a control group says.
pub(super) fn number_in(path: &str) -> io::Result<Option<u64>> {
    // "max" is no number, and no limit.
    Ok(fs::read_to_string(path)?.trim().parse().ok())
}

#[cfg(test)]
mod tests;
