//! The store promises of Leasehold on Postgres.
//!
//! Any number of workers on any number of machines share one schema of one database. The database's
//! clock decides what is due, which lease is over, and what is purged.
//!
//! ```no_run
//! # async fn run() -> Result<(), leasehold_postgres::ConnectError> {
//! use leasehold_postgres::Options;
//!
//! let store = leasehold_postgres::connect("postgres://localhost/jobs", Options::default()).await?;
//! let stores = store.stores();
//! # Ok(()) }
//! ```
//!
//! **An item's row is written once.** Where the item stands is one row more, in one of three narrow
//! tables; a claim and a settle move that row, each in one statement that carries the fence in its
//! condition. The view `work_items` shows an item with its whole state.
//!
//! Read in this order: [`store`] (connecting), `migrations/0001_work.sql` (the layout), [`work`] (claims
//! and settles).

mod credentials;
mod error;
mod events;
mod examine;
mod fences;
mod funnel;
mod hints;
mod home;
mod liveness;
mod markers;
mod migrations;
mod options;
mod outbox;
mod producer;
pub mod roles;
mod rows;
mod schedules;
mod server;
mod statement;
mod store;
mod tenancy;
mod work;

pub use error::ConnectError;
pub use examine::{Examination, check_address, examine};
pub use fences::{FenceView, Logins, MadeLogin, Password, create_logins, look_at_fence};
#[cfg(feature = "rehearsal")]
pub use migrations::rehearsal;
pub use migrations::{
    MigrationStatus, MigrationStep, migrate, pending_script, script, status, steps,
};
pub use options::{Options, Wakeup};
pub use producer::{Call, Fate, PendingHint, Placed, Producer, error_of};
pub use roles::{Purpose, Role};
pub use server::{VERSION_MIN, session};
pub use store::{PostgresStore, connect, stores_of_roles};
/// The client whose transactions [`Producer::enqueue_in`] takes.
pub use tokio_postgres;
