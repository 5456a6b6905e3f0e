//! The promises about outbox rows.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::rules::{self, RetryPolicy};
use leasehold_core::store::outbox::{NewOutboxRow, OutboxRow, PendingRequest};
use leasehold_core::store::{OutboxStore, StoreResult};
use leasehold_core::time::age;
use leasehold_core::{OrgId, ShortText};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Answer;
use crate::funnel::Statements as _;
use crate::rows::{Columns, microseconds, microseconds_back};
use crate::store::PostgresStore;

const APPEND: &str = include_str!("sql/append_outbox.sql");

const TAKE: &str = include_str!("sql/take_outbox.sql");

/// A row that was dead becomes done if it was relayed after all.
const MARK_DONE: &str = "
    with relayed as materialized (
        select id from {schema}.outbox
        where id = any ($1) and fate is distinct from 'done'
        order by id
        for update
    )
    update {schema}.outbox set fate = 'done', ended_at = {schema}.clock()
    where id in (select id from relayed)";

const MARK_FAILED: &str = "
    update {schema}.outbox
    set last_error = $2,
        fate = case when $3 then 'dead' end,
        ended_at = case when $3 then {schema}.clock() end
    where id = $1 and ended_at is null";

const OLDEST: &str = "
    select {schema}.clock(), (
        select created_at from {schema}.outbox where ended_at is null order by created_at limit 1
    )";

const PURGE: &str = "
    delete from {schema}.outbox where id = any (array(
        select id from {schema}.outbox
        where ended_at < {schema}.clock() - $1::bigint * interval '1 microsecond'
        order by ended_at
        limit $2
        for update skip locked
    ))";

/// From this attempt on the back-off grows no more: [`rules::retry_delay`] doubles no further.
const DELAYS: u32 = 32;

#[async_trait]
impl OutboxStore for PostgresStore {
    async fn append_outbox(&self, org: OrgId, rows: &[NewOutboxRow]) -> StoreResult<u32> {
        Ok(append(self, org, rows).await?)
    }

    async fn claim_pending(&self, request: &PendingRequest) -> StoreResult<Vec<OutboxRow>> {
        let rows = self
            .tenantless()
            .query(
                TAKE,
                &[
                    &i64::from(request.limit),
                    &microseconds_back(request.grace),
                    &delays(request),
                ],
            )
            .await?;
        let taken: Answer<_> = rows.iter().map(read_row).collect();
        Ok(taken?)
    }

    async fn mark_done(&self, rows: &[Uuid]) -> StoreResult<()> {
        self.tenantless().execute(MARK_DONE, &[&rows]).await?;
        Ok(())
    }

    async fn mark_failed(&self, row: Uuid, error: &ShortText, dead: bool) -> StoreResult<bool> {
        let failed = self
            .tenantless()
            .execute(MARK_FAILED, &[&row, &error.as_str(), &dead])
            .await?;
        Ok(failed == 1)
    }

    async fn outbox_lag(&self) -> StoreResult<Duration> {
        let row = self.tenantless().query_opt(OLDEST, &[]).await?;
        Ok(row.as_ref().map(lag).transpose()?.unwrap_or_default())
    }

    async fn purge_outbox(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        let purged = self
            .tenantless()
            .execute(PURGE, &[&microseconds_back(retention), &i64::from(limit)])
            .await?;
        Ok(u32::try_from(purged).unwrap_or(u32::MAX))
    }
}

/// Writes rows whose ids are not there. How many were new.
async fn append(store: &PostgresStore, org: OrgId, rows: &[NewOutboxRow]) -> Answer<u32> {
    if rows.is_empty() {
        return Ok(0);
    }
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let kinds: Vec<_> = rows.iter().map(|row| row.kind.as_str()).collect();
    let targets: Vec<_> = rows.iter().map(|row| row.target_id.as_uuid()).collect();
    let actors: Vec<_> = rows.iter().map(|row| row.actor_id.as_uuid()).collect();
    let requests: Vec<_> = rows.iter().map(|row| row.request_id.as_uuid()).collect();
    let traceparents: Vec<_> = rows.iter().map(|row| row.traceparent.as_deref()).collect();
    let apps: Vec<_> = rows.iter().map(|row| row.app.as_str()).collect();
    let payloads: Vec<_> = rows.iter().map(|row| row.payload.as_str()).collect();
    let new = store
        .of_org(org)
        .execute(
            APPEND,
            &[
                &org.as_uuid(),
                &ids,
                &kinds,
                &targets,
                &actors,
                &requests,
                &traceparents,
                &apps,
                &payloads,
            ],
        )
        .await?;
    Ok(u32::try_from(new).unwrap_or(u32::MAX))
}

/// What a row waits after its first attempt, its second, and so on, in microseconds.
fn delays(request: &PendingRequest) -> Vec<i64> {
    let policy = RetryPolicy {
        base: request.base,
        cap: request.cap,
        jitter: 0.0,
    };
    (1..=DELAYS)
        .map(|attempts| microseconds(rules::retry_delay(attempts, &policy, 0.0)))
        .collect()
}

fn lag(row: &Row) -> Answer<Duration> {
    let mut columns = Columns::of(row);
    let (now, oldest) = (columns.timestamp()?, columns.timestamp_or_null()?);
    Ok(oldest.map_or(Duration::ZERO, |created_at| age(now, created_at)))
}

fn read_row(row: &Row) -> Answer<OutboxRow> {
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
            payload: columns.json()?,
        },
    })
}
