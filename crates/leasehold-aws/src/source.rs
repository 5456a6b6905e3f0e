//! The source: hands prepared tasks to the worker, keeps their heartbeats, and says the last word.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use leasehold::core::rules::Transition;
use leasehold::core::store::work::{ClaimRequest, Ended, Renewal, Renewed, Settled, Settlement};
use leasehold::core::{App, BootTime, Clock, Hints, Hold, WorkerId};
use leasehold::{
    Assignments, Lane, Metrics, SettingsError, SingleTenant, Source, StoreError, Stores,
    SystemClock, Tenancy,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::calls::{Agent, Queue, TaskError, Tasks};
use crate::desk::{Desk, Standing, Task};
use crate::pickup::{self, Word, bounded_task};
use crate::protection::Protection;
use crate::report::{Course, Report};
use crate::routes::Routes;
use crate::settings::{CALL_PATIENCE, StepFunctionsSettings};

/// Tasks of Step Functions, from a queue. Give the worker [`StepFunctionsSettings::worker`].
///
/// What it counts (`leasehold_source_events_total`, by `event`): `received`, `malformed`, `unrouted`,
/// `copies`, `stale`, `heartbeat_failed`, `delivery_over`, `delete_unconfirmed`, `sent_back`,
/// `receive_failed`; `succeeded`, `failed`, `report_closed`, `report_failed`, `aborted`;
/// `protection_on`, `protection_renewed`, `protection_off`, `protection_refused`,
/// `protection_renewal_failed`, `protection_release_failed`.
#[derive(Debug)]
pub struct StepFunctions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) tasks: Arc<dyn Tasks>,
    pub(crate) protection: Protection,
    pub(crate) routes: Routes,
    pub(crate) settings: StepFunctionsSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tenancy: Arc<dyn Tenancy>,
    pub(crate) desk: Arc<Desk>,
    /// There is something to take.
    pub(crate) hint: Arc<Notify>,
    /// There may be a place for a message.
    pub(crate) room: Notify,
    /// A message had to go back since the poll last looked.
    pub(crate) is_troubled: AtomicBool,
    /// How often in a row the poll paused for that.
    pub(crate) troubles: AtomicU32,
    pub(crate) stop: CancellationToken,
    /// The poll, and the messages it brought.
    pub(crate) tracker: TaskTracker,
    /// Ends the keeping of protection, which is the last to go.
    farewell: CancellationToken,
    keeping: TaskTracker,
    metrics: OnceLock<Arc<Metrics>>,
    worker: OnceLock<WorkerId>,
    has_begun: AtomicBool,
}

impl StepFunctions {
    /// Receives nothing before the first claim.
    ///
    /// `agent` is `None` where there is nobody to protect the process: it runs unprotected then, and says
    /// so.
    ///
    /// # Errors
    /// [`SettingsError`] names a setting and its rule.
    pub fn new(
        queue: Arc<dyn Queue>,
        tasks: Arc<dyn Tasks>,
        agent: Option<Arc<dyn Agent>>,
        routes: Routes,
        settings: StepFunctionsSettings,
    ) -> Result<Self, SettingsError> {
        Self::with_clock(queue, tasks, agent, routes, settings, Arc::new(SystemClock))
    }

    /// As [`StepFunctions::new`] with another clock, for tests.
    ///
    /// # Errors
    /// As [`StepFunctions::new`].
    pub fn with_clock(
        queue: Arc<dyn Queue>,
        tasks: Arc<dyn Tasks>,
        agent: Option<Arc<dyn Agent>>,
        routes: Routes,
        settings: StepFunctionsSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let minutes = settings.protection_minutes();
        let protection = Protection::new(agent, settings.protection, minutes, clock.clone());
        Ok(Self {
            inner: Arc::new(Inner {
                queue,
                tasks,
                protection,
                routes,
                settings,
                clock,
                tenancy: Arc::new(SingleTenant),
                desk: Arc::default(),
                hint: Arc::default(),
                room: Notify::new(),
                is_troubled: AtomicBool::new(false),
                troubles: AtomicU32::new(0),
                stop: CancellationToken::new(),
                tracker: TaskTracker::new(),
                farewell: CancellationToken::new(),
                keeping: TaskTracker::new(),
                metrics: OnceLock::new(),
                worker: OnceLock::new(),
                has_begun: AtomicBool::new(false),
            }),
        })
    }
}

/// So many words are under way at once in one batch: a connection each, and a few more than one worker
/// has tasks as a rule.
const WORDS_AT_ONCE_MAX: usize = 64;

