//! The runtimes that commands wait on.

use std::io;
use std::num::NonZero;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// What to do where no thread can be started.
pub(crate) const MORE_THREADS: &str =
    "allow this user, or this container, more processes and threads";

/// One that waits on this thread alone.
pub(crate) fn of_this_thread() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| not_started(&error))
}

/// One of so many threads.
pub(crate) fn of_threads(count: usize) -> Result<Runtime, Failure> {
    // A runtime that is refused one of its threads panics, and never ends if it has got another.
    try_threads(count).map_err(|error| not_started(&error).remedy(MORE_THREADS))?;
    Builder::new_multi_thread()
        .worker_threads(count)
        .enable_all()
        .build()
        .map_err(|error| not_started(&error))
}

/// One of as many threads as this machine runs at once.
pub(crate) fn of_all_cores() -> Result<Runtime, Failure> {
    of_threads(thread::available_parallelism().map_or(1, NonZero::get))
}

/// Starts so many threads at once, and ends them again.
fn try_threads(count: usize) -> io::Result<()> {
    let threads: io::Result<Vec<JoinHandle<()>>> = (0..count)
        .map(|_| thread::Builder::new().spawn(thread::park))
        .collect();
    threads.map(|threads| {
        for thread in threads {
            thread.thread().unpark();
            // All it did was to be there.
            let _ = thread.join();
        }
    })
}

fn not_started(error: &io::Error) -> Failure {
    Failure::failed("the runtime did not start").because(error)
}
