//! Why an item is where it is, in words, with the next thing to do.

use jiff::Timestamp;
use leasehold_core::store::liveness::LiveWorker;
use leasehold_core::store::work::PausedLane;
use leasehold_core::time::age;
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
        next,
    }
}

fn queued(
    item: &WorkItem,
    now: Timestamp,
    paused: &[PausedLane],
    workers: &[LiveWorker],
) -> (Vec<String>, Option<String>) {
    let mut reasons = Vec::new();
    let mut next = None;
    if let Some(pause) = paused.iter().find(|pause| pause.lane == item.lane) {
        reasons.push(format!(
            "the lane {} is paused since {}: {}",
            pause.lane, pause.since, pause.reason
        ));
        next = Some(format!("resume the lane {}", pause.lane));
    }
    let on_lane = |worker: &&LiveWorker| worker.beat.lanes.contains(&item.lane);
    let claiming = |worker: &&LiveWorker| !worker.beat.draining;
    if !workers
        .iter()
        .filter(claiming)
        .any(|worker| on_lane(&worker))
    {
        reasons.push(format!("no live worker claims from the lane {}", item.lane));
        next = next.or_else(|| Some(format!("start a worker for the lane {}", item.lane)));
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
        next = next.or_else(|| Some(format!("deploy a worker that handles {}", item.kind)));
    }
    if item.available_at > now {
        let wait = age(item.available_at, now);
        reasons.push(format!("not before {} (in {wait:.1?})", item.available_at));
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
        let waited = age(now, item.available_at);
        reasons.push(format!("due for {waited:.1?}; waits for a free slot"));
    }
    (reasons, next)
}

fn claimed(item: &WorkItem, now: Timestamp) -> (Vec<String>, Option<String>) {
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
            reasons.push(format!("the lease runs {:.1?} more", age(expires, now)));
        } else {
            reasons.push(format!("the lease ran out {:.1?} ago", age(now, expires)));
            next =
                Some("the next sweep of any live worker recovers it; start one if none is".into());
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

fn failed(item: &WorkItem) -> (Vec<String>, Option<String>) {
    let code = item.failure_code.as_ref().map(FailureCode::as_str);
    let (at, retry) = (item.updated_at, item.id);
    match code {
        Some(FailureCode::CANCELLED) => {
            let reasons = vec![format!("cancelled at {at}")];
            return (reasons, Some(format!("to run it after all, retry {retry}")));
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
    let next = format!("correct the cause, then retry {retry}");
    (reasons, Some(next))
}

#[cfg(test)]
mod tests;
