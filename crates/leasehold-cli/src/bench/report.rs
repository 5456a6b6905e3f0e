//! What the bench found, for programs and for people.

use serde::Serialize;

use crate::screen::Field;

/// What was measured. Fields that a profile did not measure are absent.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    pub(super) version: &'static str,
    pub(super) store: &'static str,
    /// Of the server, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_version: Option<String>,
    /// SQLite's `synchronous`, or the server's settings of the kind.
    pub(super) durability: String,
    pub(super) items: u64,
    pub(super) capacity: u32,
    pub(super) cores: usize,
    /// Median time of a small write and its sync in the same folder, or its commit on the same server,
    /// milliseconds.
    pub(super) sync_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enqueue_bulk_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enqueue_single_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) enqueue_single_16_callers_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) drain: Option<Drain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pickup_milliseconds: Option<Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle: Option<Idle>,
}

#[derive(Debug, Serialize)]
pub(super) struct Drain {
    pub(super) per_second: f64,
    /// Of this process; a server's own are not in it.
    pub(super) cpu_seconds_per_10_000: f64,
    pub(super) items_per_settle: f64,
    /// Resident memory before the worker starts, and its peak while it drains, MiB.
    pub(super) resident_before_mib: f64,
    pub(super) resident_peak_mib: f64,
}

/// In milliseconds.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) median: f64,
    pub(super) percentile_99: f64,
    /// A small write and its sync, as `sync_ms`, timed between the pickups.
    pub(super) sync_median: f64,
    /// The median above what two such syncs take: the part that is ours.
    pub(super) median_above_two_syncs: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Idle {
    pub(super) seconds: f64,
    pub(super) percent_of_a_core: f64,
}

/// The report for people.
pub(super) fn rows(report: &Report) -> Vec<Vec<Field>> {
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.into(), value.into()]);
    let (store, durability) = (report.store, &report.durability);
    let told = match &report.server_version {
        Some(version) => format!("{store} {version}, {durability}"),
        None => format!("{store}, synchronous={durability}"),
    };
    row("store", told);
    row("cores", report.cores.to_string());
    let sync = if report.server_version.is_some() {
        "one commit"
    } else {
        "one sync"
    };
    row(sync, format!("{:.2} ms", report.sync_ms));
    let rate = |value: f64| format!("{value:.0} items/s");
    if let Some(value) = report.enqueue_bulk_per_second {
        row("enqueue, in bulk", rate(value));
    }
    if let Some(value) = report.enqueue_single_per_second {
        row("enqueue, one caller", rate(value));
    }
    if let Some(value) = report.enqueue_single_16_callers_per_second {
        row("enqueue, 16 callers", rate(value));
    }
    if let Some(drain) = &report.drain {
        row(
            "drain",
            format!("{} at capacity {}", rate(drain.per_second), report.capacity),
        );
        row(
            "  CPU per 10,000",
            format!("{:.2} s", drain.cpu_seconds_per_10_000),
        );
        row(
            "  items per settle",
            format!("{:.0}", drain.items_per_settle),
        );
        let (before, peak) = (drain.resident_before_mib, drain.resident_peak_mib);
        row(
            "  resident memory",
            format!("{before:.0} MiB before, {peak:.0} MiB at most"),
        );
    }
    if let Some(latency) = &report.pickup_milliseconds {
        row(
            "pickup, idle queue",
            format!(
                "median {:.2} ms, p99 {:.2} ms",
                latency.median, latency.percentile_99
            ),
        );
        let above = latency.median_above_two_syncs;
        row(
            "  above two of those",
            format!("{above:.2} ms, at {:.2} ms each", latency.sync_median),
        );
    }
    if let Some(idle) = &report.idle {
        row(
            "idle worker",
            format!("{:.2} % of a core", idle.percent_of_a_core),
        );
    }
    rows
}
