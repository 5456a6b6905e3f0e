//! What both acts came to, as it is shown in the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use leasehold::Status;
use serde::Serialize;

use super::act::Act;
use super::tree::{Grown, as_ms};
use crate::failure::Failure;
use crate::screen::{Field, SCHEMA, Screen, Tone};

/// The account of one demo.
#[derive(Debug, Serialize)]
pub(super) struct Account {
    schema: u32,
    kept: bool,
    acts: Vec<Entry>,
    database: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Entry {
    blow: &'static str,
    #[serde(skip)]
    signal: &'static str,
    kept: bool,
    processes: Vec<Grown>,
    #[serde(rename = "gone_after_ms", serialize_with = "as_ms")]
    gone_after: Option<Duration>,
    #[serde(rename = "lease_left_ms", serialize_with = "as_ms")]
    lease_left: Option<Duration>,
    #[serde(rename = "second_run_after_ms", serialize_with = "as_ms")]
    second_run_after: Option<Duration>,
    #[serde(rename = "silent_before_ms", serialize_with = "as_ms")]
    silent_before: Option<Duration>,
    marks: u64,
    late_marks: u64,
    status: Status,
    attempts: u32,
    fence: i64,
}

/// How it was found out.
const FOOTNOTE: &str = "\
How it was found out: each process leaves a mark in a file of its own every 50 ms, and the system stamps
the files. That a process is gone is read from /proc, by its number and the moment it was started. What
was left of the lease is the row's, by the store's clock.";

impl Entry {
    fn of(act: Act) -> Self {
        // The last of them; there is none while one still runs.
        let gone_after = act.processes.iter().map(|process| process.gone_after);
        let gone_after = gone_after.collect::<Option<Vec<_>>>();
        let gone_after = gone_after.and_then(|all| all.into_iter().max());
        let mut entry = Self {
            blow: act.blow.done(),
            signal: act.blow.signal(),
            kept: false,
            processes: act.processes,
            gone_after,
            lease_left: act.lease_left,
            second_run_after: Some(act.second_run_after),
            silent_before: act.silent_before,
            marks: act.marks,
            late_marks: act.late_marks,
            status: act.status,
            attempts: act.attempts,
            fence: act.fence,
        };
        entry.kept = entry.is_gone_in_time() && entry.is_apart() && entry.is_finished_once_more();
        entry
    }

    const fn is_gone_in_time(&self) -> bool {
        self.gone_after.is_some() && self.lease_left.is_some()
    }

    /// Whether nothing of the first run executed when the second began.
    const fn is_apart(&self) -> bool {
        self.marks > 0 && self.late_marks == 0 && self.silent_before.is_some()
    }

    fn is_finished_once_more(&self) -> bool {
        (self.status, self.attempts, self.fence) == (Status::Done, 2, 2)
    }
}

impl Account {
    pub(super) fn new(acts: Vec<Act>) -> Self {
        let acts: Vec<Entry> = acts.into_iter().map(Entry::of).collect();
        Self {
            schema: SCHEMA,
            kept: acts.iter().all(|act| act.kept),
            acts,
            database: None,
        }
    }

    /// Whether every promise was.
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
        let signals = self.acts.iter().map(|act| act.signal);
        let header: Vec<&str> = std::iter::once("").chain(signals).collect();
        screen.table(&header, &self.rows())?;
        screen.talk("");
        screen.talk(FOOTNOTE);
        screen.talk("");
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

    /// One column for each act.
    fn rows(&self) -> Vec<Vec<Field>> {
        let row = |name: &str, of: &dyn Fn(&Entry) -> Field| {
            let fields = self.acts.iter().map(of);
            std::iter::once(name.into()).chain(fields).collect()
        };
        let ms = |length: Option<Duration>, holds: bool| {
            let text = length.map_or_else(
                || "none".to_owned(),
                |one| format!("{} ms", one.as_millis()),
            );
            Field::toned(&text, must_be(holds))
        };
        vec![
            row("processes", &|act| act.processes.len().into()),
            row("all gone after", &|act| {
                ms(act.gone_after, act.gone_after.is_some())
            }),
            row("lease left then", &|act| {
                ms(act.lease_left, act.is_gone_in_time())
            }),
            row("second run after", &|act| {
                Field::from(format!(
                    "{} ms",
                    act.second_run_after.unwrap_or_default().as_millis()
                ))
            }),
            row("silence before it", &|act| {
                ms(act.silent_before, act.silent_before.is_some())
            }),
            row("marks of the first run", &|act| act.marks.into()),
            row("of them during the second", &|act| {
                Field::toned(&act.late_marks, must_be(act.late_marks == 0))
            }),
            row("the item", &|act| {
                let text = format!(
                    "{}, attempt {}, fence {}",
                    act.status, act.attempts, act.fence
                );
                Field::toned(&text, must_be(act.is_finished_once_more()))
            }),
        ]
    }
}

const fn must_be(holds: bool) -> Tone {
    if holds { Tone::Good } else { Tone::Bad }
}

#[cfg(test)]
mod tests;
