//! Claiming: when to ask, for how much, and what an answer means.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rules::{self, RetryPolicy, Transition};
use leasehold_core::store::work::{ClaimRequest, Claimed};
use leasehold_core::{BootTime, ClaimToken, Hold, StoreError};
use uuid::Uuid;

use super::{Action, Dispatch, Run, State, StopReason};

/// So many claims may be with the store at once: while what one brought is being taken in, the store is
/// at the next, and neither waits for the other.
const CLAIMS_MAX: usize = 2;

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
    /// Requests under way, and those whose answers were lost. At most [`CLAIMS_MAX`].
    asked: Vec<Asked>,
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
    /// Otherwise its answer was lost.
    under_way: bool,
}

impl Claim {
    pub(super) const fn due_at(now: BootTime) -> Self {
        Self {
            asked: Vec::new(),
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
        self.asked.is_empty()
    }

    /// How many items may still come of what was asked.
    fn expected(&self) -> u32 {
        let limits = self.asked.iter().map(|asked| asked.limit);
        limits.fold(0, u32::saturating_add)
    }
}

impl Dispatch {
    /// How many more items may be asked for. Items that wait to be settled take no slot, but no more of
    /// them are let pile up than there are slots: a store that cannot settle gets no new claims.
    fn free(&self) -> u32 {
        if self.has_loner() || self.stuck >= self.settings.capacity {
            return 0;
        }
        let slots = self
            .settings
            .capacity
            .saturating_add(self.settings.prefetch);
        let expected = self.claim.expected();
        let taken = self.occupied.saturating_add(count(self.waiting.len()));
        let held = count(self.runs.len());
        slots
            .saturating_sub(taken)
            .min(slots.saturating_mul(2).saturating_sub(held))
            .saturating_sub(expected)
    }

    /// How many items the next claim is for, once there is a reason for it; `None` if there is no room.
    ///
    /// A second one beside another goes out only for as many as one may bring and where the last brought
    /// as many: small ones would cost the store more than they save.
    fn room(&self) -> Option<u32> {
        let (free, most) = (self.free(), self.settings.claim_max);
        let has_room = match self.claim.asked.len() {
            0 => free > 0,
            beside => {
                beside < CLAIMS_MAX && self.claim.more && self.claim.failures == 0 && free >= most
            }
        };
        (has_room && self.drain.is_none()).then(|| free.min(most))
    }

    /// When the next claim is to be sent, unless an event says otherwise.
    pub(super) fn next_claim(&self) -> Option<BootTime> {
        let claim = &self.claim;
        let lost = claim.asked.iter().filter(|asked| !asked.under_way);
        let again = lost
            .map(|asked| claim.not_before.min(self.window_of(asked)))
            .min();
        if again.is_some() {
            again
        } else if self.room().is_none() {
            None
        } else if claim.woken || claim.more {
            Some(claim.not_before)
        } else {
            Some(claim.poll_at.max(claim.not_before))
        }
    }

    /// Past the trust window nothing could be run of what a lost answer told.
    pub(super) fn forget_lost_answers(&mut self, now: BootTime) {
        let mut asked = std::mem::take(&mut self.claim.asked);
        asked.retain(|asked| asked.under_way || now < self.window_of(asked));
        self.claim.asked = asked;
    }

    pub(super) fn ask(&mut self, now: BootTime, out: &mut Vec<Action>) {
        if now < self.claim.not_before {
            return;
        }
        // An answer that was lost is asked for again with the same token, which finds what was
        // claimed, also in a drain, to hand it back.
        let lost = self.claim.asked.iter_mut().filter(|asked| !asked.under_way);
        let again: Vec<Asked> = lost
            .map(|asked| {
                asked.under_way = true;
                *asked
            })
            .collect();
        for asked in again {
            self.send(now, asked, out);
        }
        self.claim.woken |= now >= self.claim.poll_at;
        while let Some(asked) = self.fresh_claim(now) {
            self.claim.asked.push(asked);
            self.send(now, asked, out);
        }
    }

