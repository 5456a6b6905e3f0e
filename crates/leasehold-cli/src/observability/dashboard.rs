//! A dashboard for Grafana: one row for each topic, one panel for each metric.

use leasehold::telemetry::names::{ALL, Form, Metric, Topic};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Grafana's grid is so wide.
const COLUMNS: usize = 24;
const PANEL_COLUMNS: usize = 8;
const PANEL_HEIGHT: usize = 7;

pub(super) fn text() -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(&dashboard())
        .map_err(|error| Failure::failed("the dashboard could not be written").because(error))?;
    Ok(text + "\n")
}

fn dashboard() -> Value {
    let mut panels = Vec::new();
    let mut top = 0;
    for topic in Topic::ALL {
        panels.push(json!({
            "type": "row",
            "id": panels.len() + 1,
            "title": topic.meaning(),
            "collapsed": false,
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            "panels": [],
        }));
        top += 1;
        let metrics: Vec<&Metric> = ALL.iter().filter(|metric| metric.topic == topic).collect();
        for (n, metric) in metrics.iter().enumerate() {
            let across = n * PANEL_COLUMNS;
            let place = json!({
                "x": across % COLUMNS,
                "y": top + across / COLUMNS * PANEL_HEIGHT,
                "w": PANEL_COLUMNS,
                "h": PANEL_HEIGHT,
            });
            panels.push(panel(panels.len() + 1, metric, &place));
        }
        top += (metrics.len() * PANEL_COLUMNS).div_ceil(COLUMNS) * PANEL_HEIGHT;
    }
    json!({
        "title": "Leasehold",
        "uid": "leasehold",
        "tags": ["leasehold"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {
                "name": "datasource",
                "label": "Data source",
                "type": "datasource",
                "query": "prometheus",
            },
            {
                "name": "job",
                "label": "Job",
                "type": "query",
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": "label_values(leasehold_worker_slots, job)",
                "includeAll": true,
                "allValue": ".*",
                "multi": true,
                "refresh": 2,
            },
        ]},
        "panels": panels,
    })
}

fn panel(id: usize, metric: &Metric, place: &Value) -> Value {
    json!({
        "type": "timeseries",
        "id": id,
        "title": metric.stem.replace('_', " "),
        "description": metric.meaning,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": unit(metric), "custom": {"fillOpacity": 10}},
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets(metric),
    })
}

fn unit(metric: &Metric) -> &'static str {
    match metric.form {
        Form::Counter => "ops",
        _ if metric.stem.ends_with("_seconds") => "s",
        Form::Gauge | Form::Histogram => "short",
    }
}

fn targets(metric: &Metric) -> Vec<Value> {
    let name = metric.name();
    let by = metric.labels.join(", ");
    let legend = |last: &str| {
        let labels = metric.labels.iter().map(|label| format!("{{{{{label}}}}}"));
        let words: Vec<String> = labels.chain([last.to_owned()]).collect();
        words.join(" ").trim().to_owned()
    };
    let target = |query: String, legend: String| json!({"expr": query, "legendFormat": legend});
    match metric.form {
        Form::Counter => {
            let query = format!("sum by ({by}) (rate({name}{{job=~\"$job\"}}[$__rate_interval]))");
            vec![target(query, legend(""))]
        }
        // All workers read the same store; of what is each one's own, the sum is the whole.
        Form::Gauge => {
            let sum = match metric.topic {
                Topic::Queue => "max",
                _ => "sum",
            };
            let query = format!("{sum} by ({by}) ({name}{{job=~\"$job\"}})");
            vec![target(query, legend(""))]
        }
        Form::Histogram => {
            let labels: Vec<&str> = metric.labels.iter().copied().chain(["le"]).collect();
            let by = labels.join(", ");
            let of = |part: f64, word: &str| {
                let query = format!(
                    "histogram_quantile({part}, sum by ({by}) (rate({name}_bucket{{job=~\"$job\"}}[$__rate_interval])))"
                );
                target(query, legend(word))
            };
            vec![of(0.5, "p50"), of(0.95, "p95"), of(0.99, "p99")]
        }
    }
}
