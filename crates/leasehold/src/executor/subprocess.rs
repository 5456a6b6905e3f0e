//! Runs items as commands: any language, and killed for real.
//!
//! Each run is a process tree under a warden of its own ([`leasehold_fence`]), bounded by the lease: a
//! renewal that the store accepts pushes the warden's deadline to half a lease after it was sent, and
//! when that passes the tree is dead, whatever has become of this worker. An item is settled or handed
//! back only when nothing of its run executes any more.
//!
//! # What a stop does
//! | why | what happens to the tree |
//! |---|---|
//! | cancel, time limit | asked to end (`SIGTERM` to its group), killed after `stop_grace` |
//! | drain | asked to end, killed after `drain_timeout`, at once when asked to hurry |
//! | lease lost or doubted | killed at once |
//! | the worker dies | killed at once |

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use leasehold_core::{Failure, FailureCode, JsonObject, Kind, Outcome, ShortText, WorkItem};
use leasehold_fence::capture::{LINE_BYTES_MAX, Line, Lines};
use leasehold_fence::protocol::{self, Answer, Channel, ChildError, RegisteredErrors, ResultRule};
use leasehold_fence::{
    Child, Command, Deadline, Ending as ChildEnding, Environment, Fence, Finished, Input,
    SpawnFailure, StartError,
};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::redaction::{Redaction, Secrets};
use super::{Executor, Running, unknown_kind};
use crate::handler::Run;
use crate::worker::holdings::Place;
use crate::worker::{Ending, KindSettings};

/// Runs items as commands under a fence.
#[derive(Debug)]
pub struct Subprocess {
    fence: Fence,
    starts: Arc<Semaphore>,
    kinds: BTreeMap<Kind, KindSettings>,
    programs: BTreeMap<Kind, Arc<Program>>,
}

/// The command that runs the items of one kind, and what it may use and say.
///
/// It is given the item's payload and nothing of this process but what is named here; what it may
/// answer is said in [`leasehold_fence::protocol`].
#[derive(Debug, Clone)]
pub struct Program {
    command: Vec<OsString>,
    directory: PathBuf,
    environment: Environment,
    channel: Channel,
    result: ResultRule,
    errors: RegisteredErrors,
    redaction: Redaction,
    stdout_bytes_max: usize,
    stderr_bytes_max: usize,
    no_new_privileges: bool,
    /// Of a task: the field of its request that holds its token.
    token_field: Option<String>,
}

impl Program {
    /// A program without arguments, in that folder, with that environment.
    pub fn new(
        program: impl Into<OsString>,
        directory: impl Into<PathBuf>,
        environment: Environment,
    ) -> Self {
        Self {
            command: vec![program.into()],
            directory: directory.into(),
            environment,
            channel: Channel::default(),
            result: ResultRule::default(),
            errors: RegisteredErrors::default(),
            redaction: Redaction::default(),
            stdout_bytes_max: Command::STDOUT_BYTES_MAX,
            stderr_bytes_max: Command::STDERR_BYTES_MAX,
            no_new_privileges: false,
            token_field: None,
        }
    }

    /// With these arguments after the others.
    pub fn with_arguments<A: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.command.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With the request handed over that way.
    pub fn with_channel(mut self, channel: Channel) -> Self {
        self.channel = channel;
        self
    }

    /// With its standard output read by that rule.
    pub fn with_result(mut self, rule: ResultRule) -> Self {
        self.result = rule;
        self
    }

    /// With these errors told apart; any other name it reports is `UnknownSubprocessError`.
    pub fn with_errors(mut self, errors: RegisteredErrors) -> Self {
        self.errors = errors;
        self
    }

