//! A message's way to a run: each step is confirmed before the next, and what cannot go on goes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::FailureCode;
use leasehold::core::rules::{RetryPolicy, retry_delay};
use leasehold::core::{BootTime, NewItem, OpContext, OrgId, RequestContext, RequestId, UserId};
use leasehold_fence::protocol::Level;

use crate::calls::{Message, QueueError, Receipt, TaskError};
use crate::desk::{Place, Standing, Task};
use crate::envelope::{self, Envelope, Malformed};
use crate::report::Report;
use crate::routes::Unrouted;
use crate::settings::CALL_PATIENCE;
use crate::source::Inner;
use crate::token::TaskToken;

/// A step is tried so often before the message goes back. Together the tries of all steps take less than
/// the least visibility that `doctor` accepts.
const TRIES_MAX: u32 = 3;

/// Between two tries of a step.
const BACKOFF: RetryPolicy = RetryPolicy {
    base: Duration::from_millis(200),
    cap: Duration::from_secs(2),
    jitter: 0.5,
};

/// Why a message does not come to a run here.
enum Halt {
    /// It cannot be worked on now: others may have it.
    Back,
    /// It is over: nobody shall have it again.
    Delete,
    /// Somebody else has it by now.
    LeaveAlone,
}

/// Takes one message as far as it comes.
pub(crate) async fn pick_up(inner: Arc<Inner>, message: Message, mut place: Place) {
    match prepare(&inner, &message, &mut place).await {
        Ok(task) => {
            inner.troubles.store(0, Ordering::Release);
            let task = Arc::new(task);
            place.lay_out(task.clone());
            inner.hint.notify_one();
            see_taken(&inner, &task).await;
        }
        Err(halt) => {
            match halt {
                Halt::Back => back(inner.clone(), message).await,
                Halt::Delete => {
                    let _ = delete(&inner, &message.receipt).await;
                }
                Halt::LeaveAlone => {}
            }
            drop(place);
            inner.room.notify_one();
        }
    }
}

/// Makes a message visible again; if that fails it becomes visible by itself.
pub(crate) async fn back(inner: Arc<Inner>, message: Message) {
    inner.event("sent_back");
    let released = bounded(inner.queue.release(&message.receipt)).await;
    if let Err(error) = released {
        tracing::warn!(message = message.id, %error, "a message could not be made visible again; it will be");
    }
}

async fn prepare(inner: &Arc<Inner>, message: &Message, place: &mut Place) -> Result<Task, Halt> {
    let envelope = Envelope::parse(&message.body, &inner.settings.token_field);
    let envelope = match envelope {
        Ok(envelope) => envelope,
        Err(malformed) => return Err(refuse(inner, message, malformed).await),
    };
    going(inner)?;
    if !place.of(&envelope.token) {
        // Queues deliver twice on rare occasions, and this worker has it in hand.
        inner.event("copies");
        tracing::info!(
            message = message.id,
            "a second copy of a message in hand is dropped"
        );
        return Err(Halt::Delete);
    }
    let route = match inner.routes.select(&envelope.request) {
        Ok(route) => route,
        Err(unrouted) => return Err(fail(inner, message, &envelope.token, unrouted).await),
    };
    let beaten_at = beat(inner, message, &envelope.token).await?;
    going(inner)?;
    let Ok(share) = inner.protection.acquire().await else {
        inner.is_troubled.store(true, Ordering::Release);
        return Err(Halt::Back);
    };
    going(inner)?;
    match delete(inner, &message.receipt).await {
        Ok(()) => {}
        Err(QueueError::NotOurs { code }) => {
            inner.event("delivery_over");
            tracing::warn!(
                message = message.id,
                code,
                "a message is somebody else's by now; not begun"
            );
            return Err(Halt::LeaveAlone);
        }
        Err(error) => {
            inner.event("delete_unconfirmed");
            inner.is_troubled.store(true, Ordering::Release);
            tracing::warn!(message = message.id, %error, "a message could not be deleted; not begun");
            return Err(Halt::Back);
        }
    }
    let Envelope { token, request } = envelope;
    let now = inner.clock.now();
    let mut new = NewItem::new(route.kind, request, now);
    // The state counts its tries, and no count here ends them.
    new.max_attempts = u32::MAX;
    let mut item = new.into_row(now);
    item.attempts = 1;
    let Some(context) = context(inner).await else {
        // The one org is never gone.
        tell_failure(inner, message, &token, FailureCode::RELEASED, "no context").await;
        return Err(Halt::LeaveAlone);
    };
    tracing::info!(message = message.id, item = %item.id, kind = %item.kind, "a task is taken");
    Ok(Task::new(
        token,
        message.id.clone(),
        item,
        context,
        beaten_at,
        share,
    ))
}

