//! The promises about schedules.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::schedules::{
    Advance, Advanced, DueSchedules, Overlap, PutSchedule, Schedule, ScheduleDefinition,
    SchedulePause,
};
use leasehold_core::store::work::Enqueued;
use leasehold_core::store::{ScheduleStore, StoreError, StoreResult};
use leasehold_core::{ItemId, Kind, Lane, OrgId, ScheduleId, ShortText};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::funnel::Statements;
use crate::rows::{self, Columns, Moment};
use crate::store::PostgresStore;
use crate::work;

const PUT: &str = include_str!("sql/put_schedule.sql");

/// Who wrote the schedule at the same time has ended by the second try, which sees what became of it.
const TRIES_MAX: u32 = 2;

const REMOVE: &str = "delete from {schema}.schedules where id = $1 and org_id = $2";

/// In the order in which [`read`] reads them.
macro_rules! columns {
    () => {
        "org_id, id, name, kind, lane, payload, priority, max_attempts, expression, zone, starts_at, \
         ends_at, missed, overlap, jitter, declared_by, undeclared_at, paused_since, paused_reason, \
         paused_by, next_tick, last_tick, last_item, revision"
    };
}

const ONE: &str = concat!(
    "select ",
    columns!(),
    " from {schema}.schedules where id = $1 and org_id = $2"
);

const OF_ORG: &str = concat!(
    "select ",
    columns!(),
    " from {schema}.schedules
    where org_id = $1
    order by id
    limit $2"
);

const DUE: &str = concat!(
    "select ",
    columns!(),
    " from {schema}.schedules
    where next_tick <= $3 and paused_since is null and id >= $1
    order by id
    limit $2"
);

/// The store's now, and the first tick after it.
const NEXT: &str = "
    select c.now, (
        select min(next_tick) from {schema}.schedules
        where next_tick > c.now and paused_since is null
    )
    from (select {schema}.clock() as now) c";

/// Holds the row until the end of the transaction.
const LOCK: &str = "
    select overlap, last_item
    from {schema}.schedules
    where id = $1 and org_id = $2 and revision = $3 and (paused_since is null or not $4)
    for update";

const UNFINISHED: &str = "
    select exists (select from {schema}.ready where id = $1 and org_id = $2)
        or exists (select from {schema}.claims where id = $1 and org_id = $2)";

const MOVE: &str = "
    update {schema}.schedules
    set last_tick = $4, next_tick = $5, last_item = coalesce($6, last_item), revision = revision + 1
    where id = $1 and org_id = $2 and revision = $3";

const NOTE_ITEM: &str = "
    update {schema}.schedules
    set last_item = coalesce($4, last_item), revision = revision + 1
    where id = $1 and org_id = $2 and revision = $3";

const PAUSE: &str = "
    update {schema}.schedules
    set paused_since = coalesce(paused_since, {schema}.clock()), paused_reason = $3, paused_by = $4,
        revision = revision + 1
    where id = $1 and org_id = $2";

const RESUME: &str = "
    update {schema}.schedules
    set paused_since = null, paused_reason = null, paused_by = null, next_tick = $3,
        revision = revision + 1
    where id = $1 and org_id = $2 and paused_since is not null";

const MARK_UNDECLARED: &str = "
    update {schema}.schedules
    set undeclared_at = {schema}.clock(), revision = revision + 1
    where id = $1 and org_id = $2 and declared_by = $3 and undeclared_at is null";

#[async_trait]
impl ScheduleStore for PostgresStore {
    async fn put_schedule(&self, org: OrgId, schedule: &PutSchedule) -> StoreResult<()> {
        Ok(put(self, org, schedule).await?)
    }

    async fn remove_schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<bool> {
        let removed = self
            .of_org(org)
            .execute(REMOVE, &[&schedule.as_uuid(), &org.as_uuid()])
            .await?;
        Ok(removed == 1)
    }

