//! Finds the files of a folder, within bounds, and says what it left out.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use super::narrator::{Narrator, counted};
use crate::failure::Failure;
use crate::screen::plain;

/// Folders that hold what tools made: of no interest, and often larger than all the rest.
const LEFT_OUT: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".bzr",
    "CVS",
    "target",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "dist",
    "build",
    ".gradle",
    ".next",
    ".terraform",
    ".direnv",
    ".cache",
];

/// Larger files are passed over: the demo shows leases, not the speed of a disk.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// All files together, so that each can be hashed twice within seconds.
const BYTES_MAX: u64 = 512 << 20;

/// How many names are looked at, so that a search in a vast tree ends.
const NAMES_MAX: usize = 200_000;

/// How many folders deep.
const DEPTH_MAX: usize = 64;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// In the order of their paths.
    pub(super) files: Vec<Found>,
    left_out: LeftOut,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Relative to the folder.
    pub(super) path: String,
    /// What it looked like when it was found, to tell later whether it was changed.
    pub(super) stamp: Stamp,
}

/// Size and time of last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Of the file as it is now.
    pub(super) fn of(file: &Path) -> std::io::Result<Self> {
        fs::symlink_metadata(file).map(|metadata| Self::from(&metadata))
    }
}

impl From<&fs::Metadata> for Stamp {
    fn from(metadata: &fs::Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        }
    }
}

#[derive(Debug, Default)]
struct LeftOut {
    folders: usize,
    links: usize,
    special: usize,
    large: usize,
    unreadable: Vec<String>,
    cut: Option<String>,
}

/// So many unreadable files are named; the rest are counted.
const UNREADABLE_NAMED_MAX: usize = 5;

impl Scan {
    /// Looks through the folder, at most `limit` files.
    pub(super) fn of(folder: &Path, limit: usize) -> Result<Self, Failure> {
        let refuse = |why: String| {
            Failure::usage(format!("{} cannot be looked through", folder.display()))
                .because(why)
                .remedy("name a folder whose files you may read")
        };
        let metadata = fs::metadata(folder).map_err(|error| refuse(error.to_string()))?;
        if !metadata.is_dir() {
            return Err(refuse("it is no folder".to_owned()));
        }
        let mut search = Search {
            root: folder,
            limit,
            names: 0,
            bytes: 0,
            scan: Self::default(),
        };
        search.folder("", 0);
        let mut scan = search.scan;
        scan.files
            .sort_unstable_by(|one, other| one.path.cmp(&other.path));
        if scan.files.is_empty() {
            let mut why = "there is no file in it that can be hashed".to_owned();
            for line in scan.left_out.lines() {
                why.push_str("; ");
                why.push_str(&line);
            }
            return Err(
                Failure::usage(format!("{} gives no work", folder.display()))
                    .because(why)
                    .remedy("name a folder with some files, such as `leasehold demo ~/notes`"),
            );
        }
        Ok(scan)
    }

    /// Says what was found and what was left out.
    pub(super) fn tell(&self, folder: &Path, narrator: &Narrator) {
        narrator.say(&format!(
            "{} under {}: each becomes an item of work, to hash it and count its lines",
            counted(self.files.len(), "file"),
            folder.display()
        ));
        for line in self.left_out.lines() {
            narrator.note(&line);
        }
    }
}

impl LeftOut {
    fn lines(&self) -> Vec<String> {
        let mut left_out = Vec::new();
        for (count, noun, what) in [
            (self.folders, "folder", " that tools made (.git, target, …)"),
            (self.links, "symbolic link", ""),
            (self.special, "name", " of no plain file or no text"),
            (self.large, "file", " over 16 MiB"),
        ] {
            if count > 0 {
                left_out.push(format!("{}{what}", counted(count, noun)));
            }
        }
        let mut lines = Vec::new();
        if !left_out.is_empty() {
            lines.push(format!("left out: {}", left_out.join(", ")));
        }
        if !self.unreadable.is_empty() {
            let named = self.unreadable.iter().take(UNREADABLE_NAMED_MAX);
            let named: Vec<&str> = named.map(String::as_str).collect();
            let more = self.unreadable.len().saturating_sub(named.len());
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            lines.push(format!("unreadable: {}{more}", named.join(", ")));
        }
        if let Some(reason) = &self.cut {
            lines.push(format!("cut short: {reason}"));
        }
        lines
    }
}

struct Search<'a> {
    root: &'a Path,
    limit: usize,
    names: usize,
    bytes: u64,
    scan: Scan,
}

impl Search<'_> {
    fn is_cut(&self) -> bool {
        self.scan.left_out.cut.is_some()
    }

    fn cut(&mut self, reason: &str) {
        let cut = &mut self.scan.left_out.cut;
        cut.get_or_insert_with(|| reason.to_owned());
    }

    fn unreadable(&mut self, path: &str, error: &std::io::Error) {
        let name = if path.is_empty() { "." } else { path };
        self.scan
            .left_out
            .unreadable
            .push(format!("{} ({error})", plain(name)));
    }

    /// Looks through one folder, in the order of names, so that two runs find the same.
    fn folder(&mut self, path: &str, depth: usize) {
        let entries = match fs::read_dir(self.root.join(path)) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(path, &error),
        };
        let mut names = Vec::new();
        for entry in entries {
            self.names += 1;
            if self.names > NAMES_MAX {
                return self.cut("more than 200,000 names to look at");
            }
            match entry.map(|entry| entry.file_name().into_string()) {
                Ok(Ok(name)) => names.push(name),
                Ok(Err(_)) => self.scan.left_out.special += 1,
                Err(error) => self.unreadable(path, &error),
            }
        }
        names.sort_unstable();
        for name in names {
            if self.is_cut() {
                return;
            }
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            self.entry(&name, path, depth);
        }
    }

    fn entry(&mut self, name: &str, path: String, depth: usize) {
        let whole = self.root.join(&path);
        let metadata = match fs::symlink_metadata(&whole) {
            Ok(metadata) => metadata,
            Err(error) => return self.unreadable(&path, &error),
        };
        let kind = metadata.file_type();
        if kind.is_symlink() {
            self.scan.left_out.links += 1;
        } else if kind.is_dir() {
            if LEFT_OUT.contains(&name) {
                self.scan.left_out.folders += 1;
            } else if depth >= DEPTH_MAX {
                self.cut("folders more than 64 deep");
            } else {
                self.folder(&path, depth + 1);
            }
        } else if !kind.is_file() {
            self.scan.left_out.special += 1;
        } else if metadata.len() > FILE_BYTES_MAX {
            self.scan.left_out.large += 1;
        } else if let Err(error) = File::open(&whole) {
            self.unreadable(&path, &error);
        } else if self.scan.files.len() >= self.limit {
            self.cut(&format!(
                "there are more than the {} of --limit",
                self.limit
            ));
        } else if self.bytes + metadata.len() > BYTES_MAX {
            self.cut("the files found so far come to 512 MiB");
        } else {
            self.bytes += metadata.len();
            let stamp = Stamp::from(&metadata);
            self.scan.files.push(Found { path, stamp });
        }
    }
}

#[cfg(test)]
mod tests;
