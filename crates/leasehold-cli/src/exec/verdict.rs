//! What a run came to, and what the worker would make of it.

use std::time::Duration;

use leasehold::core::FailureCode;
use leasehold::core::time::short_length;
use leasehold::{JsonObject, Kind};
use leasehold_fence::protocol::{
    self, Answer, ChildError, ErrorNameRefused, Level, RegisteredError, RegisteredErrors,
    ResultRule, Stopped, UNKNOWN_ERROR,
};
use leasehold_fence::{Ending, Finished, SpawnFailure};
use serde::Serialize;

use crate::failure::{self, Failure};
use crate::screen::{SCHEMA, Screen, plain};

/// What would become of the item.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Verdict {
    Done {
        #[serde(skip)]
        result: Option<JsonObject>,
    },
    Failed {
        name: String,
        message: String,
        level: &'static str,
        retryable: bool,
        /// Under which name the command reported it, if that is not registered.
        #[serde(skip)]
        unregistered: Option<String>,
    },
    Parked {
        reason: String,
        retry_after_ms: u64,
    },
    HandedBack {
        note: String,
    },
    Stopped,
}

/// How much was written, and how much may be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outputs {
    pub(super) stdout_bytes: usize,
    pub(super) stdout_bytes_max: usize,
    pub(super) stderr_bytes: u64,
    pub(super) stderr_bytes_max: usize,
}

/// All there is to tell about a run.
pub(super) struct Told<'a> {
    pub(super) kind: &'a Kind,
    /// `None` if nothing was started.
    pub(super) ending: Option<&'a Ending>,
    pub(super) verdict: Verdict,
    pub(super) outputs: Outputs,
    pub(super) took: Duration,
}

impl Verdict {
    /// As the worker's executor of commands judges.
    pub(super) fn of(finished: &Finished, errors: &RegisteredErrors, rule: ResultRule) -> Self {
        let Finished {
            ending,
            stdout,
            stderr,
        } = finished;
        if let Ending::SpawnFailed(SpawnFailure::System { reason }) = ending {
            let note = reason.clone();
            return Self::HandedBack { note };
        }
        let last_words = stderr.tail(protocol::MESSAGE_BYTES_MAX);
        match protocol::read(ending, stdout, &last_words, errors, rule) {
            Answer::Done { result } => match result.as_deref().map(JsonObject::parse).transpose() {
                Ok(result) => Self::Done { result },
                Err(error) => Self::Failed {
                    name: FailureCode::RESULT_INVALID.to_owned(),
                    message: error.to_string(),
                    level: Level::Error.as_str(),
                    retryable: false,
                    unregistered: None,
                },
            },
            Answer::Parked {
                reason,
                retry_after,
            } => Self::Parked {
                reason,
                retry_after_ms: milliseconds(retry_after),
            },
            Answer::Failed(error) => {
                let mut verdict = Self::from(error);
                if let Self::Failed {
                    name, unregistered, ..
                } = &mut verdict
                    && name == UNKNOWN_ERROR
                {
                    *unregistered = reported_name(stdout);
                }
                verdict
            }
            Answer::Stopped(Stopped::LeaseLost | Stopped::Killed) => Self::Stopped,
        }
    }

    /// What happened, what the worker would do, and where it helps what the author may do.
    fn lines(&self, kind: &Kind) -> Vec<String> {
        match self {
            Self::Done { result } => {
                let result = match result {
                    Some(_) => "with this result",
                    None => "without a result",
                };
                vec![format!("done: the item would be completed {result}")]
            }
            Self::Failed {
                name,
                message,
                level,
                retryable,
                unregistered,
            } => {
                let mut lines = vec![
                    format!("failed: {name}: {message}"),
                    format!("  logged at the level {level}"),
                    if *retryable {
                        "  the item would be tried again, while it has attempts left".to_owned()
                    } else {
                        "  the item would be a dead letter at once: it is not to be tried again"
                            .to_owned()
                    },
                ];
                if let Some(reported) = unregistered {
                    lines.push(match registering(reported) {
                        Ok(()) => format!(
                            "  to pass the error on by its own name, register it in [kinds.{kind}.errors]"
                        ),
                        Err(refused) => format!("  {refused}"),
                    });
                }
                lines
            }
            Self::Parked {
                reason,
                retry_after_ms,
            } => vec![
                format!("parked: {reason}"),
                format!(
                    "  the item would be tried again in {}, and no attempt be spent",
                    length(Duration::from_millis(*retry_after_ms))
                ),
            ],
            Self::HandedBack { note } => vec![
                format!("not started: {note}"),
                "  the item would be handed back, and no attempt be spent".to_owned(),
            ],
            Self::Stopped => vec![
                "stopped: the run has no outcome".to_owned(),
                "  the item would be handed back, and no attempt be spent".to_owned(),
            ],
        }
    }

