//! `leasehold-fence`: runs a command and makes sure that nothing of it is left afterwards.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use leasehold_fence::{Command, Control, Ending, Fence, Input, Output, SpawnFailure};
use lexopt::prelude::*;

const HELP: &str = "\
Runs a command and makes sure that nothing of it is left afterwards.

Usage: leasehold-fence [OPTIONS] [--] COMMAND [ARGUMENT]...

The command's whole tree is killed when the command ends, when its time is over, and when this
program ends, however it does: also those of the tree that moved to another session or group. Work
that was handed to another daemon is not part of the tree.

Options:
  --for LENGTH         end it after so long: 500ms, 30s, 1m30s, 2h
  --grace LENGTH       it is asked to end first (TERM), and killed after so long; 5s unless given,
                       0s to kill at once. Also when this program is told to end (TERM, INT, HUP)
  --no-new-privileges  set-user-ID programs gain nothing, so that none escapes (no sudo)
  -h, --help           show this
  -V, --version        show the version

Exit codes: the command's own; 128 and the signal's number if a signal ended it; 124 if its time was
over; 125 if this program failed; 126 if the command cannot be executed; 127 if it is not found.";

fn main() -> ExitCode {
    leasehold_fence::enter();
    let (text, code) = match read() {
        Ok(Asked::Help) => return say(HELP),
        Ok(Asked::Version) => {
            return say(concat!("leasehold-fence ", env!("CARGO_PKG_VERSION")));
        }
        Ok(Asked::Run(request)) => match run(request) {
            Ok(code) => return ExitCode::from(code),
            Err(error) => (error, FAILED),
        },
        Err(error) => (format!("{error}; --help shows what there is"), FAILED),
    };
    complain(&text);
    ExitCode::from(code)
}

/// Long enough to close a file, and short enough for somebody who waits.
const GRACE: Duration = Duration::from_secs(5);

const TIMED_OUT: u8 = 124;
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

enum Asked {
    Help,
    Version,
    Run(Request),
}

struct Request {
    limit: Option<Duration>,
    grace: Duration,
    no_new_privileges: bool,
    program: OsString,
    arguments: Vec<OsString>,
}

fn read() -> Result<Asked, lexopt::Error> {
    let mut parser = lexopt::Parser::from_env();
    let (mut limit, mut grace, mut no_new_privileges) = (None, GRACE, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("for") => limit = Some(parser.value()?.parse_with(length)?),
            Long("grace") => grace = parser.value()?.parse_with(length)?,
            Long("no-new-privileges") => no_new_privileges = true,
            Short('h') | Long("help") => return Ok(Asked::Help),
            Short('V') | Long("version") => return Ok(Asked::Version),
            Value(program) => {
                return Ok(Asked::Run(Request {
                    limit,
                    grace,
                    no_new_privileges,
                    program,
                    arguments: parser.raw_args()?.collect(),
                }));
            }
            other => return Err(other.unexpected()),
        }
    }
    Err("no command is given".into())
}

/// Reads `1m30s` and the like.
fn length(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is no length of time; write 500ms, 30s, 1m30s or 2h");
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.len()
            - after
                .trim_start_matches(|c: char| c.is_ascii_lowercase())
                .len();
        let (unit, after) = after.split_at(letters);
        let number: u64 = number.parse().map_err(|_| refuse())?;
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(refuse()),
        };
        let part = number.checked_mul(milliseconds).ok_or_else(refuse)?;
        total = total
            .checked_add(Duration::from_millis(part))
            .ok_or_else(refuse)?;
        rest = after;
    }
    if text.is_empty() {
        Err(refuse())
    } else {
        Ok(total)
    }
}

fn run(request: Request) -> Result<u8, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|error| format!("the runtime did not start: {error}"))?;
    runtime.block_on(async {
        let fence = Fence::start().map_err(|error| error.to_string())?;
        let directory = std::env::current_dir()
            .map_err(|error| format!("the folder this runs in cannot be read: {error}"))?;
        let mut command = Command::new(request.program)
            .with_arguments(request.arguments)
            .with_environment(std::env::vars_os())
            .in_directory(directory)
            .with_stdin(Input::From(own(std::io::stdin().as_fd())?))
            .with_stdout(Output::To(own(std::io::stdout().as_fd())?))
            .with_stderr(Output::To(own(std::io::stderr().as_fd())?));
        if let Some(limit) = request.limit {
            command = command.with_time_limit(limit, request.grace);
        }
        if request.no_new_privileges {
            command = command.without_new_privileges();
        }
        let child = fence
            .run(command, None)
            .map_err(|error| error.to_string())?;
        let asked = pass_signals_on(&child.control(), request.grace);
        let asked = asked.map_err(|error| error.to_string())?;
        let ending = child.finish(|_| ()).await.ending;
        let code = code(&ending, asked.load(Ordering::Relaxed));
        fence.close();
        Ok(code)
    })
}

fn own(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, String> {
    descriptor
        .try_clone_to_owned()
        .map_err(|error| format!("a standard stream is closed: {error}"))
}

/// Whoever stops this program means the command. Answers where the last signal's number will stand.
fn pass_signals_on(control: &Control, grace: Duration) -> std::io::Result<Arc<AtomicU8>> {
    use tokio::signal::unix::{SignalKind, signal};
    let last = Arc::new(AtomicU8::new(KILL));
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        let mut asked = signal(kind)?;
        let (control, last) = (control.clone(), last.clone());
        let number = u8::try_from(kind.as_raw_value()).unwrap_or(KILL);
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                last.store(number, Ordering::Relaxed);
                control.terminate(grace);
            }
        });
    }
    Ok(last)
}

const KILL: u8 = 9;

/// The exit code; `asked` is the signal by which this program was told to end the command.
fn code(ending: &Ending, asked: u8) -> u8 {
    let killed = 128 + KILL;
    match ending {
        Ending::Exited { code } => u8::try_from(*code).unwrap_or(FAILED),
        Ending::Signalled { signal } => u8::try_from(128 + signal).unwrap_or(killed),
        Ending::Killed => 128 + asked,
        Ending::TimedOut => TIMED_OUT,
        Ending::SpawnFailed(failure) => {
            complain(&failure.to_string());
            match failure {
                SpawnFailure::NotFound { .. } => NOT_FOUND,
                SpawnFailure::NotExecutable { .. } => NOT_EXECUTABLE,
                _ => FAILED,
            }
        }
        _ => killed,
    }
}

fn say(text: &str) -> ExitCode {
    use std::io::Write as _;
    // A reader that has gone is no failure.
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::SUCCESS
}

fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "leasehold-fence: {text}");
}
