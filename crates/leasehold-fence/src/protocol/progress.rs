//! Progress that a command reports while it runs.

use super::MESSAGE_BYTES_MAX;
use super::output::{self, Words};
use crate::text::clip;

/// Begins a line of standard error that reports progress.
pub const PROGRESS_PREFIX: &str = "leasehold:progress ";

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100, rounded down.
    pub percent: u8,
    /// For people; empty if there was none. At most [`MESSAGE_BYTES_MAX`] bytes.
    pub note: String,
}

#[derive(serde::Deserialize)]
struct Report {
    percent: f64,
    note: Option<Words>,
}

impl Progress {
    /// Reads a line of standard error. `None` if it reports no progress, or not as it should: it is
    /// then a line like any other.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let report = line.strip_prefix(PROGRESS_PREFIX.as_bytes())?;
        let report: Report = output::object(report).ok()?.decode().ok()?;
        if !(0.0..=100.0).contains(&report.percent) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 100, as was just checked, and meant to be rounded down"
        )]
        let percent = report.percent as u8;
        let note = report
            .note
            .map_or(String::new(), |note| clip(note.as_str(), MESSAGE_BYTES_MAX));
        Some(Self { percent, note })
    }
}
