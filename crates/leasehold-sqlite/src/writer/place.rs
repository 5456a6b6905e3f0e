//! Noticing that the file which is open is no longer the one at its path: SQLite goes on with it and tells
//! nobody, while all others use the new one.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use leasehold_core::StoreError;
use rusqlite::Connection;

/// Where the open file was, and which it is.
pub(super) struct Place {
    /// `None` where it could not be told when it was opened; then it is not told later, either.
    own: Option<(PathBuf, Number)>,
}

/// Of the disk, and of the file there.
type Number = (u64, u64);

impl Place {
    pub(super) fn of(db: &Connection) -> Self {
        let path = db.path().map(PathBuf::from);
        let own = path.and_then(|path| {
            let number = number(&fs::metadata(&path).ok()?);
            Some((path, number))
        });
        Self { own }
    }

    /// Fails if the file was deleted, or another put in its place. A look costs about a microsecond.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let Some((path, own)) = &self.own else {
            return Ok(());
        };
        let what = match fs::metadata(path) {
            Ok(found) if number(&found) == *own => return Ok(()),
            Ok(_) => "another file was put in the place of",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "somebody has deleted",
            // Whatever it is, it says nothing of the file.
            Err(_) => return Ok(()),
        };
        Err(StoreError::Unavailable(format!(
            "{what} {}, so that what is written here would be lost; start this program again",
            path.display()
        )))
    }
}

fn number(file: &Metadata) -> Number {
    (file.dev(), file.ino())
}
