//! The spawner: one small process beside each caller, which starts the wardens and ends what one of
//! them left behind when it was killed.
//!
//! # Why it is there
//! A warden that is killed cannot end its tree any more; the tree is handed to the nearest subreaper
//! above. If that were the caller, it would have to tell these orphans from children that are its own
//! business, and could reap what it must not. Every child of the spawner is a warden of its own making,
//! so that any other child is an orphan.
//!
//! It goes on when its caller is gone, until the last warden has ended. Its own death takes nothing
//! along: a warden does not need it, and the caller starts another one.
//!
//! # Ready wardens
//! It keeps some wardens ready, each with a stage that waits to become a command, so that a run costs
//! the caller no more than handing it over.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    set_child_subreaper, setsid, waitid,
};
use rustix::stdio::stdin;
use rustix::thread::set_name;
use rustix::time::Timespec;

use crate::cgroup::{self, Group};
use crate::enter::{self, Role};
use crate::tree::{self, Children, Left};
use crate::wire::{self, Adopt, NotStarted, Received, Report, Step};

/// Runs until its caller is gone and the last warden has ended.
pub(crate) fn run(idle: usize) {
    let Ok(caller) = fcntl_dupfd_cloexec(stdin(), 3) else {
        return;
    };
    // What the caller itself inherited without knowing goes no further. Nobody else runs in this
    // process that could open something at the same time.
    close_fds::set_fds_cloexec(3, &[]);
    let _ = set_name(c"fence-spawner");
    let signals = enter::ignore_signals();
    enter::close_to_others();
    // Fails only for one that is in a session of its own already.
    let _ = setsid();
    // A folder that somebody wants to unmount is not held by this.
    let _ = std::env::set_current_dir("/");
    if set_child_subreaper(Some(getpid())).is_err() {
        // The closed socket is the answer: nothing is started without it.
        return;
    }
    let mut spawner = Spawner {
        caller: Some(caller),
        idle_wanted: idle,
        groups: cgroup::delegated().ok(),
        idle: Vec::new(),
        wardens: HashMap::new(),
        lost: Vec::new(),
        emptied: Vec::new(),
        is_discouraged: false,
        children: Children::watched(),
        signals,
    };
    while spawner.is_needed() {
        spawner.turn();
    }
}

struct Spawner {
    /// `None` once it is gone.
    caller: Option<OwnedFd>,
    idle_wanted: usize,
    groups: Option<PathBuf>,
    /// Wardens that wait for a run, and by what each is handed one.
    idle: Vec<(Pid, OwnedFd)>,
    wardens: HashMap<Pid, Warden>,
    /// Wardens that were killed, each to be reported when nothing of its run is left.
    lost: Vec<Lost>,
    /// Their control groups, to be removed, and how often that was refused.
    emptied: Vec<(Group, usize)>,
    /// A warden ended while it waited: no other is made ready before one is asked for. Whatever ends
    /// them at once would otherwise be fed without a pause.
    is_discouraged: bool,
    children: Children,
    /// Set when a signal has arrived, such as that of a child that ended or was stopped.
    signals: Arc<AtomicBool>,
}

struct Lost {
    group: Option<Group>,
    run: Option<OwnedFd>,
}

struct Warden {
    /// Readable when it has ended.
    ended: OwnedFd,
    /// Its run's socket, to report by if it does not itself.
    run: Option<OwnedFd>,
    /// How often it was found stopped.
    stops: usize,
}

/// Between two rounds of killing what a killed warden left.
const ORPHANS_PAUSE_NS: i64 = 1_000_000;
/// While commands run, it looks around this often, should a signal have come at a bad moment.
const LOOK_PAUSE_NS: i64 = 250_000_000;
/// A person may stop what looks idle, once or twice. More often it is a command that fights its fence.
const STOPS_MAX: usize = 3;
/// So many times in a row nobody must be found.
const LOOKS: usize = 2;
/// A group is tried to be removed so often, a pause apart: the system may count a process as there a
/// moment longer than it can be waited for. Then it stays for a person to look at.
const REMOVALS_MAX: usize = 1_000;

impl Spawner {
    fn is_needed(&self) -> bool {
        self.caller.is_some()
            || !self.wardens.is_empty()
            || !self.lost.is_empty()
            || !self.emptied.is_empty()
    }

    fn turn(&mut self) {
        self.prepare();
        let pause = self.pause().map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
        let mut waited_for: Vec<PollFd<'_>> = self
            .wardens
            .values()
            .map(|warden| PollFd::new(&warden.ended, PollFlags::IN))
            .collect();
        waited_for.extend(
            self.caller
                .iter()
                .map(|caller| PollFd::new(caller, PollFlags::IN)),
        );
        // Woken for nothing, it looks around.
        let _ = poll(&mut waited_for, pause.as_ref());
        let woken = waited_for.iter().map(|one| !one.revents().is_empty());
        let ended: Vec<Pid> = self
            .wardens
            .keys()
            .zip(woken)
            .filter(|(_, woken)| *woken)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in ended {
            self.ended(pid);
        }
        self.wake_stopped();
        self.end_orphans();
        self.remove_groups();
        self.hear();
    }

    /// How long to wait for something to happen, in nanoseconds; `None` for as long as it takes.
    fn pause(&self) -> Option<i64> {
        let has_more_to_do = !self.lost.is_empty() || !self.emptied.is_empty();
        let has_runs = self.wardens.len() > self.idle.len();
        match (has_more_to_do, has_runs) {
            (true, _) => Some(ORPHANS_PAUSE_NS),
            (false, true) => Some(LOOK_PAUSE_NS),
            (false, false) => None,
        }
    }

