//! What befalls the workers, the network and the calendar, and what people do meanwhile.

use std::time::Duration;

use leasehold::worker::dispatch::Event as Heard;
use leasehold_core::time::{earlier, later};
use leasehold_core::{Clock as _, ItemId, OrgId};

use super::agenda::{Event, SweepStep, Who};
use super::plan::{Jumps, Rates};
use super::rows::Cause;
use super::runs::jump_max;
use super::wire::name;
use super::{Faults, World};

#[derive(Debug, Clone, Copy)]
enum Blow {
    Crash,
    Freeze,
    HoldLoop,
    HoldKeeper,
    Cut,
    Outage,
    Drain,
    DrainTwice,
    PauseLane,
    FalseAlarm,
    Jump,
}

const BLOWS: &[(u64, Blow)] = &[
    (3, Blow::Crash),
    (4, Blow::Freeze),
    (2, Blow::HoldLoop),
    (2, Blow::HoldKeeper),
    (4, Blow::Cut),
    (2, Blow::Outage),
    (2, Blow::Drain),
    (1, Blow::DrainTwice),
    (1, Blow::PauseLane),
    (1, Blow::FalseAlarm),
    (4, Blow::Jump),
];

/// What happens to workers although nothing goes wrong.
const CHANGES: &[(u64, Blow)] = &[
    (4, Blow::Drain),
    (2, Blow::DrainTwice),
    (1, Blow::PauseLane),
    (1, Blow::FalseAlarm),
];

impl World {
    /// Something bad happens, and some time later the next.
    pub(super) fn blow(&mut self) {
        if self.is_quiet {
            return;
        }
        let respite = self.dice.up_to(self.plan.respite);
        self.after(respite, Event::Blow);
        let blow = match self.faults {
            Faults::All => self.dice.weigh(BLOWS),
            Faults::None => self.dice.weigh(CHANGES),
        };
        let seat = self.dice.place(self.workers.len());
        match blow {
            Blow::Outage => {
                self.outage_until = self.agenda.now + self.dice.up_to(self.plan.lease * 2);
                self.report.count("outages");
                self.note(format_args!("the store is out of reach for all"));
            }
            Blow::PauseLane => {
                let lane = self.dice.pick(&self.plan.lanes);
                self.store.pause(&lane);
                let length = self.dice.up_to(self.plan.lease * 2);
                self.after(length, Event::Resumes);
            }
            Blow::Jump => self.jump(),
            _ => {
                if let Some(process) = &self.workers[seat].process {
                    let who = process.who;
                    self.strike(who, blow);
                }
            }
        }
    }

    fn strike(&mut self, who: Who, blow: Blow) {
        let lease = self.plan.lease;
        let until = self.agenda.now + self.dice.up_to(lease * 3);
        self.note(format_args!("{} suffers {blow:?}", name(who)));
        let worker = &mut self.workers[who.seat];
        match blow {
            Blow::Crash => return self.crash(who),
            Blow::Freeze => {
                worker.frozen_until = worker.frozen_until.max(until);
                self.report.count("freezes");
                // The keeper notices afterwards that time has passed unseen.
                let noticed = until.since(self.agenda.now) + self.latency();
                self.tell_loop(who, noticed, Heard::ClockJumped);
            }
            Blow::HoldLoop => {
                worker.loop_held_until = worker.loop_held_until.max(until);
                self.report.count("loops starved");
            }
            Blow::HoldKeeper => {
                worker.keeper_held_until = worker.keeper_held_until.max(until);
                self.report.count("keepers starved");
            }
            Blow::Cut => {
                worker.cut_until = worker.cut_until.max(until);
                self.report.count("cuts");
            }
            Blow::Drain | Blow::DrainTwice => {
                self.report.count("drains");
                self.tell_loop(who, Duration::ZERO, Heard::Drain);
            }
            Blow::FalseAlarm => self.tell_loop(who, Duration::ZERO, Heard::ClockJumped),
            Blow::Outage | Blow::PauseLane | Blow::Jump => {}
        }
        if matches!(blow, Blow::DrainTwice) {
            let later = self.dice.up_to(lease);
            self.tell_loop(who, later, Heard::Drain);
        }
    }

    /// The process is killed between two of its steps.
    pub(super) fn crash(&mut self, who: Who) {
        if self.process(who).is_some() {
            self.report.count("crashes");
            self.note(format_args!("{} is killed", name(who)));
            let pause = self.dice.up_to(self.plan.lease * 2);
            self.ends(who, pause);
        }
    }

    fn jump(&mut self) {
        let lease = self.plan.lease;
        let now = self.agenda.now;
        let calendar = self.clock.now();
        let is_ahead = self.dice.happens(0.6);
        let step = match self.plan.jumps {
            Jumps::None => return,
            Jumps::Bounded if is_ahead => {
                // Within a lease no more than one step ahead.
                if now < self.next_step_ahead {
                    return;
                }
                self.next_step_ahead = now + lease * 3 / 2;
                self.dice.up_to(jump_max(lease))
            }
            Jumps::Bounded => self.dice.up_to(lease),
            Jumps::Wild => self.dice.up_to(lease * 20),
        };
        let jumped = if is_ahead {
            later(calendar, step)
        } else {
            earlier(calendar, step)
        };
        self.clock.set_calendar(jumped);
        self.report.count("calendar jumps");
        self.note(format_args!(
            "the store's calendar goes from {calendar} to {jumped}"
        ));
    }

