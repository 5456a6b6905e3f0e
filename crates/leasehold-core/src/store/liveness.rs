//! The promises about which workers live: best effort, for people and for `explain`.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreResult;
use crate::names::{Kind, Lane, WorkerId};

/// Who is alive. Nothing depends on it: a worker that cannot publish goes on claiming.
#[async_trait]
pub trait LivenessStore: Send + Sync + Debug {
    /// Says that the worker lives, for `ttl` from the store's now. Replaces its last beat.
    async fn publish(&self, beat: &WorkerBeat, ttl: Duration) -> StoreResult<()>;

    /// Says that the worker is gone. `false` if it was not there.
    async fn remove(&self, worker: &WorkerId) -> StoreResult<bool>;

    /// The workers whose last beat still counts, by id, at most `limit`. Expired beats may be
    /// deleted in passing.
    async fn live_workers(&self, limit: u32) -> StoreResult<Vec<LiveWorker>>;
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerBeat {
    /// Which start of which process.
    pub worker: WorkerId,
    /// The lanes it claims from.
    pub lanes: Vec<Lane>,
    /// The kinds it knows.
    pub kinds: Vec<Kind>,
    /// How many items it runs at once.
    pub capacity: u32,
    /// How many it runs now.
    pub running: u32,
    /// Whether it has stopped claiming.
    pub draining: bool,
    /// When it started, by its own clock.
    pub started_at: Timestamp,
}

/// A beat, and when it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveWorker {
    /// What the worker said.
    pub beat: WorkerBeat,
    /// By the store's clock.
    pub beat_at: Timestamp,
}
