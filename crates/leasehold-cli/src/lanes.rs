//! `leasehold lanes`: look at lanes, and pause and resume them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use leasehold::core::ShortText;
use leasehold::core::store::work::{LaneGauge, PausedLane};
use leasehold::core::time::short_length;
use leasehold::{Client, Lane};
use serde::Serialize;

use crate::arguments::Common;
use crate::block_on;
use crate::config::Config;
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::names::{operator, parse_lane};
use crate::screen::{Field, Screen, Tone};
use crate::when;

/// Look at lanes, and pause and resume them.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the lanes that hold unfinished items, and those that are paused.
    #[command(
        visible_alias = "ls",
        after_long_help = "\
Columns in a pipe: lane, ready, delayed, claimed, oldest_age_seconds, paused_since, paused_by, reason.

JSON: {\"schema\", \"lanes\": [{\"lane\", \"ready\", \"delayed\", \"claimed\", \"oldest_age_seconds\", \
\"paused\": {\"reason\", \"by\", \"since\"} or null}, …]}. Counts end at 100,000."
    )]
    List,
    /// Claim nothing from a lane until it is resumed: what runs goes on, and what is enqueued waits.
    #[command(after_long_help = "JSON: {\"schema\", \"lane\", \"paused\": true}.")]
    Pause {
        /// Which lane.
        lane: String,
        /// Why: shown by `lanes list` and `items explain`, and kept in the audit log.
        #[arg(long, value_name = "TEXT", env = "LEASEHOLD_LANES_REASON")]
        reason: String,
        /// Who, if not the user of this system.
        #[arg(long, value_name = "NAME", env = "LEASEHOLD_LANES_BY")]
        by: Option<String>,
    },
    /// Claim from a paused lane again.
    #[command(
        after_long_help = "Exits with 3 if the lane is not paused.\n\nJSON: {\"schema\", \"lane\", \
\"paused\": false, \"was_paused\"}."
    )]
    Resume {
        /// Which lane.
        lane: String,
        /// Who, if not the user of this system.
        #[arg(long, value_name = "NAME", env = "LEASEHOLD_LANES_BY")]
        by: Option<String>,
    },
}

pub(crate) fn run(
    arguments: Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let database = Database::of(&Config::load(common)?)?;
    match arguments.command {
        Command::List => block_on(async { list(&*database.open().await?, screen).await }),
        Command::Pause { lane, reason, by } => {
            let lane = parse_lane(&lane)?;
            if reason.trim().is_empty() {
                return Err(Failure::usage("--reason is empty")
                    .because("whoever finds the lane paused wants to know why")
                    .remedy("say it in a few words, as in --reason \"the bank is closed\""));
            }
            block_on(async {
                let queue = database.open().await?;
                let client = (*queue).clone().with_operator(operator(by));
                client.pause_lane(&lane, &ShortText::new(reason)).await?;
                if screen.is_json() {
                    screen.answer(&serde_json::json!({
                        "lane": lane, "paused": true
                    }))?;
                } else {
                    screen.talk(&format!("the lane {lane} is paused"));
                }
                Ok(Answer::Yes)
            })
        }
        Command::Resume { lane, by } => {
            let lane = parse_lane(&lane)?;
            block_on(async {
                let queue = database.open().await?;
                let client = (*queue).clone().with_operator(operator(by));
                let was_paused = client.resume_lane(&lane).await?;
                queue.told().await;
                if screen.is_json() {
                    screen.answer(&serde_json::json!({
                        "lane": lane, "paused": false, "was_paused": was_paused
                    }))?;
                } else if was_paused {
                    screen.talk(&format!("the lane {lane} is claimed from again"));
                } else {
                    screen.talk(&format!("the lane {lane} is not paused"));
                }
                Ok(Answer::yes_if(was_paused))
            })
        }
    }
}

