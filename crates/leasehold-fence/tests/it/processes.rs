//! What the system says of processes, and waiting until it says something.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use leasehold_fence::Deadline;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid,
};
use rustix::time::Timespec;

/// One process, told apart from a later one of the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// When it was started, in the system's ticks.
    start: u64,
}

impl Process {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// A line as of `/proc/PID/stat`; `None` if it is not whole.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (pid, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether anything is left of it: it runs, or is dead and was not waited for.
    pub(crate) fn is_there(&self) -> bool {
        Self::of(self.pid).is_some_and(|now| now.start == self.start)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(self.pid, signal);
    }
}

pub(crate) fn signal_to(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Every process there is.
pub(crate) fn all() -> Vec<Process> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Process::of).collect()
}

pub(crate) fn children_of(pid: i32) -> Vec<Process> {
    all().into_iter().filter(|one| one.parent == pid).collect()
}

/// Everything below it.
pub(crate) fn descendants_of(pid: i32) -> Vec<Process> {
    let all = all();
    let mut family = BTreeSet::from([pid]);
    loop {
        let more = all.iter().filter(|one| family.contains(&one.parent));
        let more: Vec<i32> = more.map(|one| one.pid).collect();
        let before = family.len();
        family.extend(more);
        if family.len() == before {
            break;
        }
    }
    family.remove(&pid);
    all.into_iter()
        .filter(|one| family.contains(&one.pid))
        .collect()
}

/// Processes whose command line holds the text.
pub(crate) fn mentioning(text: &str) -> Vec<Process> {
    let mentions = |one: &Process| {
        let line = fs::read(format!("/proc/{}/cmdline", one.pid)).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    all().into_iter().filter(mentions).collect()
}

/// A process of the fence itself, by its name.
pub(crate) fn is_ours(process: &Process) -> bool {
    // The last is that of one which has not named itself yet.
    process.name.starts_with("fence-") || process.name.starts_with("leasehold-fence")
}

/// What a process holds, to see that nothing of it leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    pub(crate) children: usize,
}

impl Holdings {
    pub(crate) fn of(pid: i32) -> Self {
        let count = |what: &str| {
            let folder = fs::read_dir(format!("/proc/{pid}/{what}"));
            folder.map_or(0, Iterator::count)
        };
        Self {
            descriptors: count("fd"),
            threads: count("task"),
            children: children_of(pid).len(),
        }
    }

    pub(crate) fn own() -> Self {
        Self::of(getpid().as_raw_nonzero().get())
    }

    /// Fails unless this process holds again what it held, within a moment: a thread that was joined
    /// is listed a little longer.
    pub(crate) fn assert_again(self) {
        let limit = Duration::from_secs(5);
        let mut last = self;
        let same = within(limit, || {
            last = Self::own();
            (last == self).then_some(())
        });
        assert!(same.is_some(), "held {self:?} before and {last:?} after");
    }
}

/// A number of `/proc/PID/status`, such as `VmHWM` in KiB.
pub(crate) fn status_of(pid: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Takes in the orphans of callers that die, so that a case sees what became of them.
pub(crate) fn take_in_orphans() {
    set_child_subreaper(Some(getpid())).unwrap();
}

/// Waits for the fence's own processes that were handed to this one. Those of a command's tree never
/// must be, and stay to be found.
pub(crate) fn reap_ours() {
    let own = children_of(getpid().as_raw_nonzero().get());
    for dead in own.iter().filter(|one| one.state == 'Z' && is_ours(one)) {
        let pid = WaitId::Pid(Pid::from_raw(dead.pid).unwrap());
        // Another thread of the case may have been faster.
        let _ = waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// Time since the machine started.
pub(crate) fn now() -> Duration {
    Deadline::after(Duration::ZERO).since_boot()
}

/// Looks again and again until there is an answer; `None` when the limit is over.
pub(crate) fn within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = now() + limit;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if now() > end {
            return None;
        }
        breathe();
    }
}

/// As [`within`], and fails saying what it waited for.
pub(crate) fn until<T>(limit: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(limit, look).unwrap_or_else(|| panic!("waited {limit:?} for this: {what}"))
}

fn breathe() {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 2_000_000,
    };
    // real time: other processes move at their own pace
    let _ = rustix::event::poll(&mut [], Some(&moment));
}
