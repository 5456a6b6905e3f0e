//! Runs a command that cannot outlive its lease.

mod ending;

pub use ending::{Ending, SpawnFailure};
