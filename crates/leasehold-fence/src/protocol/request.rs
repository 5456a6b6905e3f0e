//! How a request reaches the command.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::str::FromStr;

use super::{ChildError, REQUEST_BYTES_MAX, UnknownWord};

/// The name of the error that a request too large for its channel ends in.
pub const REQUEST_TOO_LARGE: &str = "RequestTooLarge";

/// The name of the error that a request of the wrong shape ends in.
pub const MALFORMED_MESSAGE: &str = "MalformedMessage";

/// By which way the request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channel {
    /// In the variable `WORKER_REQUEST`, up to [`REQUEST_BYTES_MAX`] bytes.
    #[default]
    Environment,
    /// On standard input, without limit; in the variable as well when it fits.
    Stdin,
}

impl FromStr for Channel {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "env" => Ok(Self::Environment),
            "stdin" => Ok(Self::Stdin),
            _ => Err(UnknownWord::new(
                "channel for requests",
                text,
                "\"env\" or \"stdin\"",
            )),
        }
    }
}

/// A request on its way: what to set, and what to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery<'r> {
    /// The value of `WORKER_REQUEST`, if it is set.
    pub variable: Option<&'r OsStr>,
    /// What is written to standard input before it is closed, if anything.
    pub stdin: Option<&'r [u8]>,
}

/// Why a request was refused before anything was started. Trying again does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestRefused {
    /// Larger than the variable takes.
    #[error(
        "the request has {bytes} bytes, and WORKER_REQUEST takes at most {bytes_max}; hand it over by stdin, or store the data elsewhere and send its id"
    )]
    TooLarge {
        /// How many there were.
        bytes: usize,
        /// How many may be.
        bytes_max: usize,
    },
    /// Holds a zero byte, at which the command would see the variable end.
    #[error(
        "the request holds a zero byte after {at} bytes, which WORKER_REQUEST cannot; hand it over by stdin, or send JSON, which has no such byte"
    )]
    ZeroByte {
        /// How many bytes stand before it.
        at: usize,
    },
}

impl RequestRefused {
    /// The name of the error, one of the [reserved](super::RESERVED_NAMES).
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => REQUEST_TOO_LARGE,
            Self::ZeroByte { .. } => MALFORMED_MESSAGE,
        }
    }
}

impl From<RequestRefused> for ChildError {
    /// A failure that is final.
    fn from(refused: RequestRefused) -> Self {
        Self::own(refused.name(), &refused.to_string()).for_good()
    }
}

/// Finds a way for `request` to reach the command unchanged.
///
/// # Errors
/// [`RequestRefused`] when the channel cannot carry it; by [`Channel::Stdin`] it always can. Nothing
/// is to be started then, and the work fails for good.
pub fn deliver(request: &[u8], channel: Channel) -> Result<Delivery<'_>, RequestRefused> {
    let variable = as_variable(request);
    match channel {
        Channel::Environment => Ok(Delivery {
            variable: Some(variable?),
            stdin: None,
        }),
        Channel::Stdin => Ok(Delivery {
            variable: variable.ok(),
            stdin: Some(request),
        }),
    }
}

fn as_variable(request: &[u8]) -> Result<&OsStr, RequestRefused> {
    if request.len() > REQUEST_BYTES_MAX {
        return Err(RequestRefused::TooLarge {
            bytes: request.len(),
            bytes_max: REQUEST_BYTES_MAX,
        });
    }
    match request.iter().position(|byte| *byte == 0) {
        Some(at) => Err(RequestRefused::ZeroByte { at }),
        None => Ok(OsStr::from_bytes(request)),
    }
}
