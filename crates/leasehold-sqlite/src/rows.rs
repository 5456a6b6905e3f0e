//! How values stand in the file: ids as 16 bytes, times as whole microseconds, JSON as text.

use std::fmt::Display;

use jiff::Timestamp;
use leasehold_core::{
    AttemptError, ClaimToken, FailureCode, JsonObject, Kind, Lane, OrgId, Progress, ShortText,
    Status, WorkItem, WorkerId,
};
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{CachedStatement, Params, Row};
use uuid::Uuid;

use crate::error::{Answer, Fault};

/// Every column of a work item, in the order in which [`item`] reads them.
macro_rules! item_columns {
    () => {
        "id, org_id, created_at, updated_at, created_by, updated_by, kind, target_id, \
         idempotency_key, request_id, traceparent, lane, priority, status, available_at, \
         claimed_by, claim_token, claim_seq, lease_expires_at, attempts, max_attempts, \
         worker_losses, failure_code, cancel_requested_at, audited_at, progress_percent, \
         progress_note, last_error, errors, result, payload"
    };
}
pub(crate) use item_columns;

/// The file's precision: what is answered is what is stored.
pub(crate) fn whole_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

/// A stored time.
pub(crate) fn timestamp(microseconds: i64) -> Answer<Timestamp> {
    Timestamp::from_microsecond(microseconds)
        .map_err(|_| Fault::damaged(format_args!("{microseconds} is no time")))
}

/// An id as it is stored.
pub(crate) fn bytes(id: Uuid) -> [u8; 16] {
    id.into_bytes()
}

/// Where a page begins: after that id, or before all of them.
pub(crate) fn after(id: Option<Uuid>) -> Vec<u8> {
    // Fewer bytes than any id: below them all, the nil id included.
    id.map_or_else(Vec::new, |id| bytes(id).to_vec())
}

/// Reads a row's columns from left to right.
pub(crate) struct Columns<'r, 'stmt> {
    row: &'r Row<'stmt>,
    next: usize,
}

impl<'r, 'stmt> Columns<'r, 'stmt> {
    pub(crate) const fn of(row: &'r Row<'stmt>) -> Self {
        Self { row, next: 0 }
    }

    fn raw(&mut self) -> Answer<ValueRef<'r>> {
        let value = self.row.get_ref(self.next)?;
        self.next += 1;
        Ok(value)
    }

    /// A number or a truth value.
    pub(crate) fn plain<T: FromSql>(&mut self) -> Answer<T> {
        let value = self.row.get(self.next)?;
        self.next += 1;
        Ok(value)
    }

    /// A number that is never below zero.
    pub(crate) fn count(&mut self) -> Answer<u32> {
        let value: i64 = self.plain()?;
        u32::try_from(value).map_err(|_| Fault::damaged(format_args!("{value} is no count")))
    }

    /// The answer of a `count` or a `sum`.
    pub(crate) fn tally(&mut self) -> Answer<u64> {
        let value: i64 = self.plain()?;
        u64::try_from(value).map_err(|_| Fault::damaged(format_args!("{value} is no count")))
    }

    pub(crate) fn uuid(&mut self) -> Answer<Uuid> {
        match self.raw()? {
            ValueRef::Blob(bytes) => to_uuid(bytes),
            other => Err(unexpected("an id", other)),
        }
    }

    pub(crate) fn uuid_or_null(&mut self) -> Answer<Option<Uuid>> {
        match self.raw()? {
            ValueRef::Null => Ok(None),
            ValueRef::Blob(bytes) => to_uuid(bytes).map(Some),
            other => Err(unexpected("an id", other)),
        }
    }

    pub(crate) fn text(&mut self) -> Answer<&'r str> {
        match self.raw()? {
            ValueRef::Text(text) => to_str(text),
            other => Err(unexpected("a text", other)),
        }
    }

    pub(crate) fn text_or_null(&mut self) -> Answer<Option<&'r str>> {
        match self.raw()? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => to_str(text).map(Some),
            other => Err(unexpected("a text", other)),
        }
    }

    pub(crate) fn timestamp(&mut self) -> Answer<Timestamp> {
        timestamp(self.plain()?)
    }

    pub(crate) fn timestamp_or_null(&mut self) -> Answer<Option<Timestamp>> {
        self.plain::<Option<i64>>()?.map(timestamp).transpose()
    }

    /// The columns of [`item_columns!`].
    pub(crate) fn item(&mut self) -> Answer<(OrgId, WorkItem)> {
        read_item(self)
    }

    /// A name that was valid when it was written.
    pub(crate) fn named<T, E: Display>(&mut self, parse: fn(&str) -> Result<T, E>) -> Answer<T> {
        parse(self.text()?).map_err(Fault::damaged)
    }

    fn named_or_null<T, E: Display>(
        &mut self,
        parse: fn(&str) -> Result<T, E>,
    ) -> Answer<Option<T>> {
        let text = self.text_or_null()?;
        text.map(parse).transpose().map_err(Fault::damaged)
    }
}

