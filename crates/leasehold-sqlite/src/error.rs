//! What SQLite could not do, in the words of the store promises.

use std::path::PathBuf;

use leasehold_core::StoreError;
use rusqlite::ErrorCode;

/// Why a file could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, and none was to be created.
    #[error("there is no database at {}; check the path, or open it without `without_creating`", path.display())]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// The path names nothing that several connections could share.
    #[error("{} is no file that connections can share; give the path of a file on a local disk, or use MemoryStore in tests", path.display())]
    NotAFile {
        /// What was given.
        path: PathBuf,
    },
    /// SQLite could not open or set up the file.
    #[error("cannot open the database at {}: {source}", path.display())]
    Unusable {
        /// Where.
        path: PathBuf,
        /// In the words of the store.
        source: StoreError,
    },
    /// The schema is not the one this build knows. The text says what to do.
    #[error("the database at {}: {reason}", path.display())]
    Schema {
        /// Where.
        path: PathBuf,
        /// Which versions, and what to do.
        reason: String,
    },
}

impl From<OpenError> for StoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Unusable { source, .. } => source,
            OpenError::Schema { .. } => Self::Schema(error.to_string()),
            OpenError::Missing { .. } | OpenError::NotAFile { .. } => {
                Self::Failed(error.to_string())
            }
        }
    }
}

/// What ends a unit of work: a [`StoreError`] into which SQLite's errors turn by `?`.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) StoreError);

/// What a unit of work answers.
pub(crate) type Answer<T> = Result<T, Fault>;

impl Fault {
    /// What stands in the file is not what this program writes.
    pub(crate) fn damaged(what: impl std::fmt::Display) -> Self {
        Self(StoreError::Failed(format!("the file is damaged: {what}")))
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let text = match &error {
            // Without the statement, which may be a whole migration.
            rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
            _ => error.to_string(),
        };
        Self(match error.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationInterrupted
                | ErrorCode::OperationAborted
                | ErrorCode::SchemaChanged,
            ) => StoreError::Retry(text),
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::DiskFull
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory,
            ) => StoreError::Unavailable(text),
            Some(
                ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
                | ErrorCode::ParameterOutOfRange,
            ) => StoreError::Refused(text),
            _ => StoreError::Failed(text),
        })
    }
}
