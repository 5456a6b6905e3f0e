//! The warden: the small process beside a command that owns its tree and its deadline.
//!
//! # Life
//! 1. It leaves its caller's session, takes in the orphans of everything below it, and starts the stage
//!    that will become the command.
//! 2. It waits until the spawner hands it a run, and then for the caller's word to begin.
//! 3. It watches: the caller's orders, the caller's end of the socket, the command, the clock.
//! 4. When the command has ended, or must, it kills whatever is below it until nothing is left, reports
//!    the ending, and goes.
//!
//! It never waits for the end of a pipe, since anybody may hold the other end; and it hears no signal
//! but those that nobody can refuse: its caller speaks through the socket.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, getpid, kill_process,
    kill_process_group, pidfd_open, set_child_subreaper, setsid, waitid,
};
use rustix::stdio::stdin;
use rustix::thread::set_name;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::cgroup::Group;
use crate::clock::{Deadline, calendar_offset};
use crate::enter::{self, Role};
use crate::tree::{self, Children, Left};
use crate::watch::{Act, Order, Watch};
use crate::wire::{self, Adopt, NotStarted, Received, Report, Start, Status, Step};

/// Runs until its run is over. Answers nothing: whom it could tell has been told.
pub(crate) fn run(groups: Option<&Path>) {
    let Ok(spawner) = fcntl_dupfd_cloexec(stdin(), 3) else {
        return;
    };
    let _ = set_name(c"fence-warden");
    let signals = enter::ignore_signals();
    enter::close_to_others();
    // Both fail only where they are not needed: in a session of its own already, on a system that has
    // no subreapers, where the spawner did not start.
    let _ = setsid();
    let stage = set_child_subreaper(Some(getpid()))
        .map_err(io::Error::from)
        .and_then(|()| Stage::spawn(groups, signals));
    let Some(caller) = adopted(&spawner) else {
        if let Ok(stage) = stage {
            remove(stage.end_tree().1);
        }
        return;
    };
    drop(spawner);
    match stage {
        Ok(stage) => supervise(&caller, stage),
        Err(error) => {
            // Its word to begin may not have come yet, and need not: this is the answer to it.
            let failed = not_started(&error);
            let _ = wire::send(&caller, &Report::NotStarted(failed), &[]);
        }
    }
}

fn not_started(error: &io::Error) -> NotStarted {
    NotStarted {
        step: Step::Prepare,
        errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
    }
}

/// Waits for a run; `None` if the spawner has none any more.
fn adopted(spawner: &OwnedFd) -> Option<OwnedFd> {
    loop {
        match wire::receive::<Adopt>(spawner) {
            Ok(Received::Message(Adopt, descriptors)) => return descriptors.into_iter().next(),
            Ok(Received::Nothing) => wait_for(spawner),
            Ok(Received::Closed) | Err(_) => return None,
        }
    }
}

fn wait_for(socket: &OwnedFd) {
    // Woken for nothing, the caller looks again.
    let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], None);
}

fn supervise(caller: &OwnedFd, stage: Stage) {
    let report = loop {
        match wire::receive::<Start>(caller) {
            Ok(Received::Message(start, descriptors)) => {
                break Supervision::begin(caller, stage, start, descriptors);
            }
            Ok(Received::Nothing) => wait_for(caller),
            Ok(Received::Closed) | Err(_) => {
                remove(stage.end_tree().1);
                return;
            }
        }
    };
    // A caller that is gone need not be told.
    let _ = wire::send(caller, &report.0, &[]);
    remove(report.1);
}

