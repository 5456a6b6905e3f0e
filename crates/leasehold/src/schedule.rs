//! Schedules: work that repeats.

mod timing;

pub use timing::{INTERVAL_MAX, INTERVAL_MIN, Latest, Timing, TimingError};