impl Inner {
    pub(crate) fn event(&self, event: &'static str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.source_event(event);
        }
    }

    /// Whom a run's context names.
    pub(crate) fn app(&self) -> Option<App> {
        self.worker.get().map(App::worker)
    }

    /// Begins to look at the queue, on the runtime of the worker's loop.
    fn begin(self: &Arc<Self>, request: &ClaimRequest) {
        if self.stop.is_cancelled() || self.has_begun.swap(true, Ordering::AcqRel) {
            return;
        }
        let _ = self.worker.set(request.worker.clone());
        self.tracker.spawn(self.clone().poll());
        let keep = self.protection.clone().keep(self.farewell.clone());
        self.keeping.spawn(keep);
    }

    async fn renew(&self, hold: &Hold) -> Option<Renewed> {
        let Some(task) = self.desk.held(hold) else {
            return Some(Renewed::Lost);
        };
        let _turn = task.turn.lock().await;
        {
            let said = task.said();
            match said.standing {
                Standing::Open if said.report.is_none() => {}
                Standing::Stale => return Some(Renewed::Lost),
                // The last word is being said: no heartbeat crosses it.
                Standing::Open | Standing::Told | Standing::Silent => return None,
            }
        }
        // Said again if it is refused for now, within the time that one word may take.
        let saying = pickup::say(self, &task.token, Word::Heartbeat);
        let said = tokio::time::timeout(CALL_PATIENCE, saying).await;
        let said = said.unwrap_or_else(|_| {
            let reason = format!("no answer within {CALL_PATIENCE:?}");
            Err(TaskError::Unknown { reason })
        });
        match said {
            Ok(sent) => {
                task.said().beaten_at = sent;
                Some(Renewed::Kept)
            }
            Err(TaskError::Stale { code }) => {
                task.said().standing = Standing::Stale;
                self.event("stale");
                tracing::info!(message = task.message, item = %task.item.id, code, "AbortedStaleTask: the task is closed, its run is killed");
                Some(Renewed::Lost)
            }
            Err(error) => {
                self.event("heartbeat_failed");
                tracing::warn!(message = task.message, item = %task.item.id, %error, "a heartbeat was not accepted");
                None
            }
        }
    }

    /// The last word about a task. `None`: whether it was heard is not known, and it is said again.
    async fn settle(&self, settlement: &Settlement) -> Option<Settled> {
        let Some(task) = self.desk.held(&settlement.hold) else {
            return Some(Settled::Conflict);
        };
        // Decided once: said again, it is the same word.
        let report = self.last_word(&task, &settlement.transition);
        // A heartbeat under way ends first.
        let _turn = task.turn.lock().await;
        match task.said().standing {
            Standing::Open => {}
            Standing::Told => return Some(Settled::AlreadySettled),
            Standing::Stale | Standing::Silent => return Some(Settled::Conflict),
        }
        match report {
            Report::Success { output } => self.succeed(&task, &output).await,
            Report::Failure { error, cause } => self.fail(&task, &error, &cause).await,
        }
    }

    fn last_word(&self, task: &Task, transition: &Transition) -> Report {
        let mut said = task.said();
        if let Some(report) = &said.report {
            return report.clone();
        }
        if self.is_doubted(transition, said.beaten_at) {
            said.standing = Standing::Silent;
            self.event("aborted");
            tracing::warn!(message = task.message, item = %task.item.id, "AbortedStaleTask: no heartbeat was accepted in time, nothing is reported");
        }
        let course = if self.stop.is_cancelled() {
            Course::Draining
        } else {
            Course::Going
        };
        let report = Report::of(transition, course, self.settings.output_bytes_max);
        said.report = Some(report.clone());
        report
    }

    /// Whether a run is handed back because its heartbeats were not accepted for half a lease. The
    /// keeper counts from a moment before the heartbeat was sent, so a little less counts as well.
    fn is_doubted(&self, transition: &Transition, beaten_at: BootTime) -> bool {
        let silent = self.clock.elapsed().since(beaten_at);
        let is_released = matches!(transition, Transition::Release { .. });
        is_released && silent >= self.settings.stale_after() * 3 / 4
    }

    async fn succeed(&self, task: &Task, output: &str) -> Option<Settled> {
        // Until an answer says otherwise: this call may be dropped, and have been heard.
        let was_open = std::mem::replace(&mut task.said().success_is_open, true);
        let answer = bounded_task(self.tasks.succeed(&task.token, output)).await;
        match answer {
            Ok(()) => Some(self.told(task, "succeeded", Ended::Done)),
            Err(TaskError::Stale { code }) if was_open => {
                task.said().standing = Standing::Told;
                self.event("report_closed");
                tracing::warn!(message = task.message, item = %task.item.id, code, "the task is closed: by a success whose answer was lost, or by another");
                Some(Settled::AlreadySettled)
            }
            Err(TaskError::Stale { code }) => Some(self.closed(task, &code)),
            Err(TaskError::Refused { code }) if !was_open => {
                let instead = Report::refused(&code);
                {
                    let mut said = task.said();
                    said.success_is_open = false;
                    said.report = Some(instead.clone());
                }
                tracing::error!(message = task.message, item = %task.item.id, code, "a result was refused");
                match instead {
                    Report::Failure { error, cause } => self.fail(task, &error, &cause).await,
                    Report::Success { .. } => None,
                }
            }
            Err(TaskError::Refused { code }) => Some(self.refused(task, &code)),
            Err(error) => {
                if matches!(error, TaskError::Busy { .. }) {
                    task.said().success_is_open = was_open;
                }
                self.unanswered(task, &error)
            }
        }
    }

    async fn fail(&self, task: &Task, error: &str, cause: &str) -> Option<Settled> {
        match bounded_task(self.tasks.fail(&task.token, error, cause)).await {
            Ok(()) => Some(self.told(task, "failed", Ended::Queued)),
            Err(TaskError::Stale { code }) => Some(self.closed(task, &code)),
            Err(TaskError::Refused { code }) => Some(self.refused(task, &code)),
            Err(problem) => self.unanswered(task, &problem),
        }
    }

    fn told(&self, task: &Task, event: &'static str, ended: Ended) -> Settled {
        self.event(event);
        task.said().standing = Standing::Told;
        tracing::info!(message = task.message, item = %task.item.id, "reported");
        Settled::Settled(ended)
    }

    /// Quiet: the state has moved on, which is its right.
    fn closed(&self, task: &Task, code: &str) -> Settled {
        task.said().standing = Standing::Stale;
        self.event("report_closed");
        tracing::info!(message = task.message, item = %task.item.id, code, "AbortedStaleTask: the task was closed before its report");
        Settled::Conflict
    }

    fn refused(&self, task: &Task, code: &str) -> Settled {
        task.said().standing = Standing::Silent;
        self.event("report_failed");
        tracing::error!(message = task.message, item = %task.item.id, code, "a report was refused; the state's heartbeat will end the try");
        Settled::Conflict
    }

    fn unanswered(&self, task: &Task, error: &TaskError) -> Option<Settled> {
        self.event("report_failed");
        tracing::warn!(message = task.message, item = %task.item.id, %error, "a report was not accepted; said again");
        None
    }
}

