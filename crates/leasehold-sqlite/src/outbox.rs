//! The promises about outbox rows.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::rules::{self, RetryPolicy};
use leasehold_core::store::outbox::{NewOutboxRow, OutboxRow, PendingRequest};
use leasehold_core::store::{OutboxStore, StoreResult};
use leasehold_core::time::{age, earlier, later};
use leasehold_core::{JsonObject, OrgId, ShortText};
use rusqlite::{Row, params};
use uuid::Uuid;

use crate::error::Answer;
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;
use crate::writer::Unit;

const APPEND: &str = "
    INSERT INTO outbox (
        id, org_id, created_at, kind, target_id, actor_id, request_id, traceparent, app, payload
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT DO NOTHING";

const PENDING: &str = "
    SELECT org_id, created_at, attempts, id, kind, target_id, actor_id, request_id, traceparent,
        app, payload
    FROM outbox INDEXED BY outbox_pending
    WHERE ended_at IS NULL AND created_at <= ?1 AND (not_before IS NULL OR not_before <= ?2)
    ORDER BY id
    LIMIT ?3";

const TAKE: &str = "
    UPDATE outbox SET attempts = ?2, not_before = ?3 WHERE id = ?1 AND ended_at IS NULL";

/// A row that was dead becomes done if it was relayed after all.
const MARK_DONE: &str = "
    UPDATE outbox SET fate = 'done', ended_at = ?2 WHERE id = ?1 AND fate IS NOT 'done'";

const MARK_FAILED: &str = "
    UPDATE outbox
    SET last_error = ?2, fate = iif(?4, 'dead', NULL), ended_at = iif(?4, ?3, NULL)
    WHERE id = ?1 AND ended_at IS NULL";

const OLDEST: &str = "
    SELECT created_at FROM outbox INDEXED BY outbox_oldest
    WHERE ended_at IS NULL
    ORDER BY created_at
    LIMIT 1";

const PURGE: &str = "
    DELETE FROM outbox WHERE rowid IN (
        SELECT rowid FROM outbox INDEXED BY outbox_ended
        WHERE ended_at IS NOT NULL AND ended_at < ?1
        ORDER BY ended_at
        LIMIT ?2
    )";

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn append_outbox(&self, org: OrgId, rows: &[NewOutboxRow]) -> StoreResult<u32> {
        let rows = rows.to_vec();
        self.write(rows.len(), move |unit| append(unit, org, &rows))
            .await
    }

    async fn claim_pending(&self, request: &PendingRequest) -> StoreResult<Vec<OutboxRow>> {
        let request = *request;
        self.write(request.limit as usize, move |unit| claim(unit, request))
            .await
    }

    async fn mark_done(&self, rows: &[Uuid]) -> StoreResult<()> {
        let rows = rows.to_vec();
        self.write(rows.len(), move |unit| {
            for row in &rows {
                unit.execute(MARK_DONE, params![bytes(*row), unit.now.as_microsecond()])?;
            }
            Ok(())
        })
        .await
    }

    async fn mark_failed(&self, row: Uuid, error: &ShortText, dead: bool) -> StoreResult<bool> {
        let error = error.clone();
        self.write(1, move |unit| {
            let now = unit.now.as_microsecond();
            let failed =
                unit.execute(MARK_FAILED, params![bytes(row), error.as_str(), now, dead])?;
            Ok(failed == 1)
        })
        .await
    }

    async fn outbox_lag(&self) -> StoreResult<Duration> {
        self.read(|db, now| {
            let mut statement = db.prepare_cached(OLDEST)?;
            let oldest = rows::first(&mut statement, (), |row| Columns::of(row).timestamp())?;
            Ok(oldest.map_or(Duration::ZERO, |created_at| age(now, created_at)))
        })
        .await
    }

    async fn purge_outbox(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        self.write(limit as usize, move |unit| {
            let before = earlier(unit.now, retention).as_microsecond();
            let purged = unit.execute(PURGE, params![before, limit])?;
            Ok(u32::try_from(purged).unwrap_or(u32::MAX))
        })
        .await
    }
}

/// Writes rows whose ids are not there. How many were new.
pub(crate) fn append(unit: &Unit<'_>, org: OrgId, rows: &[NewOutboxRow]) -> Answer<u32> {
    let mut new = 0;
    for row in rows {
        new += u32::from(append_one(unit, org, row)?);
    }
    Ok(new)
}

fn append_one(unit: &Unit<'_>, org: OrgId, row: &NewOutboxRow) -> Answer<bool> {
    let appended = unit.execute(
        APPEND,
        params![
            bytes(row.id),
            bytes(org.as_uuid()),
            unit.now.as_microsecond(),
            row.kind,
            bytes(row.target_id.as_uuid()),
            bytes(row.actor_id.as_uuid()),
            bytes(row.request_id.as_uuid()),
            row.traceparent,
            row.app,
            row.payload.as_str(),
        ],
    )?;
    Ok(appended == 1)
}

fn claim(unit: &Unit<'_>, request: PendingRequest) -> Answer<Vec<OutboxRow>> {
    let policy = RetryPolicy {
        base: request.base,
        cap: request.cap,
        jitter: 0.0,
    };
    let old_enough = earlier(unit.now, request.grace).as_microsecond();
    let mut statement = unit.db.prepare_cached(PENDING)?;
    let params = params![old_enough, unit.now.as_microsecond(), request.limit];
    let mut taken = rows::collect(&mut statement, params, read_row)?;
    for row in &mut taken {
        row.attempts = row.attempts.saturating_add(1);
        let not_before = later(unit.now, rules::retry_delay(row.attempts, &policy, 0.0));
        unit.execute(
            TAKE,
            params![bytes(row.row.id), row.attempts, not_before.as_microsecond()],
        )?;
    }
    Ok(taken)
}

fn read_row(row: &Row<'_>) -> Answer<OutboxRow> {
    let mut columns = Columns::of(row);
    Ok(OutboxRow {
        org_id: columns.uuid()?.into(),
        created_at: columns.timestamp()?,
        attempts: columns.count()?,
        row: NewOutboxRow {
            id: columns.uuid()?,
            kind: columns.text()?.to_owned(),
            target_id: columns.uuid()?.into(),
            actor_id: columns.uuid()?.into(),
            request_id: columns.uuid()?.into(),
            traceparent: columns.text_or_null()?.map(str::to_owned),
            app: columns.text()?.to_owned(),
            payload: JsonObject::from_stored(columns.text()?),
        },
    })
}
