//! What only reads: items, what is due for maintenance, figures.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::work::{COUNT_MAX, Gauges, LaneGauge};
use leasehold_core::time::age;
use leasehold_core::{IdempotencyKey, ItemId, Lane, OrgId, WorkItem};
use rusqlite::{Connection, params};

use crate::error::{Answer, Fault};
use crate::rows::{self, Columns, bytes, item_columns};

pub(super) const BY_ID: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM work_items INDEXED BY work_items_id WHERE id = ?1"
);

pub(super) const BY_KEY: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM work_items INDEXED BY work_items_key WHERE org_id = ?1 AND idempotency_key = ?2"
);

pub(super) const BY_ID_OF_ORG: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM work_items INDEXED BY work_items_id WHERE id = ?1 AND org_id = ?2"
);

/// The item, whichever org has it: for a collision, which shows nothing of another org's row.
pub(super) fn any_org(db: &Connection, item: ItemId) -> Answer<Option<(OrgId, WorkItem)>> {
    let mut statement = db.prepare_cached(BY_ID)?;
    rows::first(&mut statement, [bytes(item.as_uuid())], rows::item)
}

pub(super) fn get(db: &Connection, org: OrgId, item: ItemId) -> Answer<Option<WorkItem>> {
    let mut statement = db.prepare_cached(BY_ID_OF_ORG)?;
    let params = [bytes(item.as_uuid()), bytes(org.as_uuid())];
    Ok(rows::first(&mut statement, params, rows::item)?.map(|(_, item)| item))
}

pub(super) fn get_by_key(
    db: &Connection,
    org: OrgId,
    key: IdempotencyKey,
) -> Answer<Option<WorkItem>> {
    let mut statement = db.prepare_cached(BY_KEY)?;
    let params = [bytes(org.as_uuid()), bytes(key.as_uuid())];
    Ok(rows::first(&mut statement, params, rows::item)?.map(|(_, item)| item))
}

pub(super) const MAINTENANCE_DUE: &str = "
    SELECT org_id FROM work_items INDEXED BY work_items_claimed
    WHERE status = 'claimed' AND lease_expires_at <= ?1 AND org_id > ?2
    UNION
    SELECT org_id FROM work_items INDEXED BY work_items_unaudited
    WHERE status = 'failed' AND failure_code NOT IN ('cancelled', 'orphaned')
        AND audited_at IS NULL AND org_id > ?2
    ORDER BY org_id
    LIMIT ?3";

pub(super) fn maintenance_due(
    db: &Connection,
    now: Timestamp,
    after: Option<OrgId>,
    limit: u32,
) -> Answer<Vec<OrgId>> {
    let mut statement = db.prepare_cached(MAINTENANCE_DUE)?;
    let after = rows::after(after.map(|org| org.as_uuid()));
    let params = params![now.as_microsecond(), after, limit];
    rows::collect(&mut statement, params, |row| {
        Ok(Columns::of(row).uuid()?.into())
    })
}

pub(super) const UNAUDITED: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM work_items INDEXED BY work_items_unaudited
      WHERE status = 'failed' AND failure_code NOT IN ('cancelled', 'orphaned')
          AND audited_at IS NULL AND org_id = ?1
      ORDER BY id
      LIMIT ?2"
);

pub(super) fn unaudited(db: &Connection, org: OrgId, limit: u32) -> Answer<Vec<WorkItem>> {
    let mut statement = db.prepare_cached(UNAUDITED)?;
    let found = rows::items(&mut statement, params![bytes(org.as_uuid()), limit])?;
    Ok(found.into_iter().map(|(_, item)| item).collect())
}

/// The next (lane, kind, priority) that has queued items, by one look-up in the index each.
pub(super) const NEXT_GROUP: &str = "
    SELECT lane, kind, priority FROM work_items INDEXED BY work_items_queue
    WHERE status = 'queued' AND (lane, kind, priority) > (?1, ?2, ?3)
    ORDER BY lane, kind, priority
    LIMIT 1";

pub(super) const READY: &str = "
    SELECT count(*), min(available_at) FROM (
        SELECT available_at FROM work_items INDEXED BY work_items_queue
        WHERE status = 'queued' AND lane = ?1 AND kind = ?2 AND priority = ?3
            AND available_at <= ?4
        ORDER BY available_at
        LIMIT ?5
    )";

pub(super) const DELAYED: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM work_items INDEXED BY work_items_queue
        WHERE status = 'queued' AND lane = ?1 AND kind = ?2 AND priority = ?3
            AND available_at > ?4
        LIMIT ?5
    )";

