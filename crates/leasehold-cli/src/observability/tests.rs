use std::collections::BTreeSet;
use std::path::Path;

use leasehold::telemetry::names::{self, Form};

use super::{alerts, dashboard, page};

/// Every series that the table makes.
fn series() -> BTreeSet<String> {
    let of = |metric: &names::Metric| {
        let name = metric.name();
        match metric.form {
            Form::Counter | Form::Gauge => vec![name],
            Form::Histogram => ["bucket", "count", "sum"]
                .map(|end| format!("{name}_{end}"))
                .to_vec(),
        }
    };
    names::ALL.iter().flat_map(of).collect()
}

/// What looks like one of our series in a query.
fn named(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("leasehold_"))
}

#[test]
fn alerts_and_panels_name_what_exists() {
    let series = series();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard::text().unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<&str> = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    let alerts = alerts::ALL.iter().map(|alert| alert.expression);
    let mut seen = BTreeSet::new();
    for query in queries.into_iter().chain(alerts) {
        for name in named(query) {
            assert!(series.contains(name), "{name} in {query}");
            seen.insert(name.to_owned());
        }
        assert_eq!(
            query.matches('(').count(),
            query.matches(')').count(),
            "{query}"
        );
    }
    let is_shown = |metric: &names::Metric| seen.iter().any(|one| one.starts_with(&metric.name()));
    assert!(names::ALL.iter().all(is_shown));
}

#[test]
fn panels_do_not_lie_on_each_other() {
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard::text().unwrap()).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let of = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in of("x")..of("x") + of("w") {
            assert!(x < 24);
            for y in of("y")..of("y") + of("h") {
                assert!(taken.insert((x, y)), "{panel}");
            }
        }
    }
}

#[test]
fn the_files_of_the_project_are_what_the_command_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, text, command) in [
        ("docs/metrics.md", page::text(), "metrics"),
        (
            "deploy/observability/grafana.json",
            dashboard::text().unwrap(),
            "dashboard",
        ),
        ("deploy/observability/alerts.yml", alerts::text(), "alerts"),
    ] {
        let stored = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(
            stored == text,
            "{file} is not what this build prints; run: cargo run -- observability {command} > {file}"
        );
    }
}
