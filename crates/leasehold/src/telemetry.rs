//! Metrics: one registry per worker, names in one table.
//!
//! | name | type | labels | meaning |
//! |---|---|---|---|
//! | `leasehold_items_claimed_total` | counter | | items claimed |
//! | `leasehold_claim_seconds` | histogram | | from asking for items to the answer |
//! | `leasehold_items_finished_total` | counter | kind, outcome | held items that left the worker |
//! | `leasehold_dead_letters_total` | counter | kind | dead letters, by settle or sweep |
//! | `leasehold_item_run_seconds` | histogram | kind | from start to end of a run |
//! | `leasehold_stale_writes_refused_total` | counter | operation | writes the store refused a stale holder |
//! | `leasehold_lease_lost_total` | counter | reason | runs stopped because of their lease |
//! | `leasehold_lease_renewals_total` | counter | outcome | kept, `cancel_requested`, lost, error |
//! | `leasehold_store_errors_total` | counter | operation | store calls that failed |
//! | `leasehold_store_up` | gauge | | 1 while claims are answered, 0 while the store is out of reach |
//! | `leasehold_settle_batch_size` | histogram | | items per settle |
//! | `leasehold_worker_slots` | gauge | | capacity |
//! | `leasehold_worker_slots_busy` | gauge | | slots taken, stuck ones included |
//! | `leasehold_worker_slots_stuck` | gauge | | slots lost to runs that do not end |
//! | `leasehold_liveness_publish_errors_total` | counter | | beats that could not be published |
//! | `leasehold_clock_jumps_total` | counter | | suspends and calendar jumps seen |
//! | `leasehold_clock_skew_seconds` | gauge | | how far the worker's calendar is ahead of the store's |
//! | `leasehold_sweep_seconds` | histogram | | one pass |
//! | `leasehold_sweep_requeued_total` | counter | | expired claims queued again |
//! | `leasehold_sweep_purged_total` | counter | rows | rows deleted after their retention: items, outbox, markers, … |
//! | `leasehold_queue_oldest_age_seconds` | gauge | lane | how long the oldest ready item has been due |
//! | `leasehold_items` | gauge | lane, state | ready, delayed, claimed; counted up to 100,000 |
//! | `leasehold_work_failed` | gauge | | dead letters in the store, counted up to 100,000 |
//! | `leasehold_claims_expired` | gauge | | claims whose lease is over |
//! | `leasehold_source_events_total` | counter | event | what a source other than a queue met: messages, reports, protection |
//! | `leasehold_protected` | gauge | | 1 while the platform has confirmed that it will not stop the process |
//!
//! Gauges of the queue come from the last sweep; a read that fails leaves them as they are.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use leasehold_core::Kind;
use leasehold_core::store::work::Gauges;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::sweep::Swept;
use crate::worker::Verdict;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindOutcome {
    kind: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    event: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rows {
    rows: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLane {
    lane: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneState {
    lane: String,
    state: &'static str,
}

type Seconds = Gauge<f64, AtomicU64>;

/// What one worker counts. Every worker has its own: two in one process do not mix.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    claimed: Counter,
    claim_seconds: Histogram,
    finished: Family<KindOutcome, Counter>,
    dead: Family<ByKind, Counter>,
    run_seconds: Family<ByKind, Histogram, fn() -> Histogram>,
    refused: Family<Operation, Counter>,
    lost: Family<Reason, Counter>,
    renewals: Family<Outcome, Counter>,
    store_errors: Family<Operation, Counter>,
    store_up: Gauge,
    settle_batch: Histogram,
    slots: Gauge,
    slots_busy: Gauge,
    slots_stuck: Gauge,
    publish_errors: Counter,
    clock_jumps: Counter,
    clock_skew: Seconds,
    sweep_seconds: Histogram,
    requeued: Counter,
    purged: Family<Rows, Counter>,
    oldest_age: Family<ByLane, Seconds>,
    items: Family<LaneState, Gauge>,
    work_failed: Gauge,
    expired: Gauge,
    source_events: Family<Event, Counter>,
    protected: Gauge,
}

/// From a commit to an hour.
const SECONDS: [f64; 14] = [
    0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0, 1_800.0, 3_600.0,
];
const SIZES: [f64; 8] = [1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("leasehold"),
            claimed: Counter::default(),
            claim_seconds: seconds(),
            finished: Family::default(),
            dead: Family::default(),
            run_seconds: Family::new_with_constructor(seconds),
            refused: Family::default(),
            lost: Family::default(),
            renewals: Family::default(),
            store_errors: Family::default(),
            store_up: Gauge::default(),
            settle_batch: Histogram::new(SIZES),
            slots: Gauge::default(),
            slots_busy: Gauge::default(),
            slots_stuck: Gauge::default(),
            publish_errors: Counter::default(),
            clock_jumps: Counter::default(),
            clock_skew: Seconds::default(),
            sweep_seconds: seconds(),
            requeued: Counter::default(),
            purged: Family::default(),
            oldest_age: Family::default(),
            items: Family::default(),
            work_failed: Gauge::default(),
            expired: Gauge::default(),
            source_events: Family::default(),
            protected: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("items_claimed", "Items claimed", self.claimed.clone());
        registry.register(
            "claim_seconds",
            "From asking for items to the answer",
            self.claim_seconds.clone(),
        );
        registry.register(
            "items_finished",
            "Items that left the worker",
            self.finished.clone(),
        );
        registry.register(
            "dead_letters",
            "Items that failed for good",
            self.dead.clone(),
        );
        registry.register(
            "item_run_seconds",
            "Length of runs",
            self.run_seconds.clone(),
        );
        registry.register(
            "stale_writes_refused",
            "Writes refused a stale holder",
            self.refused.clone(),
        );
        registry.register(
            "lease_lost",
            "Runs stopped because of their lease",
            self.lost.clone(),
        );
        registry.register(
            "lease_renewals",
            "Lease renewals by answer",
            self.renewals.clone(),
        );
        registry.register(
            "store_errors",
            "Store calls that failed",
            self.store_errors.clone(),
        );
        registry.register(
            "store_up",
            "Whether claims are answered",
            self.store_up.clone(),
        );
        registry.register(
            "settle_batch_size",
            "Items per settle",
            self.settle_batch.clone(),
        );
        registry.register("worker_slots", "Capacity", self.slots.clone());
        registry.register("worker_slots_busy", "Slots taken", self.slots_busy.clone());
        registry.register(
            "worker_slots_stuck",
            "Slots of runs that do not end",
            self.slots_stuck.clone(),
        );
        registry.register(
            "liveness_publish_errors",
            "Beats not published",
            self.publish_errors.clone(),
        );
        registry.register(
            "clock_jumps",
            "Suspends and calendar jumps",
            self.clock_jumps.clone(),
        );
        registry.register(
            "clock_skew_seconds",
            "How far the worker's calendar is ahead of the store's",
            self.clock_skew.clone(),
        );
        self.register_sweep();
    }

    /// What a sweep counts and measures.
    fn register_sweep(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "sweep_seconds",
            "Length of sweep passes",
            self.sweep_seconds.clone(),
        );
        registry.register(
            "sweep_requeued",
            "Expired claims queued again",
            self.requeued.clone(),
        );
        registry.register(
            "sweep_purged",
            "Rows deleted after their retention",
            self.purged.clone(),
        );
        registry.register(
            "queue_oldest_age_seconds",
            "How long the oldest ready item has been due",
            self.oldest_age.clone(),
        );
        registry.register("items", "Items by lane and state", self.items.clone());
        registry.register(
            "work_failed",
            "Dead letters in the store",
            self.work_failed.clone(),
        );
        registry.register(
            "claims_expired",
            "Claims whose lease is over",
            self.expired.clone(),
        );
        registry.register(
            "source_events",
            "What a source other than a queue met",
            self.source_events.clone(),
        );
        registry.register(
            "protected",
            "Whether the platform will not stop the process",
            self.protected.clone(),
        );
    }

    /// Puts the series that will come on the page at zero, so that the first count of each is seen as
    /// a rise and not as a beginning.
    pub(crate) fn begin<'a>(&self, kinds: impl Iterator<Item = &'a Kind>) {
        for kind in kinds {
            let kind = kind.to_string();
            let by_kind = ByKind { kind: kind.clone() };
            drop(self.dead.get_or_create(&by_kind));
            drop(self.run_seconds.get_or_create(&by_kind));
            for outcome in Verdict::ALL.map(Verdict::name) {
                let kind = kind.clone();
                drop(self.finished.get_or_create(&KindOutcome { kind, outcome }));
            }
        }
        for operation in ["claim", "renew", "settle"] {
            drop(self.store_errors.get_or_create(&Operation { operation }));
        }
        for operation in ["renew", "settle"] {
            drop(self.refused.get_or_create(&Operation { operation }));
        }
        for reason in ["refused", "doubted"] {
            drop(self.lost.get_or_create(&Reason { reason }));
        }
        for outcome in ["kept", "cancel_requested", "lost", "error"] {
            drop(self.renewals.get_or_create(&Outcome { outcome }));
        }
    }

    /// Counts what a source met, by a word of its own. Its documentation lists the words.
    pub fn source_event(&self, event: &'static str) {
        self.source_events.get_or_create(&Event { event }).inc();
    }

    /// How often that was counted.
    pub fn source_events(&self, event: &'static str) -> u64 {
        self.source_events.get_or_create(&Event { event }).get()
    }

    /// Whether the platform has confirmed that it will not stop the process.
    pub fn protected(&self, is_protected: bool) {
        self.protected.set(is_protected.into());
    }

    /// The page that `/metrics` answers, in the `OpenMetrics` text format.
    pub fn encode(&self) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut page, &self.registry);
        page
    }

    /// The value of a series without labels, or the sum over those with them; for tests and reports.
    pub fn sum(&self, name: &str) -> f64 {
        let page = self.encode();
        page.lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let (series, value) = line.rsplit_once(' ')?;
                let series_name = series.split('{').next()?;
                (series_name == name).then(|| value.parse::<f64>().unwrap_or_default())
            })
            .sum()
    }

    /// In what held items may end for the worker, as the label `outcome` has it.
    pub fn outcomes() -> impl Iterator<Item = &'static str> {
        Verdict::ALL.into_iter().map(Verdict::name)
    }

    /// How many held items of any kind ended so.
    pub fn finished_as(&self, outcome: &str) -> u64 {
        let label = format!("outcome=\"{outcome}\"");
        self.encode()
            .lines()
            .filter_map(|line| line.strip_prefix("leasehold_items_finished_total{"))
            .filter_map(|sample| sample.rsplit_once("} "))
            .filter(|(labels, _)| labels.split(',').any(|one| one == label))
            .filter_map(|(_, count)| count.parse::<u64>().ok())
            .sum()
    }

    pub(crate) fn claimed(&self, items: usize) {
        self.claimed.inc_by(items as u64);
        self.store_up.set(1);
    }

    pub(crate) fn claim_took(&self, time: Duration) {
        self.claim_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn store_is_down(&self) {
        self.store_up.set(0);
    }

    pub(crate) fn finished(&self, kind: &Kind, outcome: &'static str) {
        let labels = KindOutcome {
            kind: kind.to_string(),
            outcome,
        };
        self.finished.get_or_create(&labels).inc();
    }

    pub(crate) fn dead_letter(&self, kind: &Kind) {
        self.dead
            .get_or_create(&ByKind {
                kind: kind.to_string(),
            })
            .inc();
    }

    pub(crate) fn ran(&self, kind: &Kind, length: Duration) {
        let labels = ByKind {
            kind: kind.to_string(),
        };
        self.run_seconds
            .get_or_create(&labels)
            .observe(length.as_secs_f64());
    }

    pub(crate) fn refused(&self, operation: &'static str) {
        self.refused.get_or_create(&Operation { operation }).inc();
    }

    pub(crate) fn lost(&self, reason: &'static str) {
        self.lost.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn renewals(&self, outcome: &'static str, count: u64) {
        self.renewals
            .get_or_create(&Outcome { outcome })
            .inc_by(count);
    }

    pub(crate) fn store_error(&self, operation: &'static str) {
        self.store_errors
            .get_or_create(&Operation { operation })
            .inc();
    }

    pub(crate) fn settle_batch(&self, size: usize) {
        self.settle_batch.observe(size as f64);
    }

    pub(crate) fn slots(&self, capacity: u32, busy: u32, stuck: u32) {
        self.slots.set(i64::from(capacity));
        self.slots_busy.set(i64::from(busy));
        self.slots_stuck.set(i64::from(stuck));
    }

    pub(crate) fn publish_error(&self) {
        self.publish_errors.inc();
    }

    pub(crate) fn clock_jump(&self) {
        self.clock_jumps.inc();
    }

    pub(crate) fn clock_skew(&self, seconds_ahead: f64) {
        self.clock_skew.set(seconds_ahead);
    }

    pub(crate) fn swept(&self, length: Duration, swept: &Swept) {
        self.sweep_seconds.observe(length.as_secs_f64());
        self.requeued.inc_by(swept.requeued);
        for (what, count) in &swept.purged {
            self.purged
                .get_or_create(&Rows { rows: what })
                .inc_by(*count);
        }
    }

    pub(crate) fn gauges(&self, gauges: &Gauges) {
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.oldest_age.clear();
        self.items.clear();
        for gauge in &gauges.lanes {
            let lane = gauge.lane.to_string();
            let age = gauge.oldest_age.as_secs_f64();
            self.oldest_age
                .get_or_create(&ByLane { lane: lane.clone() })
                .set(age);
            for (state, value) in [
                ("ready", gauge.ready),
                ("delayed", gauge.delayed),
                ("claimed", gauge.claimed),
            ] {
                let labels = LaneState {
                    lane: lane.clone(),
                    state,
                };
                self.items.get_or_create(&labels).set(count(value));
            }
        }
        self.work_failed.set(count(gauges.dead));
        self.expired.set(count(gauges.expired));
    }
}

/// The pages of several workers as one: each family of metrics stands once, and each sample says by
/// the label `worker` whose it is.
pub(crate) fn merged<'n>(pages: impl IntoIterator<Item = (&'n str, String)>) -> String {
    let mut families: Vec<(String, String)> = Vec::new();
    for (worker, page) in pages {
        let mut at = 0;
        for line in page.lines() {
            if let Some(described) = line.strip_prefix("# ") {
                let mut words = described.splitn(3, ' ');
                let Some(name) = words.nth(1) else {
                    // The mark of the page's end, which is written once.
                    continue;
                };
                let known = families.iter().position(|(family, _)| family == name);
                at = known.unwrap_or_else(|| {
                    families.push((name.to_owned(), String::new()));
                    families.len() - 1
                });
                let (_, text) = &mut families[at];
                if !text.lines().any(|told| told == line) {
                    text.push_str(line);
                    text.push('\n');
                }
            } else if let Some((_, text)) = families.get_mut(at) {
                text.push_str(&labelled(line, worker));
                text.push('\n');
            }
        }
    }
    let mut merged: String = families.into_iter().map(|(_, text)| text).collect();
    merged.push_str("# EOF\n");
    merged
}

/// The sample with the worker's label before its others.
fn labelled(sample: &str, worker: &str) -> String {
    let worker = worker.replace('\\', "\\\\").replace('"', "\\\"");
    let label = format!("worker=\"{worker}\"");
    match sample.find(['{', ' ']) {
        Some(at) if sample[at..].starts_with("{}") => {
            format!("{}{{{label}{}", &sample[..at], &sample[at + 1..])
        }
        Some(at) if sample[at..].starts_with('{') => {
            format!("{}{{{label},{}", &sample[..at], &sample[at + 1..])
        }
        Some(at) => format!("{}{{{label}}}{}", &sample[..at], &sample[at..]),
        None => sample.to_owned(),
    }
}

#[cfg(test)]
mod tests;
