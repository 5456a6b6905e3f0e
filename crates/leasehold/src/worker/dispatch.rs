//! Every decision of the worker loop, without an await: events in, actions out.
//!
//! # Overview
//! [`Dispatch`] knows each item the worker holds and where its run stands. `drive` feeds it what
//! happened and carries out what it answers; the simulation does the same without a runtime.
//!
//! # States of one held item
//! ```text
//!  claimed ──▶ waiting ──▶ running ──▶ settling ──▶ gone
//!                 │           │  ▲         ▲
//!                 │           ▼  │ended    │
//!                 │        stopping ───────┘     stopping ──(does not end)──▶ stuck
//!                 └── drain, lost, cancelled ──▶ settling (handed back) or gone
//! ```
//!
//! # What follows from a stop
//! | why | cancelled | killed | what an ending then means |
//! |---|---|---|---|
//! | drain | after `drain_finish` | at the drain limit | done, parked and refused count; anything else is handed back |
//! | cancel requested | at once | after the grace | done counts; anything else is handed back, and the store ends it as cancelled |
//! | time limit | at once | after the grace | done counts; anything else is a failure, `timed_out` |
//! | lease doubted | at once | a quarter lease later | as drain: the hand-back needs the token alone |
//! | lease refused | at once | at once | nothing is written |
//!
//! A run that has not ended some time after it was killed is stuck: its slot stays taken and counted,
//! its lease is no longer renewed, and whatever it ends in later is refused by the store or handed back.
//!
//! # Poison
//! The last attempt of an item that has lost a worker runs alone: it waits until nothing else is held,
//! and nothing is claimed or started beside it, so that it takes no neighbour along. What is merely
//! held would be lost with the worker too, so that of several such items one is kept, the others are
//! handed back, and claims and settles under way are waited for. Stuck runs are not: they may never end.
//!
//! # The same item twice
//! A worker that froze may claim an item again while its older run of it goes on. The newer claim
//! proves that the older hold is gone: the older run is stopped as one whose lease was refused, and
//! the item is handed back until that run has ended or is stuck. Everything here is kept by hold, never
//! by item, so that the two are not mixed up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rules::RetryPolicy;
use leasehold_core::store::work::Claimed;
use leasehold_core::{BootTime, ClaimToken, Hold, Kind, Lane, WorkerId};

use super::trust::Loss;
use claiming::Claim;
use settling::Wrote;
use stopping::Drain;

mod claiming;
mod messages;
mod settling;
mod stopping;

pub use messages::{Action, Ending, Event, SettleAnswer, StopReason, Verdict};

/// How the loop decides.
#[derive(Debug, Clone)]
pub struct DispatchSettings {
    /// Who claims, for people.
    pub worker: WorkerId,
    /// From which lanes.
    pub lanes: Vec<Lane>,
    /// Which kinds it knows, and how each is treated.
    pub kinds: BTreeMap<Kind, KindSettings>,
    /// How many items run at once.
    pub capacity: u32,
    /// How many more are claimed ahead.
    pub prefetch: u32,
    /// How many items one claim asks for at most.
    pub claim_max: u32,
    /// How long a claim lasts unless renewed.
    pub lease: Duration,
    /// The longest the loop goes without looking for work.
    pub poll_interval: Duration,
    /// At most so many claims per org and lane.
    pub tenant_cap: Option<u32>,
    /// Items that are handed back because their leases could not be kept become due spread over this: an
    /// outage takes them from all workers at once.
    pub requeue_spread: Duration,
    /// How long a stopped run may take to end before it is killed.
    pub stop_grace: Duration,
    /// How long a drain lets runs go on undisturbed before it asks them to end.
    pub drain_finish: Duration,
    /// How long a drain then waits for runs to end by themselves.
    pub drain_timeout: Duration,
    /// How long a drain then waits for killed runs to end and hand-backs to be written.
    pub drain_kill: Duration,
}

/// How items of one kind are treated.
#[derive(Debug, Clone, Copy, Default)]
pub struct KindSettings {
    /// Delays after failures.
    pub retry: RetryPolicy,
    /// How long one run may take.
    pub time_limit: Option<Duration>,
}

impl DispatchSettings {
    fn kind(&self, kind: &Kind) -> KindSettings {
        self.kinds.get(kind).copied().unwrap_or_default()
    }
}

/// Where the loop's randomness comes from: the operating system, or a seed.
pub trait Chance: Send {
    /// A fresh claim token.
    fn token(&mut self) -> ClaimToken;
    /// A number from 0 to 1.
    fn jitter(&mut self) -> f64;
}

/// The state of the worker loop.
pub struct Dispatch {
    settings: DispatchSettings,
    chance: Box<dyn Chance>,
    runs: BTreeMap<Hold, Run>,
    /// In the order of the claim.
    waiting: VecDeque<Hold>,
    /// One that must run with no other beside it.
    waiting_alone: Option<Hold>,
    running_alone: Option<Hold>,
    /// Slots taken, stuck ones included.
    occupied: u32,
    stuck: u32,
    timers: BTreeSet<(BootTime, Hold)>,
    claim: Claim,
    drain: Option<Drain>,
}

struct Run {
    /// Shared with whoever runs it: what is moved about is small.
    claimed: Arc<Claimed>,
    state: State,
    stop: Option<StopReason>,
    timer: Option<BootTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// Told to stop; killed when the timer fires.
    Stopping,
    /// Killed; stuck when the timer fires.
    Killed,
    Stuck,
    Settling(Wrote),
}

