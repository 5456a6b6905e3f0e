//! The promises about which workers live.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::WorkerId;
use leasehold_core::store::liveness::{LiveWorker, WorkerBeat};
use leasehold_core::store::{LivenessStore, StoreResult};
use leasehold_core::time::later;
use rusqlite::{Row, params};

use crate::error::{Answer, Fault};
use crate::rows::{self, Columns};
use crate::store::SqliteStore;
use crate::writer::Unit;

const PUBLISH: &str = "
    INSERT OR REPLACE INTO worker_beats (
        worker, lanes, kinds, capacity, running, draining, started_at, beat_at, expires_at
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const LIVE: &str = "
    SELECT worker, lanes, kinds, capacity, running, draining, started_at, beat_at
    FROM worker_beats
    WHERE expires_at > ?1
    ORDER BY worker
    LIMIT ?2";

#[async_trait]
impl LivenessStore for SqliteStore {
    async fn publish(&self, beat: &WorkerBeat, ttl: Duration) -> StoreResult<()> {
        let beat = beat.clone();
        self.write(1, move |unit| publish(unit, &beat, ttl)).await
    }

    async fn remove(&self, worker: &WorkerId) -> StoreResult<bool> {
        let worker = worker.clone();
        self.write(1, move |unit| {
            let removed = unit.execute(
                "DELETE FROM worker_beats WHERE worker = ?1",
                params![worker.as_str()],
            )?;
            Ok(removed == 1)
        })
        .await
    }

    async fn live_workers(&self, limit: u32) -> StoreResult<Vec<LiveWorker>> {
        self.read(move |db, now| {
            let mut statement = db.prepare_cached(LIVE)?;
            rows::collect(
                &mut statement,
                params![now.as_microsecond(), limit],
                live_worker,
            )
        })
        .await
    }
}

fn publish(unit: &Unit<'_>, beat: &WorkerBeat, ttl: Duration) -> Answer<()> {
    let now = unit.now.as_microsecond();
    // Beats of workers that ended without a word; there are never many.
    unit.execute(
        "DELETE FROM worker_beats WHERE expires_at <= ?1",
        params![now],
    )?;
    unit.execute(
        PUBLISH,
        params![
            beat.worker.as_str(),
            serde_json::to_string(&beat.lanes).map_err(Fault::damaged)?,
            serde_json::to_string(&beat.kinds).map_err(Fault::damaged)?,
            beat.capacity,
            beat.running,
            beat.draining,
            beat.started_at.as_microsecond(),
            now,
            later(unit.now, ttl).as_microsecond(),
        ],
    )?;
    Ok(())
}

fn live_worker(row: &Row<'_>) -> Answer<LiveWorker> {
    let mut columns = Columns::of(row);
    let beat = WorkerBeat {
        worker: columns.named(WorkerId::parse)?,
        lanes: columns.named(|list| serde_json::from_str(list))?,
        kinds: columns.named(|list| serde_json::from_str(list))?,
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
