//! The promises about schedules.

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::schedules::Schedule;
use leasehold_core::store::{ScheduleStore, StoreError, StoreResult};
use leasehold_core::{Kind, Lane, NewItem, OrgId, ScheduleId};
use tokio_postgres::Row;

use crate::error::Answer;
use crate::funnel::Statements as _;
use crate::rows::{self, Columns, Moment};
use crate::store::PostgresStore;
use crate::work;

const PUT: &str = include_str!("sql/put_schedule.sql");

/// Who wrote the schedule at the same time has ended by the second try, which sees what became of it.
const TRIES_MAX: u32 = 2;

const REMOVE: &str = "delete from {schema}.schedules where id = $1 and org_id = $2";

const OF_ORG: &str = "
    select org_id, id, name, kind, lane, payload, expression, last_tick
    from {schema}.schedules
    where org_id = $1
    order by id
    limit $2";

const ALL: &str = "
    select org_id, id, name, kind, lane, payload, expression, last_tick
    from {schema}.schedules
    where id >= $1
    order by id
    limit $2";

const ADVANCE: &str = "
    update {schema}.schedules set last_tick = $4
    where id = $1 and org_id = $2 and last_tick is not distinct from $3";

#[async_trait]
impl ScheduleStore for PostgresStore {
    async fn put_schedule(&self, org: OrgId, schedule: &Schedule) -> StoreResult<()> {
        Ok(put(self, org, schedule).await?)
    }

    async fn remove_schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<bool> {
        let removed = self
            .of_org(org)
            .execute(REMOVE, &[&schedule.as_uuid(), &org.as_uuid()])
            .await?;
        Ok(removed == 1)
    }

    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>> {
        let rows = self
            .of_org(org)
            .query(OF_ORG, &[&org.as_uuid(), &i64::from(limit)])
            .await?;
        let found: Answer<_> = rows.iter().map(|row| Ok(owned(row)?.1)).collect();
        Ok(found?)
    }

    async fn all_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<Vec<(OrgId, Schedule)>> {
        let Some(start) = rows::page_start(after.map(|id| id.as_uuid())) else {
            return Ok(Vec::new());
        };
        let rows = self
            .tenantless()
            .query(ALL, &[&start, &i64::from(limit)])
            .await?;
        let found: Answer<_> = rows.iter().map(owned).collect();
        Ok(found?)
    }

    async fn advance(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        from: Option<Timestamp>,
        to: Timestamp,
        items: Vec<NewItem>,
    ) -> StoreResult<bool> {
        Ok(advance(self, org, schedule, from, to, items).await?)
    }
}

async fn put(store: &PostgresStore, org: OrgId, schedule: &Schedule) -> Answer<()> {
    for _ in 0..TRIES_MAX {
        let (name_is_taken, is_put) = put_once(store, org, schedule).await?;
        if is_put {
            return Ok(());
        }
        if name_is_taken {
            return Err(StoreError::Refused(format!(
                "another schedule of the org is named {:?}; choose another name",
                schedule.name
            ))
            .into());
        }
    }
    let id = schedule.id;
    Err(StoreError::Refused(format!("the schedule id {id} is taken; mint another")).into())
}

/// Whether the name is another schedule's, and whether this one was written.
async fn put_once(store: &PostgresStore, org: OrgId, schedule: &Schedule) -> Answer<(bool, bool)> {
    let answer = store
        .of_org(org)
        .query_opt(
            PUT,
            &[
                &schedule.id.as_uuid(),
                &org.as_uuid(),
                &schedule.name,
                &schedule.kind.as_str(),
                &schedule.lane.as_str(),
                &schedule.payload.as_str(),
                &schedule.expression,
                &schedule.last_tick.map(Moment),
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

/// The schedule's row is locked first and the items after it, in one transaction: a crash before the
/// commit leaves both as they were, one after it has moved both.
async fn advance(
    store: &PostgresStore,
    org: OrgId,
    schedule: ScheduleId,
    from: Option<Timestamp>,
    to: Timestamp,
    items: Vec<NewItem>,
) -> Answer<bool> {
    let mut connection = store.of_org(org).connection().await?;
    let transaction = connection.transaction().await?;
    let moved = transaction
        .execute(
            ADVANCE,
            &[
                &schedule.as_uuid(),
                &org.as_uuid(),
                &from.map(Moment),
                &Moment(to),
            ],
        )
        .await?;
    if moved == 0 {
        return Ok(false);
    }
    let fates = work::enqueue_within(&transaction, org, items).await?;
    transaction.commit().await?;
    store.hint(&work::gained(&fates));
    Ok(true)
}

fn owned(row: &Row) -> Answer<(OrgId, Schedule)> {
    let mut columns = Columns::of(row);
    let org = columns.uuid()?.into();
    let schedule = Schedule {
        id: columns.uuid()?.into(),
        name: columns.text()?.to_owned(),
        kind: columns.named(Kind::parse)?,
        lane: columns.named(Lane::parse)?,
        payload: columns.json()?,
        expression: columns.text()?.to_owned(),
        last_tick: columns.timestamp_or_null()?,
    };
    Ok((org, schedule))
}
