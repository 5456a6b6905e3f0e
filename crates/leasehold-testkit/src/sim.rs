//! The seeded simulation: many workers, one store, and everything that may go wrong between them.
//!
//! # What is real
//! The two state machines that decide everything in a worker (`leasehold::worker::dispatch` and
//! `leasehold::worker::trust`) and the memory store with its rules. What the runtime awaits is played
//! by actors here: loop, keeper and settle writer of each worker, runs and their wardens, sweeps,
//! producers and operators.
//!
//! # What is played
//! One seed decides it all: the set-up, in which order actors take their turns, how long messages
//! travel, which are lost, which answers are, which process is killed or stands still and for how long,
//! how the store's calendar jumps, what each run does. Time is virtual and moves from event to event.
//!
//! # What is checked
//! After every step that could break it:
//! 1. at most one process trusts a hold on an item; when the store gives an item away, nobody does;
//! 2. no item is claimed more often than allowed;
//! 3. an ended item moves only by an operator's retry; every accepted settle is one transition, made
//!    by who holds the item, and is completed once;
//! 4. a hand-back spends nothing;
//! 5. every item ends once the faults have stopped;
//! 6. the fencing number never falls;
//! 7. nothing starts while another trusted run of the item goes on, nor while a fenced one executes,
//!    nor while one that could be stopped does on a worker that was neither frozen nor starved;
//! 8. nobody starts what it does not trust;
//! 9. every dead letter has its audit entry, once;
//! 10. neither loop nor keeper would spin;
//! 11. what must run alone does;
//! 12. no org has more claims in a lane than its cap;
//! 13. a run that was stopped for its lease spends no attempt by the way it ends, but for an overrun.
//!
//! In some seeds the calendar jumps by more than any lease can bear; 1 and 7 are not checked there,
//! and all others must hold still. That the oracles bite is shown by [`Sabotage`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{BootTime, Clock as _, Hold, ItemId, ManualClock, OrgId};

use agenda::{Agenda, CallId, Event, RunId};
use dice::Dice;
use plan::{Plan, Rates};
use process::{Part, Worker};
use rows::{Cause, Rows};
use runs::Running;
use store::Store;
use wire::Call;

mod agenda;
mod blows;
mod dice;
mod plan;
mod process;
mod report;
mod rows;
mod runs;
mod store;
mod wire;

pub use report::Report;
pub use store::Sabotage;

/// What is simulated, besides the seed.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How many workers.
    pub workers: usize,
    /// How many items.
    pub items: usize,
    /// What goes wrong.
    pub faults: Faults,
    /// A promise to break on purpose.
    pub sabotage: Option<Sabotage>,
    /// Who is told everything that happens.
    pub trace: Option<fn(fmt::Arguments<'_>)>,
}

/// What goes wrong in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    /// Whatever can.
    All,
    /// Nothing: workers come and go, people cancel and retry, handlers fail. No attempt may be lost.
    None,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 5,
            items: 40,
            faults: Faults::All,
            sabotage: None,
            trace: None,
        }
    }
}

/// A seed under which a promise was broken.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// When, since the start of the simulation.
    pub after: Duration,
    /// What was broken.
    pub words: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, after, words } = self;
        write!(
            f,
            "seed {seed}, after {after:?}: {words}\nreplay it in detail: cargo xtask sim --seed {seed}"
        )
    }
}

impl std::error::Error for Failure {}

/// Plays one seed to its end.
///
/// # Errors
/// [`Failure`] names the first promise that was broken.
pub fn run(seed: u64, settings: &Settings) -> Result<Report, Failure> {
    World::new(seed, settings).play()
}

/// More events than any seed needs: something goes round in circles.
const EVENTS_MAX: u64 = 3_000_000;

/// All rows are compared with what was last seen of them once in so many events.
const COMPARED_EVERY: u64 = 256;

struct World {
    seed: u64,
    plan: Plan,
    rates: Rates,
    faults: Faults,
    sabotage: Option<Sabotage>,
    trace: Option<fn(fmt::Arguments<'_>)>,
    dice: Dice,
    clock: Arc<ManualClock>,
    began: BootTime,
    agenda: Agenda,
    store: Store,
    workers: Vec<Worker>,
    calls: BTreeMap<CallId, Call>,
    runs: BTreeMap<RunId, Running>,
    /// Holds whose runs a keeper stopped before they ended.
    stopped: BTreeSet<Hold>,
    rows: Rows,
    report: Report,
    /// Of calls and runs.
    next_id: u64,
    outage_until: BootTime,
    next_step_ahead: BootTime,
    is_quiet: bool,
    violation: Option<String>,
}

impl World {
    fn new(seed: u64, settings: &Settings) -> Self {
        let mut dice = Dice::of(seed);
        let clock = Arc::new(ManualClock::default());
        let plan = Plan::draw(&mut dice, settings, clock.now());
        let now = clock.elapsed();
        let workers = plan.workers.iter().map(|setup| Worker {
            settings: setup.clone(),
            lives: 0,
            process: None,
            frozen_until: now,
            loop_held_until: now,
            keeper_held_until: now,
            cut_until: now,
        });
        let mut world = Self {
            seed,
            rates: plan.rates,
            faults: settings.faults,
            sabotage: settings.sabotage,
            trace: settings.trace,
            store: Store::new(clock.clone(), settings.sabotage),
            clock,
            began: now,
            agenda: Agenda::starting_at(now),
            workers: workers.collect(),
            calls: BTreeMap::new(),
            runs: BTreeMap::new(),
            stopped: BTreeSet::new(),
            rows: Rows::default(),
            report: Report::default(),
            next_id: 0,
            outage_until: now,
            next_step_ahead: now,
            is_quiet: false,
            violation: None,
            dice,
            plan,
        };
        world.lay_out();
        world
    }

