//! A store with faults: errors, lost answers, delays and black holes, as told or by a seed.
//!
//! [`Faults`] is the control, kept by the test; [`Faults::wrap`] puts it in front of any stores. The
//! work store gets the faults, the other namespaces pass through.
//!
//! # What a fault is
//!
//! - [`Fault::Error`]: the call is not made, and answered with the error.
//! - [`Fault::LostAnswer`]: the call is made, and whatever it answered becomes
//!   [`StoreError::Unavailable`]: the caller cannot know.
//! - [`Fault::Delay`]: the call is made later, by tokio's clock, which a test may have paused.
//! - A blocked operation ([`Faults::block`]) hangs before the call is made until it is unblocked, as
//!   behind a proxy that swallows everything without closing.
//!
//! # Determinism
//!
//! What befalls the n-th call of an operation depends on the seed, the operation and n alone, and not
//! on how calls of different operations interleave. A fault set by [`Faults::fail_next`] goes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::store::StoreResult;
use leasehold_core::{StoreError, Stores};
use tokio::sync::watch;

mod store;

use store::FaultStore;

macro_rules! operations {
    ($($name:ident = $text:literal,)*) => {
        /// A method of `WorkStore` that answers later. `subscribe` does not: see
        /// [`Faults::drop_hints`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl Operation {
            /// Every operation, in the order of the trait.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The method's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

operations! {
    Now = "now",
    Enqueue = "enqueue",
    Claim = "claim",
    Renew = "renew",
    Settle = "settle",
    FailOrphaned = "fail_orphaned",
    MaintenanceDue = "maintenance_due",
    RequeueStale = "requeue_stale",
    OrphanStale = "orphan_stale",
    Unaudited = "unaudited",
    MarkAudited = "mark_audited",
    Cancel = "cancel",
    Retry = "retry",
    Get = "get",
    GetByKey = "get_by_key",
    List = "list",
    Gauges = "gauges",
    Purge = "purge",
    PauseLane = "pause_lane",
    ResumeLane = "resume_lane",
    PausedLanes = "paused_lanes",
}

const OPERATIONS: usize = Operation::ALL.len();

impl Operation {
    const fn index(self) -> usize {
        self as usize
    }
}

/// What befalls one call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The call is not made; this is the answer.
    Error(StoreError),
    /// The call is made; its answer is lost.
    LostAnswer,
    /// The call is made after this.
    Delay(Duration),
}

impl Fault {
    /// The store was not reached.
    pub fn unavailable() -> Self {
        Self::Error(StoreError::Unavailable(
            "a fault of the test: the store was not reached".into(),
        ))
    }

    /// The store undid the call.
    pub fn retry() -> Self {
        Self::Error(StoreError::Retry(
            "a fault of the test: the call was undone".into(),
        ))
    }
}

/// How likely each fault is, for each call; together at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Odds {
    /// Of [`Fault::unavailable`], from 0 to 1.
    pub unavailable: f64,
    /// Of [`Fault::retry`], from 0 to 1.
    pub retry: f64,
    /// Of [`Fault::LostAnswer`], from 0 to 1.
    pub lost_answer: f64,
    /// Of [`Fault::Delay`], from 0 to 1.
    pub delay: f64,
    /// Delays are drawn evenly from zero to this.
    pub delay_max: Duration,
}

/// The faults of one store. Clones are one control.
#[derive(Debug, Clone)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    seed: u64,
    plan: Mutex<Plan>,
    calls: watch::Sender<[u64; OPERATIONS]>,
    blocked: watch::Sender<[bool; OPERATIONS]>,
    hints_dropped: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Plan {
    odds: [Odds; OPERATIONS],
    next: [VecDeque<Fault>; OPERATIONS],
    faults: [u64; OPERATIONS],
}

