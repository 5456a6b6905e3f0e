//! The errors a command may report, and those only the worker may.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::{
    CRASH, MALFORMED_MESSAGE, MALFORMED_OUTPUT, MESSAGE_BYTES_MAX, OUTPUT_TOO_LARGE,
    REQUEST_TOO_LARGE, SPAWN_FAILED, TIMED_OUT, UNKNOWN_ERROR, UnknownWord,
};
use crate::text::clip;

/// Names that are the worker's own. A command that reports one of them has reported an unknown error.
pub const RESERVED_NAMES: [&str; 21] = [
    MALFORMED_MESSAGE,
    "AbortedStaleTask",
    CRASH,
    MALFORMED_OUTPUT,
    UNKNOWN_ERROR,
    REQUEST_TOO_LARGE,
    OUTPUT_TOO_LARGE,
    SPAWN_FAILED,
    "ProcessingTimeout",
    "WorkerStopping",
    "Parked",
    "Released",
    "handler_error",
    "panicked",
    TIMED_OUT,
    "lease_expired",
    "refused",
    "payload_invalid",
    "result_invalid",
    "cancelled",
    "orphaned",
];

/// How loudly an error is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Somebody has to look at it.
    Error,
    /// Somebody may want to.
    Warn,
    /// It belongs to the normal course of things.
    Info,
    /// Only of use while searching.
    Debug,
}

impl Level {
    /// As it is written in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Level {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "error" => Ok(Self::Error),
            "warn" | "warning" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err(UnknownWord::new(
                "level",
                text,
                "\"error\", \"warn\", \"info\" or \"debug\"",
            )),
        }
    }
}

/// How an error of a registered name is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredError {
    /// How loudly it is logged.
    pub level: Level,
    /// Whether the work may be tried again.
    pub retryable: bool,
}

/// The errors that commands of one kind may report under their own names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegisteredErrors(BTreeMap<String, RegisteredError>);

impl RegisteredErrors {
    /// Registers each name. A name is that of a class: 1 to 64 ASCII letters, digits and `_`,
    /// beginning with a letter.
    ///
    /// # Errors
    /// [`ErrorNameRefused`] for the first name that may not be registered. The setting is to be
    /// corrected before anything runs.
    pub fn new<N: Into<String>>(
        errors: impl IntoIterator<Item = (N, RegisteredError)>,
    ) -> Result<Self, ErrorNameRefused> {
        let mut registered = BTreeMap::new();
        for (name, error) in errors {
            let name = name.into();
            check_name(&name)?;
            if registered.contains_key(&name) {
                return Err(ErrorNameRefused::Twice { name });
            }
            registered.insert(name, error);
        }
        Ok(Self(registered))
    }

    /// How an error of that name is treated, if it is registered.
    pub fn get(&self, name: &str) -> Option<RegisteredError> {
        self.0.get(name).copied()
    }
}

/// Why a name cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorNameRefused {
    /// One of the worker's own.
    #[error(
        "{name} is an error of the worker's own, which no command may report; choose another name"
    )]
    Reserved {
        /// As it was given.
        name: String,
    },
    /// One of Step Functions' own.
    #[error(
        "{name:?} begins with \"States.\", and those errors are Step Functions' own; choose another name"
    )]
    States {
        /// As it was given, clipped.
        name: String,
    },
    /// Not the name of a class.
    #[error(
        "{name:?} is no name for an error; use 1 to 64 ASCII letters, digits and _, beginning with a letter"
    )]
    Malformed {
        /// As it was given, clipped.
        name: String,
    },
    /// Registered already.
    #[error("{name} is registered twice; keep one of them")]
    Twice {
        /// As it was given.
        name: String,
    },
}

fn check_name(name: &str) -> Result<(), ErrorNameRefused> {
    /// As much as a store takes for the code of a failure.
    const BYTES_MAX: usize = 64;
    let shown = || clip(name, BYTES_MAX);
    if RESERVED_NAMES.contains(&name) {
        return Err(ErrorNameRefused::Reserved { name: shown() });
    }
    if name.starts_with("States.") {
        return Err(ErrorNameRefused::States { name: shown() });
    }
    let is_class_name = name.len() <= BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_class_name {
        Ok(())
    } else {
        Err(ErrorNameRefused::Malformed { name: shown() })
    }
}

/// A run that failed, as plain data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildError {
    /// A registered name, or one of the worker's own.
    pub name: String,
    /// For people: valid text without control characters but `\n` and `\t`, at most
    /// [`MESSAGE_BYTES_MAX`] bytes. May be empty if the command left it so.
    pub message: String,
    /// How loudly it is to be logged.
    pub level: Level,
    /// Whether the work may be tried again.
    pub retryable: bool,
    /// For the log: the first 2 KiB of a standard output that was malformed, escaped.
    pub diagnostics: Option<String>,
}

impl ChildError {
    /// An error of the worker's own that may be tried again.
    pub(super) fn own(name: &str, message: &str) -> Self {
        Self {
            name: name.to_owned(),
            message: clip(message, MESSAGE_BYTES_MAX),
            level: Level::Error,
            retryable: true,
            diagnostics: None,
        }
    }

    /// The same, final.
    pub(super) fn for_good(mut self) -> Self {
        self.retryable = false;
        self
    }
}
