//! The sections `[kinds.…]`: which command runs a kind of work, and how.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::core::rules::RetryPolicy;
use leasehold::{Kind, Lane, NewItem};
use leasehold_fence::capture::{STDERR_BYTES_KEPT, STDOUT_BYTES_MAX};
use leasehold_fence::protocol::{
    Channel, Level, REQUEST_VARIABLE, RegisteredError, RegisteredErrors, ResultRule,
};

use super::page::{Entry, Table};
use super::problem::Complaint;
use super::worker::{lane, length};
use super::{Origin, Setting, units};
use crate::names::parse_kind;

/// How one kind of work is run.
#[derive(Debug, Clone)]
pub(crate) struct KindConfig {
    /// The program and its arguments: at least the program.
    pub(crate) command: Setting<Vec<String>>,
    pub(crate) request: Setting<Channel>,
    pub(crate) result: Setting<ResultRule>,
    /// How long one run may take; `None` leaves it to the lease.
    pub(crate) time_limit: Setting<Option<Duration>>,
    /// Of items that `leasehold enqueue` makes.
    pub(crate) max_attempts: Setting<u32>,
    pub(crate) retry_base: Setting<Duration>,
    pub(crate) retry_cap: Setting<Duration>,
    pub(crate) retry_jitter: Setting<f64>,
    /// Of items that `leasehold enqueue` makes.
    pub(crate) lane: Setting<Lane>,
    /// Of items that `leasehold enqueue` makes.
    pub(crate) priority: Setting<i16>,
    /// What the child may report, by name.
    pub(crate) errors: BTreeMap<String, Setting<RegisteredError>>,
    /// Payload fields that nobody is shown.
    pub(crate) redact: Setting<Vec<String>>,
    /// Names of our own environment that the child is given; one that ends in `*` is a beginning.
    pub(crate) environment: Setting<Vec<String>>,
    /// Where the command runs.
    pub(crate) directory: Setting<PathBuf>,
    pub(crate) stdout_bytes_max: Setting<usize>,
    pub(crate) stderr_bytes_max: Setting<usize>,
    /// Whether the child may gain no privileges, such as by a set-uid program.
    pub(crate) no_new_privileges: Setting<bool>,
}

pub(super) const KEYS: &[&str] = &[
    "command",
    "request",
    "result",
    "time_limit",
    "max_attempts",
    "retry",
    "lane",
    "priority",
    "errors",
    "redact",
    "environment",
    "directory",
    "stdout_bytes_max",
    "stderr_bytes_max",
    "no_new_privileges",
];
pub(super) const RETRY_KEYS: &[&str] = &["base", "cap", "jitter"];
pub(super) const ERROR_KEYS: &[&str] = &["level", "retryable"];

pub(super) const REQUESTS: &[(&str, Channel)] =
    &[("env", Channel::Environment), ("stdin", Channel::Stdin)];
pub(super) const RESULTS: &[(&str, ResultRule)] =
    &[("json", ResultRule::Json), ("ignored", ResultRule::Ignored)];
pub(super) const LEVELS: &[(&str, Level)] = &[
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
];

/// Of an error about which no more is said: it is told, and the item is tried again.
const DEFAULT_ERROR: RegisteredError = RegisteredError {
    level: Level::Error,
    retryable: true,
};

/// As the library allows for a kind; a shorter limit would end runs before they begin.
const TIME_LIMIT: RangeInclusive<Duration> = Duration::from_millis(10)..=YEAR;
/// As the library allows: without a pause, a failing item would go round for ever.
const RETRY: RangeInclusive<Duration> = Duration::from_millis(1)..=YEAR;
const YEAR: Duration = Duration::from_hours(365 * 24);
/// As the library allows for an item.
const ATTEMPTS: RangeInclusive<u32> = 1..=1_000_000;
/// Room for a word of sense, and no more than a process with many runs can keep in memory.
const OUTPUT_BYTES: RangeInclusive<usize> = 1 << 10..=64 << 20;

/// Reads every section.
pub(super) fn read(sections: &Table<'_>, folder: &Path) -> BTreeMap<Kind, KindConfig> {
    let mut kinds = BTreeMap::new();
    for entry in sections.entries() {
        let kind = parse_kind(entry.name).map_err(|failure| Complaint::of(&failure));
        let kind = entry.accept(kind);
        // What a section under a wrong name holds is read as well, for what is wrong with it.
        let config = entry.table().and_then(|section| one(&section, folder));
        if let (Some(kind), Some(config)) = (kind, config) {
            kinds.insert(kind, config);
        }
    }
    kinds
}

