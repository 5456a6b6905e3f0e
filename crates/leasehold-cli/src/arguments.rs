//! The tree of commands, and what every command takes.

use clap::builder::FalseyValueParser;
use clap::builder::styling::{AnsiColor, Effects, Styles};
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::failure::EXIT_CODES;
use crate::{bench, completions, demo, enqueue, health, items, migrate};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .usage(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default().effects(Effects::DIMMED));

/// Durable background work: claimed by one holder at a time, under a lease, and really stopped when
/// the lease is lost.
///
/// New here? `leasehold demo` hashes the files of this folder with three workers, kills one, freezes
/// another, and shows that every file is done exactly once.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    styles = STYLES,
    max_term_width = 100,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 the answer is no, 4 cannot open the database.",
    after_long_help = EXIT_CODES
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// The queue's database: `sqlite:PATH`, or just a path.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_DATABASE",
        default_value = "sqlite:leasehold.db"
    )]
    pub(crate) database: String,

    /// Print one JSON object instead of text.
    #[arg(
        long,
        global = true,
        env = "LEASEHOLD_JSON",
        action = ArgAction::SetTrue,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) json: bool,

    /// Say more on standard error; twice for much more. `LEASEHOLD_LOG` chooses in detail.
    #[arg(short, long, global = true, env = "LEASEHOLD_VERBOSE", action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// One command each.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Arguments),
    Enqueue(enqueue::Arguments),
    #[command(visible_alias = "jobs")]
    Items(items::Arguments),
    Migrate(migrate::Arguments),
    Health(health::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    /// What the demo starts: one of its workers.
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
}

impl Command {
    /// What is told on standard error unless asked for more.
    pub(crate) const fn quiet_level(&self) -> &'static str {
        match self {
            // The demo tells its own story; a refused write is the point of it, not a warning.
            Self::Demo(_) | Self::DemoWorker(_) => "error",
            _ => "warn",
        }
    }
}

/// The tree of commands, as it is parsed and shown. Help does not repeat what an environment variable
/// is set to: it may be nobody else's business.
pub(crate) fn command() -> clap::Command {
    fn discreet(command: clap::Command) -> clap::Command {
        command
            .mut_args(|argument| argument.hide_env_values(true))
            .mut_subcommands(discreet)
    }
    discreet(Arguments::command())
}

/// Reads the arguments of this process.
///
/// # Errors
/// As clap: help and version are among them.
pub(crate) fn read() -> Result<Arguments, clap::Error> {
    let mut matches = command().try_get_matches()?;
    Arguments::from_arg_matches_mut(&mut matches)
}

#[cfg(test)]
mod tests;