    async fn schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<Option<Schedule>> {
        let row = self
            .of_org(org)
            .query_opt(ONE, &[&schedule.as_uuid(), &org.as_uuid()])
            .await?;
        Ok(row.as_ref().map(read).transpose()?.map(|(_, one)| one))
    }

    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>> {
        let rows = self
            .of_org(org)
            .query(OF_ORG, &[&org.as_uuid(), &i64::from(limit)])
            .await?;
        let found: Answer<_> = rows.iter().map(|row| Ok(read(row)?.1)).collect();
        Ok(found?)
    }

    async fn due_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<DueSchedules> {
        Ok(due(self, after, limit).await?)
    }

    async fn advance(&self, org: OrgId, advance: &Advance) -> StoreResult<Advanced> {
        Ok(self::advance(self, org, advance).await?)
    }

    async fn pause_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        reason: &ShortText,
        by: &ShortText,
    ) -> StoreResult<bool> {
        let paused = self
            .of_org(org)
            .execute(
                PAUSE,
                &[
                    &schedule.as_uuid(),
                    &org.as_uuid(),
                    &reason.as_str(),
                    &by.as_str(),
                ],
            )
            .await?;
        Ok(paused == 1)
    }

    async fn resume_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        next_tick: Option<Timestamp>,
    ) -> StoreResult<bool> {
        let resumed = self
            .of_org(org)
            .execute(
                RESUME,
                &[&schedule.as_uuid(), &org.as_uuid(), &next_tick.map(Moment)],
            )
            .await?;
        Ok(resumed == 1)
    }

    async fn mark_undeclared(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        declared_by: &str,
    ) -> StoreResult<bool> {
        let marked = self
            .of_org(org)
            .execute(
                MARK_UNDECLARED,
                &[&schedule.as_uuid(), &org.as_uuid(), &declared_by],
            )
            .await?;
        Ok(marked == 1)
    }
}

async fn put(store: &PostgresStore, org: OrgId, put: &PutSchedule) -> Answer<()> {
    for _ in 0..TRIES_MAX {
        let (name_is_taken, is_put) = put_once(store, org, put).await?;
        if is_put {
            return Ok(());
        }
        if name_is_taken {
            return Err(StoreError::Refused(format!(
                "another schedule of the org is named {:?}; choose another name",
                put.definition.name
            ))
            .into());
        }
    }
    let id = put.id;
    Err(StoreError::Refused(format!("the schedule id {id} is taken; mint another")).into())
}

/// Whether the name is another schedule's, and whether this one was written.
async fn put_once(store: &PostgresStore, org: OrgId, put: &PutSchedule) -> Answer<(bool, bool)> {
    let it = &put.definition;
    let attempts = i32::try_from(it.max_attempts).unwrap_or(i32::MAX);
    let answer = store
        .of_org(org)
        .query_opt(
            PUT,
            &[
                &put.id.as_uuid(),
                &org.as_uuid(),
                &it.name,
                &it.kind.as_str(),
                &it.lane.as_str(),
                &it.payload.as_str(),
                &it.priority,
                &attempts,
                &it.expression,
                &it.zone,
                &it.starts_at.map(Moment),
                &it.ends_at.map(Moment),
                &it.missed.to_string(),
                &it.overlap.as_str(),
                &rows::microseconds(it.jitter),
                &put.declared_by,
                &put.next_tick.map(Moment),
            ],
        )
        .await?;
    let answer = answer.as_ref().map(put_answer).transpose()?;
    Ok(answer.unwrap_or_default())
}

fn put_answer(row: &Row) -> Answer<(bool, bool)> {
    let mut columns = Columns::of(row);
    Ok((columns.plain()?, columns.plain()?))
}

/// Two statements, of which the second is spared where nothing can be due: what is not due at the now of the
/// first has its tick after it, and is in `next`.
async fn due(store: &PostgresStore, after: Option<ScheduleId>, limit: u32) -> Answer<DueSchedules> {
    let look = store.tenantless();
    let clock = look.query_opt(NEXT, &[]).await?;
    let clock = clock.ok_or_else(|| Fault::damaged("the clock answered nothing"))?;
    let mut columns = Columns::of(&clock);
    let (now, next) = (columns.timestamp()?, columns.timestamp_or_null()?);
    let mut due = Vec::new();
    if let Some(start) = rows::page_start(after.map(|id| id.as_uuid())) {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&start, &i64::from(limit), &Moment(now)];
        let rows = look.query(DUE, &params).await?;
        due = rows.iter().map(read).collect::<Answer<_>>()?;
    }
    Ok(DueSchedules { now, due, next })
}

