//! The second stage of a warden: the process that becomes the command.
//!
//! It is started ahead, in a process group of its own, and waits for what to become. Before anything
//! else it asks the system to be killed when its warden dies.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use rustix::thread::{set_name, set_no_new_privs};

use crate::command::Invocation;
use crate::wire::{self, NotStarted, Received, Start, Step};

/// Waits for its warden's word and becomes the command. Answers only if that could not be done.
pub(crate) fn run(warden: Option<Pid>) {
    let Ok(warden_socket) = fcntl_dupfd_cloexec(stdin(), 3) else {
        return;
    };
    let _ = set_name(c"fence-stage");
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() || getppid() != warden {
        // The warden died before its death could be felt.
        return;
    }
    if let Some((start, descriptors)) = told(&warden_socket) {
        let failed = match become_command(start, descriptors) {
            Ok(never) => match never {},
            Err(failed) => failed,
        };
        // A warden that is gone has killed this process already.
        let _ = wire::send(&warden_socket, &failed, &[]);
    }
}

fn told(warden: &OwnedFd) -> Option<(Start, Vec<OwnedFd>)> {
    loop {
        match wire::receive::<Start>(warden) {
            Ok(Received::Message(start, descriptors)) => return Some((start, descriptors)),
            Ok(Received::Nothing) => {
                // Woken for nothing, it looks again.
                let _ = poll(&mut [PollFd::new(warden, PollFlags::IN)], None);
            }
            Ok(Received::Closed) | Err(_) => return None,
        }
    }
}

fn become_command(
    start: Start,
    descriptors: Vec<OwnedFd>,
) -> Result<std::convert::Infallible, NotStarted> {
    let at = |step| {
        move |error: io::Error| NotStarted {
            step,
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        }
    };
    let prepare = at(Step::Prepare);
    let descriptors: Result<[OwnedFd; wire::START_DESCRIPTORS], _> = descriptors.try_into();
    let [what, input, output, errors] = descriptors.map_err(|_| prepare(Errno::BADMSG.into()))?;
    let invocation = Invocation::from_file(what)
        .and_then(|invocation| invocation.ok_or_else(|| Errno::BADMSG.into()))
        .map_err(prepare)?;
    std::env::set_current_dir(&invocation.directory).map_err(at(Step::Directory))?;
    if start.no_new_privileges {
        set_no_new_privs(true).map_err(|error| prepare(error.into()))?;
    }
    for done in [
        dup2_stdin(&input),
        dup2_stdout(&output),
        dup2_stderr(&errors),
    ] {
        done.map_err(|error| prepare(error.into()))?;
    }
    let mut command = std::process::Command::new(invocation.program());
    command
        .args(invocation.arguments.iter().skip(1))
        .env_clear()
        .envs(invocation.environment);
    Err(at(Step::Execute)(command.exec()))
}
