//! Log lines of the library, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Which lines are shown, in the words of `tracing-subscriber`; stands over `-v`.
pub(crate) const FILTER_VARIABLE: &str = "LEASEHOLD_LOG";

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// For people.
    Text,
    /// One JSON object each, for programs.
    Json,
}

/// Shows what the library tells, from `quiet` on, or more of it with `-v`.
pub(crate) fn begin(verbose: u8, quiet: &str, lines: Lines) -> Result<(), Failure> {
    let level = match verbose {
        0 => quiet,
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = match std::env::var(FILTER_VARIABLE) {
        Ok(chosen) if !chosen.is_empty() => EnvFilter::try_new(&chosen).map_err(|error| {
            Failure::usage(format!("{FILTER_VARIABLE} cannot be read"))
                .because(error)
                .remedy("set it to something like info, or leasehold=debug,warn")
        })?,
        _ => EnvFilter::new(level),
    };
    let told = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A reader that has gone is no reason to end; it would be told of with a panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // Somebody else may have begun in the same process, as tests do; then theirs it is.
    let _ = match lines {
        Lines::Text => told.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Lines::Json => told.json().flatten_event(true).try_init(),
    };
    Ok(())
}