    /// With the values of these payload fields kept out of logs, errors, notes and progress.
    pub fn with_redaction(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// With other bounds on its outputs, in bytes: more on standard output ends the run, more on
    /// standard error is only counted.
    pub fn with_output_bytes_max(mut self, stdout: usize, stderr: usize) -> Self {
        self.stdout_bytes_max = stdout;
        self.stderr_bytes_max = stderr;
        self
    }

    /// Whatever it executes gains no privileges by it, so that nothing escapes its warden's signals.
    pub fn without_new_privileges(mut self) -> Self {
        self.no_new_privileges = true;
        self
    }

    /// For work that is no item of a queue: it has no org and no fencing number, and nowhere to wait, so
    /// that exit code 75 is a crash like any other. What the child says is kept free of its task token,
    /// which is the value of that field of the request.
    pub fn as_task(mut self, token_field: impl Into<String>) -> Self {
        self.token_field = Some(token_field.into());
        self.result = ResultRule::Task;
        self
    }

    fn secrets(&self, payload: &JsonObject) -> Secrets {
        let redaction = self.redaction.clone();
        match &self.token_field {
            Some(field) => redaction.and(field).secrets(payload),
            None => redaction.secrets(payload),
        }
    }

    /// What is to be run for the item.
    fn command(&self, run: &Run) -> Result<Command, ChildError> {
        let item = run.item();
        let delivery = protocol::deliver(item.payload.as_str().as_bytes(), self.channel)?;
        let request = delivery
            .variable
            .map(|request| (protocol::REQUEST_VARIABLE.into(), request.to_owned()));
        let environment = self.environment.iter();
        let environment = environment.map(|(name, value)| (name.clone(), value.clone()));
        let context = context_of(run)
            .filter(|(name, _)| !(self.token_field.is_some() && OF_A_QUEUE.contains(name)))
            .map(|(name, value)| (name.into(), value.into()));
        let mut command = Command::new(self.command.first().map_or(OsStr::new(""), |name| name))
            .with_arguments(self.command.iter().skip(1))
            .with_environment(environment.chain(context).chain(request))
            .in_directory(&self.directory)
            .with_output_bytes_max(self.stdout_bytes_max, self.stderr_bytes_max);
        if let Some(request) = delivery.stdin {
            command = command.with_stdin(Input::Bytes(request.to_vec()));
        }
        if self.no_new_privileges {
            command = command.without_new_privileges();
        }
        Ok(command)
    }
}

/// What only an item of a queue has.
const OF_A_QUEUE: [&str; 2] = [protocol::FENCE_VARIABLE, protocol::ORG_ID_VARIABLE];

/// The variables that tell a command what it works on.
fn context_of(run: &Run) -> impl Iterator<Item = (&'static str, String)> {
    let item = run.item();
    [
        (protocol::ITEM_ID_VARIABLE, Some(item.id.to_string())),
        (protocol::KIND_VARIABLE, Some(item.kind.to_string())),
        (protocol::ATTEMPT_VARIABLE, Some(run.attempt().to_string())),
        (protocol::FENCE_VARIABLE, Some(run.fence().to_string())),
        (
            protocol::ORG_ID_VARIABLE,
            Some(run.context().org_id().to_string()),
        ),
        (
            protocol::TRACE_VARIABLE,
            run.context().request().traceparent.clone(),
        ),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
}

impl Subprocess {
    /// Knows no kind yet.
    pub fn new(fence: Fence) -> Self {
        Self {
            fence,
            starts: Arc::new(Semaphore::new(STARTS_AT_ONCE_MAX)),
            kinds: BTreeMap::new(),
            programs: BTreeMap::new(),
        }
    }

    /// Runs items of the kind as that command. A second one for a kind replaces the first.
    pub fn handle(mut self, kind: Kind, program: Program, settings: KindSettings) -> Self {
        self.kinds.insert(kind.clone(), settings);
        self.programs.insert(kind, Arc::new(program));
        self
    }
}

impl Executor for Subprocess {
    fn kinds(&self) -> &BTreeMap<Kind, KindSettings> {
        &self.kinds
    }

    fn run(&self, run: Run, kill: CancellationToken) -> Running {
        let program = self.programs.get(&run.item().kind).cloned();
        let (fence, starts) = (self.fence.clone(), self.starts.clone());
        Box::pin(async move {
            match program {
                Some(program) => execute(&fence, &starts, &program, &run, &kill).await,
                None => Ending::Outcome(Outcome::Released {
                    note: unknown_kind(run.item()).into(),
                }),
            }
        })
    }
}

async fn execute(
    fence: &Fence,
    starts: &Semaphore,
    program: &Program,
    run: &Run,
    kill: &CancellationToken,
) -> Ending {
    let secrets = program.secrets(&run.item().payload);
    let mut talk = Talk::new(run, &secrets, program.stderr_bytes_max);
    // It is never closed. Awaited before the lease is asked for its end, which may move on meanwhile.
    let turn = starts.acquire().await;
    let until = run.place().map(Place::trusted_until);
    if kill.is_cancelled() || run.is_cancelled() || matches!(until, Some(None)) {
        return Ending::Unbegun;
    }
    let command = match program.command(run) {
        Ok(command) => command,
        Err(error) => return Ending::Outcome(talk.failed(&error)),
    };
    let started = start(fence, command, until.flatten()).await;
    drop(turn);
    let child = match started {
        Ok(child) => child,
        Err(error) => return Ending::Outcome(talk.not_started(&error)),
    };
    let control = child.control();
    if let Some(place) = run.place() {
        place.bind(control.clone());
    }
    let mut lines = Lines::new(LINE_BYTES_MAX);
    let killed = async {
        kill.cancelled().await;
        control.kill();
        std::future::pending().await
    };
    let finished = tokio::select! {
        finished = child.finish(|piece| lines.push(piece, |line| talk.line(line))) => finished,
        finished = killed => finished,
    };
    lines.finish(|line| talk.line(line));
    talk.ending(program, finished)
}

/// So many are handed over at once: the fence takes one after the other, so more would only wait, each with a
/// thread of its own.
const STARTS_AT_ONCE_MAX: usize = 64;

/// Hands the command over on a thread of its own: where many start at once it may wait for its turn, which
/// no thread of the runtime should. The runtime's own threads for that panic where none can be started.
async fn start(
    fence: &Fence,
    command: Command,
    until: Option<Deadline>,
) -> Result<Child, StartError> {
    let failed = |error| StartError::System {
        what: "a thread cannot be started",
        error,
    };
    let (tell, started) = oneshot::channel();
    let (fence, runtime) = (fence.clone(), Handle::current());
    std::thread::Builder::new()
        .name("leasehold-start".to_owned())
        .spawn(move || {
            let _reads_there = runtime.enter();
            // A child that nobody waits for any more is killed.
            let _ = tell.send(fence.run(command, until));
        })
        .map_err(failed)?;
    started
        .await
        .unwrap_or_else(|_| Err(failed(io::ErrorKind::Other.into())))
}

/// So much of the end of standard error is looked at: a few times what a message takes of it.
const LAST_WORDS_BYTES: usize = 8 * protocol::MESSAGE_BYTES_MAX;

/// A line counts as at least so much: as it stands in a log, beside its time and its item.
const LOG_LINE_BYTES_MIN: usize = 64;

/// What a child says on the way, and what is made of its last word.
struct Talk<'r> {
    run: &'r Run,
    secrets: &'r Secrets,
    /// So many more bytes of its lines are logged.
    log_bytes_left: usize,
}

impl<'r> Talk<'r> {
    fn new(run: &'r Run, secrets: &'r Secrets, log_bytes_max: usize) -> Self {
        Self {
            run,
            secrets,
            log_bytes_left: log_bytes_max,
        }
    }

