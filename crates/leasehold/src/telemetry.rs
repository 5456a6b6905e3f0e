//! Metrics: one registry per worker, names in one table.
//!
//! The names, with their labels and meanings, are in [`names`]; `leasehold observability metrics` prints them.
//!
//! Gauges of the queue come from the last sweep; a read that fails leaves them as they are.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use leasehold_core::Kind;
use leasehold_core::store::work::Gauges;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric as Registered, Registry};

use self::names::Metric;
use crate::sweep::Swept;
use crate::worker::Verdict;

pub mod names;

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

/// What is counted for each item, of one kind.
#[derive(Debug)]
struct KindSeries {
    /// In the order of [`Verdict::ALL`], which is that of its declaration.
    finished: [Counter; Verdict::ALL.len()],
    run_seconds: Histogram,
}

/// What one worker counts. Every worker has its own: two in one process do not mix.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    claimed: Counter,
    claim_seconds: Histogram,
    /// The series of the kinds that the worker knows, found once.
    known: BTreeMap<Kind, KindSeries>,
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
    ticks: Family<Outcome, Counter>,
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

fn register(registry: &mut Registry, named: &Metric, metric: impl Registered) {
    registry.register(named.stem, named.meaning, metric);
}

impl Metrics {
    /// All zero.
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix(names::PREFIX),
            claimed: Counter::default(),
            claim_seconds: seconds(),
            known: BTreeMap::new(),
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
            ticks: Family::default(),
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
        register(registry, &names::ITEMS_CLAIMED, self.claimed.clone());
        register(registry, &names::CLAIM_SECONDS, self.claim_seconds.clone());
        register(registry, &names::ITEMS_FINISHED, self.finished.clone());
        register(registry, &names::DEAD_LETTERS, self.dead.clone());
        register(registry, &names::ITEM_RUN_SECONDS, self.run_seconds.clone());
        register(registry, &names::STALE_WRITES_REFUSED, self.refused.clone());
        register(registry, &names::LEASE_LOST, self.lost.clone());
        register(registry, &names::LEASE_RENEWALS, self.renewals.clone());
        register(registry, &names::STORE_ERRORS, self.store_errors.clone());
        register(registry, &names::STORE_UP, self.store_up.clone());
        register(
            registry,
            &names::SETTLE_BATCH_SIZE,
            self.settle_batch.clone(),
        );
        register(registry, &names::WORKER_SLOTS, self.slots.clone());
        register(registry, &names::WORKER_SLOTS_BUSY, self.slots_busy.clone());
        register(
            registry,
            &names::WORKER_SLOTS_STUCK,
            self.slots_stuck.clone(),
        );
        register(
            registry,
            &names::LIVENESS_PUBLISH_ERRORS,
            self.publish_errors.clone(),
        );
        register(registry, &names::CLOCK_JUMPS, self.clock_jumps.clone());
        register(
            registry,
            &names::CLOCK_SKEW_SECONDS,
            self.clock_skew.clone(),
        );
        self.register_sweep();
    }

    /// What a sweep counts and measures.
    fn register_sweep(&mut self) {
        let registry = &mut self.registry;
        register(registry, &names::SWEEP_SECONDS, self.sweep_seconds.clone());
        register(registry, &names::SWEEP_REQUEUED, self.requeued.clone());
        register(registry, &names::SWEEP_PURGED, self.purged.clone());
        register(registry, &names::SCHEDULE_TICKS, self.ticks.clone());
        register(
            registry,
            &names::QUEUE_OLDEST_AGE_SECONDS,
            self.oldest_age.clone(),
        );
        register(registry, &names::ITEMS, self.items.clone());
        register(registry, &names::WORK_FAILED, self.work_failed.clone());
        register(registry, &names::CLAIMS_EXPIRED, self.expired.clone());
        register(registry, &names::SOURCE_EVENTS, self.source_events.clone());
        register(registry, &names::PROTECTED, self.protected.clone());
    }

    /// Puts the series that will come on the page at zero, so that the first count of each is seen as
    /// a rise and not as a beginning.
    pub(crate) fn begin<'a>(&mut self, kinds: impl Iterator<Item = &'a Kind>) {
        for outcome in ["made", "overlapping", "skipped"] {
            self.ticked(outcome, 0);
        }
        for rows in crate::sweep::purged_rows() {
            drop(self.purged.get_or_create(&Rows { rows }));
        }
        for kind in kinds {
            let by_kind = ByKind {
                kind: kind.to_string(),
            };
            drop(self.dead.get_or_create(&by_kind));
            let series = KindSeries {
                finished: Verdict::ALL.map(|verdict| self.finished_series(kind, verdict)),
                run_seconds: self.run_seconds.get_or_create(&by_kind).clone(),
            };
            self.known.insert(kind.clone(), series);
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

    pub(crate) fn finished(&self, kind: &Kind, verdict: Verdict) {
        match self.known.get(kind) {
            Some(series) => series.finished[verdict as usize].inc(),
            None => self.finished_series(kind, verdict).inc(),
        };
    }

    fn finished_series(&self, kind: &Kind, verdict: Verdict) -> Counter {
        let labels = KindOutcome {
            kind: kind.to_string(),
            outcome: verdict.name(),
        };
        self.finished.get_or_create(&labels).clone()
    }

    pub(crate) fn dead_letter(&self, kind: &Kind) {
        self.dead
            .get_or_create(&ByKind {
                kind: kind.to_string(),
            })
            .inc();
    }

    pub(crate) fn ran(&self, kind: &Kind, length: Duration) {
        // A run is of a kind that the worker knows.
        if let Some(series) = self.known.get(kind) {
            series.run_seconds.observe(length.as_secs_f64());
        }
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

    pub(crate) fn ticked(&self, outcome: &'static str, ticks: usize) {
        let counter = self.ticks.get_or_create(&Outcome { outcome });
        counter.inc_by(u64::try_from(ticks).unwrap_or(u64::MAX));
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
