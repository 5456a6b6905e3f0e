//! What `leasehold exec` runs: the arguments over the kind's section in the file of settings.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use leasehold::core::OrgId;
use leasehold::{ItemId, JsonObject, Kind};
use leasehold_fence::protocol::{self, Channel, ChildError, RegisteredErrors, ResultRule};
use leasehold_fence::{Command, Environment, EnvironmentRefused, Input};

use super::Arguments;
use crate::config::{Config, KindConfig, without_program};
use crate::failure::Failure;
use crate::when;

/// A command, and what it may use and say.
#[derive(Debug)]
pub(super) struct Plan {
    /// The program first.
    words: Vec<OsString>,
    directory: PathBuf,
    environment: Environment,
    channel: Channel,
    time_limit: Option<Duration>,
    no_new_privileges: bool,
    /// Between being asked to end and being killed.
    pub(super) grace: Duration,
    pub(super) rule: ResultRule,
    pub(super) errors: RegisteredErrors,
    pub(super) stdout_bytes_max: usize,
    pub(super) stderr_bytes_max: usize,
}

/// Why there is nothing to run.
pub(super) enum NoCommand {
    /// The worker would refuse the item, too, and for good.
    Refused(ChildError),
    /// What was given here is not acceptable.
    Invalid(Failure),
}

impl Plan {
    pub(super) fn of(arguments: &Arguments, kind: &Kind, config: &Config) -> Result<Self, Failure> {
        let section = config.kinds.get(kind);
        let (words, directory) = what_and_where(arguments, kind, section)?;
        let declared = section.map_or(&[][..], |section| &section.environment.value);
        let declared = [declared, &arguments.environment].concat();
        let environment = Environment::from_parent(&declared).map_err(|e| refused(&e))?;
        let asked = section.map(|section| section.request.value);
        let limit = match &arguments.time_limit {
            Some(text) => Some(time_limit(text)?),
            None => section.and_then(|section| section.time_limit.value),
        };
        let errors = section.into_iter().flat_map(|section| &section.errors);
        let errors = RegisteredErrors::new(errors.map(|(name, error)| (name, error.value)));
        let errors = errors.map_err(|error| {
            Failure::usage("an error of the kind cannot be registered")
                .because(error)
                .remedy("correct the file of settings")
        })?;
        let rule = section.map(|section| section.result.value);
        Ok(Self {
            words,
            directory,
            environment,
            channel: if arguments.stdin {
                Channel::Stdin
            } else {
                asked.unwrap_or_default()
            },
            time_limit: limit,
            no_new_privileges: section.is_some_and(|section| section.no_new_privileges.value),
            grace: config.worker.settings.stop_grace,
            rule: arguments.result.or(rule).unwrap_or_default(),
            errors,
            stdout_bytes_max: section.map_or(Command::STDOUT_BYTES_MAX, |section| {
                section.stdout_bytes_max.value
            }),
            stderr_bytes_max: section.map_or(Command::STDERR_BYTES_MAX, |section| {
                section.stderr_bytes_max.value
            }),
        })
    }

    /// The command for a made-up item of that payload: its first attempt, by its first claim.
    pub(super) fn command(&self, kind: &Kind, payload: &JsonObject) -> Result<Command, NoCommand> {
        let delivery = protocol::deliver(payload.as_str().as_bytes(), self.channel)
            .map_err(|error| NoCommand::Refused(error.into()))?;
        let item = [
            (protocol::ITEM_ID_VARIABLE, ItemId::mint().to_string()),
            (protocol::KIND_VARIABLE, kind.to_string()),
            (protocol::ATTEMPT_VARIABLE, "1".to_owned()),
            (protocol::FENCE_VARIABLE, "1".to_owned()),
            (protocol::ORG_ID_VARIABLE, OrgId::NIL.to_string()),
        ];
        let mut environment = self.environment.clone();
        for (name, value) in item {
            environment = with(environment, name, value.as_ref())?;
        }
        if let Some(request) = delivery.variable {
            environment = with(environment, protocol::REQUEST_VARIABLE, request)?;
        }
        let mut command = Command::new(self.words.first().map_or(OsStr::new(""), |word| word))
            .with_arguments(self.words.iter().skip(1))
            .with_environment(environment)
            .in_directory(&self.directory)
            .with_output_bytes_max(self.stdout_bytes_max, self.stderr_bytes_max);
        if let Some(request) = delivery.stdin {
            command = command.with_stdin(Input::Bytes(request.to_vec()));
        }
        if let Some(limit) = self.time_limit {
            command = command.with_time_limit(limit, self.grace);
        }
        if self.no_new_privileges {
            command = command.without_new_privileges();
        }
        Ok(command)
    }
}

/// The command that was given runs here, as it would in the shell that it was typed into; the kind's
/// where the file says.
fn what_and_where(
    arguments: &Arguments,
    kind: &Kind,
    section: Option<&KindConfig>,
) -> Result<(Vec<OsString>, PathBuf), Failure> {
    let (words, directory) = match (arguments.command.as_slice(), section) {
        ([], None) => {
            return Err(Failure::usage(format!("there is no command for {kind}"))
                .because("none is given, and the file of settings has no section for the kind")
                .remedy(format!(
                    "add one, as in `leasehold exec {kind} -- python3 handler.py`"
                )));
        }
        ([], Some(section)) => {
            let words = section.command.value.iter().map(OsString::from);
            (words.collect(), section.directory.value.clone())
        }
        (words, _) => {
            if words.first().is_some_and(|word| word.is_empty()) {
                return Err(without_program());
            }
            (words.to_vec(), PathBuf::from("."))
        }
    };
    let directory = std::path::absolute(&directory).map_err(|error| {
        Failure::failed("the folder this runs in cannot be read")
            .because(error)
            .remedy("run it in another folder")
    })?;
    Ok((words, directory))
}

fn time_limit(text: &str) -> Result<Duration, Failure> {
    let limit = when::duration("--time-limit", text)?;
    if limit.is_zero() {
        return Err(Failure::usage("--time-limit is zero")
            .because("no command ends in no time")
            .remedy("give it a second or more, as in --time-limit 5m"));
    }
    Ok(limit)
}

fn with(environment: Environment, name: &str, value: &OsStr) -> Result<Environment, NoCommand> {
    environment
        .with(name, value)
        .map_err(|error| NoCommand::Invalid(refused(&error)))
}

fn refused(error: &EnvironmentRefused) -> Failure {
    let told = error.to_string();
    let (why, remedy) = told.split_once("; ").unwrap_or((&told, "leave it out"));
    Failure::usage("a variable for the command is not acceptable")
        .because(why)
        .remedy(remedy)
}
