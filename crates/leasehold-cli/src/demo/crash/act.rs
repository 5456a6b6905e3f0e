//! The order of events, once for each blow: a command grows, its worker is struck, every process goes, the
//! lease ends, a second worker runs the item again.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::core::{BootTime, Clock as _};
use leasehold::{Client, ItemId, Status, SystemClock, WorkItem};

use super::super::narrator::Narrator;
use super::super::plan::LEASE;
use super::super::process::{self, Process};
use super::super::queue::Queue;
use super::tree::{FileTime, Grown, Marks, Tree};
use super::worker::GrowTree;
use crate::failure::Failure;

/// What is done to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blow {
    Kill,
    Freeze,
}

impl Blow {
    /// What the worker is afterwards.
    pub(super) const fn done(self) -> &'static str {
        match self {
            Self::Kill => "killed",
            Self::Freeze => "frozen",
        }
    }

    pub(super) const fn signal(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Freeze => "SIGSTOP",
        }
    }
}

/// What one act came to.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) blow: Blow,
    pub(super) processes: Vec<Grown>,
    /// What was left of the lease when the last process was gone; `None` if it was over by then.
    pub(super) lease_left: Option<Duration>,
    /// How long after the blow the second run began.
    pub(super) second_run_after: Duration,
    /// How long no process of the first run had left a mark when the second began; `None` if one left
    /// its last mark after that.
    pub(super) silent_before: Option<Duration>,
    /// The marks of the first run in the end.
    pub(super) marks: u64,
    /// How many of them were left after the second run began.
    pub(super) late_marks: u64,
    /// The item in the end.
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) fence: i64,
}

/// Where an act is played.
pub(super) struct Stage<'a> {
    pub(super) client: &'a Client,
    pub(super) queue: &'a Path,
    /// Holds the script, and what it writes.
    pub(super) folder: &'a Path,
    pub(super) narrator: &'a Narrator,
    pub(super) verbose: u8,
}

/// Between two looks at what other processes do.
const LOOK: Duration = Duration::from_millis(10);
/// As long, while processes go: their end is told in milliseconds.
const CLOSE_LOOK: Duration = Duration::from_millis(1);
/// How long anything may take: several leases, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// So long the tree is left to itself before its worker is struck: a few marks, and a renewal.
const GROWTH: Duration = Duration::from_millis(600);

