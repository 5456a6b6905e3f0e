//! What is below this process: whom a case started, and whom they left.
//!
//! While a case runs this process is a subreaper, so that whatever loses its parent stays below it, and
//! whatever is left at the end has escaped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use leasehold::ItemId;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid,
};

use crate::yard::within;

pub(super) fn take() {
    set_child_subreaper(Some(getpid())).unwrap();
}

/// Waits until no process is left below this one, and reaps the orphans it was handed meanwhile.
///
/// These may be a fence's own, whose worker was killed, and nothing of a tree: a tree has a subreaper of
/// its own as long as anything of it lives.
pub(super) async fn nobody_is_left() {
    let limit = Duration::from_secs(10);
    within(limit, "nobody is left", async || {
        let left = children();
        for process in left.iter().filter(|process| process.is_dead()) {
            assert!(
                process.name.starts_with("fence-"),
                "left behind: {process:?}"
            );
            reap(process);
        }
        left.is_empty().then_some(())
    })
    .await;
}

/// Ends processes that a case has left without anybody to do so, children of this one by now, and reaps
/// them with whoever of them had ended before.
pub(super) fn end(processes: &BTreeSet<i32>) {
    for pid in processes.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        kill_process(pid, Signal::KILL).unwrap();
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).unwrap();
    }
    for process in children().iter().filter(|process| process.is_dead()) {
        reap(process);
    }
}

fn reap(process: &Seen) {
    let pid = Pid::from_raw(process.pid).unwrap();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(pid), options).unwrap();
}

/// Every process below this one that executes, as it was looked at once.
pub(super) struct Look {
    /// With its environment.
    processes: Vec<(i32, Vec<u8>)>,
}

impl Look {
    pub(super) fn now() -> Self {
        let below = below(std::process::id()).into_iter();
        let living = below.filter(|process| !process.is_dead());
        let processes = living.map(|process| {
            let environment = fs::read(format!("/proc/{}/environ", process.pid));
            (process.pid, environment.unwrap_or_default())
        });
        Self {
            processes: processes.collect(),
        }
    }

    /// Those that run the item under that fencing number, by their environment, and those of `told`
    /// that are there.
    pub(super) fn of_run(&self, item: ItemId, fence: i64, told: &BTreeSet<i32>) -> BTreeSet<i32> {
        let marks = [
            format!("LEASEHOLD_ITEM_ID={item}"),
            format!("LEASEHOLD_FENCE={fence}"),
        ];
        let is_of_run = |environment: &[u8]| {
            let variables: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
            marks
                .iter()
                .all(|mark| variables.contains(&mark.as_bytes()))
        };
        let of_run = self
            .processes
            .iter()
            .filter(|(pid, environment)| told.contains(pid) || is_of_run(environment));
        of_run.map(|(pid, _)| *pid).collect()
    }
}

/// How many descriptors that process holds.
pub(super) fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A process as it was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) name: String,
    state: char,
}

impl Seen {
    /// Whether it has ended and is only to be reaped.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name stands in brackets and may hold anything, brackets included.
        let (before, after) = stat.rsplit_once(") ")?;
        let (pid, name) = before.split_once(" (")?;
        let mut rest = after.split(' ');
        Some(Self {
            pid: pid.parse().ok()?,
            state: rest.next()?.chars().next()?,
            parent: rest.next()?.parse().ok()?,
            name: name.to_owned(),
        })
    }
}

fn children() -> Vec<Seen> {
    let me = i32::try_from(std::process::id()).unwrap();
    let all = below(std::process::id());
    all.into_iter()
        .filter(|process| process.parent == me)
        .collect()
}

/// Everything below that process, ended ones included.
pub(super) fn below(pid: u32) -> Vec<Seen> {
    let mut by_parent: BTreeMap<i32, Vec<Seen>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(seen) = Seen::parse(&stat) {
            by_parent.entry(seen.parent).or_default().push(seen);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![i32::try_from(pid).unwrap()];
    while let Some(parent) = parents.pop() {
        for seen in by_parent.remove(&parent).unwrap_or_default() {
            parents.push(seen.pid);
            found.push(seen);
        }
    }
    found
}
