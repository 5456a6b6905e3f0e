//! The file `leasehold.toml`, what stands over it, and what holds without it.
//!
//! A value comes from a flag, else from the environment, else from the file, else it is the default.
//! Where it came from is kept beside it. All that is wrong with the settings is told at once.
//!
//! - [`page`]: the file as it is read. [`units`]: durations and sizes. [`problem`]: what is wrong.
//! - [`postgres`], [`worker`], [`kinds`]: the sections. [`show`]: the settings as they are in the end.
//! - [`step_functions`]: the section of tasks.
//! - [`serving`]: what no worker of the file would run.
//! - [`redaction`]: payload fields that nobody is shown.
//! - [`command`]: `leasehold config`.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use leasehold::{Kind, Lane, WorkerSettings};

use crate::arguments::Common;
use crate::failure::Failure;
use crate::names::{parse_kind, parse_lane};
use page::{Entry, Page, Table};
use problem::{Complaint, Problem};

pub(crate) mod command;
mod kinds;
mod page;
mod postgres;
mod problem;
mod redaction;
mod schedules;
mod serving;
mod show;
mod step_functions;
mod units;
mod worker;

pub(crate) use kinds::KindConfig;
pub(crate) use postgres::{PostgresConfig, PostgresFlags};
pub(crate) use redaction::{MASK, redacted};
pub(crate) use schedules::Schedules;
pub(crate) use step_functions::StepFunctionsConfig;
pub(crate) use worker::{WorkerConfig, WorkerFlags};

/// Where a value came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    #[default]
    Default,
    File {
        line: usize,
    },
    Environment {
        variable: &'static str,
    },
    Flag {
        /// Without its dashes.
        name: &'static str,
    },
}

impl Origin {
    /// As people find it again; `file` is how the file is shown.
    fn shown(&self, file: &str) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::File { line } => format!("{file}:{line}"),
            Self::Environment { variable } => (*variable).to_owned(),
            Self::Flag { name } => format!("--{name}"),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    /// The default.
    const fn of(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }
}

/// The settings, checked one by one and together. Whether the database can be opened is not among it.
pub(crate) struct Config {
    /// The file they were read from, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The URL as it was written. It may hold a password: [`crate::database`] shows it without.
    pub(crate) database: Setting<String>,
    /// What a server is told about beside its URL.
    pub(crate) postgres: PostgresConfig,
    /// The worker for the lanes that share its capacity.
    pub(crate) worker: WorkerConfig,
    /// Lanes with a capacity of their own.
    pub(crate) lanes: BTreeMap<Lane, Setting<u32>>,
    pub(crate) kinds: BTreeMap<Kind, KindConfig>,
    /// Where tasks come from, if the worker takes those and no items of a queue.
    pub(crate) step_functions: Option<StepFunctionsConfig>,
    pub(crate) schedules: Schedules,
}

const KEYS: &[&str] = &[
    "database",
    "postgres",
    "worker",
    "lanes",
    "kinds",
    "step_functions",
    "schedules",
];
const LANE_KEYS: &[&str] = &["capacity"];

/// Where the queue is without a word about it.
const DATABASE: &str = "sqlite:leasehold.db";

/// The file that is looked for without a word about it.
const FILE: &str = "leasehold.toml";

