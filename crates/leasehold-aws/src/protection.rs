//! Protection from being stopped: one for all runs in flight, confirmed before any begins, renewed while
//! any lasts, given up once after the last.
//!
//! ```text
//!         first user                    a third of the period
//!  off ───────────────▶ asked ──────▶ on ◀───────────────────┐
//!   ▲                     │refused     │  ───────────────────┘
//!   │◀────────────────────┘            │ nobody for a moment
//!   └──────────────────────────────────┘ (asked until it is confirmed)
//! ```
//! One request is under way at a time, so that a renewal never crosses a release. A request whose
//! answer was lost may have been granted: protection counts as on, for giving it up, from the moment it
//! was asked for, and as confirmed only by an answer. No failure switches it off for good.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold::Metrics;
use leasehold::core::{BootTime, Clock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::calls::{Agent, AgentError, Protected};

/// Whether a run needs protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProtectionMode {
    /// Nothing is begun without it, where there is an agent.
    #[default]
    Required,
    /// It is asked for, and what is refused is logged.
    Optional,
    /// It is not asked for.
    Off,
}

impl FromStr for ProtectionMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "required" => Ok(Self::Required),
            "optional" => Ok(Self::Optional),
            "off" => Ok(Self::Off),
            _ => Err(format!(
                "{text:?} is no mode of protection; use \"required\", \"optional\" or \"off\""
            )),
        }
    }
}

