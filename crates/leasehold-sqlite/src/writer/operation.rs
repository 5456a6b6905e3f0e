//! One call's work: what it is given, and how its answer waits for the commit.

use std::cell::RefCell;
use std::collections::BTreeSet;

use jiff::Timestamp;
use leasehold_core::store::StoreResult;
use leasehold_core::{Lane, StoreError};
use rusqlite::{CachedStatement, Connection, Params};
use tokio::sync::oneshot;

use super::closed;
use crate::error::Answer;

/// What an operation works with: the transaction, the store's now, and the hints to give after it.
pub(crate) struct Unit<'c> {
    pub(crate) db: &'c Connection,
    /// Whole microseconds, as the file keeps them.
    pub(crate) now: Timestamp,
    pub(super) hinted: BTreeSet<Lane>,
    /// The statement that [`Unit::execute`] ran last: a batch runs one over and over, and finding it in
    /// the cache by its text costs as much as a look-up in an index.
    last: RefCell<Option<(&'static str, CachedStatement<'c>)>>,
}

impl<'c> Unit<'c> {
    pub(crate) const fn new(db: &'c Connection, now: Timestamp) -> Self {
        Self {
            db,
            now,
            hinted: BTreeSet::new(),
            last: RefCell::new(None),
        }
    }

    /// Runs a statement that answers no rows; how many it changed.
    pub(crate) fn execute(&self, sql: &'static str, params: impl Params) -> Answer<usize> {
        let mut last = self.last.borrow_mut();
        let mut statement = match last.take() {
            Some((text, statement)) if std::ptr::eq(text, sql) => statement,
            _ => self.db.prepare_cached(sql)?,
        };
        let changed = statement.execute(params)?;
        *last = Some((sql, statement));
        Ok(changed)
    }

    /// Hints the lane after the commit.
    pub(crate) fn hint(&mut self, lane: &Lane) {
        if !self.hinted.contains(lane) {
            self.hinted.insert(lane.clone());
        }
    }
}

/// A call as the thread sees it, whatever its answer.
pub(super) trait Operation: Send {
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;
    /// About how many rows it writes.
    fn rows(&self) -> usize;
    /// Does the work and keeps its answer. If it failed, what it wrote must go.
    fn apply(&mut self, unit: &mut Unit<'_>) -> Result<(), StoreError>;
    /// Sends the kept answer, or the error that undid it.
    fn answer(self: Box<Self>, undone_by: Option<&StoreError>);
}

/// An operation, and the caller who waits for its answer.
pub(super) struct Call<T, F> {
    rows: usize,
    work: Option<F>,
    outcome: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T, F> Call<T, F> {
    pub(super) const fn new(rows: usize, work: F, reply: oneshot::Sender<StoreResult<T>>) -> Self {
        Self {
            rows,
            work: Some(work),
            outcome: None,
            reply,
        }
    }
}

impl<T, F> Operation for Call<T, F>
where
    T: Send,
    F: FnOnce(&mut Unit<'_>) -> Answer<T> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn apply(&mut self, unit: &mut Unit<'_>) -> Result<(), StoreError> {
        let outcome = match self.work.take() {
            Some(work) => work(unit).map_err(StoreError::from),
            None => Err(closed()),
        };
        let failed = outcome.as_ref().err().cloned();
        self.outcome = Some(outcome);
        failed.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, undone_by: Option<&StoreError>) {
        let outcome = match (self.outcome, undone_by) {
            // Its own error says more than what undid the rest.
            (Some(Err(error)), _) => Err(error),
            (_, Some(error)) => Err(error.clone()),
            (Some(outcome), None) => outcome,
            (None, None) => Err(closed()),
        };
        // Nobody may be left to take the answer; the promises say how it is asked again.
        let _ = self.reply.send(outcome);
    }
}