/// Removes a run's control group when nothing executes in it any more.
fn remove(group: Option<Group>) {
    let Some(group) = group else { return };
    // The system may count a process as there a moment longer than it can be waited for. Where the
    // group is not empty after all, it stays for a person to look at.
    let mut pause = PAUSE_MIN;
    for _ in 0..REMOVALS_MAX {
        if group.remove().is_ok() {
            return;
        }
        tree::pause(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// About a second in all, and nobody waits for it: on a busy machine such a moment is long.
const REMOVALS_MAX: usize = 20;

/// The process that becomes the command.
struct Stage {
    pid: Pid,
    /// Readable when the process has ended, without reaping it.
    ended: OwnedFd,
    /// Closed by it when it becomes the command.
    socket: OwnedFd,
    group: Option<Group>,
    /// Set when a signal has arrived, such as that of a child's end.
    signals: Arc<AtomicBool>,
    children: Children,
}

impl Stage {
    fn spawn(groups: Option<&Path>, signals: Arc<AtomicBool>) -> io::Result<Self> {
        let children = Children::watched();
        let (socket, far) = wire::pair()?;
        let child = enter::command(&Role::Stage(getpid()))
            .stdin(Stdio::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(Errno::SRCH)?;
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        let group = groups
            .and_then(|groups| Group::create(groups, getpid()).ok())
            .and_then(|group| {
                if group.take(pid).is_err() {
                    remove(Some(group));
                    return None;
                }
                Some(group)
            });
        Ok(Self {
            pid,
            ended,
            socket,
            group,
            signals,
            children,
        })
    }

    /// Kills it and everything below it, until nothing is left, and answers how it had ended.
    fn end_tree(self) -> (Status, Option<Group>) {
        let mut pause = PAUSE_MIN;
        loop {
            // Its number is its group's, and nobody else's as long as it is not reaped. It may have
            // left that group for one of its children's.
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = kill_process(self.pid, Signal::KILL);
            if let Some(group) = &self.group {
                group.kill();
            }
            let left = tree::kill_round(&self.children, &[self.pid]);
            if left == Left::Nobody
                && let Some(status) = reaped(self.pid)
            {
                // It was the last one, unless the list of children missed some.
                let mut pause = PAUSE_MIN;
                loop {
                    match tree::kill_round(&self.children, &[]) {
                        Left::Nobody => return (status, self.group),
                        left => pause = wait_a_moment(left, pause),
                    }
                }
            }
            pause = wait_a_moment(left, pause);
        }
    }
}

/// Lets those that were killed end, and answers how long to wait the next time.
fn wait_a_moment(left: Left, pause: Duration) -> Duration {
    if left == Left::Fewer {
        // There is no time to lose with those that multiply.
        return PAUSE_MIN;
    }
    tree::pause(pause);
    (pause * 2).min(PAUSE_MAX)
}

/// Between two rounds of killing: as long as it takes a killed process to end.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// For what does not end: a process that waits for a device, or that we may not signal.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Reaps the process if it has ended.
fn reaped(pid: Pid) -> Option<Status> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::Pid(pid), options) {
        Ok(Some(status)) => Some(status_of(&status)),
        // Somebody else reaped it, which nobody can but by an accident.
        Err(Errno::CHILD) => Some(Status::Signalled(Signal::KILL.as_raw())),
        _ => None,
    }
}

fn status_of(status: &WaitIdStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Exited(code),
        (None, signal) => Status::Signalled(signal.unwrap_or(Signal::KILL.as_raw())),
    }
}

/// A run from its beginning to its end.
struct Supervision<'a> {
    caller: &'a OwnedFd,
    stage: Stage,
    watch: Watch,
    timer: OwnedFd,
    /// Readable when the calendar is set.
    calendar: OwnedFd,
    /// Whether the stage may still say that it could not become the command.
    is_staged: bool,
}