#[async_trait]
impl Source for StepFunctions {
    /// Answers at once with what is ready; a hint tells of more.
    async fn claim(&self, request: &ClaimRequest) -> Result<Assignments, StoreError> {
        self.inner.begin(request);
        // No await: what is taken is always answered.
        let items = self.inner.desk.take(request);
        self.inner.room.notify_one();
        Ok(Assignments { items, orphaned: 0 })
    }

    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Option<Renewed>>, StoreError> {
        let words = batch.iter().map(|renewal| self.inner.renew(&renewal.hold));
        Ok(in_order(words).await)
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let words = batch.iter().map(|settlement| self.inner.settle(settlement));
        let answers: Option<Vec<Settled>> = in_order(words).await.into_iter().collect();
        answers.ok_or_else(|| StoreError::Unavailable("a report was not accepted".to_owned()))
    }

    fn forget(&self, holds: &[Hold]) {
        for hold in holds {
            if let Some(task) = self.inner.desk.forget(hold) {
                task.give_up_share();
            }
        }
        self.inner.room.notify_one();
    }

    fn drain(&self) {
        self.inner.stop.cancel();
    }

    async fn close(&self) {
        let inner = &self.inner;
        inner.stop.cancel();
        inner.tracker.close();
        // Every step has a limit of its own; this is their sum, so that none can hold the end up.
        let patience = inner.settings.poll_wait + 8 * CALL_PATIENCE;
        if tokio::time::timeout(patience, inner.tracker.wait())
            .await
            .is_err()
        {
            tracing::error!("messages are left to become visible by themselves");
        }
        for task in inner.desk.clear() {
            task.give_up_share();
        }
        inner.farewell.cancel();
        inner.keeping.close();
        let _ = tokio::time::timeout(CALL_PATIENCE, inner.keeping.wait()).await;
        inner.protection.close().await;
    }

    fn subscribe(&self, _: &[Lane]) -> Box<dyn Hints> {
        Box::new(Wakes(self.inner.hint.clone()))
    }

    fn attach(&self, metrics: &Arc<Metrics>) {
        let _ = self.inner.metrics.set(metrics.clone());
        self.inner.protection.attach(metrics);
    }

    fn stores(&self) -> Option<&Stores> {
        None
    }

    fn tenancy(&self) -> &Arc<dyn Tenancy> {
        &self.inner.tenancy
    }
}

struct Wakes(Arc<Notify>);

#[async_trait]
impl Hints for Wakes {
    async fn next(&mut self) {
        self.0.notified().await;
    }
}

/// The answers in the order of the questions, of which a bounded number is under way.
async fn in_order<T>(questions: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut questions = questions;
    let mut under_way: FuturesOrdered<_> = questions.by_ref().take(WORDS_AT_ONCE_MAX).collect();
    let mut answers = Vec::new();
    while let Some(answer) = under_way.next().await {
        answers.push(answer);
        under_way.extend(questions.next());
    }
    answers
}
