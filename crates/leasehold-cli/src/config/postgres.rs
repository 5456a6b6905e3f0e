//! The section `[postgres]`: the schema, how it is connected, the logins, and the databases of roles that have
//! one apart.

use std::fmt;
use std::ops::RangeInclusive;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use leasehold_postgres::{Options, Role, Wakeup};

use super::page::{Table, choose};
use super::problem::{Complaint, Problem};
use super::{Origin, Setting};

/// What a server is told about beside its URL.
#[derive(Clone)]
pub(crate) struct PostgresConfig {
    pub(crate) schema: Setting<String>,
    /// Of every database of the queue, as is how many connections each login may have.
    pub(crate) wakeup: Setting<Wakeup>,
    pub(crate) connections: Setting<Option<u32>>,
    /// Of the database that `database` names.
    pub(crate) logins: Logins,
    pub(crate) core: RoleConfig,
    pub(crate) activity: RoleConfig,
    pub(crate) queue: RoleConfig,
}

/// URLs of one database, by logins of their own. They may hold passwords.
#[derive(Clone, Default)]
pub(crate) struct Logins {
    pub(crate) system: Setting<Option<String>>,
    pub(crate) migration: Setting<Option<String>>,
}

/// Where the tables of one role are, if not with the others.
#[derive(Clone, Default)]
pub(crate) struct RoleConfig {
    pub(crate) database: Setting<Option<String>>,
    pub(crate) logins: Logins,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            schema: Setting::of(Options::SCHEMA.to_owned()),
            wakeup: Setting::of(Wakeup::default()),
            connections: Setting::default(),
            logins: Logins::default(),
            core: RoleConfig::default(),
            activity: RoleConfig::default(),
            queue: RoleConfig::default(),
        }
    }
}

/// A URL of the section.
struct Field {
    /// Within the section, as people write it.
    key: &'static str,
    flag: &'static str,
    variable: &'static str,
    slot: fn(&mut PostgresConfig) -> &mut Setting<Option<String>>,
    setting: fn(&PostgresConfig) -> &Setting<Option<String>>,
}

macro_rules! fields {
    ($($key:literal, $flag:literal, $variable:literal, $($part:ident).+;)*) => {
        &[$(Field {
            key: $key,
            flag: $flag,
            variable: concat!("LEASEHOLD_", $variable),
            slot: |config| &mut config.$($part).+,
            setting: |config| &config.$($part).+,
        }),*]
    };
}

const FIELDS: &[Field] = fields! {
    "system_login", "system-login", "SYSTEM_LOGIN", logins.system;
    "migration_login", "migration-login", "MIGRATION_LOGIN", logins.migration;
    "core.database", "core-database", "CORE_DATABASE", core.database;
    "core.system_login", "core-system-login", "CORE_SYSTEM_LOGIN", core.logins.system;
    "core.migration_login", "core-migration-login", "CORE_MIGRATION_LOGIN", core.logins.migration;
    "activity.database", "activity-database", "ACTIVITY_DATABASE", activity.database;
    "activity.system_login", "activity-system-login", "ACTIVITY_SYSTEM_LOGIN",
        activity.logins.system;
    "activity.migration_login", "activity-migration-login", "ACTIVITY_MIGRATION_LOGIN",
        activity.logins.migration;
    "queue.database", "queue-database", "QUEUE_DATABASE", queue.database;
    "queue.system_login", "queue-system-login", "QUEUE_SYSTEM_LOGIN", queue.logins.system;
    "queue.migration_login", "queue-migration-login", "QUEUE_MIGRATION_LOGIN",
        queue.logins.migration;
};

/// Those that are no URLs.
const SCHEMA: &str = "schema";
const WAKEUP: &str = "wakeup";
const CONNECTIONS: &str = "connections";

/// Key, flag and variable of each of them.
const WORDS: [(&str, &str, &str); 3] = [
    (SCHEMA, "postgres-schema", "LEASEHOLD_POSTGRES_SCHEMA"),
    (WAKEUP, "postgres-wakeup", "LEASEHOLD_POSTGRES_WAKEUP"),
    (
        CONNECTIONS,
        "postgres-connections",
        "LEASEHOLD_POSTGRES_CONNECTIONS",
    ),
];

/// The words for the ways to learn of work.
pub(super) const WAKEUPS: &[(&str, Wakeup)] = &[("listen", Wakeup::Listen), ("poll", Wakeup::Poll)];

/// A store takes no fewer, and no server serves more to one process.
const CONNECTIONS_ALLOWED: RangeInclusive<u32> = 2..=10_000;

