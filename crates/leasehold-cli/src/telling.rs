//! Log lines of the library, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::failure::Failure;

mod traces;

pub(crate) use traces::Traces;

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

/// Shows what the library tells, from `quiet` on, or more of it with `-v`; and sends its spans to a
/// collector, if the environment names one.
pub(crate) fn begin(verbose: u8, quiet: &str, lines: Lines) -> Result<Traces, Failure> {
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
    let told = tracing_subscriber::fmt::layer()
        // A reader that has gone is no reason to end; it would be told of with a panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let told = match lines {
        Lines::Text => told.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Lines::Json => told.json().flatten_event(true).boxed(),
    };
    let traces = Traces::begin()?;
    // Somebody else may have begun in the same process, as tests do; then theirs it is.
    let _ = tracing_subscriber::registry()
        .with(traces.layer())
        .with(told.with_filter(filter))
        .try_init();
    Ok(traces)
}
