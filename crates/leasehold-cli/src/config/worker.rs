//! The section `[worker]`: its fields, their flags and variables, and the rules they keep.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use leasehold::{Lane, WorkerSettings};
use serde_json::Value;

use super::page::{Entry, Table};
use super::problem::{Complaint, Problem};
use super::{Origin, units};
use crate::names::parse_lane;

/// A worker's settings, and where each came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerConfig {
    /// Checked, but for lanes: there may be none if all lanes have workers of their own.
    pub(crate) settings: WorkerSettings,
    origins: BTreeMap<&'static str, Origin>,
}

/// One field of the settings.
pub(super) struct Field {
    /// In the file, and in the library.
    pub(super) name: &'static str,
    flag: &'static str,
    variable: &'static str,
    help: &'static str,
    slot: fn(&mut WorkerSettings) -> Slot<'_>,
}

/// Where a field's value is kept, by what it is.
enum Slot<'a> {
    Text(&'a mut String),
    Lanes(&'a mut Vec<Lane>),
    Count(&'a mut u32),
    Limit(&'a mut Option<u32>),
    Length(&'a mut Duration),
    Address(&'a mut Option<SocketAddr>),
}

macro_rules! fields {
    ($($name:ident, $flag:literal, $variable:literal, $slot:ident, $help:literal;)*) => {
        &[$(Field {
            name: stringify!($name),
            flag: $flag,
            variable: concat!("LEASEHOLD_", $variable),
            help: $help,
            slot: |settings| Slot::$slot(&mut settings.$name),
        }),*]
    };
}

/// Every field, in the order of the library's.
pub(super) const FIELDS: &[Field] = fields! {
    name, "name", "NAME", Text, "What the worker is called, for people";
    lanes, "lanes", "LANES", Lanes, "The lanes it claims from, separated by commas";
    capacity, "capacity", "CAPACITY", Count, "How many items run at once";
    prefetch, "prefetch", "PREFETCH", Count, "How many more are claimed ahead of a free slot";
    lease, "lease", "LEASE", Length, "How long a claim lasts unless renewed";
    poll_interval, "poll-interval", "POLL_INTERVAL", Length, "The longest time between two looks for work";
    heartbeat_interval, "heartbeat-interval", "HEARTBEAT_INTERVAL", Length, "How often it says that it lives";
    sweep_interval, "sweep-interval", "SWEEP_INTERVAL", Length, "How often it sweeps";
    sweep_budget, "sweep-budget", "SWEEP_BUDGET", Length, "How long one sweep may take";
    sweep_batch, "sweep-batch", "SWEEP_BATCH", Count, "How many rows one statement of the sweep moves";
    requeue_spread, "requeue-spread", "REQUEUE_SPREAD", Length, "Recovered items become due spread over this";
    item_retention, "item-retention", "ITEM_RETENTION", Length, "How long finished items are kept";
    stop_grace, "stop-grace", "STOP_GRACE", Length, "How long a stopped run may take to end before it is killed";
    drain_timeout, "drain-timeout", "DRAIN_TIMEOUT", Length, "How long a drain waits for runs to end by themselves";
    drain_kill, "drain-kill", "DRAIN_KILL", Length, "How long a drain then takes to kill and to hand back";
    stuck_max, "stuck-max", "STUCK_MAX", Limit, "With more stuck slots the worker ends, to be replaced; or none";
    tenant_cap, "tenant-cap", "TENANT_CAP", Limit, "At most so many claims per org and lane; or none";
    health, "health", "HEALTH", Address, "IP and port of /healthz and /metrics; or none";
};

/// What the flags and the environment say of the worker. Every command that starts one takes these.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerFlags(Vec<(&'static str, String, Origin)>);

impl clap::FromArgMatches for WorkerFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = FIELDS.iter().filter_map(|field| {
            let text = matches.get_one::<String>(field.name)?;
            let origin = match matches.value_source(field.name) {
                Some(ValueSource::CommandLine) => Origin::Flag { name: field.flag },
                // As templates leave it where they have no value.
                _ if text.is_empty() => return None,
                _ => Origin::Environment {
                    variable: field.variable,
                },
            };
            Some((field.name, text.clone(), origin))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = <Self as clap::FromArgMatches>::from_arg_matches(matches)?;
        Ok(())
    }
}

impl WorkerFlags {
    /// What the environment says, for a command that asks how a worker is set and starts none.
    pub(crate) fn of_environment() -> Result<Self, clap::Error> {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("worker"));
        let matches = command.try_get_matches_from(["worker"])?;
        <Self as clap::FromArgMatches>::from_arg_matches(&matches)
    }
}

impl clap::Args for WorkerFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(FIELDS.iter().map(|field| {
            Arg::new(field.name)
                .long(field.flag)
                .env(field.variable)
                .value_name(field.value_name())
                .help(field.help)
                .help_heading("The worker, over what the file says")
                .hide_short_help(true)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl WorkerConfig {
    /// Reads the section, and then what stands over it. `alone` are the lanes with workers of their own.
    pub(super) fn read(
        section: Option<&Table<'_>>,
        flags: &WorkerFlags,
        alone: &[&Lane],
        file: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut worker = Self::default();
        if alone.contains(&&Lane::default()) {
            worker.settings.lanes.clear();
        }
        if let Some(section) = section {
            worker.read_section(section);
        }
        for (name, text, origin) in &flags.0 {
            let Some(field) = Field::of(name) else {
                continue;
            };
            match (field.slot)(&mut worker.settings).read_text(name, text) {
                Ok(()) => {
                    worker.origins.insert(name, origin.clone());
                }
                Err(complaint) => problems.push(Problem::at(origin, file, complaint)),
            }
        }
        worker.check(alone, file, problems);
        worker
    }

    fn read_section(&mut self, section: &Table<'_>) {
        section.allow(&names(), |_| None);
        for field in FIELDS {
            let Some(entry) = section.get(field.name) else {
                continue;
            };
            if (field.slot)(&mut self.settings).read_entry(&entry) {
                let origin = Origin::File { line: entry.line };
                self.origins.insert(field.name, origin);
            }
        }
    }

    /// Where the field's value came from.
    pub(super) fn origin(&self, field: &str) -> &Origin {
        self.origins.get(field).unwrap_or(&Origin::Default)
    }

    /// Every field with its value as the file would have it; null where it is not set.
    pub(super) fn values(&self) -> impl Iterator<Item = (&'static str, Value, &Origin)> {
        let mut settings = self.settings.clone();
        FIELDS.iter().map(move |field| {
            let value = (field.slot)(&mut settings).value();
            (field.name, value, self.origin(field.name))
        })
    }

    /// Passes each field through the library's rules. It names the first that breaks one; that field
    /// is then put back to its default, until none is left.
    fn check(&mut self, alone: &[&Lane], file: &str, problems: &mut Vec<Problem>) {
        self.check_lanes(alone, file, problems);
        let mut judged = self.settings.clone();
        if judged.lanes.is_empty() && !alone.is_empty() {
            judged.lanes = vec![Lane::default()];
        }
        for _ in FIELDS {
            let Err(error) = judged.check() else { return };
            let Some(field) = Field::of(error.setting) else {
                return;
            };
            let told = [error.setting, partner(error.setting)];
            let origins = told.map(|name| self.origin(name));
            let origin = origins.into_iter().find(|one| **one != Origin::Default);
            let given = (field.slot)(&mut judged).value();
            let complaint = Complaint::new(
                format!("worker.{} = {given} is not acceptable", error.setting),
                format!("it must be {}", error.rule),
            );
            let origin = origin.unwrap_or(&Origin::Default);
            problems.push(Problem::at(origin, file, complaint));
            let mut default = WorkerSettings::default();
            (field.slot)(&mut judged).take((field.slot)(&mut default));
            // Where the default breaks the rule, it is for the sake of the partner.
            if let Some(partner) = Field::of(partner(error.setting)) {
                (partner.slot)(&mut judged).take((partner.slot)(&mut default));
            }
        }
    }

    fn check_lanes(&self, alone: &[&Lane], file: &str, problems: &mut Vec<Problem>) {
        let origin = self.origin("lanes");
        let lanes = &self.settings.lanes;
        for (at, lane) in lanes.iter().enumerate() {
            let complaint = if alone.contains(&lane) {
                Complaint::new(
                    format!("the lane {lane} stands in worker.lanes, and has a section of its own"),
                    "leave one of them out: it either shares the capacity or has its own",
                )
            } else if lanes[..at].contains(lane) {
                Complaint::new(
                    format!("worker.lanes names {lane} twice"),
                    "leave one of them out",
                )
            } else {
                continue;
            };
            problems.push(Problem::at(origin, file, complaint));
        }
    }
}

/// The field that another's rule depends on, if there is one.
fn partner(field: &str) -> &'static str {
    match field {
        "sweep_budget" => "sweep_interval",
        _ => "",
    }
}

/// The names of all fields.
pub(super) fn names() -> Vec<&'static str> {
    FIELDS.iter().map(|field| field.name).collect()
}

impl Field {
    fn of(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.name == name)
    }

    fn value_name(&self) -> &'static str {
        match (self.slot)(&mut WorkerSettings::default()) {
            Slot::Text(_) => "NAME",
            Slot::Lanes(_) => "LANE,…",
            Slot::Count(_) | Slot::Limit(_) => "N",
            Slot::Length(_) => "DURATION",
            Slot::Address(_) => "IP:PORT",
        }
    }
}

impl Slot<'_> {
    /// Takes the file's value, if it is one for this field.
    fn read_entry(self, entry: &Entry<'_>) -> bool {
        fn set<T>(slot: &mut T, value: Option<T>) -> bool {
            let is_read = value.is_some();
            if let Some(value) = value {
                *slot = value;
            }
            is_read
        }
        match self {
            Self::Text(slot) => set(slot, entry.text("worker").map(str::to_owned)),
            Self::Lanes(slot) => set(slot, entry.each(r#"["default", "mail"]"#, lane)),
            Self::Count(slot) => set(slot, entry.whole(0..=u32::MAX)),
            Self::Limit(slot) => set(slot, entry.whole(0..=u32::MAX).map(Some)),
            Self::Length(slot) => set(slot, length(entry)),
            Self::Address(slot) => {
                let text = entry.text("127.0.0.1:9464");
                set(
                    slot,
                    text.and_then(|text| entry.accept(address(&entry.path, text)))
                        .map(Some),
                )
            }
        }
    }

    /// Takes what a flag or a variable says.
    fn read_text(self, name: &str, text: &str) -> Result<(), Complaint> {
        let key = format!("worker.{name}");
        let count = || {
            text.trim().parse::<u32>().map_err(|_| {
                let what = format!("{key} = {text:?} is no whole number, or too large a one");
                Complaint::new(what, "give a number such as 8")
            })
        };
        let is_none = text.trim() == "none";
        match self {
            Self::Text(slot) => text.clone_into(slot),
            Self::Lanes(slot) => {
                let is_empty = text.trim().is_empty();
                let words = text.split(',').map(str::trim).skip(usize::from(is_empty));
                let lanes = words.map(|word| parse_lane(word).map_err(|e| Complaint::of(&e)));
                *slot = lanes.collect::<Result<_, _>>()?;
            }
            Self::Count(slot) => *slot = count()?,
            Self::Limit(slot) => *slot = if is_none { None } else { Some(count()?) },
            Self::Length(slot) => *slot = units::length(&key, text)?,
            Self::Address(slot) => {
                *slot = if is_none {
                    None
                } else {
                    Some(address(&key, text)?)
                };
            }
        }
        Ok(())
    }

    /// The value as the file would have it.
    fn value(self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Lanes(lanes) => lanes.iter().map(Lane::as_str).collect(),
            Self::Count(count) => (*count).into(),
            Self::Limit(limit) => (*limit).into(),
            Self::Length(length) => units::length_text(*length).into(),
            Self::Address(address) => address.map(|address| address.to_string()).into(),
        }
    }

    /// Takes the value of another of the same kind.
    fn take(self, other: Slot<'_>) {
        match (self, other) {
            (Self::Text(slot), Slot::Text(other)) => slot.clone_from(other),
            (Self::Lanes(slot), Slot::Lanes(other)) => slot.clone_from(other),
            (Self::Count(slot), Slot::Count(other)) => *slot = *other,
            (Self::Limit(slot), Slot::Limit(other)) => *slot = *other,
            (Self::Length(slot), Slot::Length(other)) => *slot = *other,
            (Self::Address(slot), Slot::Address(other)) => *slot = *other,
            _ => {}
        }
    }
}

/// A duration in quotes.
pub(super) fn length(entry: &Entry<'_>) -> Option<Duration> {
    let text = entry.measure("\"60s\", \"1m30s\" or \"500ms\"")?;
    entry.accept(units::length(&entry.path, text))
}

/// A lane's name.
pub(super) fn lane(entry: &Entry<'_>) -> Option<Lane> {
    let text = entry.text("default")?;
    entry.accept(parse_lane(text).map_err(|failure| Complaint::of(&failure)))
}

fn address(key: &str, text: &str) -> Result<SocketAddr, Complaint> {
    text.trim().parse().map_err(|_| {
        Complaint::new(
            format!("{key} = {text:?} is no IP address and port"),
            "write it as 127.0.0.1:9464, 0.0.0.0:9464 or [::1]:9464",
        )
    })
}
