//! What a task's end is told as: every row of the table, with its exact name.
//!
//! | ending | told |
//! |---|---|
//! | done | success, with the JSON object the handler wrote; `{}` if it wrote none |
//! | done, with more than the service takes | `OutputTooLarge` |
//! | the body fails the schema, the parent's or a typed handler's own | `MalformedMessage` |
//! | the request does not fit its channel | `RequestTooLarge` |
//! | the child died of a signal, or of a code that means nothing | `SubprocessCrashError` |
//! | the child's output is no JSON object, or a bad envelope | `MalformedSubprocessOutput` |
//! | the child reported a name that is not registered | `UnknownSubprocessError` |
//! | a registered error | its own name and message |
//! | longer than `message_processing_timeout` | `ProcessingTimeout` |
//! | cut short by a shutdown | `WorkerStopping` |
//! | a handler asked to wait, for which a task has no place | `Parked` |
//! | handed back for another reason, such as a command that the system could not start | `Released` |
//! | the token is stale, or no heartbeat was accepted for half a lease | nothing: `AbortedStaleTask` in the log |
//!
//! The codes of handlers in this process (`handler_error`, `panicked`, `refused`, and their own) are
//! told as they are.

use std::sync::Arc;

use leasehold::FailureCode;
use leasehold::core::rules::Transition;

/// In bytes of UTF-8: the most that the service takes as an output.
pub const OUTPUT_BYTES_MAX: usize = 262_144;

/// The most that it takes as the name of an error. Counted in bytes here, which is never more.
pub const ERROR_BYTES_MAX: usize = 256;

/// The most that it takes as a cause. Counted in bytes here, which is never more.
pub const CAUSE_BYTES_MAX: usize = 32_768;

/// The last word about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// It is done.
    Success {
        /// A JSON object.
        output: Arc<str>,
    },
    /// It failed.
    Failure {
        /// What a state's `Retry` and `Catch` match, at most [`ERROR_BYTES_MAX`].
        error: String,
        /// For people, at most [`CAUSE_BYTES_MAX`].
        cause: String,
    },
}

/// Whether a hand-back is the shutdown's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    Going,
    Draining,
}

impl Report {
    /// A failure, cut to what the service takes.
    pub fn failure(error: &str, cause: &str) -> Self {
        Self::Failure {
            error: cut(error, ERROR_BYTES_MAX),
            cause: cut(cause, CAUSE_BYTES_MAX),
        }
    }

    /// What the end of a run is told as.
    pub(crate) fn of(transition: &Transition, course: Course, output_bytes_max: usize) -> Self {
        match transition {
            Transition::Complete { result } => {
                let output = result.as_ref().map_or("{}", |result| result.as_str());
                if output.len() > output_bytes_max {
                    return Self::too_large(output.len(), output_bytes_max);
                }
                Self::Success {
                    output: Arc::from(output),
                }
            }
            Transition::Retry { failure, .. } | Transition::Bury { failure } => {
                Self::failure(on_the_wire(failure.code.as_str()), failure.message.as_str())
            }
            Transition::Park { reason, .. } => Self::failure(FailureCode::PARKED, reason.as_str()),
            Transition::Release { note, .. } => {
                let error = match course {
                    Course::Going => FailureCode::RELEASED,
                    Course::Draining => FailureCode::WORKER_STOPPING,
                };
                Self::failure(error, note.as_str())
            }
        }
    }

    fn too_large(bytes: usize, bytes_max: usize) -> Self {
        let cause = format!(
            "the result has {bytes} bytes, and at most {bytes_max} may be sent; store the data elsewhere and \
             return where they are"
        );
        Self::failure(FailureCode::OUTPUT_TOO_LARGE, &cause)
    }

    /// What is told in place of a success that the service refused to take, which it then has not taken.
    pub(crate) fn refused(code: &str) -> Self {
        let error = if code.ends_with("InvalidOutput") {
            FailureCode::MALFORMED_OUTPUT
        } else {
            FailureCode::OUTPUT_TOO_LARGE
        };
        Self::failure(error, &format!("the service refused the result ({code})"))
    }
}

/// The queue's codes that have another name here.
fn on_the_wire(code: &str) -> &str {
    match code {
        FailureCode::TIMED_OUT => FailureCode::PROCESSING_TIMEOUT,
        FailureCode::PAYLOAD_INVALID => FailureCode::MALFORMED_MESSAGE,
        FailureCode::RESULT_INVALID => FailureCode::MALFORMED_OUTPUT,
        code => code,
    }
}

/// Stands where something was left out.
const CUT_MARKER: &str = " … [cut] … ";

/// Cuts a text to so many bytes, between characters, and keeps its beginning and its end: an error
/// often says last what it is about.
fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let kept = bytes_max.saturating_sub(CUT_MARKER.len());
    let head = text.floor_char_boundary(kept - kept / 4);
    let tail = text.ceil_char_boundary(text.len() - kept / 4);
    format!("{}{CUT_MARKER}{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests;
