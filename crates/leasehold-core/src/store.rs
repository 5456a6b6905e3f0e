//! The store promises: one small object-safe trait per namespace.
//!
//! A backend implements all of them. Each call is one statement or one short transaction of its own:
//! nothing spans two calls. Every promise has a case in the contract suite of `leasehold-testkit`;
//! a backend that passes the suite is one.
//!
//! # What holds for every method
//!
//! - **Atomic**: a call's writes all become durable before it answers, or none are kept. A crash in
//!   the middle leaves the state from before the call, or the one after it with the answer lost.
//! - **Lost answers**: a caller that gets [`StoreError::Unavailable`] does not know which. Each method
//!   says how it is asked again safely.
//! - **The clock is the store's own**. Callers pass durations; the one instant they may pass is an
//!   enqueue's due time.
//! - **Tenants**: a method that takes an org touches rows of that org alone, by a predicate in the
//!   statement itself. The few that take none say why; [`work::TENANTLESS`] lists them.
//! - **Cancellation**: dropping a call's future may leave the write done or not, never half.
//! - **Order of locks**: rows are locked in id order in renew and settle, and in the order of their keys
//!   in enqueue, where two batches may want the same key under fresh ids.
//! - **Bounded**: a list or a batch never reads or writes more rows than its limit.

use std::sync::Arc;

pub mod credentials;
pub mod events;
pub mod liveness;
pub mod markers;
pub mod outbox;
pub mod schedules;
pub mod tenancy;
pub mod work;

pub use credentials::CredentialStore;
pub use events::EventStore;
pub use liveness::LivenessStore;
pub use markers::MarkerStore;
pub use outbox::OutboxStore;
pub use schedules::ScheduleStore;
pub use tenancy::TenancyStore;
pub use work::{Hints, Hold, WorkStore};

/// What a store could not do, named for what the caller can do about it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The call was undone because it met another one (a deadlock, a serialisation failure, a lock
    /// not had in time). Nothing was written. Ask again, at once or after a short wait.
    #[error("the store was busy and undid the call; ask again: {0}")]
    Retry(String),
    /// The store cannot be reached, or did not answer in time. Whether the call took place is not
    /// known. Ask again with back-off, in the way the method's documentation gives.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The store refuses these very data, and will again. Do not ask again; a batch is bisected.
    #[error("the store refuses the data: {0}")]
    Refused(String),
    /// The schema is not the one this build knows. A person migrates, or upgrades the program.
    #[error("{0}")]
    Schema(String),
    /// The store was closed, or its files are damaged. Nothing helps within this process.
    #[error("the store has failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// Whether asking again may help.
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Retry(_) | Self::Unavailable(_))
    }
}

/// What a store call answers.
pub type StoreResult<T> = Result<T, StoreError>;

/// The stores of one installation, one per namespace: a namespace may live in a database of its own.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Work items.
    pub work: Arc<dyn WorkStore>,
    /// Orgs and memberships.
    pub tenancy: Arc<dyn TenancyStore>,
    /// What principals prove themselves by.
    pub credentials: Arc<dyn CredentialStore>,
    /// Outbox rows.
    pub outbox: Arc<dyn OutboxStore>,
    /// Events and audit entries.
    pub events: Arc<dyn EventStore>,
    /// Idempotency markers.
    pub markers: Arc<dyn MarkerStore>,
    /// Schedules.
    pub schedules: Arc<dyn ScheduleStore>,
    /// Which workers live.
    pub liveness: Arc<dyn LivenessStore>,
    /// How many calls they serve at once between them, while further ones wait. `None`: as many as are made.
    pub calls_max: Option<u32>,
}

impl Stores {
    /// All namespaces in one backend.
    pub fn from_one<S>(store: Arc<S>) -> Self
    where
        S: WorkStore
            + TenancyStore
            + CredentialStore
            + OutboxStore
            + EventStore
            + MarkerStore
            + ScheduleStore
            + LivenessStore
            + 'static,
    {
        Self {
            work: store.clone(),
            tenancy: store.clone(),
            credentials: store.clone(),
            outbox: store.clone(),
            events: store.clone(),
            markers: store.clone(),
            schedules: store.clone(),
            liveness: store,
            calls_max: None,
        }
    }

    /// With a bound on how many calls they serve at once, such as the size of a pool of connections.
    pub fn with_calls_max(mut self, calls: u32) -> Self {
        self.calls_max = Some(calls);
        self
    }
}
