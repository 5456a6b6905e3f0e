//! How a command ends: its exit code, and what it says when it could not do what it was asked.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use leasehold::{ClientError, StoreError};

/// The exit codes, as `--help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Done,
    /// It was tried and failed.
    Failed,
    /// The arguments or the input are not acceptable; nothing was tried.
    Usage,
    /// It was looked up, and the answer is "no".
    No,
    /// The database cannot be opened.
    CannotOpen,
    /// It was interrupted.
    Interrupted,
}

/// What `--help` says about exit codes.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: it was tried, and did not work out
  2    usage: the arguments or the input are not acceptable; nothing was tried
  3    no: there is no such item, it is not in a state for that, the schema is behind,
       a run asks for a later one, the doctor found an error
  4    the database cannot be opened
  130  interrupted

Standard output is data: tables on a terminal, tab-separated columns in a pipe, and with --json one
object that begins with \"schema\": 1. Everything else goes to standard error. With --json an error
is an object there, too: {\"schema\": 1, \"error\": {\"exit\", \"what\", \"why\", \"remedy\"}}, with
\"problems\" where there may be several.";

impl Exit {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::No => 3,
            Self::CannotOpen => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// What a command that did what it was asked has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it decides the exit code"]
pub(crate) enum Answer {
    /// Done, or yes.
    Yes,
    /// The answer is "no", and was printed.
    No,
    /// The answer is that something does not work, and was printed.
    Broken,
}

impl Answer {
    /// "Yes" only if it is.
    pub(crate) const fn yes_if(is_so: bool) -> Self {
        if is_so { Self::Yes } else { Self::No }
    }

    pub(crate) const fn exit(self) -> Exit {
        match self {
            Self::Yes => Exit::Done,
            Self::No => Exit::No,
            Self::Broken => Exit::Failed,
        }
    }
}

/// What stood in the way, in three short lines: what, why, what to do.
///
/// None of them holds a payload's text, nor a database address that could hold a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    exit: Exit,
    what: String,
    why: Option<String>,
    remedy: Option<String>,
    listing: Vec<String>,
    is_quiet: bool,
}

impl Failure {
    fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            why: None,
            remedy: None,
            listing: Vec::new(),
            is_quiet: false,
        }
    }

    /// Something was tried and did not work out.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::new(Exit::Failed, what)
    }

    /// The arguments or the input are not acceptable.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// The answer is "no".
    pub(crate) fn no(what: impl Into<String>) -> Self {
        Self::new(Exit::No, what)
    }

    /// The database cannot be opened.
    pub(crate) fn cannot_open(what: impl Into<String>) -> Self {
        Self::new(Exit::CannotOpen, what)
    }

    /// Somebody pressed Ctrl-C, or the platform asked to stop.
    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }

    /// Why.
    pub(crate) fn because(mut self, why: impl Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// What to do about it.
    pub(crate) fn remedy(mut self, remedy: impl Display) -> Self {
        self.remedy = Some(remedy.to_string());
        self
    }

    /// What all is wrong, one line each, in place of one reason.
    pub(crate) fn listing(mut self, problems: impl IntoIterator<Item = String>) -> Self {
        self.listing = problems.into_iter().collect();
        self
    }

    /// The code it ends with.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    pub(crate) fn how(&self) -> Option<&str> {
        self.remedy.as_deref()
    }

    /// What all is wrong, if it is told one by one.
    pub(crate) fn problems(&self) -> &[String] {
        &self.listing
    }

    /// Whether there is nobody to tell: the reader of our output has gone.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.is_quiet
    }
}

/// An output that cannot be written. A reader that has seen enough, such as `head`, is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            let mut quiet = Self::new(Exit::Done, "the reader of the output has gone");
            quiet.is_quiet = true;
            return quiet;
        }
        Self::failed("the answer cannot be written").because(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        // A store that knows what to do says so behind what is wrong.
        if let StoreError::Failed(words) = &error
            && let Some((why, remedy)) = words.split_once("; ")
        {
            return Self::failed("the database did not do it")
                .because(why)
                .remedy(remedy);
        }
        let remedy = match &error {
            StoreError::Retry(_) => "run it again; another process was writing",
            StoreError::Unavailable(_) => {
                "run it again; the answer may have been lost on the way, so look first"
            }
            StoreError::Refused(_) => {
                "change the data; the database will not take them as they are"
            }
            StoreError::Schema(_) => "run `leasehold migrate status`",
            _ => "look at the database and its disk; restore it from a backup if it is damaged",
        };
        Self::failed("the database did not do it")
            .because(&error)
            .remedy(remedy)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Store(error) => error.into(),
            ClientError::Invalid(reason) => {
                Self::usage("the item is not acceptable").because(reason)
            }
            ClientError::IdTaken(id) => Self::no(format!("the id {id} is taken"))
                .because("another org of this database has an item of that id")
                .remedy("leave --id out, and a fresh one is made"),
            ClientError::Timing(error) => Self::usage(error.what())
                .because(error.why())
                .remedy(error.remedy()),
            other => Self::failed("it is not allowed").because(other),
        }
    }
}
