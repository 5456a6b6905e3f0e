//! The keeper: renews every held lease in time, and stops runs whose lease is in danger.
//!
//! It runs on a thread of its own with a small runtime of its own, so that neither a handler nor the
//! loop can starve it. It decides nothing: [`super::trust`] does.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use leasehold_core::store::work::{Renewal, Renewed};
use leasehold_core::{BootTime, Clock, Hold, StoreError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::dispatch::Event;
use super::holdings::Holdings;
use super::outages::Outages;
use super::trust::Loss;
use crate::source::Source;
use crate::telemetry::Metrics;

/// The keeper looks around at least this often, so that it notices soon after a suspend that time
/// has passed: timers stand still while the machine sleeps, the clock it reads does not.
const LOOK_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Between two looks, more time than planned or a calendar that moved against elapsed time by more
/// than this is a jump.
const JUMP: Duration = Duration::from_secs(1);

pub(super) struct Keeper<S> {
    pub(super) source: Arc<S>,
    pub(super) holdings: Arc<Holdings>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) outages: Arc<Outages>,
    pub(super) lease: Duration,
}

/// So many renewals may be under way at once: one that is slow, the next tries, and those of leases
/// that have not fallen into step yet.
const UNDER_WAY_MAX: usize = 8;

/// Renewals under way, and when the one that carries a run's newest progress was sent.
#[derive(Default)]
struct UnderWay {
    renewals: FuturesUnordered<Renewing>,
    carried: HashMap<Hold, BootTime>,
}

type Renewing = Pin<Box<dyn Future<Output = Answer> + Send>>;

struct Answer {
    sent: BootTime,
    batch: Vec<Renewal>,
    answers: Result<Vec<Option<Renewed>>, StoreError>,
}

