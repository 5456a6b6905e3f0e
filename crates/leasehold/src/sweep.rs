//! The sweep: what every worker does on its own timer to mend what crashes left.
//!
//! There is no leader and no lock. Each step is idempotent, bounded, and serialised by the store; one
//! that fails is logged, and the next runs. In this order:
//!
//! 1. `recover`: claims whose lease is over, and dead letters whose audit entry is owed, org by org;
//! 2. `purge`: what has been kept for long enough, table by table;
//! 3. `measure`: the gauges, last and always, whatever is left of the budget.
//!
//! # Budget
//! Every step runs at least once in a pass. What comes back full is asked again, one batch each in
//! turn, for as long as the budget lasts: no org and no table holds up the others. Orgs form a ring in
//! id order; a pass takes at least one, and the next goes on where it stopped.
//!
//! # What a pass costs
//! With nothing due it makes a fixed number of statements, however many orgs there are: one probe
//! names the orgs that need a visit, and each other step asks about all orgs at once.
//!
//! # A new step
//! is a method of [`Pass`] in a file of its own, called from [`Sweep::pass`], that asks by
//! [`Pass::ask`] and adds to [`Swept`]. A purge is one line in `purge.rs`.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{BootTime, Clock, NameError, OrgId, StoreError, Stores, WorkerId};
use serde::Serialize;

use crate::clock::SystemClock;
use crate::config::{SettingsError, WorkerSettings};
use crate::telemetry::Metrics;
use crate::tenancy::Tenancy;
use crate::worker::outages::Outages;

mod measure;
mod purge;
mod recover;

pub(crate) use purge::purged_rows;

/// No statement of the sweep is waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sweeps a set of stores. A worker has one of its own; a person's command makes one for a single pass.
#[derive(Debug)]
pub struct Sweep {
    pub(crate) stores: Stores,
    pub(crate) tenancy: Arc<dyn Tenancy>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) outages: Arc<Outages>,
    pub(crate) settings: Arc<WorkerSettings>,
    pub(crate) worker: WorkerId,
}

/// Why a sweep was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A setting breaks its rule. Correct it.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The name breaks its rule. Correct it.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Where in the ring of orgs the next pass goes on: after this one, or at the start.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    resume_after: Option<OrgId>,
}

/// What one pass did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Swept {
    /// How long it took.
    pub milliseconds: u64,
    /// Orgs that were visited because something was due in them.
    pub orgs: u32,
    /// Expired claims that were queued again.
    pub requeued: u64,
    /// Expired claims that became dead letters.
    pub dead: u64,
    /// Expired claims that ended as cancelled.
    pub cancelled: u64,
    /// Expired claims of gone orgs.
    pub orphaned: u64,
    /// Dead letters whose audit entry was owed.
    pub audited: u64,
    /// Rows deleted after their retention, by what they were; what deleted none is not named.
    pub purged: BTreeMap<&'static str, u64>,
    /// Steps that failed.
    pub errors: u32,
    /// Whether the budget ended before the work did.
    pub unfinished: bool,
    /// What was measured; empty where it could not be read.
    pub measured: Measured,
    #[serde(skip)]
    answers: u32,
}

/// What a pass measured. `None`: the store could not say, and the gauge stays as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// For how many seconds the oldest item that is due has been so; zero when none waits.
    pub oldest_age_seconds: Option<f64>,
    /// Dead letters in the store.
    pub failed: Option<u64>,
}

impl Swept {
    /// Nothing was moved, and nothing stood in the way: no news to anybody.
    fn found_nothing(&self) -> bool {
        let recovered = self.requeued + self.dead + self.cancelled + self.orphaned;
        let tidied = self.audited + self.purged.values().sum::<u64>();
        recovered + tidied == 0 && self.errors == 0 && !self.unfinished
    }

    /// Whether the store answered anything at all.
    pub(crate) const fn was_answered(&self) -> bool {
        self.answers > 0
    }

