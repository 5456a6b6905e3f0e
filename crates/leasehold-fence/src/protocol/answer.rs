//! What a command's ending and its output mean.

use std::str::FromStr;
use std::time::Duration;

use super::output::{self, Fault, Words};
use super::{ChildError, MESSAGE_BYTES_MAX, RegisteredErrors, UnknownWord};
use crate::ending::{Ending, SpawnFailure};
use crate::text::{clip, escape, last_lines};

/// The exit code of a failure that the command reports on standard output.
pub const FAILURE_CODE: i32 = 1;

/// The exit code of a command that cannot do the work now: `EX_TEMPFAIL` of old.
pub const PARK_CODE: i32 = 75;

/// The name of the error of a command that exits with any other code, or dies of a signal.
pub const CRASH: &str = "SubprocessCrashError";

/// The name of the error of a command whose standard output breaks the rule.
pub const MALFORMED_OUTPUT: &str = "MalformedSubprocessOutput";

/// The name of the error of a command that reports one not registered.
pub const UNKNOWN_ERROR: &str = "UnknownSubprocessError";

/// The name of the error of a command that wrote more than it may.
pub const OUTPUT_TOO_LARGE: &str = "OutputTooLarge";

/// The name of the error of a command that could not be started.
pub const SPAWN_FAILED: &str = "SpawnFailed";

/// The name of the error of a command that ran longer than its time limit.
pub const TIMED_OUT: &str = "timed_out";

/// The longest time a command may ask to wait. Longer ones become this: a year is never by now, and
/// any calendar can add it.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(365 * 24);

/// How much of standard error ends the message about a crash: a traceback's last lines.
const LAST_WORDS_BYTES_MAX: usize = 1_024;

/// How much of a malformed standard output is kept.
const DIAGNOSTICS_BYTES_MAX: usize = 2_048;

/// What standard output is to a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultRule {
    /// The protocol's: one JSON object.
    #[default]
    Json,
    /// Talk, for commands that know nothing of the protocol. Exit code 0 is done without a result,
    /// and every other a crash, even 1. Code 75 parks the work if standard output is the object that
    /// asks for it.
    Ignored,
    /// As [`ResultRule::Json`], for work that has nowhere to wait: code 75 is a crash like any other.
    Task,
}

impl FromStr for ResultRule {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "json" => Ok(Self::Json),
            "ignored" => Ok(Self::Ignored),
            _ => Err(UnknownWord::new(
                "rule for results",
                text,
                "\"json\" or \"ignored\"",
            )),
        }
    }
}

/// What a run of a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the work has ended and its answer is not kept anywhere else"]
pub enum Answer {
    /// The work is done.
    Done {
        /// The JSON object the command wrote, byte for byte; `None` by [`ResultRule::Ignored`].
        result: Option<String>,
    },
    /// The work cannot be done now.
    Parked {
        /// For people; not empty.
        reason: String,
        /// How long to wait, as the command asked; a year at most.
        retry_after: Duration,
    },
    /// The run failed.
    Failed(ChildError),
    /// The run was stopped from outside and has no outcome of its own.
    Stopped(Stopped),
}

/// Why a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its lease ran out; another holder may have the work.
    LeaseLost,
    /// Its caller asked for it.
    Killed,
}

