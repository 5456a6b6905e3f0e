//! The names of metrics and spans, as a page.

use std::fmt::Write as _;

use leasehold::telemetry::names::{ALL, Topic};

const HEAD: &str = "# Metrics, spans and log lines

This page is printed by `leasehold observability metrics`; a test holds it to what the program counts. \
`leasehold observability dashboard` and `leasehold observability alerts` print a Grafana dashboard and \
Prometheus alert rules made of the same table; copies are in `deploy/observability/`.

Metrics are served on `/metrics` of a worker's health port, in the OpenMetrics text format. No label is an \
item, an org or a request. Gauges of the queue come from the worker's last sweep, and every worker tells \
the same: take the `max`. A read that fails leaves them as they are.
";

const SPANS: &str = "
## Spans

| span | kind | made | attributes |
|---|---|---|---|
| `process LANE KIND` | consumer | for each run; a root of its own, linked to the item's `traceparent` | `item`, `kind`, `lane`, `org`, `attempt`, `fence`, `request_id`, `caused_by`, `outcome`, `error.type` |
| `send LANE` | producer | for each enqueue, in the caller's trace; its own header is stored on the items | `kind`, `lane`, `items` |

A run is linked to what caused it and is never its child: an item may run days later, and more than once. \
What a handler calls belongs to the run's trace; a command finds it in `TRACEPARENT`. Only a failed or \
refused run has the status of an error.

The binary sends spans by OTLP over HTTP where `OTEL_EXPORTER_OTLP_ENDPOINT` (or \
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) names a collector, under the service name `leasehold` unless \
`OTEL_SERVICE_NAME` has another. Batch, sampler and headers follow the other `OTEL_` variables. A \
collector that is away costs the spans and no work. In a program of your own, turn the feature `otel` of \
the crate `leasehold` on and add a layer of `tracing-opentelemetry` to your subscriber.

## Log lines

Lines written within a run carry its span: `item`, `kind`, `lane`, `attempt`, `request_id` (the run's own) \
and `caused_by` (the request that enqueued it). `--json` makes each line one JSON object.
";

pub(super) fn text() -> String {
    let mut page = HEAD.to_owned();
    for topic in Topic::ALL {
        let _ = write!(
            page,
            "\n## {topic:?}\n\n{}.\n\n| name | type | labels | meaning |\n|---|---|---|---|\n",
            topic.meaning()
        );
        for metric in ALL.iter().filter(|metric| metric.topic == topic) {
            let (name, form) = (metric.name(), format!("{:?}", metric.form).to_lowercase());
            let labels = metric.labels.join(", ");
            let _ = writeln!(
                page,
                "| `{name}` | {form} | {labels} | {} |",
                metric.meaning
            );
        }
    }
    page.push_str(SPANS);
    page
}
