//! Connections and what each is set to.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::error::{Answer, Fault, OpenError};
use crate::options::{Durability, Options};

/// Room for every statement we have: none is ever prepared twice by a connection.
const STATEMENTS_MAX: usize = 128;

/// Pages of log after which a commit moves them into the file: about 16 MiB, so that a batch of a
/// thousand items does not pay for it each time, and reading stays fast.
const CHECKPOINT_PAGES: u32 = 4_000;

/// To which size the log is cut back after it was emptied: 64 MiB, in bytes.
const LOG_BYTES_MAX: u32 = 64 << 20;

/// Page cache of the writer and of each reader, in KiB.
const WRITER_CACHE_KIB: u32 = 8 << 10;
const READER_CACHE_KIB: u32 = 2 << 10;

/// How often a file that is being switched to write-ahead logging elsewhere is asked again: the
/// switch ignores the busy timeout.
const SWITCH_TRIES: u32 = 200;
const SWITCH_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// The connection that writes.
pub(crate) fn open_writer(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.creates {
        refuse_unshareable(path)?;
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
    } else {
        refuse_missing(path)?;
    }
    let opened = Connection::open_with_flags(path, flags).map_err(Fault::from);
    let set_up = opened.and_then(|db| set_up_writer(&db, options).map(|()| db));
    set_up.map_err(|fault| unusable(path, fault))
}

/// A connection that only reads. The writer's must be open: it is what creates the file's log.
pub(crate) fn open_reader(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open_query_only(path, flags, options)
}

fn open_query_only(
    path: &Path,
    flags: OpenFlags,
    options: &Options,
) -> Result<Connection, OpenError> {
    let opened = Connection::open_with_flags(path, flags).map_err(Fault::from);
    let set_up = opened.and_then(|db| {
        set_up(&db, options, READER_CACHE_KIB)?;
        db.pragma_update(None, "query_only", true)?;
        Ok(db)
    });
    set_up.map_err(|fault| unusable(path, fault))
}

/// A connection that looks at a file that may not be migrated, and leaves it as it is.
pub(crate) fn open_to_look(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    refuse_missing(path)?;
    // Not read-only to SQLite: without its writer, a log may have to be recovered first.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open_query_only(path, flags, options)
}

fn refuse_missing(path: &Path) -> Result<(), OpenError> {
    refuse_unshareable(path)?;
    if path.exists() {
        Ok(())
    } else {
        Err(OpenError::Missing { path: path.into() })
    }
}

fn refuse_unshareable(path: &Path) -> Result<(), OpenError> {
    let has_no_file = path.as_os_str().is_empty() || path.as_os_str() == ":memory:";
    if has_no_file || path.is_dir() {
        Err(OpenError::NotAFile { path: path.into() })
    } else {
        Ok(())
    }
}

pub(crate) fn unusable(path: &Path, fault: Fault) -> OpenError {
    OpenError::Unusable {
        path: path.into(),
        source: fault.into(),
    }
}

fn set_up_writer(db: &Connection, options: &Options) -> Answer<()> {
    set_up(db, options, WRITER_CACHE_KIB)?;
    use_write_ahead_log(db)?;
    let synchronous = match options.durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    db.pragma_update(None, "synchronous", synchronous)?;
    // On macOS a plain fsync leaves data in the disk's own cache; elsewhere these change nothing.
    let reaches_the_disk = options.durability == Durability::Full;
    db.pragma_update(None, "fullfsync", reaches_the_disk)?;
    db.pragma_update(None, "checkpoint_fullfsync", reaches_the_disk)?;
    db.pragma_update(None, "foreign_keys", true)?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    db.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES_MAX, |_| Ok(()))?;
    Ok(())
}

fn set_up(db: &Connection, options: &Options, cache_kib: u32) -> Answer<()> {
    db.busy_timeout(options.busy_timeout)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    db.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}

fn use_write_ahead_log(db: &Connection) -> Answer<()> {
    let mut tries = 1;
    let mode: String = loop {
        let switched = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match switched {
            Err(error) if is_busy(&error) && tries < SWITCH_TRIES => {
                tries += 1;
                std::thread::park_timeout(SWITCH_PAUSE);
            }
            answer => break answer?,
        }
    };
    if mode.eq_ignore_ascii_case("wal") {
        Ok(())
    } else {
        Err(Fault(leasehold_core::StoreError::Failed(format!(
            "it cannot keep a write-ahead log (its journal mode stays {mode:?}); put it on a local disk"
        ))))
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    )
}
