//! `leasehold exec`: runs one command as the worker would, without a queue.
//!
//! For authors of handlers: the command speaks the worker's protocol ([`leasehold_fence::protocol`])
//! under the worker's fence, and is told what would become of the item. [`plan`] says what is run,
//! [`verdict`] what it came to.

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use leasehold_fence::capture::{LINE_BYTES_MAX, Line, Lines};
use leasehold_fence::protocol::{Progress, ResultRule};
use leasehold_fence::{Command, Fence, Finished, StartError};

use crate::arguments::Common;
use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::names::parse_kind;
use crate::screen::{Screen, plain};
use crate::stops::Stops;
use crate::{block_on, init, payload};
use plan::{NoCommand, Plan};
use verdict::{Outputs, Told, Verdict};

mod plan;
mod verdict;

/// Run one command as the worker would, without a queue: for trying out a handler.
///
/// The command gets the payload and the variables of an item that is made up. What it writes to
/// standard error is shown as it comes. In the end standard error says how it ended and what the worker
/// would do with the item, and standard output is the result.
///
/// Fields that the kind redacts are shown in the clear, to whoever runs this: it is for the author of a
/// handler.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  leasehold exec SEND_INVOICE --payload '{\"id\": 7}' -- python3 handler.py
  leasehold exec SEND_INVOICE --payload @invoice.json

Exits with 0 if the item would be done, 1 if the run failed, 3 if the item would wait and be tried
again later without spending an attempt.",
    after_long_help = "Examples:
  leasehold exec SEND_INVOICE --payload '{\"id\": 7}' -- python3 handler.py
  leasehold exec SEND_INVOICE --payload @invoice.json

Exits with 0 if the item would be done, 1 if the run failed, 3 if the item would wait and be tried
again later without spending an attempt, 130 if it was interrupted: the command is then asked to end,
and killed after the grace (worker.stop_grace), or when it is interrupted again.

JSON: {\"schema\", \"kind\", \"ending\": {\"how\", \"code\", \"signal\", \"text\"}, \"answer\": {\"is\", …}, \
\"result\", \"stdout_bytes\", \"stderr_bytes\", \"duration_ms\"}, where answer.is is done, parked (with reason \
and retry_after_ms), failed (with name, message, level and retryable), handed_back (with note) or stopped."
)]
pub(crate) struct Arguments {
    /// What to do: a name in capitals such as `SEND_INVOICE`. Its section in the file of settings, if it
    /// has one, says what is left out here.
    kind: String,

    /// The payload: a JSON object, @file to read one, or - for standard input. `{}` if left out.
    #[arg(long, value_name = "JSON | @FILE | -", env = "LEASEHOLD_EXEC_PAYLOAD")]
    payload: Option<String>,

    /// Hand the payload over on standard input, too.
    #[arg(
        long,
        env = "LEASEHOLD_EXEC_STDIN",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    stdin: bool,

    /// End the run after so long: 500ms, 90s, 5m.
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_EXEC_TIME_LIMIT")]
    time_limit: Option<String>,

    /// A variable of this environment that the command is given, besides those its kind declares; may be
    /// repeated. One that ends in * is a beginning.
    #[arg(
        long = "env",
        value_name = "NAME",
        env = "LEASEHOLD_EXEC_ENV",
        value_delimiter = ','
    )]
    environment: Vec<String>,

    /// What its standard output is: `json` for the result, `ignored` for talk.
    #[arg(long, value_name = "json | ignored", env = "LEASEHOLD_EXEC_RESULT")]
    result: Option<ResultRule>,

    /// The command and its arguments, run in this folder. The kind's in the file of settings if left out.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let kind = parse_kind(&arguments.kind)?;
    let config = Config::load(common)?;
    let plan = Plan::of(arguments, &kind, &config)?;
    let payload = payload::one(arguments.payload.as_deref())?;
    let ran = match plan.command(&kind, &payload) {
        Ok(command) => block_on(perform(command, plan.grace, screen))?,
        Err(NoCommand::Invalid(failure)) => return Err(failure),
        Err(NoCommand::Refused(error)) => {
            let told = Told {
                kind: &kind,
                ending: None,
                verdict: error.into(),
                outputs: Outputs::default(),
                took: Duration::ZERO,
            };
            return told.show(screen);
        }
    };
    let told = Told {
        kind: &kind,
        ending: Some(&ran.finished.ending),
        verdict: Verdict::of(&ran.finished, &plan.errors, plan.rule),
        outputs: Outputs {
            stdout_bytes: ran.finished.stdout.len(),
            stdout_bytes_max: plan.stdout_bytes_max,
            stderr_bytes: ran.finished.stderr.total_bytes(),
            stderr_bytes_max: plan.stderr_bytes_max,
        },
        took: ran.took,
    };
    let answer = told.show(screen)?;
    if ran.was_interrupted {
        return Err(Failure::interrupted()
            .because("it was asked to stop, and ended the command")
            .remedy("run it again"));
    }
    Ok(answer)
}

/// A run that is over.
struct Ran {
    finished: Finished,
    took: Duration,
    was_interrupted: bool,
}

async fn perform(command: Command, grace: Duration, screen: &Screen) -> Result<Ran, Failure> {
    let mut stops = Stops::listen()
        .map_err(|error| Failure::failed("signals cannot be listened to").because(error))?;
    let fence = Fence::start().map_err(|error| not_started(&error))?;
    let reaping = tokio::spawn(init::reap_orphans(fence.clone()));
    let clock = SystemClock;
    let begun = clock.elapsed();
    let child = fence
        .run(command, None)
        .map_err(|error| not_started(&error))?;
    let control = child.control();
    let mut lines = Lines::new(LINE_BYTES_MAX);
    let mut interruptions = 0_usize;
    let finished = {
        let finish = child.finish(|piece| lines.push(piece, |line| show_line(&line, screen)));
        let mut finish = pin!(finish);
        loop {
            tokio::select! {
                finished = &mut finish => break finished,
                () = stops.next() => {
                    interruptions += 1;
                    match interruptions {
                        1 => control.terminate(grace),
                        _ => control.kill(),
                    }
                }
            }
        }
    };
    let took = clock.elapsed().since(begun);
    lines.finish(|line| show_line(&line, screen));
    reaping.abort();
    fence.close();
    Ok(Ran {
        finished,
        took,
        was_interrupted: interruptions > 0,
    })
}

/// A line of the command's standard error, as the worker would log it.
fn show_line(line: &Line<'_>, screen: &Screen) {
    let text = match Progress::parse(line.bytes) {
        Some(Progress { percent, note }) if note.is_empty() => format!("progress: {percent}%"),
        Some(Progress { percent, note }) => format!("progress: {percent}% {note}"),
        None => line.to_text(),
    };
    screen.talk(&plain(&text));
}

fn not_started(error: &StartError) -> Failure {
    let told = error.to_string();
    match error {
        StartError::Invalid(_) => Failure::usage("the command cannot be run")
            .because(told)
            .remedy("correct it"),
        _ => Failure::failed("no command can be run here")
            .because(told)
            .remedy("`leasehold doctor` looks at what commands need"),
    }
}
