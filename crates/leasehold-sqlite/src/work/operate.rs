//! What operators do with an item.

use leasehold_core::store::work::{Cancelled, Retried};
use leasehold_core::{FailureCode, ItemId, OrgId, Status, UserId, WorkItem};
use rusqlite::params;

use super::inspect;
use crate::error::Answer;
use crate::rows::bytes;
use crate::writer::Unit;

pub(super) const CANCEL_QUEUED: &str = "
    UPDATE work_items INDEXED BY work_items_id
    SET status = 'failed', failure_code = ?5, audited_at = NULL, cancel_requested_at = ?4,
        updated_at = ?4, updated_by = ?3
    WHERE id = ?1 AND org_id = ?2 AND status = 'queued'";

pub(super) const REQUEST_CANCEL: &str = "
    UPDATE work_items INDEXED BY work_items_id
    SET cancel_requested_at = ?4, updated_at = ?4, updated_by = ?3
    WHERE id = ?1 AND org_id = ?2 AND status = 'claimed' AND cancel_requested_at IS NULL";

pub(super) const RETRY: &str = "
    UPDATE work_items INDEXED BY work_items_id
    SET status = 'queued', available_at = ?4, attempts = 0, worker_losses = 0,
        last_error = NULL, failure_code = NULL, cancel_requested_at = NULL, audited_at = NULL,
        updated_at = ?4, updated_by = ?3
    WHERE id = ?1 AND org_id = ?2 AND status = 'failed'";

pub(super) fn cancel(unit: &Unit<'_>, org: OrgId, item: ItemId, by: UserId) -> Answer<Cancelled> {
    let ended = unit.execute(
        CANCEL_QUEUED,
        params![
            bytes(item.as_uuid()),
            bytes(org.as_uuid()),
            bytes(by.as_uuid()),
            unit.now.as_microsecond(),
            FailureCode::CANCELLED,
        ],
    )?;
    if ended == 0 {
        unit.execute(
            REQUEST_CANCEL,
            params![
                bytes(item.as_uuid()),
                bytes(org.as_uuid()),
                bytes(by.as_uuid()),
                unit.now.as_microsecond(),
            ],
        )?;
    }
    Ok(match inspect::get(unit.db, org, item)? {
        Some(row) if ended == 1 => Cancelled::Ended(row),
        Some(
            row @ WorkItem {
                status: Status::Claimed,
                ..
            },
        ) => Cancelled::Requested(row),
        Some(row) => Cancelled::AlreadyFinal(row),
        None => Cancelled::NotFound,
    })
}

pub(super) fn retry(unit: &mut Unit<'_>, org: OrgId, item: ItemId, by: UserId) -> Answer<Retried> {
    let queued = unit.execute(
        RETRY,
        params![
            bytes(item.as_uuid()),
            bytes(org.as_uuid()),
            bytes(by.as_uuid()),
            unit.now.as_microsecond(),
        ],
    )?;
    Ok(match inspect::get(unit.db, org, item)? {
        Some(row) if queued == 1 => {
            unit.hint(&row.lane);
            Retried::Queued(row)
        }
        Some(row) => Retried::NotFailed(row),
        None => Retried::NotFound,
    })
}
