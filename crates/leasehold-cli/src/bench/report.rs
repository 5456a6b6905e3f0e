//! What the bench found, for programs and for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::drain::{Backlog, Drained, Pinned};
use super::enqueue::Enqueued;
use super::idle::Idle;
use super::pickup::{Latency, Mixed};
use super::rounds::Rounds;
use super::spent::Cost;
use crate::screen::Field;

/// What was measured. Profiles that were not are absent.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    pub(super) version: &'static str,
    pub(super) store: &'static str,
    /// Those of SQLite or of the server that durability and speed depend on, in its own words.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) items: u64,
    pub(super) batch: u64,
    pub(super) capacity: u32,
    pub(super) cores: usize,
    /// Median time of a small write and its sync in the same folder, or its commit on the same server,
    /// milliseconds.
    pub(super) sync_ms: f64,
    /// Of this process over all rounds, MiB.
    pub(super) resident_peak_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enqueue: Option<Rounds<Enqueued>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drain: Option<Rounds<Drained>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<Rounds<Latency>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mixed: Option<Rounds<Mixed>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backlog: Option<Rounds<Backlog>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinned: Option<Rounds<Pinned>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle: Option<Rounds<Idle>>,
}

/// The report for people: medians.
pub(super) fn rows(report: &Report) -> Vec<Vec<Field>> {
    let mut rows = Rows(Vec::new());
    rows.add("store", place(report));
    rows.add("cores", report.cores);
    let sync = if report.store == "postgres" {
        "one commit"
    } else {
        "one sync"
    };
    rows.add(sync, format!("{:.2} ms", report.sync_ms));
    if let Some(Rounds { median, .. }) = &report.enqueue {
        for (how, pace) in [
            ("in bulk", &median.bulk),
            ("one caller", &median.single),
            ("16 callers", &median.single_16_callers),
        ] {
            rows.add(&format!("enqueue, {how}"), rate(pace.per_second));
            rows.cost(&pace.cost);
        }
    }
    if let Some(Rounds { median, .. }) = &report.drain {
        let capacity = report.capacity;
        let at = format!("{} at capacity {capacity}", rate(median.per_second));
        rows.add("drain", at);
        rows.cost(&median.cost);
        let settle = format!("{:.0}", median.items_per_settle);
        rows.add("  items per settle", settle);
        let (before, peak) = (median.resident_before_mib, median.resident_peak_mib);
        let memory = format!("{before:.0} MiB before, {peak:.0} MiB at most");
        rows.add("  resident memory", memory);
    }
    if let Some(Rounds { median, .. }) = &report.latency {
        rows.add("pickup, idle queue", pickup(median.p50_ms, median.p99_ms));
        let (above, sync) = (median.p50_above_two_syncs_ms, median.sync_p50_ms);
        rows.add(
            "  above two of those",
            format!("{above:.2} ms, at {sync:.2} ms each"),
        );
    }
    if let Some(Rounds { median, .. }) = &report.mixed {
        rows.add("enqueue and drain", rate(median.per_second));
        rows.add(
            "  pickup",
            pickup(median.pickup_p50_ms, median.pickup_p99_ms),
        );
        rows.add(
            "  enqueue call",
            pickup(median.enqueue_p50_ms, median.enqueue_p99_ms),
        );
        rows.cost(&median.cost);
    }
    if let Some(Rounds { median, .. }) = &report.backlog {
        let share = 100.0 * median.ratio;
        let with = format!(
            "{}, {share:.0} % of that without",
            rate(median.with.per_second)
        );
        rows.add("drain, with a backlog", with);
        rows.cost(&median.with.cost);
    }
    if let Some(Rounds { median, .. }) = &report.pinned {
        let (first, last) = (rate(median.first_per_second), rate(median.last_per_second));
        rows.add(
            "beside an old snapshot",
            format!("{first} at first, {last} at last"),
        );
        rows.cost(&median.cost);
    }
    if let Some(Rounds { median, .. }) = &report.idle {
        let server = median.server_percent_of_a_core;
        let server = server.map_or_else(String::new, |percent| {
            format!(", the server {percent:.2} %")
        });
        let worker = format!("{:.2} % of a core", median.percent_of_a_core);
        rows.add("idle worker", worker + &server);
    }
    rows.0
}

struct Rows(Vec<Vec<Field>>);

impl Rows {
    fn add(&mut self, name: &str, value: impl Into<Field>) {
        self.0.push(vec![name.into(), value.into()]);
    }

    fn cost(&mut self, cost: &Cost) {
        let worker = format!("{:.2} s", cost.worker_cpu_seconds_per_10_000);
        let server = cost.server_cpu_seconds_per_10_000;
        let server = server.map_or_else(String::new, |seconds| {
            format!(", the server {seconds:.2} s")
        });
        self.add("  CPU per 10,000", worker + &server);
    }
}

fn place(report: &Report) -> String {
    let set = |name: &str| report.settings.get(name).map_or("?", String::as_str);
    match report.store {
        "postgres" => format!(
            "postgres {}, fsync={}, synchronous_commit={}",
            set("server_version"),
            set("fsync"),
            set("synchronous_commit")
        ),
        store => format!("{store}, synchronous={}", set("synchronous")),
    }
}

fn rate(per_second: f64) -> String {
    format!("{per_second:.0} items/s")
}

fn pickup(p50_ms: f64, p99_ms: f64) -> String {
    format!("median {p50_ms:.2} ms, p99 {p99_ms:.2} ms")
}
