//! The desk: which messages are on their way to a run, which wait to be taken, and which are held.
//!
//! The worker says with each claim how many it could take. Of these, some are being picked up and some
//! are ready; no more are received than are left, so that nothing waits for a slot.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::core::store::work::{ClaimRequest, Claimed};
use leasehold::core::{BootTime, ClaimToken, Hold, OpContext, OrgId, WorkItem};

use crate::protection::Share;
use crate::report::Report;
use crate::token::TaskToken;

/// A task that a worker holds, or is about to.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) token: TaskToken,
    /// The message's name, for logs.
    pub(crate) message: String,
    pub(crate) item: WorkItem,
    pub(crate) context: OpContext,
    /// Held for each word about the task: no heartbeat is under way when the last one is said.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) said: Mutex<Said>,
    /// Given up with the task.
    share: Mutex<Option<Share>>,
}

/// What was said about a task.
#[derive(Debug)]
pub(crate) struct Said {
    /// When the last accepted heartbeat was sent.
    pub(crate) beaten_at: BootTime,
    /// The last word, from the moment it is decided: no heartbeat follows.
    pub(crate) report: Option<Report>,
    /// A success may have been accepted: no failure follows.
    pub(crate) success_is_open: bool,
    pub(crate) standing: Standing,
}

/// Whether there is more to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Open,
    /// The token was found dead: nothing is said any more.
    Stale,
    /// The last word was accepted.
    Told,
    /// The last word was refused, or is not worth saying.
    Silent,
}

impl Task {
    pub(crate) fn new(
        token: TaskToken,
        message: String,
        item: WorkItem,
        context: OpContext,
        beaten_at: BootTime,
        share: Share,
    ) -> Self {
        Self {
            token,
            message,
            item,
            context,
            turn: tokio::sync::Mutex::new(()),
            said: Mutex::new(Said {
                beaten_at,
                report: None,
                success_is_open: false,
                standing: Standing::Open,
            }),
            share: Mutex::new(Some(share)),
        }
    }

    pub(crate) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of it runs any more.
    pub(crate) fn give_up_share(&self) {
        drop(
            self.share
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

#[derive(Debug, Default)]
pub(crate) struct Desk {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How many the worker could take when it last asked, less what it was given since.
    wanted: u32,
    /// Messages asked for, or being picked up.
    picking: u32,
    ready: VecDeque<Arc<Task>>,
    held: HashMap<Hold, Arc<Task>>,
    /// Tokens being picked up, ready or held: a second copy of a message finds its own here.
    tokens: HashSet<TaskToken>,
}

/// A place for one message on its way to a run. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Place {
    desk: Arc<Desk>,
    token: Option<TaskToken>,
    is_taken_over: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places for up to `most` messages.
    pub(crate) fn reserve(self: &Arc<Self>, most: u32) -> Vec<Place> {
        let mut inner = self.lock();
        let ready = u32::try_from(inner.ready.len()).unwrap_or(u32::MAX);
        let room = inner
            .wanted
            .saturating_sub(inner.picking.saturating_add(ready));
        let count = room.min(most);
        inner.picking += count;
        drop(inner);
        (0..count)
            .map(|_| Place {
                desk: self.clone(),
                token: None,
                is_taken_over: false,
            })
            .collect()
    }

    /// What the request may take. The same token again finds what it took.
    pub(crate) fn take(&self, request: &ClaimRequest) -> Vec<(Claimed, OpContext)> {
        let mut inner = self.lock();
        let again: Vec<_> = inner
            .held
            .iter()
            .filter(|(hold, _)| hold.token == request.token)
            .map(|(_, task)| handed(task, request.token))
            .collect();
        if !again.is_empty() {
            return again;
        }
        let count = inner.ready.len().min(request.limit as usize);
        let taken: Vec<Arc<Task>> = inner.ready.drain(..count).collect();
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        inner.wanted = request.limit - count;
        taken
            .into_iter()
            .map(|task| {
                let given = handed(&task, request.token);
                let hold = Hold {
                    org_id: OrgId::SINGLE,
                    item_id: task.item.id,
                    token: request.token,
                };
                inner.held.insert(hold, task);
                given
            })
            .collect()
    }

    /// Takes back what nobody took; `false` if somebody did.
    pub(crate) fn withdraw(&self, task: &Arc<Task>) -> bool {
        let mut inner = self.lock();
        let before = inner.ready.len();
        inner.ready.retain(|ready| !Arc::ptr_eq(ready, task));
        let is_withdrawn = inner.ready.len() < before;
        if is_withdrawn {
            inner.tokens.remove(&task.token);
        }
        is_withdrawn
    }

    pub(crate) fn held(&self, hold: &Hold) -> Option<Arc<Task>> {
        self.lock().held.get(hold).cloned()
    }

    pub(crate) fn forget(&self, hold: &Hold) -> Option<Arc<Task>> {
        let mut inner = self.lock();
        let task = inner.held.remove(hold)?;
        inner.tokens.remove(&task.token);
        Some(task)
    }

    /// Everything that is still held, given up.
    pub(crate) fn clear(&self) -> Vec<Arc<Task>> {
        let mut inner = self.lock();
        inner.tokens.clear();
        inner.held.drain().map(|(_, task)| task).collect()
    }
}

impl Place {
    /// Notes which task is picked up here; `false` if another place, or a run, has it already.
    pub(crate) fn of(&mut self, token: &TaskToken) -> bool {
        let mut inner = self.desk.lock();
        if inner.tokens.contains(token) {
            return false;
        }
        inner.tokens.insert(token.clone());
        self.token = Some(token.clone());
        true
    }

    /// Lays the task out to be taken.
    pub(crate) fn lay_out(mut self, task: Arc<Task>) {
        let mut inner = self.desk.lock();
        inner.picking -= 1;
        inner.ready.push_back(task);
        drop(inner);
        self.is_taken_over = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_taken_over {
            return;
        }
        let mut inner = self.desk.lock();
        inner.picking -= 1;
        if let Some(token) = &self.token {
            inner.tokens.remove(token);
        }
    }
}

fn handed(task: &Task, token: ClaimToken) -> (Claimed, OpContext) {
    let mut item = task.item.clone();
    item.claim_token = Some(token);
    let claimed = Claimed {
        org_id: OrgId::SINGLE,
        item,
    };
    (claimed, task.context.clone())
}
