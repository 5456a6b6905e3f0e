//! `leasehold dev`: the worker while its settings are being written.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::crew::Crew;
use super::{Reason, Summary, fenced, work};
use crate::arguments::Common;
use crate::config::{Config, WorkerFlags};
use crate::failure::{Answer, Failure};
use crate::screen::Screen;

/// Run a worker as `leasehold run` does, and start it anew when the file of settings changes.
///
/// A file that is not acceptable is told of and otherwise left alone: the worker goes on with the last
/// one that was. One that is acceptable and cannot be started with, because its port is taken or its
/// database cannot be opened, is tried again until it can. Handlers are started for each item, so that a
/// change of theirs counts from the next one.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    worker: WorkerFlags,
}

/// How often the file is looked at: soon enough for a person, and nothing to a disk.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// How often a start is tried again that did not work: what stood in its way may have gone.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let (mut bench, mut config) = Bench::prepare(arguments, common, screen)?;
    fenced(async |fence, stops| {
        let mut whole = Summary::default();
        let Some(mut crew) = super::start(&config, fence, stops).await? else {
            return whole.show(screen);
        };
        loop {
            crew.introduce(screen);
            let mut next = None;
            let change = async { next = Some(bench.changed().await) };
            let (summary, reason) = work(crew, stops, false, change).await?;
            whole.add(summary);
            match next {
                Some(changed) if reason == Reason::Changed => config = changed,
                _ => return whole.show(screen),
            }
            bench.say(&format!("{} has changed; starting anew", bench.shown()));
            crew = tokio::select! {
                started = bench.start(&mut config, async |config| Crew::of(config, fence).await) => started,
                () = stops.next() => return whole.show(screen),
            };
        }
    })
}

/// The file of settings, watched.
struct Bench<'a> {
    arguments: &'a Arguments,
    common: &'a Common,
    screen: &'a Screen,
    file: PathBuf,
    /// The file as it was when it was read last.
    seen: Look,
}

impl<'a> Bench<'a> {
    /// Answers the settings as well.
    fn prepare(
        arguments: &'a Arguments,
        common: &'a Common,
        screen: &'a Screen,
    ) -> Result<(Self, Config), Failure> {
        let load = || Config::load_for_worker(common, &arguments.worker);
        let Some(file) = load()?.file else {
            return Err(Failure::usage("there is no file of settings to watch")
                .because("--config names none, and this folder has no leasehold.toml")
                .remedy("write one, or use `leasehold run KIND -- CMD`"));
        };
        let bench = Self {
            arguments,
            common,
            screen,
            seen: Look::at(&file),
            file,
        };
        // Read after it was looked at, so that whatever is written from now on is a change.
        let config = load()?;
        Ok((bench, config))
    }

    /// Waits until the file has changed into one that can be loaded. May be dropped at any time, and no
    /// change is missed.
    async fn changed(&mut self) -> Config {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let now = Look::at(&self.file);
            if now == self.seen {
                continue;
            }
            // Editors write a file in pieces, or put another in its place: it is read when it is at rest.
            tokio::time::sleep(LOOK_INTERVAL).await;
            if Look::at(&self.file) != now {
                continue;
            }
            self.seen = now;
            if let Some(config) = self.load() {
                return config;
            }
        }
    }

    fn load(&self) -> Option<Config> {
        if !self.file.exists() {
            self.say(&format!("{} is gone; going on as before", self.shown()));
            return None;
        }
        match Config::load_for_worker(self.common, &self.arguments.worker) {
            Ok(config) if config.kinds.is_empty() => {
                self.say("no kind of work has a command any more; going on as before");
                None
            }
            Ok(config) => Some(config),
            Err(failure) => {
                self.screen.refuse(&failure);
                self.say("going on as before");
                None
            }
        }
    }

    /// Starts with the settings, or with those that the file holds by the time that it can be done.
    async fn start<T>(
        &mut self,
        config: &mut Config,
        start: impl AsyncFn(&Config) -> Result<T, Failure>,
    ) -> T {
        let mut told = None;
        loop {
            match start(config).await {
                Ok(started) => return started,
                Err(failure) if told.as_ref() == Some(&failure) => {}
                Err(failure) => {
                    self.screen.refuse(&failure);
                    self.say("trying again until it works, or the file changes");
                    told = Some(failure);
                }
            }
            if let Ok(changed) = tokio::time::timeout(RETRY_INTERVAL, self.changed()).await {
                *config = changed;
                told = None;
            }
        }
    }

    fn shown(&self) -> impl std::fmt::Display {
        self.file.display()
    }

    /// A line of the log where that goes to programs, and talk where it goes to a person.
    fn say(&self, text: &str) {
        if self.screen.is_json() {
            tracing::info!("{text}");
        } else {
            self.screen.talk(text);
        }
    }
}

/// What tells that a file is no longer the one that was seen. All `None` while there is no file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    modified: Option<SystemTime>,
    /// Length and number: another file in its place may have kept the time of what it was copied from.
    which: Option<(u64, u64)>,
    leads_to: Option<PathBuf>,
}

impl Look {
    fn at(file: &Path) -> Self {
        let metadata = fs::metadata(file).ok();
        Self {
            modified: metadata.as_ref().and_then(|data| data.modified().ok()),
            which: metadata.map(|data| (data.len(), data.ino())),
            leads_to: fs::canonicalize(file).ok(),
        }
    }
}
