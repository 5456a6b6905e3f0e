//! The store promises of Leasehold on one SQLite file.
//!
//! ```no_run
//! # fn clock() -> std::sync::Arc<dyn leasehold_core::Clock> {
//! #     std::sync::Arc::new(leasehold_core::ManualClock::default())
//! # }
//! # fn main() -> Result<(), leasehold_sqlite::OpenError> {
//! use leasehold_sqlite::Options;
//!
//! let store = leasehold_sqlite::open("leasehold.db", Options::new(clock()))?;
//! let stores = store.stores();
//! # Ok(()) }
//! ```
//!
//! **One file, one machine.** Any number of processes may open the file, as long as all run on the
//! machine that holds it: SQLite's locks do not work over a network.
//!
//! **One writer thread** owns the one connection that writes. What waits for it goes into one
//! transaction and is answered after its commit, so that a synced commit is paid once for many
//! calls ([`writer`]). Renewals go first. A few read-only connections serve what only reads
//! ([`readers`]).
//!
//! **In your own transaction**: tables of yours may live in the same file, and work may be enqueued
//! together with a write of theirs ([`SqliteStore::enqueue_within`]).
//!
//! **Durable by default**: a call that answered survives a power cut. [`Durability::Normal`] trades
//! that for speed, and says what it costs.
//!
//! Read in this order: [`store`] (opening), [`writer`], [`work`] (claims and settles).

mod connection;
mod credentials;
mod error;
mod events;
mod hints;
mod liveness;
mod markers;
mod migrations;
mod options;
mod outbox;
mod readers;
mod rows;
mod schedules;
mod store;
mod tenancy;
mod within;
mod work;
mod writer;

/// The bindings whose transactions [`SqliteStore::enqueue_within`] takes.
pub use rusqlite;

pub use error::OpenError;
pub use migrations::{MigrationStatus, migrate, status};
pub use options::{Durability, Options};
pub use store::{SqliteStore, open};
pub use writer::Stats;