    /// The tokens of the claims that wait for an answer, in the order of their first sending.
    #[cfg(test)]
    pub(super) fn claims_under_way(&self) -> impl Iterator<Item = ClaimToken> {
        let under_way = self.claim.asked.iter().filter(|asked| asked.under_way);
        under_way.map(|asked| asked.token)
    }

    fn send(&mut self, now: BootTime, asked: Asked, out: &mut Vec<Action>) {
        // Cleared before the claim: a wake that comes while it is under way must not be lost.
        self.claim.woken = false;
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
        let limit = self.room()?;
        (self.claim.woken || self.claim.more).then(|| Asked {
            token: self.chance.token(),
            first_sent: now,
            limit,
            under_way: true,
        })
    }

    pub(super) fn claimed(
        &mut self,
        now: BootTime,
        token: ClaimToken,
        answer: Result<Vec<Arc<Claimed>>, StoreError>,
        out: &mut Vec<Action>,
    ) {
        let mut asked = self.claim.asked.iter();
        let Some(place) = asked.position(|asked| asked.token == token) else {
            return;
        };
        let items = match answer {
            Ok(items) => items,
            Err(error) => return self.unanswered(now, place, &error),
        };
        let asked = self.claim.asked.remove(place);
        self.claim.failures = 0;
        self.claim.more = count(items.len()) >= asked.limit;
        if items.is_empty() {
            return;
        }
        let holds = items.iter().map(|claimed| hold_of(claimed, token));
        out.push(Action::Hold {
            holds: holds.collect(),
            sent: asked.first_sent,
        });
        let is_late = now >= self.window_of(&asked);
        for claimed in items {
            let hold = hold_of(&claimed, token);
            self.take_up(now, hold, claimed, out);
            if is_late {
                self.stop(hold, StopReason::LeaseDoubted, now, out);
            } else if self.drain.is_some() {
                self.stop(hold, StopReason::Drain, now, out);
            }
        }
    }

    fn unanswered(&mut self, now: BootTime, place: usize, error: &StoreError) {
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
        if error.is_passing() {
            self.claim.asked[place].under_way = false;
        } else {
            self.claim.asked.remove(place);
        }
    }

    /// Lines a claimed item up to run, or hands it back if it cannot.
    fn take_up(&mut self, now: BootTime, hold: Hold, claimed: Arc<Claimed>, out: &mut Vec<Action>) {
        let is_known = self.settings.kinds.contains_key(&claimed.item.kind);
        let runs_alone = rules::runs_alone(&claimed.item);
        let Beside {
            still_runs,
            is_newer,
        } = self.supersede(now, hold, claimed.item.claim_seq, out);
        let run = Run {
            claimed,
            state: State::Waiting,
            stop: None,
            timer: None,
        };
        self.runs.insert(hold, run);
        if is_newer {
            self.drop_lost(hold, out);
        } else if !is_known {
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

    /// Stops what this worker still does under older holds on the item.
    fn supersede(
        &mut self,
        now: BootTime,
        hold: Hold,
        claim_seq: i64,
        out: &mut Vec<Action>,
    ) -> Beside {
        let first = Hold {
            token: ClaimToken::new(Uuid::nil()),
            ..hold
        };
        let last = Hold {
            token: ClaimToken::new(Uuid::max()),
            ..hold
        };
        let mut beside = Beside::default();
        let mut older = Vec::new();
        for (held, run) in self.runs.range(first..=last) {
            if run.claimed.item.claim_seq > claim_seq {
                beside.is_newer = true;
            } else {
                older.push(*held);
            }
        }
        for held in &older {
            self.stop(*held, StopReason::LeaseLost, now, out);
        }
        beside.still_runs = older.iter().any(|held| {
            self.runs
                .get(held)
                .is_some_and(|run| run.occupies() && run.state != State::Stuck)
        });
        beside
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

/// What else this worker holds of an item that it has claimed.
#[derive(Default)]
struct Beside {
    /// An older hold, whose run goes on and will end. What is stuck may never do, here as little as in
    /// another worker.
    still_runs: bool,
    /// A newer hold: of two claims under way the later one may be answered first.
    is_newer: bool,
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
