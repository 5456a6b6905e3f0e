//! The one place that looks at a database URL, and opens what it names.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Clock as _;
use leasehold::{Client, SystemClock};
use leasehold_sqlite::{OpenError, Options};

use crate::config::{Config, MASK, Origin};
use crate::failure::Failure;

/// A database, as its URL named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Database {
    path: PathBuf,
}

/// To create a file takes a few writes to the disk.
const CREATION_PATIENCE: Duration = Duration::from_secs(3);
/// How often is looked whether it is created.
const CREATION_LOOK: Duration = Duration::from_millis(10);

/// Schemes that people have good reason to try, and what to say to each.
const NOT_YET: &[&str] = &["postgres", "postgresql"];

impl Database {
    /// The database of the settings. A relative path in their file counts from its folder, and so does
    /// the default: all who name the same file are to find one queue, wherever they are started.
    pub(crate) fn of(config: &Config) -> Result<Self, Failure> {
        let url = &config.database;
        let mut database = Self::parse(&url.value)?;
        if let Origin::File { .. } | Origin::Default = url.origin {
            database.path = config.folder().join(database.path);
        }
        Ok(database)
    }

    /// Reads `sqlite:PATH`, `sqlite://PATH` or a bare path.
    ///
    /// Only the scheme of anything else is repeated: the rest may hold a password.
    fn parse(url: &str) -> Result<Self, Failure> {
        let scheme = scheme_of(url);
        let path = match scheme {
            None => url,
            Some("sqlite") => {
                let rest = &url["sqlite:".len()..];
                rest.strip_prefix("//").unwrap_or(rest)
            }
            Some(scheme) if NOT_YET.contains(&scheme) => {
                return Err(Failure::cannot_open("this build has no Postgres yet")
                    .because(format!("the database's URL begins with {scheme}:"))
                    .remedy("give a file, such as --database sqlite:leasehold.db"));
            }
            Some(scheme) => {
                return Err(Failure::cannot_open(format!(
                    "{scheme}: is no database that is known here"
                ))
                .because("this build keeps its queue in a SQLite file")
                .remedy("give a file, such as --database sqlite:leasehold.db"));
            }
        };
        if path.trim().is_empty() {
            return Err(Failure::usage("the database's path is empty")
                .because("--database, LEASEHOLD_DATABASE or the file of settings names no file")
                .remedy("give a file, such as --database sqlite:leasehold.db"));
        }
        if path.contains('\0') {
            return Err(Failure::usage("the database's path holds a zero character")
                .because("no file can be named so")
                .remedy("give a file, such as --database sqlite:leasehold.db"));
        }
        if scheme.is_some() && path.contains('?') {
            return Err(Failure::usage("the database's URL has options after a ?")
                .because("a file is opened in one way, so there is nothing to choose")
                .remedy("leave the ? and what follows out"));
        }
        Ok(Self { path: path.into() })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens what is there: the file must exist and be of this build's schema.
    pub(crate) fn open(&self) -> Result<Client, Failure> {
        self.open_with(options().without_creating().without_migrating())
    }

    /// Opens the file, and creates it if there is none. One of an older schema is left as it is, for a
    /// person to migrate: workers of an older build may be running on it.
    pub(crate) fn open_or_create(&self) -> Result<Client, Failure> {
        if !self.path.exists() {
            return self.open_with(options());
        }
        let begun = SystemClock.elapsed();
        loop {
            let as_it_is = options().without_creating().without_migrating();
            match leasehold_sqlite::open(&self.path, as_it_is) {
                // Somebody else, started at the same time, may be creating it just now.
                Err(OpenError::Schema { .. })
                    if self.is_young()
                        && SystemClock.elapsed().since(begun) < CREATION_PATIENCE =>
                {
                    std::thread::park_timeout(CREATION_LOOK);
                }
                opened => return Ok(Client::single_tenant(opened.map_err(refusal)?.stores())?),
            }
        }
    }

    fn open_with(&self, options: Options) -> Result<Client, Failure> {
        let store = leasehold_sqlite::open(&self.path, options).map_err(refusal)?;
        Ok(Client::single_tenant(store.stores())?)
    }

    /// Whether the file was written a moment ago; `false` where nobody can say.
    fn is_young(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| {
            let age = SystemClock.now().as_second().saturating_sub(file.mtime());
            age <= CREATION_PATIENCE.as_secs().cast_signed()
        })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The URL of the settings for people: with its path as it counts from here, and with no password.
pub(crate) fn shown(config: &Config) -> String {
    match Database::of(config) {
        Ok(database) => format!("sqlite:{database}"),
        Err(_) => without_password(&config.database.value),
    }
}

/// The URL with whatever may be a password masked. Where one ends is not always plain, so rather too
/// much is taken than too little.
fn without_password(url: &str) -> String {
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

/// How a file is opened unless a command says otherwise.
pub(crate) fn options() -> Options {
    Options::new(Arc::new(SystemClock))
}

/// What stood in the way of opening a file, in our three lines.
pub(crate) fn refusal(error: OpenError) -> Failure {
    if let OpenError::Missing { path } | OpenError::Unusable { path, .. } = &error
        && let Some(failure) = without_folder(path)
    {
        return failure;
    }
    match error {
        OpenError::Missing { path } => Failure::cannot_open(format!(
            "there is no database at {}",
            path.display()
        ))
        .because("this command works on what is there, so it creates none")
        .remedy("`leasehold migrate` or `leasehold enqueue` creates it; --database names another"),
        OpenError::NotAFile { path } => {
            Failure::cannot_open(format!("{} is no database file", path.display()))
                .because("several processes must be able to open it by its path")
                .remedy("give the path of a file on a local disk")
        }
        OpenError::Unusable { path, source } => {
            Failure::cannot_open(format!("the database at {} cannot be used", path.display()))
                .because(source)
                .remedy("check that it is a SQLite file on a local disk that you may write to")
        }
        OpenError::Schema { path, reason } => {
            let (why, remedy) = reason.split_once("; ").unwrap_or((&reason, ""));
            // The store speaks to programs, too; a person at the command line has one way.
            let remedy = if remedy.contains("leasehold migrate") {
                "run `leasehold migrate`"
            } else {
                remedy
            };
            Failure::cannot_open(format!(
                "the database at {} does not fit this build",
                path.display()
            ))
            .because(why)
            .remedy(remedy)
        }
        other => Failure::cannot_open("the database cannot be opened").because(other),
    }
}

/// A refusal if the file cannot be there because its folder is not.
fn without_folder(path: &Path) -> Option<Failure> {
    let folder = path.parent()?;
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return None;
    }
    let shown = folder.display();
    let (what, remedy) = if folder.exists() {
        (
            format!("{shown} is no folder"),
            "name a database elsewhere with --database",
        )
    } else {
        (
            format!("the folder {shown} is not there"),
            "make it, or name a database elsewhere with --database",
        )
    };
    Some(
        Failure::cannot_open(what)
            .because(format!("the database would be {}", path.display()))
            .remedy(remedy),
    )
}

/// The scheme, if the text has one: `word://…`, or one of the words that we know before a colon.
fn scheme_of(url: &str) -> Option<&str> {
    let (word, rest) = url.split_once(':')?;
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let is_known = word == "sqlite" || word == "file" || NOT_YET.contains(&word);
    (is_word && (is_known || rest.starts_with("//"))).then_some(word)
}

#[cfg(test)]
mod tests;
