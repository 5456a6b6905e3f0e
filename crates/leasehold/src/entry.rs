//! The entry of a program that runs a worker.

use std::fmt::Display;
use std::future::Future;
use std::process::ExitCode;

/// The whole of `main` for a program that runs a worker: the program's future on a runtime of many
/// threads, which does not wait at the end for handlers that block.
///
/// It begins with [`leasehold_fence::enter`], so that handlers may be commands
/// ([`Subprocess`](crate::Subprocess)). A program with a `main` of its own calls that first itself.
///
/// An error is told on standard error, and the exit code is 1.
///
/// ```no_run
/// async fn run() -> Result<(), Box<dyn std::error::Error>> {
///     // open a store, make a worker, run it
///     Ok(())
/// }
///
/// fn main() -> std::process::ExitCode {
///     leasehold::main(run)
/// }
/// ```
pub fn main<F, E>(program: impl FnOnce() -> F) -> ExitCode
where
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    leasehold_fence::enter();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return refused(&format_args!("the runtime did not start: {error}")),
    };
    let ended = runtime.block_on(program());
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refused(&error),
    }
}

fn refused(error: &dyn Display) -> ExitCode {
    use std::io::Write as _;
    // Whoever closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::FAILURE
}
