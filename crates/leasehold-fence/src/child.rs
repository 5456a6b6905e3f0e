//! A command that runs, seen from its caller.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::UnixDatagram;
use tokio::net::unix::pipe;

use crate::capture::{StderrCapture, StdoutCapture};
use crate::clock::Deadline;
use crate::command::Invocation;
use crate::ending::{Ending, SpawnFailure};
use crate::watch::{Cause, Order};
use crate::wire::{self, NotStarted, Received, Report, Status, Step};

/// A command under a fence.
///
/// Dropping it is as the caller's death: the tree is killed, and nobody learns how it ended.
#[derive(Debug)]
pub struct Child {
    control: Control,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
    stdout_bytes_max: usize,
    stderr_bytes_max: usize,
    command: Named,
}

/// What is needed to say which command could not be started.
#[derive(Debug)]
struct Named {
    program: String,
    directory: String,
    bytes: usize,
}

pub(crate) struct Streams {
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    pub(crate) stdout_bytes_max: usize,
    pub(crate) stderr_bytes_max: usize,
}

/// What is left of a command when nothing of it executes any more.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub ending: Ending,
    /// What it wrote to its standard output; empty if that was not captured.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: StderrCapture,
}

/// Bounds a running command, from any thread: nothing here blocks, and nothing waits for a runtime.
#[derive(Debug, Clone)]
pub struct Control {
    /// Messages with bounds, as of datagrams, on a connection.
    warden: Arc<UnixDatagram>,
}

impl Control {
    /// The command may run until then. The latest push counts, also if it is an earlier instant.
    ///
    /// A warden that does not read is not waited for: the push is dropped, and the deadline before it
    /// stands.
    pub fn push(&self, until: Deadline) {
        let _ = self.send(Order::Until(until));
    }

    /// Asks the command's group to end (`SIGTERM`), and has the whole tree killed once the grace is
    /// over. If the command ends before, what it left is killed at once.
    pub fn terminate(&self, grace: Duration) {
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.insist(Order::Terminate { grace_ns });
    }

    /// Has the whole tree killed at once.
    pub fn kill(&self) {
        self.insist(Order::Kill(Cause::Killed));
    }

    fn send(&self, order: Order) -> io::Result<()> {
        wire::send(&*self.warden, &order, &[])
    }

    /// A warden whose ear is full hears at least that its caller turned away, and kills.
    fn insist(&self, order: Order) {
        if let Err(error) = self.send(order)
            && error.kind() == io::ErrorKind::WouldBlock
        {
            let _ = shutdown(&*self.warden, Shutdown::Write);
        }
    }
}

impl Child {
    pub(crate) fn new(
        warden: OwnedFd,
        streams: Streams,
        invocation: &Invocation,
    ) -> io::Result<Self> {
        let warden = std::os::unix::net::UnixDatagram::from(warden);
        warden.set_nonblocking(true)?;
        let receiver = |pipe: Option<OwnedFd>| pipe.map(pipe::Receiver::from_owned_fd).transpose();
        Ok(Self {
            control: Control {
                warden: Arc::new(UnixDatagram::from_std(warden)?),
            },
            stdout: receiver(streams.stdout)?,
            stderr: receiver(streams.stderr)?,
            stdout_bytes_max: streams.stdout_bytes_max,
            stderr_bytes_max: streams.stderr_bytes_max,
            command: Named {
                program: invocation.program().to_string_lossy().into_owned(),
                directory: invocation.directory.to_string_lossy().into_owned(),
                bytes: invocation.bytes(),
            },
        })
    }

    /// By what the command is bounded. It stays of use while the child is waited for, and does nothing
    /// afterwards.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits until nothing of the command executes any more, and reads its outputs meanwhile, both at
    /// once. `heard` is given each piece of standard error as it arrives.
    ///
    /// Never waits for the end of an output: somebody else may hold it open. What was written before
    /// the command's end is taken in.
    ///
    /// For ever, if both its warden and the spawner were killed from outside: nobody knows then whether
    /// the command's tree is gone, and it must not be taken for gone.
    ///
    /// Not to be dropped: that is dropping the child.
    pub async fn finish(mut self, mut heard: impl FnMut(&[u8])) -> Finished {
        let mut stdout = StdoutCapture::new(self.stdout_bytes_max);
        let mut stderr = StderrCapture::new(self.stderr_bytes_max);
        let mut is_over = false;
        let mut out_chunk = vec![0; CHUNK_BYTES];
        let mut err_chunk = vec![0; CHUNK_BYTES];
        let mut has_begun = false;
        let report = loop {
            tokio::select! {
                report = reported(&self.control.warden) => match report {
                    Some(Report::Begun) => has_begun = true,
                    report => break report,
                },
                read = next(&mut self.stdout, &mut out_chunk) => {
                    if stdout.push(&out_chunk[..read]) && !is_over {
                        is_over = true;
                        self.control.insist(Order::Kill(Cause::OutputTooLarge));
                    }
                }
                read = next(&mut self.stderr, &mut err_chunk) => {
                    let piece = &err_chunk[..read];
                    stderr.push(piece);
                    heard(piece);
                }
            }
        };
        // What is in the pipes now is all there is: whoever could add to it is dead, or no part of the
        // command.
        drain(self.stdout.take(), &mut out_chunk, |piece| {
            is_over |= stdout.push(piece);
        });
        drain(self.stderr.take(), &mut err_chunk, |piece| {
            stderr.push(piece);
            heard(piece);
        });
        let ending = match report {
            Some(report) => self.ending(report, is_over),
            None if has_begun => std::future::pending().await,
            // It was lost on its way to a warden, and nothing ever executed.
            None => Ending::SpawnFailed(SpawnFailure::System {
                reason: "it was lost on its way to a warden".to_owned(),
            }),
        };
        Finished {
            ending,
            stdout: stdout.into_bytes(),
            stderr,
        }
    }

