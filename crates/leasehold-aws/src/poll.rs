//! The look at the queue: one receive at a time, never for more than can be taken, let end at a stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::core::rules::{RetryPolicy, retry_delay};

use crate::calls::QueueError;
use crate::pickup;
use crate::settings::CALL_PATIENCE;
use crate::source::Inner;

/// What one receive may ask for.
const COUNT_MAX: u32 = 10;

/// After a receive that failed, or a message that had to go back: soon at first, for most trouble is
/// short, and never often.
const BACKOFF: RetryPolicy = RetryPolicy {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
    jitter: 0.5,
};

impl Inner {
    /// Receives until the stop, and sees each message picked up in a task of its own.
    pub(crate) async fn poll(self: Arc<Self>) {
        let mut failures = 0;
        loop {
            self.calm().await;
            let mut places = self.desk.reserve(COUNT_MAX);
            if self.stop.is_cancelled() {
                return;
            }
            if places.is_empty() {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    () = self.room.notified() => continue,
                }
            }
            let count = u32::try_from(places.len()).unwrap_or(COUNT_MAX);
            let wait = self.settings.poll_wait;
            // Let end also at a stop: what a dropped receive brings stays invisible to everybody.
            let received = self.queue.receive(count, wait);
            let patience = wait + CALL_PATIENCE;
            let received = tokio::time::timeout(patience, received)
                .await
                .unwrap_or_else(|_| {
                    let reason = format!("no answer within {patience:?}");
                    Err(QueueError::Unknown { reason })
                });
            match received {
                Ok(messages) => {
                    failures = 0;
                    for message in messages {
                        let Some(place) = places.pop() else {
                            // More than was asked for: a queue that breaks its promise.
                            self.tracker.spawn(pickup::back(self.clone(), message));
                            continue;
                        };
                        self.event("received");
                        self.tracker
                            .spawn(pickup::pick_up(self.clone(), message, place));
                    }
                }
                Err(error) => {
                    failures += 1;
                    self.event("receive_failed");
                    if matches!(error, QueueError::Unusable { .. }) {
                        tracing::error!(%error, "no messages can be received");
                    } else {
                        tracing::warn!(%error, "no messages were received; asking again");
                    }
                    drop(places);
                    self.pause(retry_delay(failures, &BACKOFF, fastrand::f64()))
                        .await;
                }
            }
        }
    }

    /// Waits while messages have to go back, so that they reach other workers first.
    async fn calm(&self) {
        if self.is_troubled.swap(false, Ordering::AcqRel) {
            let troubles = self.troubles.fetch_add(1, Ordering::AcqRel) + 1;
            self.pause(retry_delay(troubles, &BACKOFF, fastrand::f64()))
                .await;
        }
    }

    async fn pause(&self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
