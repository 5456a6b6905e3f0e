//! `leasehold config`: looks at the settings without using them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anstyle::Style;
use leasehold_fence::protocol::PROTOCOL_VARIABLES;
use serde::Serialize;
use serde_json::Value;

use super::page::nearest;
use super::problem::{self, Complaint, Problem};
use super::serving::{idle_lanes, unserved_kinds, unserved_schedules};
use super::show::{self, Line};
use super::{Config, FILE, Origin, WorkerFlags};
use crate::arguments::Common;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::screen::{SCHEMA, Screen, plain};
use crate::telling;

/// Check the settings, or show what they are in the end.
///
/// They come from the file leasehold.toml, from the environment and from flags. The file is the one
/// that --config names, else the one in this folder.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(CheckArguments),
    Show(ShowArguments),
}

/// Read the file, and say all that is wrong with it.
///
/// Prints one line if nothing is. Warns of variables that begin with `LEASEHOLD_` and mean nothing, of
/// kinds whose lane has no worker here, and of lanes with a capacity that no kind here names.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exits with 2 if a setting is not acceptable, or if there is no file.

JSON: {\"schema\", \"file\", \"kinds\": [kind, …], \"lanes\": [lane, …], \"warnings\": [text, …]}; what is wrong \
is an error object with \"problems\": [text, …].")]
struct CheckArguments {
    #[command(flatten)]
    worker: WorkerFlags,
}

/// Show every setting as it is in the end: what the file, the environment and flags leave.
///
/// One a line, as the file would have it. A password in the database's URL is not shown.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
JSON: {\"schema\", \"file\", \"settings\": [{\"key\", \"value\", \"from\", \"place\"}, …]}, where from is \
default, file, environment or flag, and value is null where nothing is set.")]
struct ShowArguments {
    /// Say where each value came from: a line of the file, a variable, a flag, or the default.
    #[arg(
        long,
        env = "LEASEHOLD_CONFIG_ORIGIN",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    origin: bool,

    #[command(flatten)]
    worker: WorkerFlags,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    match &arguments.command {
        Command::Check(arguments) => check(&arguments.worker, common, screen),
        Command::Show(arguments) => show(arguments, common, screen),
    }
}

fn check(flags: &WorkerFlags, common: &Common, screen: &Screen) -> Result<Answer, Failure> {
    let (config, mut problems) = Config::examine(common, flags)?;
    let Some(file) = &config.file else {
        return Err(Failure::usage(format!("there is no {FILE} in this folder"))
            .because("nothing is wrong with what is not there, but that is hardly what you asked")
            .remedy("give the file's path with --config; docs/configuration.md describes it"));
    };
    let file = file.display().to_string();
    let opened = Database::of(&config).map_err(|failure| (&config.database.origin, failure));
    let served = opened.and_then(|database| {
        let served = database.serving(config.calls_at_once());
        served.map_err(|failure| (&config.postgres.connections.origin, failure))
    });
    if let Err((origin, failure)) = served {
        problems.push(Problem::at(origin, &file, Complaint::of(&failure)));
    }
    if !problems.is_empty() {
        return Err(problem::refusal(problems));
    }
    let lanes = config.lanes_served();
    let lanes: Vec<String> = lanes.iter().map(ToString::to_string).collect();
    let mut warnings = strays();
    warnings.extend(unserved_kinds(&config, &file));
    warnings.extend(idle_lanes(&config, &file));
    warnings.extend(unserved_schedules(&config, &file));
    let kinds: Vec<&str> = config.kinds.keys().map(leasehold::Kind::as_str).collect();
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            file: &'a str,
            kinds: &'a [&'a str],
            lanes: &'a [String],
            warnings: &'a [String],
        }
        screen.object(&Document {
            schema: SCHEMA,
            file: &file,
            kinds: &kinds,
            lanes: &lanes,
            warnings: &warnings,
        })?;
        return Ok(Answer::Yes);
    }
    for warning in &warnings {
        screen.talk(&format!("warning: {}", plain(warning)));
    }
    let kinds = match kinds.len() {
        1 => "1 kind".to_owned(),
        count => format!("{count} kinds"),
    };
    let lanes = lanes.join(", ");
    screen.text(&plain(&format!("{file} is fine: {kinds}, lanes {lanes}")))?;
    Ok(Answer::Yes)
}

fn show(arguments: &ShowArguments, common: &Common, screen: &Screen) -> Result<Answer, Failure> {
    let config = Config::load_for_worker(common, &arguments.worker)?;
    let file = config.file.as_ref().map(|file| file.display().to_string());
    let lines = show::lines(&config);
    if screen.is_json() {
        show_object(&lines, file.as_deref(), screen)?;
        return Ok(Answer::Yes);
    }
    let mut text = String::new();
    let dimmed = Style::new().dimmed();
    for (line, shown) in lines.iter().zip(show::text(&lines)) {
        text.push_str(&plain(&shown));
        if arguments.origin {
            let place = line.origin.shown(file.as_deref().unwrap_or(FILE));
            // Writing to a string does not fail.
            let _ = write!(text, "{dimmed}   # {}{dimmed:#}", plain(&place));
        }
        text.push('\n');
    }
    screen.text(&text)?;
    Ok(Answer::Yes)
}

fn show_object(lines: &[Line<'_>], file: Option<&str>, screen: &Screen) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        file: Option<&'a str>,
        settings: Vec<Object<'a>>,
    }
    #[derive(Serialize)]
    struct Object<'a> {
        key: &'a str,
        value: &'a Value,
        from: &'static str,
        place: String,
    }
    let object = |line: &'_ Line<'_>| match line.origin {
        Origin::Default => "default",
        Origin::File { .. } => "file",
        Origin::Environment { .. } => "environment",
        Origin::Flag { .. } => "flag",
    };
    screen.object(&Document {
        schema: SCHEMA,
        file,
        settings: lines
            .iter()
            .map(|line| Object {
                key: &line.key,
                value: &line.value,
                from: object(line),
                place: line.origin.shown(file.unwrap_or(FILE)),
            })
            .collect(),
    })
}

/// A warning for each variable of this process that looks like one of ours and means nothing.
fn strays() -> Vec<String> {
    let known = variables();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let mut names: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(OWN) && !known.contains(&name.as_str()))
        .collect();
    names.sort();
    let warn = |name: String| match nearest(&name, &known) {
        Some(near) => format!("the variable {name} means nothing; did you mean {near}?"),
        None => format!("the variable {name} means nothing; unset it, or call it otherwise"),
    };
    names.into_iter().map(warn).collect()
}

/// How our variables begin.
const OWN: &str = "LEASEHOLD_";

/// Every variable that means something.
fn variables() -> BTreeSet<String> {
    fn visit(command: &clap::Command, names: &mut BTreeSet<String>) {
        let variables = command.get_arguments().filter_map(clap::Arg::get_env);
        names.extend(
            variables
                .filter_map(|name| name.to_str())
                .map(str::to_owned),
        );
        for subcommand in command.get_subcommands() {
            visit(subcommand, names);
        }
    }
    // A child of ours that calls us hands on what it was given.
    let mut names: BTreeSet<String> = PROTOCOL_VARIABLES.map(str::to_owned).into();
    names.insert(telling::FILTER_VARIABLE.to_owned());
    visit(&crate::arguments::command(), &mut names);
    names
}
