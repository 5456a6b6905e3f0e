//! The one place that looks at a database URL, and opens what it names.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::Client;
use leasehold_postgres::PostgresStore;

use crate::config::{Config, MASK, Origin, PostgresConfig};
use crate::failure::Failure;

mod fence;
mod postgres;
mod sqlite;

pub(crate) use fence::Verdict;
use postgres::Opened;
pub(crate) use postgres::{Place, Postgres};
pub(crate) use sqlite::{Sqlite, options, refusal};

/// A database, as its URL named it. Shown without a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Database {
    /// A file of one machine.
    Sqlite(Sqlite),
    /// A server for many.
    Postgres(Postgres),
}

/// To create a schema takes a few writes to the disk.
const CREATION_PATIENCE: Duration = Duration::from_secs(3);
/// How often is looked whether it is created.
const CREATION_LOOK: Duration = Duration::from_millis(10);

/// What to do where there is no queue.
const TO_CREATE: &str =
    "`leasehold migrate` or `leasehold enqueue` creates it; --database names another";

/// Telling others saves them one look, and they look every few seconds.
const TELLING_PATIENCE: Duration = Duration::from_secs(1);

/// One step of a database's schema, and whether the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// From 1, without gaps.
    pub(crate) version: u32,
    /// What it is about.
    pub(crate) name: String,
    /// `None` while it is pending.
    pub(crate) applied_at: Option<Timestamp>,
    /// Whether this build does not know it: a later one applied it.
    pub(crate) is_later: bool,
}

impl Database {
    /// The database of the settings. A relative path in their file counts from its folder, and so does
    /// the default: all who name the same file are to find one queue, wherever they are started.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        let url = &config.database;
        let counts_from_file = matches!(url.origin, Origin::File { .. } | Origin::Default);
        match Self::parse(&url.value)? {
            Self::Postgres(server) => Ok(Self::Postgres(server.with(&config.postgres)?)),
            Self::Sqlite(file) => {
                without_urls(&config.postgres)?;
                Ok(Self::Sqlite(if counts_from_file {
                    file.within(config.folder())
                } else {
                    file
                }))
            }
        }
    }

    /// Reads `sqlite:PATH`, `sqlite://PATH`, a bare path, or `postgres://…`.
    ///
    /// Only the scheme of anything else is repeated: the rest may hold a password.
    fn parse(url: &str) -> Result<Self, Failure> {
        let url = url.trim();
        match scheme_of(url) {
            None if is_mistyped_address(url) => {
                Err(Failure::cannot_open("the database is no file's name")
                    .because("it has parts of a server's address, which are not repeated here")
                    .remedy(
                        "give postgres://USER:PASSWORD@HOST/DATABASE, or a file, such as ./jobs.db",
                    ))
            }
            None => Sqlite::parse(url, false).map(Self::Sqlite),
            Some("sqlite") => {
                let rest = &url["sqlite:".len()..];
                Sqlite::parse(rest.strip_prefix("//").unwrap_or(rest), true).map(Self::Sqlite)
            }
            Some(scheme) if POSTGRES.contains(&scheme) => Postgres::parse(url).map(Self::Postgres),
            Some(scheme) => Err(Failure::cannot_open(format!(
                "{scheme}: is no database that is known here"
            ))
            .because("a queue is kept in a SQLite file or on a Postgres server")
            .remedy("give a file, such as --database sqlite:leasehold.db, or a postgres:// URL")),
        }
    }

    /// The same, with connections enough for workers that make so many calls at once; or the refusal, where
    /// the settings allow fewer.
    pub(crate) fn serving(self, calls: u32) -> Result<Self, Failure> {
        match self {
            Self::Postgres(server) => server.serving(calls).map(Self::Postgres),
            // A file has one connection that writes, whoever asks.
            file @ Self::Sqlite(_) => Ok(file),
        }
    }

    /// The same database with its tables in that schema.
    pub(crate) fn within_schema(self, schema: Option<&str>) -> Result<Self, Failure> {
        match (self, schema) {
            (database, None) => Ok(database),
            (Self::Postgres(server), Some(schema)) => {
                server.within_schema(schema).map(Self::Postgres)
            }
            (Self::Sqlite(_), Some(_)) => Err(Failure::usage("a SQLite file has no schemas")
                .because("the tables of a queue are all that is in it")
                .remedy("leave --schema out, or name a Postgres database with --database")),
        }
    }

    /// Opens what is there: the queue must exist and be of this build's schema.
    pub(crate) async fn open(&self) -> Result<Queue, Failure> {
        match self {
            Self::Sqlite(file) => Ok(Queue::of_file(file.open()?)),
            Self::Postgres(server) => Queue::of_server(server.open().await?),
        }
    }

    /// Refuses a database that has no logins.
    pub(crate) fn has_logins(&self) -> Result<&Postgres, Failure> {
        match self {
            Self::Sqlite(_) => Err(Failure::usage("a file has no logins")
                .because("--create-roles is for a database on a Postgres server")
                .remedy("leave it out: `leasehold migrate` is all that a file needs")),
            Self::Postgres(server) => Ok(server),
        }
    }

    /// Opens the queue, and creates it if there is none. One of an older schema is left as it is, for a
    /// person to migrate: workers of an older build may be running on it.
    pub(crate) async fn open_or_create(&self) -> Result<Queue, Failure> {
        match self {
            Self::Sqlite(file) => Ok(Queue::of_file(file.open_or_create()?)),
            Self::Postgres(server) => Queue::of_server(server.open_or_create().await?),
        }
    }

    /// How it stands with the fence between tenants, in each database. A file has none: whoever opens it reads
    /// all of it.
    pub(crate) async fn fences(&self) -> Result<Vec<Verdict>, Failure> {
        let Self::Postgres(server) = self else {
            return Ok(Vec::new());
        };
        let mut verdicts = Vec::new();
        for place in server.places() {
            verdicts.push(Verdict::of(&place.look_at_fence().await?));
        }
        Ok(verdicts)
    }

    /// Brings the schema to this build's, creating the queue if there is none; answers the versions that
    /// were applied.
    pub(crate) async fn migrate(&self) -> Result<Vec<u32>, Failure> {
        match self {
            Self::Sqlite(file) => file.migrate(),
            Self::Postgres(server) => server.migrate().await,
        }
    }

    /// Every step of the schema. Changes nothing.
    pub(crate) async fn steps(&self) -> Result<Vec<Step>, Failure> {
        match self {
            Self::Sqlite(file) => file.steps(),
            Self::Postgres(server) => server.steps().await,
        }
    }
}

