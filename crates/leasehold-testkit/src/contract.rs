//! The store contract: one named test per promise, over any backend.
//!
//! A backend brings a [`Harness`] of about ten lines and calls [`store_contract!`](crate::store_contract)
//! once. A case says in its name what is promised, and is an `async fn` over a [`Fixture`] of fresh
//! stores; it never asks which backend it runs on. What a backend may ask for itself is a constant
//! of the harness, and there is one: how long the long cases are.
//!
//! A case fails by panicking. Each has a runtime of its own with several threads, so that a race is
//! one.
#![expect(
    missing_docs,
    reason = "a case's name is its promise, and says it better than a copy"
)]

use std::future::Future;
use std::time::Duration;

use leasehold_core::Stores;

pub mod fixture;
pub mod samples;

mod list;

pub mod attempts;
pub mod audit;
pub mod cancel;
pub mod claim;
pub mod claim_again;
pub mod clock;
pub mod credentials;
pub mod enqueue;
pub mod events;
pub mod fence;
pub mod gauges;
pub mod hints;
pub mod lanes;
pub mod liveness;
pub mod markers;
pub mod orgs;
pub mod outbox;
pub mod purge;
pub mod races;
pub mod races_beside;
pub mod races_settle;
pub mod reading;
pub mod renew;
pub mod schedules;
pub mod settle;
pub mod settle_again;
pub mod sweep;
pub mod tenants;
pub mod text;
pub mod workers;

pub use fixture::Fixture;

/// What a backend brings to the suite.
pub trait Harness: Send + Sync + Sized + 'static {
    /// How often a case of many repetitions repeats itself. A backend in memory affords 40,000.
    const REPEATS: usize = 2_000;

    /// Whether what the backend needs is on this machine. Where it is not, cases are skipped, and the
    /// harness says so where people see it; it fails instead where the tests must be complete.
    fn is_possible() -> bool {
        true
    }

    /// Opens fresh, empty stores that no other case sees.
    fn open() -> impl Future<Output = Self> + Send;

    /// The stores.
    fn stores(&self) -> Stores;

    /// Moves the store's clock forward. It may also go by itself; what the cases take for long
    /// enough is minutes.
    fn advance(&self, duration: Duration) -> impl Future<Output = ()> + Send;

    /// Another handle on the same data, as another process would have; a clone where there is none.
    fn second_handle(&self) -> impl Future<Output = Stores> + Send;
}

/// Runs one case over fresh stores. What [`store_contract!`](crate::store_contract) expands to.
pub fn run<H: Harness>(case: impl AsyncFnOnce(&Fixture)) {
    if !H::is_possible() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for the case");
    runtime.block_on(async {
        let fixture = Fixture::open::<H>().await;
        case(&fixture).await;
    });
}