    fn answer(&self) -> failure::Answer {
        match self {
            Self::Done { .. } => failure::Answer::Yes,
            Self::Parked { .. } => failure::Answer::No,
            Self::Failed { .. } | Self::HandedBack { .. } | Self::Stopped => {
                failure::Answer::Broken
            }
        }
    }
}

impl From<ChildError> for Verdict {
    fn from(error: ChildError) -> Self {
        Self::Failed {
            name: error.name,
            message: error.message,
            level: error.level.as_str(),
            retryable: error.retryable,
            unregistered: None,
        }
    }
}

/// The name of the error that the command reported.
fn reported_name(stdout: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        error: String,
    }
    let envelope: Envelope = serde_json::from_slice(stdout).ok()?;
    Some(envelope.error)
}

/// Whether the name could be registered; if not, why, and what to do.
fn registering(name: &str) -> Result<(), ErrorNameRefused> {
    let rule = RegisteredError {
        level: Level::Error,
        retryable: true,
    };
    RegisteredErrors::new([(name, rule)]).map(drop)
}

impl Told<'_> {
    /// Shows it, and answers for the exit code.
    pub(super) fn show(&self, screen: &Screen) -> Result<failure::Answer, Failure> {
        if screen.is_json() {
            screen.object(&self.document())?;
        } else {
            for line in self.lines() {
                screen.talk(&plain(&line));
            }
            if let Verdict::Done {
                result: Some(result),
            } = &self.verdict
            {
                screen.json(result.as_str())?;
            }
        }
        Ok(self.verdict.answer())
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match self.ending {
            // Nothing ran; the verdict says why.
            None | Some(Ending::SpawnFailed(_)) => {}
            Some(ending) => {
                lines.push(format!("ended: {ending}, after {}", length(self.took)));
                lines.push(self.outputs.line());
            }
        }
        for line in self.verdict.lines(self.kind) {
            // Messages have lines of their own.
            let mut parts = line.lines();
            lines.extend(parts.next().map(str::to_owned));
            lines.extend(parts.map(|part| format!("    {part}")));
        }
        lines
    }

    fn document(&self) -> Document<'_> {
        Document {
            schema: SCHEMA,
            kind: self.kind,
            ending: self.ending.map(EndingDocument::of),
            answer: &self.verdict,
            result: match &self.verdict {
                Verdict::Done { result } => result.as_ref(),
                _ => None,
            },
            stdout_bytes: self.outputs.stdout_bytes,
            stderr_bytes: self.outputs.stderr_bytes,
            duration_ms: milliseconds(self.took),
        }
    }
}

impl Outputs {
    fn line(&self) -> String {
        let Self {
            stdout_bytes,
            stdout_bytes_max,
            stderr_bytes,
            stderr_bytes_max,
        } = *self;
        format!(
            "wrote: {stdout_bytes} bytes to stdout (at most {stdout_bytes_max}), \
             {stderr_bytes} to stderr ({stderr_bytes_max} are kept)"
        )
    }
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    kind: &'a Kind,
    ending: Option<EndingDocument>,
    answer: &'a Verdict,
    result: Option<&'a JsonObject>,
    stdout_bytes: usize,
    stderr_bytes: u64,
    duration_ms: u64,
}

#[derive(Debug, Serialize)]
struct EndingDocument {
    how: &'static str,
    code: Option<i32>,
    signal: Option<i32>,
    text: String,
}

impl EndingDocument {
    fn of(ending: &Ending) -> Self {
        let (how, code, signal) = match ending {
            Ending::Exited { code } => ("exited", Some(*code), None),
            Ending::Signalled { signal } => ("signalled", None, Some(*signal)),
            Ending::TimedOut => ("timed_out", None, None),
            Ending::LeaseLost => ("lease_lost", None, None),
            Ending::Killed => ("killed", None, None),
            Ending::OutputTooLarge { .. } => ("output_too_large", None, None),
            Ending::WardenLost => ("warden_lost", None, None),
            Ending::SpawnFailed(_) => ("spawn_failed", None, None),
        };
        Self {
            how,
            code,
            signal,
            text: ending.to_string(),
        }
    }
}

/// For people: to the millisecond below ten seconds.
fn length(length: Duration) -> String {
    if length < Duration::from_secs(10) && length.subsec_millis() > 0 {
        format!("{}ms", length.as_millis())
    } else {
        short_length(length)
    }
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
