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

/// What is said of calls that fail: the first failure at once, the next ones at growing intervals, and once
/// that they work again. Whatever fails and works by turns is said no more often than what fails all along.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    since: Option<BootTime>,
    failures: u32,
    /// Whether anything was said of the failures since `since`.
    is_told: bool,
    /// Nothing is said before this, and what the next interval is.
    quiet_until: Option<BootTime>,
    interval: Duration,
}

/// Calls work again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// From the first failure on.
    pub(crate) after: Duration,
    pub(crate) failures: u32,
}

/// The first interval, doubled each time up to the longest: an outage of a day is some three hundred lines.
const INTERVAL_MIN: Duration = Duration::from_secs(10);
const INTERVAL_MAX: Duration = Duration::from_mins(5);

impl Complaint {
    /// A call failed. If that is to be said: for how long calls have.
    pub(crate) fn failed(&mut self, now: BootTime) -> Option<Duration> {
        let since = *self.since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        match self.quiet_until {
            Some(until) if now < until => return None,
            // It has worked for as long as it would have been quiet: this is another story.
            Some(until) if since >= until + self.interval => self.interval = INTERVAL_MIN,
            Some(_) => self.interval = (self.interval * 2).min(INTERVAL_MAX),
            None => self.interval = INTERVAL_MIN,
        }
        self.quiet_until = Some(now + self.interval);
        self.is_told = true;
        Some(now.since(since))
    }

    /// A call was answered. If that is to be said: what it is the end of.
    pub(crate) fn answered(&mut self, now: BootTime) -> Option<Recovered> {
        let recovered = Recovered {
            after: now.since(self.since.take()?),
            failures: std::mem::take(&mut self.failures),
        };
        std::mem::take(&mut self.is_told).then_some(recovered)
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
