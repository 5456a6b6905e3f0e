//! The tree of commands, and what every command takes.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::FalseyValueParser;
use clap::builder::styling::{AnsiColor, Effects, Styles};
use clap::parser::ValueSource;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{Origin, PostgresFlags, Setting};
use crate::failure::{EXIT_CODES, Failure};
use crate::telling::Lines;
use crate::{
    bench, completions, config, database, demo, doctor, enqueue, exec, health, items, lanes,
    migrate, observability, run, schedules, step_functions,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .usage(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default().effects(Effects::DIMMED));

/// Durable background work: claimed by one holder at a time, under a lease, and really stopped when
/// the lease is lost.
///
/// New here? `leasehold demo` hashes the files of this folder with three workers, kills one, freezes
/// another, and shows that every file is done exactly once; `leasehold demo crash` does the same to the
/// workers of commands, and shows that no process outlives its lease.
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

impl Arguments {
    /// What a line of the log is. A worker's log goes to programs as often as to people; what other
    /// commands tell on the way is for people.
    pub(crate) const fn log_lines(&self) -> Lines {
        match self.command {
            Command::Run(_) | Command::Dev(_) if self.common.json => Lines::Json,
            _ => Lines::Text,
        }
    }
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// The queue's database: `sqlite:PATH`, or just a path, or `postgres://USER@HOST/DATABASE`. Without
    /// it the one that the file of settings names, and else `leasehold.db` beside that file; in this
    /// folder if there is no file.
    #[arg(long, global = true, value_name = "URL", env = "LEASEHOLD_DATABASE")]
    database: Option<String>,

    /// The file of settings. Without it `leasehold.toml` in this folder, if there is one.
    #[arg(long, global = true, value_name = "PATH", env = "LEASEHOLD_CONFIG")]
    config: Option<OsString>,

    #[command(flatten)]
    pub(crate) postgres: PostgresFlags,

    /// Whether --database stood on the command line, and not in the environment.
    #[arg(skip)]
    is_database_given: bool,

    /// Whether --config did.
    #[arg(skip)]
    is_config_given: bool,

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
    /// The database that a flag or the environment names.
    pub(crate) fn database(&self) -> Option<Setting<String>> {
        let origin = if self.is_database_given {
            Origin::Flag { name: DATABASE }
        } else {
            Origin::Environment {
                variable: "LEASEHOLD_DATABASE",
            }
        };
        let value = self.database.clone()?;
        Some(Setting { value, origin })
    }

    /// The file of settings that a flag or the environment names. Templates leave a variable empty
    /// where they have no value for it.
    pub(crate) fn config(&self) -> Option<&Path> {
        let path = self.config.as_deref()?;
        (self.is_config_given || !path.is_empty()).then_some(path.as_ref())
    }

    /// ` --database URL` or ` --config PATH`, quoted for a shell, for a command to paste that is to
    /// work on the same database; empty where it would find it without.
    pub(crate) fn database_again(&self) -> String {
        match (&self.database, &self.config) {
            (Some(url), _) if self.is_database_given => {
                format!(" --database {}", quoted(&database::to_paste(url)))
            }
            (_, Some(path)) if self.is_config_given => {
                format!(" --config {}", quoted(&path.to_string_lossy()))
            }
            _ => String::new(),
        }
    }

    /// Refuses --database, and --config as well, on a command that has no use for it. From the
    /// environment they may come all the same: they are set there for the others.
    pub(crate) fn without_database(&self, command: &Command) -> Result<(), Failure> {
        let Some(why) = command.why_no_database() else {
            return Ok(());
        };
        let reads_settings = matches!(command, Command::Health(_) | Command::StepFunctions(_));
        for (name, is_refused) in [
            (DATABASE, self.is_database_given),
            (CONFIG, self.is_config_given && !reads_settings),
        ] {
            if is_refused {
                return Err(
                    Failure::usage(format!("this command does not take --{name}"))
                        .because(why)
                        .remedy(format!("leave --{name} out")),
                );
            }
        }
        Ok(())
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
    Lanes(lanes::Arguments),
    Schedules(schedules::Arguments),
    Run(run::Arguments),
    Dev(run::dev::Arguments),
    Exec(exec::Arguments),
    Migrate(migrate::Arguments),
    Health(health::Arguments),
    Doctor(doctor::Arguments),
    #[command(name = "step-functions")]
    StepFunctions(step_functions::Arguments),
    Bench(bench::Arguments),
    Config(config::command::Arguments),
    Observability(observability::Arguments),
    Completions(completions::Arguments),
    /// What the demo starts: one of its workers.
    #[command(hide = true)]
    DemoWorker(demo::WorkerArguments),
    /// What the demo of commands starts: one of its workers.
    #[command(hide = true)]
    DemoCrashWorker(demo::crash::WorkerArguments),
}

impl Command {
    /// What is told on standard error unless asked for more.
    pub(crate) const fn quiet_level(&self) -> &'static str {
        match self {
            // The demo tells its own story; a refused write is the point of it, not a warning.
            Self::Demo(_) | Self::DemoWorker(_) | Self::DemoCrashWorker(_) => "error",
            // What a worker does is its business to tell.
            Self::Run(_) | Self::Dev(_) => "info",
            _ => "warn",
        }
    }

    /// Why the command has no use for a database, if it has none.
    const fn why_no_database(&self) -> Option<&'static str> {
        match self {
            Self::Demo(_) | Self::DemoWorker(_) | Self::DemoCrashWorker(_) => {
                Some("the demo makes a database of its own, in a temporary folder")
            }
            Self::Bench(_) => Some(
                "the bench measures on databases of its own, made under --dir or on the server of --postgres",
            ),
            Self::Health(_) => Some("a worker is asked over HTTP, and no database is opened"),
            Self::StepFunctions(_) => Some("templates are printed, and no database is opened"),
            Self::Completions(_) => Some("a script is printed, and no database is opened"),
            Self::Observability(_) => Some("a file is printed, and no database is opened"),
            Self::Enqueue(_)
            | Self::Items(_)
            | Self::Lanes(_)
            | Self::Schedules(_)
            | Self::Run(_)
            | Self::Dev(_)
            | Self::Exec(_)
            | Self::Doctor(_)
            | Self::Migrate(_)
            | Self::Config(_) => None,
        }
    }
}

