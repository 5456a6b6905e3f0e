//! When the store was last out of reach: recovery waits a little after it is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::BootTime;

/// After an outage, holders that live hand back or renew first; only then is anything requeued.
const CALM_AFTER: Duration = Duration::from_secs(3);

/// The last time a call found the store out of reach, or the clocks had jumped.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    /// Nanoseconds since boot; 0 for never.
    last: AtomicU64,
}

impl Outages {
    pub(crate) fn note(&self, now: BootTime) {
        let nanoseconds = u64::try_from(now.since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.last.fetch_max(nanoseconds, Ordering::AcqRel);
    }

    /// Whether the last one is long enough ago to requeue on the strength of expired leases.
    pub(crate) fn is_calm(&self, now: BootTime) -> bool {
        let last = self.last.load(Ordering::Acquire);
        last == 0 || now.since(BootTime::new(Duration::from_nanos(last))) >= CALM_AFTER
    }
}
