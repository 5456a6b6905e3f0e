//! Figures across orgs, in one snapshot: an item in motion is counted once.

use leasehold_core::Lane;
use leasehold_core::store::work::{COUNT_MAX, Gauges, LaneGauge};
use leasehold_core::time::age;
use tokio_postgres::Row;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::Columns;
use crate::store::PostgresStore;

/// Counts group by group, each from its own end of the index, so that a lane full of delayed items is
/// not read through for those that are ready.
const GAUGES: &str = include_str!("sql/gauges.sql");

pub(super) async fn gauges(store: &PostgresStore) -> Answer<Gauges> {
    let counted = i64::try_from(COUNT_MAX).unwrap_or(i64::MAX);
    let rows = store.tenantless().query(GAUGES, &[&counted]).await?;
    let first = rows
        .first()
        .ok_or_else(|| Fault::damaged("the figures have no row"))?;
    let mut columns = Columns::of(first);
    let mut gauges = Gauges {
        now: columns.timestamp()?,
        dead: columns.tally()?,
        expired: columns.tally()?,
        lanes: Vec::new(),
    };
    for row in &rows {
        gauges.lanes.extend(lane(row)?);
    }
    Ok(gauges)
}

/// A row holds the totals and one lane's figures; without any lane there is one row and no lane in it.
fn lane(row: &Row) -> Answer<Option<LaneGauge>> {
    let mut columns = Columns::of(row);
    let now = columns.timestamp()?;
    let _totals = (columns.tally()?, columns.tally()?);
    let Some(name) = columns.text_or_null()? else {
        return Ok(None);
    };
    Ok(Some(LaneGauge {
        lane: Lane::parse(name).map_err(Fault::damaged)?,
        ready: columns.tally()?,
        delayed: columns.tally()?,
        claimed: columns.tally()?,
        oldest_age: columns
            .timestamp_or_null()?
            .map_or_else(Default::default, |oldest| age(now, oldest)),
    }))
}
