//! What an operator does to an item.

use std::collections::BTreeSet;

use leasehold_core::store::StoreError;
use leasehold_core::store::work::{Cancelled, Retried};
use leasehold_core::{FailureCode, ItemId, OrgId, Status, UserId, WorkItem};

use super::inspect;
use crate::error::Answer;
use crate::funnel::{Statements as _, Transaction};
use crate::rows;
use crate::store::PostgresStore;

pub(super) const CANCEL: &str = include_str!("sql/cancel.sql");
pub(super) const RETRY: &str = include_str!("sql/retry.sql");

/// How often an item may move between a statement and the look at what it met. Each time somebody else got
/// on with the item, which nobody does at this rate.
const TRIES_MAX: u32 = 5;

/// Moves the item to its end, or asks its holder to stop.
///
/// Writing and reading are one transaction, so that nobody moves the item in between; a crash leaves
/// either nothing done or all.
pub(super) async fn cancel(
    store: &PostgresStore,
    org: OrgId,
    item: ItemId,
    by: UserId,
) -> Answer<Cancelled> {
    let mut connection = store.of_org(org).connection().await?;
    for _ in 0..TRIES_MAX {
        let transaction = connection.transaction().await?;
        let ended = transaction
            .query_opt(
                CANCEL,
                &[
                    &item.as_uuid(),
                    &org.as_uuid(),
                    &by.as_uuid(),
                    &FailureCode::CANCELLED,
                ],
            )
            .await?
            .is_some();
        let row = stored(&transaction, org, item).await?;
        transaction.commit().await?;
        let Some(row) = row else {
            return Ok(Cancelled::NotFound);
        };
        if ended {
            return Ok(Cancelled::Ended(row));
        }
        if row.status.is_final() {
            return Ok(Cancelled::AlreadyFinal(row));
        }
        if row.cancel_requested_at.is_some() {
            return Ok(Cancelled::Requested(row));
        }
        // It was claimed, or handed back, while the statement waited for it.
    }
    Err(moves_too_often(item))
}

/// Moves a failed item back to where it waits.
///
/// Writing and reading are one transaction, so that nobody claims the item in between; a crash leaves
/// either nothing done or all.
pub(super) async fn retry(
    store: &PostgresStore,
    org: OrgId,
    item: ItemId,
    by: UserId,
) -> Answer<Retried> {
    let mut connection = store.of_org(org).connection().await?;
    for _ in 0..TRIES_MAX {
        let transaction = connection.transaction().await?;
        let queued = transaction
            .execute(RETRY, &[&item.as_uuid(), &org.as_uuid(), &by.as_uuid()])
            .await?
            == 1;
        let row = stored(&transaction, org, item).await?;
        transaction.commit().await?;
        let Some(row) = row else {
            return Ok(Retried::NotFound);
        };
        if queued {
            store.hint(&BTreeSet::from([row.lane.clone()]));
            return Ok(Retried::Queued(row));
        }
        if row.status != Status::Failed {
            return Ok(Retried::NotFailed(row));
        }
        // It failed, or failed again, while the statement waited for it.
    }
    Err(moves_too_often(item))
}

async fn stored(
    transaction: &Transaction<'_>,
    org: OrgId,
    item: ItemId,
) -> Answer<Option<WorkItem>> {
    let row = transaction
        .query_opt(inspect::BY_ID, &[&org.as_uuid(), &item.as_uuid()])
        .await?;
    row.map(|row| Ok(rows::item(&row)?.1)).transpose()
}

fn moves_too_often(item: ItemId) -> crate::error::Fault {
    StoreError::Retry(format!("item {item} moved each time that it was looked at")).into()
}
