//! Why an item is where it is, in words, with the next thing to do.

use jiff::Timestamp;
use leasehold_core::store::liveness::LiveWorker;
use leasehold_core::store::work::PausedLane;
use leasehold_core::time::{age, short_length};
use leasehold_core::{FailureCode, Status, WorkItem};

/// What there is to say of one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The item.
    pub item: WorkItem,
    /// The store's now.
    pub now: Timestamp,
    /// Why it is where it is, most important first; never empty.
    pub reasons: Vec<String>,
    /// What a person may do, if anything.
    pub next: Option<String>,
    /// Whether `next` comes to a retry of the item ([`Client::retry`](super::Client::retry)).
    pub next_is_retry: bool,
}

/// What a person may do.
enum Next {
    /// Retry the item, as these words have it.
    Retry(&'static str),
    /// Something else.
    Other(String),
}

pub(super) fn explain(
    item: WorkItem,
    now: Timestamp,
    paused: &[PausedLane],
    workers: &[LiveWorker],
) -> Explanation {
    let (reasons, next) = match item.status {
        Status::Queued => queued(&item, now, paused, workers),
        Status::Claimed => claimed(&item, now),
        Status::Done => (vec![format!("done at {}", item.updated_at)], None),
        Status::Failed => failed(&item),
    };
    Explanation {
        item,
        now,
        reasons,
        next_is_retry: matches!(next, Some(Next::Retry(_))),
        next: next.map(|next| match next {
            Next::Retry(words) => words.to_owned(),
            Next::Other(words) => words,
        }),
    }
}

fn queued(
    item: &WorkItem,
    now: Timestamp,
    paused: &[PausedLane],
    workers: &[LiveWorker],
) -> (Vec<String>, Option<Next>) {
    let mut reasons = Vec::new();
    let mut next = None;
    if let Some(pause) = paused.iter().find(|pause| pause.lane == item.lane) {
        reasons.push(format!(
            "the lane {} is paused since {} by {}: {}",
            pause.lane, pause.since, pause.by, pause.reason
        ));
        next = Some(Next::Other(format!("resume the lane {}", pause.lane)));
    }
    let on_lane = |worker: &&LiveWorker| worker.beat.lanes.contains(&item.lane);
    let claiming = |worker: &&LiveWorker| !worker.beat.draining;
    if !workers
        .iter()
        .filter(claiming)
        .any(|worker| on_lane(&worker))
    {
        reasons.push(format!("no live worker claims from the lane {}", item.lane));
        let start = || Next::Other(format!("start a worker for the lane {}", item.lane));
        next = next.or_else(|| Some(start()));
    } else if !workers
        .iter()
        .filter(claiming)
        .filter(on_lane)
        .any(|worker| worker.beat.kinds.contains(&item.kind))
    {
        reasons.push(format!(
            "no live worker of the lane {} knows the kind {}",
            item.lane, item.kind
        ));
        let deploy = || Next::Other(format!("deploy a worker that handles {}", item.kind));
        next = next.or_else(|| Some(deploy()));
    }
    if item.available_at > now {
        let wait = short_length(age(item.available_at, now));
        reasons.push(format!("not before {} (in {wait})", item.available_at));
    }
    if let Some(last) = &item.last_error {
        let failed = item.errors.last().filter(|error| error.message == *last);
        reasons.push(match failed {
            Some(error) => format!(
                "attempt {} of {} ended: {last}",
                error.attempt, item.max_attempts
            ),
            None => format!("handed back: {last}"),
        });
    }
    if reasons.is_empty() {
        let waited = short_length(age(now, item.available_at));
        reasons.push(format!("due for {waited}; waits for a free slot"));
    }
    (reasons, next)
}

fn claimed(item: &WorkItem, now: Timestamp) -> (Vec<String>, Option<Next>) {
    let holder = item
        .claimed_by
        .as_ref()
        .map_or("a worker", |worker| worker.as_str());
    let mut reasons = vec![format!(
        "held by {holder}, attempt {} of {}",
        item.attempts, item.max_attempts
    )];
    let mut next = None;
    if let Some(expires) = item.lease_expires_at {
        if expires > now {
            let left = short_length(age(expires, now));
            reasons.push(format!("the lease runs {left} more"));
        } else {
            let over = short_length(age(now, expires));
            reasons.push(format!("the lease ran out {over} ago"));
            let words = "the next sweep of any live worker recovers it; start one if none is";
            next = Some(Next::Other(words.to_owned()));
        }
    }
    if let Some(since) = item.cancel_requested_at {
        reasons.push(format!(
            "cancel requested at {since}; told at the next renewal"
        ));
    }
    if let Some(progress) = &item.progress {
        reasons.push(format!("{} %: {}", progress.percent, progress.note));
    }
    (reasons, next)
}

fn failed(item: &WorkItem) -> (Vec<String>, Option<Next>) {
    let code = item.failure_code.as_ref().map(FailureCode::as_str);
    let at = item.updated_at;
    match code {
        Some(FailureCode::CANCELLED) => {
            let reasons = vec![format!("cancelled at {at}")];
            return (reasons, Some(Next::Retry("to run it after all, retry it")));
        }
        Some(FailureCode::ORPHANED) => {
            let reasons = vec![format!("its org was gone at {at}, and its work with it")];
            return (reasons, None);
        }
        _ => {}
    }
    let mut reasons = vec![format!(
        "failed for good at {at} ({}), after {} of {} attempts",
        code.unwrap_or("failed"),
        item.attempts,
        item.max_attempts
    )];
    if item.worker_losses > 0 {
        reasons.push(format!("its worker was lost {} times", item.worker_losses));
    }
    if let Some(error) = &item.last_error {
        reasons.push(error.to_string());
    }
    let next = match code {
        // A retry alone would hand the same payload to the same worker.
        Some(FailureCode::PAYLOAD_INVALID) => {
            "enqueue a corrected item; or deploy a worker that accepts this payload, then retry it"
        }
        _ => "correct the cause, then retry it",
    };
    (reasons, Some(Next::Retry(next)))
}

#[cfg(test)]
mod tests;
