//! Probes: what a handler under test reports to, and what a test awaits instead of sleeping.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// No wait outlasts this: under a paused clock it is over at once, and the test fails saying what
/// it waited for instead of hanging. Longer than any timer that a test waits past.
const WAIT_MAX: Duration = Duration::from_hours(48);

/// Counts how often something happened. Clones count together.
#[derive(Debug, Clone)]
pub struct Probe {
    count: Arc<watch::Sender<u64>>,
}

impl Probe {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self {
            count: Arc::new(watch::Sender::new(0)),
        }
    }

    /// It happened. Answers how often by now.
    pub fn hit(&self) -> u64 {
        let mut now = 0;
        self.count.send_modify(|count| {
            *count += 1;
            now = *count;
        });
        now
    }

    /// How often it happened.
    pub fn count(&self) -> u64 {
        *self.count.borrow()
    }

    /// Waits until it has happened `times` times or more, since the probe was made. Safe to drop.
    ///
    /// # Panics
    /// If that does not come about.
    pub async fn wait_for(&self, times: u64) {
        let wait = format!("{times} hits");
        until(&self.count, &wait, |count| *count >= times).await;
    }
}

impl Default for Probe {
    fn default() -> Self {
        Self::new()
    }
}

/// Holds something back until it is opened; then never again. Clones are one latch.
#[derive(Debug, Clone)]
pub struct Latch {
    open: Arc<watch::Sender<bool>>,
}

impl Latch {
    /// Closed.
    pub fn new() -> Self {
        Self {
            open: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Lets everybody through who waits or comes.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        *self.open.borrow()
    }

    /// Waits until it is open. Safe to drop.
    ///
    /// # Panics
    /// If that does not come about.
    pub async fn passed(&self) {
        until(&self.open, "an open latch", |open| *open).await;
    }
}

impl Default for Latch {
    fn default() -> Self {
        Self::new()
    }
}

/// Keeps what it is told, in order, for a test to await and read. Clones are one journal.
#[derive(Debug, Clone)]
pub struct Journal<T> {
    entries: Arc<watch::Sender<Vec<T>>>,
}

impl<T: Clone + fmt::Debug> Journal<T> {
    /// Empty.
    pub fn new() -> Self {
        Self {
            entries: Arc::new(watch::Sender::new(Vec::new())),
        }
    }

    /// Adds an entry.
    pub fn note(&self, entry: T) {
        self.entries.send_modify(|entries| entries.push(entry));
    }

    /// What was noted so far.
    pub fn entries(&self) -> Vec<T> {
        self.entries.borrow().clone()
    }

    /// Waits until `count` entries or more are there, and answers all of them. Safe to drop.
    ///
    /// # Panics
    /// If that does not come about.
    pub async fn wait_for(&self, count: usize) -> Vec<T> {
        let wait = format!("{count} entries");
        until(&self.entries, &wait, |entries| entries.len() >= count).await;
        self.entries()
    }
}

impl<T: Clone + fmt::Debug> Default for Journal<T> {
    fn default() -> Self {
        Self::new()
    }
}

async fn until<T: fmt::Debug>(
    sender: &watch::Sender<T>,
    wait: &str,
    condition: impl FnMut(&T) -> bool,
) {
    let mut receiver = sender.subscribe();
    let came = tokio::time::timeout(WAIT_MAX, receiver.wait_for(condition))
        .await
        .is_ok();
    assert!(
        came,
        "waited for {wait}, and there was {:?}",
        *sender.borrow()
    );
}

#[cfg(test)]
mod tests;