/// Reads what a run came to from how it ended and what it wrote.
///
/// `stdout` is all of standard output, `stderr_tail` the end of standard error as text. Never fails
/// and never panics, whatever a command wrote; the same input has the same answer.
pub fn read(
    ending: &Ending,
    stdout: &[u8],
    stderr_tail: &str,
    errors: &RegisteredErrors,
    rule: ResultRule,
) -> Answer {
    let with_last_words = |name| ChildError::own(name, &told(&ending.to_string(), stderr_tail));
    let malformed = |expected, fault: &Fault| malformed(expected, fault, stdout, stderr_tail);
    let error = match (ending, rule) {
        (Ending::LeaseLost, _) => return Answer::Stopped(Stopped::LeaseLost),
        (Ending::Killed, _) => return Answer::Stopped(Stopped::Killed),
        (Ending::Exited { code: 0 }, ResultRule::Ignored) => return Answer::Done { result: None },
        (Ending::Exited { code: 0 }, ResultRule::Json | ResultRule::Task) => {
            match output::object(stdout) {
                Ok(result) => {
                    let result = Some(result.as_str().to_owned());
                    return Answer::Done { result };
                }
                Err(fault) => malformed("stdout is not one JSON object", &fault),
            }
        }
        (Ending::Exited { code: FAILURE_CODE }, ResultRule::Json | ResultRule::Task) => {
            match reported(stdout) {
                Ok(envelope) => known_or_not(&envelope, errors),
                Err(fault) => malformed(
                    "exited with code 1, and stdout is not {\"error\": \"…\", \"message\": \"…\"}",
                    &fault,
                ),
            }
        }
        (Ending::Exited { code: PARK_CODE }, rule @ (ResultRule::Json | ResultRule::Ignored)) => {
            match (parked(stdout), rule) {
                (Ok(parked), _) => return parked,
                (Err(_), ResultRule::Ignored) => with_last_words(CRASH),
                (Err(fault), _) => malformed(
                    "exited with code 75, and stdout is not {\"reason\": \"…\", \"retry_after\": seconds}",
                    &fault,
                ),
            }
        }
        (Ending::Exited { .. } | Ending::Signalled { .. } | Ending::WardenLost, _) => {
            with_last_words(CRASH)
        }
        (Ending::TimedOut, _) => with_last_words(TIMED_OUT),
        (Ending::OutputTooLarge { .. }, _) => {
            ChildError::own(OUTPUT_TOO_LARGE, &ending.to_string()).for_good()
        }
        (Ending::SpawnFailed(failure), _) => {
            let error = ChildError::own(SPAWN_FAILED, &failure.to_string());
            match failure {
                // The same request will be as long the next time.
                SpawnFailure::ArgumentListTooLong { .. } => error.for_good(),
                _ => error,
            }
        }
    };
    Answer::Failed(error)
}

#[derive(serde::Deserialize)]
struct Envelope {
    error: Words,
    message: Words,
}

fn reported(stdout: &[u8]) -> Result<Envelope, Fault> {
    let envelope: Envelope = output::object(stdout)?.decode()?;
    if envelope.error.as_str().trim().is_empty() {
        return Err(Fault::Refused("`error` is empty"));
    }
    Ok(envelope)
}

fn known_or_not(envelope: &Envelope, errors: &RegisteredErrors) -> ChildError {
    let (name, message) = (envelope.error.as_str(), envelope.message.as_str());
    match errors.get(name) {
        Some(registered) => ChildError {
            level: registered.level,
            retryable: registered.retryable,
            ..ChildError::own(name, message)
        },
        None => ChildError::own(UNKNOWN_ERROR, &format!("{name}: {message}")),
    }
}

#[derive(serde::Deserialize)]
struct Park {
    reason: Words,
    retry_after: f64,
}

fn parked(stdout: &[u8]) -> Result<Answer, Fault> {
    let park: Park = output::object(stdout)?.decode()?;
    if park.reason.as_str().trim().is_empty() {
        return Err(Fault::Refused("`reason` is empty"));
    }
    if !park.retry_after.is_finite() || park.retry_after < 0.0 {
        return Err(Fault::Refused("`retry_after` is no number of seconds"));
    }
    Ok(Answer::Parked {
        reason: clip(park.reason.as_str(), MESSAGE_BYTES_MAX),
        retry_after: Duration::try_from_secs_f64(park.retry_after)
            .map_or(RETRY_AFTER_MAX, |asked| asked.min(RETRY_AFTER_MAX)),
    })
}

fn malformed(expected: &str, fault: &Fault, stdout: &[u8], stderr_tail: &str) -> ChildError {
    let kept = &stdout[..stdout.len().min(DIAGNOSTICS_BYTES_MAX)];
    let kept = if kept.len() < stdout.len() {
        &kept[..kept.len() - crate::text::cut_at_end(kept)]
    } else {
        kept
    };
    let diagnostics = escape(kept);
    let message = if diagnostics.trim().is_empty() {
        // Such as an exception that nobody caught: only standard error knows.
        told(&format!("{expected}: {fault}"), stderr_tail)
    } else {
        format!("{expected}: {fault}; it begins with:\n{diagnostics}")
    };
    ChildError {
        diagnostics: Some(diagnostics),
        ..ChildError::own(MALFORMED_OUTPUT, &message)
    }
}

/// What happened, and what the command said last.
fn told(what: &str, stderr_tail: &str) -> String {
    let words = escape(stderr_tail.trim_end().as_bytes());
    match last_lines(&words, LAST_WORDS_BYTES_MAX) {
        "" => what.to_owned(),
        last => format!("{what}; stderr ended with:\n{last}"),
    }
}
