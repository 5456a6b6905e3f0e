//! The schema's versions, forward only, each applied once in a transaction of its own.
//!
//! The table `leasehold_migrations` says which were applied. A migration's text never changes once
//! released: its checksum is stored, and a file that was migrated by another text is refused.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::{Clock, StoreError};
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::connection::{self, unusable};
use crate::error::{Answer, Fault, OpenError};
use crate::options::Options;
use crate::rows::{self, Columns};

struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

/// The text of a migration, by its number and name.
macro_rules! migration {
    ($version:literal, $name:literal, $file:literal) => {
        Migration {
            version: $version,
            name: $name,
            sql: include_str!($file),
        }
    };
}

const MIGRATIONS: &[Migration] = &[
    migration!(1, "work", "../migrations/0001_work.sql"),
    migration!(2, "tenancy", "../migrations/0002_tenancy.sql"),
    migration!(3, "events", "../migrations/0003_events.sql"),
    migration!(4, "outbox", "../migrations/0004_outbox.sql"),
    migration!(5, "markers", "../migrations/0005_markers.sql"),
    migration!(6, "schedules", "../migrations/0006_schedules.sql"),
    migration!(7, "liveness", "../migrations/0007_liveness.sql"),
];

/// The checksum of a text is a UUID of version 5 in this namespace.
const CHECKSUMS: Uuid = Uuid::from_u128(0x8a53_1e0d_7c1b_4f0a_a2a6_0f5e_5b9d_11c7);

impl Migration {
    /// Line ends do not count: a checkout may have changed them.
    fn checksum(&self) -> String {
        let text = self.sql.replace("\r\n", "\n");
        Uuid::new_v5(&CHECKSUMS, text.as_bytes()).to_string()
    }
}

/// One migration, and whether the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStatus {
    /// From 1, without gaps.
    pub version: u32,
    /// What it is about.
    pub name: String,
    /// When it was applied, by the clock of whoever did; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
    /// How long that took.
    pub took: Option<Duration>,
    /// Its statements, for showing what is about to be done.
    pub sql: &'static str,
}

/// Every migration of this build and whether the file has it. Changes nothing.
///
/// # Errors
/// [`OpenError`] if the file is not there, cannot be read, or is newer than this build.
pub fn status(
    path: impl AsRef<Path>,
    options: &Options,
) -> Result<Vec<MigrationStatus>, OpenError> {
    let path = path.as_ref();
    let db = connection::open_to_look(path, options)?;
    let applied = verified(&db).map_err(|refusal| refusal.at(path))?;
    let all = MIGRATIONS.iter().map(|migration| {
        let done = applied
            .iter()
            .find(|done| done.version == migration.version);
        MigrationStatus {
            version: migration.version,
            name: migration.name.to_owned(),
            applied_at: done.map(|done| done.at),
            took: done.map(|done| done.took),
            sql: migration.sql,
        }
    });
    Ok(all.collect())
}

/// Applies what is pending, creating the file if the options allow; the versions that were applied.
///
/// # Errors
/// [`OpenError`] says what is wrong. Migrations before the one that failed are kept.
pub fn migrate(path: impl AsRef<Path>, options: &Options) -> Result<Vec<u32>, OpenError> {
    let path = path.as_ref();
    let db = connection::open_writer(path, options)?;
    apply(&db, &*options.clock).map_err(|refusal| refusal.at(path))
}

/// Why the schema is not usable.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is not the one this build knows; the text says what to do.
    Schema(String),
    /// It could not be read or written.
    Fault(Fault),
}

