//! The promises about which workers live.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::liveness::{LiveWorker, WorkerBeat};
use leasehold_core::store::{LivenessStore, StoreResult};
use leasehold_core::{Kind, Lane, WorkerId};
use tokio_postgres::Row;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::{Columns, Moment, microseconds};
use crate::store::PostgresStore;

/// In passing, the beats of workers that ended without a word; there are never many.
const PUBLISH: &str = include_str!("sql/publish_beat.sql");

const REMOVE: &str = "delete from {schema}.worker_beats where worker = $1";

/// In the order of bytes, whatever the database's language is.
const LIVE: &str = r#"
    select worker, lanes, kinds, capacity, running, draining, started_at, beat_at
    from {schema}.worker_beats
    where expires_at > {schema}.clock()
    order by worker collate "C"
    limit $1"#;

#[async_trait]
impl LivenessStore for PostgresStore {
    async fn publish(&self, beat: &WorkerBeat, ttl: Duration) -> StoreResult<()> {
        let lanes: Vec<&str> = beat.lanes.iter().map(Lane::as_str).collect();
        let kinds: Vec<&str> = beat.kinds.iter().map(Kind::as_str).collect();
        self.tenantless()
            .execute(
                PUBLISH,
                &[
                    &beat.worker.as_str(),
                    &lanes,
                    &kinds,
                    &stored(beat.capacity),
                    &stored(beat.running),
                    &beat.draining,
                    &Moment(beat.started_at),
                    &microseconds(ttl),
                ],
            )
            .await?;
        Ok(())
    }

    async fn remove(&self, worker: &WorkerId) -> StoreResult<bool> {
        let removed = self
            .tenantless()
            .execute(REMOVE, &[&worker.as_str()])
            .await?;
        Ok(removed == 1)
    }

    async fn live_workers(&self, limit: u32) -> StoreResult<Vec<LiveWorker>> {
        let rows = self.tenantless().query(LIVE, &[&i64::from(limit)]).await?;
        let workers: Answer<_> = rows.iter().map(live_worker).collect();
        Ok(workers?)
    }
}

/// A count as its column holds it; no worker runs more.
fn stored(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn live_worker(row: &Row) -> Answer<LiveWorker> {
    let mut columns = Columns::of(row);
    let beat = WorkerBeat {
        worker: columns.named(WorkerId::parse)?,
        lanes: names(&columns.plain::<Vec<String>>()?, Lane::parse)?,
        kinds: names(&columns.plain::<Vec<String>>()?, Kind::parse)?,
        capacity: columns.count()?,
        running: columns.count()?,
        draining: columns.plain()?,
        started_at: columns.timestamp()?,
    };
    Ok(LiveWorker {
        beat,
        beat_at: columns.timestamp()?,
    })
}

fn names<T, E: std::fmt::Display>(
    list: &[String],
    parse: fn(&str) -> Result<T, E>,
) -> Answer<Vec<T>> {
    list.iter()
        .map(|name| parse(name).map_err(Fault::damaged))
        .collect()
}