impl<'a> Supervision<'a> {
    fn begin(
        caller: &'a OwnedFd,
        stage: Stage,
        start: Start,
        descriptors: Vec<OwnedFd>,
    ) -> (Report, Option<Group>) {
        let timers = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)
            .and_then(|timer| Ok((timer, calendar_alarm()?)));
        let (timer, calendar) = match timers {
            Ok(timers) => timers,
            Err(error) => return give_up(stage, &error.into()),
        };
        let watch = Watch::begin(start.bounds, Deadline::now(), calendar_offset());
        let mut run = Self {
            caller,
            stage,
            watch,
            timer,
            calendar,
            is_staged: true,
        };
        // What has no time left is not begun.
        if run.watch.look(Deadline::now(), calendar_offset()) != Act::Wait {
            return run.end();
        }
        // A run of which its caller never heard cannot have begun. One that cannot be told is gone.
        if wire::send(run.caller, &Report::Begun, &[]).is_err() {
            run.watch.orphaned();
            return run.end();
        }
        let beside: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if let Err(error) = wire::send(&run.stage.socket, &start, &beside) {
            return give_up(run.stage, &error);
        }
        // Whoever waits for the command's output to end must not wait for this process.
        drop(descriptors);
        run.watch_over()
    }

    fn watch_over(mut self) -> (Report, Option<Group>) {
        let mut reaped_at = Deadline::now();
        let mut reap_at = reaped_at.plus(REAP_EVERY);
        loop {
            // First what the caller has said: a deadline that was pushed in time counts, however late
            // this process comes to read it.
            if self.heard_all() == Act::Kill {
                return self.end();
            }
            match self.watch.look(Deadline::now(), calendar_offset()) {
                Act::Kill => return self.end(),
                Act::Terminate => self.terminate(),
                Act::Wait => {}
            }
            self.set_timer();
            if self.stage.signals.swap(false, Ordering::Relaxed) {
                reap_at = reap_at.min(reaped_at.plus(REAP_PAUSE));
            }
            let now = Deadline::now();
            if reap_at <= now {
                self.stage.children.reap_ended(&[self.stage.pid]);
                reaped_at = now;
                reap_at = now.plus(REAP_EVERY);
            }
            let tick = reap_at.minus(now.since_boot()).to_timespec();
            let mut waited_for = [
                PollFd::new(&self.stage.ended, PollFlags::IN),
                PollFd::new(self.caller, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.calendar, PollFlags::IN),
                PollFd::new(&self.stage.socket, PollFlags::IN),
            ];
            let count = if self.is_staged { 5 } else { 4 };
            if poll(&mut waited_for[..count], Some(&tick)).is_err() {
                continue;
            }
            let [ended, _, _, calendar, stage] =
                waited_for.map(|descriptor| !descriptor.revents().is_empty());
            if self.is_staged && (stage || ended) {
                match wire::receive::<NotStarted>(&self.stage.socket) {
                    Ok(Received::Message(failed, _)) => {
                        let (_, group) = self.stage.end_tree();
                        return (Report::NotStarted(failed), group);
                    }
                    Ok(Received::Nothing) => {}
                    Ok(Received::Closed) | Err(_) => self.is_staged = false,
                }
            }
            if ended {
                return self.end();
            }
            if calendar {
                // Set again it is quiet until the calendar is set the next time.
                let _ = watch_calendar(&self.calendar);
            }
        }
    }

    /// Takes in all that the caller has said.
    fn heard_all(&mut self) -> Act {
        loop {
            let act = match wire::receive::<Order>(self.caller) {
                Ok(Received::Message(order, _)) => {
                    self.watch.heard(order, Deadline::now(), calendar_offset())
                }
                Ok(Received::Nothing) => return Act::Wait,
                Ok(Received::Closed) | Err(_) => self.watch.orphaned(),
            };
            match act {
                Act::Kill => return Act::Kill,
                Act::Terminate => self.terminate(),
                Act::Wait => {}
            }
        }
    }

    fn terminate(&self) {
        let command = self.stage.pid;
        // A command that was stopped could not hear the first of them.
        for signal in [Signal::TERM, Signal::CONT] {
            // One that has ended in the meantime needs no asking.
            let _ = kill_process_group(command, signal);
            // It may have left its group; asked twice, it might take that for impatience.
            if getpgid(Some(command)).is_ok_and(|group| group != command) {
                let _ = kill_process(command, signal);
            }
        }
    }

    fn end(self) -> (Report, Option<Group>) {
        let cause = self.watch.cause();
        let (status, group) = self.stage.end_tree();
        (Report::Ended { cause, status }, group)
    }

    fn set_timer(&self) {
        let next = self.watch.next().map_or(
            // Disarmed.
            Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            Deadline::to_timespec,
        );
        let timer = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: next,
        };
        // The instant is a good one by its making; and the clock is looked at with every tick as well.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer);
    }
}

/// Orphans that ended by themselves are looked for this often while the command runs, should a signal of
/// their end have come at a bad moment.
const REAP_EVERY: Duration = Duration::from_secs(2);
/// However fast they come and go, they are reaped no more often: what a tree leaves in this time does not
/// use up the system's numbers, and looking for it costs next to nothing.
const REAP_PAUSE: Duration = Duration::from_millis(50);

/// Fires when the calendar is set, and never otherwise.
fn calendar_alarm() -> rustix::io::Result<OwnedFd> {
    let alarm = timerfd_create(
        TimerfdClockId::Realtime,
        TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
    )?;
    watch_calendar(&alarm)?;
    Ok(alarm)
}

fn watch_calendar(alarm: &OwnedFd) -> rustix::io::Result<()> {
    let never = Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: i64::MAX / 2,
            tv_nsec: 0,
        },
    };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(alarm, flags, &never)?;
    Ok(())
}

fn give_up(stage: Stage, error: &io::Error) -> (Report, Option<Group>) {
    let (_, group) = stage.end_tree();
    (Report::NotStarted(not_started(error)), group)
}
