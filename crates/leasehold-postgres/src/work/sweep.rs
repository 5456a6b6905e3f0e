//! What the sweep writes, and how it finds out where to.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::item::ERRORS_MAX;
use leasehold_core::store::work::{Requeued, StaleRequest, lease_expired};
use leasehold_core::{FailureCode, ItemId, Lane, OrgId, WorkItem};
use tokio_postgres::Row;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::{self, Columns, item_columns, microseconds, microseconds_back};
use crate::store::PostgresStore;

const MAINTENANCE_DUE: &str = include_str!("sql/maintenance_due.sql");

const TAKE_STALE: &str = include_str!("sql/take_stale.sql");

const UNAUDITED: &str = concat!(
    "select ",
    item_columns!(),
    " from {schema}.work_items
      where org_id = $1 and id = any (array(
          select id from {schema}.ends
          where org_id = $1 and not is_done and failure_code not in ('cancelled', 'orphaned')
              and audited_at is null
          order by id
          limit $2
      ))
      order by id"
);

const MARK_AUDITED: &str = include_str!("sql/mark_audited.sql");

const PURGE: &str = include_str!("sql/purge.sql");

/// How many tokens a purge forgets: more than a worker claims by from one sweep to the next, and some hundredth
/// of a second of the server's time.
const TOKENS_MAX: i64 = 10_000;

/// A token that holds nothing is forgotten after that long: no claim by it is still under way, whose later
/// rounds rely on its row.
const TOKEN_IDLE: Duration = Duration::from_mins(5);

pub(super) async fn maintenance_due(
    store: &PostgresStore,
    after: Option<OrgId>,
    limit: u32,
) -> Answer<Vec<OrgId>> {
    let Some(start) = rows::page_start(after.map(|org| org.as_uuid())) else {
        return Ok(Vec::new());
    };
    let found = store
        .tenantless()
        .query(MAINTENANCE_DUE, &[&start, &i64::from(limit)])
        .await?;
    found
        .iter()
        .map(|row| Ok(Columns::of(row).uuid()?.into()))
        .collect()
}

pub(super) async fn requeue_stale(
    store: &PostgresStore,
    org: OrgId,
    request: StaleRequest,
) -> Answer<Requeued> {
    let taken = take_stale(store, org, request, OrgIs::There).await?;
    let mut requeued = Requeued::default();
    let mut lanes = BTreeSet::new();
    for row in &taken {
        let mut columns = Columns::of(row);
        let (code, is_due) = (columns.text_or_null()?, columns.plain()?);
        match code {
            None => {
                requeued.recovered += 1;
                if is_due {
                    lanes.insert(columns.named(Lane::parse)?);
                }
            }
            Some(FailureCode::CANCELLED) => requeued.cancelled += 1,
            Some(FailureCode::LEASE_EXPIRED) => {
                columns.text()?;
                requeued.dead.push(columns.item()?.1);
            }
            Some(code) => {
                return Err(Fault::damaged(format_args!("a claim was ended as {code}")));
            }
        }
    }
    store.hint(&lanes);
    Ok(requeued)
}

pub(super) async fn orphan_stale(store: &PostgresStore, org: OrgId, limit: u32) -> Answer<u32> {
    let request = StaleRequest {
        limit,
        spread: Duration::ZERO,
    };
    let taken = take_stale(store, org, request, OrgIs::Gone).await?;
    Ok(u32::try_from(taken.len()).unwrap_or(u32::MAX))
}

/// What becomes of an org's expired claims depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OrgIs {
    There,
    Gone,
}

/// Ends expired claims, in one statement. Each row answered is one: the failure code (none: queued
/// again), whether it is due at once, its lane, and of a dead letter the item.
async fn take_stale(
    store: &PostgresStore,
    org: OrgId,
    request: StaleRequest,
    org_is: OrgIs,
) -> Answer<Vec<Row>> {
    // The same steps as those of rules::stagger, which are exact to the nanosecond.
    let window = i64::try_from(request.spread.as_nanos()).unwrap_or(i64::MAX);
    let step = window / i64::from(request.limit.max(1));
    store
        .of_org(org)
        .query(
            TAKE_STALE,
            &[
                &org.as_uuid(),
                &i64::from(request.limit),
                &(org_is == OrgIs::Gone),
                &step,
                &lease_expired().to_text().as_str(),
                &i64::try_from(ERRORS_MAX).unwrap_or(i64::MAX),
            ],
        )
        .await
}

pub(super) async fn unaudited(
    store: &PostgresStore,
    org: OrgId,
    limit: u32,
) -> Answer<Vec<WorkItem>> {
    let found = store
        .of_org(org)
        .query(UNAUDITED, &[&org.as_uuid(), &i64::from(limit)])
        .await?;
    rows::items(&found)
}

pub(super) async fn mark_audited(
    store: &PostgresStore,
    org: OrgId,
    items: &[(ItemId, i64)],
) -> Answer<()> {
    let ids: Vec<_> = items.iter().map(|(item, _)| item.as_uuid()).collect();
    let claim_seqs: Vec<_> = items.iter().map(|(_, claim_seq)| *claim_seq).collect();
    store
        .of_org(org)
        .execute(MARK_AUDITED, &[&org.as_uuid(), &ids, &claim_seqs])
        .await?;
    Ok(())
}

/// Deletes old finished items, and tokens of which nothing is held any more.
pub(super) async fn purge(store: &PostgresStore, retention: Duration, limit: u32) -> Answer<u32> {
    let purged = store
        .tenantless()
        .execute(
            PURGE,
            &[
                &microseconds_back(retention),
                &i64::from(limit),
                &TOKENS_MAX,
                &microseconds(TOKEN_IDLE),
            ],
        )
        .await?;
    Ok(u32::try_from(purged).unwrap_or(u32::MAX))
}