/// A lane with all that there is to say of it.
#[derive(Default)]
struct Row {
    gauge: Option<LaneGauge>,
    paused: Option<PausedLane>,
}

async fn list(client: &Client, screen: &Screen) -> Result<Answer, Failure> {
    let now = client.stores().work.now().await?;
    let (gauges, paused) = client.lanes().await?;
    let mut rows: BTreeMap<Lane, Row> = BTreeMap::new();
    for gauge in gauges {
        let row = rows.entry(gauge.lane.clone()).or_default();
        row.gauge = Some(gauge);
    }
    for pause in paused {
        let row = rows.entry(pause.lane.clone()).or_default();
        row.paused = Some(pause);
    }
    if screen.is_json() {
        let lanes = rows.iter().map(|(lane, row)| Document::of(lane, row));
        screen.answer(&serde_json::json!({
            "lanes": lanes.collect::<Vec<_>>()
        }))?;
        return Ok(Answer::Yes);
    }
    if rows.is_empty() {
        screen.talk("no lane holds unfinished items, and none is paused");
        return Ok(Answer::Yes);
    }
    let is_terminal = screen.is_terminal();
    let rows: Vec<Vec<Field>> = rows
        .iter()
        .map(|(lane, row)| fields(lane, row, is_terminal.then_some(now)))
        .collect();
    let header = ["lane", "ready", "delayed", "claimed", "oldest", "paused"];
    screen.table(&header, &rows)?;
    Ok(Answer::Yes)
}

fn fields(lane: &Lane, row: &Row, seen: Option<Timestamp>) -> Vec<Field> {
    let count = |of: fn(&LaneGauge) -> u64| row.gauge.as_ref().map_or(0, of);
    let age = row.gauge.as_ref().map(|gauge| gauge.oldest_age);
    let age = age.unwrap_or_default();
    let mut fields: Vec<Field> = vec![
        lane.as_str().into(),
        count(|gauge| gauge.ready).into(),
        count(|gauge| gauge.delayed).into(),
        count(|gauge| gauge.claimed).into(),
    ];
    match (seen, &row.paused) {
        (Some(now), paused) => {
            fields.push(short_length(age).into());
            fields.push(match paused {
                Some(pause) => {
                    let since = when::relative(now, pause.since);
                    let text = format!("{since} by {}: {}", pause.by, pause.reason);
                    Field::toned(&text, Tone::Busy)
                }
                None => "".into(),
            });
        }
        (None, paused) => {
            fields.push(age.as_secs().into());
            let pause = paused.as_ref();
            fields.push(
                pause
                    .map(|pause| pause.since.to_string())
                    .unwrap_or_default()
                    .into(),
            );
            fields.push(pause.map_or("", |pause| pause.by.as_str()).into());
            fields.push(pause.map_or("", |pause| pause.reason.as_str()).into());
        }
    }
    fields
}

#[derive(Serialize)]
struct Document<'a> {
    lane: &'a Lane,
    ready: u64,
    delayed: u64,
    claimed: u64,
    oldest_age_seconds: f64,
    paused: Option<PauseDocument<'a>>,
}

#[derive(Serialize)]
struct PauseDocument<'a> {
    reason: &'a ShortText,
    by: &'a ShortText,
    since: Timestamp,
}

impl<'a> Document<'a> {
    fn of(lane: &'a Lane, row: &'a Row) -> Self {
        let gauge = row.gauge.as_ref();
        Self {
            lane,
            ready: gauge.map_or(0, |gauge| gauge.ready),
            delayed: gauge.map_or(0, |gauge| gauge.delayed),
            claimed: gauge.map_or(0, |gauge| gauge.claimed),
            oldest_age_seconds: gauge.map_or(0.0, |gauge| gauge.oldest_age.as_secs_f64()),
            paused: row.paused.as_ref().map(|pause| PauseDocument {
                reason: &pause.reason,
                by: &pause.by,
                since: pause.since,
            }),
        }
    }
}
