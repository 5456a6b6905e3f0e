//! Items as rows: for people on a terminal, and as columns for pipes.

use std::fmt::Write as _;

use jiff::Timestamp;
use leasehold::core::text::clip;
use leasehold::{Explanation, FailureCode, Status, WorkItem};

use super::{Bodies, Fate};
use crate::screen::{Field, Tone, plain};
use crate::when;

pub(super) const HEADER: &[&str] = &["id", "kind", "lane", "status", "attempts", "when", "note"];

/// As much of a note as a line of a table has room for, in bytes.
const NOTE_BYTES_MAX: usize = 60;

pub(super) fn for_people(items: &[WorkItem], now: Timestamp) -> Vec<Vec<Field>> {
    let row = |item: &WorkItem| {
        vec![
            item.id.into(),
            item.kind.as_str().into(),
            item.lane.as_str().into(),
            status_and_code(item),
            format!("{}/{}", item.attempts, item.max_attempts).into(),
            when_of(item, now).into(),
            clip(&plain(&note(item)), NOTE_BYTES_MAX).into(),
        ]
    };
    items.iter().map(row).collect()
}

pub(super) fn for_pipes(items: &[WorkItem]) -> Vec<Vec<Field>> {
    let row = |item: &WorkItem| {
        let worker = item.claimed_by.as_ref();
        vec![
            item.id.into(),
            item.kind.as_str().into(),
            item.lane.as_str().into(),
            item.status.as_str().into(),
            item.attempts.into(),
            item.max_attempts.into(),
            item.priority.into(),
            item.created_at.into(),
            item.updated_at.into(),
            item.available_at.into(),
            worker.map_or("", |worker| worker.as_str()).into(),
            note(item).into(),
            code(item).unwrap_or_default().into(),
        ]
    };
    items.iter().map(row).collect()
}

pub(super) fn fates(fates: &[Fate]) -> Vec<Vec<Field>> {
    let row = |fate: &Fate| {
        let tone = if fate.why_not.is_some() {
            Tone::Bad
        } else {
            Tone::Good
        };
        vec![fate.id.into(), Field::toned(fate.answer, tone)]
    };
    fates.iter().map(row).collect()
}

/// How instants are shown: as seen from now, or as they are.
pub(super) struct Times(Option<Timestamp>);

impl Times {
    /// As seen from `now`; without it as they are.
    pub(super) fn seen(now: Option<Timestamp>) -> Self {
        Self(now)
    }

    fn show(&self, instant: Timestamp) -> String {
        match self.0 {
            Some(now) => format!("{instant:.0}  ({})", when::relative(now, instant)),
            None => instant.to_string(),
        }
    }
}

pub(super) fn in_full(item: &WorkItem, times: &Times, bodies: Option<&Bodies>) -> Vec<Vec<Field>> {
    let mut rows: Vec<Vec<Field>> = Vec::new();
    let mut add = |name: &str, value: Field| rows.push(vec![name.into(), value]);
    add("id", item.id.into());
    add("kind", item.kind.as_str().into());
    add("lane", item.lane.as_str().into());
    add("status", status(item));
    if let Some(code) = &item.failure_code {
        add("failure code", code.as_str().into());
    }
    add("priority", item.priority.into());
    let attempts = format!("{} of {}", item.attempts, item.max_attempts);
    add("attempts", attempts.into());
    if item.worker_losses > 0 {
        add("workers lost", item.worker_losses.into());
    }
    add("claims", item.claim_seq.into());
    add("created", times.show(item.created_at).into());
    add("updated", times.show(item.updated_at).into());
    add("due", times.show(item.available_at).into());
    if let Some(worker) = &item.claimed_by {
        add("held by", worker.as_str().into());
    }
    if let Some(expires) = item.lease_expires_at {
        add("lease ends", times.show(expires).into());
    }
    if let Some(since) = item.cancel_requested_at {
        add("cancel asked", times.show(since).into());
    }
    if let Some(progress) = &item.progress {
        let percent = progress.percent;
        add("progress", format!("{percent} %: {}", progress.note).into());
    }
    if let Some(error) = &item.last_error {
        add("last note", error.as_str().into());
    }
    for error in &item.errors {
        let name = format!("attempt {}", error.attempt);
        let text = format!("{}: {}", times.show(error.at), error.message);
        add(&name, text.into());
    }
    add("key", item.idempotency_key.into());
    if let Some(header) = &item.traceparent {
        add("trace", header.as_str().into());
    }
    let hidden = |length: usize| format!("{length} bytes; --payload shows it");
    if let Some(bodies) = bodies {
        add("payload", bodies.payload.as_str().into());
        if let Some(result) = &bodies.result {
            add("result", result.as_str().into());
        }
    } else {
        add("payload", hidden(item.payload.as_str().len()).into());
        if let Some(result) = &item.result {
            add("result", hidden(result.as_str().len()).into());
        }
    }
    rows
}

/// Why it is where it is; `command` is the one that does what comes next, on a line of its own to copy.
pub(super) fn explained(explanation: &Explanation, command: Option<&str>) -> String {
    let item = &explanation.item;
    let (id, kind, lane, status) = (item.id, &item.kind, &item.lane, item.status);
    let mut text = format!("{id} ({kind} on lane {lane}) is {status}:\n");
    for reason in &explanation.reasons {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  - {}", plain(reason));
    }
    if let Some(next) = &explanation.next {
        let _ = writeln!(text, "next: {}", plain(next));
    }
    if let Some(command) = command {
        let _ = writeln!(text, "  {}", plain(command));
    }
    text
}

fn status(item: &WorkItem) -> Field {
    Field::toned(&item.status, tone(item))
}

/// The status, and for a failed item what it failed of.
fn status_and_code(item: &WorkItem) -> Field {
    match code(item) {
        Some(code) => Field::toned(&format!("{} ({code})", item.status), tone(item)),
        None => status(item),
    }
}

fn code(item: &WorkItem) -> Option<&str> {
    item.failure_code.as_ref().map(FailureCode::as_str)
}

fn tone(item: &WorkItem) -> Tone {
    match item.status {
        Status::Queued => Tone::Plain,
        Status::Claimed => Tone::Busy,
        Status::Done => Tone::Good,
        Status::Failed => Tone::Bad,
    }
}

/// The instant that matters most in the item's status.
fn when_of(item: &WorkItem, now: Timestamp) -> String {
    match (item.status, item.lease_expires_at) {
        (Status::Queued, _) => format!("due {}", when::relative(now, item.available_at)),
        (Status::Claimed, Some(expires)) if expires > now => {
            format!("lease ends {}", when::relative(now, expires))
        }
        (Status::Claimed, Some(expires)) => {
            format!("lease ended {}", when::relative(now, expires))
        }
        _ => when::relative(now, item.updated_at),
    }
}

/// Who holds it, or what was last said about it.
fn note(item: &WorkItem) -> String {
    match (&item.claimed_by, &item.last_error) {
        (Some(worker), _) => format!("held by {worker}"),
        (None, Some(error)) if item.status != Status::Done => error.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