    /// The one line of a pass.
    fn log(&self) {
        let Self {
            milliseconds,
            orgs,
            requeued,
            dead,
            cancelled,
            orphaned,
            audited,
            errors,
            unfinished,
            ..
        } = self;
        let purged: Vec<String> = self
            .purged
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        let purged = purged.join(", ");
        let Measured {
            oldest_age_seconds,
            failed,
        } = self.measured;
        if self.found_nothing() {
            tracing::debug!(
                milliseconds,
                oldest_age_seconds,
                failed,
                "swept, and found nothing"
            );
            return;
        }
        tracing::info!(
            milliseconds,
            orgs,
            requeued,
            dead,
            cancelled,
            orphaned,
            audited,
            purged,
            errors,
            unfinished,
            oldest_age_seconds,
            failed,
            "swept"
        );
    }
}

/// A pass under way.
struct Pass<'s> {
    sweep: &'s Sweep,
    /// What is not begun by then is left to the next pass.
    deadline: BootTime,
    swept: Swept,
}

impl Sweep {
    /// For single passes, made by hand. Its name stands in the audit entries that it writes.
    ///
    /// # Errors
    /// [`SweepError`] names the setting and its rule.
    pub fn new(
        stores: Stores,
        tenancy: Arc<dyn Tenancy>,
        settings: WorkerSettings,
    ) -> Result<Self, SweepError> {
        settings.check()?;
        Ok(Self {
            stores,
            tenancy,
            clock: Arc::new(SystemClock),
            metrics: Arc::new(Metrics::new()),
            outages: Arc::new(Outages::default()),
            worker: settings.worker_id()?,
            settings: Arc::new(settings),
        })
    }

    /// With another clock, for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// One pass, from the start of the ring, within the budget of the settings.
    ///
    /// A step that fails is counted in [`Swept::errors`] and logged. Safe to drop: it ends between two
    /// statements or within one, and the next pass of anybody does what is left.
    pub async fn once(&self) -> Swept {
        self.pass(&mut Ring::default(), Recovery::Due).await
    }

    /// One pass.
    pub(crate) async fn pass(&self, ring: &mut Ring, recovery: Recovery) -> Swept {
        let began = self.clock.elapsed();
        let mut pass = Pass {
            sweep: self,
            deadline: began + self.settings.sweep_budget,
            swept: Swept::default(),
        };
        match recovery {
            Recovery::Due => pass.recover(ring).await,
            Recovery::HeldOff => pass.swept.unfinished = true,
        }
        pass.purge().await;
        pass.measure().await;
        let length = self.clock.elapsed().since(began);
        let mut swept = pass.swept;
        swept.milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        self.metrics.swept(length, &swept);
        swept.log();
        swept
    }
}

/// Whether expired leases may be acted upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// They may.
    Due,
    /// The store was out of reach until just now: living holders go first.
    HeldOff,
}

impl Pass<'_> {
    /// Whether nothing new may be begun.
    fn is_over(&self) -> bool {
        self.sweep.clock.elapsed() >= self.deadline
    }

    /// What the store answers. A failure is counted, logged and not passed on: the next step runs.
    async fn ask<T>(
        &mut self,
        step: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<T> {
        let answer = bounded(call).await;
        let Sweep {
            clock,
            metrics,
            outages,
            ..
        } = self.sweep;
        match answer {
            Ok(value) => {
                self.swept.answers += 1;
                outages.answered(clock.elapsed());
                Some(value)
            }
            Err(error) => {
                self.swept.errors += 1;
                metrics.store_error(step);
                outages.note_if(&error, clock.elapsed());
                tracing::warn!(%error, step, "a step of the sweep failed");
                None
            }
        }
    }
}

pub(crate) async fn bounded<T>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::Unavailable(format!(
            "no answer within {PATIENCE:?}"
        ))),
    }
}
