//! The one thread that writes: group commit, renewals first.
//!
//! Callers put operations into two bounded queues and wait for their answers. The thread opens a
//! transaction, applies what waits, each operation in a savepoint so that one which fails takes no
//! other along, commits once, and only then answers. While one commit reaches the disk the next
//! operations gather, so the batches grow with the load and a lone call waits for nobody.
//!
//! A renewal goes ahead of everything else that waits, even into a transaction that is under way.
//! If the commit fails, every operation of it is answered with that error; if the file's lock cannot
//! be had within the busy timeout, everything that waited as long is answered
//! [`StoreError::Retry`].
//!
//! The thread also notices what other processes commit, by `PRAGMA data_version`, and hints; and that
//! the file is no longer the one at its path, after which it writes nothing any more.

mod foreign;
mod operation;
mod place;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};

use leasehold_core::store::StoreResult;
use leasehold_core::{Clock, Lane, StoreError};
use rusqlite::Connection;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use self::foreign::{FOREIGN_POLL, Foreign};
pub(crate) use self::operation::Unit;
use self::operation::{Call, Operation};
use self::place::Place;
use crate::error::{Answer, Fault};
use crate::hints::Board;
use crate::rows;

/// How many operations wait in each queue before the next caller waits in its own task.
const WAITING_MAX: usize = 1_024;

/// After so many operations, or so many rows, a transaction is committed although more wait: it
/// holds the file's lock, and its first caller waits for it.
const OPERATIONS_MAX: usize = 1_024;
const ROWS_MAX: usize = 8_192;

/// What the writer has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions that wrote something and were committed.
    pub commits: u64,
    /// Operations applied, those that failed included.
    pub operations: u64,
}

/// In which order operations are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A lease depends on it: ahead of everything else.
    Renewal,
    /// In the order of arrival.
    Ordinary,
}

/// Where operations go. Dropping it lets those that wait end, and joins the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    queues: Option<Queues>,
    thread: Option<JoinHandle<()>>,
    wake: Thread,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Queues {
    renewals: mpsc::Sender<Box<dyn Operation>>,
    ordinary: mpsc::Sender<Box<dyn Operation>>,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    operations: AtomicU64,
}

impl Writer {
    /// Starts the thread.
    pub(crate) fn start(
        db: Connection,
        clock: Arc<dyn Clock>,
        hints: Arc<Board>,
    ) -> std::io::Result<Self> {
        let (renewals, from_renewals) = mpsc::channel(WAITING_MAX);
        let (ordinary, from_ordinary) = mpsc::channel(WAITING_MAX);
        let counters = Arc::new(Counters::default());
        let foreign = Foreign::since_now(&db);
        let place = Place::of(&db);
        let desk = Desk {
            db,
            clock,
            hints,
            counters: Arc::clone(&counters),
            renewals: Inbox::new(from_renewals),
            ordinary: Inbox::new(from_ordinary),
            foreign,
            place,
        };
        let thread = thread::Builder::new()
            .name("leasehold-write".to_owned())
            .spawn(move || desk.run())?;
        Ok(Self {
            queues: Some(Queues { renewals, ordinary }),
            wake: thread.thread().clone(),
            thread: Some(thread),
            counters,
        })
    }

