//! `leasehold run`: the worker that needs no code. Claims items and runs each as its kind's command.
//!
//! [`crew`] makes the workers from the settings; [`dev`] starts them again when the file changes;
//! [`summary`] says what they did, and [`unhandled`] what they left.

use std::time::Duration;

use leasehold::core::Clock as _;
use leasehold::{Client, Idleness, Stopper, SystemClock, WorkerError};
use leasehold_fence::{Fence, StartError};

use crate::arguments::Common;
use crate::config::{Config, WorkerFlags};
use crate::failure::{Answer, Failure};
use crate::init;
use crate::runtime;
use crate::screen::Screen;
use crate::stops::Stops;
use crew::Crew;
use summary::Summary;
use unhandled::Unhandled;

mod crew;
pub(crate) mod dev;
mod summary;
#[cfg(feature = "aws")]
mod tasks;
mod unhandled;

/// Run a worker: claim items and run each as the command of its kind.
///
/// Kinds and their commands stand in the file of settings; without one, name a kind and its command
/// here. A command gets the item's payload and runs under a lease: if the worker loses it, dies or is
/// frozen, every process of the command is killed before anybody else may take the item.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  leasehold run                                   every kind of leasehold.toml
  leasehold run SEND RENDER                       two of them
  leasehold run HELLO -- python3 hello.py         one kind, and no file
  leasehold run --until-empty --fail-on-dead      end when nothing is due; 1 if there are dead letters

TERM or Ctrl-C drains: what runs is asked to end, and items that are not done are handed back. A second
one does not wait.",
    after_long_help = "Examples:
  leasehold run                                   every kind of leasehold.toml
  leasehold run SEND RENDER                       two of them
  leasehold run HELLO -- python3 hello.py         one kind, and no file
  leasehold run --until-empty --fail-on-dead      end when nothing is due; 1 if there are dead letters

TERM or Ctrl-C drains: what runs is asked to end, and items that are not done are handed back. A second
one does not wait.

Exits with 0 after a drain, 1 if too many runs did not end, so that the process has to be replaced, and \
with --fail-on-dead also if an item ended as a dead letter. Items that will be tried again are none.

With --json the log is one JSON object a line, and at the end standard output has one object: {\"schema\", \
\"worker\": [id, …], \"finished\": {outcome: count, …}, \"abandoned\", \"unhandled\"}, where abandoned counts the \
items that could not be handed back in time: they are recovered when their leases are over. unhandled counts, \
after --until-empty, the due items that have no handler here (as far as they are among the newest 1000 \
queued ones); else it is null."
)]
pub(crate) struct Arguments {
    /// Only these kinds of the file of settings; or one kind, with its command after --.
    #[arg(value_name = "KIND")]
    kinds: Vec<String>,

    /// End when nothing is due any more. What waits for a later time is left, and so are items of kinds
    /// or lanes that this worker does not serve: it says how many of those are due.
    #[arg(
        long,
        env = "LEASEHOLD_RUN_UNTIL_EMPTY",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    until_empty: bool,

    /// Exit with 1 if an item ended as a dead letter meanwhile: for builds and timers, mostly together
    /// with --until-empty.
    #[arg(
        long,
        env = "LEASEHOLD_RUN_FAIL_ON_DEAD",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    fail_on_dead: bool,

    #[command(flatten)]
    worker: WorkerFlags,

    /// The command of the kind, and its arguments. It runs in this folder.
    #[arg(last = true, value_name = "CMD", requires = "kinds")]
    command: Vec<String>,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let config = arguments.config(common)?;
    if config.step_functions.is_some() {
        return run_tasks(&config, screen);
    }
    fenced(async |fence, stops| {
        let Some(crew) = start(&config, fence, stops).await? else {
            return Summary::default().show(screen);
        };
        crew.introduce(screen);
        let queue = crew.queue().clone();
        let forever = std::future::pending();
        let (mut summary, reason) = work(crew, stops, arguments.until_empty, forever).await?;
        if reason == Reason::Empty {
            summary.unhandled = look_for_unhandled(&queue, &config).await;
        }
        let has_failed = arguments.fail_on_dead && summary.has_dead_letters();
        let answer = summary.show(screen)?;
        if !has_failed {
            return Ok(answer);
        }
        if !screen.is_json() {
            screen.talk(
                "there are new dead letters: `leasehold items list --status failed` shows them",
            );
        }
        Ok(Answer::Broken)
    })
}

/// Runs tasks of Step Functions in place of a queue's items.
#[cfg(feature = "aws")]
fn run_tasks(config: &Config, screen: &Screen) -> Result<Answer, Failure> {
    let Some(tasks) = &config.step_functions else {
        return Ok(Answer::Yes);
    };
    fenced(async |fence, stops| {
        let summary = tasks::work(config, tasks, fence, stops, screen).await?;
        summary.show(screen)
    })
}