/// Reads a row of [`item_columns!`].
pub(crate) fn item(row: &Row<'_>) -> Answer<(OrgId, WorkItem)> {
    Columns::of(row).item()
}

fn read_item(columns: &mut Columns<'_, '_>) -> Answer<(OrgId, WorkItem)> {
    let id = columns.uuid()?.into();
    let org_id = columns.uuid()?.into();
    let item = WorkItem {
        id,
        created_at: columns.timestamp()?,
        updated_at: columns.timestamp()?,
        created_by: columns.uuid()?.into(),
        updated_by: columns.uuid()?.into(),
        kind: columns.named(Kind::parse)?,
        target_id: columns.uuid()?.into(),
        idempotency_key: columns.uuid()?.into(),
        request_id: columns.uuid()?.into(),
        traceparent: columns.text_or_null()?.map(str::to_owned),
        lane: columns.named(Lane::parse)?,
        priority: columns.plain()?,
        status: status(columns.text()?)?,
        available_at: columns.timestamp()?,
        claimed_by: columns.named_or_null(WorkerId::parse)?,
        claim_token: columns.uuid_or_null()?.map(ClaimToken::new),
        claim_seq: columns.plain()?,
        lease_expires_at: columns.timestamp_or_null()?,
        attempts: columns.count()?,
        max_attempts: columns.count()?,
        worker_losses: columns.count()?,
        failure_code: columns.named_or_null(FailureCode::parse)?,
        cancel_requested_at: columns.timestamp_or_null()?,
        audited_at: columns.timestamp_or_null()?,
        progress: progress(columns.plain()?, columns.text_or_null()?),
        last_error: columns.text_or_null()?.map(ShortText::new),
        errors: errors(columns.text_or_null()?)?,
        result: columns.text_or_null()?.map(JsonObject::from_stored),
        payload: JsonObject::from_stored(columns.text()?),
    };
    Ok((org_id, item))
}

/// Reads every row that a statement over [`item_columns!`] answers.
pub(crate) fn items(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
) -> Answer<Vec<(OrgId, WorkItem)>> {
    collect(statement, params, item)
}

/// Reads every row that a statement answers.
pub(crate) fn collect<T>(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Answer<T>,
) -> Answer<Vec<T>> {
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// Reads the one row that a statement answers, if it answers any.
pub(crate) fn first<T>(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
    read: impl Fn(&Row<'_>) -> Answer<T>,
) -> Answer<Option<T>> {
    let mut rows = statement.query(params)?;
    rows.next()?.map(read).transpose()
}

fn status(word: &str) -> Answer<Status> {
    Status::parse(word).ok_or_else(|| Fault::damaged(format_args!("{word:?} is no status")))
}

fn progress(percent: Option<u8>, note: Option<&str>) -> Option<Progress> {
    percent.map(|percent| Progress::new(percent, note.unwrap_or_default()))
}

fn errors(list: Option<&str>) -> Answer<Vec<AttemptError>> {
    list.map_or(Ok(Vec::new()), |list| {
        serde_json::from_str(list).map_err(Fault::damaged)
    })
}

fn to_uuid(bytes: &[u8]) -> Answer<Uuid> {
    Uuid::from_slice(bytes).map_err(Fault::damaged)
}

fn to_str(text: &[u8]) -> Answer<&str> {
    std::str::from_utf8(text).map_err(Fault::damaged)
}

fn unexpected(what: &str, value: ValueRef<'_>) -> Fault {
    Fault::damaged(format_args!("{what} is stored as {}", value.data_type()))
}