    fn ending(&self, report: Report, is_over: bool) -> Ending {
        let too_large = Ending::OutputTooLarge {
            limit: self.stdout_bytes_max,
        };
        match report {
            Report::NotStarted(failed) => Ending::SpawnFailed(self.command.failure(failed)),
            // The first of the two is no end, and was taken in before.
            Report::Begun | Report::WardenLost => Ending::WardenLost,
            Report::Ended { cause, status } => match (cause, status) {
                // It heard the request and ended by itself, or was faster than the kill.
                (_, Status::Exited(_)) | (None, _) if is_over => too_large,
                (_, Status::Exited(code)) => Ending::Exited { code },
                (Some(Cause::LeaseLost), _) => Ending::LeaseLost,
                (Some(Cause::TimedOut), _) => Ending::TimedOut,
                (Some(Cause::Killed), _) => Ending::Killed,
                (Some(Cause::OutputTooLarge), _) => too_large,
                (None, Status::Signalled(signal)) => Ending::Signalled { signal },
            },
        }
    }
}

/// As much is read at once, of each of many commands.
const CHUNK_BYTES: usize = 16 << 10;
/// No more chunks than this are in a pipe, even one enlarged to the most that the system gives.
const CHUNKS_MAX: usize = 64;

/// The report; `None` if there will be none.
async fn reported(warden: &UnixDatagram) -> Option<Report> {
    loop {
        // Fails only when the runtime is going away, and then nobody waits.
        warden.readable().await.ok()?;
        let received = warden.try_io(Interest::READABLE, || {
            match wire::receive::<Report>(warden)? {
                Received::Nothing => Err(Errno::AGAIN.into()),
                received => Ok(received),
            }
        });
        match received {
            Ok(Received::Message(report, _)) => return Some(report),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return None,
        }
    }
}

/// Reads the next piece; for ever once there is none any more.
async fn next(pipe: &mut Option<pipe::Receiver>, chunk: &mut [u8]) -> usize {
    if let Some(open) = pipe {
        match open.read(chunk).await {
            Ok(length) if length > 0 => return length,
            // Closed, or broken, which is as good.
            _ => *pipe = None,
        }
    }
    std::future::pending().await
}

/// Reads what is there now.
fn drain(pipe: Option<pipe::Receiver>, chunk: &mut [u8], mut take: impl FnMut(&[u8])) {
    let Some(pipe) = pipe else { return };
    for _ in 0..CHUNKS_MAX {
        match rustix::io::read(&pipe, &mut *chunk) {
            Err(Errno::INTR) => {}
            Ok(length) if length > 0 => take(&chunk[..length]),
            _ => return,
        }
    }
}

impl Named {
    /// Whether the program itself is there. Only one that was given by its path is looked at.
    fn is_there(&self) -> bool {
        self.program.contains('/') && Path::new(&self.directory).join(&self.program).exists()
    }

    fn failure(&self, failed: NotStarted) -> SpawnFailure {
        let errno = Errno::from_raw_os_error(failed.errno);
        let reason = io::Error::from(errno).to_string();
        let program = self.program.clone();
        match (failed.step, errno) {
            (Step::Directory, _) => SpawnFailure::Directory {
                directory: self.directory.clone(),
                reason,
            },
            (Step::Execute, Errno::NOENT) if self.is_there() => {
                SpawnFailure::NoInterpreter { program }
            }
            (Step::Execute, Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP) => {
                SpawnFailure::NotFound { program }
            }
            (
                Step::Execute,
                Errno::ACCESS
                | Errno::PERM
                | Errno::NOEXEC
                | Errno::ISDIR
                | Errno::INVAL
                | Errno::LIBBAD,
            ) => SpawnFailure::NotExecutable { program },
            (Step::Execute, Errno::TOOBIG) => {
                SpawnFailure::ArgumentListTooLong { bytes: self.bytes }
            }
            _ => SpawnFailure::System { reason },
        }
    }
}

#[cfg(test)]
mod tests;