impl Faults {
    /// No faults yet; what [`Faults::set_odds`] draws is of this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                seed,
                plan: Mutex::default(),
                calls: watch::Sender::new([0; OPERATIONS]),
                blocked: watch::Sender::new([false; OPERATIONS]),
                hints_dropped: watch::Sender::new(false),
            }),
        }
    }

    /// The stores with these faults in front of their work store.
    pub fn wrap(&self, stores: Stores) -> Stores {
        let work = Arc::new(FaultStore::new(stores.work, self.clone()));
        Stores { work, ..stores }
    }

    /// The seed, for a failing test to print.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Sets the odds of every operation.
    pub fn set_odds(&self, odds: Odds) {
        self.with_plan(|plan| plan.odds = [odds; OPERATIONS]);
    }

    /// Sets the odds of one operation.
    pub fn set_odds_of(&self, operation: Operation, odds: Odds) {
        self.with_plan(|plan| plan.odds[operation.index()] = odds);
    }

    /// Lets the fault befall the next call of the operation that none is meant for yet.
    pub fn fail_next(&self, operation: Operation, fault: Fault) {
        self.with_plan(|plan| plan.next[operation.index()].push_back(fault));
    }

    /// Lets calls of the operation hang, those not yet made.
    pub fn block(&self, operation: Operation) {
        self.shared
            .blocked
            .send_modify(|blocked| blocked[operation.index()] = true);
    }

    /// Lets calls of the operation go on, also those that hang.
    pub fn unblock(&self, operation: Operation) {
        self.shared
            .blocked
            .send_modify(|blocked| blocked[operation.index()] = false);
    }

    /// Blocks every operation: the store is behind a black hole.
    pub fn block_all(&self) {
        self.shared.blocked.send_replace([true; OPERATIONS]);
    }

    /// Unblocks every operation.
    pub fn unblock_all(&self) {
        self.shared.blocked.send_replace([false; OPERATIONS]);
    }

    /// Loses every hint from now on, those not yet taken included.
    pub fn drop_hints(&self) {
        self.shared.hints_dropped.send_replace(true);
    }

    /// Delivers hints again, from now on.
    pub fn deliver_hints(&self) {
        self.shared.hints_dropped.send_replace(false);
    }

    /// How many calls of the operation were begun, those included that hang or failed.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.shared.calls.borrow()[operation.index()]
    }

    /// How many calls of the operation a fault befell, delays included.
    pub fn faults(&self, operation: Operation) -> u64 {
        self.with_plan(|plan| plan.faults[operation.index()])
    }

    /// Waits until so many calls of the operation were begun. Safe to drop.
    pub async fn wait_for_calls(&self, operation: Operation, calls: u64) {
        let mut begun = self.shared.calls.subscribe();
        // The sender lives as long as `self`, so there is no other end to this wait.
        let _ = begun
            .wait_for(|begun| begun[operation.index()] >= calls)
            .await;
    }

    /// Makes the call, or does to it what its fault says.
    async fn pass<T>(
        &self,
        operation: Operation,
        call: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let number = self.begin(operation);
        let mut blocked = self.shared.blocked.subscribe();
        let _ = blocked
            .wait_for(|blocked| !blocked[operation.index()])
            .await;
        match self.fault(operation, number) {
            None => call.await,
            Some(Fault::Error(error)) => Err(error),
            Some(Fault::LostAnswer) => {
                call.await?;
                let lost = format!(
                    "a fault of the test: the answer to {} was lost",
                    operation.name()
                );
                Err(StoreError::Unavailable(lost))
            }
            Some(Fault::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                call.await
            }
        }
    }

    fn begin(&self, operation: Operation) -> u64 {
        let mut number = 0;
        self.shared.calls.send_modify(|calls| {
            calls[operation.index()] += 1;
            number = calls[operation.index()];
        });
        number
    }

    fn fault(&self, operation: Operation, number: u64) -> Option<Fault> {
        self.with_plan(|plan| {
            let index = operation.index();
            let told = plan.next[index].pop_front();
            let fault = told.or_else(|| draw(plan.odds[index], &mut self.rng(operation, number)));
            plan.faults[index] += u64::from(fault.is_some());
            fault
        })
    }

    /// Random bits for one call of one operation, mixed by draws from one generator after another.
    fn rng(&self, operation: Operation, number: u64) -> Rng {
        let mut by_seed = Rng::with_seed(self.shared.seed);
        let mut by_operation = Rng::with_seed(by_seed.u64(..) ^ operation.index() as u64);
        Rng::with_seed(by_operation.u64(..) ^ number)
    }

    fn with_plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(
            &mut self
                .shared
                .plan
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

fn draw(odds: Odds, rng: &mut Rng) -> Option<Fault> {
    let mut left = rng.f64();
    let mut falls_to = |share: f64| {
        left -= share;
        left < 0.0
    };
    if falls_to(odds.unavailable) {
        Some(Fault::unavailable())
    } else if falls_to(odds.retry) {
        Some(Fault::retry())
    } else if falls_to(odds.lost_answer) {
        Some(Fault::LostAnswer)
    } else if falls_to(odds.delay) {
        Some(Fault::Delay(odds.delay_max.mul_f64(rng.f64())))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
