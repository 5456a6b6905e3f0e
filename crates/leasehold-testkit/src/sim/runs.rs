//! Runs: how long they take, how they end, whether they listen, and the wardens of the fenced ones.

use std::time::Duration;

use leasehold::worker::dispatch::{Ending, Event as Heard};
use leasehold::worker::trust::Loss;
use leasehold_core::rules;
use leasehold_core::store::work::Claimed;
use leasehold_core::{BootTime, Failure, FailureCode, Hold, Outcome};

use super::World;
use super::agenda::{Event, Inner, RunId, Turn, Who};
use super::plan::is_fenced;
use super::store::Sabotage;
use super::wire::name;

mod oracles;

/// Something that executes.
pub(super) struct Running {
    who: Who,
    hold: Hold,
    /// A process of its own under a warden, which kills it at the deadline.
    is_fenced: bool,
    is_killable: bool,
    /// Whether it ends when asked to.
    heeds: bool,
    runs_alone: bool,
    is_stuck: bool,
    /// Why the keeper stopped it, if it did.
    loss: Option<Loss>,
    deadline: BootTime,
}

/// How long a kill takes at most, as a part of the lease: a fiftieth.
fn kill_time(lease: Duration) -> Duration {
    lease / 50
}

/// How far the calendar may step ahead within one lease: half of it, less the time a kill takes.
pub(super) fn jump_max(lease: Duration) -> Duration {
    (lease / 2).saturating_sub(kill_time(lease) * 2)
}

impl World {
    /// Starts the item, if its hold is still to be trusted.
    pub(super) fn start(&mut self, who: Who, claimed: &Claimed) {
        let now = self.agenda.now;
        let lease = self.plan.lease;
        let Claimed { org_id, item } = claimed;
        let Some(token) = item.claim_token else {
            return self.violated("an item was handed out without its token".to_owned());
        };
        let hold = Hold {
            org_id: *org_id,
            item_id: item.id,
            token,
        };
        let starts_anyway = self.sabotage == Some(Sabotage::StartsUntrusted);
        let Some(process) = self.process(who) else {
            return;
        };
        if !process.leases.is_trusted(&hold, now) && !starts_anyway {
            self.report.count("starts called off");
            let latency = self.latency();
            self.tell_loop(who, latency, Heard::Loss(hold, Loss::Doubted));
            return self.tell_loop(who, latency, Heard::Ended(hold, Ending::Killed));
        }
        let deadline = process.leases.trusted_until(&hold).unwrap_or(now);
        let runs_alone = rules::runs_alone(item);
        self.check_start(who, &hold, runs_alone);
        self.next_id += 1;
        let run = self.next_id;
        let is_fenced = is_fenced(&item.kind);
        let is_killable = is_fenced || !self.dice.happens(self.rates.unkillable);
        // One that cannot be killed is seldom one that listens.
        let heeds = self.dice.happens(if is_killable { 0.8 } else { 0.3 });
        self.runs.insert(
            run,
            Running {
                who,
                hold,
                is_fenced,
                is_killable,
                heeds,
                runs_alone,
                is_stuck: false,
                loss: None,
                deadline,
            },
        );
        if let Some(process) = self.process(who) {
            process.runs.insert(hold, run);
        }
        self.report.count("runs");
        if let Some(length) = self.length_of_run() {
            self.after(length, Event::Run(run, Turn::Ends));
        }
        if is_fenced {
            self.at(deadline, Event::Run(run, Turn::Deadline));
        }
        if self.dice.happens(self.rates.poison) {
            let length = self.dice.up_to(lease / 4);
            self.after(length, Event::Run(run, Turn::TakesWorkerAlong));
        }
    }

    /// How long a run takes if nobody stops it; `None` if it would never end.
    fn length_of_run(&mut self) -> Option<Duration> {
        let lease = self.plan.lease;
        if self.is_quiet {
            return Some(self.dice.up_to(lease / 4));
        }
        let longest = self.dice.weigh(&[
            (45, lease / 4),
            (30, lease * 2),
            (17, lease * 6),
            (8, Duration::ZERO),
        ]);
        (!longest.is_zero()).then(|| self.dice.up_to(longest))
    }

    fn outcome(&mut self) -> Outcome {
        let lease = self.plan.lease;
        let failure = Failure::own(FailureCode::HANDLER_ERROR, "simulated");
        match self.dice.below(100) {
            60..80 => Outcome::failed(failure),
            80..83 => Outcome::failed(failure.for_good()),
            83..86 => Outcome::Refused {
                reason: "simulated".into(),
            },
            86..93 if !self.is_quiet => Outcome::Parked {
                reason: "simulated".into(),
                resume_after: self.dice.up_to(lease),
            },
            93.. if !self.is_quiet => Outcome::Released {
                note: "simulated".into(),
            },
            _ => Outcome::done(),
        }
    }

    /// Sends a turn to the hold's run, if one executes.
    pub(super) fn turn_run(&mut self, who: Who, hold: &Hold, wait: Duration, turn: Turn) {
        let run = self
            .process(who)
            .and_then(|process| process.runs.get(hold).copied());
        if let Some(run) = run {
            self.after(wait, Event::Run(run, turn));
        }
    }

