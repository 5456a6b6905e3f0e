//! Commands as handlers, with real processes, a real file and real time.
//!
//! This target has a `main` of its own, and is apart from the other tests for it: its program is
//! started again as the spawner, the wardens and the stages of the commands it runs, as any program
//! that runs commands under a fence is. The usual harness would not ask first, and would run the tests
//! once more in each of them.
//!
//! What a process of this program is, in this order: one of the fence's own; a member of a process tree
//! that a case watches; a worker of a case; or the list of cases.

use std::process::ExitCode;

#[cfg(test)]
mod cases;
#[cfg(test)]
#[path = "../processes/losses.rs"]
mod losses;
#[cfg(test)]
#[path = "../processes/yard.rs"]
mod yard;

fn main() -> ExitCode {
    leasehold::fence::enter();
    cases::main()
}
