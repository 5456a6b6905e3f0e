//! `leasehold demo`: real work, three workers, one killed and one frozen in the middle of it.
//!
//! The work is to hash the files of a folder. Three worker processes, this program re-executed, claim
//! it from one SQLite file. One is killed while it holds items, and one is stopped until its leases are
//! over and its items are in other hands; then it is let go, and tries to finish what it held.
//!
//! - [`scan`] finds the files. [`plan`] decides the pace, so that it takes seconds whatever there is.
//! - [`worker`] is one worker's process, and [`report`] what it tells. [`crew`] starts, stops and kills,
//!   each of them as a [`process`].
//! - [`story`] is the order of events. [`queue`] is what it sees of the store, [`narrator`] its voice.
//! - [`ledger`] keeps the accounts, [`account`] shows what they come to.
//! - [`crash`] is another demo: of commands, and what becomes of their processes.
//! - [`digest`] hashes; [`manifest`] writes what was found and checks it against the files.
//!
//! Nothing it starts outlives it: a worker is killed when its handle is dropped, and drains by itself
//! when its standard input ends. A stopped one is woken by the system when its group is orphaned.

use std::path::{Path, PathBuf};

use leasehold::core::Due;
use leasehold::{Client, ItemId};
use tempfile::TempDir;

use crate::block_on;
use crate::failure::{Answer, Failure};
use crate::screen::Screen;

mod account;
pub(crate) mod crash;
mod crew;
mod digest;
mod ledger;
mod manifest;
mod narrator;
mod plan;
mod process;
mod queue;
mod report;
mod scan;
mod story;
mod worker;

use account::Account;
use crew::Crew;
use ledger::Ledger;
use manifest::Manifest;
use narrator::{Narrator, counted};
use plan::Plan;
use queue::Queue;
use scan::Scan;
use story::Story;

pub(crate) use worker::{Arguments as WorkerArguments, work};

/// See it survive: hash this folder's files with three workers, kill one, freeze another.
///
/// One item for each file under DIR: its SHA-256, its size and its lines. Three worker processes share
/// one SQLite file in a fresh temporary folder. One is killed (SIGKILL) while it holds items; one is
/// frozen (SIGSTOP) until its leases are over and its items were recovered, and then let go (SIGCONT),
/// so that its late writes are refused before your eyes. In the end every item must be done exactly
/// once, and every digest must match its file. Takes about ten seconds.
///
/// Folders of version control and of builds are left out, symbolic links are not followed, and files
/// over 16 MiB are passed over.
///
/// Exits with 1 if a promise was broken, and then keeps the database.
///
/// `leasehold demo crash` is another one: what becomes of a command's processes when its worker is killed
/// or frozen.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Demos:
  leasehold demo          three workers hash files; one is killed, one is frozen
  leasehold demo crash    the worker of a command is killed, then that of another frozen",
    after_long_help = "\
Demos:
  leasehold demo          three workers hash files; one is killed, one is frozen
  leasehold demo crash    the worker of a command is killed, then that of another frozen


JSON: {\"schema\", \"kept\", \"items\", \"done_once\", \"rescued\": {\"killed\", \"frozen\"}, \
\"refused_writes\": {\"frozen\", \"other\"}, \
\"duplicates\", \"lost\", \"failed\", \"unexplained\", \"mismatched\", \"changed\", \"manifest\", \"database\"}; \
kept says whether every promise was."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,

    /// The folder; this one if left out.
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    folder: PathBuf,

    /// At most so many files.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_DEMO_LIMIT",
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=20_000)
    )]
    limit: u32,

    /// Where to write what was found, one JSON object a line. In the temporary folder if left out.
    #[arg(long, value_name = "PATH", env = "LEASEHOLD_DEMO_MANIFEST")]
    manifest: Option<PathBuf>,

    /// Keep the database, to look at it with `leasehold items`.
    #[arg(
        long,
        env = "LEASEHOLD_DEMO_KEEP",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    keep: bool,
}

/// Another demo.
#[derive(Debug, clap::Subcommand)]
enum Other {
    Crash(crash::Arguments),
}