async fn context(inner: &Inner) -> Option<OpContext> {
    let run = RequestContext::new(RequestId::mint(), inner.app()?);
    let context = inner
        .tenancy
        .claim_context(&run, OrgId::SINGLE, UserId::NIL, RequestId::NIL);
    context.await.ok()
}

fn going(inner: &Inner) -> Result<(), Halt> {
    if inner.stop.is_cancelled() {
        Err(Halt::Back)
    } else {
        Ok(())
    }
}

/// A message that is none: told if anybody can be, and deleted either way.
async fn refuse(inner: &Inner, message: &Message, malformed: Malformed) -> Halt {
    let Malformed { token, reason } = malformed;
    inner.event("malformed");
    tracing::error!(
        message = message.id,
        reason,
        bytes = message.body.len(),
        shape = envelope::shape(&message.body),
        answerable = token.is_some(),
        "a message is malformed"
    );
    if let Some(token) = token {
        tell_failure(
            inner,
            message,
            &token,
            FailureCode::MALFORMED_MESSAGE,
            &reason,
        )
        .await;
    }
    Halt::Delete
}

/// A request that no handler is given.
async fn fail(inner: &Inner, message: &Message, token: &TaskToken, unrouted: Unrouted) -> Halt {
    let Unrouted {
        error,
        message: reason,
        level,
    } = unrouted;
    inner.event(if error == FailureCode::MALFORMED_MESSAGE {
        "malformed"
    } else {
        "unrouted"
    });
    let id = &message.id;
    match level {
        Level::Error => tracing::error!(message = id, error, reason, "a task is refused"),
        Level::Warn => tracing::warn!(message = id, error, reason, "a task is refused"),
        Level::Info => tracing::info!(message = id, error, reason, "a task is refused"),
        Level::Debug => tracing::debug!(message = id, error, reason, "a task is refused"),
    }
    tell_failure(inner, message, token, &error, &reason).await;
    Halt::Delete
}

/// Best effort: if nothing is accepted, the state's heartbeat ends the try.
async fn tell_failure(
    inner: &Inner,
    message: &Message,
    token: &TaskToken,
    error: &str,
    cause: &str,
) {
    let Report::Failure { error, cause } = Report::failure(error, cause) else {
        return;
    };
    let (error, cause) = (&error, &cause);
    match say(inner, token, Word::Failure { error, cause }).await {
        Ok(_) => inner.event("failed"),
        Err(TaskError::Stale { code }) => {
            inner.event("report_closed");
            tracing::info!(message = message.id, code, "the task was closed before");
        }
        Err(problem) => {
            inner.event("report_failed");
            tracing::warn!(message = message.id, error, %problem, "a failure was not accepted");
        }
    }
}