    /// Applies `work` in a transaction and answers once it is committed.
    ///
    /// `rows` is about how many rows it writes. Dropping the call leaves it applied or not.
    pub(crate) async fn call<T, F>(&self, urgency: Urgency, rows: usize, work: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Unit<'_>) -> Answer<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let operation = Box::new(Call::new(rows, work, reply));
        let queues = self.queues.as_ref().ok_or_else(closed)?;
        let queue = match urgency {
            Urgency::Renewal => &queues.renewals,
            Urgency::Ordinary => &queues.ordinary,
        };
        queue.send(operation).await.map_err(|_| closed())?;
        self.wake.unpark();
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Lets the thread know that somebody listens for hints.
    pub(crate) fn look_for_foreign_commits(&self) {
        self.wake.unpark();
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            commits: self.counters.commits.load(Ordering::Relaxed),
            operations: self.counters.operations.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queues = None;
        self.wake.unpark();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

/// A queue's receiving end, and what was taken from it already.
struct Inbox {
    channel: mpsc::Receiver<Box<dyn Operation>>,
    waiting: VecDeque<Box<dyn Operation>>,
    is_closed: bool,
}

impl Inbox {
    fn new(channel: mpsc::Receiver<Box<dyn Operation>>) -> Self {
        Self {
            channel,
            waiting: VecDeque::new(),
            is_closed: false,
        }
    }

    /// Takes over what arrived, up to the bound.
    fn gather(&mut self) {
        while self.waiting.len() < WAITING_MAX {
            match self.channel.try_recv() {
                Ok(operation) => self.waiting.push_back(operation),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.is_closed = true;
                    return;
                }
            }
        }
    }

    fn next(&mut self) -> Option<Box<dyn Operation>> {
        if self.waiting.is_empty() {
            self.gather();
        }
        self.waiting.pop_front()
    }
}

/// What the thread owns.
struct Desk {
    db: Connection,
    clock: Arc<dyn Clock>,
    hints: Arc<Board>,
    counters: Arc<Counters>,
    renewals: Inbox,
    ordinary: Inbox,
    foreign: Foreign,
    place: Place,
}

/// One transaction's operations and hints.
#[derive(Default)]
struct Round {
    applied: Vec<Box<dyn Operation>>,
    rows: usize,
    hinted: BTreeSet<Lane>,
}

impl Desk {
    fn run(mut self) {
        loop {
            self.renewals.gather();
            self.ordinary.gather();
            self.hint_foreign_commits();
            if !self.renewals.waiting.is_empty() || !self.ordinary.waiting.is_empty() {
                self.transact();
            } else if self.renewals.is_closed && self.ordinary.is_closed {
                return;
            } else if self.hints.is_watched() {
                thread::park_timeout(FOREIGN_POLL);
            } else {
                thread::park();
            }
        }
    }

    fn transact(&mut self) {
        let changes_before = self.db.total_changes();
        let is_there = self.place.check().map_err(Fault);
        if let Err(Fault(error)) = is_there.and_then(|()| self.control("BEGIN IMMEDIATE")) {
            // If it is the lock, all of these waited for as long as it was tried for; later ones did not.
            let waited = self
                .renewals
                .waiting
                .drain(..)
                .chain(self.ordinary.waiting.drain(..));
            waited.for_each(|operation| operation.answer(Some(&error)));
            return;
        }
        let mut round = Round::default();
        let applied = self.apply_all(&mut round);
        let committed = applied.and_then(|()| self.control("COMMIT"));
        if committed.is_err() && !self.db.is_autocommit() {
            self.roll_back();
        }
        let undone_by = committed.err().map(|Fault(error)| error);
        if undone_by.is_none() {
            if self.db.total_changes() != changes_before {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
            }
            self.hints.hint(&round.hinted);
        }
        for operation in round.applied {
            operation.answer(undone_by.as_ref());
        }
    }

    /// Applies what waits and what arrives meanwhile. An error undoes the whole transaction.
    fn apply_all(&mut self, round: &mut Round) -> Answer<()> {
        while round.applied.len() < OPERATIONS_MAX && round.rows < ROWS_MAX {
            let next = self.renewals.next().or_else(|| self.ordinary.next());
            let Some(operation) = next else {
                break;
            };
            if operation.is_abandoned() {
                continue;
            }
            self.counters.operations.fetch_add(1, Ordering::Relaxed);
            if round.applied.is_empty() {
                self.apply_first(operation, round)?;
            } else {
                self.apply_another(operation, round)?;
            }
        }
        Ok(())
    }

    /// Without a savepoint, which a lone operation need not pay for: if it fails, so does the
    /// transaction, and nothing else was in it.
    fn apply_first(&mut self, operation: Box<dyn Operation>, round: &mut Round) -> Answer<()> {
        if self.apply(operation, round).is_ok() {
            return Ok(());
        }
        // Answered by itself, so that those after it begin afresh.
        if let Some(failed) = round.applied.pop() {
            failed.answer(None);
        }
        if !self.db.is_autocommit() {
            self.control("ROLLBACK")?;
        }
        self.control("BEGIN IMMEDIATE")
    }

    fn apply_another(&mut self, operation: Box<dyn Operation>, round: &mut Round) -> Answer<()> {
        self.control("SAVEPOINT operation")?;
        if let Err(error) = self.apply(operation, round) {
            if self.db.is_autocommit() {
                // SQLite itself gave up the whole transaction, as it does on a full disk.
                return Err(Fault(error));
            }
            self.control("ROLLBACK TO operation")?;
        }
        self.control("RELEASE operation")
    }

    fn apply(
        &self,
        mut operation: Box<dyn Operation>,
        round: &mut Round,
    ) -> Result<(), StoreError> {
        let now = rows::whole_microseconds(self.clock.now());
        let mut unit = Unit::new(&self.db, now);
        let applied = operation.apply(&mut unit);
        if applied.is_ok() {
            round.rows += operation.rows();
            round.hinted.append(&mut unit.hinted);
        }
        round.applied.push(operation);
        applied
    }

    fn control(&self, sql: &str) -> Answer<()> {
        self.db.prepare_cached(sql)?.execute(())?;
        Ok(())
    }

    fn roll_back(&self) {
        if let Err(Fault(error)) = self.control("ROLLBACK") {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    /// Hints everyone if another process committed since the last look.
    fn hint_foreign_commits(&mut self) {
        if self.hints.is_watched() && self.foreign.has_committed(&self.db) {
            self.hints.hint_all();
        }
    }
}

fn closed() -> StoreError {
    StoreError::Failed("the store was closed".to_owned())
}

#[cfg(test)]
mod tests;