    pub(super) fn resumes(&mut self) {
        for lane in self.plan.lanes.clone() {
            self.store.resume(&lane);
        }
        self.hint();
    }

    /// Faults stop here; what is under way ends, and the workers recover.
    pub(super) fn quiet(&mut self) {
        let now = self.agenda.now;
        self.note(format_args!("nothing bad happens from here on"));
        self.is_quiet = true;
        self.rates = Rates::NONE;
        self.outage_until = now;
        for worker in &mut self.workers {
            worker.cut_until = now;
        }
        self.resumes();
        self.let_all_end();
    }

    /// The producer sends an item, and sends it again for as long as it has no answer.
    pub(super) fn enqueue(&mut self, number: usize) {
        let again = self.dice.up_to(self.plan.lease);
        if self.dice.happens(self.rates.error) {
            return self.after(again, Event::Enqueue(number));
        }
        let planned = &self.plan.items[number];
        let (org, item) = (planned.org, planned.item.clone());
        let id = item.id;
        self.store.enqueue(org, item);
        self.observe(org, id, &Cause::Enqueue);
        self.hint();
        if self.dice.happens(self.rates.lost_answer) {
            self.report.count("enqueues repeated");
            self.after(again, Event::Enqueue(number));
        }
    }

    /// A person cancels an item, or has a failed one tried again.
    pub(super) fn operates(&mut self) {
        if self.is_quiet {
            return;
        }
        let pause = self.dice.up_to(self.plan.idle_operators);
        self.after(pause, Event::Operates);
        let known: Vec<(OrgId, ItemId)> = self.rows.all().map(|(org, row)| (org, row.id)).collect();
        if known.is_empty() {
            return;
        }
        let (org, item) = self.dice.pick(&known);
        if self.dice.happens(0.4) {
            self.report.count("cancels");
            self.store.cancel(org, item);
            self.observe(org, item, &Cause::Cancel);
        } else {
            self.report.count("retries");
            self.store.retry(org, item);
            self.observe(org, item, &Cause::Retry);
        }
        self.hint();
    }

    /// A step of a worker's sweep, each a call of its own between which anything may happen.
    pub(super) fn sweep(&mut self, who: Who, step: SweepStep) {
        let now = self.agenda.now;
        let worker = &self.workers[who.seat];
        if worker
            .process
            .as_ref()
            .is_none_or(|process| process.who != who)
        {
            return;
        }
        let stands_still = worker.frozen_until.max(worker.loop_held_until);
        if stands_still > now {
            return self.at(stands_still, Event::Sweep(who, step));
        }
        if step == SweepStep::Probe {
            let interval = self
                .dice
                .between(self.plan.lease / 2, self.plan.lease * 3 / 2);
            self.after(interval, Event::Sweep(who, SweepStep::Probe));
        }
        let is_out = now < self.outage_until || now < self.workers[who.seat].cut_until;
        if is_out || self.dice.happens(self.rates.broken_sweep) {
            self.report.count("sweeps broken off");
            return;
        }
        self.note(format_args!("{} sweeps: {step:?}", name(who)));
        match step {
            SweepStep::Probe => {
                for org in self.store.maintenance_due() {
                    self.next_sweep(who, SweepStep::Requeue(org));
                    self.next_sweep(who, SweepStep::Repair(org));
                }
            }
            SweepStep::Requeue(org) => self.requeue(who, org),
            SweepStep::Repair(org) => {
                for row in self.store.unaudited(org) {
                    self.next_sweep(who, SweepStep::Audit(org, row.id, row.claim_seq));
                }
            }
            SweepStep::Audit(org, item, claim_seq) => {
                self.store.audit(org, item, claim_seq);
                self.next_sweep(who, SweepStep::Mark(org, item, claim_seq));
            }
            SweepStep::Mark(org, item, claim_seq) => {
                self.store.mark_audited(org, item, claim_seq);
                self.observe(org, item, &Cause::Audit);
            }
        }
    }

    fn requeue(&mut self, who: Who, org: OrgId) {
        let lease = self.plan.lease;
        let spread = self.dice.up_to(lease);
        let claimed = self.rows.claimed(org);
        let requeued = self.store.requeue_stale(org, spread);
        for item in claimed {
            self.observe(org, item, &Cause::Sweep);
        }
        self.hint();
        for _ in 0..requeued.total() {
            self.report.count("expired claims");
        }
        for row in &requeued.dead {
            self.next_sweep(who, SweepStep::Audit(org, row.id, row.claim_seq));
        }
        if requeued.total() == super::store::SWEEP_LIMIT {
            self.next_sweep(who, SweepStep::Requeue(org));
        }
    }

    fn next_sweep(&mut self, who: Who, step: SweepStep) {
        let pause = self.latency();
        self.after(pause, Event::Sweep(who, step));
    }
}
