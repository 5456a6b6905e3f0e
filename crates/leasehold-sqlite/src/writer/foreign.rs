//! Noticing what other processes commit, which is what a hint across processes is made of.

use std::time::{Duration, Instant};

use rusqlite::Connection;

/// How often a look is worth it: what a hint may be late by. A look costs microseconds.
pub(super) const FOREIGN_POLL: Duration = Duration::from_millis(100);

/// What other processes have committed. SQLite's counter leaves out this connection's own commits,
/// and the readers commit nothing.
pub(super) struct Foreign {
    version: Option<i64>,
    looked_at: Option<Instant>,
}

impl Foreign {
    /// What is committed from now on counts.
    pub(super) fn since_now(db: &Connection) -> Self {
        Self {
            version: data_version(db),
            looked_at: None,
        }
    }

    /// Whether another process has committed since the last look. Early calls do not look.
    #[expect(
        clippy::disallowed_methods,
        reason = "paces looks at a real file that real processes write; no decision hangs on it"
    )]
    pub(super) fn has_committed(&mut self, db: &Connection) -> bool {
        let now = Instant::now();
        let is_early = |at| now.duration_since(at) < FOREIGN_POLL;
        if self.looked_at.is_some_and(is_early) {
            return false;
        }
        self.looked_at = Some(now);
        let Some(version) = data_version(db) else {
            return false;
        };
        self.version.replace(version) != Some(version)
    }
}

/// A number that changes when another connection commits. Failing to read it costs one poll of the
/// worker's, and what is wrong shows in the next call.
fn data_version(db: &Connection) -> Option<i64> {
    let mut statement = db.prepare_cached("PRAGMA data_version").ok()?;
    statement.query_row((), |row| row.get(0)).ok()
}
