//! The section `[step_functions]`: the queue that tasks come from, and which kind runs which of them.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::Kind;
use leasehold_aws::{ProtectionMode, Route, Routes, StepFunctionsSettings};
use leasehold_fence::protocol::{Channel, Level, RegisteredError, RegisteredErrors};
use serde_json::Value;

use super::kinds::{KindConfig, LEVELS};
use super::page::{Entry, Table, join};
use super::problem::Complaint;
use super::worker::length;
use super::{Origin, Setting, units};
use crate::names::parse_kind;

/// Where tasks come from and how they are treated.
pub(crate) struct StepFunctionsConfig {
    /// The queue's address.
    pub(crate) queue: String,
    /// The field of a request whose text chooses the kind; `None`: there is one kind.
    pub(crate) route_by: Option<String>,
    pub(crate) settings: StepFunctionsSettings,
    pub(crate) routes: Routes,
    /// As the file has them, for whoever asks what holds.
    pub(super) values: Vec<(String, Setting<Value>)>,
}

pub(super) const KEYS: &[&str] = &[
    "queue",
    "capacity",
    "heartbeat_interval",
    "message_processing_timeout",
    "poll_wait",
    "protection",
    "protection_period",
    "stop_time",
    "stop_grace",
    "output_bytes_max",
    "token_field",
    "route_by",
    "routes",
    "unsupported",
];

const UNSUPPORTED_KEYS: &[&str] = &["error", "level"];

const MODES: &[(&str, ProtectionMode)] = &[
    ("required", ProtectionMode::Required),
    ("optional", ProtectionMode::Optional),
    ("off", ProtectionMode::Off),
];

/// The name of the error of a request that no route takes, unless the section names another.
const UNSUPPORTED: &str = "UnsupportedRequest";

type Length = fn(&mut StepFunctionsSettings) -> &mut Duration;

const LENGTHS: &[(&str, Length)] = &[
    ("heartbeat_interval", |s| &mut s.heartbeat_interval),
    ("message_processing_timeout", |s| {
        &mut s.message_processing_timeout
    }),
    ("poll_wait", |s| &mut s.poll_wait),
    ("protection_period", |s| &mut s.protection_period),
    ("stop_time", |s| &mut s.stop_time),
    ("stop_grace", |s| &mut s.stop_grace),
];

/// Reads the section; `kinds` are those of the file.
pub(super) fn read(
    section: &Table<'_>,
    kinds: &BTreeMap<Kind, KindConfig>,
) -> Option<StepFunctionsConfig> {
    section.allow(KEYS, |_| None);
    let queue = section.get("queue").and_then(|entry| queue(&entry));
    if section.get("queue").is_none() {
        section.complain(Complaint::new(
            format!("{} has no queue", section.path),
            "add its address, as in queue = \"https://sqs.eu-west-1.amazonaws.com/123456789012/tasks\"",
        ));
    }
    let settings = settings(section);
    let route_by = section
        .get("route_by")
        .and_then(|entry| entry.text("type").map(str::to_owned));
    let routes = routes(section, route_by.as_deref(), kinds);
    Some(StepFunctionsConfig {
        values: values(section, &settings),
        queue: queue?,
        route_by,
        settings,
        routes: routes?,
    })
}

fn queue(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text("https://sqs.eu-west-1.amazonaws.com/123456789012/tasks")?;
    if text.starts_with("https://") || text.starts_with("http://") {
        return Some(text.to_owned());
    }
    entry.refuse(Complaint::new(
        format!("{} = {text:?} is no address of a queue", entry.path),
        "write the URL that `aws sqs get-queue-url` answers",
    ))
}

fn settings(section: &Table<'_>) -> StepFunctionsSettings {
    let mut settings = StepFunctionsSettings::default();
    let set = |name: &str| section.get(name);
    for (name, slot) in LENGTHS {
        if let Some(value) = set(name).and_then(|entry| length(&entry)) {
            *slot(&mut settings) = value;
        }
    }
    if let Some(value) = set("capacity").and_then(|entry| entry.whole(0..=u32::MAX)) {
        settings.capacity = value;
    }
    if let Some(value) = set("protection").and_then(|entry| entry.choice(MODES)) {
        settings.protection = value;
    }
    if let Some(value) = set("output_bytes_max").and_then(|entry| bytes(&entry)) {
        settings.output_bytes_max = value;
    }
    if let Some(value) = set("token_field").and_then(|entry| entry.text("task_token")) {
        value.clone_into(&mut settings.token_field);
    }
    if let Err(error) = settings.check() {
        let name = join(&section.path, error.setting);
        let complaint = Complaint::new(
            format!("{name} = {} is not acceptable", error.given),
            format!("it must be {}", error.rule),
        );
        match set(error.setting) {
            Some(entry) => entry.complain(complaint),
            None => section.complain(complaint),
        }
    }
    settings
}

fn bytes(entry: &Entry<'_>) -> Option<usize> {
    let text = entry.measure("\"200KiB\"")?;
    entry.accept(units::bytes(&entry.path, text))
}