/// A bound for memory; nobody writes more settings by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Config {
    /// The settings for a command that starts no worker.
    pub(crate) fn load(common: &Common) -> Result<Self, Failure> {
        Self::load_for_worker(common, &WorkerFlags::default())
    }

    /// The settings, with what flags and environment say of the worker over what the file does.
    pub(crate) fn load_for_worker(common: &Common, flags: &WorkerFlags) -> Result<Self, Failure> {
        let (config, problems) = Self::examine(common, flags)?;
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(problem::refusal(problems))
        }
    }

    /// The settings, with defaults in place of what is not acceptable, and what that is.
    fn examine(common: &Common, flags: &WorkerFlags) -> Result<(Self, Vec<Problem>), Failure> {
        let source = Source::find(common)?;
        let over = Over {
            database: common.database(),
            postgres: &common.postgres,
            worker: flags,
        };
        Ok(Self::read(source.as_ref(), over))
    }

    /// One worker's settings for the lanes that share a capacity, and one for each that has its own, all
    /// of them for one process. If there are several, none of them has the health port: one
    /// [`leasehold::HealthPort`] answers for all.
    pub(crate) fn workers(&self) -> Vec<WorkerSettings> {
        let shared = &self.worker.settings;
        let alone = self.lanes.iter().map(|(lane, capacity)| WorkerSettings {
            name: format!("{}-{lane}", shared.name),
            lanes: vec![lane.clone()],
            capacity: capacity.value,
            ..shared.clone()
        });
        let has_shared = !shared.lanes.is_empty();
        let mut workers: Vec<WorkerSettings> = has_shared
            .then(|| shared.clone())
            .into_iter()
            .chain(alone)
            .collect();
        if workers.len() > 1 {
            for worker in &mut workers {
                worker.health = None;
            }
        }
        workers
    }

    /// How many calls these workers make to the database at once; without kinds there are none.
    pub(crate) fn calls_at_once(&self) -> u32 {
        if self.kinds.is_empty() {
            return 0;
        }
        let workers = self.workers();
        workers.iter().map(WorkerSettings::calls_at_once).sum()
    }

    /// Leaves these kinds of the file; or the one kind, with a command for it in this folder.
    pub(crate) fn only(&mut self, kinds: &[String], command: &[String]) -> Result<(), Failure> {
        let kinds: Result<Vec<Kind>, Failure> = kinds.iter().map(|kind| parse_kind(kind)).collect();
        let kinds = kinds?;
        if command.is_empty() {
            if let Some(kind) = kinds.iter().find(|one| !self.kinds.contains_key(*one)) {
                return Err(self.without_command(kind));
            }
            self.kinds.retain(|kind, _| kinds.contains(kind));
            return Ok(());
        }
        if command.first().is_some_and(String::is_empty) {
            return Err(without_program());
        }
        let [kind] = kinds.as_slice() else {
            return Err(Failure::usage("a command is given, and several kinds")
                .because("a command here is for exactly one kind")
                .remedy("name one kind, or give each a section with a command in leasehold.toml"));
        };
        let of_file = self.kinds.remove(kind);
        let config = of_file
            .unwrap_or_else(|| KindConfig::within(Path::new("")))
            .with_command(command);
        self.kinds = BTreeMap::from([(kind.clone(), config)]);
        Ok(())
    }

    fn without_command(&self, kind: &Kind) -> Failure {
        let known: Vec<&str> = self.kinds.keys().map(Kind::as_str).collect();
        let remedy = match page::nearest(kind.as_str(), &known) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("add one, as in `leasehold run {kind} -- python3 handler.py`"),
        };
        Failure::usage(format!("there is no command for {kind}"))
            .because("none is given, and the file of settings has no section for the kind")
            .remedy(remedy)
    }

    /// The payload fields of the kind that nobody is shown.
    pub(crate) fn redacted(&self, kind: &Kind) -> &[String] {
        self.kinds
            .get(kind)
            .map_or(&[], |config| &config.redact.value)
    }

    /// The folder that relative paths of the file count from.
    pub(crate) fn folder(&self) -> &Path {
        folder_of(self.file.as_deref())
    }

    fn read(source: Option<&Source>, over: Over<'_>) -> (Self, Vec<Problem>) {
        let file = source.map(|source| source.path.clone());
        let (shown, text) = source.map_or((FILE, ""), |source| {
            (source.shown.as_str(), source.text.as_str())
        });
        let page = Page::new(shown, text);
        let entries = page.parse();
        let root = Table::root(&page, entries.get_ref());
        root.allow(KEYS, |key| {
            let is_workers = worker::names().contains(&key);
            is_workers.then(|| "it belongs into the section [worker]".to_owned())
        });
        let section = |key| root.get(key).and_then(|entry| entry.table());

        let mut setting = Setting::of(DATABASE.to_owned());
        root.read("database", &mut setting, |entry| {
            entry.text(DATABASE).map(str::to_owned)
        });
        let lanes = section("lanes").map(|lanes| read_lanes(&lanes));
        let lanes = lanes.unwrap_or_default();
        let folder = folder_of(file.as_deref());
        let kinds = section("kinds").map(|sections| kinds::read(&sections, folder));
        let kinds = kinds.unwrap_or_default();
        let schedules = section("schedules").map(|sections| schedules::read(&sections, &kinds));
        let schedules = schedules.unwrap_or_default();
        let alone: Vec<&Lane> = lanes.keys().collect();
        let mut problems = Vec::new();
        let worker = section("worker");
        let worker = WorkerConfig::read(worker.as_ref(), over.worker, &alone, shown, &mut problems);
        let postgres = section("postgres");
        let postgres = PostgresConfig::read(postgres.as_ref(), over.postgres, shown, &mut problems);
        let step_functions =
            section("step_functions").and_then(|section| step_functions::read(&section, &kinds));
        problems.extend(page.into_problems());
        let config = Self {
            file,
            database: over.database.unwrap_or(setting),
            postgres,
            worker,
            lanes,
            kinds,
            step_functions,
            schedules,
        };
        if problems.is_empty() {
            problems.extend(config.misnamed(shown));
        }
        (config, problems)
    }

    /// What is wrong with the workers of single lanes where nothing is wrong with the settings: their
    /// names are longer.
    fn misnamed(&self, shown: &str) -> Vec<Problem> {
        let misnamed = self.workers().into_iter().filter_map(|worker| {
            let error = worker.check().err()?;
            let (lane, capacity) = self
                .lanes
                .iter()
                .find(|(lane, _)| worker.lanes.contains(lane))?;
            let what = format!(
                "the worker of the lane {lane} would be called {}",
                error.given
            );
            let remedy = format!("shorten it or worker.name: together {}", error.rule);
            Some(Problem::at(
                &capacity.origin,
                shown,
                Complaint::new(what, remedy),
            ))
        });
        misnamed.collect()
    }
}

