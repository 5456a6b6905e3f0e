//! Which server the tests use: one that is given, or one that all test processes of a run share.
//!
//! `LEASEHOLD_TEST_POSTGRES` gives one by its address. Otherwise a throw-away cluster is made from the
//! server's programs on this machine. Where there are none, the tests are skipped and say so; where `CI`
//! is set they fail.
//!
//! **Sharing.** Every test may be a process of its own, so none of them can own the cluster. The first one
//! starts a *minder*: this very program, told by a variable to mind a cluster. It starts the server and
//! stops it when nobody has used it for a while. Who uses it is known by locks on files, which the system
//! lets go of when a process ends, however it ends:
//!
//! | file | locked by | while |
//! |---|---|---|
//! | `users` | every test process, shared | it lives |
//! | `users` | the minder, alone | it looks whether anybody is there, and while it stops the server |
//! | `starting` | a test process, alone | it finds the server or has it started |
//! | `minder` | the minder, alone | it lives |
//!
//! So a test that comes while the server is being stopped waits, finds no minder, and starts one. A minder
//! that is killed takes the server with it where the system can do that (Linux); elsewhere the next minder
//! finds the folder that was left and stops and removes what is in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::server::{Programs, Server};

/// The address of a server that is to be used instead of a throw-away one.
const GIVEN: &str = "LEASEHOLD_TEST_POSTGRES";

/// Makes this program a minder; set for it alone.
const MINDS: &str = "LEASEHOLD_TEST_MINDS_POSTGRES";

/// What the minder's answers begin with.
const READY: &str = "leasehold-server-ready ";
const ABSENT: &str = "leasehold-server-absent ";

/// Between two looks whether anybody uses the server.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// So many looks in a row that find nobody stop the server: ten seconds, so that one run after the other
/// uses the same.
const LOOKS_IN_VAIN: u32 = 40;

/// The server that the tests of this process use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) address: String,
    /// Whether somebody else owns it, who wants nothing left behind.
    pub(crate) is_given: bool,
    /// Tells the minder that somebody is here.
    _user: Option<File>,
}

/// The server that the tests use; why there is none, in words for people, if there is none.
///
/// # Panics
/// If there is none where one is promised: where `CI` is set, and where one is given.
pub(crate) fn shared() -> Result<&'static Shared, &'static str> {
    static FOUND: OnceLock<Result<Shared, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| match std::env::var(GIVEN) {
        Ok(address) => Ok(Shared {
            address,
            is_given: true,
            _user: None,
        }),
        Err(_) => join(),
    });
    match found {
        Ok(shared) => Ok(shared),
        Err(why) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "there must be a server where CI is set: {why}"
            );
            Err(why)
        }
    }
}

/// Where the lock files are: one cluster for each target folder.
fn meeting_place() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("leasehold-postgres-server")
}

fn file(name: &str) -> File {
    let place = meeting_place();
    fs::create_dir_all(&place).unwrap();
    File::options()
        .create(true)
        .append(true)
        .open(place.join(name))
        .unwrap()
}

/// Joins those who use the cluster, as the first if need be.
fn join() -> Result<Shared, String> {
    let user = file("users");
    user.lock_shared().unwrap();
    let starting = file("starting");
    starting.lock().unwrap();
    let address = if is_minded() {
        fs::read_to_string(meeting_place().join("address")).unwrap()
    } else {
        start_minder()?
    };
    Ok(Shared {
        address,
        is_given: false,
        _user: Some(user),
    })
}

/// Whether a minder lives. The lock taken by looking ends with the file.
fn is_minded() -> bool {
    match file("minder").try_lock() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => panic!("cannot lock a file: {error}"),
    }
}

#[expect(
    clippy::zombie_processes,
    reason = "a minder outlives whoever starts it; the system takes its end"
)]
fn start_minder() -> Result<String, String> {
    let mut minder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cluster::minds_a_server_when_told_to", "--nocapture"])
        .env(MINDS, "1")
        .stdin(Stdio::null())
        // The framework talks on it, and ends the process when nobody reads.
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Whoever ends the test that happened to come first must not end what others use.
        .process_group(0)
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(minder.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(address) = line.strip_prefix(READY) {
            return Ok(address.to_owned());
        }
        if let Some(why) = line.strip_prefix(ABSENT) {
            minder.wait().unwrap();
            return Err(why.to_owned());
        }
        said.push_str(&line);
        said.push('\n');
    }
    // Until its locks are gone, nobody may take it for one that lives.
    minder.wait().unwrap();
    panic!("the server did not start: {said}");
}

/// The minder. By itself it does nothing.
#[tokio::test]
async fn minds_a_server_when_told_to() {
    if std::env::var_os(MINDS).is_some() {
        mind().await;
    }
}

async fn mind() {
    let alone = file("minder");
    alone.lock().unwrap();
    clear_away();
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(why) => return say(&format!("{ABSENT}{why}")),
    };
    let note_folder = |folder: &Path| {
        fs::write(meeting_place().join("folder"), folder.to_str().unwrap()).unwrap();
    };
    let server = Server::start(&programs, note_folder).await;
    fs::write(meeting_place().join("address"), server.address()).unwrap();
    say(&format!("{READY}{}", server.address()));
    let _nobody_may_come = unused(server).await;
    clear_away();
}

/// Waits until nobody has used the server for a while. Whoever comes while the answer is held waits.
async fn unused(mut server: Server) -> File {
    let users = file("users");
    let mut in_vain = 0;
    while in_vain < LOOKS_IN_VAIN && server.is_up() {
        tokio::time::sleep(LOOK_EVERY).await; // real time: other processes come and go by it
        in_vain = match users.try_lock() {
            Ok(()) => in_vain + 1,
            Err(_) => 0,
        };
        if in_vain < LOOKS_IN_VAIN {
            users.unlock().unwrap();
        }
    }
    users
}

/// Stops and removes what a minder has left, itself or one that was killed.
fn clear_away() {
    let note = meeting_place().join("folder");
    let Ok(folder) = fs::read_to_string(&note) else {
        return;
    };
    if let Ok(programs) = Programs::find() {
        programs.stop_in(Path::new(&folder));
    }
    let _ = fs::remove_dir_all(folder);
    let _ = fs::remove_file(note);
}

/// Past the framework, which shows the output of what fails only.
pub(crate) fn say(what: &str) {
    writeln!(io::stderr(), "{what}").unwrap();
}

/// Shown by nextest although it passes, so that nobody takes skipped tests for green ones.
#[tokio::test]
async fn tells_which_server_is_tested() {
    let words = match shared() {
        Ok(shared) => format!("tested: {}", crate::server::version(&shared.address).await),
        Err(why) => format!("SKIPPED: every test that needs a server; {why}"),
    };
    say(&format!("leasehold-postgres: {words}"));
}
