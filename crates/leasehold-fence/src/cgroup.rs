//! A control group for each run, where the system has handed us one to divide: killing it leaves no
//! gap, not even to processes that multiply while they are hunted. Never required.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// The folder of the control group this process is in, if each run is given a group of its own below
/// it, to be killed as a whole.
///
/// It is where the group is the root of what this process can see, or was marked as delegated by the
/// service manager. A group that is merely writable belongs to somebody else's accounting. Nothing
/// depends on it: without one the tree is hunted down process by process. Makes a group and removes it,
/// to see.
///
/// # Errors
/// Why runs are given none, for people.
pub fn delegated() -> Result<PathBuf, &'static str> {
    let groups = fs::read_to_string("/proc/self/cgroup")
        .map_err(|_| "this process's control groups cannot be read")?;
    let own = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("this process is in no unified control group (cgroup v2)")?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|_| "the mounted file systems cannot be read")?;
    let folder = mounts
        .lines()
        .find_map(|mount| folder_in(mount, own))
        .ok_or(
            "the unified control groups (cgroup v2) are not mounted where this process sees them",
        )?;
    if own != "/" && !is_marked(&folder) {
        return Err("the control group of this process is not delegated to it");
    }
    let kill_switch =
        tried(&folder).map_err(|_| "the control group of this process is read-only")?;
    if !kill_switch {
        return Err("this kernel cannot kill a whole control group (Linux 5.14 can)");
    }
    Ok(folder)
}

/// The folder of the group, if the mount is one of unified groups and shows it.
fn folder_in(mount: &str, own: &str) -> Option<PathBuf> {
    let (where_, what) = mount.split_once(" - ")?;
    if what.split(' ').next()? != "cgroup2" {
        return None;
    }
    let mut fields = where_.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = Path::new(own).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

fn is_marked(folder: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 1];
        rustix::fs::getxattr(folder, *name, &mut value).is_ok() && value == *b"1"
    })
}

/// Makes a group and removes it, and answers whether it could have been killed as a whole.
fn tried(folder: &Path) -> io::Result<bool> {
    let group = folder.join(format!("leasehold-try-{}", std::process::id()));
    fs::create_dir(&group)?;
    let has_switch = group.join("cgroup.kill").exists();
    fs::remove_dir(&group)?;
    Ok(has_switch)
}

/// Within what a process's number is its own: two containers may share a group and not their numbers.
fn numbering() -> String {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let name = namespace.to_string_lossy();
    name.chars().filter(char::is_ascii_digit).collect()
}

/// A run's own group.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    /// Opened when it is made: a command may take the means to open it later.
    switch: Option<File>,
}

impl Group {
    /// Makes one for the run of that warden.
    pub(crate) fn create(parent: &Path, warden: Pid) -> io::Result<Self> {
        let mut group = Self::of(parent, warden);
        fs::create_dir(&group.folder).or_else(|error| {
            // Left by a warden of that number that was killed together with its spawner. Refused if
            // something executes in it.
            if error.kind() == io::ErrorKind::AlreadyExists {
                group.remove()?;
                return fs::create_dir(&group.folder);
            }
            Err(error)
        })?;
        group.switch = OpenOptions::new().write(true).open(group.kill_file()).ok();
        Ok(group)
    }

    /// The one that was made for the run of that warden.
    pub(crate) fn of(parent: &Path, warden: Pid) -> Self {
        Self {
            folder: parent.join(format!("leasehold-run-{}-{warden}", numbering())),
            switch: None,
        }
    }

    fn kill_file(&self) -> PathBuf {
        self.folder.join("cgroup.kill")
    }

    /// Moves a process into it; what that starts is in it from the beginning.
    pub(crate) fn take(&self, process: Pid) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }

    /// Kills every process in it, at once.
    pub(crate) fn kill(&self) {
        // The tree is hunted down one by one as well, so nothing depends on this.
        let _ = match &self.switch {
            Some(switch) => switch.write_all_at(b"1", 0),
            None => fs::write(self.kill_file(), "1"),
        };
    }

    /// Removes it, and what the command has made below it. Refused by the system while a process is in
    /// one of them.
    pub(crate) fn remove(&self) -> io::Result<()> {
        remove(&self.folder, DEPTH_MAX)
    }
}

/// A group that a command divided further than this stays for a person to look at.
const DEPTH_MAX: usize = 32;

fn remove(folder: &Path, depth: usize) -> io::Result<()> {
    if depth > 0 {
        for entry in fs::read_dir(folder)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&entry.path(), depth - 1)?;
            }
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests;
