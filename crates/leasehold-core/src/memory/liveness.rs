//! The promises about which workers live.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::MemoryStore;
use crate::names::WorkerId;
use crate::store::liveness::{LiveWorker, WorkerBeat};
use crate::store::{LivenessStore, StoreResult};
use crate::time::later;

/// The last beat of every worker, and until when it counts.
#[derive(Default)]
pub(super) struct Liveness {
    beats: BTreeMap<WorkerId, (Timestamp, LiveWorker)>,
}

#[async_trait]
impl LivenessStore for MemoryStore {
    async fn publish(&self, beat: &WorkerBeat, ttl: Duration) -> StoreResult<()> {
        self.call(|state, now| {
            let live = LiveWorker {
                beat: beat.clone(),
                beat_at: now,
            };
            state
                .liveness
                .beats
                .insert(beat.worker.clone(), (later(now, ttl), live));
        });
        Ok(())
    }

    async fn remove(&self, worker: &WorkerId) -> StoreResult<bool> {
        Ok(self.call(|state, _| state.liveness.beats.remove(worker).is_some()))
    }

    async fn live_workers(&self, limit: u32) -> StoreResult<Vec<LiveWorker>> {
        Ok(self.call(|state, now| {
            let beats = &mut state.liveness.beats;
            beats.retain(|_, (until, _)| *until > now);
            beats
                .values()
                .take(limit as usize)
                .map(|(_, live)| live.clone())
                .collect()
        }))
    }
}
