//! Strict fakes of the three services, with one log and one script of faults.
//!
//! They hold what the real ones hold: a message that is not deleted comes back, a token is closed once
//! and is stale from then on, protection is on or off. And they note what must never happen, at the
//! moment it does.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{BootTime, Clock};
use leasehold_aws::{
    Agent, AgentError, Message, Protected, Queue, QueueAttributes, QueueError, Receipt, TaskError,
    TaskToken, Tasks,
};
use leasehold_testkit::clock::TokioClock;
use tokio::sync::Notify;

/// What a call meets instead of its answer, or before it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Certainly not done: throttled.
    Busy,
    /// Not done, and no answer.
    Broken,
    /// Done, and the answer lost.
    Lost,
    /// Done after a while.
    Slow(Duration),
    /// Never answered, and not done.
    Hangs,
    /// The task is closed from outside first.
    Closed,
    /// Refused for what was sent.
    Refused,
    /// The delivery is over, or the platform refuses.
    Denied,
    /// Of the agent: the answer is about another task.
    Foreign,
    /// Of the agent: what it grants has ended.
    Expired,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Open,
    Succeeded(String),
    Failed(String, String),
    /// By the state itself.
    TimedOut,
}

struct Posted {
    id: String,
    body: String,
    visible_at: BootTime,
    deliveries: u32,
    is_deleted: bool,
}

#[derive(Default)]
struct Inner {
    messages: Vec<Posted>,
    tasks: HashMap<String, Standing>,
    beats_under_way: HashMap<String, u32>,
    unsure: Vec<String>,
    protected_until: Option<BootTime>,
    runs: u32,
    /// When a run went on without protection, for each stretch.
    scripts: HashMap<&'static str, VecDeque<Fault>>,
    log: Vec<(Duration, String)>,
    wrongs: Vec<String>,
}

