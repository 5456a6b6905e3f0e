//! The database and the disk it is on, and the folder for temporary files.

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs, statvfs};

use super::finding::Finding;
use super::{Case, server};
use crate::block_on;
use crate::database::{Database, Sqlite, Step};
use crate::failure::Failure;

pub(super) fn temporary(_: &Case) -> Vec<Finding> {
    let folder = std::env::temp_dir();
    let tried = tempfile::Builder::new()
        .prefix("leasehold-doctor-")
        .tempfile_in(&folder);
    vec![judge_temporary(&folder, tried.map(drop))]
}

fn judge_temporary(folder: &Path, tried: std::io::Result<()>) -> Finding {
    const CHECK: &str = "temporary";
    let folder = folder.display();
    match tried {
        Ok(()) => Finding::ok(CHECK, format!("temporary files can be made in {folder}")),
        Err(error) => Finding::warning(
            CHECK,
            format!("no temporary file can be made in {folder}: {error}"),
            "set TMPDIR to a folder that may be written to; commands are handed it",
        ),
    }
}

pub(super) fn database(case: &Case) -> Vec<Finding> {
    // What is wrong with the settings is told of them.
    let Ok(config) = &case.config else {
        return Vec::new();
    };
    let database = Database::of(config);
    let database = match database.and_then(|one| one.serving(config.calls_at_once())) {
        Ok(database) => database,
        Err(failure) => return vec![of_failure(DATABASE, &failure)],
    };
    match &database {
        Database::Sqlite(file) => in_file(file),
        Database::Postgres(place) => server::findings(place),
    }
}

fn in_file(database: &Sqlite) -> Vec<Finding> {
    let path = database.path();
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    if !folder.is_dir() {
        return vec![Finding::error(
            DATABASE,
            format!("the folder {} is not there", folder.display()),
            "make it, or name another database",
        )];
    }
    // As people see where that is.
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let mut findings = vec![judge_writable(&folder, path)];
    if let Ok(about) = statfs(&folder) {
        findings.push(judge_file_system(&folder, about.f_type));
    }
    if let Ok(about) = statvfs(&folder) {
        let free_bytes = about.f_bavail.saturating_mul(about.f_frsize);
        findings.push(judge_space(&folder, free_bytes));
    }
    let schema = block_on(Database::Sqlite(database.clone()).steps());
    let is_open = schema.is_ok();
    findings.push(if path.exists() {
        judge_schema(database, schema)
    } else {
        missing(database)
    });
    if is_open && let Ok(mode) = journal_mode(path) {
        findings.push(judge_journal(mode));
    }
    findings
}

pub(super) const DATABASE: &str = "database";

pub(super) fn of_failure(check: &'static str, failure: &Failure) -> Finding {
    let what = match failure.why() {
        Some(why) => format!("{}: {why}", failure.what()),
        None => failure.what().to_owned(),
    };
    Finding::error(check, what, failure.how().unwrap_or("correct it"))
}

fn judge_writable(folder: &Path, file: &Path) -> Finding {
    const CHECK: &str = "permissions";
    let may = |path: &Path, how| access(path, how).is_ok();
    let refused = if !may(folder, Access::WRITE_OK | Access::EXEC_OK) {
        folder
    } else if file.exists() && !may(file, Access::READ_OK | Access::WRITE_OK) {
        file
    } else {
        let what = format!("{} may be written to", folder.display());
        return Finding::ok(CHECK, what);
    };
    Finding::error(
        CHECK,
        format!("{} may not be written to by this user", refused.display()),
        "give the user that workers run as the right to write to the file and to its folder, where its log is made",
    )
}

/// What is wrong with a file system, if it is no local disk.
enum Flaw {
    /// Locks may not hold between machines, and the log is shared memory, which is not.
    Network,
    /// It is gone with the container or the machine.
    Passing,
}