/// What the flags and the environment say of the section. Every command that opens a database takes these;
/// its help does not list them, since they stand in the environment or the file, where passwords may.
#[derive(Clone, Default)]
pub(crate) struct PostgresFlags(Vec<(&'static str, String, Origin)>);

impl fmt::Debug for PostgresFlags {
    /// Without the values, which may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(key, _, origin)| (key, origin)))
            .finish()
    }
}

impl clap::FromArgMatches for PostgresFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = names().filter_map(|(key, flag, variable)| {
            let text = matches.get_one::<String>(flag)?;
            let origin = match matches.value_source(flag) {
                Some(ValueSource::CommandLine) => Origin::Flag { name: flag },
                // As templates leave it where they have no value.
                _ if text.is_empty() => return None,
                _ => Origin::Environment { variable },
            };
            Some((key, text.clone(), origin))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = <Self as clap::FromArgMatches>::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for PostgresFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(names().map(|(_, flag, variable)| {
            Arg::new(flag)
                .long(flag)
                .env(variable)
                .value_name(value_name(flag))
                .global(true)
                .hide(true)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Key, flag and variable of each field.
fn names() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let urls = FIELDS
        .iter()
        .map(|field| (field.key, field.flag, field.variable));
    WORDS.into_iter().chain(urls)
}

fn value_name(flag: &str) -> &'static str {
    let word = WORDS.iter().find(|(_, word, _)| *word == flag);
    match word.map(|(key, _, _)| *key) {
        Some(SCHEMA) => "NAME",
        Some(WAKEUP) => "WORD",
        Some(_) => "N",
        None => "URL",
    }
}

/// The keys of the section, with those of its tables.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    names().map(|(key, _, _)| key)
}

impl PostgresConfig {
    /// Reads the section, and then what stands over it. Whether a URL can be read is found out where it is
    /// opened.
    pub(super) fn read(
        section: Option<&Table<'_>>,
        flags: &PostgresFlags,
        file: &str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut config = Self::default();
        if let Some(section) = section {
            config.read_section(section);
        }
        for (key, text, origin) in &flags.0 {
            if let Err(complaint) = config.read_text(key, text, origin) {
                problems.push(Problem::at(origin, file, complaint));
            }
        }
        config
    }

    /// Takes what a flag or a variable says.
    fn read_text(&mut self, key: &str, text: &str, origin: &Origin) -> Result<(), Complaint> {
        let origin = origin.clone();
        match key {
            SCHEMA => {
                let value = text.to_owned();
                self.schema = Setting { value, origin };
            }
            WAKEUP => {
                let value = choose("postgres.wakeup", text.trim(), WAKEUPS)?;
                self.wakeup = Setting { value, origin };
            }
            CONNECTIONS => {
                let value = connections(text.trim())?;
                self.connections = Setting { value, origin };
            }
            _ => {
                if let Some(field) = FIELDS.iter().find(|field| field.key == key) {
                    let value = Some(text.to_owned());
                    *(field.slot)(self) = Setting { value, origin };
                }
            }
        }
        Ok(())
    }

    fn read_section(&mut self, section: &Table<'_>) {
        let roles = Role::ALL.map(Role::name);
        let (own, _): (Vec<&str>, Vec<&str>) = names()
            .map(|(key, _, _)| key)
            .partition(|key| !key.contains('.'));
        section.allow(&[&own[..], &roles].concat(), |_| None);
        section.read(SCHEMA, &mut self.schema, |entry| {
            entry.text(Options::SCHEMA).map(str::to_owned)
        });
        section.read(WAKEUP, &mut self.wakeup, |entry| entry.choice(WAKEUPS));
        section.read(CONNECTIONS, &mut self.connections, |entry| {
            entry.whole(CONNECTIONS_ALLOWED).map(Some)
        });
        self.read_urls(section, "");
        for role in roles {
            if let Some(table) = section.get(role).and_then(|entry| entry.table()) {
                let prefix = format!("{role}.");
                let keys = names().filter_map(|(key, _, _)| key.strip_prefix(&prefix));
                table.allow(&keys.collect::<Vec<_>>(), |_| None);
                self.read_urls(&table, &prefix);
            }
        }
    }

    /// The URLs of a table whose keys begin so in the section.
    fn read_urls(&mut self, table: &Table<'_>, prefix: &str) {
        for field in FIELDS {
            let Some(name) = field.key.strip_prefix(prefix) else {
                continue;
            };
            table.read(name, (field.slot)(self), |entry| {
                let url = entry.text("postgres://USER@HOST/DATABASE")?;
                Some(Some(url.to_owned()))
            });
        }
    }

    /// Every URL with its key in the file.
    pub(crate) fn urls(&self) -> impl Iterator<Item = (String, &Setting<Option<String>>)> {
        FIELDS.iter().map(|field| {
            let key = format!("postgres.{}", field.key);
            (key, (field.setting)(self))
        })
    }

    /// Where the tables of the role are.
    pub(crate) const fn of(&self, role: Role) -> &RoleConfig {
        match role {
            Role::Core => &self.core,
            Role::Activity => &self.activity,
            Role::Queue => &self.queue,
        }
    }
}

/// How many connections a flag or a variable allows; `none` takes back what the file says.
fn connections(text: &str) -> Result<Option<u32>, Complaint> {
    if text == "none" {
        return Ok(None);
    }
    let number = text.parse::<u32>().ok();
    let fits = number.filter(|number| CONNECTIONS_ALLOWED.contains(number));
    fits.map(Some).ok_or_else(|| {
        let (low, high) = CONNECTIONS_ALLOWED.into_inner();
        Complaint::new(
            format!("postgres.connections = {text:?} is no whole number, or out of range"),
            format!("give a number from {low} to {high}, or none"),
        )
    })
}