/// The first heartbeat, before anything is done: a message that waited too long is stale on arrival.
async fn beat(inner: &Inner, message: &Message, token: &TaskToken) -> Result<BootTime, Halt> {
    match say(inner, token, Word::Heartbeat).await {
        Ok(sent) => Ok(sent),
        Err(TaskError::Stale { code }) => {
            inner.event("stale");
            tracing::info!(
                message = message.id,
                code,
                "a message is stale on arrival; dropped"
            );
            Err(Halt::Delete)
        }
        Err(error) => {
            inner.event("heartbeat_failed");
            inner.is_troubled.store(true, Ordering::Release);
            tracing::warn!(message = message.id, %error, "no heartbeat was accepted; the message goes back");
            Err(Halt::Back)
        }
    }
}

async fn delete(inner: &Inner, receipt: &Receipt) -> Result<(), QueueError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match bounded(inner.queue.delete(receipt)).await {
            Err(error @ (QueueError::Busy { .. } | QueueError::Unknown { .. })) => error,
            answer => return answer,
        };
        if tries >= TRIES_MAX {
            return Err(error);
        }
        tokio::time::sleep(retry_delay(tries, &BACKOFF, fastrand::f64())).await;
    }
}

/// A task that was laid out belongs to nobody's slot yet. If no slot takes it within an interval, or the
/// worker goes, its state is told so, for the message is deleted.
async fn see_taken(inner: &Inner, task: &Arc<Task>) {
    let course = tokio::select! {
        biased;
        () = inner.stop.cancelled() => FailureCode::WORKER_STOPPING,
        () = tokio::time::sleep(inner.settings.heartbeat_interval) => FailureCode::RELEASED,
    };
    if !inner.desk.withdraw(task) {
        return;
    }
    task.said().standing = Standing::Silent;
    let note = if course == FailureCode::RELEASED {
        "no slot was free"
    } else {
        "worker stopping"
    };
    let report = Report::failure(course, note);
    if let Report::Failure { error, cause } = &report {
        match say(inner, &task.token, Word::Failure { error, cause }).await {
            Ok(_) => inner.event("failed"),
            Err(problem) => {
                inner.event("report_failed");
                tracing::warn!(message = task.message, error, %problem, "a task was not begun, and its state could not be told");
            }
        }
    }
    task.give_up_share();
    inner.room.notify_one();
}

/// A word about a task that may be said again.
#[derive(Clone, Copy)]
pub(crate) enum Word<'w> {
    Heartbeat,
    Failure { error: &'w str, cause: &'w str },
}

/// Says it, again while that may help. When the word that was accepted was sent.
pub(crate) async fn say(
    inner: &Inner,
    token: &TaskToken,
    word: Word<'_>,
) -> Result<BootTime, TaskError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let sent = inner.clock.elapsed();
        let answer = match word {
            Word::Heartbeat => bounded_task(inner.tasks.heartbeat(token)).await,
            Word::Failure { error, cause } => {
                bounded_task(inner.tasks.fail(token, error, cause)).await
            }
        };
        let error = match answer {
            Ok(()) => return Ok(sent),
            Err(error @ (TaskError::Busy { .. } | TaskError::Unknown { .. })) => error,
            Err(error) => return Err(error),
        };
        if tries >= TRIES_MAX {
            return Err(error);
        }
        tokio::time::sleep(retry_delay(tries, &BACKOFF, fastrand::f64())).await;
    }
}

async fn bounded(call: impl Future<Output = Result<(), QueueError>>) -> Result<(), QueueError> {
    tokio::time::timeout(CALL_PATIENCE, call)
        .await
        .unwrap_or_else(|_| {
            let reason = format!("no answer within {CALL_PATIENCE:?}");
            Err(QueueError::Unknown { reason })
        })
}

/// No word about a task is waited for longer.
pub(crate) async fn bounded_task(
    call: impl Future<Output = Result<(), TaskError>>,
) -> Result<(), TaskError> {
    tokio::time::timeout(CALL_PATIENCE, call)
        .await
        .unwrap_or_else(|_| {
            let reason = format!("no answer within {CALL_PATIENCE:?}");
            Err(TaskError::Unknown { reason })
        })
}
