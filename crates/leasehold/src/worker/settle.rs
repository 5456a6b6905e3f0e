//! Settling in natural batches: what piles up while a write is under way goes together in the next.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rules::{RetryPolicy, Transition, retry_delay};
use leasehold_core::store::work::Settlement;
use leasehold_core::{Clock, Failure, FailureCode, Hold, StoreError};

use super::dispatch::SettleAnswer;
use super::holdings::Holdings;
use crate::source::Source;
use crate::telemetry::Metrics;

/// A bound on one statement. What is left over goes in the next.
pub(super) const BATCH_MAX: usize = 2_000;

/// After a write that failed, the next waits this long, doubled up to the cap: the lease is short, and
/// after an outage nothing is requeued for a moment, in which hand-backs must have come.
const BACKOFF: RetryPolicy = RetryPolicy {
    base: Duration::from_millis(50),
    cap: Duration::from_secs(1),
    jitter: 0.5,
};

/// One write that has hung this long is asked again; settling twice is harmless.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// A hand-back needs no live lease, so it is worth asking for after an outage that outlasted the
/// lease: sweeps wait a little then, for holders that live. By this long after, they have not waited.
const HAND_BACK_BEYOND_LEASE: Duration = Duration::from_mins(10);

pub(super) struct Settler<S> {
    pub(super) source: Arc<S>,
    pub(super) holdings: Arc<Holdings>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<dyn Clock>,
}

impl<S: Source> Settler<S> {
    /// Writes the batch, asking again until each has an answer or its lease is over.
    ///
    /// A batch that the store refuses for one row's data is bisected; the row that is at fault becomes
    /// a dead letter that says so.
    pub(super) async fn write(
        self: Arc<Self>,
        batch: Vec<Settlement>,
    ) -> Vec<(Hold, SettleAnswer)> {
        let mut answers = Vec::with_capacity(batch.len());
        let mut rounds = vec![batch];
        let mut failures: u32 = 0;
        while let Some(mut batch) = rounds.pop() {
            // Rows are locked in id order.
            batch.sort_unstable_by_key(|settlement| settlement.hold);
            self.metrics.settle_batch(batch.len());
            match self.attempt(&batch).await {
                Ok(settled) => {
                    failures = 0;
                    let holds = batch.iter().map(|settlement| settlement.hold);
                    answers.extend(holds.zip(settled.into_iter().map(SettleAnswer::Answered)));
                }
                Err(StoreError::Refused(reason)) => {
                    self.metrics.store_error("settle");
                    rounds.extend(parted(batch, &reason, &mut answers));
                }
                Err(error) => {
                    self.metrics.store_error("settle");
                    failures += 1;
                    // At growing intervals: an outage lasts longer than it takes to say so.
                    if failures.is_power_of_two() {
                        let items = batch.len();
                        tracing::warn!(%error, items, failures, "a settle failed; asking again");
                    }
                    let jitter = fastrand::f64();
                    tokio::time::sleep(retry_delay(failures, &BACKOFF, jitter)).await;
                    let left = self.still_leased(batch, &error, &mut answers);
                    if !left.is_empty() {
                        rounds.push(left);
                    }
                }
            }
        }
        answers
    }

    async fn attempt(
        &self,
        batch: &[Settlement],
    ) -> Result<Vec<leasehold_core::store::work::Settled>, StoreError> {
        let patience = self
            .holdings
            .settle_patience(batch, self.clock.elapsed(), PATIENCE_MAX);
        match tokio::time::timeout(patience, self.source.settle(batch)).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::Unavailable(format!(
                "no answer within {patience:?}"
            ))),
        }
    }

    /// Gives up those for which the time is over, or all if the store will not come back.
    fn still_leased(
        &self,
        batch: Vec<Settlement>,
        error: &StoreError,
        answers: &mut Vec<(Hold, SettleAnswer)>,
    ) -> Vec<Settlement> {
        let now = self.clock.elapsed();
        let (left, over): (Vec<_>, Vec<_>) = batch.into_iter().partition(|settlement| {
            let beyond = if settlement.transition.needs_live_lease() {
                Duration::ZERO
            } else {
                HAND_BACK_BEYOND_LEASE
            };
            let over = self.holdings.over_at(&settlement.hold);
            error.is_passing() && over.is_some_and(|over| now < over + beyond)
        });
        answers.extend(
            over.iter()
                .map(|settlement| (settlement.hold, SettleAnswer::GivenUp)),
        );
        left
    }
}

fn parted(
    mut batch: Vec<Settlement>,
    reason: &str,
    answers: &mut Vec<(Hold, SettleAnswer)>,
) -> Vec<Vec<Settlement>> {
    if batch.len() > 1 {
        let tail = batch.split_off(batch.len() / 2);
        return vec![batch, tail];
    }
    let Some(settlement) = batch.pop() else {
        return Vec::new();
    };
    let already = matches!(&settlement.transition, Transition::Bury { failure } if failure.code.as_str() == FailureCode::RESULT_INVALID);
    if already {
        tracing::error!(item = %settlement.hold.item_id, reason, "the store refuses the row whatever is written");
        answers.push((settlement.hold, SettleAnswer::GivenUp));
        return Vec::new();
    }
    let message = format!("the store refused what the run left: {reason}");
    let failure = Failure::own(FailureCode::RESULT_INVALID, message).for_good();
    vec![vec![Settlement {
        hold: settlement.hold,
        transition: Transition::Bury { failure },
    }]]
}
