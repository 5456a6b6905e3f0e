//! What a demo came to, as it is shown in the end.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::manifest::Checked;
use super::story::Played;
use crate::failure::Failure;
use crate::screen::{Field, SCHEMA, Screen, Tone};

/// The account of one demo.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    schema: u32,
    kept: bool,
    items: usize,
    done_once: usize,
    rescued: Rescued,
    refused_writes: Refused,
    duplicates: usize,
    lost: usize,
    failed: usize,
    unexplained: usize,
    mismatched: usize,
    changed: usize,
    manifest: PathBuf,
    database: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Rescued {
    killed: usize,
    frozen: usize,
}

#[derive(Debug, Serialize)]
struct Refused {
    frozen: u64,
    other: u64,
}

/// How the duplicates were counted.
const FOOTNOTE: &str = "\
How it was counted: each worker tells every completion that the store accepted from it; what the killed
one could no longer tell was read from the store right after its death. An item accepted twice would
stand in that record twice. Refused writes are the workers' own metric,
leasehold_stale_writes_refused_total. Execution is at least once; completion is once.";

impl Account {
    pub(super) fn new(played: &Played, checked: Checked, manifest: PathBuf) -> Self {
        let tally = played.tally;
        // A worker whose count differs from the record makes the record worthless.
        let unexplained = tally.unexplained + usize::from(!played.counts_agree);
        let kept = played.rescued_from_killed > 0
            && played.rescued_from_frozen > 0
            && played.refused_frozen > 0
            && tally.once + tally.failed == tally.items
            && unexplained == 0
            && checked.mismatched == 0;
        Self {
            schema: SCHEMA,
            kept,
            items: tally.items,
            done_once: tally.once,
            rescued: Rescued {
                killed: played.rescued_from_killed,
                frozen: played.rescued_from_frozen,
            },
            refused_writes: Refused {
                frozen: played.refused_frozen,
                other: played.refused_other,
            },
            duplicates: tally.twice,
            lost: tally.lost,
            failed: tally.failed,
            unexplained,
            mismatched: checked.mismatched,
            changed: checked.changed,
            manifest,
            database: None,
        }
    }

    /// Whether every promise was kept.
    pub(super) const fn is_kept(&self) -> bool {
        self.kept
    }

    /// Prints it. `queue` is where the database is, if it was left to the person.
    pub(super) fn show(&mut self, queue: Option<&Path>, screen: &Screen) -> Result<(), Failure> {
        self.database = queue.map(Path::to_owned);
        if screen.is_json() {
            return screen.object(self);
        }
        if screen.is_terminal() {
            screen.talk("");
        }
        screen.table(&[], &self.rows())?;
        screen.talk("");
        screen.talk(FOOTNOTE);
        screen.talk("");
        screen.talk(&format!("manifest: {}", self.manifest.display()));
        if let Some(queue) = queue {
            let queue = queue.display();
            screen.talk(&format!("database: {queue}; look at it with"));
            screen.talk(&format!("  leasehold items list --database {queue}"));
        }
        let (colour, verdict) = if self.kept {
            (AnsiColor::Green, "every promise was kept")
        } else {
            (
                AnsiColor::Red,
                "a promise was broken; please report it, with the database",
            )
        };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        screen.talk(&format!("{style}{verdict}{style:#}"));
        Ok(())
    }

    fn rows(&self) -> Vec<Vec<Field>> {
        let must_be = |holds: bool| if holds { Tone::Good } else { Tone::Bad };
        let Rescued { killed, frozen } = self.rescued;
        let rescued = killed + frozen;
        let Refused {
            frozen: of_frozen,
            other: of_other,
        } = self.refused_writes;
        let mut refused_note = format!("{of_frozen} of the frozen worker, after it was let go");
        if of_other > 0 {
            // A machine this busy may keep a living worker from renewing in time: no harm done.
            let _ = write!(
                refused_note,
                ", {of_other} of one that came too late by itself"
            );
        }
        let mut rows: Vec<Vec<Field>> = Vec::new();
        let mut add = |name: &str, count: u64, tone, note: String| {
            rows.push(vec![name.into(), Field::toned(&count, tone), note.into()]);
        };
        let whole = self.done_once + self.failed == self.items;
        add("items", self.items as u64, Tone::Plain, String::new());
        add(
            "done once",
            self.done_once as u64,
            must_be(whole),
            String::new(),
        );
        add(
            "rescued",
            rescued as u64,
            must_be(killed > 0 && frozen > 0),
            format!("{killed} from the killed worker, {frozen} from the frozen one"),
        );
        add(
            "refused stale writes",
            of_frozen + of_other,
            must_be(of_frozen > 0),
            refused_note,
        );
        add(
            "duplicates",
            self.duplicates as u64,
            must_be(self.duplicates == 0),
            "items whose completion was accepted twice".to_owned(),
        );
        add(
            "lost",
            self.lost as u64,
            must_be(self.lost == 0),
            "items that are neither done nor failed".to_owned(),
        );
        for (name, count, tone, note) in [
            (
                "failed",
                self.failed,
                Tone::Busy,
                "files that went away meanwhile",
            ),
            (
                "changed",
                self.changed,
                Tone::Busy,
                "files that were changed meanwhile",
            ),
            (
                "unexplained",
                self.unexplained,
                Tone::Bad,
                "the record has a gap",
            ),
            (
                "wrong digests",
                self.mismatched,
                Tone::Bad,
                "the file says otherwise",
            ),
        ] {
            if count > 0 {
                add(name, count as u64, tone, note.to_owned());
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests;
