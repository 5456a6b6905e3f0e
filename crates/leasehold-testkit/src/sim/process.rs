//! One worker process: the loop, the keeper and the settle writer, as the runtime drives them.
//!
//! Each takes its turns as a separate actor over the two state machines under test. What `drive`,
//! `keeper` and `settle` await in the runtime is an event here; nothing is decided here that they do
//! not decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::worker::dispatch::{
    Action, Dispatch, DispatchSettings, Ending, Event as Heard, Verdict,
};
use leasehold::worker::trust::Leases;
use leasehold_core::store::work::{Claimed, Renewal, Settlement};
use leasehold_core::{BootTime, ClaimToken, Hints, Hold, StoreError, WorkerId};

use super::World;
use super::agenda::{CallId, Event, Inner, RunId, SweepStep, Turn, Who};
use super::store::Sabotage;
use super::wire::{Answer, Request, name};

mod keeper;
mod settler;

/// A place for one process at a time, and what befalls whoever sits there.
pub(super) struct Worker {
    pub(super) settings: DispatchSettings,
    pub(super) lives: u32,
    pub(super) process: Option<Process>,
    /// The whole process stands still until then.
    pub(super) frozen_until: BootTime,
    pub(super) loop_held_until: BootTime,
    pub(super) keeper_held_until: BootTime,
    /// Cut off from the store until then.
    pub(super) cut_until: BootTime,
}

impl Worker {
    /// Until when something kept the process from doing its duty.
    pub(super) fn disturbed_until(&self) -> BootTime {
        self.frozen_until
            .max(self.loop_held_until)
            .max(self.keeper_held_until)
    }
}

pub(super) struct Process {
    pub(super) who: Who,
    pub(super) dispatch: Dispatch,
    pub(super) leases: Leases,
    pub(super) hints: Box<dyn Hints>,
    pub(super) held: BTreeSet<Hold>,
    pub(super) runs: BTreeMap<Hold, RunId>,
    inbox: Vec<Heard>,
    loop_turn: NextTurn,
    keeper_turn: NextTurn,
    claiming: BTreeMap<CallId, ClaimToken>,
    renewing: BTreeMap<CallId, Renewing>,
    to_settle: Vec<Settlement>,
    settling: Option<Settling>,
}

/// The latest appointment: an earlier one that is still on the agenda no longer counts.
#[derive(Default)]
struct NextTurn {
    ticket: u64,
    at: Option<BootTime>,
}

struct Renewing {
    sent: BootTime,
    batch: Vec<Renewal>,
}

struct Settling {
    call: Option<CallId>,
    batch: Vec<Settlement>,
    failures: u32,
}

/// How long a claim may take, as the runtime has it.
const CLAIM_PATIENCE_MAX: Duration = Duration::from_secs(5);

/// Which part of a process an event has to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Loop,
    Keeper,
    Any,
}

impl Process {
    /// Which part takes the event in; `None` if it is of no interest any more.
    pub(super) fn part_for(&self, inner: &Inner) -> Option<Part> {
        match inner {
            Inner::Loop(ticket) => (*ticket == self.loop_turn.ticket).then_some(Part::Loop),
            Inner::Keeper(ticket) => (*ticket == self.keeper_turn.ticket).then_some(Part::Keeper),
            Inner::SettlesAgain => Some(Part::Loop),
            Inner::Tell(_) => Some(Part::Any),
            Inner::Answer(call) | Inner::TimesOut(call) => {
                let settles = self.settling.as_ref().and_then(|settling| settling.call);
                if self.claiming.contains_key(call) || settles == Some(*call) {
                    Some(Part::Loop)
                } else {
                    self.renewing.contains_key(call).then_some(Part::Keeper)
                }
            }
        }
    }
}