impl<S: Source> Keeper<S> {
    /// Keeps until told to stop. Renewals go on during a drain: what is still held is still kept.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut way = UnderWay::default();
        // The loop may be slow to listen; the keeper never waits for it.
        let mut unheard = VecDeque::new();
        let mut watch = JumpWatch::new(&*self.clock);
        let pace = (self.lease / 16).min(LOOK_INTERVAL_MAX);
        loop {
            let now = self.clock.elapsed();
            if watch.jumped(&*self.clock, pace) {
                self.metrics.clock_jump();
                self.outages.note(now);
                tracing::warn!("the machine slept, froze or had its calendar set; claims pause");
                unheard.push_back(Event::ClockJumped);
            }
            self.outages.look(now);
            self.announce(self.holdings.doubted(now), &mut unheard);
            if way.renewals.len() < UNDER_WAY_MAX {
                self.renew(now, &mut way);
            }
            while let Some(event) = unheard.pop_front() {
                if let Err(error) = self.events.try_send(event) {
                    unheard.push_front(error.into_inner());
                    break;
                }
            }
            let next = self
                .holdings
                .next_look()
                .map_or(pace, |at| at.since(self.clock.elapsed()));
            let pause = next.clamp(PAUSE_MIN, pace);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(answer) = way.renewals.next() => self.take(way.kept(answer), &mut unheard),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Sends what is due. A renewal that is not answered by the time of the next try is not given up
    /// for it: a store that is slow, such as one whose lock somebody holds, answers both.
    fn renew(&self, now: BootTime, way: &mut UnderWay) {
        let (batch, patience) = self.holdings.due(now);
        if batch.is_empty() {
            return;
        }
        let carrying = batch.iter().filter(|renewal| renewal.progress.is_some());
        way.carried
            .extend(carrying.map(|renewal| (renewal.hold, now)));
        let source = self.source.clone();
        let patience = patience * 2;
        way.renewals.push(Box::pin(async move {
            let answers = match tokio::time::timeout(patience, source.renew(&batch)).await {
                Ok(answers) => answers,
                Err(_) => Err(StoreError::Unavailable(format!(
                    "no answer within {patience:?}"
                ))),
            };
            Answer {
                sent: now,
                batch,
                answers,
            }
        }));
    }

    fn take(&self, answer: Answer, unheard: &mut VecDeque<Event>) {
        match answer.answers {
            Ok(answers) => {
                self.outages.answered(self.clock.elapsed());
                self.count(&answers);
                let holds = answer.batch.iter().map(|renewal| renewal.hold);
                let given = holds
                    .zip(&answers)
                    .filter_map(|(hold, given)| Some((hold, (*given)?)));
                let losses = self.holdings.answered(answer.sent, given);
                self.announce(losses, unheard);
                let mut answers = answers.iter();
                let mut unanswered = answer.batch;
                unanswered.retain(|_| matches!(answers.next(), Some(None)));
                self.holdings.unanswered(unanswered);
            }
            Err(error) => {
                self.metrics.renewals("error", answer.batch.len() as u64);
                self.metrics.store_error("renew");
                if error.is_passing() {
                    // Whatever keeps this worker from renewing may keep others from it.
                    self.outages.note(self.clock.elapsed());
                }
                tracing::warn!(%error, leases = answer.batch.len(), "leases could not be renewed");
                self.holdings.unanswered(answer.batch);
            }
        }
    }

    fn count(&self, answers: &[Option<Renewed>]) {
        for (answer, outcome) in [
            (Some(Renewed::Kept), "kept"),
            (Some(Renewed::CancelRequested), "cancel_requested"),
            (Some(Renewed::Lost), "lost"),
            (None, "error"),
        ] {
            let count = answers.iter().filter(|given| **given == answer).count();
            if count > 0 {
                self.metrics.renewals(outcome, count as u64);
            }
        }
    }

    fn announce(&self, losses: Vec<(Hold, Loss)>, unheard: &mut VecDeque<Event>) {
        for (hold, loss) in losses {
            tell(&self.metrics, &hold, loss);
            unheard.push_back(Event::Loss(hold, loss));
        }
    }
}

/// Counts and logs that a run has to stop because of its lease; each is told once.
pub(super) fn tell(metrics: &Metrics, hold: &Hold, loss: Loss) {
    match loss {
        Loss::Refused => {
            metrics.lost("refused");
            metrics.refused("renew");
            tracing::warn!(item = %hold.item_id, "lease lost: the store refused its renewal");
        }
        Loss::Doubted => {
            metrics.lost("doubted");
            tracing::warn!(item = %hold.item_id, "lease doubted: no renewal for half a lease");
        }
        Loss::CancelRequested => {
            tracing::info!(item = %hold.item_id, "cancel requested");
        }
    }
}

/// A pause of nothing would spin while a renewal is under way.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl UnderWay {
    /// The answer, without the progress that a later renewal has overtaken.
    fn kept(&mut self, mut answer: Answer) -> Answer {
        for renewal in &mut answer.batch {
            if renewal.progress.is_none() {
                continue;
            }
            if self.carried.get(&renewal.hold) == Some(&answer.sent) {
                self.carried.remove(&renewal.hold);
            } else {
                renewal.progress = None;
            }
        }
        answer
    }
}

/// Notices that time passed unseen, or that the calendar moved.
struct JumpWatch {
    elapsed: BootTime,
    calendar: Timestamp,
}

impl JumpWatch {
    fn new(clock: &dyn Clock) -> Self {
        Self {
            elapsed: clock.elapsed(),
            calendar: clock.now(),
        }
    }

    fn jumped(&mut self, clock: &dyn Clock, planned: Duration) -> bool {
        let next = Self::new(clock);
        let passed = next.elapsed.since(self.elapsed);
        let shown = next.calendar.duration_since(self.calendar);
        let passed_signed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let drift = shown
            .checked_sub(passed_signed)
            .unwrap_or(SignedDuration::MAX);
        *self = next;
        passed > planned + JUMP || drift.unsigned_abs() > JUMP
    }
}
