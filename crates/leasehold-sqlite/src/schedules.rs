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
use leasehold_core::{ItemId, JsonObject, Kind, Lane, OrgId, ScheduleId, ShortText};
use rusqlite::{OptionalExtension as _, Row, params};
use uuid::Uuid;

use crate::error::Answer;
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;
use crate::work;
use crate::writer::Unit;

const NAME_TAKEN: &str = "
    SELECT 1 FROM schedules INDEXED BY schedules_name
    WHERE org_id = ?1 AND name = ?2 AND id <> ?3";

const PUT: &str = "
    INSERT INTO schedules (id, org_id, name, kind, lane, payload, priority, max_attempts, expression, zone,
        starts_at, ends_at, missed, overlap, jitter, declared_by, next_tick, revision)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, 1)
    ON CONFLICT (id) DO UPDATE
    SET name = excluded.name, kind = excluded.kind, lane = excluded.lane, payload = excluded.payload,
        priority = excluded.priority, max_attempts = excluded.max_attempts,
        expression = excluded.expression, zone = excluded.zone, starts_at = excluded.starts_at,
        ends_at = excluded.ends_at, missed = excluded.missed, overlap = excluded.overlap,
        jitter = excluded.jitter, declared_by = excluded.declared_by, undeclared_at = NULL,
        revision = revision + 1,
        next_tick = CASE
            WHEN expression IS excluded.expression AND zone IS excluded.zone
                AND starts_at IS excluded.starts_at AND ends_at IS excluded.ends_at THEN next_tick
            ELSE excluded.next_tick
        END
    WHERE org_id = excluded.org_id";

/// In the order in which [`read`] reads them.
macro_rules! columns {
    () => {
        "org_id, id, name, kind, lane, payload, priority, max_attempts, expression, zone, starts_at, \
         ends_at, missed, overlap, jitter, declared_by, undeclared_at, paused_since, paused_reason, \
         paused_by, next_tick, last_tick, last_item, revision"
    };
}

const ONE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM schedules INDEXED BY schedules_id WHERE id = ?1 AND org_id = ?2"
);

const OF_ORG: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM schedules INDEXED BY schedules_org
    WHERE org_id = ?1
    ORDER BY id
    LIMIT ?2"
);

const DUE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM schedules INDEXED BY schedules_next
    WHERE next_tick <= ?3 AND paused_since IS NULL AND id > ?1
    ORDER BY id
    LIMIT ?2"
);

const NEXT: &str = "
    SELECT min(next_tick) FROM schedules INDEXED BY schedules_next
    WHERE next_tick > ?1 AND paused_since IS NULL";

const LOCK: &str = "
    SELECT overlap, last_item FROM schedules INDEXED BY schedules_id
    WHERE id = ?1 AND org_id = ?2 AND revision = ?3 AND (paused_since IS NULL OR NOT ?4)";

const UNFINISHED: &str = "
    SELECT 1 FROM work_items INDEXED BY work_items_id
    WHERE id = ?1 AND org_id = ?2 AND status IN ('queued', 'claimed')";

const MOVE: &str = "
    UPDATE schedules INDEXED BY schedules_id
    SET last_tick = ?4, next_tick = ?5, last_item = coalesce(?6, last_item), revision = revision + 1
    WHERE id = ?1 AND org_id = ?2 AND revision = ?3";

const NOTE_ITEM: &str = "
    UPDATE schedules INDEXED BY schedules_id
    SET last_item = ?4, revision = revision + 1
    WHERE id = ?1 AND org_id = ?2 AND revision = ?3";

const PAUSE: &str = "
    UPDATE schedules INDEXED BY schedules_id
    SET paused_since = coalesce(paused_since, ?5), paused_reason = ?3, paused_by = ?4,
        revision = revision + 1
    WHERE id = ?1 AND org_id = ?2";

const RESUME: &str = "
    UPDATE schedules INDEXED BY schedules_id
    SET paused_since = NULL, paused_reason = NULL, paused_by = NULL, next_tick = ?3,
        revision = revision + 1
    WHERE id = ?1 AND org_id = ?2 AND paused_since IS NOT NULL";

const MARK_UNDECLARED: &str = "
    UPDATE schedules INDEXED BY schedules_id
    SET undeclared_at = ?4, revision = revision + 1
    WHERE id = ?1 AND org_id = ?2 AND declared_by = ?3 AND undeclared_at IS NULL";

