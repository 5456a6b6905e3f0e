//! Alert rules for Prometheus: what somebody has to look at, and where to begin.

use std::fmt::Write as _;

pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) expression: &'static str,
    /// How long it has to be so.
    pub(super) lasts: &'static str,
    pub(super) severity: &'static str,
    pub(super) summary: &'static str,
    pub(super) action: &'static str,
}

pub(super) const ALL: &[Alert] = &[
    Alert {
        name: "LeaseholdDeadLetters",
        expression: "sum by (kind) (increase(leasehold_dead_letters_total[15m])) > 0",
        lasts: "0m",
        severity: "warning",
        summary: "Items of kind {{ $labels.kind }} failed for good",
        action: "leasehold items list --status failed shows them, leasehold items retry ID tries one again.",
    },
    Alert {
        name: "LeaseholdQueueIsLate",
        expression: "max by (lane) (leasehold_queue_oldest_age_seconds) > 300",
        lasts: "5m",
        severity: "warning",
        summary: "The oldest due item of lane {{ $labels.lane }} has waited for {{ $value | humanizeDuration }}",
        action: "leasehold items explain ID says why one waits: no worker knows its kind, the lane is paused, or there are too few slots.",
    },
    Alert {
        name: "LeaseholdStoreIsDown",
        expression: "min by (instance) (leasehold_store_up) == 0",
        lasts: "1m",
        severity: "critical",
        summary: "The worker on {{ $labels.instance }} cannot reach its store",
        action: "Runs stop at half a lease without it. leasehold doctor says what keeps a connection from being made.",
    },
    Alert {
        name: "LeaseholdLeasesAreLost",
        expression: "sum by (reason) (increase(leasehold_lease_lost_total[15m])) > 0",
        lasts: "0m",
        severity: "warning",
        summary: "Runs were stopped because of their lease ({{ $labels.reason }})",
        action: "doubted: the store did not answer for half a lease. refused: the worker was away for a whole one, frozen or starved.",
    },
    Alert {
        name: "LeaseholdClaimsAreNotRecovered",
        expression: "max(leasehold_claims_expired) > 0",
        lasts: "10m",
        severity: "warning",
        summary: "Claims whose lease is over are not queued again",
        action: "Every worker sweeps: look for \"a step of the sweep failed\" in the log of one.",
    },
    Alert {
        name: "LeaseholdSlotsAreStuck",
        expression: "sum by (instance) (leasehold_worker_slots_stuck) > 0",
        lasts: "5m",
        severity: "warning",
        summary: "{{ $value }} slots on {{ $labels.instance }} are lost to runs that do not end",
        action: "A handler does not listen to being stopped. Run the kind as a command, or set worker.stuck_max so that the process is replaced.",
    },
    Alert {
        name: "LeaseholdCalendarIsOff",
        expression: "max by (instance) (abs(leasehold_clock_skew_seconds)) > 30",
        lasts: "15m",
        severity: "info",
        summary: "The calendar of {{ $labels.instance }} differs from the store's",
        action: "Nothing is decided by it, but its log lines are dated wrongly: set the time.",
    },
    Alert {
        name: "LeaseholdSweepsHaveCeased",
        expression: "sum(rate(leasehold_sweep_seconds_count[10m])) == 0",
        lasts: "10m",
        severity: "critical",
        summary: "No worker has swept for ten minutes",
        action: "What crashed workers held is not queued again. Is any worker running?",
    },
];

pub(super) fn text() -> String {
    let mut text = String::from(
        "# Printed by `leasehold observability alerts`. Every metric in it is one that the program counts.\n\
         groups:\n  - name: leasehold\n    rules:\n",
    );
    for alert in ALL {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let _ = write!(
            text,
            "      - alert: {}\n        expr: {}\n        for: {}\n        labels:\n          severity: {}\n        annotations:\n          summary: {}\n          description: {}\n",
            alert.name,
            quoted(alert.expression),
            alert.lasts,
            alert.severity,
            quoted(alert.summary),
            quoted(alert.action),
        );
    }
    text
}
