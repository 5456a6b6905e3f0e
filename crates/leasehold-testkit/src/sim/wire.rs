//! The network between workers and store: latencies, errors, lost answers, black holes.
//!
//! A request travels, takes effect at the store in one moment, and its answer travels back. Each leg
//! may go wrong by itself. A request that was sent arrives even if its sender has died or given up.

use std::time::Duration;

use leasehold_core::store::work::{ClaimRequest, Claimed, Renewal, Renewed, Settled, Settlement};
use leasehold_core::{BootTime, StoreError};

use super::World;
use super::agenda::{CallId, Event, Inner, Who};
use super::rows::Cause;

pub(super) struct Call {
    pub(super) who: Who,
    pub(super) request: Request,
    fate: Fate,
    answer: Option<Answer>,
}

#[derive(Debug)]
pub(super) enum Request {
    Claim(ClaimRequest),
    Renew(Vec<Renewal>),
    Settle(Vec<Settlement>),
}

#[derive(Debug)]
pub(super) enum Answer {
    Claim(Vec<Claimed>),
    Renew(Vec<Renewed>),
    Settle(Vec<Settled>),
    Error(StoreError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    /// It does not take place, and the caller is told so.
    Undone,
    /// The caller is told of an error; it did not take place.
    Failed,
    /// It takes place, and the caller is told of an error.
    AnswerLost,
    /// It does not take place, and the caller hears nothing.
    Swallowed,
    /// It takes place, and the caller hears nothing.
    NeverAnswered,
}

impl World {
    /// Sends a request, for whose answer the caller waits that long.
    pub(super) fn send(&mut self, who: Who, request: Request, patience: Duration) -> CallId {
        self.next_id += 1;
        let id = self.next_id;
        let fate = self.fate(who);
        let mut travel = self.latency();
        if self.dice.happens(self.rates.slow) {
            self.report.count("slow calls");
            travel = self.dice.up_to(self.plan.lease * 6 / 5);
        }
        self.note(format_args!(
            "{} sends {id} {request:?} ({fate:?})",
            name(who)
        ));
        let call = Call {
            who,
            request,
            fate,
            answer: None,
        };
        self.calls.insert(id, call);
        self.after(travel, Event::Arrives(id));
        self.after(patience, Event::Within(who, Inner::TimesOut(id)));
        id
    }

    /// The request reaches the store.
    pub(super) fn arrives(&mut self, id: CallId) {
        let Some(mut call) = self.calls.remove(&id) else {
            return;
        };
        let answer = match call.fate {
            Fate::Undone => Answer::Error(StoreError::Retry("simulated".to_owned())),
            Fate::Failed => Answer::Error(StoreError::Unavailable("simulated".to_owned())),
            Fate::Swallowed => return,
            Fate::Fine => self.take_effect(id, &call.request),
            Fate::AnswerLost => {
                self.take_effect(id, &call.request);
                Answer::Error(StoreError::Unavailable("simulated".to_owned()))
            }
            Fate::NeverAnswered => {
                self.take_effect(id, &call.request);
                return;
            }
        };
        let is_cut = self.is_cut(call.who.seat);
        if is_cut && self.dice.happens(0.5) {
            self.report.count("answers lost to cuts");
            return;
        }
        let who = call.who;
        call.answer = Some(answer);
        self.calls.insert(id, call);
        let travel = self.latency();
        self.after(travel, Event::Within(who, Inner::Answer(id)));
    }

    /// The answer that has come in, and to what.
    pub(super) fn answered(&mut self, id: CallId) -> Option<Answer> {
        self.calls.remove(&id).and_then(|call| call.answer)
    }

    fn take_effect(&mut self, id: CallId, request: &Request) -> Answer {
        let answer = match request {
            Request::Claim(request) => {
                let claimed = self.store.claim(request);
                if claimed.len() > request.limit as usize {
                    self.violated("a claim took more than it asked for".to_owned());
                }
                for claimed in &claimed {
                    self.claimed(claimed, request);
                }
                self.report.count("claims");
                Answer::Claim(claimed)
            }
            Request::Renew(batch) => {
                // One after the other, at one moment: two holds on one item may be in one batch, and
                // each is judged by what it met.
                let mut answers = Vec::new();
                for renewal in batch {
                    let (hold, answer) = (renewal.hold, self.store.renew(renewal));
                    self.observe(hold.org_id, hold.item_id, &Cause::Renew(hold, answer));
                    answers.push(answer);
                }
                self.report.count("renewals");
                Answer::Renew(answers)
            }
            Request::Settle(batch) => {
                let mut answers = Vec::new();
                for settlement in batch {
                    let (hold, answer) = (settlement.hold, self.store.settle(settlement));
                    let cause = Cause::Settle(settlement, answer);
                    self.observe(hold.org_id, hold.item_id, &cause);
                    self.report.count(match answer {
                        Settled::Settled(_) => "settles",
                        Settled::AlreadySettled => "settles asked again",
                        Settled::Conflict => "settles refused",
                    });
                    answers.push(answer);
                }
                self.hint();
                Answer::Settle(answers)
            }
        };
        self.note(format_args!("store answers {id} {answer:?}"));
        answer
    }

    fn fate(&mut self, who: Who) -> Fate {
        if self.is_cut(who.seat) {
            self.report.count("calls cut off");
            return if self.dice.happens(0.5) {
                Fate::Swallowed
            } else {
                Fate::Failed
            };
        }
        let rates = self.rates;
        if self.dice.happens(rates.error) {
            self.report.count("errors");
            if self.dice.happens(0.5) {
                Fate::Undone
            } else {
                Fate::Failed
            }
        } else if self.dice.happens(rates.lost_answer) {
            self.report.count("lost answers");
            Fate::AnswerLost
        } else if self.dice.happens(rates.black_hole) {
            self.report.count("black holes");
            if self.dice.happens(0.5) {
                Fate::Swallowed
            } else {
                Fate::NeverAnswered
            }
        } else {
            Fate::Fine
        }
    }

    fn is_cut(&self, seat: usize) -> bool {
        self.agenda.now < self.outage_until || self.agenda.now < self.workers[seat].cut_until
    }

    /// How long a message, or a word within a process, takes.
    pub(super) fn latency(&mut self) -> Duration {
        self.dice.up_to(self.plan.lease / 100)
    }

    /// Hints of what has just been written, as far as they arrive.
    pub(super) fn hint(&mut self) {
        for seat in 0..self.workers.len() {
            let worker = &mut self.workers[seat];
            let Some(process) = &mut worker.process else {
                continue;
            };
            if !super::store::is_hinted(&mut *process.hints) {
                continue;
            }
            let who = process.who;
            if self.dice.happens(self.rates.lost_hint) {
                self.report.count("lost hints");
            } else {
                let travel = self.latency();
                self.tell_loop(who, travel, leasehold::worker::dispatch::Event::Hint);
            }
        }
    }
}

/// How long a settle waits for its answer, as the runtime has it: until the first of the leases that
/// go on is over, within bounds.
pub(super) fn settle_patience(ends: impl Iterator<Item = BootTime>, now: BootTime) -> Duration {
    let longest = Duration::from_secs(10);
    let first = ends.filter(|over| *over > now).min();
    first.map_or(longest, |over| {
        over.since(now).clamp(Duration::from_millis(500), longest)
    })
}

pub(super) fn name(who: Who) -> String {
    format!("w{}.{}", who.seat, who.life)
}
