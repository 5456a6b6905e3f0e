//! Claiming: when to ask, for how much, and what an answer means.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rules::{self, RetryPolicy, Transition};
use leasehold_core::store::work::{ClaimRequest, Claimed};
use leasehold_core::{BootTime, ClaimToken, Hold, StoreError};
use uuid::Uuid;

use super::{Action, Dispatch, Run, State, StopReason};

/// One claim asks for no more: while a large worker starts what one claim brought, the store is at the
/// next, and neither waits for the other.
const LIMIT_MAX: u32 = 500;

/// After a claim that failed, the next waits this long, doubled each time up to the cap, which is long
/// enough to spare a store that is down and short enough to resume within seconds.
const BACKOFF: RetryPolicy = RetryPolicy {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(5),
    jitter: 0.5,
};

/// Both sides of a suspend or a clock jump wake together; holders stop or renew first.
const PAUSE_AFTER_JUMP: Duration = Duration::from_secs(2);

/// What is known about work to be had.
pub(super) struct Claim {
    /// A request under way, or one whose answer was lost.
    asked: Option<Asked>,
    under_way: bool,
    /// A hint came, a slot was freed, or the poll is due, since the last claim was sent.
    woken: bool,
    /// The last answer was full: there is probably more.
    more: bool,
    poll_at: BootTime,
    not_before: BootTime,
    failures: u32,
}

#[derive(Clone, Copy)]
struct Asked {
    token: ClaimToken,
    first_sent: BootTime,
    limit: u32,
}

impl Claim {
    pub(super) const fn due_at(now: BootTime) -> Self {
        Self {
            asked: None,
            under_way: false,
            woken: true,
            more: false,
            poll_at: now,
            not_before: now,
            failures: 0,
        }
    }

    pub(super) const fn wake(&mut self) {
        self.woken = true;
    }

    pub(super) fn pause_after_jump(&mut self, now: BootTime) {
        self.not_before = self.not_before.max(now + PAUSE_AFTER_JUMP);
    }

    /// Whether nothing may be held of which nobody here knows.
    pub(super) const fn is_answered(&self) -> bool {
        self.asked.is_none()
    }
}

impl Dispatch {
    /// How many items a claim may ask for. Items that wait to be settled take no slot, but no more of
    /// them are let pile up than there are slots: a store that cannot settle gets no new claims.
    fn free(&self) -> u32 {
        if self.has_loner() || self.stuck >= self.settings.capacity {
            return 0;
        }
        let slots = self
            .settings
            .capacity
            .saturating_add(self.settings.prefetch);
        let taken = self.occupied.saturating_add(count(self.waiting.len()));
        let held = count(self.runs.len());
        slots
            .saturating_sub(taken)
            .min(slots.saturating_mul(2).saturating_sub(held))
    }

    /// When the next claim is to be sent, unless an event says otherwise.
    pub(super) fn next_claim(&self) -> Option<BootTime> {
        let claim = &self.claim;
        if claim.under_way {
            None
        } else if let Some(asked) = &claim.asked {
            Some(claim.not_before.min(self.window_of(asked)))
        } else if self.drain.is_some() || self.free() == 0 {
            None
        } else if claim.woken || claim.more {
            Some(claim.not_before)
        } else {
            Some(claim.poll_at.max(claim.not_before))
        }
    }

    pub(super) fn ask(&mut self, now: BootTime, out: &mut Vec<Action>) {
        if self.claim.under_way {
            return;
        }
        // An answer that was lost is asked for again with the same token, which finds what was
        // claimed, also in a drain, to hand it back. Past the trust window nothing of it could be run.
        if self
            .claim
            .asked
            .is_some_and(|asked| now >= self.window_of(&asked))
        {
            self.claim.asked = None;
        }
        if now < self.claim.not_before {
            return;
        }
        self.claim.woken |= now >= self.claim.poll_at;
        let Some(asked) = self.claim.asked.or_else(|| self.fresh_claim(now)) else {
            return;
        };
        // Cleared before the claim: a wake that comes while it is under way must not be lost.
        self.claim.woken = false;
        self.claim.asked = Some(asked);
        self.claim.under_way = true;
        self.claim.poll_at = now + self.jittered(self.settings.poll_interval);
        out.push(Action::Claim(ClaimRequest {
            token: asked.token,
            worker: self.settings.worker.clone(),
            lanes: self.settings.lanes.clone(),
            kinds: self.settings.kinds.keys().cloned().collect(),
            lease: self.settings.lease,
            limit: asked.limit,
            tenant_cap: self.settings.tenant_cap,
        }));
    }

    fn fresh_claim(&mut self, now: BootTime) -> Option<Asked> {
        let limit = self.free().min(LIMIT_MAX);
        let wants = self.claim.woken || self.claim.more;
        (self.drain.is_none() && wants && limit > 0).then(|| Asked {
            token: self.chance.token(),
            first_sent: now,
            limit,
        })
    }