impl Refusal {
    pub(crate) fn at(self, path: &Path) -> OpenError {
        match self {
            Self::Schema(reason) => OpenError::Schema {
                path: path.into(),
                reason,
            },
            Self::Fault(fault) => unusable(path, fault),
        }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Applies what is pending.
pub(crate) fn apply(db: &Connection, clock: &dyn Clock) -> Result<Vec<u32>, Refusal> {
    let mut versions = Vec::new();
    // Looks without a lock first: nearly always there is nothing to do, and nobody to wait for.
    let applied = verified(db)?;
    for migration in pending(&applied) {
        if apply_one(db, migration, clock)? {
            tracing::info!(
                version = migration.version,
                name = migration.name,
                "migrated"
            );
            versions.push(migration.version);
        }
    }
    Ok(versions)
}

/// Refuses a file that is not at this build's version.
pub(crate) fn check(db: &Connection) -> Result<(), Refusal> {
    let applied = verified(db)?;
    match pending(&applied).next() {
        None => Ok(()),
        Some(_) => Err(Refusal::Schema(format!(
            "its schema is at version {}, and this build needs version {}; run `leasehold migrate`, \
             or open it without `without_migrating`",
            applied.len(),
            MIGRATIONS.len()
        ))),
    }
}

fn pending(applied: &[Applied]) -> impl Iterator<Item = &'static Migration> {
    let last = applied.last().map_or(0, |done| done.version);
    MIGRATIONS
        .iter()
        .filter(move |migration| migration.version > last)
}

/// One migration in one transaction. `false`: somebody else was first.
fn apply_one(db: &Connection, migration: &Migration, clock: &dyn Clock) -> Result<bool, Refusal> {
    let started = clock.elapsed();
    db.execute_batch("BEGIN IMMEDIATE").map_err(Fault::from)?;
    let applied = verified(db).and_then(|applied| {
        if applied.iter().any(|done| done.version == migration.version) {
            return Ok(false);
        }
        db.execute_batch(LEDGER).map_err(Fault::from)?;
        db.execute_batch(migration.sql).map_err(|error| {
            let Fault(cause) = Fault::from(error);
            Fault(StoreError::Failed(format!(
                "migration {migration}: {cause}"
            )))
        })?;
        let took = clock.elapsed().since(started);
        record(db, migration, clock.now(), took)?;
        db.execute_batch("COMMIT").map_err(Fault::from)?;
        Ok(true)
    });
    if !db.is_autocommit() {
        db.execute_batch("ROLLBACK").map_err(Fault::from)?;
    }
    applied
}

const LEDGER: &str = "
    CREATE TABLE IF NOT EXISTS leasehold_migrations (
        version       INTEGER PRIMARY KEY,
        name          TEXT    NOT NULL,
        checksum      TEXT    NOT NULL,
        applied_at    INTEGER NOT NULL, -- microseconds since 1970, UTC
        took          INTEGER NOT NULL  -- microseconds
    ) STRICT";

fn record(db: &Connection, migration: &Migration, now: Timestamp, took: Duration) -> Answer<()> {
    let took = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
    db.execute(
        "INSERT INTO leasehold_migrations (version, name, checksum, applied_at, took)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            migration.version,
            migration.name,
            migration.checksum(),
            now.as_microsecond(),
            took
        ],
    )?;
    Ok(())
}

struct Applied {
    version: u32,
    name: String,
    checksum: String,
    at: Timestamp,
    took: Duration,
}

/// What the file has, if it is a prefix of what this build knows.
fn verified(db: &Connection) -> Result<Vec<Applied>, Refusal> {
    let applied = recorded(db)?;
    for (done, version) in applied.iter().zip(1..) {
        let Some(known) = MIGRATIONS
            .iter()
            .find(|known| known.version == done.version)
        else {
            return Err(Refusal::Schema(format!(
                "its schema is at version {}, and this build knows versions up to {}; upgrade this \
                 program",
                applied.last().map_or(0, |last| last.version),
                MIGRATIONS.len()
            )));
        };
        if done.version != version {
            return Err(Refusal::Schema(format!(
                "migration {version} is missing from leasehold_migrations, though later ones are \
                 there; restore the file from a backup"
            )));
        }
        if done.checksum != known.checksum() {
            return Err(Refusal::Schema(format!(
                "migration {known} was applied from another text (as {:?}, checksum {}, and this \
                 build has {}); use the build that made the file, or restore it from a backup",
                done.name,
                done.checksum,
                known.checksum()
            )));
        }
    }
    Ok(applied)
}

fn recorded(db: &Connection) -> Answer<Vec<Applied>> {
    // By a statement, which looks at the file as it is now; the schema that the connection remembers
    // may be from before somebody else migrated it.
    let mut exists = db.prepare_cached(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'leasehold_migrations'",
    )?;
    if !exists.exists(())? {
        return Ok(Vec::new());
    }
    let mut statement = db.prepare_cached(
        "SELECT version, name, checksum, applied_at, took
         FROM leasehold_migrations ORDER BY version",
    )?;
    rows::collect(&mut statement, (), |row| {
        let mut columns = Columns::of(row);
        Ok(Applied {
            version: columns.count()?,
            name: columns.text()?.to_owned(),
            checksum: columns.text()?.to_owned(),
            at: columns.timestamp()?,
            took: Duration::from_micros(u64::try_from(columns.plain::<i64>()?).unwrap_or(0)),
        })
    })
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.name)
    }
}
