//! A worker's settings: defaults, and the rules each must pass before anything starts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::{Kind, Lane, NameError, WorkerId};
use uuid::Uuid;

use crate::worker::KindSettings;

/// How a worker claims, keeps, stops and maintains. Checked once, by [`WorkerSettings::check`].
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// For people; made unique per start of the process.
    pub name: String,
    /// From which lanes it claims.
    pub lanes: Vec<Lane>,
    /// How many items run at once.
    pub capacity: u32,
    /// How many more are claimed ahead of a free slot.
    pub prefetch: u32,
    /// How long a claim lasts unless renewed. Renewal is due after a quarter, trust ends after half.
    pub lease: Duration,
    /// The longest the loop goes without looking for work; hints wake it sooner.
    pub poll_interval: Duration,
    /// How often the worker says that it lives. Three missed beats count as dead.
    pub heartbeat_interval: Duration,
    /// How often the worker sweeps.
    pub sweep_interval: Duration,
    /// How long one pass may take before it leaves the rest to the next.
    pub sweep_budget: Duration,
    /// How many rows one statement of the sweep moves or deletes.
    pub sweep_batch: u32,
    /// Recovered items become due spread over this.
    pub requeue_spread: Duration,
    /// How long finished items are kept.
    pub item_retention: Duration,
    /// How long a stopped run may take to end before it is killed.
    pub stop_grace: Duration,
    /// How long a drain lets runs go on undisturbed before it asks them to end.
    pub drain_finish: Duration,
    /// How long a drain then waits for runs to end by themselves.
    pub drain_timeout: Duration,
    /// How long a drain then takes at most to kill, hand back and go offline.
    pub drain_kill: Duration,
    /// With more stuck slots than this the worker drains and [`crate::Worker::run`] returns an error,
    /// so that the platform replaces the process. `None`: never.
    pub stuck_max: Option<u32>,
    /// At most so many claims per org and lane, other workers' included.
    pub tenant_cap: Option<u32>,
    /// Where `/healthz` and `/metrics` are served; port 0 picks one. `None`: nowhere.
    pub health: Option<SocketAddr>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            name: "worker".to_owned(),
            lanes: vec![Lane::default()],
            capacity: 16,
            prefetch: 0,
            lease: Duration::from_mins(1),
            poll_interval: Duration::from_secs(1),
            heartbeat_interval: Duration::from_secs(10),
            sweep_interval: Duration::from_secs(30),
            sweep_budget: Duration::from_secs(20),
            sweep_batch: 1_000,
            requeue_spread: Duration::from_secs(10),
            item_retention: Duration::from_secs(30 * DAY),
            stop_grace: Duration::from_secs(10),
            drain_finish: Duration::ZERO,
            drain_timeout: Duration::from_secs(20),
            drain_kill: Duration::from_secs(5),
            stuck_max: None,
            tenant_cap: None,
            health: None,
        }
    }
}

const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

/// A setting that breaks its rule: which, what it was, and what it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} = {given}: {rule}")]
pub struct SettingsError {
    /// The setting's name, as in the configuration.
    pub setting: &'static str,
    /// What it was set to.
    pub given: String,
    /// What it must be.
    pub rule: String,
}

