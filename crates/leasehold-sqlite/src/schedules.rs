//! The promises about schedules.

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::schedules::Schedule;
use leasehold_core::store::{ScheduleStore, StoreError, StoreResult};
use leasehold_core::{JsonObject, Kind, Lane, NewItem, OrgId, ScheduleId};
use rusqlite::{Row, params};

use crate::error::Answer;
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;
use crate::work;
use crate::writer::Unit;

const NAME_TAKEN: &str = "
    SELECT 1 FROM schedules INDEXED BY schedules_name
    WHERE org_id = ?1 AND name = ?2 AND id <> ?3";

const PUT: &str = "
    INSERT INTO schedules (id, org_id, name, kind, lane, payload, expression, last_tick)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (id) DO UPDATE
    SET name = excluded.name, kind = excluded.kind, lane = excluded.lane,
        payload = excluded.payload, expression = excluded.expression
    WHERE org_id = excluded.org_id";

const OF_ORG: &str = "
    SELECT org_id, id, name, kind, lane, payload, expression, last_tick
    FROM schedules INDEXED BY schedules_org
    WHERE org_id = ?1
    ORDER BY id
    LIMIT ?2";

const ALL: &str = "
    SELECT org_id, id, name, kind, lane, payload, expression, last_tick
    FROM schedules INDEXED BY schedules_id
    WHERE id > ?1
    ORDER BY id
    LIMIT ?2";

const ADVANCE: &str = "
    UPDATE schedules INDEXED BY schedules_id SET last_tick = ?4
    WHERE id = ?1 AND org_id = ?2 AND last_tick IS ?3";

#[async_trait]
impl ScheduleStore for SqliteStore {
    async fn put_schedule(&self, org: OrgId, schedule: &Schedule) -> StoreResult<()> {
        let schedule = schedule.clone();
        self.write(1, move |unit| put(unit, org, &schedule)).await
    }

    async fn remove_schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<bool> {
        self.write(1, move |unit| {
            let removed = unit.execute(
                "DELETE FROM schedules WHERE id = ?1 AND org_id = ?2",
                params![bytes(schedule.as_uuid()), bytes(org.as_uuid())],
            )?;
            Ok(removed == 1)
        })
        .await
    }

    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(OF_ORG)?;
            let found = rows::collect(&mut statement, params![bytes(org.as_uuid()), limit], owned)?;
            Ok(found.into_iter().map(|(_, schedule)| schedule).collect())
        })
        .await
    }

    async fn all_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<Vec<(OrgId, Schedule)>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(ALL)?;
            rows::collect(
                &mut statement,
                params![rows::after(after.map(|id| id.as_uuid())), limit],
                owned,
            )
        })
        .await
    }

    async fn advance(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        from: Option<Timestamp>,
        to: Timestamp,
        items: Vec<NewItem>,
    ) -> StoreResult<bool> {
        self.write(1 + items.len(), move |unit| {
            let moved = unit.execute(
                ADVANCE,
                params![
                    bytes(schedule.as_uuid()),
                    bytes(org.as_uuid()),
                    from.map(Timestamp::as_microsecond),
                    to.as_microsecond(),
                ],
            )?;
            if moved == 1 {
                work::enqueue(unit, org, items)?;
            }
            Ok(moved == 1)
        })
        .await
    }
}

fn put(unit: &Unit<'_>, org: OrgId, schedule: &Schedule) -> Answer<()> {
    let (org_id, id) = (bytes(org.as_uuid()), bytes(schedule.id.as_uuid()));
    let mut name_taken = unit.db.prepare_cached(NAME_TAKEN)?;
    if name_taken.exists(params![org_id, schedule.name, id])? {
        return Err(StoreError::Refused(format!(
            "another schedule of the org is named {:?}; choose another name",
            schedule.name
        ))
        .into());
    }
    let put = unit.execute(
        PUT,
        params![
            id,
            org_id,
            schedule.name,
            schedule.kind.as_str(),
            schedule.lane.as_str(),
            schedule.payload.as_str(),
            schedule.expression,
            schedule.last_tick.map(Timestamp::as_microsecond),
        ],
    )?;
    if put == 1 {
        Ok(())
    } else {
        let id = schedule.id;
        Err(StoreError::Refused(format!("the schedule id {id} is taken; mint another")).into())
    }
}

fn owned(row: &Row<'_>) -> Answer<(OrgId, Schedule)> {
    let mut columns = Columns::of(row);
    let org = columns.uuid()?.into();
    let schedule = Schedule {
        id: columns.uuid()?.into(),
        name: columns.text()?.to_owned(),
        kind: columns.named(Kind::parse)?,
        lane: columns.named(Lane::parse)?,
        payload: JsonObject::from_stored(columns.text()?),
        expression: columns.text()?.to_owned(),
        last_tick: columns.timestamp_or_null()?,
    };
    Ok((org, schedule))
}
