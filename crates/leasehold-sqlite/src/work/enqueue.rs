//! Writing new items.

use leasehold_core::store::work::Enqueued;
use leasehold_core::{NewItem, OrgId, WorkItem};
use rusqlite::{CachedStatement, params};

use super::inspect;
use crate::error::{Answer, Fault};
use crate::rows::{bytes, whole_microseconds};
use crate::writer::Unit;

pub(super) const INSERT: &str = include_str!("sql/enqueue.sql");

/// Writes a batch in id order, and answers in the batch's order.
///
/// The order is of no concern to this store, which has one writer; it keeps the index's pages near.
pub(crate) fn enqueue(
    unit: &mut Unit<'_>,
    org: OrgId,
    batch: Vec<NewItem>,
) -> Answer<Vec<Enqueued>> {
    let mut insert = unit.db.prepare_cached(INSERT)?;
    batch
        .into_iter()
        .map(|new| enqueue_one(unit, &mut insert, org, new))
        .collect()
}

fn enqueue_one(
    unit: &mut Unit<'_>,
    insert: &mut CachedStatement<'_>,
    org: OrgId,
    new: NewItem,
) -> Answer<Enqueued> {
    let mut item = new.into_row(unit.now);
    item.created_at = whole_microseconds(item.created_at);
    item.available_at = whole_microseconds(item.available_at);
    let inserted = insert.execute(params![
        bytes(item.id.as_uuid()),
        bytes(org.as_uuid()),
        item.created_at.as_microsecond(),
        item.updated_at.as_microsecond(),
        bytes(item.created_by.as_uuid()),
        item.kind.as_str(),
        bytes(item.target_id.as_uuid()),
        bytes(item.idempotency_key.as_uuid()),
        bytes(item.request_id.as_uuid()),
        item.traceparent,
        item.lane.as_str(),
        item.priority,
        item.available_at.as_microsecond(),
        item.max_attempts,
        item.payload.as_str(),
    ])?;
    if inserted == 1 {
        unit.hint(&item.lane);
        Ok(Enqueued::Inserted(item))
    } else {
        collision(unit, org, &item)
    }
}

/// What stands in the way: by id first, then by key.
fn collision(unit: &Unit<'_>, org: OrgId, item: &WorkItem) -> Answer<Enqueued> {
    if let Some((owner, stored)) = inspect::any_org(unit.db, item.id)? {
        return Ok(if owner == org {
            Enqueued::IdExists(stored)
        } else {
            Enqueued::IdTaken
        });
    }
    let stored = inspect::get_by_key(unit.db, org, item.idempotency_key)?;
    stored
        .map(Enqueued::KeyExists)
        .ok_or_else(|| Fault::damaged(format_args!("item {} met a row that is not there", item.id)))
}