impl WorkerSettings {
    /// Passes if every setting, and every pair that depends on another, keeps its rule.
    ///
    /// # Errors
    /// [`SettingsError`] names the first that does not.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.check_counts()?;
        self.check_durations()?;
        self.check_pairs()
    }

    /// How many calls to its stores a worker makes at once, at most for long: claims, settles, a renewal, one of
    /// its sweep and its heartbeat. Handlers that use the stores come on top. Workers that share stores add up.
    ///
    /// Stores that serve fewer would keep renewals waiting behind settles, and leases would be lost:
    /// [`Worker::new`](crate::Worker::new) refuses them.
    pub fn calls_at_once(&self) -> u32 {
        let held_max = self.capacity.saturating_add(self.prefetch);
        let settles = held_max.min(SETTLES_MAX);
        let claims = if held_max < 2 * CLAIM_MAX { 1 } else { 2 };
        claims + settles + CALLS_BESIDE
    }

    /// Passes if stores that serve so many calls at once serve this worker.
    pub(crate) fn check_calls(&self, calls_max: u32) -> Result<(), SettingsError> {
        let needed = self.calls_at_once();
        if calls_max >= needed {
            return Ok(());
        }
        let rule = format!(
            "a worker of it makes {needed} calls to the store at once, which has {calls_max} connections for \
             them; give the store more connections"
        );
        Err(SettingsError {
            setting: "capacity",
            given: self.capacity.to_string(),
            rule,
        })
    }

    fn check_counts(&self) -> Result<(), SettingsError> {
        let refuse = |setting, given: &dyn fmt::Debug, rule: &str| {
            Err(SettingsError {
                setting,
                given: format!("{given:?}"),
                rule: rule.to_owned(),
            })
        };
        if WorkerId::parse(&self.name).is_err() || self.name.len() > NAME_BYTES_MAX {
            return refuse(
                "name",
                &self.name,
                "1 to 100 printable characters without white space",
            );
        }
        if self.lanes.is_empty() || self.lanes.len() > LANES_MAX {
            return refuse("lanes", &self.lanes.len(), "between 1 and 100 lanes");
        }
        for (setting, value, low, high) in [
            ("capacity", self.capacity, 1, SLOTS_MAX),
            ("prefetch", self.prefetch, 0, SLOTS_MAX),
            ("sweep_batch", self.sweep_batch, 1, SLOTS_MAX),
            ("tenant_cap", self.tenant_cap.unwrap_or(1), 1, u32::MAX),
        ] {
            if !(low..=high).contains(&value) {
                return refuse(setting, &value, &format!("between {low} and {high}"));
            }
        }
        Ok(())
    }

    fn check_durations(&self) -> Result<(), SettingsError> {
        let ms = Duration::from_millis;
        let secs = Duration::from_secs;
        let rules = [
            ("lease", self.lease, ms(200), secs(DAY)),
            ("poll_interval", self.poll_interval, ms(10), secs(3_600)),
            (
                "heartbeat_interval",
                self.heartbeat_interval,
                ms(50),
                secs(300),
            ),
            ("sweep_interval", self.sweep_interval, ms(50), secs(DAY)),
            ("sweep_budget", self.sweep_budget, ms(10), secs(DAY)),
            (
                "requeue_spread",
                self.requeue_spread,
                Duration::ZERO,
                secs(3_600),
            ),
            (
                "item_retention",
                self.item_retention,
                secs(1),
                secs(10 * YEAR),
            ),
            ("stop_grace", self.stop_grace, ms(10), secs(3_600)),
            ("drain_finish", self.drain_finish, Duration::ZERO, secs(DAY)),
            (
                "drain_timeout",
                self.drain_timeout,
                Duration::ZERO,
                secs(3_600),
            ),
            ("drain_kill", self.drain_kill, ms(100), secs(600)),
        ];
        for (setting, given, low, high) in rules {
            if given < low || given > high {
                return Err(SettingsError {
                    setting,
                    given: format!("{given:?}"),
                    rule: format!("between {low:?} and {high:?}"),
                });
            }
        }
        Ok(())
    }

    fn check_pairs(&self) -> Result<(), SettingsError> {
        if self.sweep_budget > self.sweep_interval {
            return Err(SettingsError {
                setting: "sweep_budget",
                given: format!("{:?}", self.sweep_budget),
                rule: format!("no longer than sweep_interval ({:?})", self.sweep_interval),
            });
        }
        Ok(())
    }

    /// The id of this start: the name, the process, and random bits, since a platform may reuse both.
    pub(crate) fn worker_id(&self) -> Result<WorkerId, NameError> {
        let start = Uuid::new_v4().simple().to_string();
        let text = format!("{}/{}/{}", self.name, std::process::id(), &start[..8]);
        WorkerId::parse(&text)
    }
}

/// Passes if what every kind says of itself keeps its rules: no item fails because of a setting, and
/// none is retried without a pause.
pub(crate) fn check_kinds(kinds: &BTreeMap<Kind, KindSettings>) -> Result<(), SettingsError> {
    for (kind, settings) in kinds {
        let retry = &settings.retry;
        let longest = Duration::from_secs(YEAR);
        let least = Duration::from_millis(1);
        let durations = [
            ("retry.base", retry.base, least),
            ("retry.cap", retry.cap, retry.base),
            (
                "time_limit",
                settings.time_limit.unwrap_or(longest),
                Duration::from_millis(10),
            ),
        ];
        for (setting, given, low) in durations {
            if given < low || given > longest {
                return Err(SettingsError {
                    setting,
                    given: format!("{given:?}"),
                    rule: format!("between {low:?} and {longest:?} (kind {kind})"),
                });
            }
        }
        if !(0.0..=1.0).contains(&retry.jitter) {
            return Err(SettingsError {
                setting: "retry.jitter",
                given: retry.jitter.to_string(),
                rule: format!("a fraction from 0 to 1 (kind {kind})"),
            });
        }
    }
    Ok(())
}

/// So many settles are under way at once: while the store makes one durable, the next is with it
/// already, and one that must be asked again does not hold up all others.
pub(crate) const SETTLES_MAX: u32 = 2;

/// One claim asks for no more: a second one may go out beside it once there is room for as many again, so
/// that a large worker takes in what one brought while the store is at the other.
pub(crate) const CLAIM_MAX: u32 = 500;

/// A renewal, one of the sweep, and a heartbeat.
const CALLS_BESIDE: u32 = 3;

/// Leaves room for the process and the random bits of a worker id.
const NAME_BYTES_MAX: usize = 100;
/// A claim looks at each lane; more are a sign of lanes used as keys.
const LANES_MAX: usize = 100;
/// Items in one process: what one statement claims, renews or settles.
const SLOTS_MAX: u32 = 10_000;

#[cfg(test)]
mod tests;
