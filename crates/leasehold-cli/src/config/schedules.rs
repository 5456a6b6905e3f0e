//! The sections `[schedules.…]`: work that repeats.

use std::collections::BTreeMap;

use jiff::Timestamp;
use leasehold::core::text::clip;
use leasehold::schedule::{Missed, Overlap, ScheduleDefinition, Timing, timing_of};
use leasehold::schedule::{NAME_RULE, is_name};
use leasehold::{JsonObject, Kind, NewItem};

use super::kinds::KindConfig;
use super::page::{Entry, Table};
use super::problem::Complaint;
use super::worker::{lane, length};
use super::{Origin, Setting};
use crate::names::parse_kind;
use crate::when;

pub(super) const KEYS: &[&str] = &[
    "cron",
    "every",
    "zone",
    "kind",
    "payload",
    "lane",
    "priority",
    "max_attempts",
    "missed",
    "overlap",
    "starts_at",
    "ends_at",
    "jitter",
];

/// The schedules of the file, by name; each stands at the line of its section.
pub(crate) type Schedules = BTreeMap<String, Setting<ScheduleDefinition>>;

/// Reads every section. What a schedule does not say of its items, the section of its kind says.
pub(super) fn read(sections: &Table<'_>, kinds: &BTreeMap<Kind, KindConfig>) -> Schedules {
    let mut schedules = Schedules::new();
    for entry in sections.entries() {
        let Some(section) = entry.table() else {
            continue;
        };
        if let Some(value) = one(&section, &entry, kinds) {
            let origin = Origin::File { line: entry.line };
            schedules.insert(entry.name.to_owned(), Setting { value, origin });
        }
    }
    schedules
}

fn one(
    section: &Table<'_>,
    entry: &Entry<'_>,
    kinds: &BTreeMap<Kind, KindConfig>,
) -> Option<ScheduleDefinition> {
    section.allow(KEYS, |_| None);
    if !is_name(entry.name) {
        let what = format!("{:?} is no name of a schedule", clip(entry.name, 80));
        return entry.refuse(Complaint::new(what, NAME_RULE));
    }
    let kind = read_kind(section);
    let expression = read_expression(section);
    let of_kind = kind.as_ref().and_then(|kind| kinds.get(kind));
    let lane_of = of_kind.map_or_else(Setting::default, |kind| kind.lane.clone());
    let priority_of = of_kind.map_or_else(Setting::default, |kind| kind.priority.clone());
    let attempts_of = of_kind.map_or_else(
        || Setting::of(NewItem::MAX_ATTEMPTS),
        |kind| kind.max_attempts.clone(),
    );
    let mut settings = (
        lane_of,
        priority_of,
        attempts_of,
        Setting::of("UTC".to_owned()),
        Setting::of(JsonObject::empty()),
    );
    section.read("lane", &mut settings.0, lane);
    section.read("priority", &mut settings.1, |entry| {
        entry.whole(i16::MIN..=i16::MAX)
    });
    section.read("max_attempts", &mut settings.2, |entry| {
        entry.whole(1..=1_000_000)
    });
    section.read("zone", &mut settings.3, |entry| {
        entry.text("Europe/Berlin").map(str::to_owned)
    });
    section.read("payload", &mut settings.4, payload);
    let mut missed = Setting::of(Missed::default());
    section.read("missed", &mut missed, |entry| {
        let text = entry.text("once")?;
        entry.accept(text.parse().map_err(|_| {
            let what = format!("{} = {text:?} is not a choice", entry.path);
            Complaint::new(what, "choose skip, once or up-to-N with N from 1 to 100")
        }))
    });
    let mut overlap = Setting::of(Overlap::default());
    section.read("overlap", &mut overlap, |entry| {
        entry.choice(&[("allow", Overlap::Allow), ("skip", Overlap::Skip)])
    });
    let (mut starts, mut ends) = (Setting::default(), Setting::default());
    section.read("starts_at", &mut starts, |entry| instant(entry).map(Some));
    section.read("ends_at", &mut ends, |entry| instant(entry).map(Some));
    let mut jitter = Setting::default();
    section.read("jitter", &mut jitter, length);
    let (lane, priority, max_attempts, zone, payload) = settings;
    let mut definition = ScheduleDefinition::new(entry.name, expression?, kind?, payload.value);
    definition.lane = lane.value;
    definition.priority = priority.value;
    definition.max_attempts = max_attempts.value;
    definition.zone = zone.value;
    definition.missed = missed.value;
    definition.overlap = overlap.value;
    definition.starts_at = starts.value;
    definition.ends_at = ends.value;
    definition.jitter = jitter.value;
    entry.accept(timing_of(&definition).map_err(|error| {
        let what = format!("{}: {}: {}", entry.path, error.what(), error.why());
        Complaint::new(what, error.remedy())
    }))?;
    if definition.overlap == Overlap::Skip && matches!(definition.missed, Missed::UpTo(_)) {
        return entry.refuse(Complaint::new(
            format!(
                "{}: several missed ticks cannot be made at once where items must not overlap",
                entry.path
            ),
            "choose missed = \"once\" or \"skip\", or overlap = \"allow\"",
        ));
    }
    Some(definition)
}

fn read_kind(section: &Table<'_>) -> Option<Kind> {
    let Some(entry) = section.get("kind") else {
        section.complain(Complaint::new(
            format!("{} has no kind", section.path),
            "name the kind of work that its ticks enqueue, as in kind = \"REPORT\"",
        ));
        return None;
    };
    let text = entry.text("REPORT")?;
    entry.accept(parse_kind(text).map_err(|failure| Complaint::of(&failure)))
}

fn read_expression(section: &Table<'_>) -> Option<String> {
    match (section.get("cron"), section.get("every")) {
        (Some(cron), None) => cron.text("0 3 * * MON-FRI").map(str::to_owned),
        (None, Some(every)) => length(&every).map(Timing::every),
        (Some(_), Some(every)) => every.refuse(Complaint::new(
            format!("{} has both cron and every", section.path),
            "leave one of them out",
        )),
        (None, None) => {
            section.complain(Complaint::new(
                format!("{} says nothing of when", section.path),
                "add one, as in cron = \"0 3 * * MON-FRI\" or every = \"15m\"",
            ));
            None
        }
    }
}

fn payload(entry: &Entry<'_>) -> Option<JsonObject> {
    let text = entry.text(r#"{"region": "eu"}"#)?;
    entry.accept(JsonObject::parse(text).map_err(|error| {
        let what = format!("{} is no payload: {error}", entry.path);
        let remedy = "write a JSON object in single quotes, as in payload = '{\"region\": \"eu\"}'";
        Complaint::new(what, remedy)
    }))
}

fn instant(entry: &Entry<'_>) -> Option<Timestamp> {
    let text = entry.text("2027-01-31T09:00:00Z")?;
    entry.accept(when::instant(&entry.path, text).map_err(|failure| Complaint::of(&failure)))
}
