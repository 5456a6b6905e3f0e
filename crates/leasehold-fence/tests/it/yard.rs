//! Where a case keeps its tree of processes: started, looked at, and gone when the case is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_fence::{Command, Fence, Finished};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tempfile::TempDir;

use crate::processes::{Process, mentioning, within};

/// The small binary, as wardens and as itself.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold-fence");

/// Set for the counts and lengths of a long run.
const LONG: &str = "LEASEHOLD_LONG_TESTS";

/// `few` as a rule, `many` in a long run.
pub(crate) fn few_or<T>(few: T, many: T) -> T {
    if std::env::var_os(LONG).is_some() {
        many
    } else {
        few
    }
}

pub(crate) fn fence() -> Fence {
    Fence::with_program(PROGRAM).unwrap()
}

/// A command in `sh`, with a PATH and nothing else.
pub(crate) fn shell(script: &str) -> Command {
    Command::new("sh")
        .with_arguments(["-c", script])
        .with_environment(path())
}

pub(crate) fn path() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    vec![("PATH".into(), std::env::var_os("PATH").unwrap())]
}

/// Runs it to its end under a fence of its own. Nothing may take longer than the limit.
pub(crate) async fn run(command: Command) -> Finished {
    let fence = fence();
    let child = fence.run(command, None).unwrap();
    let finished = tokio::time::timeout(Duration::from_mins(1), child.finish(|_| ()))
        .await
        .unwrap();
    fence.close();
    finished
}

/// A tree that does not want to die, and the folder it writes to.
pub(crate) struct Yard {
    pub(crate) folder: TempDir,
}

/// Who is in the tree, as each notes itself.
pub(crate) const TREE: [&str; 5] = ["leader", "child", "grandchild", "session", "daemon"];

const TREE_SCRIPT: &str = include_str!("real_process/tree.sh");

impl Yard {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("tree.sh"), TREE_SCRIPT).unwrap();
        Self { folder }
    }

    /// Waits until all of the tree have noted themselves.
    pub(crate) fn until_ready(&self) -> Vec<Process> {
        let tree = within(Duration::from_secs(20), || tree_in(self.folder.path()));
        tree.unwrap_or_else(|| {
            panic!(
                "the tree did not come about; of it are there {:?}, and its caller noted {:?}",
                mentioning(&self.folder.path().to_string_lossy()),
                fs::read_to_string(self.folder.path().join("caller"))
            )
        })
    }

    /// How often each of the tree has shown that it executes.
    pub(crate) fn beats(&self) -> [u64; TREE.len()] {
        TREE.map(|name| {
            let beat = fs::metadata(self.folder.path().join(name).with_extension("beat"));
            beat.map_or(0, |beat| beat.len())
        })
    }

    /// Nothing executes that has to do with this yard, not even what did not note itself.
    pub(crate) fn assert_deserted(&self) {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let left = mentioning(&folder);
        let left: Vec<&Process> = left
            .iter()
            .filter(|one| one.pid != getpid().as_raw_nonzero().get())
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        // A case that failed leaves nothing to the next.
        for left in mentioning(&self.folder.path().to_string_lossy()) {
            if let Some(pid) = Pid::from_raw(left.pid)
                && pid != getpid()
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// The command that becomes the tree. `role` is `leader`, who stays, or `leaver`, who does not.
pub(crate) fn tree(folder: &Path, role: &str) -> Command {
    // In seconds: often enough to be seen, and for many trees at once on a small machine.
    let pace = few_or("0.05", "0.5");
    let script = folder.join("tree.sh");
    Command::new("sh")
        .with_arguments([script.as_os_str(), folder.as_os_str()])
        .with_arguments([pace, role])
        .with_environment(path())
}

/// The tree, once all have noted themselves.
pub(crate) fn tree_in(folder: &Path) -> Option<Vec<Process>> {
    let noted = TREE.map(|name| {
        let note = fs::read_to_string(folder.join(name).with_extension("pid"));
        Process::parse(&note.ok()?)
    });
    noted.into_iter().collect()
}

/// A control group in which runs are given none of their own, as on most machines; nothing where there
/// are none to give anyway.
pub(crate) struct Outside {
    folder: Option<PathBuf>,
    home: PathBuf,
}

impl Outside {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let home = leasehold_fence::delegated_cgroup().unwrap_or_default();
        let is_delegated = !home.as_os_str().is_empty();
        let folder = is_delegated.then(|| {
            // Writable, but marked as delegated by nobody.
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let folder = home.join(format!("leasehold-test-{}-{number}", getpid()));
            fs::create_dir(&folder).unwrap();
            folder
        });
        Self { folder, home }
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// As [`Outside::new`], with this process in it, and what that starts.
    pub(crate) fn enter() -> Self {
        let outside = Self::new();
        if let Some(folder) = outside.folder() {
            move_to(folder);
            assert!(leasehold_fence::delegated_cgroup().is_err());
        }
        outside
    }
}

/// Moves this process to a control group.
pub(crate) fn move_to(group: &Path) {
    fs::write(group.join("cgroup.procs"), getpid().to_string()).unwrap();
}

impl Drop for Outside {
    fn drop(&mut self) {
        let Some(folder) = &self.folder else { return };
        move_to(&self.home);
        // The fence's own processes may take a moment to go.
        within(Duration::from_secs(5), || fs::remove_dir(folder).ok());
    }
}