    /// Something becomes of a run.
    pub(super) fn run_turn(&mut self, id: RunId, turn: Turn) {
        let now = self.agenda.now;
        let lease = self.plan.lease;
        let Some(run) = self.runs.get(&id) else {
            return;
        };
        let who = run.who;
        match turn {
            Turn::Ends => {
                let outcome = self.outcome();
                self.run_ended(id, Ending::Outcome(outcome));
            }
            Turn::Cancelled if run.heeds => {
                let tidying = self.dice.up_to(lease / 20);
                self.after(tidying, Event::Run(id, Turn::Ends));
            }
            Turn::Cancelled => {}
            Turn::Killed if run.is_killable => {
                let takes = self.dice.up_to(kill_time(lease));
                self.after(takes, Event::Run(id, Turn::Dies));
            }
            // It ends some day, long after its lease, or never.
            Turn::Killed => {
                if self.dice.happens(0.7) {
                    let length = self.dice.between(lease, lease * 6);
                    self.after(length, Event::Run(id, Turn::Ends));
                }
            }
            Turn::Dies => self.run_ended(id, Ending::Killed),
            Turn::Deadline if self.sabotage == Some(Sabotage::WardenAsleep) => {}
            Turn::Deadline if now < run.deadline => {
                let deadline = run.deadline;
                self.at(deadline, Event::Run(id, Turn::Deadline));
            }
            Turn::Deadline => {
                self.report.count("killed by wardens");
                let takes = self.dice.up_to(kill_time(lease));
                self.after(takes, Event::Run(id, Turn::Dies));
            }
            Turn::TakesWorkerAlong => {
                if !self.is_quiet {
                    self.report.count("poisoned");
                    self.crash(who);
                }
            }
        }
    }

    fn run_ended(&mut self, id: RunId, ending: Ending) {
        let Some(run) = self.runs.remove(&id) else {
            return;
        };
        self.note(format_args!(
            "{} run of {:?} ends: {ending:?}",
            name(run.who),
            run.hold
        ));
        if let Some(process) = self.process(run.who) {
            process.runs.remove(&run.hold);
        }
        let mut words = vec![Heard::Ended(run.hold, ending)];
        if let Some(loss) = run.loss {
            self.stopped.insert(run.hold);
            // The reason goes ahead of the ending, whatever has become of the keeper's own word.
            if self.sabotage != Some(Sabotage::ReasonUntold) {
                words.insert(0, Heard::Loss(run.hold, loss));
            }
        }
        let latency = self.latency();
        self.after(latency, Event::Within(run.who, Inner::Tell(words)));
    }

    /// The keeper stops a run, and leaves word of why with it.
    pub(super) fn stopped_by_keeper(&mut self, who: Who, hold: &Hold, loss: Loss) {
        let run = self.workers[who.seat]
            .process
            .as_ref()
            .and_then(|process| process.runs.get(hold));
        if let Some(run) = run.and_then(|run| self.runs.get_mut(run)) {
            run.loss = Some(loss);
        }
    }

    /// Until when a run stands still with its process. A fenced one is a process of its own.
    pub(super) fn run_waits_until(&self, id: RunId) -> Option<BootTime> {
        let run = self.runs.get(&id).filter(|run| !run.is_fenced)?;
        let worker = &self.workers[run.who.seat];
        let is_its_own = worker
            .process
            .as_ref()
            .is_some_and(|process| process.who == run.who);
        (is_its_own && worker.frozen_until > self.agenda.now).then_some(worker.frozen_until)
    }

    /// The process is gone: its own runs with it, and the wardens notice by their pipes.
    pub(super) fn orphan_runs(&mut self, who: Who) {
        let lease = self.plan.lease;
        self.runs.retain(|_, run| run.who != who || run.is_fenced);
        let left: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| run.who == who)
            .map(|(id, _)| *id)
            .collect();
        for run in left {
            let takes = self.dice.up_to(kill_time(lease));
            self.after(takes, Event::Run(run, Turn::Dies));
        }
    }

    /// From here on every run ends, but for those that are stuck: the others must do without the slots.
    pub(super) fn let_all_end(&mut self) {
        let alive = self.runs.iter().filter(|(_, run)| !run.is_stuck);
        let alive: Vec<RunId> = alive.map(|(id, _)| *id).collect();
        for run in alive {
            let length = self.dice.up_to(self.plan.lease);
            self.after(length, Event::Run(run, Turn::Ends));
        }
    }

    pub(super) fn mark_stuck(&mut self, who: Who, hold: &Hold) {
        let run = self
            .process(who)
            .and_then(|process| process.runs.get(hold).copied());
        if let Some(run) = run.and_then(|run| self.runs.get_mut(&run)) {
            run.is_stuck = true;
        }
    }

    /// Renewals that were accepted move the wardens' deadlines.
    pub(super) fn push_deadlines(&mut self, who: Who, holds: &[Hold]) {
        let Some(process) = self.workers[who.seat].process.as_ref() else {
            return;
        };
        for hold in holds {
            let run = process
                .runs
                .get(hold)
                .and_then(|run| self.runs.get_mut(run));
            if let (Some(run), Some(until)) = (run, process.leases.trusted_until(hold)) {
                run.deadline = run.deadline.max(until);
            }
        }
    }
}