/// All three services.
pub(crate) struct World {
    pub(crate) clock: Arc<TokioClock>,
    began: BootTime,
    inner: Mutex<Inner>,
    changed: Notify,
    /// Whether a run without protection is wrong.
    pub(crate) needs_protection: bool,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

pub(crate) const VISIBILITY: Duration = Duration::from_mins(1);

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(true)
    }

    pub(crate) fn with(needs_protection: bool) -> Arc<Self> {
        let clock = Arc::new(TokioClock::new());
        Arc::new(Self {
            began: clock.elapsed(),
            clock,
            inner: Mutex::default(),
            changed: Notify::new(),
            needs_protection,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.elapsed().since(self.began)
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        let at = self.now();
        self.lock().log.push((at, what.into()));
        self.changed.notify_waiters();
    }

    fn wrong(&self, what: String) {
        self.lock().wrongs.push(what);
    }

    /// From the next call of that name on.
    pub(crate) fn script(&self, call: &'static str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().scripts.entry(call).or_default().extend(faults);
    }

    /// From here on all goes well.
    pub(crate) fn forget_scripts(&self) {
        self.lock().scripts.clear();
    }

    pub(crate) fn post(&self, body: impl Into<String>) -> usize {
        let now = self.clock.elapsed();
        let mut inner = self.lock();
        let id = format!("m{}", inner.messages.len());
        inner.messages.push(Posted {
            id,
            body: body.into(),
            visible_at: now,
            deliveries: 0,
            is_deleted: false,
        });
        let number = inner.messages.len() - 1;
        drop(inner);
        self.changed.notify_waiters();
        number
    }

    /// A task of that token, and its message.
    pub(crate) fn send(&self, token: &str, does: &str) -> usize {
        self.open(token);
        self.post(format!(
            "{{\"task_token\": \"{token}\", \"does\": \"{does}\"}}"
        ))
    }

    pub(crate) fn open(&self, token: &str) {
        self.lock().tasks.insert(token.to_owned(), Standing::Open);
    }

    /// The state goes on without the worker.
    pub(crate) fn close(&self, token: &str) {
        self.lock()
            .tasks
            .insert(token.to_owned(), Standing::TimedOut);
        self.note(format!("closed {token}"));
    }

    pub(crate) fn standing(&self, token: &str) -> Standing {
        self.lock().tasks[token].clone()
    }

    pub(crate) fn is_deleted(&self, message: usize) -> bool {
        self.lock().messages[message].is_deleted
    }

    pub(crate) fn deliveries(&self, message: usize) -> u32 {
        self.lock().messages[message].deliveries
    }

    pub(crate) fn is_visible(&self, message: usize) -> bool {
        let now = self.clock.elapsed();
        let inner = self.lock();
        let message = &inner.messages[message];
        !message.is_deleted && message.visible_at <= now
    }

    pub(crate) fn is_protected(&self) -> bool {
        let now = self.clock.elapsed();
        self.lock().protected_until.is_some_and(|until| now < until)
    }

    pub(crate) fn running(&self) -> u32 {
        self.lock().runs
    }

    /// What happened, in order, without receives and times.
    pub(crate) fn told(&self) -> Vec<String> {
        let inner = self.lock();
        let entries = inner.log.iter().map(|(_, what)| what.clone());
        entries.filter(|what| what != "receive").collect()
    }

    /// When that happened.
    pub(crate) fn moments(&self, what: &str) -> Vec<Duration> {
        let inner = self.lock();
        let entries = inner.log.iter().filter(|(_, told)| told == what);
        entries.map(|(at, _)| *at).collect()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.moments(what).len()
    }

    /// Waits until that happened so often.
    pub(crate) async fn until(&self, what: &str, times: usize) {
        self.until_true(|world| world.count(what) >= times).await;
    }

    pub(crate) async fn until_true(&self, is: impl Fn(&Self) -> bool) {
        let waited = async {
            loop {
                let changed = self.changed.notified();
                if is(self) {
                    return;
                }
                changed.await;
            }
        };
        let limit = Duration::from_hours(2);
        let came = tokio::time::timeout(limit, waited).await;
        assert!(came.is_ok(), "never came: {:#?}", self.told());
    }

    /// Nothing wrong was seen.
    pub(crate) fn check(&self) {
        let inner = self.lock();
        assert!(
            inner.wrongs.is_empty(),
            "{:#?}\n{:#?}",
            inner.wrongs,
            inner.log
        );
    }

    /// A run begins.
    pub(crate) fn run_begins(&self, token: &str) {
        self.note(format!("run {token}"));
        let is_protected = self.is_protected();
        let mut inner = self.lock();
        inner.runs += 1;
        let deleted = inner
            .messages
            .iter()
            .any(|posted| posted.is_deleted && posted.body.contains(&format!("\"{token}\"")));
        if !deleted {
            inner
                .wrongs
                .push(format!("{token} runs before its message is deleted"));
        }
        if self.needs_protection && !is_protected {
            inner
                .wrongs
                .push(format!("{token} runs without protection"));
        }
    }

    pub(crate) fn run_ends(&self, token: &str) {
        let is_protected = self.is_protected();
        self.note(format!("end {token}"));
        let mut inner = self.lock();
        inner.runs -= 1;
        if self.needs_protection && !is_protected {
            inner
                .wrongs
                .push(format!("{token} ends without protection"));
        }
    }

    /// The fault of this call; one that takes time has taken it.
    async fn fault(&self, call: &'static str) -> Option<Fault> {
        let fault = self.lock().scripts.get_mut(call)?.pop_front()?;
        match fault {
            Fault::Slow(wait) => {
                crate::harness::pass(wait).await;
                None
            }
            Fault::Hangs => std::future::pending().await,
            fault => Some(fault),
        }
    }

    fn final_word(&self, token: &TaskToken, word: Standing) -> Result<(), TaskError> {
        let token = token.expose();
        let mut inner = self.lock();
        if inner.beats_under_way.get(token).copied().unwrap_or(0) > 0 {
            inner
                .wrongs
                .push(format!("a heartbeat of {token} crosses its report"));
        }
        if matches!(word, Standing::Failed(..)) && inner.unsure.iter().any(|t| t == token) {
            inner.wrongs.push(format!(
                "{token} fails after a success that may have been heard"
            ));
        }
        match inner.tasks.get(token) {
            Some(Standing::Open) => {
                inner.tasks.insert(token.to_owned(), word);
                Ok(())
            }
            _ => Err(stale()),
        }
    }

    fn answer(&self, fault: Option<Fault>, token: &TaskToken) -> Option<Result<(), TaskError>> {
        Some(Err(match fault? {
            Fault::Busy => TaskError::of_code("ThrottlingException"),
            Fault::Broken | Fault::Lost => TaskError::Unknown {
                reason: "reset".to_owned(),
            },
            Fault::Closed => {
                self.close(token.expose());
                stale()
            }
            Fault::Refused => TaskError::of_code("InvalidOutput"),
            fault => panic!("no fault of a task: {fault:?}"),
        }))
    }
}

fn stale() -> TaskError {
    TaskError::of_code("TaskTimedOut")
}

fn queue_error(fault: &Fault) -> QueueError {
    match fault {
        Fault::Busy => QueueError::of_code("RequestThrottled"),
        Fault::Denied => QueueError::of_code("ReceiptHandleIsInvalid"),
        Fault::Refused => QueueError::of_code("AccessDenied"),
        _ => QueueError::Unknown {
            reason: "reset".to_owned(),
        },
    }
}

#[async_trait]
impl Queue for World {
    async fn receive(&self, count: u32, wait: Duration) -> Result<Vec<Message>, QueueError> {
        self.note("receive");
        if let Some(fault) = self.fault("receive").await {
            return Err(queue_error(&fault));
        }
        let give_up = self.clock.elapsed() + wait;
        loop {
            let changed = self.changed.notified();
            let now = self.clock.elapsed();
            let mut next = give_up;
            let found: Vec<Message> = {
                let mut inner = self.lock();
                let waiting = inner.messages.iter_mut().filter(|m| !m.is_deleted);
                let mut found = Vec::new();
                for message in waiting {
                    if message.visible_at > now {
                        next = next.min(message.visible_at);
                    } else if found.len() < count as usize {
                        message.visible_at = now + VISIBILITY;
                        message.deliveries += 1;
                        found.push(Message {
                            id: message.id.clone(),
                            receipt: Receipt(format!("{}/{}", message.id, message.deliveries)),
                            body: message.body.clone(),
                            deliveries: message.deliveries,
                        });
                    }
                }
                found
            };
            if !found.is_empty() || now >= give_up {
                return Ok(found);
            }
            let _ = tokio::time::timeout(next.since(now), changed).await;
        }
    }

    async fn delete(&self, receipt: &Receipt) -> Result<(), QueueError> {
        let id = receipt.0.split('/').next().unwrap().to_owned();
        self.note(format!("delete {id}"));
        let fault = self.fault("delete").await;
        if let Some(fault) = fault.as_ref().filter(|fault| **fault != Fault::Lost) {
            return Err(queue_error(fault));
        }
        let mut inner = self.lock();
        let message = inner.messages.iter_mut().find(|m| m.id == id).unwrap();
        if receipt.0 != format!("{id}/{}", message.deliveries) {
            return Err(queue_error(&Fault::Denied));
        }
        message.is_deleted = true;
        match fault {
            Some(fault) => Err(queue_error(&fault)),
            None => Ok(()),
        }
    }

    async fn release(&self, receipt: &Receipt) -> Result<(), QueueError> {
        let id = receipt.0.split('/').next().unwrap().to_owned();
        self.note(format!("release {id}"));
        if let Some(fault) = self.fault("release").await {
            return Err(queue_error(&fault));
        }
        let now = self.clock.elapsed();
        let mut inner = self.lock();
        let message = inner.messages.iter_mut().find(|m| m.id == id).unwrap();
        message.visible_at = now;
        drop(inner);
        self.changed.notify_waiters();
        Ok(())
    }

    async fn attributes(&self) -> Result<QueueAttributes, QueueError> {
        Ok(QueueAttributes {
            visibility: VISIBILITY,
            retention: Duration::from_hours(96),
            deliveries_max: None,
            is_fifo: false,
        })
    }
}

/// A heartbeat on its way.
struct Beating<'w>(&'w World, String);