    /// Puts on the agenda what does not follow from anything else.
    fn lay_out(&mut self) {
        for seat in 0..self.workers.len() {
            let wait = self.dice.up_to(self.plan.lease / 4);
            self.after(wait, Event::Boots(seat));
        }
        for number in 0..self.plan.items.len() {
            let wait = self.plan.items[number].after;
            self.after(wait, Event::Enqueue(number));
        }
        for (longest, event) in [
            (self.plan.respite, Event::Blow),
            (self.plan.idle_operators, Event::Operates),
        ] {
            let wait = self.dice.up_to(longest);
            self.after(wait, event);
        }
        self.after(self.plan.active, Event::Quiet);
    }

    fn play(mut self) -> Result<Report, Failure> {
        let over = self.began + self.plan.active + self.plan.quiet;
        let mut events = 0_u64;
        while self.violation.is_none() && !self.is_at_rest() {
            let Some((passed, event)) = self.agenda.pop() else {
                self.violated("nothing more can happen, and not every item has ended".to_owned());
                break;
            };
            self.clock.advance(passed);
            events += 1;
            if self.agenda.now > over || events > EVENTS_MAX {
                self.violated(format!(
                    "{} of {} items have not come to their end",
                    self.rows.open(),
                    self.plan.items.len()
                ));
                break;
            }
            self.report
                .fold(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX));
            self.happens(event);
            if events.is_multiple_of(COMPARED_EVERY) {
                self.compare_rows();
            }
        }
        self.close();
        match self.violation {
            None => Ok(self.report),
            Some(words) => Err(Failure {
                seed: self.seed,
                after: self.agenda.now.since(self.began),
                words,
            }),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Within(who, inner) => {
                let worker = &self.workers[who.seat];
                let Some(process) = worker.process.as_ref().filter(|process| process.who == who)
                else {
                    return;
                };
                let Some(part) = process.part_for(&inner) else {
                    return;
                };
                let held_until = match part {
                    Part::Loop => worker.loop_held_until,
                    Part::Keeper => worker.keeper_held_until,
                    Part::Any => BootTime::default(),
                };
                let waits_until = worker.frozen_until.max(held_until);
                if waits_until > self.agenda.now {
                    self.at(waits_until, Event::Within(who, inner));
                } else {
                    self.within(who, inner);
                }
            }
            Event::Run(run, turn) => match self.run_waits_until(run) {
                Some(until) => self.at(until, Event::Run(run, turn)),
                None => self.run_turn(run, turn),
            },
            Event::Arrives(call) => self.arrives(call),
            Event::Sweep(who, step) => self.sweep(who, step),
            Event::Boots(seat) => self.boots(seat),
            Event::Enqueue(number) => self.enqueue(number),
            Event::Operates => self.operates(),
            Event::Blow => self.blow(),
            Event::Resumes => self.resumes(),
            Event::Quiet => self.quiet(),
        }
    }

    fn is_at_rest(&self) -> bool {
        self.is_quiet && self.rows.open() == 0 && self.rows.len() == self.plan.items.len()
    }

    /// What is checked once all has come to rest.
    fn close(&mut self) {
        if self.violation.is_some() {
            return;
        }
        self.compare_rows();
        let dead: Vec<(OrgId, ItemId, i64)> = self
            .rows
            .all()
            .filter(|(_, row)| row.is_dead_letter())
            .map(|(org, row)| (org, row.id, row.claim_seq))
            .collect();
        for (org, item, claim_seq) in dead {
            self.report.count("dead letters");
            if !self.store.is_audited(org, item, claim_seq) {
                self.violated(format!("the dead letter {item} has no audit entry, or two"));
            }
        }
        for _ in 0..self.rows.len() {
            self.report.count("items");
        }
    }

    /// Holds a row against the promise of the call that has just touched it.
    fn observe(&mut self, org: OrgId, item: ItemId, cause: &Cause<'_>) {
        let row = self.store.row(org, item);
        if let Err(words) = self.rows.observe(org, row, cause, self.store.now()) {
            self.violated(words);
        }
    }

    fn compare_rows(&mut self) {
        let mut orgs: Vec<OrgId> = self.rows.all().map(|(org, _)| org).collect();
        orgs.sort_unstable();
        orgs.dedup();
        for org in orgs {
            for row in self.store.rows(org) {
                if let Err(words) = self.rows.compare(&row) {
                    self.violated(words);
                }
            }
        }
    }

    fn at(&mut self, at: BootTime, event: Event) {
        self.agenda.at(&mut self.dice, at, event);
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.agenda.after(&mut self.dice, wait, event);
    }

    /// The first is what matters; what follows may follow from it.
    fn violated(&mut self, words: String) {
        self.note(format_args!("BROKEN: {words}"));
        self.violation.get_or_insert(words);
    }

    fn note(&self, what: fmt::Arguments<'_>) {
        if let Some(trace) = self.trace {
            let at = self.agenda.now.since(self.began);
            trace(format_args!("{:>12.6} {what}", at.as_secs_f64()));
        }
    }
}
