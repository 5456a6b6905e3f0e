//! `leasehold doctor`: looks at what a worker needs, and says what to do about what is missing.
//!
//! A check looks at one thing and judges what it saw; the judging is a function of its own, so that it
//! can be shown a machine that is not there. Nothing is changed: what a check has to make in order to
//! see, it removes.
//!
//! - [`finding`]: what a check says.
//! - [`machine`], [`limits`]: the system and the room it gives. [`killing`]: by what runs are ended, and
//!   a trial of it. [`storage`]: the database and the disk. [`server`]: a database that is on one.
//!   [`settings`]: the file, and its commands. `tasks`: the queue of tasks of Step Functions.

use serde::Serialize;

use crate::arguments::Common;
use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::screen::{Field, SCHEMA, Screen};
use finding::{Finding, Level};

mod finding;
mod killing;
mod limits;
mod machine;
mod server;
mod settings;
mod storage;
#[cfg(feature = "aws")]
mod tasks;

/// Look at what a worker needs, and say what to do about what is missing.
///
/// Looks at the system, at what it offers for killing (with a trial), at the database and its disk, and
/// at the file of settings and its commands. Nothing is changed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints one line for each finding: ok, warning or error, and what to try. Exits with 3 \
if there is an error.",
    after_long_help = "Prints one line for each finding: ok, warning or error, and what to try. Exits \
with 3 if there is an error: something that a worker cannot do without. Run it as the user, and in the \
container or the service, that the worker runs in: limits and permissions are those of whoever asks.

JSON: {\"schema\", \"errors\", \"warnings\", \"findings\": [{\"check\", \"level\", \"what\", \"fix\"}, …]}."
)]
pub(crate) struct Arguments {}

/// What there is to look at.
struct Case {
    /// The settings, or what is wrong with them.
    config: Result<Config, Failure>,
}

/// Every check, in the order in which they are told.
const CHECKS: &[fn(&Case) -> Vec<Finding>] = &[
    machine::kernel,
    machine::processes,
    machine::first_process,
    machine::calendar,
    killing::descriptors,
    killing::subreaper,
    killing::timer,
    killing::groups,
    killing::privileges,
    killing::trial,
    limits::descriptors,
    limits::processes,
    limits::numbers,
    limits::group,
    storage::temporary,
    settings::file,
    settings::kinds,
    storage::database,
    #[cfg(feature = "aws")]
    tasks::queue,
];

pub(crate) fn run(common: &Common, screen: &Screen) -> Result<Answer, Failure> {
    let case = Case {
        config: Config::load(common),
    };
    let findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&case)).collect();
    show(&findings, screen)
}

impl Case {
    /// How many commands run at once.
    fn capacity(&self) -> u64 {
        let workers = match &self.config {
            Ok(config) => config.workers(),
            Err(_) => vec![leasehold::WorkerSettings::default()],
        };
        workers.iter().map(|one| u64::from(one.capacity)).sum()
    }
}

fn show(findings: &[Finding], screen: &Screen) -> Result<Answer, Failure> {
    let count = |level| findings.iter().filter(|one| one.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            errors: usize,
            warnings: usize,
            findings: &'a [Finding],
        }
        screen.object(&Document {
            schema: SCHEMA,
            errors,
            warnings,
            findings,
        })?;
    } else {
        let rows: Vec<Vec<Field>> = if screen.is_terminal() {
            findings.iter().flat_map(Finding::lines).collect()
        } else {
            findings.iter().map(Finding::columns).collect()
        };
        screen.table(&["", "check", "finding"], &rows)?;
        screen.talk(&summary(errors, warnings));
    }
    Ok(Answer::yes_if(errors == 0))
}

fn summary(errors: usize, warnings: usize) -> String {
    let counted = |count: usize, word: &str| match count {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        count => format!("{count} {word}s"),
    };
    let (errors, warnings) = (counted(errors, "error"), counted(warnings, "warning"));
    format!("{errors}, {warnings}")
}

#[cfg(test)]
mod tests;