impl<'w> Beating<'w> {
    fn begin(world: &'w World, token: &TaskToken) -> Self {
        let token = token.expose().to_owned();
        let mut inner = world.lock();
        *inner.beats_under_way.entry(token.clone()).or_default() += 1;
        let is_told = matches!(
            inner.tasks.get(&token),
            Some(Standing::Succeeded(_) | Standing::Failed(..))
        );
        if is_told {
            inner
                .wrongs
                .push(format!("a heartbeat of {token} after its report"));
        }
        drop(inner);
        Self(world, token)
    }
}

impl Drop for Beating<'_> {
    fn drop(&mut self) {
        *self.0.lock().beats_under_way.get_mut(&self.1).unwrap() -= 1;
    }
}

#[async_trait]
impl Tasks for World {
    async fn heartbeat(&self, token: &TaskToken) -> Result<(), TaskError> {
        self.note(format!("heartbeat {}", token.expose()));
        let _under_way = Beating::begin(self, token);
        let fault = self.fault("heartbeat").await;
        if let Some(answer) = self.answer(fault, token) {
            return answer;
        }
        match self.lock().tasks.get(token.expose()) {
            Some(Standing::Open) => Ok(()),
            _ => Err(stale()),
        }
    }

    async fn succeed(&self, token: &TaskToken, output: &str) -> Result<(), TaskError> {
        let name = token.expose().to_owned();
        self.note(format!("succeed {name}"));
        assert!(output.len() <= 262_144, "the service takes no more");
        let fault = self.fault("succeed").await;
        let word = Standing::Succeeded(output.to_owned());
        if fault == Some(Fault::Lost) {
            self.final_word(token, word).unwrap();
            self.lock().unsure.push(name);
            return self.answer(fault, token).unwrap();
        }
        if fault == Some(Fault::Broken) {
            self.lock().unsure.push(name);
        }
        if let Some(answer) = self.answer(fault, token) {
            return answer;
        }
        self.final_word(token, word)
    }

