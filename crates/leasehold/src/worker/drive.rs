//! The loop's hands: awaits what comes, carries out what [`super::dispatch`] decides, decides nothing.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use leasehold_core::store::work::{ClaimRequest, Claimed, Settlement};
use leasehold_core::{BootTime, ClaimToken, Clock, Hold, OpContext, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dispatch::{Action, Dispatch, Ending, Event, SettleAnswer, StopReason, Verdict};
use super::holdings::Holdings;
use super::outages::{Complaint, Outages, Recovered};
use super::runner::{Runner, Starting};
use super::settle::{self, Settler};
use super::trust::Loss;
use crate::config::SETTLES_MAX;
use crate::executor::Executor;
use crate::health::Beat;
use crate::shutdown::Requests;
use crate::source::{Assignments, Source};
use crate::telemetry::Metrics;

/// So many events are taken in before actions are carried out: keeps a flood from delaying claims.
const EVENTS_MAX: usize = 1_024;

/// How many endings may wait for the loop; a run that ends meanwhile waits in its own task.
pub(super) const EVENTS_WAITING_MAX: usize = 4_096;

pub(super) struct Drive<S, E> {
    pub(super) source: Arc<S>,
    pub(super) runner: Arc<Runner<E>>,
    pub(super) dispatch: Dispatch,
    pub(super) holdings: Arc<Holdings>,
    pub(super) handlers: Handle,
    pub(super) events: mpsc::Receiver<Event>,
    pub(super) stop: Requests,
    /// Cancelled when nobody waits for the worker any more.
    pub(super) left: CancellationToken,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) outages: Arc<Outages>,
    pub(super) beat: Arc<Beat>,
    /// Audit entries on their way.
    pub(super) audits: TaskTracker,
    pub(super) load: watch::Sender<Load>,
    pub(super) settings: Arc<crate::WorkerSettings>,
    pub(super) app: Arc<str>,
}

/// However long the lease, a store that is back after this is claimed from at once.
const CLAIM_PATIENCE_MAX: Duration = Duration::from_secs(5);

/// At the end of a drain, audit entries on their way get this long.
const AUDITS_PATIENCE: Duration = Duration::from_secs(1);

/// What the loop tells of itself: for the heartbeat and the sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) running: u32,
    pub(super) draining: bool,
    /// Nothing is held, and the last claim found nothing.
    pub(super) idle: bool,
}

/// How the loop came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoopEnd {
    /// Items left to expire.
    pub(super) abandoned: usize,
    /// Whether it ended because too many slots were stuck.
    pub(super) stuck: Option<u32>,
}

type Claiming = Pin<Box<dyn Future<Output = (ClaimToken, Answer)> + Send>>;
type Answer = Result<Assignments, StoreError>;
type Settling = Pin<Box<dyn Future<Output = Vec<(Hold, SettleAnswer)>> + Send>>;

/// What is under way, beside the state machine.
#[derive(Default)]
struct UnderWay {
    claiming: FuturesUnordered<Claiming>,
    settling: FuturesUnordered<Settling>,
    to_settle: Vec<Settlement>,
    /// The authority of each item that has not been started. By hold: an item may be held twice.
    contexts: HashMap<Hold, OpContext>,
    /// About claims.
    complaint: Complaint,
    /// Whether the last claim that was answered found nothing.
    found_nothing: bool,
    /// What the loop has to tell itself.
    own: Vec<Event>,
    stopped_for_stuck: Option<u32>,
}