impl World {
    /// Starts a process in the seat.
    pub(super) fn boots(&mut self, seat: usize) {
        let now = self.agenda.now;
        let chance = Box::new(self.dice.part());
        let worker = &mut self.workers[seat];
        worker.lives += 1;
        let who = Who {
            seat,
            life: worker.lives,
        };
        let mut settings = worker.settings.clone();
        settings.worker = WorkerId::parse(&name(who)).unwrap();
        let hints = self.store.subscribe(&settings.lanes);
        worker.process = Some(Process {
            who,
            dispatch: Dispatch::new(settings, chance, now),
            leases: Leases::with_stop_grace(worker.settings.stop_grace),
            hints,
            held: BTreeSet::new(),
            runs: BTreeMap::new(),
            inbox: Vec::new(),
            loop_turn: NextTurn::default(),
            keeper_turn: NextTurn::default(),
            claiming: BTreeMap::new(),
            renewing: BTreeMap::new(),
            to_settle: Vec::new(),
            settling: None,
        });
        self.note(format_args!("{} starts", name(who)));
        self.report.count("processes");
        self.wake_loop(who, now);
        let first_sweep = self.dice.up_to(self.plan.lease);
        self.after(first_sweep, Event::Sweep(who, SweepStep::Probe));
    }

    /// The process is no more; what ran inside it neither.
    pub(super) fn ends(&mut self, who: Who, pause: Duration) {
        let now = self.agenda.now;
        let worker = &mut self.workers[who.seat];
        worker.process = None;
        worker.frozen_until = now;
        worker.loop_held_until = now;
        worker.keeper_held_until = now;
        self.orphan_runs(who);
        self.after(pause, Event::Boots(who.seat));
    }

    pub(super) fn process(&mut self, who: Who) -> Option<&mut Process> {
        let process = self.workers[who.seat].process.as_mut();
        process.filter(|process| process.who == who)
    }

    /// Something happens within a process that is awake.
    pub(super) fn within(&mut self, who: Who, inner: Inner) {
        match inner {
            Inner::Loop(_) => self.loop_turn(who),
            Inner::Keeper(_) => self.keeper_turn(who),
            Inner::Tell(heard) => {
                for heard in heard {
                    self.hear(who, heard);
                }
            }
            Inner::SettlesAgain => self.settles_again(who),
            Inner::Answer(call) => {
                if let Some(answer) = self.answered(call) {
                    self.note(format_args!("{} hears of {call}", name(who)));
                    self.take_answer(who, call, answer);
                }
            }
            Inner::TimesOut(call) => {
                self.report.count("timeouts");
                self.note(format_args!("{} gives {call} up", name(who)));
                let error = StoreError::Unavailable("no answer".to_owned());
                self.take_answer(who, call, Answer::Error(error));
            }
        }
    }

    pub(super) fn tell_loop(&mut self, who: Who, wait: Duration, heard: Heard) {
        self.after(wait, Event::Within(who, Inner::Tell(vec![heard])));
    }

    fn hear(&mut self, who: Who, heard: Heard) {
        let at = self.agenda.now + self.dice.up_to(self.plan.lease / 1_000);
        if let Some(process) = self.process(who) {
            process.inbox.push(heard);
            self.wake_loop(who, at);
        }
    }

    fn wake_loop(&mut self, who: Who, at: BootTime) {
        self.appoint(who, at, |process| &mut process.loop_turn, Inner::Loop);
    }

    fn wake_keeper(&mut self, who: Who, at: BootTime) {
        self.appoint(who, at, |process| &mut process.keeper_turn, Inner::Keeper);
    }

    fn appoint(
        &mut self,
        who: Who,
        at: BootTime,
        turn: fn(&mut Process) -> &mut NextTurn,
        event: fn(u64) -> Inner,
    ) {
        let Some(turn) = self.process(who).map(turn) else {
            return;
        };
        if turn.at.is_none_or(|planned| at < planned) {
            turn.at = Some(at);
            turn.ticket += 1;
            let ticket = turn.ticket;
            self.at(at, Event::Within(who, event(ticket)));
        }
    }

    fn loop_turn(&mut self, who: Who) {
        let now = self.agenda.now;
        let Some(process) = self.process(who) else {
            return;
        };
        process.loop_turn.at = None;
        let mut actions = Vec::new();
        for heard in std::mem::take(&mut process.inbox) {
            process.dispatch.handle(now, heard, &mut actions);
        }
        process.dispatch.advance(now, &mut actions);
        for action in actions {
            self.carry_out(who, action);
        }
        self.write_settles(who);
        let Some(process) = self.process(who) else {
            return;
        };
        if process.dispatch.is_finished(now) {
            let left = process.dispatch.held();
            self.note(format_args!("{} has drained, {left} left", name(who)));
            self.report.count("drains finished");
            let pause = self.dice.up_to(self.plan.lease);
            return self.ends(who, pause);
        }
        let next = process.dispatch.next_look();
        let keep = process.leases.next_look();
        if next <= now {
            self.violated(format!("the loop of {} would spin", name(who)));
        }
        let lag = self.dice.up_to(self.plan.lease / 200);
        self.wake_loop(who, next + lag);
        if let Some(keep) = keep {
            let lag = self.dice.up_to(self.plan.lease / 32);
            self.wake_keeper(who, keep + lag);
        }
    }

