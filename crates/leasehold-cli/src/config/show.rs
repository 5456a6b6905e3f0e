//! The settings as they are in the end: one a line, as the file would have them, or as JSON.

use leasehold::Lane;
use leasehold::schedule::ScheduleDefinition;
use leasehold_fence::protocol::RegisteredError;
use serde_json::{Value, json};

use super::kinds::{KindConfig, LEVELS, REQUESTS, RESULTS};
use super::page::join;
use super::postgres::WAKEUPS;
use super::{Config, Origin, Setting, units};
use crate::database;

/// One setting in the end: its whole path, its value (null where it is not set), where it is from.
pub(super) struct Line<'a> {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) origin: &'a Origin,
}

/// Every setting, in the order of the file's description.
pub(super) fn lines(config: &Config) -> Vec<Line<'_>> {
    let mut lines = vec![Line {
        key: "database".to_owned(),
        value: database::shown(config).into(),
        origin: &config.database.origin,
    }];
    let postgres = &config.postgres;
    lines.push(line(
        "postgres.schema".to_owned(),
        &postgres.schema,
        |name| name.as_str().into(),
    ));
    lines.push(line("postgres.wakeup".to_owned(), &postgres.wakeup, |it| {
        word(WAKEUPS, it)
    }));
    lines.push(line(
        "postgres.connections".to_owned(),
        &postgres.connections,
        |count| (*count).into(),
    ));
    for (key, url) in postgres.urls() {
        lines.push(line(key, url, |url| {
            url.as_deref().map(database::without_password).into()
        }));
    }
    for (name, value, origin) in config.worker.values() {
        let key = join("worker", name);
        lines.push(Line { key, value, origin });
    }
    for (lane, capacity) in &config.lanes {
        let key = join(&join("lanes", lane.as_str()), "capacity");
        lines.push(line(key, capacity, |capacity| (*capacity).into()));
    }
    for (kind, kind_config) in &config.kinds {
        of_kind(&join("kinds", kind.as_str()), kind_config, &mut lines);
    }
    if let Some(step_functions) = &config.step_functions {
        let values = step_functions.values.iter();
        lines.extend(values.map(|(name, value)| Line {
            key: join("step_functions", name),
            value: value.value.clone(),
            origin: &value.origin,
        }));
    }
    for (name, schedule) in &config.schedules {
        of_schedule(&join("schedules", name), schedule, &mut lines);
    }
    lines
}

fn of_schedule<'a>(
    path: &str,
    schedule: &'a Setting<ScheduleDefinition>,
    lines: &mut Vec<Line<'a>>,
) {
    let it = &schedule.value;
    let (when, expression) = match it.expression.strip_prefix("@every ") {
        Some(interval) => ("every", interval),
        None => ("cron", it.expression.as_str()),
    };
    let instant = |at: Option<jiff::Timestamp>| at.map(|at| at.to_string()).into();
    let jitter = (!it.jitter.is_zero()).then(|| units::length_text(it.jitter));
    let values: [(&str, Value); 12] = [
        (when, expression.into()),
        ("zone", it.zone.as_str().into()),
        ("kind", it.kind.as_str().into()),
        ("payload", it.payload.as_str().into()),
        ("lane", it.lane.as_str().into()),
        ("priority", it.priority.into()),
        ("max_attempts", it.max_attempts.into()),
        ("missed", it.missed.to_string().into()),
        ("overlap", it.overlap.as_str().into()),
        ("starts_at", instant(it.starts_at)),
        ("ends_at", instant(it.ends_at)),
        ("jitter", jitter.into()),
    ];
    lines.extend(values.into_iter().map(|(name, value)| Line {
        key: join(path, name),
        value,
        origin: &schedule.origin,
    }));
}

fn of_kind<'a>(path: &str, kind: &'a KindConfig, lines: &mut Vec<Line<'a>>) {
    let key = |name: &str| join(path, name);
    let retry = key("retry");
    let length = |length: &_| Value::from(units::length_text(*length));
    let bytes = |bytes: &usize| Value::from(units::bytes_text(*bytes));
    lines.extend([
        line(key("command"), &kind.command, |words| {
            words.as_slice().into()
        }),
        line(key("request"), &kind.request, |it| word(REQUESTS, it)),
        line(key("result"), &kind.result, |it| word(RESULTS, it)),
        line(key("time_limit"), &kind.time_limit, |limit| {
            limit.as_ref().map(length).into()
        }),
        line(key("max_attempts"), &kind.max_attempts, |it| (*it).into()),
        line(join(&retry, "base"), &kind.retry_base, length),
        line(join(&retry, "cap"), &kind.retry_cap, length),
        line(join(&retry, "jitter"), &kind.retry_jitter, |it| {
            (*it).into()
        }),
        line(key("lane"), &kind.lane, |lane: &Lane| lane.as_str().into()),
        line(key("priority"), &kind.priority, |it| (*it).into()),
    ]);
    for (name, rule) in &kind.errors {
        let RegisteredError { level, retryable } = rule.value;
        let shown = json!({ "level": word(LEVELS, &level), "retryable": retryable });
        let key = join(&key("errors"), name);
        lines.push(line(key, rule, |_| shown));
    }
    lines.extend([
        line(key("redact"), &kind.redact, |it| it.as_slice().into()),
        line(key("environment"), &kind.environment, |it| {
            it.as_slice().into()
        }),
        line(key("directory"), &kind.directory, |path| {
            path.display().to_string().into()
        }),
        line(key("stdout_bytes_max"), &kind.stdout_bytes_max, bytes),
        line(key("stderr_bytes_max"), &kind.stderr_bytes_max, bytes),
        line(key("no_new_privileges"), &kind.no_new_privileges, |it| {
            (*it).into()
        }),
    ]);
}

fn line<T>(key: String, setting: &Setting<T>, show: impl FnOnce(&T) -> Value) -> Line<'_> {
    Line {
        key,
        value: show(&setting.value),
        origin: &setting.origin,
    }
}

/// The word of the file for a choice.
fn word<T: PartialEq>(words: &[(&str, T)], choice: &T) -> Value {
    let found = words.iter().find(|(_, one)| one == choice);
    found.map_or(Value::Null, |(word, _)| (*word).into())
}

/// The lines as text that the file would take.
pub(super) fn text(lines: &[Line<'_>]) -> Vec<String> {
    let line = |line: &Line<'_>| match &line.value {
        Value::Null => format!("# {} is not set", line.key),
        value => format!("{} = {}", line.key, toml(value)),
    };
    lines.iter().map(line).collect()
}

fn toml(value: &Value) -> String {
    match value {
        // The escapes of JSON are TOML's as well, but for the one character that JSON leaves alone.
        Value::String(_) => value.to_string().replace('\u{7f}', "\\u007f"),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(toml).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{key} = {}", toml(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        value => value.to_string(),
    }
}