fn one(section: &Table<'_>, folder: &Path) -> Option<KindConfig> {
    section.allow(KEYS, |key| {
        let is_retry = RETRY_KEYS.contains(&key);
        is_retry.then(|| format!("it belongs into retry = {{ {key} = … }}"))
    });
    let mut config = KindConfig::within(folder);
    section.read("request", &mut config.request, |entry| {
        entry.choice(REQUESTS)
    });
    section.read("result", &mut config.result, |entry| entry.choice(RESULTS));
    section.read("time_limit", &mut config.time_limit, |entry| {
        length_within(entry, TIME_LIMIT).map(Some)
    });
    section.read("max_attempts", &mut config.max_attempts, |entry| {
        entry.whole(ATTEMPTS)
    });
    read_retry(section, &mut config);
    section.read("lane", &mut config.lane, lane);
    section.read("priority", &mut config.priority, |entry| {
        entry.whole(i16::MIN..=i16::MAX)
    });
    read_errors(section, &mut config);
    section.read("redact", &mut config.redact, |entry| names(entry, field));
    section.read("environment", &mut config.environment, |entry| {
        names(entry, variable)
    });
    section.read("directory", &mut config.directory, |entry| {
        let text = entry.text(".")?;
        entry.accept(without_zero(&entry.path, text))?;
        Some(within(folder, text))
    });
    for (key, setting) in [
        ("stdout_bytes_max", &mut config.stdout_bytes_max),
        ("stderr_bytes_max", &mut config.stderr_bytes_max),
    ] {
        section.read(key, setting, output_bytes);
    }
    section.read(
        "no_new_privileges",
        &mut config.no_new_privileges,
        Entry::switch,
    );
    read_command(section, &mut config)?;
    Some(config)
}

impl KindConfig {
    /// The same, for that command in this folder.
    pub(super) fn with_command(mut self, words: &[String]) -> Self {
        self.command = Setting::of(words.to_vec());
        self.directory = Setting::of(PathBuf::from("."));
        self
    }

    /// The defaults, of a file in the folder.
    pub(super) fn within(folder: &Path) -> Self {
        let retry = RetryPolicy::default();
        Self {
            command: Setting::default(),
            request: Setting::default(),
            result: Setting::default(),
            time_limit: Setting::default(),
            max_attempts: Setting::of(NewItem::MAX_ATTEMPTS),
            retry_base: Setting::of(retry.base),
            retry_cap: Setting::of(retry.cap),
            retry_jitter: Setting::of(retry.jitter),
            lane: Setting::default(),
            priority: Setting::default(),
            errors: BTreeMap::new(),
            redact: Setting::default(),
            environment: Setting::default(),
            directory: Setting::of(within(folder, ".")),
            stdout_bytes_max: Setting::of(STDOUT_BYTES_MAX),
            stderr_bytes_max: Setting::of(STDERR_BYTES_KEPT),
            no_new_privileges: Setting::default(),
        }
    }
}

/// The path as it counts from the folder.
fn within(folder: &Path, path: &str) -> PathBuf {
    match (folder.as_os_str().is_empty(), path) {
        (true, path) => path.into(),
        (false, ".") => folder.into(),
        (false, path) => folder.join(path),
    }
}

fn read_command(section: &Table<'_>, config: &mut KindConfig) -> Option<()> {
    let Some(entry) = section.get("command") else {
        section.complain(Complaint::new(
            format!("{} has no command", section.path),
            "add one, as in command = [\"python3\", \"-m\", \"handler\"]",
        ));
        return None;
    };
    if entry.is_text() {
        return entry.refuse(Complaint::new(
            format!(
                "{} is one text, and no shell is there to take it apart",
                entry.path
            ),
            "write each word by itself, as in command = [\"python3\", \"-m\", \"handler\"], \
             or ask for a shell with [\"sh\", \"-c\", \"…\"]",
        ));
    }
    let words = entry.each("[\"python3\", \"-m\", \"handler\"]", |element| {
        let word = element.text("word")?;
        element.accept(without_zero(&element.path, word))?;
        Some(word.to_owned())
    })?;
    if words.first().is_none_or(String::is_empty) {
        return entry.refuse(Complaint::new(
            format!("{} names no program", entry.path),
            "put one first, as in command = [\"python3\", \"-m\", \"handler\"]",
        ));
    }
    config.command = Setting {
        value: words,
        origin: Origin::File { line: entry.line },
    };
    Some(())
}

fn read_retry(section: &Table<'_>, config: &mut KindConfig) {
    let Some(entry) = section.get("retry") else {
        return;
    };
    let Some(retry) = entry.table() else { return };
    retry.allow(RETRY_KEYS, |_| None);
    retry.read("base", &mut config.retry_base, |entry| {
        length_within(entry, RETRY)
    });
    retry.read("cap", &mut config.retry_cap, |entry| {
        length_within(entry, RETRY)
    });
    retry.read("jitter", &mut config.retry_jitter, |entry| {
        entry.fraction(0.0..=1.0)
    });
    let (base, cap) = (config.retry_base.value, config.retry_cap.value);
    if cap < base {
        entry.complain(Complaint::new(
            format!(
                "{} has a cap of {} below its base of {}",
                entry.path,
                units::length_text(cap),
                units::length_text(base)
            ),
            "give both, with a cap that is no shorter than the base",
        ));
    }
}