    fn carry_out(&mut self, who: Who, action: Action) {
        let now = self.agenda.now;
        let lease = self.plan.lease;
        let sabotage = self.sabotage;
        let latency = self.latency();
        self.note(format_args!("{} {action:?}", name(who)));
        let Some(process) = self.process(who) else {
            return;
        };
        match action {
            Action::Claim(request) => {
                let patience = (lease * 3 / 8).min(CLAIM_PATIENCE_MAX);
                let token = request.token;
                let call = self.send(who, Request::Claim(request), patience);
                if let Some(process) = self.process(who) {
                    process.claiming.insert(call, token);
                    if process.claiming.len() > 1 {
                        self.report.count("claims beside another");
                    }
                }
            }
            Action::Hold { holds, sent } => {
                let (length, sent) = match sabotage {
                    Some(Sabotage::TrustTooLong) => (lease * 4, sent),
                    Some(Sabotage::TrustFromAnswer) => (lease, now),
                    _ => (lease, sent),
                };
                for hold in &holds {
                    process.leases.insert(*hold, length, sent);
                    process.held.insert(*hold);
                }
                self.check_trust(who, &holds);
            }
            Action::Start(claimed) => self.start(who, &claimed),
            Action::Cancel(hold, _) => {
                self.turn_run(who, &hold, latency, Turn::Cancelled);
                if sabotage == Some(Sabotage::EndsTooSoon) {
                    self.tell_loop(who, latency, Heard::Ended(hold, Ending::Killed));
                }
            }
            Action::Kill(hold) => self.turn_run(who, &hold, latency, Turn::Killed),
            Action::Settle(settlement) => {
                process.leases.settling(&settlement.hold);
                process.to_settle.push(settlement.clone());
                self.check_settle(&settlement);
            }
            Action::Forget(hold) => {
                process.leases.remove(&hold);
                process.held.remove(&hold);
            }
            Action::RenewUntil(hold, until) => process.leases.renew_until(&hold, until),
            Action::Stuck(hold) => {
                let all = process.dispatch.stuck() >= self.workers[who.seat].settings.capacity;
                self.report.count("stuck");
                self.mark_stuck(who, &hold);
                if all {
                    self.tell_loop(who, latency, Heard::Drain);
                }
            }
            Action::Bury(claimed) => {
                let Claimed { org_id, item } = &*claimed;
                let audit = SweepStep::Audit(*org_id, item.id, item.claim_seq);
                self.after(latency, Event::Sweep(who, audit));
            }
            Action::Note(_, _, verdict) => self.report.count(match verdict {
                Verdict::Done => "told done",
                Verdict::Retried => "told failed",
                Verdict::Dead => "told dead",
                Verdict::Parked => "told parked",
                Verdict::Released => "told released",
                Verdict::Cancelled => "told cancelled",
                Verdict::Conflict => "told conflict",
                Verdict::LeaseLost => "told lost",
                Verdict::GivenUp => "told given up",
            }),
        }
    }

    fn take_answer(&mut self, who: Who, call: CallId, answer: Answer) {
        let Some(process) = self.process(who) else {
            return;
        };
        if let Some(token) = process.claiming.remove(&call) {
            let answer = match answer {
                Answer::Claim(claimed) => Ok(claimed.into_iter().map(Arc::new).collect()),
                Answer::Error(error) => Err(error),
                Answer::Renew(_) | Answer::Settle(_) => return,
            };
            return self.hear(who, Heard::Claimed(token, answer));
        }
        if let Some(renewing) = process.renewing.remove(&call) {
            return self.renewed(who, renewing, answer);
        }
        self.take_settled(who, answer);
    }
}