impl<S: Source, E: Executor> Drive<S, E> {
    /// Runs until a drain has come to its end.
    pub(super) async fn run(mut self) -> LoopEnd {
        let mut way = UnderWay::default();
        let mut actions = Vec::new();
        let mut heard = Vec::with_capacity(EVENTS_MAX);
        let mut has_drained = false;
        let mut hints = self.source.subscribe(&self.settings.lanes);
        heard.extend(drains(self.stop.so_far()));
        let beat_every = self.settings.heartbeat_interval;
        let settler = Arc::new(Settler {
            source: self.source.clone(),
            holdings: self.holdings.clone(),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
        });
        loop {
            let now = self.clock.elapsed();
            self.beat.stamp(now);
            if self.outages.is_unwatched(now) {
                // Ahead of the keeper's own word, so that nothing is claimed in between.
                self.dispatch.handle(now, Event::ClockJumped, &mut actions);
            }
            for event in heard.drain(..) {
                self.dispatch.handle(now, event, &mut actions);
            }
            if self.dispatch.is_draining() && !std::mem::replace(&mut has_drained, true) {
                self.source.drain();
            }
            self.dispatch.advance(now, &mut actions);
            let starts = self.carry_out(&mut actions, &mut way);
            while way.settling.len() < SETTLES_MAX as usize && !way.to_settle.is_empty() {
                let at = way.to_settle.len().min(settle::BATCH_MAX);
                let rest = way.to_settle.split_off(at);
                let batch = std::mem::replace(&mut way.to_settle, rest);
                way.settling.push(Box::pin(settler.clone().write(batch)));
            }
            if !starts.is_empty() {
                // The store gets to work on these while the runs are started.
                heard.extend(self.ask_store(&mut way));
            }
            self.start(now, starts, &mut way);
            heard.append(&mut way.own);
            self.tell(&way);
            if self.dispatch.is_finished(now) {
                let abandoned = self.dispatch.held();
                self.audits.close();
                // What is not written by then is owed, and some worker's sweep writes it.
                let _ = tokio::time::timeout(AUDITS_PATIENCE, self.audits.wait()).await;
                return LoopEnd {
                    abandoned,
                    stuck: way.stopped_for_stuck,
                };
            }
            if !heard.is_empty() {
                continue;
            }
            let pause = self.dispatch.next_look().since(now).min(beat_every);
            let claims = !self.dispatch.is_draining();
            tokio::select! {
                biased;
                requests = self.stop.asked() => heard.extend(drains(requests)),
                () = self.left.cancelled(), if claims => heard.push(Event::Drain),
                Some(answers) = way.settling.next(), if !way.settling.is_empty() => {
                    heard.extend(settled(answers));
                }
                Some((token, answer)) = way.claiming.next(), if !way.claiming.is_empty() => {
                    heard.extend(self.claimed(token, answer, &mut way));
                }
                _ = self.events.recv_many(&mut heard, EVENTS_MAX) => {}
                () = hints.next(), if claims => heard.push(Event::Hint),
                () = tokio::time::sleep(pause) => heard.push(Event::Tick),
            }
        }
    }

    fn claimed(
        &self,
        token: ClaimToken,
        answer: Answer,
        way: &mut UnderWay,
    ) -> impl Iterator<Item = Event> + use<S, E> {
        let (event, more) = match answer {
            Ok(Assignments { items, orphaned }) => {
                let now = self.clock.elapsed();
                self.outages.answered(now);
                if let Some(Recovered { after, failures }) = way.complaint.answered(now) {
                    tracing::info!(?after, failures, "claims work again");
                }
                self.metrics.claimed(items.len());
                way.found_nothing = items.is_empty() && orphaned == 0;
                let mut claimed = Vec::with_capacity(items.len());
                for (mut item, context) in items {
                    item.item.claim_token = Some(token);
                    way.contexts.insert(hold_of(&item, token), context);
                    claimed.push(Arc::new(item));
                }
                (Event::Claimed(token, Ok(claimed)), orphaned > 0)
            }
            Err(error) => {
                self.metrics.store_error("claim");
                way.found_nothing = false;
                let now = self.clock.elapsed();
                self.outages.note_if(&error, now);
                if matches!(error, StoreError::Unavailable(_)) {
                    self.metrics.store_is_down();
                }
                match way.complaint.failed(now) {
                    Some(lasting) if error.is_passing() => {
                        tracing::warn!(%error, ?lasting, "a claim failed; asking again");
                    }
                    Some(lasting) => tracing::error!(%error, ?lasting, "a claim failed"),
                    None => tracing::debug!(%error, "a claim failed once more"),
                }
                (Event::Claimed(token, Err(error)), false)
            }
        };
        // Orphans were claimed and failed on the way: there may be more behind them.
        [Some(event), more.then_some(Event::Hint)]
            .into_iter()
            .flatten()
    }

