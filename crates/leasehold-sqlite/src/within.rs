//! Enqueueing inside a transaction of the caller's own, on the same file.
//!
//! An application that keeps its tables in the store's file can write its rows and the work that
//! follows from them together: both are there after its commit, or neither is. Work that is
//! enqueued by [`WorkStore::enqueue`](leasehold_core::WorkStore::enqueue) after a commit is lost if
//! the process dies in between.

use leasehold_core::NewItem;
use leasehold_core::OrgId;
use leasehold_core::store::StoreResult;
use leasehold_core::store::outbox::NewOutboxRow;
use leasehold_core::store::work::Enqueued;
use rusqlite::{Connection, Transaction};

use crate::error::Answer;
use crate::store::SqliteStore;
use crate::writer::Unit;
use crate::{outbox, work};

impl SqliteStore {
    /// As [`WorkStore::enqueue`](leasehold_core::WorkStore::enqueue), inside the caller's
    /// transaction on this file.
    ///
    /// Begin it `IMMEDIATE`: one that reads before it writes is refused by SQLite if another has
    /// written in between. Nothing is claimed, and nobody is hinted, before its commit; hints follow
    /// within a tenth of a second. An error leaves the transaction as it was before the call. How
    /// durable the commit is, is a setting of the caller's connection (`PRAGMA synchronous`).
    ///
    /// # Errors
    /// As for every method of the store; `Failed` says that the transaction is not on a file of
    /// this store's schema.
    pub fn enqueue_within(
        &self,
        transaction: &Transaction<'_>,
        org: OrgId,
        batch: Vec<NewItem>,
    ) -> StoreResult<Vec<Enqueued>> {
        self.within(transaction, |unit| work::enqueue(unit, org, batch))
    }

    /// As [`OutboxStore::append_outbox`](leasehold_core::store::OutboxStore::append_outbox), inside
    /// the caller's transaction on this file.
    ///
    /// # Errors
    /// As [`SqliteStore::enqueue_within`].
    pub fn append_outbox_within(
        &self,
        transaction: &Transaction<'_>,
        org: OrgId,
        rows: &[NewOutboxRow],
    ) -> StoreResult<u32> {
        self.within(transaction, |unit| outbox::append(unit, org, rows))
    }

    fn within<T>(
        &self,
        transaction: &Transaction<'_>,
        work: impl FnOnce(&mut Unit<'_>) -> Answer<T>,
    ) -> StoreResult<T> {
        let answer = in_savepoint(transaction, |db| work(&mut Unit::new(db, self.clock_now())));
        answer.map_err(Into::into)
    }
}

fn in_savepoint<T>(db: &Connection, work: impl FnOnce(&Connection) -> Answer<T>) -> Answer<T> {
    db.execute_batch("SAVEPOINT leasehold")?;
    let answer = work(db);
    if answer.is_err() && !db.is_autocommit() {
        db.execute_batch("ROLLBACK TO leasehold")?;
    }
    if !db.is_autocommit() {
        db.execute_batch("RELEASE leasehold")?;
    }
    answer
}
