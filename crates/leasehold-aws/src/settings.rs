//! The source's settings, and the rules each must pass before anything starts.

use std::fmt;
use std::time::Duration;

use leasehold::{SettingsError, WorkerSettings};

use crate::envelope::TOKEN_FIELD;
use crate::protection::ProtectionMode;
use crate::report::OUTPUT_BYTES_MAX;

/// How tasks are received, kept and reported. Checked once, by [`StepFunctionsSettings::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFunctionsSettings {
    /// How many tasks run at once.
    pub capacity: u32,
    /// How often the service is told that a task is being worked on. A state's `HeartbeatSeconds` should
    /// be at least four of these: a worker that cannot send any stops the run after two.
    pub heartbeat_interval: Duration,
    /// How long one run may take.
    pub message_processing_timeout: Duration,
    /// How long one look at an empty queue waits for a message. A shutdown lets it end.
    pub poll_wait: Duration,
    /// Whether a run needs protection.
    pub protection: ProtectionMode,
    /// How long protection is asked for; it is renewed after a third. In whole minutes.
    pub protection_period: Duration,
    /// How long the platform waits after TERM before it kills (`stopTimeout` of the container). Runs go
    /// on for most of it; what is left then is killed, and reported as `WorkerStopping`.
    pub stop_time: Duration,
    /// How long a run that is asked to end for its time limit may take before it is killed.
    pub stop_grace: Duration,
    /// The largest result that is sent, in bytes. A state that merges it with its input needs room below
    /// the service's own limit.
    pub output_bytes_max: usize,
    /// The field of a request that holds the task token.
    pub token_field: String,
}

impl Default for StepFunctionsSettings {
    fn default() -> Self {
        Self {
            capacity: 1,
            heartbeat_interval: Duration::from_secs(15),
            message_processing_timeout: Duration::from_mins(30),
            poll_wait: Duration::from_secs(10),
            protection: ProtectionMode::Required,
            protection_period: Duration::from_mins(15),
            stop_time: Duration::from_secs(30),
            stop_grace: Duration::from_secs(5),
            output_bytes_max: OUTPUT_BYTES_MAX,
            token_field: TOKEN_FIELD.to_owned(),
        }
    }
}

/// What a command of a task is handed of the worker's environment beside what every command gets: where
/// the SDKs find the region, the task role's credentials and the task's metadata. The agent's own address
/// is not among them: a command shall not give up its worker's protection.
pub const TASK_VARIABLES: [&str; 11] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_EXECUTION_ENV",
    "ECS_CONTAINER_METADATA_URI",
    "ECS_CONTAINER_METADATA_URI_V4",
];

/// One call to a service never takes longer, its retries included. Also how long a poll may be late.
pub(crate) const CALL_PATIENCE: Duration = Duration::from_secs(6);

/// Of the stop time, for killing what runs, and for reporting it.
const KILL: Duration = Duration::from_secs(6);

/// Of the stop time, what runs may not use: killing, reporting, giving up protection.
const FAREWELL: Duration = Duration::from_secs(8);

const DAY: u64 = 24 * 60 * 60;

impl StepFunctionsSettings {
    /// Passes if every setting, and each that depends on another, keeps its rule.
    ///
    /// # Errors
    /// [`SettingsError`] names the first that does not.
    pub fn check(&self) -> Result<(), SettingsError> {
        let secs = Duration::from_secs;
        let lengths = [
            (
                "heartbeat_interval",
                self.heartbeat_interval,
                secs(1),
                secs(3_600),
            ),
            (
                "message_processing_timeout",
                self.message_processing_timeout,
                secs(1),
                secs(30 * DAY),
            ),
            ("poll_wait", self.poll_wait, Duration::ZERO, secs(20)),
            (
                "protection_period",
                self.protection_period,
                secs(60),
                secs(2_880 * 60),
            ),
            ("stop_time", self.stop_time, secs(10), secs(DAY)),
            (
                "stop_grace",
                self.stop_grace,
                Duration::from_millis(10),
                secs(3_600),
            ),
        ];
        for (setting, given, low, high) in lengths {
            if given < low || given > high {
                return refused(setting, &given, format!("between {low:?} and {high:?}"));
            }
        }
        let whole = |length: Duration, unit: u64| {
            length.subsec_nanos() == 0 && length.as_secs().is_multiple_of(unit)
        };
        if !whole(self.protection_period, 60) {
            return refused(
                "protection_period",
                &self.protection_period,
                "in whole minutes".to_owned(),
            );
        }
        if !whole(self.poll_wait, 1) {
            return refused("poll_wait", &self.poll_wait, "in whole seconds".to_owned());
        }
        if self.capacity == 0 || self.capacity > CAPACITY_MAX {
            return refused(
                "capacity",
                &self.capacity,
                format!("between 1 and {CAPACITY_MAX}"),
            );
        }
        if self.output_bytes_max == 0 || self.output_bytes_max > OUTPUT_BYTES_MAX {
            let rule = format!("between 1 and {OUTPUT_BYTES_MAX}, which is what the service takes");
            return refused("output_bytes_max", &self.output_bytes_max, rule);
        }
        if self.token_field.is_empty() {
            return refused(
                "token_field",
                &self.token_field,
                "the name of a field".to_owned(),
            );
        }
        self.check_pairs()
    }

    fn check_pairs(&self) -> Result<(), SettingsError> {
        if self.message_processing_timeout <= self.heartbeat_interval {
            let rule = format!(
                "longer than heartbeat_interval ({:?})",
                self.heartbeat_interval
            );
            let given = self.message_processing_timeout;
            return refused("message_processing_timeout", &given, rule);
        }
        let poll = self.poll_wait + CALL_PATIENCE;
        if poll > self.stop_time {
            let rule = format!(
                "at most stop_time ({:?}) less {CALL_PATIENCE:?}: a shutdown lets the look at the queue end",
                self.stop_time
            );
            return refused("poll_wait", &self.poll_wait, rule);
        }
        Ok(())
    }

    /// What the state's `HeartbeatSeconds` should be at least: the worker's lease.
    pub fn lease(&self) -> Duration {
        self.heartbeat_interval * 4
    }

    /// How long a worker goes on without a heartbeat that was accepted.
    pub fn stale_after(&self) -> Duration {
        leasehold::core::rules::trust_ends_after(self.lease())
    }

    /// The settings of the worker that runs it: where both have a say, this source's.
    pub fn worker(&self, base: WorkerSettings) -> WorkerSettings {
        WorkerSettings {
            capacity: self.capacity,
            prefetch: 0,
            lease: self.lease(),
            stop_grace: self.stop_grace,
            // Whoever did not end by itself is killed at once: there is no time for more, and a second
            // answer of it would not be told.
            drain_finish: self.stop_time.saturating_sub(FAREWELL),
            drain_timeout: Duration::ZERO,
            drain_kill: KILL,
            tenant_cap: None,
            ..base
        }
    }

    pub(crate) fn protection_minutes(&self) -> u32 {
        u32::try_from(self.protection_period.as_secs() / 60).unwrap_or(u32::MAX)
    }
}

/// As many messages as one process picks up; each of them is a process of its own as a rule.
const CAPACITY_MAX: u32 = 1_000;

fn refused(
    setting: &'static str,
    given: &dyn fmt::Debug,
    rule: String,
) -> Result<(), SettingsError> {
    Err(SettingsError {
        setting,
        given: format!("{given:?}"),
        rule,
    })
}

#[cfg(test)]
mod tests;
