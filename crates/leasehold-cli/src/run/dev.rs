//! `leasehold dev`: the worker while its settings are being written.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::crew::Crew;
use super::{Reason, listen, start_fence, with_runtime, work};
use crate::arguments::Common;
use crate::config::{Config, WorkerFlags};
use crate::failure::{Answer, Failure};
use crate::init;
use crate::screen::Screen;

/// Run a worker as `leasehold run` does, and start it anew when the file of settings changes.
///
/// A file that is not acceptable is told of and otherwise left alone: the worker goes on with the last
/// one that was. Handlers are started for each item, so that a change of theirs counts from the next one.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    worker: WorkerFlags,
}

/// How often the file is looked at: soon enough for a person, and nothing to a disk.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let mut config = Config::load_for_worker(common, &arguments.worker)?;
    let Some(file) = config.file.clone() else {
        return Err(Failure::usage("there is no file of settings to watch")
            .because("--config names none, and this folder has no leasehold.toml")
            .remedy("write one, or use `leasehold run KIND -- CMD`"));
    };
    with_runtime(async {
        let mut stops = listen()?;
        let fence = start_fence()?;
        let reaping = tokio::spawn(init::reap_orphans(fence.clone()));
        let mut crew = Crew::of(&config, &fence)?;
        let ended = loop {
            let mut seen = Look::at(&file);
            crew.introduce(screen);
            let mut next = None;
            let change = async {
                let load = || load(common, arguments, screen);
                next = Some(changed(&file, &mut seen, load).await);
            };
            let (summary, reason) = work(crew, &mut stops, false, change).await?;
            if reason != Reason::Changed {
                break summary;
            }
            screen.talk(&format!("{} has changed; starting anew", file.display()));
            config = next.unwrap_or(config);
            // What can be read may still not be startable: its port may be taken, its database gone.
            crew = loop {
                match Crew::of(&config, &fence) {
                    Ok(crew) => break crew,
                    Err(failure) => screen.refuse(&failure),
                }
                screen.talk("waiting for the file to change");
                let load = || load(common, arguments, screen);
                tokio::select! {
                    loaded = changed(&file, &mut seen, load) => config = loaded,
                    () = stops.next() => return Err(Failure::interrupted()),
                }
            };
        };
        reaping.abort();
        fence.close();
        ended.show(screen)
    })
}

fn load(common: &Common, arguments: &Arguments, screen: &Screen) -> Option<Config> {
    match Config::load_for_worker(common, &arguments.worker) {
        Ok(config) if config.kinds.is_empty() => {
            screen.talk("no kind of work has a command any more; going on as before");
            None
        }
        Ok(config) => Some(config),
        Err(failure) => {
            screen.refuse(&failure);
            screen.talk("going on as before");
            None
        }
    }
}

/// Waits until the file has changed into one that can be loaded.
async fn changed(file: &Path, seen: &mut Look, mut load: impl FnMut() -> Option<Config>) -> Config {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let now = Look::at(file);
        if now == *seen {
            continue;
        }
        // Editors write a file in pieces, or put another in its place: it is read when it is at rest.
        tokio::time::sleep(LOOK_INTERVAL).await;
        if Look::at(file) != now {
            continue;
        }
        *seen = now;
        if let Some(config) = load() {
            return config;
        }
    }
}

/// What tells that a file is no longer the one that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    /// `None` while there is no file.
    modified: Option<(SystemTime, u64)>,
    leads_to: Option<PathBuf>,
}

impl Look {
    fn at(file: &Path) -> Self {
        let modified = fs::metadata(file)
            .and_then(|metadata| Ok((metadata.modified()?, metadata.len())))
            .ok();
        Self {
            modified,
            leads_to: fs::canonicalize(file).ok(),
        }
    }
}