pub(super) const CLAIMED: &str = "
    SELECT lane, count(*), sum(lease_expires_at <= ?1)
    FROM work_items INDEXED BY work_items_claimed
    WHERE status = 'claimed'
    GROUP BY lane";

pub(super) const DEAD: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM work_items INDEXED BY work_items_failed
        WHERE status = 'failed' AND failure_code NOT IN ('cancelled', 'orphaned')
        LIMIT ?1
    )";

pub(super) fn gauges(db: &Connection, now: Timestamp) -> Answer<Gauges> {
    // One snapshot, so that an item in motion is counted once.
    let snapshot = db.unchecked_transaction()?;
    let mut lanes = BTreeMap::new();
    count_queued(db, now, &mut lanes)?;
    let expired = count_claimed(db, now, &mut lanes)?;
    let mut statement = db.prepare_cached(DEAD)?;
    let dead = statement.query_row([missing(0)], |row| Ok(Columns::of(row).tally()))??;
    snapshot.rollback()?;
    Ok(Gauges {
        now,
        lanes: lanes.into_values().collect(),
        dead,
        expired,
    })
}

/// Counts group by group, each from its own end of the index, so that a lane full of delayed items
/// is not read through for those that are ready.
fn count_queued(
    db: &Connection,
    now: Timestamp,
    lanes: &mut BTreeMap<Lane, LaneGauge>,
) -> Answer<()> {
    let mut next_group = db.prepare_cached(NEXT_GROUP)?;
    let mut ready = db.prepare_cached(READY)?;
    let mut delayed = db.prepare_cached(DELAYED)?;
    let mut group = (String::new(), String::new(), i64::MIN);
    loop {
        let (lane, kind, priority) = &group;
        let next = rows::first(&mut next_group, params![lane, kind, priority], |row| {
            let mut columns = Columns::of(row);
            Ok((
                columns.text()?.to_owned(),
                columns.text()?.to_owned(),
                columns.plain()?,
            ))
        })?;
        let Some(found) = next else {
            return Ok(());
        };
        group = found;
        let (lane, kind, priority) = &group;
        let gauge = gauge(lanes, Lane::parse(lane).map_err(Fault::damaged)?);
        let now_microseconds = now.as_microsecond();
        // At least one is looked at, for its age.
        let room = missing(gauge.ready).max(1);
        let params = params![lane, kind, priority, now_microseconds, room];
        let (count, oldest) = ready.query_row(params, |row| {
            let mut columns = Columns::of(row);
            Ok(columns
                .tally()
                .and_then(|count| Ok((count, columns.timestamp_or_null()?))))
        })??;
        gauge.ready = (gauge.ready + count).min(COUNT_MAX);
        if let Some(oldest) = oldest {
            gauge.oldest_age = gauge.oldest_age.max(age(now, oldest));
        }
        let room = missing(gauge.delayed);
        let params = params![lane, kind, priority, now_microseconds, room];
        gauge.delayed += delayed.query_row(params, |row| Ok(Columns::of(row).tally()))??;
    }
}

/// Counts the claims of each lane; how many of all have outlived their lease.
fn count_claimed(
    db: &Connection,
    now: Timestamp,
    lanes: &mut BTreeMap<Lane, LaneGauge>,
) -> Answer<u64> {
    let mut statement = db.prepare_cached(CLAIMED)?;
    let counts = rows::collect(&mut statement, [now.as_microsecond()], |row| {
        let mut columns = Columns::of(row);
        Ok((
            columns.named(Lane::parse)?,
            columns.tally()?,
            columns.tally()?,
        ))
    })?;
    let mut expired = 0;
    for (lane, claimed, expired_here) in counts {
        gauge(lanes, lane).claimed = claimed.min(COUNT_MAX);
        expired += expired_here;
    }
    Ok(expired.min(COUNT_MAX))
}

fn gauge(lanes: &mut BTreeMap<Lane, LaneGauge>, lane: Lane) -> &mut LaneGauge {
    lanes.entry(lane).or_insert_with_key(|lane| LaneGauge {
        lane: lane.clone(),
        ready: 0,
        delayed: 0,
        claimed: 0,
        oldest_age: Duration::ZERO,
    })
}

/// How far a count that stands at `counted` may go on.
fn missing(counted: u64) -> i64 {
    i64::try_from(COUNT_MAX.saturating_sub(counted)).unwrap_or(i64::MAX)
}
