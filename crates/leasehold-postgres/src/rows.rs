//! How values stand in the database: times in whole microseconds, JSON as the text that was written.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::{
    AttemptError, ClaimToken, FailureCode, JsonObject, Kind, Lane, OrgId, Progress, ShortText,
    Status, WorkItem, WorkerId,
};
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, FromSqlOwned, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::error::{Answer, Fault};

/// Every column of a work item, in the order in which [`item`] reads them from the view `work_items`.
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

/// The database's precision: what is answered is what is stored.
pub(crate) fn whole_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

/// A time as it is stored: microseconds, counted from the year 2000.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(pub(crate) Timestamp);

/// The year 2000 in microseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000;

impl ToSql for Moment {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let stored = self.0.as_microsecond().saturating_sub(EPOCH);
        out.extend_from_slice(&stored.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let stored = i64::from_be_bytes(raw.try_into()?);
        let at = Timestamp::from_microsecond(stored.saturating_add(EPOCH))?;
        Ok(Self(at))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// A length as a parameter for `make_interval`'s seconds, or to be multiplied with one microsecond: what
/// no calendar reaches is cut.
pub(crate) fn microseconds(length: Duration) -> i64 {
    let longest = i64::MAX / 4;
    i64::try_from(length.as_micros())
        .unwrap_or(longest)
        .min(longest)
}

/// How far back any purge or grace looks at most: the database's calendar begins in 4713 BC, and what is
/// subtracted from its now must not pass that.
const BACK_MAX: Duration = Duration::from_hours(24 * 365 * 2_000);

/// A length as [`microseconds`], to be subtracted from the store's now.
pub(crate) fn microseconds_back(length: Duration) -> i64 {
    microseconds(length.min(BACK_MAX))
}

/// Where a page in id order begins: at the id after that one, or at the first of all. `None`: no id
/// comes after it.
pub(crate) fn page_start(after: Option<Uuid>) -> Option<Uuid> {
    let Some(after) = after else {
        return Some(Uuid::nil());
    };
    after.as_u128().checked_add(1).map(Uuid::from_u128)
}

/// The text of a `json` column, as it was written: reading it as a value would change it.
pub(crate) struct JsonText(pub(crate) Arc<str>);

impl<'a> FromSql<'a> for JsonText {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Arc::from(str::from_utf8(raw)?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

/// Reads a row's columns from left to right.
pub(crate) struct Columns<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Columns<'r> {
    pub(crate) const fn of(row: &'r Row) -> Self {
        Self { row, next: 0 }
    }

    /// A value that Postgres and this program have the same idea of.
    pub(crate) fn plain<T: FromSqlOwned>(&mut self) -> Answer<T> {
        let value = self.row.try_get(self.next)?;
        self.next += 1;
        Ok(value)
    }

    /// A number that is never below zero.
    pub(crate) fn count(&mut self) -> Answer<u32> {
        let value: i32 = self.plain()?;
        u32::try_from(value).map_err(|_| Fault::damaged(format_args!("{value} is no count")))
    }

    /// The answer of a `count` or a `sum`.
    pub(crate) fn tally(&mut self) -> Answer<u64> {
        let value: i64 = self.plain()?;
        u64::try_from(value).map_err(|_| Fault::damaged(format_args!("{value} is no count")))
    }

    pub(crate) fn uuid(&mut self) -> Answer<Uuid> {
        self.plain()
    }

    pub(crate) fn text(&mut self) -> Answer<&'r str> {
        let value = self.row.try_get(self.next)?;
        self.next += 1;
        Ok(value)
    }

    pub(crate) fn text_or_null(&mut self) -> Answer<Option<&'r str>> {
        let value = self.row.try_get(self.next)?;
        self.next += 1;
        Ok(value)
    }

    pub(crate) fn timestamp(&mut self) -> Answer<Timestamp> {
        Ok(self.plain::<Moment>()?.0)
    }

    pub(crate) fn timestamp_or_null(&mut self) -> Answer<Option<Timestamp>> {
        Ok(self.plain::<Option<Moment>>()?.map(|moment| moment.0))
    }

    pub(crate) fn json(&mut self) -> Answer<JsonObject> {
        Ok(JsonObject::from_stored(self.plain::<JsonText>()?.0))
    }

    /// Whether the next identifier is missing, without going on to the column after it.
    pub(crate) fn is_null(&self) -> Answer<bool> {
        Ok(self.row.try_get::<_, Option<Uuid>>(self.next)?.is_none())
    }

    /// The columns of [`item_columns!`].
    pub(crate) fn item(&mut self) -> Answer<(OrgId, WorkItem)> {
        read_item(self)
    }

    /// A name that was valid when it was written.
    pub(crate) fn named<T, E: Display>(&mut self, parse: fn(&str) -> Result<T, E>) -> Answer<T> {
        parse(self.text()?).map_err(Fault::damaged)
    }

    /// A name that was asked for, and so is nearly always among the `known`: many rows share it then.
    pub(crate) fn one_of<T, E>(&mut self, known: &[T], parse: fn(&str) -> Result<T, E>) -> Answer<T>
    where
        T: AsRef<str> + Clone,
        E: Display,
    {
        let text = self.text()?;
        match known.iter().find(|name| name.as_ref() == text) {
            Some(name) => Ok(name.clone()),
            None => parse(text).map_err(Fault::damaged),
        }
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
pub(crate) fn item(row: &Row) -> Answer<(OrgId, WorkItem)> {
    Columns::of(row).item()
}

/// Reads the work items of rows of [`item_columns!`], whose org the caller knows.
pub(crate) fn items(rows: &[Row]) -> Answer<Vec<WorkItem>> {
    rows.iter().map(|row| Ok(item(row)?.1)).collect()
}

fn read_item(columns: &mut Columns<'_>) -> Answer<(OrgId, WorkItem)> {
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
        claim_token: columns.plain::<Option<Uuid>>()?.map(ClaimToken::new),
        claim_seq: columns.plain()?,
        lease_expires_at: columns.timestamp_or_null()?,
        attempts: columns.count()?,
        max_attempts: columns.count()?,
        worker_losses: columns.count()?,
        failure_code: columns.named_or_null(FailureCode::parse)?,
        cancel_requested_at: columns.timestamp_or_null()?,
        audited_at: columns.timestamp_or_null()?,
        progress: progress(columns.plain()?, columns.text_or_null()?)?,
        last_error: columns.text_or_null()?.map(ShortText::new),
        errors: errors(columns.plain::<Option<JsonText>>()?)?,
        result: columns
            .plain::<Option<JsonText>>()?
            .map(|text| JsonObject::from_stored(text.0)),
        payload: columns.json()?,
    };
    Ok((org_id, item))
}

fn status(word: &str) -> Answer<Status> {
    Status::parse(word).ok_or_else(|| Fault::damaged(format_args!("{word:?} is no status")))
}

fn progress(percent: Option<i16>, note: Option<&str>) -> Answer<Option<Progress>> {
    let Some(percent) = percent else {
        return Ok(None);
    };
    let percent = u8::try_from(percent)
        .map_err(|_| Fault::damaged(format_args!("{percent} is no percentage")))?;
    Ok(Some(Progress::new(percent, note.unwrap_or_default())))
}

pub(crate) fn errors(list: Option<JsonText>) -> Answer<Vec<AttemptError>> {
    list.map_or(Ok(Vec::new()), |list| {
        serde_json::from_str(&list.0).map_err(Fault::damaged)
    })
}