/// Whether somebody meant a server, and would be given a file whose name holds a password.
fn is_mistyped_address(path: &str) -> bool {
    let has_keywords = path.split_whitespace().any(|part| {
        [
            "host=",
            "hostaddr=",
            "user=",
            "password=",
            "dbname=",
            "port=",
        ]
        .iter()
        .any(|keyword| part.starts_with(keyword))
    });
    has_keywords
        || path
            .split_once("//")
            .is_some_and(|(_, rest)| rest.contains('@'))
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => file.fmt(f),
            Self::Postgres(server) => server.fmt(f),
        }
    }
}

/// A queue that is open. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    client: Client,
    /// Where others have to be told of what is done here.
    servers: Vec<Arc<PostgresStore>>,
}

impl Queue {
    /// Processes that share a file look whether it has changed.
    const fn of_file(client: Client) -> Self {
        Self {
            client,
            servers: Vec::new(),
        }
    }

    fn of_server(opened: Opened) -> Result<Self, Failure> {
        Ok(Self {
            client: Client::single_tenant(opened.stores())?,
            servers: opened.databases,
        })
    }

    /// Waits until other processes have been told what there is to do. For a process that is about to end:
    /// what it has not told they find later, when they look.
    pub(crate) async fn told(&self) {
        for store in &self.servers {
            // Nothing is lost if it is not done by then.
            let _ = tokio::time::timeout(TELLING_PATIENCE, store.hints_sent()).await;
        }
    }
}

impl Deref for Queue {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Refuses what a file has no use for: left alone, it would be taken for a fence.
fn without_urls(config: &PostgresConfig) -> Result<(), Failure> {
    let Some((key, _)) = config.urls().find(|(_, url)| url.value.is_some()) else {
        return Ok(());
    };
    Err(
        Failure::usage(format!("{key} is set, and the database is a file"))
            .because("logins and databases of roles are for a Postgres server")
            .remedy(format!("leave {key} out, or name a server as the database")),
    )
}

/// The URL of the settings for people: with its path as it counts from here, and with no password.
pub(crate) fn shown(config: &Config) -> String {
    match Database::of(config) {
        Ok(Database::Sqlite(file)) => format!("sqlite:{file}"),
        Ok(Database::Postgres(_)) | Err(_) => without_password(&config.database.value),
    }
}

/// A URL as it was given, for a command to paste: what may be a password is masked, to be filled in.
pub(crate) fn to_paste(url: &str) -> String {
    match Database::parse(url) {
        Ok(Database::Sqlite(_)) => url.to_owned(),
        Ok(Database::Postgres(_)) | Err(_) => without_password(url),
    }
}

/// The URL with whatever may be a password masked. Where one ends is not always plain, so rather too
/// much is taken than too little.
pub(crate) fn without_password(url: &str) -> String {
    let scheme_end = url.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = url.split_at(scheme_end);
    let mut shown = scheme.to_owned();
    let (user, place) = rest.rsplit_once('@').map_or(("", rest), |(user, place)| {
        (user.split_once(':').map_or(user, |(name, _)| name), place)
    });
    if rest.len() > place.len() {
        shown.push_str(user);
        if rest.len() > user.len() + 1 + place.len() {
            shown.push(':');
            shown.push_str(MASK);
        }
        shown.push('@');
    }
    // As a parameter, too: `?password=…`, `password=…`.
    let mut place = place;
    while let Some(at) = find_password(place) {
        let value_ends = place[at..]
            .find(['&', ' '])
            .map_or(place.len(), |end| at + end);
        shown.push_str(&place[..at]);
        shown.push_str(MASK);
        place = &place[value_ends..];
    }
    shown.push_str(place);
    shown
}

/// Where the value of the first parameter begins whose name ends in `password`.
fn find_password(text: &str) -> Option<usize> {
    let name = "password=";
    let at = text.to_ascii_lowercase().find(name)?;
    Some(at + name.len())
}

/// The refusal of a schema that is not this build's. The store speaks to programs, too; a person at the
/// command line has one way.
fn unfit(database: &dyn fmt::Display, reason: &str) -> Failure {
    let (why, remedy) = reason.split_once("; ").unwrap_or((reason, ""));
    let remedy = if remedy.contains("leasehold migrate") {
        "run `leasehold migrate`"
    } else {
        remedy
    };
    Failure::cannot_open(format!(
        "the database at {database} does not fit this build"
    ))
    .because(why)
    .remedy(remedy)
}

/// The schemes of Postgres.
const POSTGRES: &[&str] = &["postgres", "postgresql"];

/// The scheme, if the text has one: `word://…`, or one of the words that we know before a colon.
fn scheme_of(url: &str) -> Option<&str> {
    let (word, rest) = url.split_once(':')?;
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let is_known = word == "sqlite" || word == "file" || POSTGRES.contains(&word);
    (is_word && (is_known || rest.starts_with("//"))).then_some(word)
}

#[cfg(test)]
mod tests;
