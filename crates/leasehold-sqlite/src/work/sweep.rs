//! What the sweep writes.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::rules::{self, Requeue};
use leasehold_core::store::work::{Requeued, StaleRequest, lease_expired};
use leasehold_core::time::{earlier, later};
use leasehold_core::{FailureCode, ItemId, Lane, OrgId, Status};
use rusqlite::params;

use super::errors_max;
use crate::error::Answer;
use crate::rows::{self, Columns, bytes, item_columns};
use crate::writer::Unit;

pub(super) const STALE: &str = "
    SELECT rowid, lane, attempts, max_attempts, cancel_requested_at IS NOT NULL
    FROM work_items INDEXED BY work_items_claimed
    WHERE status = 'claimed' AND org_id = ?1 AND lease_expires_at <= ?2
    ORDER BY id
    LIMIT ?3";

pub(super) const MOVE: &str = include_str!("sql/requeue_stale.sql");

pub(super) const READ: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM work_items WHERE rowid = ?1"
);

pub(super) const MARK_AUDITED: &str = "
    UPDATE work_items INDEXED BY work_items_id
    SET audited_at = ?4, updated_at = ?4, updated_by = zeroblob(16)
    WHERE id = ?1 AND org_id = ?2 AND status = 'failed' AND claim_seq = ?3 AND audited_at IS NULL";

pub(super) const PURGE: &str = "
    DELETE FROM work_items WHERE rowid IN (
        SELECT rowid FROM work_items INDEXED BY work_items_finished
        WHERE status IN ('done', 'failed') AND updated_at <= ?1
            AND (status = 'done' OR audited_at IS NOT NULL
                OR failure_code IN ('cancelled', 'orphaned'))
        ORDER BY updated_at
        LIMIT ?2
    )";

/// A claim whose lease is over.
struct Stale {
    rowid: i64,
    lane: Lane,
    fate: Requeue,
}

pub(super) fn requeue_stale(
    unit: &mut Unit<'_>,
    org: OrgId,
    request: StaleRequest,
) -> Answer<Requeued> {
    let mut requeued = Requeued::default();
    for stale in stale(unit, org, request.limit)? {
        match stale.fate {
            Requeue::Again => {
                let wait = rules::stagger(requeued.recovered, request.limit, request.spread);
                let available_at = later(unit.now, wait);
                if move_one(unit, &stale, Status::Queued, None, Some(available_at))? {
                    requeued.recovered += 1;
                    if available_at <= unit.now {
                        unit.hint(&stale.lane);
                    }
                }
            }
            Requeue::Cancel => {
                let code = Some(FailureCode::CANCELLED);
                if move_one(unit, &stale, Status::Failed, code, None)? {
                    requeued.cancelled += 1;
                }
            }
            Requeue::Bury => {
                let code = Some(FailureCode::LEASE_EXPIRED);
                if move_one(unit, &stale, Status::Failed, code, None)? {
                    let mut read = unit.db.prepare_cached(READ)?;
                    let (_, item) = read.query_row([stale.rowid], |row| Ok(rows::item(row)))??;
                    requeued.dead.push(item);
                }
            }
        }
    }
    Ok(requeued)
}

pub(super) fn orphan_stale(unit: &Unit<'_>, org: OrgId, limit: u32) -> Answer<u32> {
    let mut moved = 0;
    for stale in stale(unit, org, limit)? {
        let code = Some(FailureCode::ORPHANED);
        moved += u32::from(move_one(unit, &stale, Status::Failed, code, None)?);
    }
    Ok(moved)
}

fn stale(unit: &Unit<'_>, org: OrgId, limit: u32) -> Answer<Vec<Stale>> {
    let mut statement = unit.db.prepare_cached(STALE)?;
    let params = params![bytes(org.as_uuid()), unit.now.as_microsecond(), limit];
    rows::collect(&mut statement, params, |row| {
        let mut columns = Columns::of(row);
        Ok(Stale {
            rowid: columns.plain()?,
            lane: columns.named(Lane::parse)?,
            fate: rules::requeue(columns.count()?, columns.count()?, columns.plain()?),
        })
    })
}

/// The write checks status and lease itself. `false`: the claim had moved on.
fn move_one(
    unit: &Unit<'_>,
    stale: &Stale,
    status: Status,
    code: Option<&str>,
    available_at: Option<Timestamp>,
) -> Answer<bool> {
    let changed = unit.execute(
        MOVE,
        params![
            stale.rowid,
            unit.now.as_microsecond(),
            status.as_str(),
            code,
            available_at.map(Timestamp::as_microsecond),
            lease_expired().to_text().as_str(),
            unit.now.to_string(),
            errors_max(),
        ],
    )?;
    Ok(changed == 1)
}

pub(super) fn mark_audited(unit: &Unit<'_>, org: OrgId, items: &[(ItemId, i64)]) -> Answer<()> {
    for (item, claim_seq) in items {
        unit.execute(
            MARK_AUDITED,
            params![
                bytes(item.as_uuid()),
                bytes(org.as_uuid()),
                claim_seq,
                unit.now.as_microsecond()
            ],
        )?;
    }
    Ok(())
}

pub(super) fn purge(unit: &Unit<'_>, retention: Duration, limit: u32) -> Answer<u32> {
    let until = earlier(unit.now, retention).as_microsecond();
    let purged = unit.execute(PURGE, params![until, limit])?;
    Ok(u32::try_from(purged).unwrap_or(u32::MAX))
}
