//! The caller's side: starts commands under a fence.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::child::{Child, Streams};
use crate::clock::Deadline;
use crate::command::{self, Command, Input, Output};
use crate::enter::{self, Role};
use crate::tree;
use crate::watch::Bounds;
use crate::wire::{self, Adopt, Start};

/// Starts commands that cannot outlive their lease. Cheap to clone; one for each process is enough.
///
/// Behind it stands one small process, the spawner, which starts a warden for each command. It is
/// started again if it is killed, and goes when the last clone and the last [`Child`] are dropped.
#[derive(Debug, Clone)]
pub struct Fence {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    program: PathBuf,
    ready: usize,
    spawner: Mutex<Option<Spawner>>,
}

#[derive(Debug, Clone)]
struct Spawner {
    process: Pid,
    socket: Arc<OwnedFd>,
    /// Closed when the process has ended and was waited for.
    gone: Arc<Mutex<Receiver<Infallible>>>,
}

/// Why no command can be started, or this one not now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The program cannot be started again as a warden.
    #[error(
        "commands cannot be run under a fence here, because this program's `main` did not call \
         `leasehold_fence::enter()`; make it the first line of `main`, or name the path of the \
         `leasehold-fence` program with `Fence::with_program`"
    )]
    NotEntered,
    /// The system refused something that every command needs: a process, a descriptor, memory. It may
    /// be passing.
    #[error("{what}: {error}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's words.
        error: io::Error,
    },
    /// What is to be run cannot be handed over: a text holds a zero character, or the folder is
    /// relative. Trying again is of no use.
    #[error("the command cannot be run: {0}")]
    Invalid(String),
}

impl Fence {
    /// So many wardens are kept ready unless said otherwise: enough for commands that come one after
    /// the other.
    pub const READY: usize = 1;

    /// With wardens that are this program, started again.
    ///
    /// Commands have the user, the groups and the limits that this process has now: what it changes of its
    /// own later does not reach them.
    ///
    /// # Errors
    /// [`StartError::NotEntered`] unless `main` began with [`enter`](crate::enter()).
    pub fn start() -> Result<Self, StartError> {
        if !enter::has_entered() {
            return Err(StartError::NotEntered);
        }
        Self::of(PathBuf::from("/proc/self/exe"), Self::READY)
    }

    /// With wardens that are that program: `leasehold-fence`, or another whose `main` begins with
    /// [`enter`](crate::enter()).
    ///
    /// # Errors
    /// [`StartError::System`] if it cannot be started.
    pub fn with_program(program: impl Into<PathBuf>) -> Result<Self, StartError> {
        Self::of(program.into(), Self::READY)
    }

    fn of(program: PathBuf, ready: usize) -> Result<Self, StartError> {
        let fence = Self {
            inner: Arc::new(Inner {
                program,
                ready,
                spawner: Mutex::new(None),
            }),
        };
        fence.spawner()?;
        Ok(fence)
    }

    /// Waits until the spawner has ended, once this is the last clone and every [`Child`] was dropped or
    /// has finished; a second at most. A program that exits without it leaves the spawner to end by
    /// itself, a moment later, and to its own parent to wait for.
    pub fn close(self) {
        let spawner = self.lock().take();
        drop(self);
        if let Some(Spawner { socket, gone, .. }) = spawner {
            drop(socket);
            let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
            // Either way there is nothing more to be done.
            let _ = gone.recv_timeout(CLOSE_PATIENCE);
        }
    }

    /// Reaps the processes that were handed to this one when their parents died, and have ended since.
    ///
    /// For a program that may be the first process of a PID namespace (PID 1), as in a container: the
    /// system hands every orphan to that one, and nobody else reaps them. To be called when a child has
    /// ended (`SIGCHLD`), and now and then, since the list of children may miss one while others end.
    ///
    /// Whatever has ended is taken for an orphan, but for the fence's own process. Programs that start
    /// other children, and want to know how they ended, cannot use it. Blocks for a moment at most.
    pub fn reap_orphans(&self) {
        // Held meanwhile: a spawner that is just being started would be taken for an orphan, and its
        // starter waits for it if the program cannot be executed. One that was given up may be reaped
        // here; the thread that waits for it does not ask how it ended.
        let spawner = self.lock();
        let own = spawner.as_ref().map(|spawner| spawner.process);
        tree::reap_ended(own.as_slice());
    }

