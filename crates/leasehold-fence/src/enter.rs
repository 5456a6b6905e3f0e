//! How a process becomes a spawner, a warden or a stage: the host's own program is started again, and
//! its `main` asks here first.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{DumpableBehavior, Pid, set_dumpable_behavior};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::{spawner, stage, warden};

/// Whether `main` has asked, so that this program may be started again as a warden.
static HAS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The first line of `main` in every program that runs commands under a fence, before any thread or
/// runtime is started.
///
/// The program is started again as the small processes beside each command. In such a process this call
/// does its work and exits; otherwise it answers at once, having done nothing but note that it was
/// called. [`Fence::start`](crate::Fence::start) refuses where it never was: the program would run its
/// own business a second time instead of watching over a command.
pub fn enter() {
    HAS_ENTERED.store(true, Ordering::Relaxed);
    if let Some(role) = Role::of_this_process() {
        match role {
            Role::Spawner { idle } => spawner::run(idle),
            Role::Warden(groups) => warden::run(groups.as_deref()),
            Role::Stage(warden) => stage::run(Some(warden)),
        }
        std::process::exit(0);
    }
}

pub(crate) fn has_entered() -> bool {
    HAS_ENTERED.load(Ordering::Relaxed)
}

/// What a process of ours does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts wardens, keeping so many ready, and ends what one that was killed left.
    Spawner { idle: usize },
    /// Watches over one command; makes its control group in that folder.
    Warden(Option<PathBuf>),
    /// Becomes the command, for the warden of that number.
    Stage(Pid),
}

/// The first argument of a process of ours. No command line has reason to begin like this.
const MARK: &str = "--leasehold-fence-role";

impl Role {
    fn of_this_process() -> Option<Self> {
        let mut arguments = std::env::args_os().skip(1);
        if arguments.next()? != MARK {
            return None;
        }
        let role = arguments.next()?;
        Self::read(role.to_str()?, arguments.next())
    }

    fn read(role: &str, detail: Option<OsString>) -> Option<Self> {
        let number = |text: &OsStr| text.to_str()?.parse::<i32>().ok();
        match role {
            "spawner" => {
                let idle = usize::try_from(number(&detail?)?).ok()?;
                Some(Self::Spawner { idle })
            }
            "warden" => Some(Self::Warden(detail.map(PathBuf::from))),
            "stage" => Some(Self::Stage(Pid::from_raw(number(&detail?)?)?)),
            _ => None,
        }
    }

    fn arguments(&self) -> (&'static str, Option<OsString>) {
        match self {
            Self::Spawner { idle } => ("spawner", Some(idle.to_string().into())),
            Self::Warden(groups) => ("warden", groups.clone().map(PathBuf::into_os_string)),
            Self::Stage(warden) => ("stage", Some(warden.to_string().into())),
        }
    }
}

/// This program, started again in that role. It is found by the kernel's own link, which leads to the
/// program that runs even when its file was replaced or removed.
pub(crate) fn command(role: &Role) -> Command {
    command_of(Path::new("/proc/self/exe"), role)
}

/// That program in that role, with nothing of this process's environment.
pub(crate) fn command_of(program: &Path, role: &Role) -> Command {
    let (name, detail) = role.arguments();
    let mut command = Command::new(program);
    command
        .arg0("leasehold-fence")
        .args([MARK, name])
        .args(detail)
        .env_clear();
    command
}

/// Keeps other processes of the same user from looking into this one and from taking its descriptors:
/// whoever had a warden's socket could report in its name. What is executed from here is as ever.
pub(crate) fn close_to_others() {
    // Where it is refused, the fence holds against all but those who do so on purpose.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Hears the signals that end a process and does nothing about them. A service manager sends them to
/// every process of a service; the caller is the one to act on them. What is executed from here hears
/// them as ever. Answers what is set whenever one arrives.
///
/// Among them is the one of a child's end: whoever inherited that it be ignored could not learn how a
/// child had ended, and its number would be free at once.
pub(crate) fn ignore_signals() -> Arc<AtomicBool> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        // Where it cannot be had, the caller still sees the end of this process.
        let _ = signal_hook::flag::register(signal, ignored.clone());
    }
    ignored
}

#[cfg(test)]
mod tests;