pub(crate) fn run(arguments: &Arguments, verbose: u8, screen: &Screen) -> Result<Answer, Failure> {
    if let Some(Other::Crash(arguments)) = &arguments.other {
        return crash::run(arguments, verbose, screen);
    }
    let scan = Scan::of(&arguments.folder, arguments.limit as usize)?;
    let home = Home::new()?;
    block_on(async {
        tokio::select! {
            answer = perform(arguments, scan, &home, verbose) => answer,
            stopped = asked_to_stop() => Err(interrupted(stopped)),
        }
    })
    .and_then(|mut account| {
        let with_queue = arguments.keep || !account.is_kept();
        let queue = home.leave(with_queue, arguments.manifest.is_none());
        account.show(queue.as_deref(), screen)?;
        Ok(if account.is_kept() {
            Answer::Yes
        } else {
            Answer::Broken
        })
    })
}

async fn perform(
    arguments: &Arguments,
    scan: Scan,
    home: &Home,
    verbose: u8,
) -> Result<Account, Failure> {
    let narrator = Narrator::new(scan.files.len());
    scan.tell(&arguments.folder, &narrator);
    let client = home.create_queue()?;
    let plan = Plan::of(scan.files.len());
    let items = enqueue(&client, &scan).await?;
    narrator.say(&format!(
        "enqueued {} in {}",
        counted(items.len(), "item"),
        home.queue().display()
    ));
    let crew = Crew::start(&plan, &home.queue(), &arguments.folder, verbose)?;
    let ledger = Ledger::new(items);
    let played = Story::new(crew, ledger, Queue::new(&client), &plan, &narrator)
        .play()
        .await?;
    narrator.end();
    let path = arguments
        .manifest
        .clone()
        .unwrap_or_else(|| home.path().join("manifest.jsonl"));
    let manifest = Manifest::write(&path, &played.hashed)?;
    let checked = manifest.check(&arguments.folder, &scan).await?;
    narrator.say(&checked.summary());
    Ok(Account::new(&played, checked, path))
}

/// Enqueues one item for each file, and answers which is which.
async fn enqueue(client: &Client, scan: &Scan) -> Result<Vec<(ItemId, String)>, Failure> {
    let mut items = Vec::with_capacity(scan.files.len());
    let mut names = Vec::with_capacity(scan.files.len());
    // All due at the same moment: the order is that of their ids, and so of their paths.
    let now = client.stores().work.now().await?;
    for file in &scan.files {
        let mut item = client.typed(&worker::HashFile {
            path: file.path.clone(),
        })?;
        item.due = Due::At(now);
        names.push((item.id, file.path.clone()));
        items.push(item);
    }
    client.enqueue_many(items).await?;
    Ok(names)
}

/// The demo's folder. Removed when dropped, unless it was left.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("leasehold-demo-")
            .tempdir()
            .map_err(|error| {
                Failure::failed("no temporary folder can be made")
                    .because(error)
                    .remedy("point TMPDIR at a folder that you may write to")
            })?;
        Ok(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn queue(&self) -> PathBuf {
        self.path().join("queue.db")
    }

    fn create_queue(&self) -> Result<Client, Failure> {
        // What it waits for is not to be hidden: a frozen worker that holds the file's lock is let go
        // again at once, and another moment is chosen.
        let options = crate::database::options().with_busy_timeout(queue::LOCK_PATIENCE);
        let store =
            leasehold_sqlite::open(self.queue(), options).map_err(crate::database::refusal)?;
        Ok(Client::single_tenant(store.stores())?)
    }

    /// Leaves the folder to the person if something in it is wanted; where the queue is, if it is.
    fn leave(self, with_queue: bool, with_manifest: bool) -> Option<PathBuf> {
        if !with_queue && !with_manifest {
            return None;
        }
        let queue = self.queue();
        let _ = self.folder.keep();
        if !with_queue {
            for end in ["", "-wal", "-shm"] {
                let mut file = queue.clone().into_os_string();
                file.push(end);
                // The log and its index are gone already if the last connection was closed well.
                let _ = std::fs::remove_file(file);
            }
        }
        with_queue.then_some(queue)
    }
}

fn interrupted(stopped: std::io::Result<()>) -> Failure {
    match stopped {
        Ok(()) => Failure::interrupted()
            .because("the demo was asked to stop; its workers were killed")
            .remedy("its folder was removed; run it again"),
        Err(error) => Failure::failed("signals cannot be listened to").because(error),
    }
}

async fn asked_to_stop() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::select! {
        answer = tokio::signal::ctrl_c() => answer,
        _ = terminate.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
    }
}
