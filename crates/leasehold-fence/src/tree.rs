//! Finding and killing every process below this one.
//!
//! A process whose parent dies is handed to the nearest subreaper above it, whatever session or group
//! it has moved to. So whoever is a subreaper and goes on killing its children until it has none left
//! has ended everything it ever started.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::event::poll;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, waitid,
};
use rustix::time::Timespec;

/// What one round of killing left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// No process, nor anything of one.
    Nobody,
    /// Some may still be there, and the round has ended others.
    Fewer,
    /// Some are still there, and none has ended in this round.
    All,
}

/// The children of this process, which has one thread.
///
/// The kernel's list is opened once and read again and again: a command that runs as the same user can
/// take descriptors, or the sight of `/proc`, away from those who have not opened what they need.
#[derive(Debug)]
pub(crate) struct Children {
    list: Option<File>,
}

impl Children {
    pub(crate) fn watched() -> Self {
        let me = getpid();
        Self {
            // A kernel without it is asked in another way, each time.
            list: File::open(format!("/proc/{me}/task/{me}/children")).ok(),
        }
    }

    fn now(&self) -> Vec<Pid> {
        let listed = self.list.as_ref().and_then(|list| read_again(list).ok());
        match listed {
            Some(text) => text.split_whitespace().filter_map(number).collect(),
            None => children_of(getpid()),
        }
    }

    /// Reaps those that have ended, but for the spared.
    pub(crate) fn reap_ended(&self, spared: &[Pid]) {
        for child in self.now() {
            if !spared.contains(&child) {
                reap(child);
            }
        }
    }
}

/// Reads the file from its beginning.
fn read_again(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match file.read_at(&mut chunk, text.len() as u64)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            length => text.extend_from_slice(&chunk[..length]),
        }
    }
}

/// Kills and reaps every process below this one but those to spare, as far as one round gets. The
/// spared must be children of this process; what is below them is left alone, too.
pub(crate) fn kill_round(own: &Children, spared: &[Pid]) -> Left {
    let mut left = Left::Nobody;
    for _ in 0..PASSES_MAX {
        let mut children = own.now();
        children.retain(|child| !spared.contains(child));
        if children.is_empty() {
            break;
        }
        // All at once first: one that multiplies is hit before it has moved on. A child of ours is not
        // reaped by anybody else, so that its number cannot have changed hands.
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        let ended = children.iter().filter(|child| reap(**child)).count();
        if ended == 0 {
            // They need a moment to end, in which those below them are seen to.
            for child in children {
                kill_below(child);
            }
            left = if left == Left::Nobody {
                Left::All
            } else {
                left
            };
            break;
        }
        left = Left::Fewer;
    }
    // The list of children may miss one while others end. The system's own answer does not.
    if left == Left::Nobody && spared.is_empty() && has_children() {
        left = Left::All;
    }
    left
}

/// Reaps the children of this process that have ended, but for the spared; also where it has threads.
pub(crate) fn reap_ended(spared: &[Pid]) {
    for child in children_of(getpid()) {
        if !spared.contains(&child) {
            reap(child);
        }
    }
}

/// Lets a moment pass between two rounds: what was killed needs it to end.
pub(crate) fn pause(length: Duration) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: length.subsec_nanos().into(),
    };
    // Woken early, the next round only comes sooner.
    let _ = poll(&mut [], Some(&timeout));
}

/// Reaps the child if it has ended, and answers whether it had.
fn reap(child: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    // One that is not there is looked at again in the next round.
    waitid(WaitId::Pid(child), options).is_ok_and(|ended| ended.is_some())
}

/// In one round, as long as each pass ends somebody: a bound, so that a caller that has others to see to
/// comes back to them.
const PASSES_MAX: usize = 64;

fn has_children() -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, peek), Err(Errno::CHILD))
}

/// Kills what is below the process. This is for speed alone: once its parent is dead, each of them is
/// a child of ours, and the next round finds it.
fn kill_below(parent: Pid) {
    let mut parents = vec![parent];
    while let Some(parent) = parents.pop() {
        for child in children_of(parent) {
            // Its number may change hands between the list and the signal; a descriptor does not.
            let Ok(descriptor) = pidfd_open(child, PidfdFlags::empty()) else {
                continue;
            };
            if parent_of(child) == Some(parent) {
                let _ = pidfd_send_signal(&descriptor, Signal::KILL);
                parents.push(child);
            }
        }
    }
}

/// The children of a process, ended ones included.
pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    listed(parent).unwrap_or_else(|_| searched(parent))
}

/// By the kernel's own list, where it keeps one.
fn listed(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{parent}/task"))? {
        let list = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(list.split_whitespace().filter_map(number));
    }
    Ok(children)
}

/// By looking at every process there is.
fn searched(parent: Pid) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.flatten()
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything, brackets included.
    let (_, after_name) = stat.rsplit_once(") ")?;
    number(after_name.split(' ').nth(1)?)
}

fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

#[cfg(test)]
mod tests;