    fn item(&self) -> &'r WorkItem {
        self.run.item()
    }

    fn line(&mut self, line: Line<'_>) {
        if let Some(progress) = protocol::Progress::parse(line.bytes) {
            let note = self.secrets.mask(&progress.note);
            return self.run.progress(progress.percent, &*note);
        }
        if self.log_bytes_left == 0 {
            return;
        }
        let (id, kind) = (self.item().id, &self.item().kind);
        let text = line.to_text();
        tracing::info!(item = %id, %kind, "child: {}", self.secrets.mask(&text));
        let taken = text.len().max(LOG_LINE_BYTES_MIN);
        self.log_bytes_left = self.log_bytes_left.saturating_sub(taken);
        if self.log_bytes_left == 0 {
            tracing::info!(item = %id, %kind, "the child's further lines are not logged");
        }
    }

    /// The worker could not start anything: no fault of the item's.
    fn not_started(&self, error: &StartError) -> Outcome {
        let id = self.item().id;
        match error {
            StartError::Invalid(_) => {
                tracing::error!(item = %id, %error, "a command is invalid");
                let failure = Failure::own(FailureCode::SPAWN_FAILED, error.to_string());
                Outcome::failed(failure.for_good())
            }
            _ => self.not_begun(error.to_string()),
        }
    }

