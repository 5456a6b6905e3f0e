//! The checks of this workspace: what the build machine runs is what a laptop runs.
//!
//! [`ci`] is the list of steps, [`tidy`] the rules no compiler knows, [`simulation`] starts the
//! simulation binary, and [`workspace`] is what they ask cargo.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program reports on its standard streams"
)]

mod ci;
mod simulation;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::workspace::Workspace;

const USAGE: &str = "\
cargo xtask ci                                 every check, in order, stopping at the first failure
cargo xtask tidy                               the rules no compiler knows
cargo xtask sim [--seed N | --seeds A..B] [--fresh N] [-- MORE]
                                               run the simulation; one seed replays it in detail
cargo xtask soak [as for sim]                  the long run: ten thousand seeds unless told others";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let Some((command, rest)) = arguments.split_first() else {
        bail!("name a command:\n{USAGE}");
    };
    match command.as_str() {
        "ci" => {
            expect_no_arguments(command, rest)?;
            ci::run(&Workspace::load()?)
        }
        "tidy" => {
            expect_no_arguments(command, rest)?;
            tidy::run(&Workspace::load()?)
        }
        "sim" => simulation::run(&Workspace::load()?, simulation::SMOKE, rest),
        "soak" => simulation::run(&Workspace::load()?, simulation::SOAK, rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        unknown => bail!("there is no command `{unknown}`:\n{USAGE}"),
    }
}

fn expect_no_arguments(command: &str, rest: &[String]) -> Result<()> {
    match rest {
        [] => Ok(()),
        [first, ..] => bail!("`{command}` takes no arguments, got `{first}`"),
    }
}