    /// Starts the command. It may run until the deadline, which [`Control::push`](crate::Control::push)
    /// pushes out; without one, as long as its time limit and its caller let it.
    ///
    /// Answers once the command is handed over: whether it could be executed is part of its ending.
    /// Must be called within a tokio runtime that has I/O enabled. Blocks for a moment at most.
    ///
    /// # Errors
    /// [`StartError`]; nothing was started then.
    pub fn run(&self, command: Command, until: Option<Deadline>) -> Result<Child, StartError> {
        let Command {
            invocation,
            stdin,
            stdout,
            stderr,
            stdout_bytes_max,
            stderr_bytes_max,
            time_limit,
            grace,
            no_new_privileges,
        } = command;
        if !invocation.directory.is_absolute() {
            return Err(StartError::Invalid(format!(
                "its folder {} is relative; give an absolute path",
                invocation.directory.display()
            )));
        }
        let what = match invocation.to_file() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(StartError::Invalid(error.to_string()));
            }
            file => file.map_err(refused("a command cannot be written to memory"))?,
        };
        let input = match stdin {
            Input::From(descriptor) => descriptor,
            Input::Empty => std::fs::File::open("/dev/null")
                .map_err(refused("/dev/null cannot be opened"))?
                .into(),
            Input::Bytes(bytes) => command::in_memory(c"leasehold-request", &bytes)
                .map_err(refused("a request cannot be written to memory"))?,
        };
        let (stdout, output) = stream(stdout)?;
        let (stderr, errors) = stream(stderr)?;
        let (own, warden) = wire::pair().map_err(refused("a socket cannot be made"))?;
        let start = Start {
            bounds: Bounds {
                until,
                time_limit,
                grace,
            },
            no_new_privileges,
        };
        let beside = [&what, &input, &output, &errors].map(AsFd::as_fd);
        // Waits in the socket until there is a warden to read it.
        wire::send_patiently(&own, &start, &beside)
            .map_err(refused("a command cannot be handed over"))?;
        self.hand_over(&warden)?;
        let streams = Streams {
            stdout,
            stderr,
            stdout_bytes_max,
            stderr_bytes_max,
        };
        Child::new(own, streams, &invocation).map_err(refused("a command cannot be listened to"))
    }

    fn hand_over(&self, warden: &OwnedFd) -> Result<(), StartError> {
        let warden: [BorrowedFd<'_>; 1] = [warden.as_fd()];
        let spawner = self.spawner()?;
        match wire::send_patiently(&spawner.socket, &Adopt, &warden) {
            Err(error) if wire::is_gone(&error) => {
                self.forget(&spawner);
                let spawner = self.spawner()?;
                wire::send(&spawner.socket, &Adopt, &warden)
            }
            sent => sent,
        }
        .map_err(refused("the spawner does not listen"))
    }

    /// The spawner's socket; it is started if there is none.
    fn spawner(&self) -> Result<Spawner, StartError> {
        let mut spawner = self.lock();
        if let Some(spawner) = &*spawner {
            return Ok(spawner.clone());
        }
        let started = start_spawner(&self.inner.program, self.inner.ready)?;
        *spawner = Some(started.clone());
        Ok(started)
    }

    /// Gives up a spawner that is gone, unless another has taken its place.
    fn forget(&self, gone: &Spawner) {
        let mut spawner = self.lock();
        if spawner
            .as_ref()
            .is_some_and(|held| Arc::ptr_eq(&held.socket, &gone.socket))
        {
            *spawner = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Spawner>> {
        let spawner = &self.inner.spawner;
        spawner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::System { what, error }
}

/// The end that is read here, if any, and the one that goes to the command.
fn stream(output: Output) -> Result<(Option<OwnedFd>, OwnedFd), StartError> {
    match output {
        Output::To(descriptor) => Ok((None, descriptor)),
        Output::Captured => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)
                .map_err(|error| refused("a pipe cannot be made")(error.into()))?;
            Ok((Some(read), write))
        }
    }
}

fn start_spawner(program: &Path, ready: usize) -> Result<Spawner, StartError> {
    let (own, far) = wire::pair().map_err(refused("a socket cannot be made"))?;
    // Where it cannot be had, fewer commands can be started in one go.
    let _ = set_socket_send_buffer_size(&own, QUEUE_BYTES);
    let child = enter::command_of(program, &Role::Spawner { idle: ready })
        .stdin(Stdio::from(far))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(refused("the spawner cannot be started"))?;
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let process =
        process.ok_or_else(|| refused("the spawner has no number")(Errno::SRCH.into()))?;
    let (end, gone) = sync_channel::<Infallible>(0);
    // Somebody must wait for it, or its number stays taken.
    std::thread::Builder::new()
        .name("leasehold-spawner".to_owned())
        .stack_size(REAPER_STACK_BYTES)
        .spawn(move || {
            wait_for(process);
            drop(end);
        })
        .map_err(refused("a thread cannot be started"))?;
    Ok(Spawner {
        process,
        socket: Arc::new(own),
        gone: Arc::new(Mutex::new(gone)),
    })
}

/// Waits until the spawner has ended; how it did is seen by its socket. One that is stopped starts
/// nothing and cleans up after nobody, so it is woken.
fn wait_for(spawner: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    loop {
        match waitid(WaitId::Pid(spawner), options) {
            Ok(Some(change)) if change.stopped() => {
                // It is a child that was not reaped, so the number is its own.
                let _ = kill_process(spawner, Signal::CONT);
            }
            Err(Errno::INTR) => {}
            // Ended, or reaped by the program that this is part of.
            _ => return,
        }
    }
}

/// A spawner without wardens ends within milliseconds.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// A thread that only waits needs next to nothing.
const REAPER_STACK_BYTES: usize = 64 << 10;

/// Room for about a hundred commands that no warden was made for yet; a caller that is faster waits.
/// Each has five descriptors under way, and where no more than 1024 may be, the spawner must have some
/// left to hand a command on.
const QUEUE_BYTES: usize = 32 << 10;