    fn not_begun(&self, reason: String) -> Outcome {
        tracing::error!(item = %self.item().id, reason, "a command could not be started; handed back");
        Outcome::Released {
            note: reason.into(),
        }
    }

    fn ending(&self, program: &Program, finished: Finished) -> Ending {
        let Finished {
            ending,
            stdout,
            stderr,
        } = finished;
        let (id, kind, attempt) = (self.item().id, &self.item().kind, self.run.attempt());
        match &ending {
            ChildEnding::SpawnFailed(failure) => {
                tracing::info!(item = %id, %kind, attempt, "a command could not be run: {failure}");
            }
            ending => tracing::info!(item = %id, %kind, attempt, "a command {ending}"),
        }
        if let ChildEnding::SpawnFailed(SpawnFailure::System { reason }) = ending {
            return Ending::Outcome(self.not_begun(reason));
        }
        // Masked before it is cut to what a message takes, or a secret might be cut and stay.
        let enough = LAST_WORDS_BYTES + self.secrets.bytes_max();
        let last_words = stderr.tail(enough);
        let last_words = self.secrets.mask(&last_words);
        let answer = protocol::read(
            &ending,
            &stdout,
            &last_words,
            &program.errors,
            program.result,
        );
        Ending::Outcome(match answer {
            Answer::Stopped(_) => return Ending::Killed,
            Answer::Done { result } => match result.as_deref().map(JsonObject::parse).transpose() {
                Ok(result) => Outcome::Done { result },
                Err(error) => {
                    let message = self.short(&error.to_string());
                    let failure = Failure::own(FailureCode::RESULT_INVALID, message);
                    Outcome::failed(failure.for_good())
                }
            },
            Answer::Parked {
                reason,
                retry_after,
            } => Outcome::Parked {
                reason: self.short(&reason),
                resume_after: retry_after,
            },
            Answer::Failed(error) => self.failed(&error),
        })
    }

    fn failed(&self, error: &ChildError) -> Outcome {
        let message = self.short(&error.message);
        self.log(error, &message);
        // Registered names and the worker's own keep the rule for codes by construction.
        let code = FailureCode::parse(&error.name)
            .unwrap_or_else(|_| FailureCode::own(FailureCode::HANDLER_ERROR));
        Outcome::failed(Failure {
            code,
            message,
            retryable: error.retryable,
        })
    }

    /// At the level that the error is registered with. What a command said is recorded as text, which a
    /// log shows quoted on one line: a line of its own would look like the worker's.
    fn log(&self, error: &ChildError, message: &ShortText) {
        use leasehold_fence::protocol::Level;
        let (item, kind) = (self.item().id, &self.item().kind);
        let name = error.name.as_str();
        let diagnostics = error
            .diagnostics
            .as_deref()
            .map(|text| self.secrets.mask_cut(text));
        let (reason, stdout) = (message.as_str(), diagnostics.as_deref());
        let text = "a command failed";
        match error.level {
            Level::Error => tracing::error!(%item, %kind, error = name, reason, stdout, "{text}"),
            Level::Warn => tracing::warn!(%item, %kind, error = name, reason, stdout, "{text}"),
            Level::Info => tracing::info!(%item, %kind, error = name, reason, stdout, "{text}"),
            Level::Debug => tracing::debug!(%item, %kind, error = name, reason, stdout, "{text}"),
        }
    }

    fn short(&self, text: &str) -> ShortText {
        ShortText::new(self.secrets.mask(text))
    }
}
