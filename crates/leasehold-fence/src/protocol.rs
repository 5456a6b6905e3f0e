//! What a worker and a command in any language say to each other.
//!
//! This page is the protocol's one description for readers of Rust; `docs/protocol.md` tells the same
//! to authors of handlers. Names and formats are fixed: commands written years ago must run
//! unchanged, and a snapshot test holds every name still.
//!
//! # The wire
//!
//! | direction | channel | format |
//! |---|---|---|
//! | worker → command | variable `WORKER_REQUEST` | the request as it was sent, at most [`REQUEST_BYTES_MAX`] bytes; a larger one is refused before anything is started |
//! | worker → command, [`Channel::Stdin`] | standard input | the same bytes, however many, then the end of the file; `WORKER_REQUEST` is set as well when they fit |
//! | worker → command | variables `LEASEHOLD_ITEM_ID`, `_KIND`, `_ATTEMPT`, `_FENCE`, `_ORG_ID`, `TRACEPARENT` | what the request belongs to, as far as it is known |
//! | command → worker, done | standard output, exit code 0 | one JSON object, forwarded as the text it is |
//! | command → worker, failed | standard output, exit code 1 | `{"error": "ClassName", "message": "what happened"}` |
//! | command → worker, not now | standard output, exit code 75 | `{"reason": "what is missing", "retry_after": 30}`, in seconds |
//! | command → worker, progress | a line of standard error | `leasehold:progress {"percent": 40, "note": "rows 400 of 1000"}` |
//! | command → worker, talk | standard error | lines of free text, logged and bounded |
//!
//! # The one rule for what the result is
//!
//! Standard output as a whole is one JSON object. White space around it is allowed, and a byte order
//! mark is none. A banner before it, a warning after it, two objects, or bytes that are not UTF-8
//! make it no result: the run failed as [`MALFORMED_OUTPUT`]. Nothing is searched for or guessed, so
//! noise can never become a result. The same rule holds for the objects of exit codes 1 and 75. For
//! commands that know nothing of the protocol there is [`ResultRule::Ignored`].
//!
//! # Who may say what
//!
//! A command reports errors by name. A name registered for its kind is passed on with the level and
//! retryability registered for it; any other becomes [`UNKNOWN_ERROR`] and its message says which
//! name it was. The worker's own names ([`RESERVED_NAMES`]) cannot be registered, so a command can
//! never pretend to be the worker. Every other exit code and every signal is [`CRASH`].
//!
//! Everything a command said that ends up in a message is escaped ([`crate::text::escape`]) and
//! bounded ([`MESSAGE_BYTES_MAX`]).

mod answer;
mod errors;
mod output;
mod progress;
mod request;

use std::ffi::OsStr;

pub use answer::{
    Answer, CRASH, FAILURE_CODE, MALFORMED_OUTPUT, OUTPUT_TOO_LARGE, PARK_CODE, ResultRule,
    SPAWN_FAILED, Stopped, TIMED_OUT, UNKNOWN_ERROR, read,
};
pub use errors::{
    ChildError, ErrorNameRefused, Level, RESERVED_NAMES, RegisteredError, RegisteredErrors,
};
pub use progress::{PROGRESS_PREFIX, Progress};
pub use request::{
    Channel, Delivery, MALFORMED_MESSAGE, REQUEST_TOO_LARGE, RequestRefused, deliver,
};

/// Carries the request.
pub const REQUEST_VARIABLE: &str = "WORKER_REQUEST";

/// The id of the work item.
pub const ITEM_ID_VARIABLE: &str = "LEASEHOLD_ITEM_ID";

/// The kind of the work item.
pub const KIND_VARIABLE: &str = "LEASEHOLD_KIND";

/// Which attempt this is, counted from 1.
pub const ATTEMPT_VARIABLE: &str = "LEASEHOLD_ATTEMPT";

/// The fencing number: rises with every claim of the item, for guarding other stores. Absent where a
/// source has none.
pub const FENCE_VARIABLE: &str = "LEASEHOLD_FENCE";

/// The org the work belongs to. Absent where a source has none.
pub const ORG_ID_VARIABLE: &str = "LEASEHOLD_ORG_ID";

/// The trace the work belongs to, in the W3C's format.
pub const TRACE_VARIABLE: &str = "TRACEPARENT";

/// Every variable the protocol sets. None of them ever comes from the worker's own environment.
pub const PROTOCOL_VARIABLES: [&str; 7] = [
    REQUEST_VARIABLE,
    ITEM_ID_VARIABLE,
    KIND_VARIABLE,
    ATTEMPT_VARIABLE,
    FENCE_VARIABLE,
    ORG_ID_VARIABLE,
    TRACE_VARIABLE,
];

/// The largest environment string that Linux hands to a program: 32 pages, of 4 KiB on the machines
/// that have the smallest. It holds the name, `=`, the value and a final zero.
pub const ENVIRONMENT_STRING_BYTES_MAX: usize = 131_072;

/// The largest request that [`REQUEST_VARIABLE`] can carry: what an environment string takes, less
/// the name, `=` and the final zero.
pub const REQUEST_BYTES_MAX: usize =
    ENVIRONMENT_STRING_BYTES_MAX - REQUEST_VARIABLE.len() - "=\0".len();

/// In bytes of UTF-8: where the messages and reasons of answers are cut. As much as a queue's row
/// keeps of them.
pub const MESSAGE_BYTES_MAX: usize = 2_048;

/// Begins the names of the worker's own settings, and of most of the protocol's variables.
pub(crate) const OWN_PREFIX: &str = "LEASEHOLD_";

/// Whether the protocol sets the variable `name`.
pub(crate) fn is_protocol_variable(name: &OsStr) -> bool {
    PROTOCOL_VARIABLES.iter().any(|variable| name == *variable)
}

/// A word in a setting that is none of those it may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no {what}; use {known}")]
pub struct UnknownWord {
    what: &'static str,
    given: String,
    known: &'static str,
}

impl UnknownWord {
    fn new(what: &'static str, given: &str, known: &'static str) -> Self {
        /// Enough to recognise a typing error.
        const BYTES_MAX: usize = 40;
        Self {
            what,
            given: crate::text::clip(given, BYTES_MAX),
            known,
        }
    }
}

#[cfg(test)]
mod tests;
