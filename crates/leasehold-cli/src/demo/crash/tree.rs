//! What the system shows of a command's processes, and what marks they left.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use serde::Serialize;

use super::worker::ROLES;

/// The processes of one run.
pub(super) struct Tree {
    folder: PathBuf,
    pub(super) processes: Vec<Grown>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(super) struct Grown {
    pub(super) name: &'static str,
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// How long after the blow; as long as it lives there is none.
    #[serde(rename = "gone_after_ms", serialize_with = "as_ms")]
    pub(super) gone_after: Option<Duration>,
    /// With its number this tells it from any other process.
    #[serde(skip)]
    started: u64,
}

/// The marks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) count: u64,
    /// When the last was left.
    pub(super) last: FileTime,
}

/// When a file was written, in nanoseconds, by the clock that the system stamps all files with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileTime(i128);

impl FileTime {
    /// How long before; `None` if it was after.
    pub(super) fn before(self, later: Self) -> Option<Duration> {
        let nanoseconds = u64::try_from(later.0 - self.0).ok()?;
        Some(Duration::from_nanos(nanoseconds))
    }

    fn of(file: &fs::Metadata) -> Self {
        Self(i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec()))
    }
}

impl Tree {
    /// The processes of the first run in that folder, once each of them has left a mark.
    pub(super) fn grown(folder: &Path) -> Option<Self> {
        let one = |name| {
            let marks = fs::metadata(folder.join(format!("1.{name}.marks"))).ok()?;
            let pid = fs::read_to_string(folder.join(format!("1.{name}.pid"))).ok()?;
            let pid = pid.trim().parse().ok()?;
            (marks.len() > 0).then(|| Grown::seen(name, pid)).flatten()
        };
        let processes: Option<Vec<Grown>> = ROLES.into_iter().map(one).collect();
        Some(Self {
            folder: folder.to_owned(),
            processes: processes?,
        })
    }

    /// Notes which of them have gone, `after` the blow, and answers whether all have.
    pub(super) fn note_the_gone(&mut self, after: Duration) -> bool {
        let living = self.processes.iter_mut();
        for process in living.filter(|process| process.gone_after.is_none()) {
            if !process.is_alive() {
                process.gone_after = Some(after);
            }
        }
        self.processes
            .iter()
            .all(|process| process.gone_after.is_some())
    }

    pub(super) fn are_all_alive(&self) -> bool {
        self.processes.iter().all(Grown::is_alive)
    }

    /// What they have left so far; `None` if it cannot be read any more.
    pub(super) fn marks(&self) -> Option<Marks> {
        let files = self.processes.iter().map(|process| {
            fs::metadata(self.folder.join(format!("1.{}.marks", process.name))).ok()
        });
        let files: Vec<fs::Metadata> = files.collect::<Option<_>>()?;
        Some(Marks {
            count: files.iter().map(fs::Metadata::len).sum(),
            last: files.iter().map(FileTime::of).max()?,
        })
    }

    /// When the second run began, once it has.
    pub(super) fn second_run(&self) -> Option<FileTime> {
        let begun = fs::metadata(self.folder.join("2.begun")).ok()?;
        Some(FileTime::of(&begun))
    }
}

impl Grown {
    /// One that is gone, for cases that need no process.
    #[cfg(test)]
    pub(super) fn gone(name: &'static str, gone_after: Option<Duration>) -> Self {
        Self {
            name,
            pid: 12,
            parent: 11,
            group: 12,
            session: 10,
            gone_after,
            started: 0,
        }
    }

    fn seen(name: &'static str, pid: i32) -> Option<Self> {
        let shown = Shown::of(pid)?;
        Some(Self {
            name,
            pid,
            parent: shown.number(1)?,
            group: shown.number(2)?,
            session: shown.number(3)?,
            gone_after: None,
            started: shown.number(19)?,
        })
    }

    /// Whether it can execute. One that has ended and was not reaped cannot.
    fn is_alive(&self) -> bool {
        Shown::of(self.pid).is_some_and(|shown| {
            shown.number(19) == Some(self.started) && !matches!(shown.0[0].as_str(), "Z" | "X")
        })
    }
}

/// The fields of `/proc/PID/stat` that follow the name: state, parent, group, session, …; the twentieth
/// is when it was started.
struct Shown(Vec<String>);

impl Shown {
    fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in brackets and may hold anything, brackets included.
        let (_, after_name) = stat.rsplit_once(") ")?;
        let fields: Vec<String> = after_name.split(' ').map(str::to_owned).collect();
        (!fields.is_empty()).then_some(Self(fields))
    }

    fn number<T: std::str::FromStr>(&self, at: usize) -> Option<T> {
        self.0.get(at)?.parse().ok()
    }
}

/// Waits until no process is left whose folder lies in that one, so that nothing is written there any
/// more; a while at most.
pub(super) fn wait_until_left(folder: &Path) {
    let begun = SystemClock.elapsed();
    let is_left = || {
        let Ok(all) = fs::read_dir("/proc") else {
            return true;
        };
        let mut folders =
            all.filter_map(|entry| fs::read_link(entry.ok()?.path().join("cwd")).ok());
        !folders.any(|one| one.starts_with(folder))
    };
    while !is_left() && SystemClock.elapsed().since(begun) < LEAVE_PATIENCE {
        std::thread::park_timeout(LEAVE_LOOK);
    }
}

/// A warden takes milliseconds to end its command once the worker is dead.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);
/// How often is looked whether it has.
const LEAVE_LOOK: Duration = Duration::from_millis(5);

#[expect(
    clippy::ref_option,
    reason = "serde hands over a reference to the field"
)]
pub(super) fn as_ms<S: serde::Serializer>(
    length: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    length
        .map(|length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
        .serialize(serializer)
}