impl Run {
    const fn occupies(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Settling(_))
    }
}

/// When only an event can change anything.
const NEVER: BootTime = BootTime::new(Duration::MAX);

impl Dispatch {
    /// A loop that holds nothing and looks for work at once.
    pub fn new(settings: DispatchSettings, chance: Box<dyn Chance>, now: BootTime) -> Self {
        Self {
            settings,
            chance,
            runs: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_alone: None,
            running_alone: None,
            occupied: 0,
            stuck: 0,
            timers: BTreeSet::new(),
            claim: Claim::due_at(now),
            drain: None,
        }
    }

    /// Takes one event in and adds what follows from it to `out`.
    pub fn handle(&mut self, now: BootTime, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Hint => self.claim.wake(),
            Event::Claimed(token, answer) => self.claimed(now, token, answer, out),
            Event::Began(hold) => self.began(hold, now),
            Event::Ended(hold, ending) => self.ended(hold, ending, out),
            Event::Settled(hold, answer) => self.settled(hold, answer, out),
            Event::Loss(hold, Loss::Refused) => self.stop(hold, StopReason::LeaseLost, now, out),
            Event::Loss(hold, Loss::Doubted) => self.stop(hold, StopReason::LeaseDoubted, now, out),
            Event::Loss(hold, Loss::CancelRequested) => {
                self.stop(hold, StopReason::Cancel, now, out);
            }
            Event::Drain => self.drain(now, out),
            Event::ClockJumped => self.claim.pause_after_jump(now),
            Event::Tick => {}
        }
    }

    /// What is due at `now` whatever happened: timers, starts, the next claim. Call it after each
    /// batch of events, and again at [`Dispatch::next_look`].
    ///
    /// It may ask to start an item whose trust has ended since it was claimed and of which no loss was
    /// told yet. Whoever carries [`Action::Start`] out asks [`super::trust::Leases::is_trusted`] first,
    /// and answers [`Ending::Killed`] without starting anything if it is not.
    pub fn advance(&mut self, now: BootTime, out: &mut Vec<Action>) {
        self.forget_lost_answers(now);
        self.fire_timers(now, out);
        self.advance_drain(now, out);
        self.hand_back_if_all_stuck(out);
        self.start_waiting(now, out);
        self.ask(now, out);
    }

    /// When [`Dispatch::advance`] has something to do without any event: the end of time if never.
    /// After an advance it is in the future, until [`Dispatch::is_finished`].
    pub fn next_look(&self) -> BootTime {
        let drain = self.drain.as_ref().map(Drain::next_look);
        let timer = self.timers.first().map(|(at, _)| *at);
        [self.next_claim(), drain, timer]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(NEVER)
    }

    /// Whether a drain has come to its end: nothing held that could still be handed back, or no time left.
    pub fn is_finished(&self, now: BootTime) -> bool {
        self.drain.as_ref().is_some_and(|drain| {
            let pending = self.runs.values().any(|run| run.state != State::Stuck);
            !pending && self.claim.is_answered() || drain.is_over(now)
        })
    }

    /// Whether it has stopped claiming for good.
    pub const fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// How many slots are taken, stuck ones included.
    pub const fn occupied(&self) -> u32 {
        self.occupied
    }

    /// How many slots are lost to runs that do not end.
    pub const fn stuck(&self) -> u32 {
        self.stuck
    }

    /// How many items are held: waiting, running, and waiting to be settled.
    pub fn held(&self) -> usize {
        self.runs.len()
    }

    /// The holds of all items held, in their order.
    pub fn holds(&self) -> impl Iterator<Item = Hold> {
        self.runs.keys().copied()
    }

    fn start_waiting(&mut self, now: BootTime, out: &mut Vec<Action>) {
        if self.drain.is_some() || self.running_alone.is_some() {
            return;
        }
        while self.occupied < self.settings.capacity {
            let Some(hold) = self.waiting.pop_front() else {
                break;
            };
            self.start(hold, now, out);
        }
        if self.held() == self.stuck as usize + 1
            && self.claim.is_answered()
            && self.occupied < self.settings.capacity
            && let Some(hold) = self.waiting_alone.take()
        {
            self.running_alone = Some(hold);
            self.start(hold, now, out);
        }
    }

    fn start(&mut self, hold: Hold, now: BootTime, out: &mut Vec<Action>) {
        let Some(run) = self.runs.get_mut(&hold) else {
            return;
        };
        run.state = State::Running;
        self.occupied += 1;
        out.push(Action::Start(run.claimed.clone()));
        if let Some(limit) = self.settings.kind(&run.claimed.item.kind).time_limit {
            self.set_timer(hold, now + limit);
        }
    }

    /// A run that waited for a thread has its whole time from here on.
    fn began(&mut self, hold: Hold, now: BootTime) {
        let run = self.runs.get(&hold);
        let Some(run) = run.filter(|run| run.state == State::Running) else {
            return;
        };
        if let Some(limit) = self.settings.kind(&run.claimed.item.kind).time_limit {
            self.set_timer(hold, now + limit);
        }
    }

    fn set_timer(&mut self, hold: Hold, at: BootTime) {
        self.clear_timer(hold);
        if let Some(run) = self.runs.get_mut(&hold) {
            run.timer = Some(at);
            self.timers.insert((at, hold));
        }
    }

    fn clear_timer(&mut self, hold: Hold) {
        if let Some(at) = self.runs.get_mut(&hold).and_then(|run| run.timer.take()) {
            self.timers.remove(&(at, hold));
        }
    }
}

#[cfg(test)]
mod tests;