    /// Polls what is asked of the store once, so that it is on its way.
    fn ask_store(&self, way: &mut UnderWay) -> Vec<Event> {
        let mut answered = Vec::new();
        while let Some(Some((token, answer))) = way.claiming.next().now_or_never() {
            answered.extend(self.claimed(token, answer, way));
        }
        while let Some(Some(answers)) = way.settling.next().now_or_never() {
            answered.extend(settled(answers));
        }
        answered
    }

    /// Does what was decided but for the starts, which are left to the caller: nothing else of a round
    /// refers to a run that starts in it.
    fn carry_out(&mut self, actions: &mut Vec<Action>, way: &mut UnderWay) -> Vec<Arc<Claimed>> {
        let mut starts = Vec::new();
        let mut forgotten = Vec::new();
        let settled_from = way.to_settle.len();
        for action in actions.drain(..) {
            match action {
                Action::Claim(request) => {
                    way.claiming.push(self.claim(request));
                }
                Action::Hold { holds, sent } => {
                    self.holdings.take_up(&holds, self.settings.lease, sent);
                }
                Action::Start(claimed) => starts.push(claimed),
                Action::Cancel(hold, reason) => {
                    tracing::info!(item = %hold.item_id, reason = reason.name(), "stopping a run");
                    self.holdings.cancel(&hold, self.grace(reason));
                }
                Action::Kill(hold) => self.holdings.kill(&hold),
                Action::Settle(settlement) => way.to_settle.push(settlement),
                Action::Forget(hold) => {
                    // Nearly always it was started, and nothing is left.
                    if !way.contexts.is_empty() {
                        way.contexts.remove(&hold);
                    }
                    forgotten.push(hold);
                }
                Action::RenewUntil(hold, instant) => self.holdings.renew_until(&hold, instant),
                Action::Stuck(hold) => self.stuck(&hold, way),
                Action::Bury(claimed) => self.bury(&claimed),
                Action::Note(claimed, hold, verdict) => self.note(&claimed, &hold, verdict),
            }
        }
        self.holdings.settling(
            way.to_settle[settled_from..]
                .iter()
                .map(|settlement| settlement.hold),
        );
        self.holdings.forget(&forgotten);
        if !forgotten.is_empty() {
            self.source.forget(&forgotten);
        }
        starts
    }

    fn claim(&self, request: ClaimRequest) -> Claiming {
        let (source, clock, metrics) = (
            self.source.clone(),
            self.clock.clone(),
            self.metrics.clone(),
        );
        // A claim that hangs is asked again with the same token, well within its trust window, which
        // is half the lease.
        let patience = (self.settings.lease * 3 / 8).min(CLAIM_PATIENCE_MAX);
        Box::pin(async move {
            let began = clock.elapsed();
            let answer = match tokio::time::timeout(patience, source.claim(&request)).await {
                Ok(answer) => {
                    if answer.is_ok() {
                        metrics.claim_took(clock.elapsed().since(began));
                    }
                    answer
                }
                Err(_) => Err(StoreError::Unavailable(format!(
                    "no answer within {patience:?}"
                ))),
            };
            (request.token, answer)
        })
    }

