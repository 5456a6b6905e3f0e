//! A Postgres server: whether it can be reached, and whether it keeps what a queue promises.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::SystemClock;
use leasehold::core::Clock as _;
use leasehold::core::time::short_length;
use leasehold_postgres::{Examination, VERSION_MIN};

use super::finding::Finding;
use super::storage::{DATABASE, judge_schema, missing, of_failure};
use crate::block_on;
use crate::database::{Place, Postgres, Verdict};

/// Of every database that the queue has.
pub(super) fn findings(server: &Postgres) -> Vec<Finding> {
    let places = server.places().iter();
    places.flat_map(of_place).collect()
}

fn of_place(place: &Place) -> Vec<Finding> {
    let before = SystemClock.now();
    let looked = block_on(place.examine());
    let after = SystemClock.now();
    let seen = match looked {
        Ok(seen) => seen,
        Err(failure) => return vec![of_failure(DATABASE, &failure)],
    };
    let steps = block_on(place.steps());
    let is_missing = matches!(&steps, Ok(all) if all.iter().all(|step| step.applied_at.is_none()));
    let mut findings = vec![
        if is_missing {
            missing(place)
        } else {
            judge_schema(place, steps)
        },
        judge_version(&seen),
        judge_writable(&seen),
        judge_durability(&seen),
        judge_connections(&seen, place.connections_max()),
        judge_clock(seen.now, before, after),
    ];
    findings.extend(judge_login(&seen, place.connections_by_runtime()));
    match block_on(place.examine_by_system()) {
        Ok(Some(seen)) => findings.extend(judge_login(&seen, place.connections_by_claiming())),
        Err(failure) => findings.push(of_failure(LOGIN, &failure)),
        Ok(None) => {}
    }
    if !is_missing {
        findings.push(match block_on(place.look_at_fence()) {
            Ok(views) => judge_fence(&Verdict::of(&views)),
            Err(failure) => of_failure(FENCE, &failure),
        });
    }
    findings
}

const FENCE: &str = "fence";

fn judge_fence(verdict: &Verdict) -> Finding {
    match verdict {
        Verdict::Up(what) => Finding::ok(FENCE, what),
        Verdict::Down { what, remedy } => Finding::warning(FENCE, what, remedy),
        Verdict::InTheWay { what, remedy } => Finding::error(FENCE, what, remedy),
    }
}

fn judge_version(seen: &Examination) -> Finding {
    const CHECK: &str = "version";
    let what = format!("the server is PostgreSQL {}", seen.version_name);
    if seen.version < VERSION_MIN {
        return Finding::error(
            CHECK,
            format!("{what}, which is older than {}", VERSION_MIN / 10_000),
            "upgrade the server",
        );
    }
    Finding::ok(CHECK, what)
}

fn judge_writable(seen: &Examination) -> Finding {
    const CHECK: &str = "writable";
    if seen.is_read_only {
        return Finding::error(
            CHECK,
            "the server takes no writes: it is a standby, or set to read only",
            "name the primary in the database's URL; target_session_attrs=read-write chooses it among several hosts",
        );
    }
    Finding::ok(CHECK, "the server takes writes")
}

/// What a commit waits for, if it waits for the disk.
const DURABLE: &[&str] = &["on", "local", "remote_write", "remote_apply"];

fn judge_durability(seen: &Examination) -> Finding {
    const CHECK: &str = "durability";
    if !seen.fsync {
        return Finding::warning(
            CHECK,
            "fsync is off: a power cut may lose or damage everything",
            "set fsync = on in the server's settings",
        );
    }
    let setting = seen.synchronous_commit.as_str();
    if !DURABLE.contains(&setting) {
        return Finding::warning(
            CHECK,
            format!(
                "synchronous_commit is {setting}: a crash of the server may forget claims and results that were answered, so that an item runs twice at once"
            ),
            "set synchronous_commit = on, for the server or for the user that workers connect as",
        );
    }
    Finding::ok(
        CHECK,
        format!("what is committed is on the disk (synchronous_commit is {setting})"),
    )
}

/// `needed` is what one process takes at most.
fn judge_connections(seen: &Examination, needed: usize) -> Finding {
    const CHECK: &str = "connections";
    let (max, in_use) = (seen.connections_max, seen.connections);
    let needed = i64::try_from(needed).unwrap_or(i64::MAX);
    let told = format!("at most {max} connections, of which {in_use} are in use");
    let fix = "raise max_connections of the server, or put a pooler before it; one in transaction mode needs \
               postgres.wakeup = \"poll\"";
    let what = format!("{told}; a worker's process takes up to {needed}");
    if max < needed {
        Finding::error(CHECK, what, fix)
    } else if max.saturating_sub(in_use) < needed {
        Finding::warning(CHECK, what, fix)
    } else {
        Finding::ok(CHECK, what)
    }
}

const LOGIN: &str = "login";

/// What the server takes from one login, if it has a limit of its own.
fn judge_login(seen: &Examination, needed: usize) -> Option<Finding> {
    let max = seen.login_connections_max?;
    let (login, in_use) = (&seen.login, seen.login_connections);
    let needed = i64::try_from(needed).unwrap_or(i64::MAX);
    let what = format!(
        "the login {login} may have {max} connections, of which {in_use} are in use; a worker's process takes \
         up to {needed} by it"
    );
    let fix = format!(
        "raise it with ALTER ROLE … CONNECTION LIMIT for {login}, or set postgres.connections lower"
    );
    Some(if max < needed {
        Finding::error(LOGIN, what, &fix)
    } else if max.saturating_sub(in_use) < needed {
        Finding::warning(LOGIN, what, &fix)
    } else {
        Finding::ok(LOGIN, what)
    })
}

/// Beyond this, times that people compare no longer fit together.
const SKEW_MAX: Duration = Duration::from_secs(2);

/// The server answered between two readings of our own clock.
fn judge_clock(theirs: Timestamp, before: Timestamp, after: Timestamp) -> Finding {
    const CHECK: &str = "clock";
    let (skew, way) = if theirs < before {
        (before.duration_since(theirs), "behind")
    } else {
        (theirs.duration_since(after), "ahead of")
    };
    // Within the two readings there is none that could be told.
    let skew = Duration::try_from(skew).unwrap_or_default();
    if skew <= SKEW_MAX {
        return Finding::ok(CHECK, "the server's clock and this machine's agree");
    }
    Finding::warning(
        CHECK,
        format!(
            "the server's clock is {} {way} this machine's; due times and leases go by the server's",
            short_length(skew)
        ),
        "keep both clocks with an NTP service, so that times in logs and commands mean the same",
    )
}

#[cfg(test)]
mod tests;
