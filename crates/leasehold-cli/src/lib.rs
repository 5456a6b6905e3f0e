//! The `leasehold` command: a thin layer of words over the library.
//!
//! Standard output is data, standard error is talk. A command answers with an exit code
//! ([`failure::Exit`]), prints tables for people, tab-separated columns into pipes, and with `--json`
//! one object that carries `"schema": 1`.
//!
//! - [`arguments`]: the tree of commands, and what every command takes.
//! - [`config`]: the file `leasehold.toml`, and what stands over it.
//! - [`database`]: the one place that looks at a database URL.
//! - [`screen`]: how answers are printed. [`failure`]: how refusals are.
//! - [`enqueue`], [`items`], [`lanes`], [`schedules`], [`exec`], [`migrate`], [`doctor`], [`health`], [`completions`]:
//!   one module per command.
//! - [`step_functions`]: what goes with a worker for tasks.
//! - [`runtime`]: what they wait on. [`init`]: what falls to PID 1.
//! - [`demo`]: real work, three workers, one killed and one frozen.

mod arguments;
mod bench;
mod completions;
mod config;
mod database;
mod demo;
mod doctor;
mod enqueue;
mod exec;
mod failure;
mod health;
mod init;
mod items;
mod lanes;
mod migrate;
mod names;
mod observability;
mod payload;
mod run;
mod runtime;
mod schedules;
mod screen;
mod step_functions;
mod stops;
mod telling;
mod when;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use failure::{Answer, Exit, Failure};
use screen::Screen;

/// Reads the arguments, runs the command and says how it went.
pub fn main() -> ExitCode {
    let arguments = match arguments::read() {
        Ok(arguments) => arguments,
        Err(error) => return unreadable(&error),
    };
    let screen = Screen::new(arguments.common.json);
    let told = telling::begin(
        arguments.common.verbose,
        arguments.command.quiet_level(),
        arguments.log_lines(),
    );
    // Kept until the command has ended, and sent on then.
    match told.and_then(|_traces| run(arguments, &screen)) {
        Ok(answer) => answer.exit().into(),
        Err(failure) => {
            screen.refuse(&failure);
            failure.exit().into()
        }
    }
}

/// What clap cannot read, it explains itself; help and version come this way, too.
fn unreadable(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && wants_json {
        let told = error.to_string();
        // What is wrong goes on until the first blank line: names of arguments stand on lines of
        // their own.
        let lines = told.lines().map(str::trim);
        let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let what = lines.join(" ");
        let failure = Failure::usage(what.strip_prefix("error: ").unwrap_or(&what))
            .remedy("`leasehold --help` shows what there is");
        Screen::new(true).refuse(&failure);
        return failure.exit().into();
    }
    // A reader that has gone is no failure.
    let _ = error.print();
    match error.exit_code() {
        0 => Exit::Done.into(),
        _ => Exit::Usage.into(),
    }
}

fn run(arguments: Arguments, screen: &Screen) -> Result<Answer, Failure> {
    let common = &arguments.common;
    common.without_database(&arguments.command)?;
    match arguments.command {
        Command::Demo(arguments) => demo::run(&arguments, common.verbose, screen),
        Command::Enqueue(arguments) => enqueue::run(&arguments, common, screen),
        Command::Items(arguments) => items::run(arguments, common, screen),
        Command::Lanes(arguments) => lanes::run(arguments, common, screen),
        Command::Schedules(arguments) => schedules::run(arguments, common, screen),
        Command::Bench(arguments) => bench::run(&arguments, screen),
        Command::Exec(arguments) => exec::run(&arguments, common, screen),
        Command::Run(arguments) => run::run(&arguments, common, screen),
        Command::Dev(arguments) => run::dev::run(&arguments, common, screen),
        Command::Migrate(arguments) => migrate::run(&arguments, common, screen),
        Command::Health(arguments) => health::run(&arguments, common, screen),
        Command::Config(arguments) => config::command::run(&arguments, common, screen),
        Command::StepFunctions(arguments) => step_functions::run(&arguments, common, screen),
        Command::Doctor(_) => doctor::run(common, screen),
        Command::Observability(arguments) => observability::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::DemoWorker(arguments) => demo::work(&arguments),
        Command::DemoCrashWorker(arguments) => demo::crash::work(&arguments),
    }
}

/// Runs a command that mostly waits for the store, on this thread.
fn block_on<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime::of_this_thread()?.block_on(command)
}