/// Shared by all messages of a source.
#[derive(Debug, Clone)]
pub(crate) struct Protection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None`: there is nobody to ask.
    agent: Option<Arc<dyn Agent>>,
    mode: ProtectionMode,
    minutes: u32,
    clock: Arc<dyn Clock>,
    metrics: OnceLock<Arc<Metrics>>,
    state: Mutex<State>,
    changed: Notify,
    /// Held across each request.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    users: u32,
    /// It was asked for and not given up since.
    may_be_on: bool,
    /// By elapsed time, from when the request that was granted was sent.
    confirmed_until: Option<BootTime>,
    renew_at: Option<BootTime>,
    /// Whom the first answer named; another one's protection is not ours.
    task: Option<String>,
}

/// A run's share. Dropping it gives the share up; the last one gives up the protection, a moment later.
#[derive(Debug)]
pub(crate) struct Share {
    inner: Arc<Inner>,
}

/// So many requests are tried before a message goes back.
const TRIES_MAX: u32 = 3;

/// Between two tries, doubled.
const PAUSE: Duration = Duration::from_millis(500);

/// A busy worker takes the next message within this, and its protection stays on: the service below
/// the agent allows few changes.
const LINGER: Duration = Duration::from_secs(1);

/// After a renewal that failed, while what was granted lasts.
const RENEWAL_PAUSE_MAX: Duration = Duration::from_secs(30);

/// After a release that failed; its end comes by itself otherwise.
const RELEASE_PAUSE: Duration = Duration::from_secs(2);

/// A request is waited for no longer: a little more than its own limit.
const PATIENCE: Duration = Duration::from_secs(8);

/// At the end, giving it up takes no longer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(15);

impl Protection {
    pub(crate) fn new(
        agent: Option<Arc<dyn Agent>>,
        mode: ProtectionMode,
        minutes: u32,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let agent = agent.filter(|_| mode != ProtectionMode::Off);
        match (mode, &agent) {
            (ProtectionMode::Off, _) => {
                tracing::info!("runs are not protected from being stopped: protection is off");
            }
            (_, None) => tracing::warn!(
                "runs are not protected from being stopped: there is no agent to ask (ECS_AGENT_URI is not set)"
            ),
            _ => {}
        }
        Self {
            inner: Arc::new(Inner {
                agent,
                mode,
                minutes,
                clock,
                metrics: OnceLock::new(),
                state: Mutex::default(),
                changed: Notify::new(),
                turn: tokio::sync::Mutex::new(()),
            }),
        }
    }

    pub(crate) fn attach(&self, metrics: &Arc<Metrics>) {
        let _ = self.inner.metrics.set(metrics.clone());
    }

    /// Protection confirmed for as long as the share is held, or the reason why a run may not begin.
    /// Safe to drop.
    pub(crate) async fn acquire(&self) -> Result<Share, AgentError> {
        let inner = &self.inner;
        inner.lock().users += 1;
        let share = Share {
            inner: inner.clone(),
        };
        let Some(agent) = &inner.agent else {
            return Ok(share);
        };
        match inner.confirm(&**agent).await {
            Ok(()) => Ok(share),
            Err(error) => {
                inner.event("protection_refused");
                if inner.mode == ProtectionMode::Optional {
                    tracing::warn!(reason = %error, "a run begins without protection");
                    return Ok(share);
                }
                tracing::warn!(reason = %error, "no protection: the message goes back");
                Err(error)
            }
        }
    }

    /// Renews and gives up, until `stop`. Decides nothing about messages.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let inner = &self.inner;
        let Some(agent) = &inner.agent else { return };
        let mut failures = 0;
        loop {
            let now = inner.clock.elapsed();
            let wait = inner.next(now, failures);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = inner.changed.notified() => continue,
                () = tokio::time::sleep(wait.unwrap_or(Duration::MAX)) => {}
            }
            let done = if inner.lock().users > 0 {
                inner.renew(&**agent).await
            } else {
                inner.release(&**agent).await
            };
            failures = if done { 0 } else { failures + 1 };
        }
    }

    /// Gives it up if it may be on, in bounded time: the process goes.
    pub(crate) async fn close(&self) {
        let inner = &self.inner;
        let Some(agent) = &inner.agent else { return };
        inner.lock().users = 0;
        let release = async {
            while !inner.release(&**agent).await {
                tokio::time::sleep(RELEASE_PAUSE).await;
            }
        };
        if tokio::time::timeout(CLOSE_PATIENCE, release).await.is_err() {
            let minutes = inner.minutes;
            tracing::error!(
                minutes,
                "protection could not be given up; it ends by itself"
            );
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.users = state.users.saturating_sub(1);
        drop(state);
        self.inner.changed.notify_one();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(&self, event: &'static str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.source_event(event);
        }
    }

    fn period(&self) -> Duration {
        Duration::from_secs(u64::from(self.minutes) * 60)
    }

    /// Confirmed for a while yet: half of what is left when a renewal is due.
    fn is_confirmed(&self) -> bool {
        let now = self.clock.elapsed();
        let until = self.lock().confirmed_until;
        until.is_some_and(|until| now + self.period() / 3 < until)
    }

    async fn confirm(&self, agent: &dyn Agent) -> Result<(), AgentError> {
        let mut pause = PAUSE;
        for tried in 1.. {
            let turn = self.turn.lock().await;
            if self.is_confirmed() {
                return Ok(());
            }
            let answer = self.ask(agent).await;
            drop(turn);
            match answer {
                Ok(()) => return Ok(()),
                Err(error @ AgentError::Refused { .. }) => return Err(error),
                Err(error) if tried >= TRIES_MAX => return Err(error),
                Err(_) => {}
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause *= 2;
        }
        Ok(())
    }

    /// One request, with the turn held.
    async fn ask(&self, agent: &dyn Agent) -> Result<(), AgentError> {
        let sent = self.clock.elapsed();
        let was_on = std::mem::replace(&mut self.lock().may_be_on, true);
        let answer = bounded(agent.protect(self.minutes)).await;
        let answer = answer.and_then(|protected| self.judged(protected));
        let mut state = self.lock();
        match answer {
            Ok(task) => {
                let first = state.confirmed_until.is_none();
                state.task = Some(task);
                state.confirmed_until = Some(sent + self.period());
                state.renew_at = Some(sent + self.period() / 3);
                drop(state);
                if let Some(metrics) = self.metrics.get() {
                    metrics.protected(true);
                }
                self.event(if first {
                    "protection_on"
                } else {
                    "protection_renewed"
                });
                self.changed.notify_one();
                Ok(())
            }
            Err(error) => {
                // What was refused was not granted. Of what was not answered nobody knows.
                if matches!(
                    error,
                    AgentError::Refused { .. } | AgentError::Throttled { .. }
                ) {
                    state.may_be_on = was_on;
                }
                drop(state);
                self.changed.notify_one();
                Err(error)
            }
        }
    }

    /// An answer that says yes counts if it is for this task and for some time to come.
    fn judged(&self, protected: Protected) -> Result<String, AgentError> {
        let refused = |reason: String| Err(AgentError::Unknown { reason });
        let known = self.lock().task.clone();
        if known.is_some_and(|task| task != protected.task) {
            return refused("the answer is about another task".to_owned());
        }
        if protected.until <= self.clock.now() {
            return refused(format!(
                "the protection has ended already, at {}",
                protected.until
            ));
        }
        Ok(protected.task)
    }

    /// When [`Protection::keep`] has something to do; `None`: not before a change.
    fn next(&self, now: BootTime, failures: u32) -> Option<Duration> {
        let state = self.lock();
        if state.users > 0 {
            let due = match state.renew_at {
                Some(at) => at.since(now),
                // A run that began without it may get it yet.
                None if self.mode == ProtectionMode::Optional => RENEWAL_PAUSE_MAX,
                None => return None,
            };
            // Twelve tries and more fit before what was granted ends.
            let pause = (self.period() / 30).min(RENEWAL_PAUSE_MAX);
            return Some(if failures == 0 { due } else { due.max(pause) });
        }
        let pause = if failures == 0 { LINGER } else { RELEASE_PAUSE };
        state.may_be_on.then_some(pause)
    }

    async fn renew(&self, agent: &dyn Agent) -> bool {
        let _turn = self.turn.lock().await;
        let now = self.clock.elapsed();
        let is_due = match self.lock().renew_at {
            Some(at) => now >= at,
            None => self.mode == ProtectionMode::Optional,
        };
        if !is_due {
            // A message that was picked up meanwhile has renewed it.
            return true;
        }
        match self.ask(agent).await {
            Ok(()) => true,
            Err(error) => {
                self.event("protection_renewal_failed");
                let until = self.lock().confirmed_until;
                let left = until.map_or(Duration::ZERO, |until| until.since(now));
                if left.is_zero() {
                    if let Some(metrics) = self.metrics.get() {
                        metrics.protected(false);
                    }
                    tracing::error!(reason = %error, "protection has run out while work goes on; asking again");
                } else {
                    tracing::warn!(reason = %error, ?left, "protection could not be renewed; asking again");
                }
                false
            }
        }
    }

    /// Whether it is known to be off, or needed again.
    async fn release(&self, agent: &dyn Agent) -> bool {
        let _turn = self.turn.lock().await;
        {
            let mut state = self.lock();
            if state.users > 0 || !state.may_be_on {
                return true;
            }
            // From here on nothing begins on the strength of it.
            state.confirmed_until = None;
            state.renew_at = None;
        }
        match bounded(agent.unprotect()).await {
            Ok(()) => {
                self.lock().may_be_on = false;
                if let Some(metrics) = self.metrics.get() {
                    metrics.protected(false);
                }
                self.event("protection_off");
                true
            }
            Err(error) => {
                self.event("protection_release_failed");
                tracing::warn!(reason = %error, "protection could not be given up; asking again");
                false
            }
        }
    }
}

async fn bounded<T>(request: impl Future<Output = Result<T, AgentError>>) -> Result<T, AgentError> {
    tokio::time::timeout(PATIENCE, request)
        .await
        .unwrap_or_else(|_| {
            let reason = format!("no answer within {PATIENCE:?}");
            Err(AgentError::Unknown { reason })
        })
}