impl Stage<'_> {
    pub(super) async fn play(&self, blow: Blow) -> Result<Act, Failure> {
        let grow = self.client.typed(&GrowTree {})?;
        let item = grow.id;
        self.client.enqueue_many(vec![grow]).await?;
        let mut first = self.start("worker-1")?;
        let mut tree = self
            .awaited("the command's processes have begun", async || {
                Ok(Tree::grown(self.folder))
            })
            .await?;
        self.introduce(&first, &tree);
        // Here from before the blow, so that nothing but the lease keeps it from the item.
        let mut second = self.start("worker-2")?;
        tokio::time::sleep(GROWTH).await;
        if !tree.are_all_alive() {
            return Err(
                Failure::failed("the command ended before its worker was struck")
                    .because("its lease may not have been renewed in time")
                    .remedy("run the demo again; the machine is very busy"),
            );
        }

        let struck = self.strike(blow, &mut first).await?;
        let lease_left = self.watch_them_go(item, &mut tree, struck).await?;
        let again = self.second_run(&tree, struck).await?;
        self.finished(item).await?;
        if blow == Blow::Freeze {
            self.let_go(&mut first).await?;
        }
        second.dismiss();
        if !second.ends_well(PATIENCE).await {
            return Err(unfinished("the second worker has drained"));
        }
        let after = marks(&tree)?;
        let row = self.row(item).await?;
        Ok(Act {
            blow,
            processes: tree.processes,
            lease_left,
            second_run_after: again.after,
            silent_before: after.last.before(again.begun),
            marks: after.count,
            late_marks: after.count.saturating_sub(again.marks),
            status: row.status,
            attempts: row.attempts,
            fence: row.claim_seq,
        })
    }

    fn start(&self, name: &str) -> Result<Process, Failure> {
        let mut command = process::command("demo-crash-worker")?;
        command
            .args(["--name", name])
            .arg("--queue")
            .arg(self.queue)
            .arg("--folder")
            .arg(self.folder)
            .args((0..self.verbose).map(|_| "-v"));
        // It says nothing on its output.
        let (process, _) = Process::start(command)?;
        Ok(process)
    }

    fn introduce(&self, worker: &Process, tree: &Tree) {
        self.narrator.say(&format!(
            "worker-1 (pid {}) runs an item as a command, under a lease of {} s; its processes ignore TERM",
            worker.pid(),
            LEASE.as_secs()
        ));
        let line = |name: &str, numbers: [&dyn std::fmt::Display; 4]| {
            let [pid, parent, group, session] = numbers;
            self.narrator.note(&format!(
                "{name:<14}{pid:>9}{parent:>9}{group:>9}{session:>9}"
            ));
        };
        line("", [&"pid", &"parent", &"group", &"session"]);
        for Grown {
            name,
            pid,
            parent,
            group,
            session,
            ..
        } in &tree.processes
        {
            line(name, [pid, parent, group, session]);
        }
    }

    /// Answers when: the moment before the signal was sent that did it.
    async fn strike(&self, blow: Blow, worker: &mut Process) -> Result<Moment, Failure> {
        loop {
            let struck = Moment(SystemClock.elapsed());
            match blow {
                Blow::Kill => worker.kill().await?,
                Blow::Freeze => worker.freeze().await?,
            }
            // A process that is stopped in the middle of a write keeps the file locked.
            if blow == Blow::Kill || Queue::new(self.client).can_write().await? {
                self.narrator.strike(&format!("{} worker-1", blow.signal()));
                return Ok(struck);
            }
            worker.thaw()?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until no process of the run is left, and answers what was left of the lease then.
    async fn watch_them_go(
        &self,
        item: ItemId,
        tree: &mut Tree,
        struck: Moment,
    ) -> Result<Option<Duration>, Failure> {
        while !tree.note_the_gone(struck.age()) {
            if struck.age() > PATIENCE {
                return Err(
                    Failure::failed("a process outlives its worker").because(format!(
                        "{} s after the blow it still runs",
                        PATIENCE.as_secs()
                    )),
                );
            }
            tokio::time::sleep(CLOSE_LOOK).await;
        }
        let gone_after = struck.age();
        let now = self.client.stores().work.now().await?;
        let ends = self.row(item).await?.lease_expires_at;
        let left = ends.and_then(|ends| until(now, ends));
        match left {
            Some(left) => self.narrator.mend(&format!(
                "every process was gone {} ms later, with {} ms of the lease left",
                gone_after.as_millis(),
                left.as_millis()
            )),
            None => self.narrator.strike(&format!(
                "every process was gone {} ms later, when the lease was over already",
                gone_after.as_millis()
            )),
        }
        Ok(left)
    }

    async fn second_run(&self, tree: &Tree, struck: Moment) -> Result<SecondRun, Failure> {
        let begun = self
            .awaited("the second run has begun", async || Ok(tree.second_run()))
            .await?;
        let after = struck.age();
        let marks = marks(tree)?.count;
        self.narrator.mend(&format!(
            "the lease is over: {} ms after the blow worker-2 runs the item again",
            after.as_millis()
        ));
        Ok(SecondRun {
            begun,
            after,
            marks,
        })
    }

    async fn finished(&self, item: ItemId) -> Result<(), Failure> {
        let row = self
            .awaited("the item is over", async || {
                let row = self.row(item).await?;
                let is_over = !matches!(row.status, Status::Queued | Status::Claimed);
                Ok(is_over.then_some(row))
            })
            .await?;
        self.narrator.say(&format!(
            "worker-2 has finished it: attempt {}, fencing number {}",
            row.attempts, row.claim_seq
        ));
        Ok(())
    }

    async fn let_go(&self, worker: &mut Process) -> Result<(), Failure> {
        self.narrator.say(
            "SIGCONT worker-1: it finds its command killed and its item in other hands, and drains",
        );
        worker.thaw()?;
        worker.dismiss();
        if worker.ends_well(PATIENCE).await {
            Ok(())
        } else {
            Err(unfinished("the worker that was let go has drained"))
        }
    }

    async fn row(&self, item: ItemId) -> Result<WorkItem, Failure> {
        let row = self.client.get(item).await?;
        row.ok_or_else(|| Failure::failed("the item is lost"))
    }

    /// Looks until there is an answer.
    async fn awaited<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let begun = Moment(SystemClock.elapsed());
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            if begun.age() > PATIENCE {
                return Err(unfinished(what));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// When the second run began.
struct SecondRun {
    begun: FileTime,
    /// As it was seen, after the blow.
    after: Duration,
    /// How many marks the first had left by then.
    marks: u64,
}

/// A moment of this story.
#[derive(Clone, Copy)]
struct Moment(BootTime);

impl Moment {
    fn age(self) -> Duration {
        SystemClock.elapsed().since(self.0)
    }
}

/// From now until then; `None` if that is over.
fn until(now: Timestamp, then: Timestamp) -> Option<Duration> {
    Duration::try_from(then.duration_since(now)).ok()
}

fn marks(tree: &Tree) -> Result<Marks, Failure> {
    tree.marks()
        .ok_or_else(|| Failure::failed("the marks of the command cannot be read"))
}

fn unfinished(what: &str) -> Failure {
    Failure::failed("the demo does not come to its end")
        .because(format!("waited {} s, and this did not come about: {what}", PATIENCE.as_secs()))
        .remedy("run it again on a less busy machine, or with -v to see where it stands; it needs sh and setsid")
}
