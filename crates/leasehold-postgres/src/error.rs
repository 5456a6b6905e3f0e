//! What Postgres could not do, in the words of the store promises.

use std::io::ErrorKind;

use leasehold_core::StoreError;
use tokio_postgres::error::SqlState;

#[cfg(test)]
mod tests;

/// Why a store could not be connected. None of it repeats the address, which may hold a password.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be read. Correct it.
    #[error("the database's address cannot be read: {0}")]
    Address(String),
    /// A certificate that the address names cannot be used. The text says why, and what to do.
    #[error("a certificate cannot be used: {0}")]
    Certificate(String),
    /// The schema's name is none that can be written without quotes. Choose another.
    #[error(
        "{0:?} is no name for a schema; use 1 to 63 lower-case letters, digits and _, beginning with a letter or _, \
         and no word of SQL"
    )]
    SchemaName(String),
    /// The database could not be reached, or refused. It may be passing.
    #[error("the database cannot be used: {0}")]
    Unusable(#[source] StoreError),
    /// The schema is not the one this build knows. The text says what to do.
    #[error("{0}")]
    Schema(String),
    /// A login cannot be what it is to be. The text says why and what to do.
    #[error("{0}")]
    Logins(String),
}

impl From<ConnectError> for StoreError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Unusable(source) => source,
            ConnectError::Schema(text) => Self::Schema(text),
            ConnectError::Address(_)
            | ConnectError::Certificate(_)
            | ConnectError::SchemaName(_)
            | ConnectError::Logins(_) => Self::Failed(error.to_string()),
        }
    }
}

/// What ends a unit of work: a [`StoreError`] into which Postgres's errors turn by `?`.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) StoreError, Option<SqlState>);

/// What a unit of work answers.
pub(crate) type Answer<T> = Result<T, Fault>;

impl Fault {
    /// What stands in the database is not what this program writes.
    pub(crate) fn damaged(what: impl std::fmt::Display) -> Self {
        StoreError::Failed(format!("the database is damaged: {what}")).into()
    }

    /// Whether what was to be written stands there already, by a unique index.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.1 == Some(SqlState::UNIQUE_VIOLATION)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(error, None)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refusal) = error.as_db_error() else {
            let text = match std::error::Error::source(&error) {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            return Self::from(if is_broken(&error) {
                StoreError::Unavailable(text)
            } else {
                StoreError::Failed(text)
            });
        };
        // Without the detail, which repeats the row's values.
        let text = refusal.message().to_owned();
        Self(
            judged(refusal.code().code(), text),
            Some(refusal.code().clone()),
        )
    }
}

/// Whether the connection is gone, rather than this program having asked for what cannot be sent or read.
fn is_broken(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    let broken = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    // That kind is what a message gets that cannot be written or understood.
    error.is_closed() || broken.is_some_and(|broken| broken.kind() != ErrorKind::InvalidInput)
}

pub(crate) fn judged(code: &str, text: String) -> StoreError {
    match code {
        // Serialisation, deadlock, lock not available, statement or lock time-out.
        "40001" | "40P01" | "55P03" | "57014" => StoreError::Retry(text),
        // No such table or column, no such schema, no such function.
        "42P01" | "42703" | "3F000" | "42883" => StoreError::Schema(text),
        // A prepared statement that is not there, or is there already: another session than the one asked before.
        "26000" | "42P05" => StoreError::Failed(format!(
            "{text} ({code}): a pooler gives each transaction another session; set `postgres.wakeup = \
             \"poll\"`, which needs none, or connect to the server itself"
        )),
        "42501" => StoreError::Failed(format!(
            "{text} ({code}); connect as the login that owns the tables, or let `leasehold migrate \
             --create-roles` give this one its rights"
        )),
        // Written to a server that is a standby now.
        "25006" => StoreError::Unavailable(text),
        code => match code.get(..2) {
            // Connection, resources, intervention, system.
            Some("08" | "53" | "57" | "58") => StoreError::Unavailable(text),
            // Data, integrity, limits of the program: a value too long for an index.
            Some("22" | "23" | "54") => StoreError::Refused(text),
            _ => StoreError::Failed(format!("{text} ({code})")),
        },
    }
}