    pub(super) fn claimed(
        &mut self,
        now: BootTime,
        answer: Result<Vec<Claimed>, StoreError>,
        out: &mut Vec<Action>,
    ) {
        self.claim.under_way = false;
        let Some(asked) = self.claim.asked else {
            return;
        };
        let items = match answer {
            Ok(items) => items,
            Err(error) => {
                self.claim.failures = self.claim.failures.saturating_add(1);
                let jitter = self.chance.jitter();
                let pause = rules::retry_delay(self.claim.failures, &BACKOFF, jitter);
                // A store that is back is found within a poll interval.
                let soon = self
                    .settings
                    .poll_interval
                    .mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0);
                let pause = pause.min(soon);
                self.claim.not_before = self.claim.not_before.max(now + pause);
                self.claim.wake();
                if !error.is_passing() {
                    self.claim.asked = None;
                }
                return;
            }
        };
        self.claim.asked = None;
        self.claim.failures = 0;
        self.claim.more = count(items.len()) >= asked.limit;
        if items.is_empty() {
            return;
        }
        let holds = items
            .iter()
            .map(|claimed| hold_of(claimed, asked.token))
            .collect();
        out.push(Action::Hold {
            holds,
            sent: asked.first_sent,
        });
        let is_late = now >= self.window_of(&asked);
        for claimed in items {
            let hold = hold_of(&claimed, asked.token);
            self.take_up(now, hold, claimed, out);
            if is_late {
                self.stop(hold, StopReason::LeaseDoubted, now, out);
            } else if self.drain.is_some() {
                self.stop(hold, StopReason::Drain, now, out);
            }
        }
    }

    /// Lines a claimed item up to run, or hands it back if it cannot.
    fn take_up(&mut self, now: BootTime, hold: Hold, claimed: Claimed, out: &mut Vec<Action>) {
        let is_known = self.settings.kinds.contains_key(&claimed.item.kind);
        let runs_alone = rules::runs_alone(&claimed.item);
        let still_runs = self.supersede(now, hold, out);
        let run = Run {
            claimed: Arc::new(claimed),
            state: State::Waiting,
            stop: None,
            timer: None,
        };
        self.runs.insert(hold, run);
        if !is_known {
            self.write(hold, released_for(UNKNOWN_KIND_NOTE), out);
        } else if still_runs {
            self.write(hold, released_for(STILL_RUNS_NOTE), out);
        } else if runs_alone && self.has_loner() {
            self.write(hold, released_for(LONER_NOTE), out);
        } else if runs_alone {
            self.waiting_alone = Some(hold);
        } else {
            self.waiting.push_back(hold);
        }
    }

    /// Whether an item is held that must run with no other beside it.
    const fn has_loner(&self) -> bool {
        self.waiting_alone.is_some() || self.running_alone.is_some()
    }

    /// Stops what this worker still does under older holds on the item. Whether any of it goes on and
    /// will end: what is stuck may never do, here as little as in another worker.
    fn supersede(&mut self, now: BootTime, hold: Hold, out: &mut Vec<Action>) -> bool {
        let first = Hold {
            token: ClaimToken::new(Uuid::nil()),
            ..hold
        };
        let last = Hold {
            token: ClaimToken::new(Uuid::max()),
            ..hold
        };
        let older: Vec<Hold> = self
            .runs
            .range(first..=last)
            .map(|(held, _)| *held)
            .collect();
        for held in &older {
            self.stop(*held, StopReason::LeaseLost, now, out);
        }
        older.iter().any(|held| {
            self.runs
                .get(held)
                .is_some_and(|run| run.occupies() && run.state != State::Stuck)
        })
    }

    /// Until when a claim's answer can still be of use.
    fn window_of(&self, asked: &Asked) -> BootTime {
        asked.first_sent + rules::trust_ends_after(self.settings.lease)
    }

    /// Up to a tenth more or less, so that workers started together part.
    fn jittered(&mut self, interval: Duration) -> Duration {
        interval.mul_f64(0.9 + 0.2 * self.chance.jitter().clamp(0.0, 1.0))
    }
}

const UNKNOWN_KIND_NOTE: &str = "this worker does not know the kind";
const LONER_NOTE: &str = "this worker holds another last attempt, which runs alone";
const STILL_RUNS_NOTE: &str = "this worker still runs an earlier attempt of the item";

/// For another worker to take, and not at once: the next claim may well be this worker's own.
fn released_for(note: &'static str) -> Transition {
    Transition::Release {
        note: note.into(),
        delay: rules::HAND_BACK_DELAY_MIN,
    }
}

fn hold_of(claimed: &Claimed, token: ClaimToken) -> Hold {
    Hold {
        org_id: claimed.org_id,
        item_id: claimed.item.id,
        token,
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
