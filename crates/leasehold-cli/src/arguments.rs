//! The tree of commands, and what every command takes.

use clap::builder::FalseyValueParser;
use clap::builder::styling::{AnsiColor, Effects, Styles};
use clap::parser::ValueSource;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::failure::{EXIT_CODES, Failure};
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

    /// Whether --database stood on the command line, and not in the environment.
    #[arg(skip)]
    is_database_given: bool,

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

impl Common {
    /// ` --database URL`, quoted for a shell, for a command to paste that is to work on the same
    /// database; empty where it would find it without.
    pub(crate) fn database_again(&self) -> String {
        if self.is_database_given {
            format!(" --database {}", quoted(&self.database))
        } else {
            String::new()
        }
    }

    /// Refuses --database on a command that opens none. From the environment it may come all the same:
    /// it is set there for the others.
    pub(crate) fn without_database(&self, command: &Command) -> Result<(), Failure> {
        match command.why_no_database() {
            Some(why) if self.is_database_given => {
                Err(Failure::usage("this command does not take --database")
                    .because(why)
                    .remedy("leave --database out"))
            }
            _ => Ok(()),
        }
    }
}

/// The text as one word of a shell's line.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.:_-+,@%=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
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

    /// Why the command has no use for a database, if it has none.
    const fn why_no_database(&self) -> Option<&'static str> {
        match self {
            Self::Demo(_) | Self::DemoWorker(_) => {
                Some("the demo makes a database of its own, in a temporary folder")
            }
            Self::Bench(_) => Some("the bench measures on databases of its own, made under --dir"),
            Self::Health(_) => Some("a worker is asked over HTTP, and no database is opened"),
            Self::Completions(_) => Some("a script is printed, and no database is opened"),
            Self::Enqueue(_) | Self::Items(_) | Self::Migrate(_) => None,
        }
    }
}

/// What clap knows --database by.
const DATABASE: &str = "database";

/// The commands that open no database: their help does not list --database.
const WITHOUT_DATABASE: &[&str] = &["demo", "bench", "health", "completions", "demo-worker"];

/// The tree of commands, as it is parsed and shown. Help does not repeat what an environment variable
/// is set to: it may be nobody else's business.
pub(crate) fn command() -> clap::Command {
    fn discreet(command: clap::Command) -> clap::Command {
        command
            .mut_args(|argument| argument.hide_env_values(true))
            .mut_subcommands(discreet)
    }
    let mut tree = Arguments::command();
    let database = tree.get_arguments().find(|one| one.get_id() == DATABASE);
    if let Some(hidden) = database.map(|one| one.clone().hide(true)) {
        for name in WITHOUT_DATABASE {
            tree = tree.mut_subcommand(name, |command| command.arg(hidden.clone()));
        }
    }
    discreet(tree)
}

/// Reads the arguments of this process.
///
/// # Errors
/// As clap: help and version are among them.
pub(crate) fn read() -> Result<Arguments, clap::Error> {
    let mut matches = command().try_get_matches()?;
    let is_given = matches.value_source(DATABASE) == Some(ValueSource::CommandLine);
    let mut arguments = Arguments::from_arg_matches_mut(&mut matches)?;
    arguments.common.is_database_given = is_given;
    Ok(arguments)
}

#[cfg(test)]
mod tests;
