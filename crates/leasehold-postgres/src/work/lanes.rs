//! Lanes that are not claimed from.

use std::collections::BTreeSet;

use leasehold_core::store::work::PausedLane;
use leasehold_core::{Lane, ShortText};

use crate::error::Answer;
use crate::funnel::Statements as _;
use crate::rows::Columns;
use crate::store::PostgresStore;

const PAUSE: &str = "
    insert into {schema}.paused_lanes (lane, reason, paused_by, since)
    values ($1, $2, $3, {schema}.clock())
    on conflict (lane) do update set reason = excluded.reason, paused_by = excluded.paused_by";

const RESUME: &str = "delete from {schema}.paused_lanes where lane = $1";

const PAUSED: &str =
    "select lane, reason, paused_by, since from {schema}.paused_lanes order by lane collate \"C\"";

pub(super) async fn pause(
    store: &PostgresStore,
    lane: &Lane,
    reason: &ShortText,
    by: &ShortText,
) -> Answer<()> {
    store
        .tenantless()
        .execute(PAUSE, &[&lane.as_str(), &reason.as_str(), &by.as_str()])
        .await?;
    Ok(())
}

pub(super) async fn resume(store: &PostgresStore, lane: &Lane) -> Answer<bool> {
    let resumed = store
        .tenantless()
        .execute(RESUME, &[&lane.as_str()])
        .await?
        == 1;
    if resumed {
        store.hint(&BTreeSet::from([lane.clone()]));
    }
    Ok(resumed)
}

pub(super) async fn paused(store: &PostgresStore) -> Answer<Vec<PausedLane>> {
    let rows = store.tenantless().query(PAUSED, &[]).await?;
    let lanes = rows.iter().map(|row| {
        let mut columns = Columns::of(row);
        Ok(PausedLane {
            lane: columns.named(Lane::parse)?,
            reason: ShortText::new(columns.text()?),
            by: ShortText::new(columns.text()?),
            since: columns.timestamp()?,
        })
    });
    lanes.collect()
}
