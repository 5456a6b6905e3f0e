//! What the tests of Leasehold share. A dev-dependency only; nothing here ships.
//!
//! - [`contract`]: the store contract suite, one named test per promise, over any backend by
//!   [`store_contract!`].
//! - [`fault`]: a store that fails, stalls and loses answers as told, or by a seed.
//! - [`clock`] and [`probe`]: what lets a runtime test wait for a condition instead of sleeping.
//! - [`sim`]: the seeded simulation of many workers over one store, with everything that goes wrong.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "test support as a whole: an unmet expectation is how a test fails"
)]

pub mod clock;
pub mod contract;
pub mod fault;
pub mod probe;
pub mod sim;

pub use contract::Harness;