/// What clap knows --database by.
const DATABASE: &str = "database";

/// What clap knows --config by.
const CONFIG: &str = "config";

/// The commands that open no database, and what their help therefore does not list.
const WITHOUT_DATABASE: &[(&str, &[&str])] = &[
    ("demo", &[DATABASE, CONFIG]),
    ("bench", &[DATABASE, CONFIG]),
    ("health", &[DATABASE]),
    ("step-functions", &[DATABASE]),
    ("completions", &[DATABASE, CONFIG]),
    ("observability", &[DATABASE, CONFIG]),
    ("demo-worker", &[DATABASE, CONFIG]),
    ("demo-crash-worker", &[DATABASE, CONFIG]),
];

/// The tree of commands, as it is parsed and shown. Help does not repeat what an environment variable
/// is set to: it may be nobody else's business.
pub(crate) fn command() -> clap::Command {
    fn discreet(command: clap::Command) -> clap::Command {
        command
            .mut_args(|argument| argument.hide_env_values(true))
            .mut_subcommands(discreet)
    }
    let mut tree = Arguments::command();
    for (name, without) in WITHOUT_DATABASE {
        let hidden: Vec<clap::Arg> = tree
            .get_arguments()
            .filter(|one| without.contains(&one.get_id().as_str()))
            .map(|one| one.clone().hide(true))
            .collect();
        tree = tree.mut_subcommand(name, |command| command.args(hidden));
    }
    discreet(tree)
}

/// Reads the arguments of this process.
///
/// # Errors
/// As clap: help and version are among them.
pub(crate) fn read() -> Result<Arguments, clap::Error> {
    let mut matches = command().try_get_matches()?;
    let is_given = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
    let (database, config) = (is_given(DATABASE), is_given(CONFIG));
    let mut arguments = Arguments::from_arg_matches_mut(&mut matches)?;
    arguments.common.is_database_given = database;
    arguments.common.is_config_given = config;
    Ok(arguments)
}

#[cfg(test)]
mod tests;
