//! What is to be run, and how it travels to the process that becomes it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

/// A command, and what it may use.
///
/// It is given nothing that is not named here: no argument, no variable, no descriptor but the three
/// standard ones.
#[derive(Debug)]
pub struct Command {
    pub(crate) invocation: Invocation,
    pub(crate) stdin: Input,
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) stdout_bytes_max: usize,
    pub(crate) stderr_bytes_max: usize,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) no_new_privileges: bool,
}

/// Where a command's standard input comes from.
#[derive(Debug)]
pub enum Input {
    /// There is none.
    Empty,
    /// These bytes, then the end. They are handed over as a file in memory: the caller need not write.
    Bytes(Vec<u8>),
    /// A descriptor of the caller's.
    From(OwnedFd),
}

/// Where a standard output goes.
#[derive(Debug)]
pub enum Output {
    /// It is read, and kept within its bound.
    Captured,
    /// A descriptor of the caller's.
    To(OwnedFd),
}

impl Command {
    /// The most that is kept of standard output unless said otherwise; more ends the command.
    pub const STDOUT_BYTES_MAX: usize = crate::capture::STDOUT_BYTES_MAX;
    /// The most that is kept of standard error unless said otherwise; the rest is counted.
    pub const STDERR_BYTES_MAX: usize = crate::capture::STDERR_BYTES_KEPT;

    /// A command without arguments, environment or input, whose output is captured, in the folder `/`.
    ///
    /// A program without a slash is looked up in the `PATH` of the environment it is given.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            invocation: Invocation {
                directory: PathBuf::from("/"),
                arguments: vec![program.into()],
                environment: Vec::new(),
            },
            stdin: Input::Empty,
            stdout: Output::Captured,
            stderr: Output::Captured,
            stdout_bytes_max: Self::STDOUT_BYTES_MAX,
            stderr_bytes_max: Self::STDERR_BYTES_MAX,
            time_limit: None,
            grace: Duration::ZERO,
            no_new_privileges: false,
        }
    }

    /// With these arguments after the others.
    pub fn with_arguments<A: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into);
        self.invocation.arguments.extend(arguments);
        self
    }

    /// With this environment and no other.
    pub fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        self.invocation.environment = variables.into_iter().collect();
        self
    }

    /// In this folder.
    pub fn in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.invocation.directory = directory.into();
        self
    }

    /// With this standard input.
    pub fn with_stdin(mut self, stdin: Input) -> Self {
        self.stdin = stdin;
        self
    }

    /// With its standard output going there.
    pub fn with_stdout(mut self, stdout: Output) -> Self {
        self.stdout = stdout;
        self
    }

    /// With its standard error going there.
    pub fn with_stderr(mut self, stderr: Output) -> Self {
        self.stderr = stderr;
        self
    }

    /// With other bounds on what is kept of its outputs, in bytes.
    pub fn with_output_bytes_max(mut self, stdout: usize, stderr: usize) -> Self {
        self.stdout_bytes_max = stdout;
        self.stderr_bytes_max = stderr;
        self
    }

    /// Ended when it has run for so long: asked to, and killed after the grace; without one, killed at
    /// once. Counted by its warden, whatever becomes of the caller.
    pub fn with_time_limit(mut self, limit: Duration, grace: Duration) -> Self {
        self.time_limit = Some(limit);
        self.grace = grace;
        self
    }

    /// Whatever it executes gains no privileges by it: set-user-ID programs run as who started them, so
    /// that no process of the tree escapes its warden's signals. It cannot use `sudo` then.
    pub fn without_new_privileges(mut self) -> Self {
        self.no_new_privileges = true;
        self
    }
}

/// What a stage needs to become the command.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) directory: PathBuf,
    /// The program first.
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl fmt::Debug for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and values may hold secrets.
        let names = self.environment.iter().map(|(name, _)| name);
        f.debug_struct("Invocation")
            .field("program", &self.program())
            .field("arguments", &self.arguments.len().saturating_sub(1))
            .field("environment", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Invocation {
    pub(crate) fn program(&self) -> &OsStr {
        self.arguments
            .first()
            .map_or(OsStr::new(""), |program| program)
    }

    /// What the system counts against its limit on arguments and environment.
    pub(crate) fn bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|argument| argument.len() + 1);
        let environment = self
            .environment
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2);
        arguments.chain(environment).sum()
    }

    /// A file in memory that holds it, to be handed over: there is no limit on its size but memory.
    ///
    /// # Errors
    /// The system's; `InvalidInput` if a text holds a zero character, which no process can be given.
    pub(crate) fn to_file(&self) -> io::Result<OwnedFd> {
        let mut bytes = Vec::with_capacity(self.bytes() + 64);
        push(&mut bytes, self.directory.as_os_str())?;
        push(&mut bytes, OsStr::new(&self.arguments.len().to_string()))?;
        for argument in &self.arguments {
            push(&mut bytes, argument)?;
        }
        for (name, value) in &self.environment {
            push(&mut bytes, name)?;
            push(&mut bytes, value)?;
        }
        in_memory(c"leasehold-command", &bytes)
    }

    /// Reads what [`Invocation::to_file`] wrote; `None` if it is something else.
    pub(crate) fn from_file(file: OwnedFd) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        let mut file = File::from(file);
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut texts = bytes
            .strip_suffix(b"\0")?
            .split(|byte| *byte == 0)
            .map(|text| OsString::from_vec(text.to_vec()));
        let directory = texts.next()?.into();
        let count: usize = texts.next()?.to_str()?.parse().ok()?;
        let arguments: Vec<OsString> = texts.by_ref().take(count).collect();
        if arguments.len() != count {
            return None;
        }
        let mut environment = Vec::new();
        while let Some(name) = texts.next() {
            environment.push((name, texts.next()?));
        }
        Some(Self {
            directory,
            arguments,
            environment,
        })
    }
}

fn push(bytes: &mut Vec<u8>, text: &OsStr) -> io::Result<()> {
    if text.as_bytes().contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a command's arguments, variables and folder hold no zero character",
        ));
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    Ok(())
}

/// A file in memory with this content, to be read from its beginning.
pub(crate) fn in_memory(name: &std::ffi::CStr, bytes: &[u8]) -> io::Result<OwnedFd> {
    // A system may insist on knowing that it is not to be executed; an older one does not know the word.
    let file = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    };
    let mut file = File::from(file?);
    file.write_all(bytes)?;
    file.rewind()?;
    // Reopened, so that whoever reads it cannot write to it.
    let path = format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file.as_fd())
    );
    Ok(File::open(path)?.into())
}

#[cfg(test)]
mod tests;
