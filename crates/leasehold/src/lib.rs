//! Durable background work that is never lost, never done by two holders at once, and really stops.
//!
//! A unit of work is claimed by one holder at a time, under a lease that the holder must keep
//! renewing. A holder that loses its lease is stopped, and the store refuses whatever it writes.
//!
//! - [`Client`] enqueues, looks, cancels, retries.
//! - [`Work`] names a kind of payload; a [`Handler`] (any `async fn(W, Run)`) runs it.
//! - [`Worker`] claims from a [`Source`] ([`QueueSource`]) and runs on an [`Executor`]
//!   ([`InProcess`] for handlers of this program, [`Subprocess`] for commands in any language).
//! - [`main`] is the entry of a program that runs one.
//!
//! Stores are opened by their own crates, such as `leasehold-sqlite`.

mod audit;
pub mod client;
mod clock;
mod config;
mod entry;
mod executor;
mod handler;
mod health;
pub mod schedule;
mod shutdown;
mod source;
mod sweep;
pub mod telemetry;
mod tenancy;
mod trace;
mod work;
pub mod worker;

pub use client::{Client, ClientError, Declared, Enqueue, Explanation, RunNow};
pub use clock::SystemClock;
pub use config::{SettingsError, WorkerSettings};
pub use entry::main;
pub use executor::{
    Beside, Executor, InProcess, KindTwice, Program, Redaction, Running, Subprocess,
};
pub use handler::{Handler, HandlerError, IntoOutcome, Json, Run};
pub use health::{Beat, HealthPort};
pub use shutdown::Stopper;
pub use source::{Assignments, QueueSource, Source};
pub use sweep::{Measured, Sweep, SweepError, Swept};
pub use telemetry::Metrics;
pub use tenancy::{SingleTenant, StoredTenancy, Tenancy, TenancyError};
pub use work::Work;
pub use worker::{Drained, Ending, Idleness, KindSettings, Worker, WorkerError};

pub use leasehold_core as core;
pub use leasehold_core::{
    Failure, FailureCode, ItemId, JsonObject, Kind, Lane, MemoryStore, NewItem, Outcome, Status,
    StoreError, Stores, WorkItem,
};
pub use leasehold_fence as fence;
