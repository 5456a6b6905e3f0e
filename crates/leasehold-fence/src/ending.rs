//! How a command came to its end.

use std::fmt;

/// How a command ended. Whatever it says, no process of the command's tree executes any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The command exited by itself, or within the grace of a request to terminate.
    Exited {
        /// With this code.
        code: i32,
    },
    /// The command died of a signal that was not the fence's.
    Signalled {
        /// Which.
        signal: i32,
    },
    /// It ran longer than its time limit, and was killed.
    TimedOut,
    /// Its lease ran out: the deadline passed without being pushed, or the caller was gone.
    LeaseLost,
    /// It was killed because the caller asked for it.
    Killed,
    /// It wrote more than it may, and was killed.
    OutputTooLarge {
        /// How many bytes of standard output are taken.
        limit: usize,
    },
    /// Its warden was killed from outside. What the warden left behind is dead.
    WardenLost,
    /// It was never started.
    SpawnFailed(SpawnFailure),
}

/// Why a command could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnFailure {
    /// No program of that name. Correct the command, or the PATH it is looked up in.
    #[error("command not found: {program}; correct the command, or the PATH it is looked up in")]
    NotFound {
        /// As it was given.
        program: String,
    },
    /// The program is there, and what its first line names to run it is not. Correct that line; one that
    /// ends as on Windows names a program that ends in a carriage return.
    #[error(
        "the interpreter of {program} is not found; correct its first line (#!…), whose end must be that of a line on Unix"
    )]
    NoInterpreter {
        /// As it was given.
        program: String,
    },
    /// It is there and may not be executed.
    #[error("not executable: {program}; give it the right to be executed, or name its interpreter")]
    NotExecutable {
        /// As it was given.
        program: String,
    },
    /// Its arguments and environment are larger than the system takes.
    #[error(
        "argument list too long: {bytes} bytes of arguments and environment are more than the system takes; hand large requests over by stdin"
    )]
    ArgumentListTooLong {
        /// Arguments and environment together.
        bytes: usize,
    },
    /// The folder it is to run in cannot be entered.
    #[error("the folder {directory} cannot be entered: {reason}")]
    Directory {
        /// As it was given.
        directory: String,
        /// The system's words.
        reason: String,
    },
    /// The system refused for another reason; it may be passing.
    #[error("the command could not be started: {reason}")]
    System {
        /// The system's words.
        reason: String,
    },
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::Signalled { signal } => write!(f, "killed by {}", SignalName(*signal)),
            Self::TimedOut => f.write_str("killed: it ran longer than its time limit"),
            Self::LeaseLost => f.write_str("killed: its lease ran out"),
            Self::Killed => f.write_str("stopped on request"),
            Self::OutputTooLarge { limit } => {
                write!(
                    f,
                    "killed: it wrote more than {limit} bytes to its standard output"
                )
            }
            Self::WardenLost => f.write_str("killed, because its warden was killed from outside"),
            Self::SpawnFailed(failure) => failure.fmt(f),
        }
    }
}

/// A signal, by number and by name where it has a common one.
struct SignalName(i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use rustix::process::Signal;
        let name = match Signal::from_named_raw(self.0) {
            Some(Signal::ABORT) => "SIGABRT",
            Some(Signal::BUS) => "SIGBUS",
            Some(Signal::FPE) => "SIGFPE",
            Some(Signal::HUP) => "SIGHUP",
            Some(Signal::ILL) => "SIGILL",
            Some(Signal::INT) => "SIGINT",
            Some(Signal::KILL) => "SIGKILL",
            Some(Signal::PIPE) => "SIGPIPE",
            Some(Signal::QUIT) => "SIGQUIT",
            Some(Signal::SEGV) => "SIGSEGV",
            Some(Signal::TERM) => "SIGTERM",
            Some(Signal::XCPU) => "SIGXCPU",
            _ => return write!(f, "signal {}", self.0),
        };
        write!(f, "signal {} ({name})", self.0)
    }
}