fn routes(
    section: &Table<'_>,
    route_by: Option<&str>,
    kinds: &BTreeMap<Kind, KindConfig>,
) -> Option<Routes> {
    let table = section.get("routes").map(|entry| entry.table());
    let (Some(field), Some(table)) = (route_by, table) else {
        return single(section, kinds);
    };
    let table = table?;
    let mut routes = BTreeMap::new();
    for entry in table.entries() {
        let Some(text) = entry.text("RENDER") else {
            continue;
        };
        let kind = parse_kind(text).map_err(|failure| Complaint::of(&failure));
        let Some(kind) = entry.accept(kind) else {
            continue;
        };
        let Some(config) = kinds.get(&kind) else {
            entry.complain(Complaint::new(
                format!(
                    "{} is {kind}, and no kind of this file has that name",
                    entry.path
                ),
                format!("add a section [kinds.{kind}] with a command"),
            ));
            continue;
        };
        routes.insert(entry.name.to_owned(), route(&kind, config));
    }
    let (error, treated) = unsupported(section)?;
    Routes::by_field(field, routes, &error, treated).ok()
}

/// Without routes there must be one kind, which runs everything.
fn single(section: &Table<'_>, kinds: &BTreeMap<Kind, KindConfig>) -> Option<Routes> {
    let has_routes = section.get("routes").is_some();
    let mut all = kinds.iter();
    let complaint = match (all.next(), all.next()) {
        _ if has_routes => Complaint::new(
            format!("{} has routes and no route_by", section.path),
            "name the field of a request that chooses one, as in route_by = \"asset_upload_type\"",
        ),
        _ if section.get("route_by").is_some() => Complaint::new(
            format!("{} has route_by and no routes", section.path),
            "add them, as in routes = { atmos = \"ATMOS\" }",
        ),
        (Some((kind, config)), None) => return Some(Routes::all_to(route(kind, config))),
        (None, _) => Complaint::new(
            format!("{} has no kind to run its tasks", section.path),
            "add a section [kinds.WORK] with a command",
        ),
        (Some(_), Some(_)) => Complaint::new(
            format!(
                "{} has several kinds, and nothing chooses one",
                section.path
            ),
            "add route_by = \"FIELD\" and routes = { VALUE = \"KIND\" }",
        ),
    };
    section.complain(complaint);
    None
}

fn route(kind: &Kind, config: &KindConfig) -> Route {
    let channel: Channel = config.request.value;
    Route {
        kind: kind.clone(),
        channel,
    }
}

fn unsupported(section: &Table<'_>) -> Option<(String, RegisteredError)> {
    let mut treated = RegisteredError {
        level: Level::Error,
        retryable: false,
    };
    let Some(entry) = section.get("unsupported") else {
        return Some((UNSUPPORTED.to_owned(), treated));
    };
    let table = entry.table()?;
    table.allow(UNSUPPORTED_KEYS, |_| None);
    if let Some(level) = table.get("level").and_then(|entry| entry.choice(LEVELS)) {
        treated.level = level;
    }
    let Some(named) = table.get("error") else {
        return Some((UNSUPPORTED.to_owned(), treated));
    };
    let name = named.text(UNSUPPORTED)?;
    if let Err(refused) = RegisteredErrors::new([(name, treated)]) {
        let told = refused.to_string();
        let (what, remedy) = told
            .rsplit_once("; ")
            .unwrap_or((&told, "choose another name"));
        return named.refuse(Complaint::new(what, remedy));
    }
    Some((name.to_owned(), treated))
}

/// What holds in the end, in the order of the keys.
fn values(section: &Table<'_>, settings: &StepFunctionsSettings) -> Vec<(String, Setting<Value>)> {
    let mut settings = settings.clone();
    let mut values = Vec::new();
    for key in KEYS {
        let entry = section.get(key);
        let origin = entry
            .as_ref()
            .map_or(Origin::Default, |entry| Origin::File { line: entry.line });
        let text = entry.filter(Entry::is_text);
        let text = text.and_then(|entry| entry.text(""));
        let length = LENGTHS.iter().find(|(name, _)| name == key);
        let value = match (*key, length) {
            (_, Some((_, slot))) => units::length_text(*slot(&mut settings)).into(),
            ("capacity", _) => settings.capacity.into(),
            ("output_bytes_max", _) => units::bytes_text(settings.output_bytes_max).into(),
            ("token_field", _) => settings.token_field.as_str().into(),
            ("protection", _) => {
                let mode = MODES.iter().find(|(_, mode)| *mode == settings.protection);
                mode.map_or(Value::Null, |(word, _)| (*word).into())
            }
            // Tables are shown key by key.
            ("routes" | "unsupported", _) => continue,
            _ => text.map_or(Value::Null, Into::into),
        };
        values.push(((*key).to_owned(), Setting { value, origin }));
    }
    for name in ["routes", "unsupported"] {
        let table = section.get(name).and_then(|entry| entry.table());
        let entries = table.iter().flat_map(Table::entries);
        values.extend(entries.filter(Entry::is_text).map(|entry| {
            let value = entry.text("").map_or(Value::Null, Into::into);
            let origin = Origin::File { line: entry.line };
            (join(name, entry.name), Setting { value, origin })
        }));
    }
    values
}
