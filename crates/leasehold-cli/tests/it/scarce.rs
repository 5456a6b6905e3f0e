//! A worker on a machine that gives its user few threads and processes.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use crate::harness::{Place, ended};
use crate::process::eventually;
use crate::run::QUICK;

/// Whom the limits count for; nobody else's processes are to count along.
const USER: u32 = 64_731;

/// From nothing at all to what a worker with one command needs.
const PROCESSES: std::ops::RangeInclusive<u32> = 1..=20;

/// Nothing here needs more.
const ENOUGH: u32 = 100;

/// So long a worker may take to find out that it cannot work.
const PATIENCE: &str = "20";

/// The limit counts all processes of a user but those of root, so it is tried as another one.
#[expect(clippy::print_stderr, reason = "a case that cannot be tried says so")]
fn is_possible() -> bool {
    let tried = limited(ENOUGH, "true".as_ref()).output();
    let is_possible = tried.as_ref().is_ok_and(|output| output.status.success());
    if !is_possible {
        eprintln!("skipped: this user may not run a command as another one: {tried:?}");
    }
    is_possible
}

/// A program of that user, who may have so many threads in all.
fn limited(processes: u32, program: &Path) -> Command {
    let user = USER.to_string();
    let mut command = Command::new("timeout");
    command
        .args([PATIENCE, "prlimit", &format!("--nproc={processes}")])
        .args(["setpriv", "--reuid", &user, "--regid", &user])
        .args(["--clear-groups", "--"])
        .arg(program);
    command
}

/// Whether that user has a process.
fn is_at_work() -> bool {
    let mut all = std::fs::read_dir("/proc").expect("processes").flatten();
    all.any(|one| {
        let is_process = one
            .file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit);
        is_process && one.metadata().is_ok_and(|one| one.uid() == USER)
    })
}

#[test]
fn a_worker_that_is_refused_threads_says_so_and_ends() {
    if !is_possible() {
        return;
    }
    let place = Place::new();
    let everybodys = Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path(), everybodys).expect("a mode");
    // Where it was built that user may not look.
    let program = place.path().join("leasehold");
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &program).expect("a copy");
    let settings = "[kinds.SEND]\ncommand = [\"sh\", \"-c\", \"echo '{}'\"]\n";
    place.file("leasehold.toml", format!("{QUICK}{settings}"));
    let (mut codes, mut last) = (Vec::new(), String::new());
    for processes in PROCESSES {
        let run = |allowed, arguments: &[&str]| {
            let mut command = limited(allowed, &program);
            let command = command.args(arguments).current_dir(place.path());
            ended(&command.env_clear().output().expect("the command"))
        };
        assert_eq!(run(ENOUGH, &["enqueue", "SEND"]).code, 0);
        let ended = run(processes, &["run", "--until-empty"]);
        let talk = &ended.talk;
        assert!(!talk.contains("panicked"), "{processes}: {talk}");
        match ended.code {
            0 => {}
            1 | 4 => assert!(talk.contains("  why: "), "{processes}: {talk}"),
            code => panic!("{processes}: ended with {code}: {talk}"),
        }
        // What the fence had begun ends by itself.
        assert!(eventually(|| !is_at_work()), "{processes}: {talk}");
        codes.push(ended.code);
        last.clone_from(talk);
    }
    assert!(
        codes.contains(&1) && codes.contains(&0),
        "{codes:?}: {last}"
    );
}