    async fn fail(&self, token: &TaskToken, error: &str, cause: &str) -> Result<(), TaskError> {
        self.note(format!("fail {} {error}", token.expose()));
        assert!(error.len() <= 256 && cause.len() <= 32_768 && !error.starts_with("States."));
        let fault = self.fault("fail").await;
        let word = Standing::Failed(error.to_owned(), cause.to_owned());
        if fault == Some(Fault::Lost) {
            self.final_word(token, word)?;
            return self.answer(fault, token).unwrap();
        }
        if let Some(answer) = self.answer(fault, token) {
            return answer;
        }
        self.final_word(token, word)
    }
}

#[async_trait]
impl Agent for World {
    async fn protect(&self, minutes: u32) -> Result<Protected, AgentError> {
        assert!((1..=2_880).contains(&minutes));
        self.note("protect");
        let fault = self.fault("protect").await;
        let until = self.clock.elapsed() + Duration::from_secs(u64::from(minutes) * 60);
        let seconds = i64::from(minutes) * 60;
        let date = self.clock.now() + jiff::SignedDuration::from_secs(seconds);
        let mut granted = Protected {
            until: date,
            task: "arn:1".to_owned(),
        };
        match fault {
            None => {}
            Some(Fault::Busy) => {
                let reason = "ThrottlingException".to_owned();
                return Err(AgentError::Throttled { reason });
            }
            Some(Fault::Denied) => {
                let reason = "DEPLOYMENT_BLOCKED".to_owned();
                return Err(AgentError::Refused { reason });
            }
            Some(Fault::Foreign) => granted.task = "arn:2".to_owned(),
            Some(Fault::Expired) => granted.until = self.clock.now(),
            Some(fault) => {
                if fault == Fault::Lost {
                    self.lock().protected_until = Some(until);
                }
                let reason = "canceled".to_owned();
                return Err(AgentError::Unknown { reason });
            }
        }
        self.lock().protected_until = Some(until);
        Ok(granted)
    }

    async fn unprotect(&self) -> Result<(), AgentError> {
        self.note("unprotect");
        let runs = self.running();
        if runs > 0 {
            self.wrong(format!("protection is given up while {runs} run"));
        }
        match self.fault("unprotect").await {
            None => {
                self.lock().protected_until = None;
                Ok(())
            }
            Some(_) => Err(AgentError::Unknown {
                reason: "canceled".to_owned(),
            }),
        }
    }
}
