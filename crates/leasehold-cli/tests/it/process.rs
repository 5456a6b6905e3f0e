//! A command that goes on beside a case: watched, signalled, and gone with all it started when the case
//! is over.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Ended, Place};

/// Longer than anything takes that a case waits for, on a machine that has much to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command under way. Killed when dropped; its wardens then end what it ran.
pub(crate) struct Process {
    child: Child,
    /// Empty if they are not kept.
    out: PathBuf,
    talk: PathBuf,
}

impl Process {
    /// Starts it in the place, its output and its talk kept in files.
    pub(crate) fn start(place: &Place, mut command: Command) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| place.path().join(format!("process-{number}.{end}"));
        let (out, talk) = (name("out"), name("talk"));
        let child = command
            .stdin(Stdio::null())
            .stdout(File::create(&out).expect("a file"))
            .stderr(File::create(&talk).expect("a file"))
            .spawn()
            .expect("the command");
        Self { child, out, talk }
    }

    /// One whose output and talk nobody keeps.
    pub(crate) fn of(child: Child) -> Self {
        Self {
            child,
            out: PathBuf::new(),
            talk: PathBuf::new(),
        }
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).expect("a signal");
    }

    /// What it has said so far.
    pub(crate) fn talk(&self) -> String {
        kept(&self.talk)
    }

    /// Waits until it has said that.
    #[track_caller]
    pub(crate) fn until_said(&self, text: &str) {
        self.until_said_times(1, text);
    }

    /// Waits until it has said that so often.
    #[track_caller]
    pub(crate) fn until_said_times(&self, times: usize, text: &str) {
        let said = eventually(|| self.talk().matches(text).count() >= times);
        assert!(said, "{text:?} was not said: {}", self.talk());
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(crate) fn ended(mut self) -> Ended {
        let mut code = None;
        let is_over = eventually(|| {
            let status = self.child.try_wait().expect("its state");
            code = status.map(|status| status.code().unwrap_or(-1));
            code.is_some()
        });
        assert!(is_over, "it goes on: {}", self.talk());
        Ended {
            code: code.unwrap_or(-1),
            out: kept(&self.out),
            talk: self.talk(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kept(file: &Path) -> String {
    if file.as_os_str().is_empty() {
        return String::new();
    }
    fs::read_to_string(file).expect("what it wrote")
}

/// Looks until it is so; `false` if it does not become so in time.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes move at their own pace"
)]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = SystemClock.elapsed();
    loop {
        if is_so() {
            return true;
        }
        if SystemClock.elapsed().since(begun) > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10)); // real time: other processes move at their own pace
    }
}

/// The living processes that run for the item, whatever session or group they are in: their environment
/// tells.
pub(crate) fn running_for(item: &str) -> Vec<i32> {
    let mark = format!("LEASEHOLD_ITEM_ID={item}");
    let all = fs::read_dir("/proc").expect("the list of processes");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        // What has ended has no environment any more, a process that was not reaped included.
        let environment = fs::read(Path::new("/proc").join(format!("{pid}/environ")));
        environment.is_ok_and(|bytes| {
            bytes
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
    })
    .collect()
}

/// A process as the system shows it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    pub(crate) name: String,
    /// As `ps` abbreviates it; `Z` for one that has ended and was not reaped.
    pub(crate) state: char,
    pub(crate) parent: i32,
}

impl Seen {
    /// `None` if there is none of that number.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in brackets and may hold anything, brackets included.
        let (before, after) = stat.rsplit_once(") ")?;
        let mut fields = after.split(' ');
        Some(Self {
            pid,
            name: before.split_once('(')?.1.to_owned(),
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
        })
    }

    /// Every process there is.
    pub(crate) fn all() -> Vec<Self> {
        let all = fs::read_dir("/proc").expect("the list of processes");
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::of).collect()
    }

    /// Those whose parent is that process, ended ones included.
    pub(crate) fn children_of(parent: Pid) -> Vec<Self> {
        let parent = parent.as_raw_nonzero().get();
        let all = Self::all().into_iter();
        all.filter(|one| one.parent == parent).collect()
    }

    /// Whether it still executes.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}