#[async_trait]
impl ScheduleStore for SqliteStore {
    async fn put_schedule(&self, org: OrgId, schedule: &PutSchedule) -> StoreResult<()> {
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

    async fn schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<Option<Schedule>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(ONE)?;
            let found = rows::collect(
                &mut statement,
                params![bytes(schedule.as_uuid()), bytes(org.as_uuid())],
                read,
            )?;
            Ok(found.into_iter().next().map(|(_, schedule)| schedule))
        })
        .await
    }

    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(OF_ORG)?;
            let found = rows::collect(&mut statement, params![bytes(org.as_uuid()), limit], read)?;
            Ok(found.into_iter().map(|(_, schedule)| schedule).collect())
        })
        .await
    }

    async fn due_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<DueSchedules> {
        self.read(move |db, now| {
            let at = now.as_microsecond();
            let mut statement = db.prepare_cached(DUE)?;
            let start = rows::after(after.map(|id| id.as_uuid()));
            let due = rows::collect(&mut statement, params![start, limit, at], read)?;
            let mut statement = db.prepare_cached(NEXT)?;
            let next: Option<i64> = statement.query_row(params![at], |row| row.get(0))?;
            let next = next.map(rows::timestamp).transpose()?;
            Ok(DueSchedules { now, due, next })
        })
        .await
    }

    async fn advance(&self, org: OrgId, advance: &Advance) -> StoreResult<Advanced> {
        let advance = advance.clone();
        let rows = 1 + advance.items.len();
        self.write(rows, move |unit| self::advance(unit, org, advance))
            .await
    }

    async fn pause_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        reason: &ShortText,
        by: &ShortText,
    ) -> StoreResult<bool> {
        let (reason, by) = (reason.clone(), by.clone());
        self.write(1, move |unit| {
            let paused = unit.execute(
                PAUSE,
                params![
                    bytes(schedule.as_uuid()),
                    bytes(org.as_uuid()),
                    reason.as_str(),
                    by.as_str(),
                    unit.now.as_microsecond(),
                ],
            )?;
            Ok(paused == 1)
        })
        .await
    }

    async fn resume_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        next_tick: Option<Timestamp>,
    ) -> StoreResult<bool> {
        self.write(1, move |unit| {
            let resumed = unit.execute(
                RESUME,
                params![
                    bytes(schedule.as_uuid()),
                    bytes(org.as_uuid()),
                    next_tick.map(Timestamp::as_microsecond),
                ],
            )?;
            Ok(resumed == 1)
        })
        .await
    }

    async fn mark_undeclared(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        declared_by: &str,
    ) -> StoreResult<bool> {
        let declared_by = declared_by.to_owned();
        self.write(1, move |unit| {
            let marked = unit.execute(
                MARK_UNDECLARED,
                params![
                    bytes(schedule.as_uuid()),
                    bytes(org.as_uuid()),
                    declared_by,
                    unit.now.as_microsecond(),
                ],
            )?;
            Ok(marked == 1)
        })
        .await
    }
}

fn put(unit: &Unit<'_>, org: OrgId, put: &PutSchedule) -> Answer<()> {
    let (org_id, id) = (bytes(org.as_uuid()), bytes(put.id.as_uuid()));
    let it = &put.definition;
    let mut name_taken = unit.db.prepare_cached(NAME_TAKEN)?;
    if name_taken.exists(params![org_id, it.name, id])? {
        return Err(StoreError::Refused(format!(
            "another schedule of the org is named {:?}; choose another name",
            it.name
        ))
        .into());
    }
    let is_put = unit.execute(
        PUT,
        params![
            id,
            org_id,
            it.name,
            it.kind.as_str(),
            it.lane.as_str(),
            it.payload.as_str(),
            it.priority,
            it.max_attempts,
            it.expression,
            it.zone,
            it.starts_at.map(Timestamp::as_microsecond),
            it.ends_at.map(Timestamp::as_microsecond),
            it.missed.to_string(),
            it.overlap.as_str(),
            i64::try_from(it.jitter.as_micros()).unwrap_or(i64::MAX),
            put.declared_by,
            put.next_tick.map(Timestamp::as_microsecond),
        ],
    )?;
    if is_put == 1 {
        Ok(())
    } else {
        let id = put.id;
        Err(StoreError::Refused(format!("the schedule id {id} is taken; mint another")).into())
    }
}

/// The writer's transaction holds the lock of the file from here on.
fn advance(unit: &mut Unit<'_>, org: OrgId, advance: Advance) -> Answer<Advanced> {
    let (id, org_id) = (bytes(advance.schedule.as_uuid()), bytes(org.as_uuid()));
    let revision = advance.revision;
    let held = unit
        .db
        .prepare_cached(LOCK)?
        .query_row(
            params![id, org_id, revision, advance.ticks.is_some()],
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<[u8; 16]>>(1)?)),
        )
        .optional()?;
    let Some((overlap, last)) = held else {
        return Ok(Advanced::Late);
    };
    let last = last.filter(|_| overlap == Overlap::Skip.as_str());
    let in_the_way = match last {
        Some(last) => {
            let mut unfinished = unit.db.prepare_cached(UNFINISHED)?;
            let is_unfinished = unfinished.exists(params![last, org_id])?;
            is_unfinished.then(|| ItemId::new(Uuid::from_bytes(last)))
        }
        None => None,
    };
    let fates = if in_the_way.is_some() {
        Vec::new()
    } else {
        work::enqueue(unit, org, advance.items)?
    };
    let made = fates.iter().rev().find_map(Enqueued::stored);
    let made = made.map(|item| bytes(item.id.as_uuid()));
    if let Some(ticks) = advance.ticks {
        let last = ticks.last.as_microsecond();
        let next = ticks.next.map(Timestamp::as_microsecond);
        unit.execute(MOVE, params![id, org_id, revision, last, next, made])?;
    } else if made.is_some() {
        unit.execute(NOTE_ITEM, params![id, org_id, revision, made])?;
    }
    Ok(match in_the_way {
        Some(item) => Advanced::Overlapping(item),
        None => Advanced::Made(fates),
    })
}

fn read(row: &Row<'_>) -> Answer<(OrgId, Schedule)> {
    let mut columns = Columns::of(row);
    let org = columns.uuid()?.into();
    let id = columns.uuid()?.into();
    let definition = ScheduleDefinition {
        name: columns.text()?.to_owned(),
        kind: columns.named(Kind::parse)?,
        lane: columns.named(Lane::parse)?,
        payload: JsonObject::from_stored(columns.text()?),
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
        last_item: columns.uuid_or_null()?.map(ItemId::new),
        revision: columns.plain()?,
    };
    Ok((org, schedule))
}
