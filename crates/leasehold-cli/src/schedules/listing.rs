//! Schedules as rows, and as `--json` prints them.

use jiff::Timestamp;
use leasehold::core::{ScheduleId, ShortText};
use leasehold::schedule::{Schedule, timing_of};
use leasehold::{ItemId, JsonObject, Kind, Lane};
use serde::Serialize;

use crate::screen::{Field, Tone};
use crate::when;

pub(super) const HEADER: &[&str] = &[
    "name", "when", "zone", "kind", "state", "next", "last", "note",
];

/// Where a schedule stands, in a word.
fn state(schedule: &Schedule) -> &'static str {
    if schedule.paused.is_some() {
        "paused"
    } else if schedule.next_tick.is_none() {
        "over"
    } else if schedule.undeclared_at.is_some() {
        "undeclared"
    } else {
        "active"
    }
}

fn text(at: Option<Timestamp>) -> String {
    at.map(|at| at.to_string()).unwrap_or_default()
}

pub(super) fn for_people(schedules: &[Schedule], now: Timestamp) -> Vec<Vec<Field>> {
    let row = |schedule: &Schedule| {
        let state = state(schedule);
        let tone = match state {
            "active" => Tone::Good,
            "paused" => Tone::Busy,
            "undeclared" => Tone::Bad,
            _ => Tone::Plain,
        };
        let ago = |at: Option<Timestamp>| at.map(|at| when::relative(now, at)).unwrap_or_default();
        let pause = schedule.paused.as_ref();
        let note = pause.map(|pause| format!("by {}: {}", pause.by, pause.reason));
        let next = schedule.next_tick.filter(|_| pause.is_none());
        let definition = &schedule.definition;
        vec![
            definition.name.as_str().into(),
            definition.expression.as_str().into(),
            definition.zone.as_str().into(),
            definition.kind.as_str().into(),
            Field::toned(state, tone),
            ago(next).into(),
            ago(schedule.last_tick).into(),
            note.unwrap_or_default().into(),
        ]
    };
    schedules.iter().map(row).collect()
}

pub(super) fn for_pipes(schedules: &[Schedule]) -> Vec<Vec<Field>> {
    let row = |schedule: &Schedule| {
        let definition = &schedule.definition;
        vec![
            definition.name.as_str().into(),
            definition.expression.as_str().into(),
            definition.zone.as_str().into(),
            definition.kind.as_str().into(),
            definition.lane.as_str().into(),
            state(schedule).into(),
            text(schedule.next_tick).into(),
            text(schedule.last_tick).into(),
        ]
    };
    schedules.iter().map(row).collect()
}

/// One line for each thing that there is to say.
pub(super) fn in_full(schedule: &Schedule, document: &Document<'_>) -> Vec<Vec<Field>> {
    let mut rows: Vec<(&str, String)> = vec![
        ("name", document.name.to_owned()),
        ("state", document.state.to_owned()),
        ("expression", document.expression.to_owned()),
        ("in words", document.description.clone().unwrap_or_default()),
        ("zone", document.zone.to_owned()),
        ("kind", document.kind.to_string()),
        ("lane", document.lane.to_string()),
        ("priority", document.priority.to_string()),
        ("max_attempts", document.max_attempts.to_string()),
        ("missed", document.missed.clone()),
        ("overlap", document.overlap.clone()),
        ("next_tick", text(document.next_tick)),
        ("last_tick", text(document.last_tick)),
        (
            "last_item",
            document
                .last_item
                .map(|id| id.to_string())
                .unwrap_or_default(),
        ),
        ("starts_at", text(document.starts_at)),
        ("ends_at", text(document.ends_at)),
        (
            "declared_by",
            document.declared_by.unwrap_or_default().to_owned(),
        ),
        ("undeclared_at", text(document.undeclared_at)),
    ];
    if !schedule.definition.jitter.is_zero() {
        let jitter = format!("{:?}", schedule.definition.jitter);
        rows.push(("jitter", jitter));
    }
    if let Some(pause) = &document.paused {
        rows.push((
            "paused",
            format!("since {} by {}: {}", pause.since, pause.by, pause.reason),
        ));
    }
    if let Some(payload) = document.payload {
        rows.push(("payload", payload.as_str().to_owned()));
    }
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    rows.map(|(name, value)| vec![name.into(), value.into()])
        .collect()
}

/// The schedule of every JSON answer.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    id: ScheduleId,
    name: &'a str,
    state: &'static str,
    expression: &'a str,
    description: Option<String>,
    zone: &'a str,
    kind: &'a Kind,
    lane: &'a Lane,
    priority: i16,
    max_attempts: u32,
    missed: String,
    overlap: String,
    jitter_seconds: f64,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    declared_by: Option<&'a str>,
    undeclared_at: Option<Timestamp>,
    paused: Option<Pause<'a>>,
    next_tick: Option<Timestamp>,
    last_tick: Option<Timestamp>,
    last_item: Option<ItemId>,
    payload_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a JsonObject>,
}

#[derive(Debug, Serialize)]
struct Pause<'a> {
    reason: &'a ShortText,
    by: &'a ShortText,
    since: Timestamp,
}

impl<'a> Document<'a> {
    pub(super) fn of(schedule: &'a Schedule, payload: Option<&'a JsonObject>) -> Self {
        let definition = &schedule.definition;
        Self {
            id: schedule.id,
            name: &definition.name,
            state: state(schedule),
            expression: &definition.expression,
            description: timing_of(definition).ok().map(|timing| timing.to_string()),
            zone: &definition.zone,
            kind: &definition.kind,
            lane: &definition.lane,
            priority: definition.priority,
            max_attempts: definition.max_attempts,
            missed: definition.missed.to_string(),
            overlap: definition.overlap.to_string(),
            jitter_seconds: definition.jitter.as_secs_f64(),
            starts_at: definition.starts_at,
            ends_at: definition.ends_at,
            declared_by: schedule.declared_by.as_deref(),
            undeclared_at: schedule.undeclared_at,
            paused: schedule.paused.as_ref().map(|pause| Pause {
                reason: &pause.reason,
                by: &pause.by,
                since: pause.since,
            }),
            next_tick: schedule.next_tick,
            last_tick: schedule.last_tick,
            last_item: schedule.last_item,
            payload_bytes: definition.payload.as_str().len(),
            payload,
        }
    }
}