    /// A warden that is stopped holds no deadline, so it is woken; one that is stopped again and again
    /// is killed, and its run with it.
    fn wake_stopped(&mut self) {
        let has_heard = self.signals.swap(false, Ordering::Relaxed);
        if !has_heard && self.wardens.len() == self.idle.len() {
            return;
        }
        for (pid, warden) in &mut self.wardens {
            let stopped = waitid(
                WaitId::Pid(*pid),
                WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
            );
            if stopped.is_ok_and(|stopped| stopped.is_some()) {
                warden.stops += 1;
                let signal = if warden.stops > STOPS_MAX {
                    Signal::KILL
                } else {
                    Signal::CONT
                };
                // It is a child that was not reaped, so the number is its own.
                let _ = kill_process(*pid, signal);
            }
        }
    }

    /// Takes in what the caller wants.
    fn hear(&mut self) {
        while let Some(caller) = &self.caller {
            match wire::receive::<Adopt>(caller) {
                Ok(Received::Message(Adopt, descriptors)) => {
                    if let Some(run) = descriptors.into_iter().next() {
                        self.hand_over(&run);
                    }
                }
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) | Err(_) => {
                    self.caller = None;
                    // Those that wait for a run see that there will be none.
                    self.idle.clear();
                }
            }
        }
    }

    fn hand_over(&mut self, run: &OwnedFd) {
        self.is_discouraged = false;
        let Err(error) = self.handed_over(run) else {
            return;
        };
        let failed = NotStarted {
            step: Step::Prepare,
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        };
        // A caller that is gone need not be told.
        let _ = wire::send(run, &Report::NotStarted(failed), &[]);
    }

    fn handed_over(&mut self, run: &OwnedFd) -> io::Result<()> {
        while let Some((pid, warden)) = self.idle.pop() {
            match self.hand_to(pid, &warden, run) {
                // It was killed while it waited.
                Err(error) if wire::is_gone(&error) => {}
                handed => return handed,
            }
        }
        let (pid, warden) = self.spawn()?;
        self.hand_to(pid, &warden, run)
    }

    fn hand_to(&mut self, pid: Pid, warden: &OwnedFd, run: &OwnedFd) -> io::Result<()> {
        let entry = self.wardens.get_mut(&pid).ok_or(Errno::PIPE)?;
        let own = run.try_clone()?;
        wire::send_patiently(warden, &Adopt, &[run.as_fd()])?;
        entry.run = Some(own);
        Ok(())
    }

    /// Makes up for the wardens that were handed out.
    fn prepare(&mut self) {
        let is_wanted = self.caller.is_some() && !self.is_discouraged;
        while is_wanted && self.idle.len() < self.idle_wanted {
            match self.spawn() {
                Ok(idle) => self.idle.push(idle),
                // Tried again when one is needed, and reported then.
                Err(_) => return,
            }
        }
    }

    fn spawn(&mut self) -> io::Result<(Pid, OwnedFd)> {
        let (own, far) = wire::pair()?;
        let mut child = enter::command(&Role::Warden(self.groups.clone()))
            .stdin(Stdio::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let watched = pid.map(|pid| (pid, pidfd_open(pid, PidfdFlags::empty())));
        let Some((pid, Ok(ended))) = watched else {
            // Out of descriptors, most likely. One that cannot be watched is of no use.
            child.kill()?;
            child.wait()?;
            return Err(Errno::MFILE.into());
        };
        self.wardens.insert(
            pid,
            Warden {
                ended,
                run: None,
                stops: 0,
            },
        );
        Ok((pid, own))
    }

    /// A warden has ended: well, or by somebody's hand.
    fn ended(&mut self, pid: Pid) {
        let idle = self.idle.len();
        self.idle.retain(|(idle, _)| *idle != pid);
        self.is_discouraged |= self.idle.len() < idle;
        let Some(warden) = self.wardens.remove(&pid) else {
            return;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(pid), options).ok().flatten();
        if status.is_some_and(|status| status.exit_status() == Some(0)) {
            return;
        }
        let group = self.groups.as_ref().map(|groups| Group::of(groups, pid));
        self.lost.push(Lost {
            group,
            run: warden.run,
        });
    }

    /// Ends what killed wardens left, as far as one round gets, and reports when nothing is.
    fn end_orphans(&mut self) {
        if self.lost.is_empty() {
            return;
        }
        let groups = self.lost.iter().filter_map(|lost| lost.group.as_ref());
        groups.for_each(Group::kill);
        let spared: Vec<Pid> = self.wardens.keys().copied().collect();
        // The list of children may miss one while others end, so that one look is not enough.
        if (0..LOOKS).any(|_| tree::kill_round(&self.children, &spared) != Left::Nobody) {
            return;
        }
        for Lost { group, run } in self.lost.drain(..) {
            self.emptied.extend(group.map(|group| (group, 0)));
            if let Some(run) = run {
                // If the warden had reported before it was killed, that is read first. A caller that is
                // gone need not be told.
                let _ = wire::send(&run, &Report::WardenLost, &[]);
            }
        }
    }
    fn remove_groups(&mut self) {
        self.emptied.retain_mut(|(group, refusals)| {
            *refusals += 1;
            // There is none if the warden was killed before it made one.
            let is_there = group
                .remove()
                .is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
            is_there && *refusals < REMOVALS_MAX
        });
    }
}
