//! A queue in a SQLite file.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::core::Clock as _;
use leasehold::{Client, SystemClock};
use leasehold_sqlite::{OpenError, Options};

use super::{CREATION_LOOK, CREATION_PATIENCE, Step, TO_CREATE};
use crate::failure::Failure;

/// The file of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sqlite {
    path: PathBuf,
}

impl Sqlite {
    /// By the path that a URL of the scheme names, or that was given without one.
    pub(super) fn parse(path: &str, has_scheme: bool) -> Result<Self, Failure> {
        if path.trim().is_empty() {
            return Err(Failure::usage("the database's path is empty")
                .because("--database, LEASEHOLD_DATABASE or the file of settings names no file")
                .remedy(GIVE_A_FILE));
        }
        if path.contains('\0') {
            return Err(Failure::usage("the database's path holds a zero character")
                .because("no file can be named so")
                .remedy(GIVE_A_FILE));
        }
        if has_scheme && path.contains('?') {
            return Err(Failure::usage("the database's URL has options after a ?")
                .because("a file is opened in one way, so there is nothing to choose")
                .remedy("leave the ? and what follows out"));
        }
        Ok(Self { path: path.into() })
    }

    /// With a relative path counted from that folder.
    pub(super) fn within(mut self, folder: &Path) -> Self {
        self.path = folder.join(self.path);
        self
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn open(&self) -> Result<Client, Failure> {
        self.open_with(options().without_creating().without_migrating())
    }

    pub(super) fn open_or_create(&self) -> Result<Client, Failure> {
        if !self.path.exists() {
            return self.open_with(options());
        }
        let begun = SystemClock.elapsed();
        loop {
            let as_it_is = options().without_creating().without_migrating();
            match leasehold_sqlite::open(&self.path, as_it_is) {
                // Somebody else, started at the same time, may be creating it just now.
                Err(OpenError::Schema { .. })
                    if self.is_young()
                        && SystemClock.elapsed().since(begun) < CREATION_PATIENCE =>
                {
                    std::thread::park_timeout(CREATION_LOOK);
                }
                opened => return Ok(Client::single_tenant(opened.map_err(refusal)?.stores())?),
            }
        }
    }

    fn open_with(&self, options: Options) -> Result<Client, Failure> {
        let store = leasehold_sqlite::open(&self.path, options).map_err(refusal)?;
        Ok(Client::single_tenant(store.stores())?)
    }

    /// Whether the file was written a moment ago; `false` where nobody can say.
    fn is_young(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| {
            let age = SystemClock.now().as_second().saturating_sub(file.mtime());
            age <= CREATION_PATIENCE.as_secs().cast_signed()
        })
    }

    pub(super) fn migrate(&self) -> Result<Vec<u32>, Failure> {
        leasehold_sqlite::migrate(&self.path, &options()).map_err(refusal)
    }

    pub(super) fn steps(&self) -> Result<Vec<Step>, Failure> {
        let all = leasehold_sqlite::status(&self.path, &options()).map_err(refusal)?;
        let step = |one: leasehold_sqlite::MigrationStatus| Step {
            version: one.version,
            name: one.name,
            applied_at: one.applied_at,
            // A file that a later build has migrated is refused.
            is_later: false,
        };
        Ok(all.into_iter().map(step).collect())
    }
}

impl fmt::Display for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

const GIVE_A_FILE: &str = "give a file, such as --database sqlite:leasehold.db";

/// How a file is opened unless a command says otherwise.
pub(crate) fn options() -> Options {
    Options::new(Arc::new(SystemClock))
}

/// What stood in the way of opening a file, in our three lines.
pub(crate) fn refusal(error: OpenError) -> Failure {
    if let OpenError::Missing { path } | OpenError::Unusable { path, .. } = &error
        && let Some(failure) = without_folder(path)
    {
        return failure;
    }
    match error {
        OpenError::Missing { path } => {
            Failure::cannot_open(format!("there is no database at {}", path.display()))
                .because("this command works on what is there, so it creates none")
                .remedy(TO_CREATE)
        }
        OpenError::NotAFile { path } => {
            Failure::cannot_open(format!("{} is no database file", path.display()))
                .because("several processes must be able to open it by its path")
                .remedy("give the path of a file on a local disk")
        }
        OpenError::Unusable { path, source } => {
            Failure::cannot_open(format!("the database at {} cannot be used", path.display()))
                .because(source)
                .remedy("check that it is a SQLite file on a local disk that you may write to")
        }
        OpenError::Schema { path, reason } => super::unfit(&path.display(), &reason),
        other => Failure::cannot_open("the database cannot be opened").because(other),
    }
}

/// A refusal if the file cannot be there because its folder is not.
fn without_folder(path: &Path) -> Option<Failure> {
    let folder = path.parent()?;
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return None;
    }
    let shown = folder.display();
    let (what, remedy) = if folder.exists() {
        (
            format!("{shown} is no folder"),
            "name a database elsewhere with --database",
        )
    } else {
        (
            format!("the folder {shown} is not there"),
            "make it, or name a database elsewhere with --database",
        )
    };
    Some(
        Failure::cannot_open(what)
            .because(format!("the database would be {}", path.display()))
            .remedy(remedy),
    )
}
