//! The promises about events and audit entries.

use async_trait::async_trait;
use leasehold_core::store::events::{Entry, NewEntry, Stream};
use leasehold_core::store::{EventStore, StoreResult};
use leasehold_core::{JsonObject, OrgId};
use rusqlite::{Row, params};

use crate::error::{Answer, Fault};
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;
use crate::writer::Unit;

const FIND: &str = "
    SELECT seq FROM entries INDEXED BY entries_id
    WHERE org_id = ?1 AND stream = ?2 AND id = ?3";

const NEXT: &str = "
    INSERT INTO entry_cursors (org_id, stream, last) VALUES (?1, ?2, 1)
    ON CONFLICT (org_id, stream) DO UPDATE SET last = last + 1
    RETURNING last";

const APPEND: &str = "
    INSERT INTO entries (
        org_id, stream, seq, id, produced_at, kind, target_id, actor_id, request_id, app, payload
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

const READ_AFTER: &str = "
    SELECT seq, produced_at, id, kind, target_id, actor_id, request_id, app, payload
    FROM entries INDEXED BY entries_seq
    WHERE org_id = ?1 AND stream = ?2 AND seq > ?3
    ORDER BY seq
    LIMIT ?4";

#[async_trait]
impl EventStore for SqliteStore {
    async fn append(&self, org: OrgId, stream: Stream, entry: &NewEntry) -> StoreResult<u64> {
        let entry = entry.clone();
        self.write(1, move |unit| append(unit, org, stream, &entry))
            .await
    }

    async fn read_after(
        &self,
        org: OrgId,
        stream: Stream,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<Entry>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(READ_AFTER)?;
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let params = params![bytes(org.as_uuid()), stream.as_str(), after, limit];
            rows::collect(&mut statement, params, read_entry)
        })
        .await
    }
}

fn append(unit: &Unit<'_>, org: OrgId, stream: Stream, entry: &NewEntry) -> Answer<u64> {
    let (org, stream) = (bytes(org.as_uuid()), stream.as_str());
    let mut find = unit.db.prepare_cached(FIND)?;
    let there = rows::first(&mut find, params![org, stream, bytes(entry.id)], |row| {
        Columns::of(row).tally()
    })?;
    if let Some(seq) = there {
        return Ok(seq);
    }
    let mut next = unit.db.prepare_cached(NEXT)?;
    let seq = rows::first(&mut next, params![org, stream], |row| {
        Columns::of(row).plain()
    })?;
    let seq: i64 = seq.ok_or_else(|| Fault::damaged("a cursor did not move"))?;
    unit.execute(
        APPEND,
        params![
            org,
            stream,
            seq,
            bytes(entry.id),
            unit.now.as_microsecond(),
            entry.kind,
            bytes(entry.target_id),
            bytes(entry.actor_id.as_uuid()),
            bytes(entry.request_id.as_uuid()),
            entry.app,
            entry.payload.as_str(),
        ],
    )?;
    u64::try_from(seq).map_err(Fault::damaged)
}

fn read_entry(row: &Row<'_>) -> Answer<Entry> {
    let mut columns = Columns::of(row);
    Ok(Entry {
        seq: columns.tally()?,
        produced_at: columns.timestamp()?,
        entry: NewEntry {
            id: columns.uuid()?,
            kind: columns.text()?.to_owned(),
            target_id: columns.uuid()?,
            actor_id: columns.uuid()?.into(),
            request_id: columns.uuid()?.into(),
            app: columns.text()?.to_owned(),
            payload: JsonObject::from_stored(columns.text()?),
        },
    })
}