    fn start(&self, now: BootTime, starts: Vec<Arc<Claimed>>, way: &mut UnderWay) {
        let mut given = Vec::with_capacity(starts.len());
        for claimed in starts {
            let Some(token) = claimed.item.claim_token else {
                // Only a source that breaks its promise hands out an item without one.
                tracing::error!(item = %claimed.item.id, "claimed without a token; left to expire");
                continue;
            };
            let hold = hold_of(&claimed, token);
            match way.contexts.remove(&hold) {
                Some(context) => given.push((hold, claimed, context)),
                None => way.own.push(Event::Ended(hold, Ending::Unbegun)),
            }
        }
        let holds = given.iter().map(|(hold, ..)| *hold);
        let controls = self.holdings.start(holds, now);
        let mut starting = Vec::with_capacity(given.len());
        for ((hold, claimed, context), control) in given.into_iter().zip(controls) {
            let Some(control) = control else {
                // Its trust ended while it waited, and the keeper has not said so yet.
                way.own.push(Event::Loss(hold, Loss::Doubted));
                way.own.push(Event::Ended(hold, Ending::Unbegun));
                continue;
            };
            starting.push(Starting {
                hold,
                claimed,
                context,
                control,
            });
        }
        if starting.is_empty() {
            return;
        }
        let runner = self.runner.clone();
        // Each run is a task of its own. They are made where they run: one message from thread to thread
        // takes all of them there.
        self.handlers.spawn(async move {
            for starting in starting {
                runner.start(now, starting);
            }
        });
    }

    /// How long a command may take to end before its warden kills it, should the loop not do so.
    fn grace(&self, reason: StopReason) -> Duration {
        match reason {
            StopReason::Drain => self.settings.drain_timeout,
            StopReason::TimeLimit | StopReason::Cancel => self.settings.stop_grace,
            StopReason::LeaseDoubted | StopReason::LeaseLost => Duration::ZERO,
        }
    }

    fn stuck(&self, hold: &Hold, way: &mut UnderWay) {
        let stuck = self.dispatch.stuck();
        tracing::error!(item = %hold.item_id, stuck, "a run does not end; its slot is lost");
        let over = self.settings.stuck_max.is_some_and(|most| stuck > most);
        if over && !self.dispatch.is_draining() && way.stopped_for_stuck.is_none() {
            way.stopped_for_stuck = Some(stuck);
            way.own.push(Event::Drain);
        }
    }

    fn bury(&self, claimed: &Claimed) {
        let Some(stores) = self.source.stores().cloned() else {
            return;
        };
        let app = self.app.clone();
        self.metrics.dead_letter(&claimed.item.kind);
        let (org, item) = (claimed.org_id, claimed.item.id);
        self.audits.spawn(async move {
            super::sweeping::audit_dead_letter(&stores, org, item, &app).await;
        });
    }

    fn note(&self, claimed: &Claimed, hold: &Hold, verdict: Verdict) {
        self.metrics.finished(&claimed.item.kind, verdict);
        match verdict {
            Verdict::Conflict => {
                self.metrics.refused("settle");
                tracing::warn!(item = %hold.item_id, "a stale write was refused: the lease was lost");
            }
            Verdict::GivenUp => {
                tracing::error!(item = %hold.item_id, "could not be settled in time; left to expire");
            }
            Verdict::LeaseLost => {
                tracing::warn!(item = %hold.item_id, "the lease was lost; nothing was written");
            }
            _ => tracing::debug!(item = %hold.item_id, outcome = verdict.name(), "item settled"),
        }
    }

    fn tell(&self, way: &UnderWay) {
        let running = self.dispatch.occupied();
        self.metrics
            .slots(self.settings.capacity, running, self.dispatch.stuck());
        let load = Load {
            running,
            draining: self.dispatch.is_draining(),
            idle: way.found_nothing && self.dispatch.held() == 0,
        };
        self.load
            .send_if_modified(|told| std::mem::replace(told, load) != load);
    }
}

/// Two requests that came at once are still two: the second one hurries.
fn drains(requests: u32) -> impl Iterator<Item = Event> {
    (0..requests).map(|_| Event::Drain)
}

fn hold_of(claimed: &Claimed, token: ClaimToken) -> Hold {
    Hold {
        org_id: claimed.org_id,
        item_id: claimed.item.id,
        token,
    }
}

fn settled(answers: Vec<(Hold, SettleAnswer)>) -> impl Iterator<Item = Event> {
    answers
        .into_iter()
        .map(|(hold, answer)| Event::Settled(hold, answer))
}