/// Runs tasks of Step Functions, which this build cannot.
#[cfg(not(feature = "aws"))]
fn run_tasks(_: &Config, _: &Screen) -> Result<Answer, Failure> {
    Err(
        Failure::usage("this build takes no tasks of Step Functions")
            .because(
                "the file of settings has a section [step_functions], and the build has no AWS SDK",
            )
            .remedy("build the command with --features aws, or leave the section out"),
    )
}

impl Arguments {
    /// The settings, for the kinds that are asked for.
    fn config(&self, common: &Common) -> Result<Config, Failure> {
        let mut config = Config::load_for_worker(common, &self.worker)?;
        if !self.kinds.is_empty() {
            config.only(&self.kinds, &self.command)?;
        }
        Ok(config)
    }
}

/// What is left for want of a handler. The work is done, whether that can be told or not.
async fn look_for_unhandled(client: &Client, config: &Config) -> Option<Unhandled> {
    let kinds = config.kinds.keys().cloned().collect();
    let looked = Unhandled::look(client, &kinds, &config.lanes_served()).await;
    looked
        .map_err(|error| tracing::warn!(%error, "what is left cannot be told"))
        .ok()
}

/// Runs what works under a fence, with an ear for requests to stop; the processes that the fence needs are
/// gone when it answers.
fn fenced<T>(
    body: impl AsyncFnOnce(&Fence, &mut Stops) -> Result<T, Failure>,
) -> Result<T, Failure> {
    runtime::of_threads(READERS)?.block_on(async {
        let mut stops = listen()?;
        let fence = start_fence()?;
        let reaping = tokio::spawn(init::reap_orphans(fence.clone()));
        let ended = body(&fence, &mut stops).await;
        reaping.abort();
        fence.close();
        ended
    })
}

/// Threads that read what commands write; the commands are processes of their own.
const READERS: usize = 2;

fn listen() -> Result<Stops, Failure> {
    Stops::listen().map_err(|error| Failure::failed("signals cannot be listened to").because(error))
}

fn start_fence() -> Result<Fence, Failure> {
    Fence::start().map_err(|error: StartError| {
        Failure::failed("no command can be run here")
            .because(error)
            .remedy("`leasehold doctor` looks at what commands need")
    })
}

/// The workers of the settings; `None` if a request to stop came first, as it may while a server is waited
/// for.
async fn start(config: &Config, fence: &Fence, stops: &mut Stops) -> Result<Option<Crew>, Failure> {
    tokio::select! {
        started = Crew::of(config, fence) => started.map(Some),
        () = stops.next() => Ok(None),
    }
}

/// Why the workers were asked to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// By a person or the platform, or by themselves.
    Asked,
    /// There is nothing to do.
    Empty,
    /// They are to be started anew.
    Changed,
}

/// Runs the workers until they have drained: when asked to, when there is nothing to do if they are to
/// end then, or when `changed` completes.
async fn work(
    crew: Crew,
    stops: &mut Stops,
    until_empty: bool,
    changed: impl Future<Output = ()>,
) -> Result<(Summary, Reason), Failure> {
    let stopper = Stopper::new();
    let begun = SystemClock.elapsed();
    let (metrics, idle, ids) = (crew.metrics(), crew.idleness(), crew.ids());
    let running = crew.run(&stopper);
    let empty = all_idle(idle);
    tokio::pin!(running, empty, changed);
    let mut reason = None;
    let drained = loop {
        tokio::select! {
            drained = &mut running => break drained,
            () = stops.next() => {
                let text = if stopper.was_asked() {
                    "asked again to stop; nothing is waited for"
                } else {
                    "asked to stop; draining"
                };
                tracing::info!("{text}");
                reason = Some(Reason::Asked);
                stopper.stop();
            }
            () = &mut empty, if until_empty && !stopper.was_asked() => {
                reason = Some(Reason::Empty);
                stopper.stop();
            }
            () = &mut changed, if !stopper.was_asked() => {
                reason = Some(Reason::Changed);
                stopper.stop();
            }
        }
    };
    let abandoned = drained.map_err(|error| not_well(&error))?;
    let summary = Summary {
        workers: ids,
        metrics,
        abandoned,
        unhandled: None,
        took: SystemClock.elapsed().since(begun),
    };
    Ok((summary, reason.unwrap_or(Reason::Asked)))
}

/// Completes when all workers are idle at once.
async fn all_idle(mut workers: Vec<Idleness>) {
    loop {
        for worker in &mut workers {
            worker.reached().await;
        }
        if workers.iter().all(Idleness::is_idle) {
            return;
        }
        // One that was idle has found something in the meantime, or one has ended.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Between two looks at workers that are not idle at once: nothing against how long a claim takes.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

fn not_well(error: &WorkerError) -> Failure {
    let failure = Failure::failed("a worker did not end well").because(error);
    match error {
        WorkerError::Stuck { .. } => failure
            .remedy("start it again; the items it held are recovered when their leases are over"),
        WorkerError::Thread(_) => failure.remedy(runtime::MORE_THREADS),
        _ => failure,
    }
}