/// What flags and the environment say over the file.
struct Over<'a> {
    database: Option<Setting<String>>,
    postgres: &'a PostgresFlags,
    worker: &'a WorkerFlags,
}

/// Refuses a command that was given here.
pub(crate) fn without_program() -> Failure {
    Failure::usage("the command names no program")
        .because("its first word is empty")
        .remedy("put one after --, as in -- python3 handler.py")
}

/// The lanes that have a capacity of their own.
fn read_lanes(sections: &Table<'_>) -> BTreeMap<Lane, Setting<u32>> {
    let mut lanes = BTreeMap::new();
    for entry in sections.entries() {
        let lane = parse_lane(entry.name).map_err(|failure| Complaint::of(&failure));
        let lane = entry.accept(lane);
        let Some(section) = entry.table() else {
            continue;
        };
        section.allow(LANE_KEYS, |key| {
            let is_workers = worker::names().contains(&key);
            is_workers.then(|| format!("set {key} in [worker]: it is the same for all lanes"))
        });
        if section.get("capacity").is_none() {
            section.complain(Complaint::new(
                format!("{} has no capacity", section.path),
                "add one, as in capacity = 2, or name the lane in worker.lanes instead",
            ));
        }
        let mut setting = Setting::of(1);
        section.read("capacity", &mut setting, read_capacity);
        if let Some(lane) = lane {
            lanes.insert(lane, setting);
        }
    }
    lanes
}

fn read_capacity(entry: &Entry<'_>) -> Option<u32> {
    let capacity = entry.whole(0..=u32::MAX)?;
    let judged = WorkerSettings {
        capacity,
        ..WorkerSettings::default()
    };
    entry.accept(judged.check().map_err(|error| {
        let what = format!("{} = {capacity} is not acceptable", entry.path);
        Complaint::new(what, format!("it must be {}", error.rule))
    }))?;
    Some(capacity)
}

/// The text of the file, and what it is called.
struct Source {
    path: PathBuf,
    shown: String,
    text: String,
}

impl Source {
    /// The file that --config or `LEASEHOLD_CONFIG` names; else the one in this folder, if there is one.
    fn find(common: &Common) -> Result<Option<Self>, Failure> {
        match common.config() {
            Some(path) => Self::open(path).map(Some).map_err(|error| {
                unreadable(path, error)
                    .remedy("check the path that --config (or LEASEHOLD_CONFIG) gives")
            }),
            None => match Self::open(Path::new(FILE)) {
                Ok(source) => Ok(Some(source)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(unreadable(Path::new(FILE), error)
                    .remedy("make it a readable file, or give another with --config")),
            },
        }
    }

    fn open(path: &Path) -> io::Result<Self> {
        refuse_special(&std::fs::metadata(path)?)?;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path)?;
        // One byte more than allowed is enough to know that there are too many.
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let why = format!("it holds more than {FILE_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = error.as_bytes().iter().take(valid);
            let line = before.filter(|byte| **byte == b'\n').count() + 1;
            let why = format!("line {line} is not UTF-8 text");
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        Ok(Self {
            path: path.to_owned(),
            shown: path.display().to_string(),
            text,
        })
    }
}

/// To open a pipe waits for whoever writes to it, and a device may have no end. A folder cannot be read
/// anyway.
fn refuse_special(metadata: &std::fs::Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let what = if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        return Ok(());
    };
    let why = format!("it is {what}, and a regular file is needed");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn unreadable(path: &Path, error: io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read", path.display())).because(error)
}

fn folder_of(file: Option<&Path>) -> &Path {
    file.and_then(Path::parent).unwrap_or(Path::new(""))
}

#[cfg(test)]
pub(crate) mod tests;
