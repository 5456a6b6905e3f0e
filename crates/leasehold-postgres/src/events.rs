//! The promises about events and audit entries.

use async_trait::async_trait;
use leasehold_core::OrgId;
use leasehold_core::store::events::{Entry, NewEntry, Stream};
use leasehold_core::store::{EventStore, StoreError, StoreResult};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::Answer;
use crate::funnel::Statements as _;
use crate::rows::Columns;
use crate::store::PostgresStore;

const APPEND: &str = include_str!("sql/append_entry.sql");

/// Of writers of one id at once, all but one lose once; only an entry that is deleted in between makes
/// a writer lose again.
const TRIES_MAX: u32 = 3;

const READ_AFTER: &str = "
    select seq, produced_at, id, kind, target_id, actor_id, request_id, app, payload
    from {schema}.entries
    where org_id = $1 and stream = $2 and seq > $3
    order by seq
    limit $4";

#[async_trait]
impl EventStore for PostgresStore {
    async fn append(&self, org: OrgId, stream: Stream, entry: &NewEntry) -> StoreResult<u64> {
        for _ in 0..TRIES_MAX {
            if let Some(seq) = append(self, org, stream, entry).await? {
                return Ok(seq);
            }
        }
        let id = entry.id;
        Err(StoreError::Retry(format!("others append the entry {id}")))
    }

    async fn read_after(
        &self,
        org: OrgId,
        stream: Stream,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<Entry>> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 4] =
            [&org.as_uuid(), &stream.as_str(), &after, &i64::from(limit)];
        let rows = self.of_org(org).query(READ_AFTER, &params).await?;
        let entries: Answer<_> = rows.iter().map(read_entry).collect();
        Ok(entries?)
    }
}

/// One statement: the cursor moves and the entry is written, or neither. `None`: somebody else wrote an
/// entry of this id since the statement began, and the next one will see it.
async fn append(
    store: &PostgresStore,
    org: OrgId,
    stream: Stream,
    entry: &NewEntry,
) -> Answer<Option<u64>> {
    let appended = store
        .of_org(org)
        .query_opt(
            APPEND,
            &[
                &org.as_uuid(),
                &stream.as_str(),
                &entry.id,
                &entry.kind,
                &entry.target_id,
                &entry.actor_id.as_uuid(),
                &entry.request_id.as_uuid(),
                &entry.app,
                &entry.payload.as_str(),
            ],
        )
        .await;
    match appended {
        Ok(row) => row.map(|row| Columns::of(&row).tally()).transpose(),
        Err(fault) if fault.is_duplicate() => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn read_entry(row: &Row) -> Answer<Entry> {
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
            payload: columns.json()?,
        },
    })
}
