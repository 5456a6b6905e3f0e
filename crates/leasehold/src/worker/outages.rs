//! When the store was last out of reach: recovery waits a little after it is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{BootTime, StoreError};

/// After an outage, holders that live hand back or renew first; only then is anything requeued.
pub(crate) const CALM_AFTER: Duration = Duration::from_secs(3);

/// The keeper looks several times a second. If it has not for this long, the machine slept, or the
/// process was frozen or starved: whoever notices first, claims nothing and recovers nothing.
const WATCHED_WITHIN: Duration = Duration::from_millis(1_500);

/// Whether the store is out of reach, since when it is back, and when the keeper last looked.
///
/// An outage is over with the first answer after the last failure, and not before: whoever asks
/// seldom learns late of either.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    failed: Moment,
    back: Moment,
    looked: Moment,
}

impl Outages {
    /// A call found the store out of reach, or the clocks had jumped.
    pub(crate) fn note(&self, now: BootTime) {
        self.failed.set(now);
        self.back.clear();
    }

    /// A call was answered.
    pub(crate) fn answered(&self, now: BootTime) {
        if self.failed.age(now).is_some() && self.back.age(now).is_none() {
            self.back.set(now);
        }
    }

    /// As [`Outages::note`], if the error says that the store was out of reach.
    pub(crate) fn note_if(&self, error: &StoreError, now: BootTime) {
        if matches!(error, StoreError::Unavailable(_)) {
            self.note(now);
        }
    }

    /// The keeper looks.
    pub(crate) fn look(&self, now: BootTime) {
        self.looked.set(now);
    }

    /// Whether time has passed that the keeper has not seen yet.
    pub(crate) fn is_unwatched(&self, now: BootTime) -> bool {
        self.looked.age(now).is_some_and(|age| age > WATCHED_WITHIN)
    }

    /// Whether the store has been within reach for long enough to requeue on the strength of expired
    /// leases.
    pub(crate) fn is_calm(&self, now: BootTime) -> bool {
        let is_over = self.back.age(now).is_some_and(|age| age >= CALM_AFTER);
        (is_over || self.failed.age(now).is_none()) && !self.is_unwatched(now)
    }
}

/// Nanoseconds since boot; 0 for never.
#[derive(Debug, Default)]
struct Moment(AtomicU64);

impl Moment {
    fn set(&self, now: BootTime) {
        let nanoseconds = u64::try_from(now.since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanoseconds, Ordering::Release);
    }

    fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    fn age(&self, now: BootTime) -> Option<Duration> {
        let noted = self.0.load(Ordering::Acquire);
        (noted > 0).then(|| now.since(BootTime::new(Duration::from_nanos(noted))))
    }
}

#[cfg(test)]
mod tests;
