//! The settle writer: what piles up while a write is under way goes together in the next.

use std::time::Duration;

use leasehold::worker::dispatch::{Event as Heard, SettleAnswer};
use leasehold_core::rules::{RetryPolicy, retry_delay};

use super::Settling;
use crate::sim::World;
use crate::sim::agenda::{Event, Inner, Who};
use crate::sim::wire::{Answer, Request, settle_patience};

/// After a settle that failed, as the runtime has it.
const SETTLE_BACKOFF: RetryPolicy = RetryPolicy {
    base: Duration::from_millis(50),
    cap: Duration::from_secs(2),
    jitter: 0.5,
};

/// How long after its lease a hand-back is still asked for, as the runtime has it.
const HAND_BACK_BEYOND_LEASE: Duration = Duration::from_mins(10);

impl World {
    pub(super) fn write_settles(&mut self, who: Who) {
        let Some(process) = self.process(who) else {
            return;
        };
        if process.settling.is_some() || process.to_settle.is_empty() {
            return;
        }
        let mut batch = std::mem::take(&mut process.to_settle);
        batch.sort_unstable_by_key(|settlement| settlement.hold);
        process.settling = Some(Settling {
            call: None,
            batch,
            failures: 0,
        });
        self.attempt_settle(who);
    }

    fn attempt_settle(&mut self, who: Who) {
        let now = self.agenda.now;
        let Some(process) = self.process(who) else {
            return;
        };
        let Some(settling) = &process.settling else {
            return;
        };
        let batch = settling.batch.clone();
        let ends = batch
            .iter()
            .filter_map(|settlement| process.leases.over_at(&settlement.hold));
        let patience = settle_patience(ends, now);
        let call = self.send(who, Request::Settle(batch), patience);
        if let Some(settling) = self
            .process(who)
            .and_then(|process| process.settling.as_mut())
        {
            settling.call = Some(call);
        }
    }

    /// Gives up what is over, and asks again for the rest.
    pub(super) fn settles_again(&mut self, who: Who) {
        let now = self.agenda.now;
        let Some(process) = self.process(who) else {
            return;
        };
        let Some(settling) = &mut process.settling else {
            return;
        };
        let leases = &process.leases;
        let (left, over): (Vec<_>, Vec<_>) = std::mem::take(&mut settling.batch)
            .into_iter()
            .partition(|settlement| {
                let beyond = if settlement.transition.needs_live_lease() {
                    Duration::ZERO
                } else {
                    HAND_BACK_BEYOND_LEASE
                };
                leases
                    .over_at(&settlement.hold)
                    .is_some_and(|over| now < over + beyond)
            });
        let is_empty = left.is_empty();
        settling.batch = left;
        if is_empty {
            process.settling = None;
        }
        for settlement in over {
            self.hear(who, Heard::Settled(settlement.hold, SettleAnswer::GivenUp));
        }
        if is_empty {
            self.wake_loop(who, now);
        } else {
            self.attempt_settle(who);
        }
    }

    pub(super) fn take_settled(&mut self, who: Who, answer: Answer) {
        let Some(process) = self.process(who) else {
            return;
        };
        let Some(settling) = process.settling.as_mut() else {
            return;
        };
        settling.call = None;
        if let Answer::Settle(answers) = answer {
            let batch = std::mem::take(&mut settling.batch);
            process.settling = None;
            for (settlement, answer) in batch.into_iter().zip(answers) {
                let answer = SettleAnswer::Answered(answer);
                self.hear(who, Heard::Settled(settlement.hold, answer));
            }
        } else {
            settling.failures += 1;
            let failures = settling.failures;
            let wait = retry_delay(failures, &SETTLE_BACKOFF, self.dice.share());
            self.after(wait, Event::Within(who, Inner::SettlesAgain));
        }
    }
}