/// The schedule's row is locked first and the items after it, in one transaction: a crash before the
/// commit leaves both as they were, one after it has moved both.
async fn advance(store: &PostgresStore, org: OrgId, advance: &Advance) -> Answer<Advanced> {
    let mut connection = store.of_org(org).connection().await?;
    let transaction = connection.transaction().await?;
    let (id, org_id) = (advance.schedule.as_uuid(), org.as_uuid());
    let is_tick = advance.ticks.is_some();
    let locked = transaction
        .query_opt(LOCK, &[&id, &org_id, &advance.revision, &is_tick])
        .await?;
    let Some(row) = locked else {
        return Ok(Advanced::Late);
    };
    let mut columns = Columns::of(&row);
    let overlap: Overlap = columns.named(str::parse)?;
    let last = columns
        .plain::<Option<Uuid>>()?
        .filter(|_| overlap == Overlap::Skip);
    let in_the_way = match last {
        Some(last) if is_unfinished(&transaction, org, last).await? => Some(ItemId::new(last)),
        _ => None,
    };
    let fates = if in_the_way.is_some() {
        Vec::new()
    } else {
        work::enqueue_within(&transaction, org, advance.items.clone()).await?
    };
    let made = fates.iter().rev().find_map(Enqueued::stored);
    let made = made.map(|item| item.id.as_uuid());
    if let Some(ticks) = advance.ticks {
        let (last, next) = (Moment(ticks.last), ticks.next.map(Moment));
        transaction
            .execute(
                MOVE,
                &[&id, &org_id, &advance.revision, &last, &next, &made],
            )
            .await?;
    } else if made.is_some() {
        transaction
            .execute(NOTE_ITEM, &[&id, &org_id, &advance.revision, &made])
            .await?;
    }
    transaction.commit().await?;
    store.hint(&work::gained(&fates));
    Ok(match in_the_way {
        Some(item) => Advanced::Overlapping(item),
        None => Advanced::Made(fates),
    })
}

async fn is_unfinished(on: &impl Statements, org: OrgId, item: Uuid) -> Answer<bool> {
    let row = on.query_opt(UNFINISHED, &[&item, &org.as_uuid()]).await?;
    let row = row.ok_or_else(|| Fault::damaged("a question was not answered"))?;
    Columns::of(&row).plain()
}

fn read(row: &Row) -> Answer<(OrgId, Schedule)> {
    let mut columns = Columns::of(row);
    let org = columns.uuid()?.into();
    let id = columns.uuid()?.into();
    let definition = ScheduleDefinition {
        name: columns.text()?.to_owned(),
        kind: columns.named(Kind::parse)?,
        lane: columns.named(Lane::parse)?,
        payload: columns.json()?,
        priority: columns.plain()?,
        max_attempts: columns.count()?,
        expression: columns.text()?.to_owned(),
        zone: columns.text()?.to_owned(),
        starts_at: columns.timestamp_or_null()?,
        ends_at: columns.timestamp_or_null()?,
        missed: columns.named(str::parse)?,
        overlap: columns.named(str::parse)?,
        jitter: Duration::from_micros(columns.tally()?),
    };
    let declared_by = columns.text_or_null()?.map(str::to_owned);
    let undeclared_at = columns.timestamp_or_null()?;
    let since = columns.timestamp_or_null()?;
    let reason = ShortText::new(columns.text_or_null()?.unwrap_or_default());
    let by = ShortText::new(columns.text_or_null()?.unwrap_or_default());
    let schedule = Schedule {
        id,
        definition,
        declared_by,
        undeclared_at,
        paused: since.map(|since| SchedulePause { reason, by, since }),
        next_tick: columns.timestamp_or_null()?,
        last_tick: columns.timestamp_or_null()?,
        last_item: columns.plain::<Option<Uuid>>()?.map(ItemId::new),
        revision: columns.plain()?,
    };
    Ok((org, schedule))
}