fn read_errors(section: &Table<'_>, config: &mut KindConfig) {
    let Some(errors) = section.get("errors").and_then(|entry| entry.table()) else {
        return;
    };
    for entry in errors.entries() {
        let mut rule = Setting {
            value: DEFAULT_ERROR,
            origin: Origin::File { line: entry.line },
        };
        if entry.is_text() {
            let Some(level) = entry.choice(LEVELS) else {
                continue;
            };
            rule.value.level = level;
        } else {
            let Some(table) = entry.table() else { continue };
            table.allow(ERROR_KEYS, |_| None);
            let level = table.get("level").map(|entry| entry.choice(LEVELS));
            let retryable = table.get("retryable").map(|entry| entry.switch());
            if level == Some(None) || retryable == Some(None) {
                continue;
            }
            rule.value.level = level.flatten().unwrap_or(rule.value.level);
            rule.value.retryable = retryable.flatten().unwrap_or(rule.value.retryable);
        }
        // One by one, so that each name is judged at its own line.
        if let Err(refused) = RegisteredErrors::new([(entry.name, rule.value)]) {
            let told = refused.to_string();
            let (what, remedy) = told
                .split_once("; ")
                .unwrap_or((&told, "choose another name"));
            entry.complain(Complaint::new(format!("{}: {what}", errors.path), remedy));
            continue;
        }
        config.errors.insert(entry.name.to_owned(), rule);
    }
}

/// A list of names, each of which keeps the rule.
fn names(
    entry: &Entry<'_>,
    rule: fn(path: &str, name: &str) -> Result<(), Complaint>,
) -> Option<Vec<String>> {
    entry.each("[\"…\"]", |element| {
        let name = element.text("name")?;
        element.accept(rule(&element.path, name))?;
        Some(name.to_owned())
    })
}

fn field(path: &str, name: &str) -> Result<(), Complaint> {
    if name.is_empty() {
        let what = format!("{path} is empty");
        return Err(Complaint::new(what, "name a field of the payload"));
    }
    Ok(())
}

fn variable(path: &str, name: &str) -> Result<(), Complaint> {
    let refuse =
        |why: &str, remedy: &str| Err(Complaint::new(format!("{path} = {name:?} {why}"), remedy));
    let beginning = name.strip_suffix('*').unwrap_or(name);
    // The system takes a name with white space, and no shell sets one: it is two that were meant.
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "=*".contains(c);
    if beginning.contains(is_odd) {
        return refuse(
            "is no name of a variable",
            "write a name (each in quotes of its own), or the beginning of some with a * at its end, as in \
             APP_*",
        );
    }
    if beginning.is_empty() {
        return refuse(
            "would hand on everything, this worker's own secrets too",
            "name what the command needs, as in APP_*",
        );
    }
    let would_match = name.ends_with('*') && OWN_VARIABLES.starts_with(beginning);
    if beginning == REQUEST_VARIABLE || beginning.starts_with(OWN_VARIABLES) || would_match {
        return refuse(
            "belongs to the worker, which sets what a child may know of it",
            "leave it out",
        );
    }
    Ok(())
}

/// How the names of our own variables begin. A database's URL is among them.
const OWN_VARIABLES: &str = "LEASEHOLD_";

fn without_zero(path: &str, text: &str) -> Result<(), Complaint> {
    if text.contains('\0') {
        let what = format!("{path} holds a zero character");
        return Err(Complaint::new(
            what,
            "take it out: no system call takes one",
        ));
    }
    Ok(())
}

fn length_within(entry: &Entry<'_>, allowed: RangeInclusive<Duration>) -> Option<Duration> {
    let length = length(entry)?;
    if allowed.contains(&length) {
        return Some(length);
    }
    let (low, high) = allowed.into_inner();
    entry.refuse(Complaint::new(
        format!(
            "{} = {:?} is out of range",
            entry.path,
            units::length_text(length)
        ),
        format!(
            "give it between {} and {}",
            units::length_text(low),
            units::length_text(high)
        ),
    ))
}

fn output_bytes(entry: &Entry<'_>) -> Option<usize> {
    let text = entry.measure("\"256KiB\" or \"1MiB\"")?;
    let bytes = entry.accept(units::bytes(&entry.path, text))?;
    if OUTPUT_BYTES.contains(&bytes) {
        return Some(bytes);
    }
    let (low, high) = OUTPUT_BYTES.into_inner();
    entry.refuse(Complaint::new(
        format!("{} = {text:?} is out of range", entry.path),
        format!(
            "give it between {} and {}",
            units::bytes_text(low),
            units::bytes_text(high)
        ),
    ))
}