/// By the numbers that `statfs` gives.
const FILE_SYSTEMS: &[(i64, &str, Flaw)] = &[
    (0x6969, "NFS", Flaw::Network),
    (0xff53_4d42, "CIFS", Flaw::Network),
    (0xfe53_4d42, "SMB", Flaw::Network),
    (0x517b, "SMB", Flaw::Network),
    (0x0102_1997, "9P", Flaw::Network),
    (0x6573_5546, "FUSE", Flaw::Network),
    (0x00c3_6400, "Ceph", Flaw::Network),
    (0x5346_414f, "AFS", Flaw::Network),
    (0x4750_3253, "GFS2", Flaw::Network),
    (0x0bd0_0bd0, "Lustre", Flaw::Network),
    (0x0102_1994, "tmpfs", Flaw::Passing),
    (0x8584_58f6, "ramfs", Flaw::Passing),
    (0x794c_7630, "an overlay", Flaw::Passing),
];

fn judge_file_system(folder: &Path, number: i64) -> Finding {
    const CHECK: &str = "file-system";
    let folder = folder.display();
    // Some machines give it as a signed number of 32 bits.
    let number = number & 0xffff_ffff;
    match FILE_SYSTEMS.iter().find(|(known, ..)| *known == number) {
        Some((_, name, Flaw::Network)) => Finding::warning(
            CHECK,
            format!("{folder} is on {name}, where the locks of SQLite may not hold"),
            "put the database on a local disk of the machine that runs the workers",
        ),
        Some((_, name, Flaw::Passing)) => Finding::warning(
            CHECK,
            format!("{folder} is on {name}: the queue is lost with the machine or the container"),
            "put the database on a disk or a volume that is kept",
        ),
        None => Finding::ok(CHECK, format!("{folder} is on a local disk")),
    }
}

/// Below this no claim can be written before long: a log may grow to some dozens of megabytes.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// Below this somebody should look.
const FREE_BYTES_GOOD: u64 = 1 << 30;

fn judge_space(folder: &Path, free_bytes: u64) -> Finding {
    const CHECK: &str = "disk";
    let what = format!("{} MiB are free in {}", free_bytes >> 20, folder.display());
    let fix =
        "make room, or move the database; item_retention says how long finished items are kept";
    match free_bytes {
        ..FREE_BYTES_MIN => Finding::error(CHECK, what, fix),
        FREE_BYTES_MIN..FREE_BYTES_GOOD => Finding::warning(CHECK, what, fix),
        _ => Finding::ok(CHECK, what),
    }
}

/// There is no queue yet.
pub(super) fn missing(place: &dyn Display) -> Finding {
    Finding::warning(
        DATABASE,
        format!("there is no queue at {place} yet"),
        "`leasehold migrate` creates it, and so does the first `leasehold enqueue`",
    )
}

/// Whether a schema is this build's.
pub(super) fn judge_schema(place: &dyn Display, schema: Result<Vec<Step>, Failure>) -> Finding {
    let all = match schema {
        Ok(all) => all,
        Err(failure) => return of_failure(DATABASE, &failure),
    };
    let pending = all.iter().filter(|one| one.applied_at.is_none());
    let pending: Vec<String> = pending.map(|one| one.version.to_string()).collect();
    if pending.is_empty() {
        let what = format!("{place} opens, and has this build's schema");
        return Finding::ok(DATABASE, what);
    }
    Finding::error(
        DATABASE,
        format!("{place} is behind this build's schema"),
        &format!(
            "run `leasehold migrate`: it would apply {}",
            pending.join(", ")
        ),
    )
}

/// How a SQLite file is written, as its header says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Journal {
    WriteAhead,
    Rollback,
}

fn journal_mode(path: &Path) -> std::io::Result<Journal> {
    let mut header = [0; HEADER_BYTES];
    File::open(path)?.read_exact(&mut header)?;
    Ok(read_journal(header))
}

/// As far as the file's versions for writers and readers.
const HEADER_BYTES: usize = 20;

const fn read_journal(header: [u8; HEADER_BYTES]) -> Journal {
    if header[18] == 2 && header[19] == 2 {
        Journal::WriteAhead
    } else {
        Journal::Rollback
    }
}

fn judge_journal(mode: Journal) -> Finding {
    const CHECK: &str = "journal";
    match mode {
        Journal::WriteAhead => Finding::ok(CHECK, "the database keeps a write-ahead log"),
        Journal::Rollback => Finding::warning(
            CHECK,
            "the database keeps no write-ahead log, so that readers and writers wait for each other",
            "start a worker on it: opening it to write turns the log on",
        ),
    }
}

#[cfg(test)]
mod tests;
