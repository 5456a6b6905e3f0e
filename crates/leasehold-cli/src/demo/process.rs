//! A worker's process, and the harm that is done to it.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::failure::Failure;

/// Killed when dropped, also if it is frozen.
pub(super) struct Process {
    child: Child,
    pid: Pid,
    /// The worker drains when this is closed.
    stdin: Option<ChildStdin>,
}

/// How long a signal may take to arrive, on a machine that is busy.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(5);
/// How often is looked whether it has.
const SIGNAL_LOOK: Duration = Duration::from_millis(1);

impl Process {
    /// Starts it; what it says is read from the answer's second half.
    pub(super) fn start(mut command: Command) -> Result<(Self, ChildStdout), Failure> {
        let mut child = command.spawn().map_err(|error| not_started(&error))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let pid = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let (Some(pid), Some(stdout)) = (pid, stdout) else {
            return Err(not_started(&"it ended at once"));
        };
        Ok((Self { child, pid, stdin }, stdout))
    }

    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// SIGKILL, and waits until the process is gone.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        self.signal(Signal::KILL)?;
        self.child
            .wait()
            .await
            .map_err(|error| Failure::failed("a killed worker does not end").because(error))?;
        Ok(())
    }

    /// SIGSTOP, and waits until no thread of the process runs.
    pub(super) async fn freeze(&mut self) -> Result<(), Failure> {
        self.signal(Signal::STOP)?;
        let stopped = timeout(SIGNAL_PATIENCE, async {
            // Only stops are asked for, so that the runtime still learns of its end.
            let stops = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
            while waitid(WaitId::Pid(self.pid), stops).is_ok_and(|stop| stop.is_none()) {
                tokio::time::sleep(SIGNAL_LOOK).await;
            }
        });
        stopped
            .await
            .map_err(|_| Failure::failed("a worker cannot be frozen").because("it does not stop"))
    }

    /// SIGCONT.
    pub(super) fn thaw(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Asks it to drain.
    pub(super) fn dismiss(&mut self) {
        self.stdin = None;
    }

    /// Waits until it has gone, and answers whether it ended well.
    pub(super) async fn ends_well(&mut self, patience: Duration) -> bool {
        let end = timeout(patience, self.child.wait()).await;
        matches!(end, Ok(Ok(status)) if status.success())
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        kill_process(self.pid, signal).map_err(|error| {
            Failure::failed(format!("a worker (pid {}) cannot be signalled", self.pid))
                .because(error)
        })
    }
}

/// This program again, in that role.
pub(super) fn command(role: &str) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| not_started(&error))?;
    let mut command = Command::new(program);
    command
        .arg(role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        // A Ctrl-C is for the demo alone, which then ends them; and a group of its own is what makes
        // the system wake a stopped worker whose demo was killed.
        .process_group(0);
    Ok(command)
}

fn not_started(error: &dyn std::fmt::Display) -> Failure {
    Failure::failed("a worker's process cannot be started")
        .because(error)
        .remedy("check that this program may run itself again")
}
