//! The worker as the first process of a container: in a fresh user and PID namespace, without an init.

use std::process::Command;

use crate::harness::Place;

mod real_process;

/// What starts the rest of its command line in namespaces of its own.
const UNSHARE: [&str; 4] = ["unshare", "-Urpf", "--mount-proc", "--kill-child"];

/// Whether there are such namespaces here. A build machine has to have them.
#[expect(clippy::print_stderr, reason = "a case that cannot be tried says so")]
fn is_possible() -> bool {
    let tried = Command::new(UNSHARE[0])
        .args(&UNSHARE[1..])
        .arg("true")
        .output();
    let is_possible = tried.as_ref().is_ok_and(|output| output.status.success());
    if !is_possible {
        assert!(std::env::var_os("CI").is_none(), "no namespaces: {tried:?}");
        eprintln!("skipped: this machine gives no user and PID namespaces: {tried:?}");
    }
    is_possible
}

/// The worker as the first process, in the place.
fn contained(place: &Place) -> Command {
    let mut command = Command::new(UNSHARE[0]);
    command
        .args(&UNSHARE[1..])
        .args([env!("CARGO_BIN_EXE_leasehold"), "run"])
        .current_dir(place.path())
        .env_clear();
    command
}
