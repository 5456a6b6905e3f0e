//! The names of the metrics: what a worker may count is what stands here.
//!
//! The page of documentation, the dashboard and the alerts are made of this table, so none of them names
//! what does not exist.

/// One metric, as `/metrics` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Without the prefix, and without the `_total` that counters end with.
    pub stem: &'static str,
    /// How it is counted.
    pub form: Form,
    /// What it is about.
    pub topic: Topic,
    /// The names of its labels. Their values come from small sets that are known beforehand.
    pub labels: &'static [&'static str],
    /// For people.
    pub meaning: &'static str,
}

/// How a metric is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Only rises, from zero at the start of the process.
    Counter,
    /// Rises and falls.
    Gauge,
    /// How often which size was seen.
    Histogram,
}

/// What a metric is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// What is in the store. Every worker tells the same, as of its last sweep.
    Queue,
    /// What went through this worker.
    Work,
    /// Leases, and what the store answers.
    Leases,
    /// The process itself.
    Worker,
    /// Maintenance.
    Sweep,
}

impl Topic {
    /// Every topic, in the order in which somebody who looks for trouble would read them.
    pub const ALL: [Self; 5] = [
        Self::Queue,
        Self::Work,
        Self::Leases,
        Self::Worker,
        Self::Sweep,
    ];

    /// For people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Queue => "What is in the store",
            Self::Work => "What went through the workers",
            Self::Leases => "Leases, and what the store answers",
            Self::Worker => "The worker processes",
            Self::Sweep => "Maintenance",
        }
    }
}

/// How all names begin.
pub const PREFIX: &str = "leasehold";

impl Metric {
    /// As it stands on the page and in a query.
    pub fn name(&self) -> String {
        let end = match self.form {
            Form::Counter => "_total",
            Form::Gauge | Form::Histogram => "",
        };
        format!("{PREFIX}_{}{end}", self.stem)
    }
}

macro_rules! metrics {
    ($($constant:ident: $topic:ident $form:ident $stem:literal [$($label:literal),*] $meaning:literal;)*) => {
        $(pub(super) const $constant: Metric = Metric {
            stem: $stem,
            form: Form::$form,
            topic: Topic::$topic,
            labels: &[$($label),*],
            meaning: $meaning,
        };)*

        /// Every metric.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    ITEMS_CLAIMED: Work Counter "items_claimed" [] "items claimed";
    CLAIM_SECONDS: Work Histogram "claim_seconds" [] "from asking for items to the answer";
    ITEMS_FINISHED: Work Counter "items_finished" ["kind", "outcome"] "held items that left the worker";
    DEAD_LETTERS: Work Counter "dead_letters" ["kind"] "dead letters, by settle or sweep";
    ITEM_RUN_SECONDS: Work Histogram "item_run_seconds" ["kind"] "from start to end of a run";
    STALE_WRITES_REFUSED: Leases Counter "stale_writes_refused" ["operation"] "writes the store refused a stale holder";
    LEASE_LOST: Leases Counter "lease_lost" ["reason"] "runs stopped because of their lease";
    LEASE_RENEWALS: Leases Counter "lease_renewals" ["outcome"] "kept, cancel_requested, lost, error";
    STORE_ERRORS: Leases Counter "store_errors" ["operation"] "store calls that failed";
    STORE_UP: Leases Gauge "store_up" [] "1 while claims are answered, 0 while the store is out of reach";
    SETTLE_BATCH_SIZE: Work Histogram "settle_batch_size" [] "items per settle";
    WORKER_SLOTS: Worker Gauge "worker_slots" [] "capacity";
    WORKER_SLOTS_BUSY: Worker Gauge "worker_slots_busy" [] "slots taken, stuck ones included";
    WORKER_SLOTS_STUCK: Worker Gauge "worker_slots_stuck" [] "slots lost to runs that do not end";
    LIVENESS_PUBLISH_ERRORS: Worker Counter "liveness_publish_errors" [] "beats that could not be published";
    CLOCK_JUMPS: Worker Counter "clock_jumps" [] "suspends and calendar jumps seen";
    CLOCK_SKEW_SECONDS: Worker Gauge "clock_skew_seconds" [] "how far the worker's calendar is ahead of the store's";
    SWEEP_SECONDS: Sweep Histogram "sweep_seconds" [] "one pass";
    SWEEP_REQUEUED: Sweep Counter "sweep_requeued" [] "expired claims queued again";
    SWEEP_PURGED: Sweep Counter "sweep_purged" ["rows"] "rows deleted after their retention: items, outbox, markers, …";
    SCHEDULE_TICKS: Sweep Counter "schedule_ticks" ["outcome"] "ticks of schedules, by this worker: made, overlapping, skipped";
    QUEUE_OLDEST_AGE_SECONDS: Queue Gauge "queue_oldest_age_seconds" ["lane"] "how long the oldest ready item has been due";
    ITEMS: Queue Gauge "items" ["lane", "state"] "ready, delayed, claimed; counted up to 100,000";
    WORK_FAILED: Queue Gauge "work_failed" [] "dead letters in the store, counted up to 100,000";
    CLAIMS_EXPIRED: Queue Gauge "claims_expired" [] "claims whose lease is over";
    SOURCE_EVENTS: Worker Counter "source_events" ["event"] "what a source other than a queue met: messages, reports, protection";
    PROTECTED: Worker Gauge "protected" [] "1 while the platform has confirmed that it will not stop the process";
}
