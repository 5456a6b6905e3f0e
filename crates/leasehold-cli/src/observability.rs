//! `leasehold observability`: what a monitoring system needs to know of us, made of the table of metrics.
//!
//! The files in `deploy/observability/` and `docs/metrics.md` are what this prints; a test holds them to it.

use std::io::Write as _;

use crate::failure::{Answer, Failure};

mod alerts;
mod dashboard;
mod page;

/// Print the list of metrics, a Grafana dashboard, or alert rules for Prometheus, as this build counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold observability dashboard > leasehold.json     to import into Grafana
  leasehold observability alerts > leasehold.yml         for rule_files of Prometheus")]
pub(crate) struct Arguments {
    /// What to print.
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Copy, clap::Subcommand)]
enum What {
    /// The metrics and spans, as a page of Markdown.
    Metrics,
    /// A dashboard for Grafana, as JSON.
    Dashboard,
    /// Alert rules for Prometheus, as YAML.
    Alerts,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    let text = match arguments.what {
        What::Metrics => page::text(),
        What::Dashboard => dashboard::text()?,
        What::Alerts => alerts::text(),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests;
