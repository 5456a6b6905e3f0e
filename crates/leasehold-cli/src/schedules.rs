//! `leasehold schedules`: look at work that repeats, and add, pause, resume, run or remove it.

use jiff::Timestamp;
use leasehold::core::{Clock as _, ShortText};
use leasehold::schedule::{Missed, Overlap, Schedule, ScheduleDefinition, Timing, timing_of};
use leasehold::{Client, RunNow, SystemClock};

use crate::arguments::Common;
use crate::block_on;
use crate::config::{Config, redacted};
use crate::database::{Database, Queue};
use crate::failure::{Answer, Failure};
use crate::names::{operator, parse_kind, parse_lane};
use crate::payload;
use crate::screen::Screen;
use crate::when;

mod listing;
mod refusals;

use listing::Document;
use refusals::{failed, no_such_schedule, refused};

/// Look at work that repeats, and add, pause, resume, run or remove it.
///
/// Workers make one item for each tick of a schedule, however many of them run. Schedules of the file of
/// settings are put when a worker of it starts; those added here stay until they are removed.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the schedules by name.
    #[command(
        visible_alias = "ls",
        after_long_help = "\
Columns in a pipe: name, expression, zone, kind, lane, state, next_tick, last_tick.

JSON: {\"schema\", \"schedules\": [schedule, …]}. The states are active, paused, undeclared and over."
    )]
    List,
    /// Show all there is to know about one schedule, but its payload.
    #[command(
        after_long_help = "JSON: {\"schema\", \"schedule\"}; with --payload also \"payload\" in it."
    )]
    Show {
        /// Which schedule, by name.
        name: String,
        /// Show the payload, too; fields that the settings of the kind name under redact are masked.
        #[arg(
            long,
            env = "LEASEHOLD_SCHEDULES_PAYLOAD",
            action = clap::ArgAction::SetTrue,
            value_parser = clap::builder::FalseyValueParser::new()
        )]
        payload: bool,
    },
    Next(NextArguments),
    Add(Box<AddArguments>),
    /// Remove a schedule; its items stay.
    #[command(
        after_long_help = "Exits with 3 if there is none.\n\nJSON: {\"schema\", \"name\", \"done\"}."
    )]
    Remove(OneArguments),
    /// Make no more ticks of a schedule until it is resumed.
    #[command(
        after_long_help = "Exits with 3 if there is none.\n\nJSON: {\"schema\", \"name\", \"done\"}."
    )]
    Pause {
        #[command(flatten)]
        one: OneArguments,
        /// Why: shown by `schedules list`, and kept in the audit log.
        #[arg(long, value_name = "TEXT", env = "LEASEHOLD_SCHEDULES_REASON")]
        reason: String,
    },
    /// Make ticks of a paused schedule again, from now on: those of the pause are not made up for.
    #[command(
        after_long_help = "Exits with 3 if there is none or it is not paused.\n\nJSON: {\"schema\", \"name\", \
\"done\"}."
    )]
    Resume(OneArguments),
    /// Enqueue an item of a schedule now, beside its ticks and also while it is paused.
    ///
    /// If the schedule's items must not overlap, nothing is enqueued while the last one is unfinished.
    #[command(
        after_long_help = "Exits with 3 if no item was made.\n\nJSON: {\"schema\", \"name\", \"done\", \"item\": id \
of the item, or of the unfinished one, or null}."
    )]
    RunNow(OneArguments),
}

// No doc comment: clap would show it in place of what the commands that take these do.
#[derive(Debug, clap::Args)]
struct OneArguments {
    /// Which schedule, by name.
    name: String,
    /// Who, if not the user of this system.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_SCHEDULES_BY")]
    by: Option<String>,
}

/// Show the coming ticks of a schedule, or of an expression that is none yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold schedules next nightly
  leasehold schedules next --cron '30 2 * * *' --zone Europe/Berlin --count 10")]
#[command(after_long_help = "Examples:
  leasehold schedules next nightly
  leasehold schedules next --cron '30 2 * * *' --zone Europe/Berlin --count 10

JSON: {\"schema\", \"name\" or null, \"expression\", \"zone\", \"ticks\": [{\"at\", \"local\"}, …]}, where at is in \
UTC and local is on the clocks of the zone.")]
struct NextArguments {
    /// Which schedule, by name.
    #[arg(required_unless_present_any = ["cron", "every"], conflicts_with_all = ["cron", "every", "zone"])]
    name: Option<String>,
    /// Five fields of cron (minute, hour, day of month, month, day of week), or @hourly and the like.
    #[arg(
        long,
        value_name = "EXPR",
        env = "LEASEHOLD_SCHEDULES_CRON",
        conflicts_with = "every"
    )]
    cron: Option<String>,
    /// A fixed interval: 90s, 15m, 1h.
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_SCHEDULES_EVERY")]
    every: Option<String>,
    /// The time zone by whose clocks cron is meant, such as Europe/Berlin. UTC if left out.
    #[arg(long, value_name = "ZONE", env = "LEASEHOLD_SCHEDULES_ZONE")]
    zone: Option<String>,
    /// How many ticks.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_SCHEDULES_COUNT",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    count: u32,
}

/// Add a schedule, or replace the one of that name.
///
/// A new one begins with the next tick. One that is replaced goes on where it was, unless its cron, interval,
/// zone, start or end changes: then it begins with the next tick, too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold schedules add nightly REPORT --cron '0 3 * * MON-FRI' --zone Europe/Berlin
  leasehold schedules add poll CHECK '{\"site\": \"eu\"}' --every 15m --overlap skip

JSON: {\"schema\", \"schedule\"}.")]
struct AddArguments {
    /// What to call it.
    name: String,
    /// What its ticks enqueue: a name in capitals such as `SEND_INVOICE`.
    kind: String,
    /// The payload: a JSON object, @file to read one, or - for standard input. `{}` if left out.
    #[arg(value_name = "JSON | @FILE | -")]
    payload: Option<String>,
    /// Five fields of cron (minute, hour, day of month, month, day of week), or @hourly and the like.
    #[arg(
        long,
        value_name = "EXPR",
        env = "LEASEHOLD_SCHEDULES_CRON",
        required_unless_present = "every",
        conflicts_with = "every"
    )]
    cron: Option<String>,
    /// A fixed interval: 90s, 15m, 1h. Counted from --starts-at, and else from the epoch: never from when a
    /// worker looks.
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_SCHEDULES_EVERY")]
    every: Option<String>,
    /// The time zone by whose clocks cron is meant, such as Europe/Berlin.
    #[arg(
        long,
        value_name = "ZONE",
        env = "LEASEHOLD_SCHEDULES_ZONE",
        default_value = "UTC"
    )]
    zone: String,
    /// Where its items are routed. The kind's in the file of settings, or default.
    #[arg(
        long,
        visible_alias = "queue",
        value_name = "LANE",
        env = "LEASEHOLD_SCHEDULES_LANE"
    )]
    lane: Option<String>,
    /// Lower goes first; may be negative. The kind's in the file of settings, or 0.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_SCHEDULES_PRIORITY",
        allow_negative_numbers = true
    )]
    priority: Option<i16>,
    /// How often each item may be tried. The kind's in the file of settings, or 3.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_SCHEDULES_MAX_ATTEMPTS",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_attempts: Option<u32>,
    /// What becomes of ticks that came while no worker ran: skip, once (one item makes up for them) or
    /// up-to-N (the latest N are made).
    #[arg(
        long,
        value_name = "POLICY",
        env = "LEASEHOLD_SCHEDULES_MISSED",
        default_value = "once"
    )]
    missed: String,
    /// What becomes of a tick while the last one's item is unfinished: allow, or skip it.
    #[arg(
        long,
        value_name = "POLICY",
        env = "LEASEHOLD_SCHEDULES_OVERLAP",
        default_value = "allow"
    )]
    overlap: String,
    /// No tick before that instant, such as 2027-01-31T09:00:00Z.
    #[arg(long, value_name = "RFC3339", env = "LEASEHOLD_SCHEDULES_STARTS_AT")]
    starts_at: Option<String>,
    /// No tick after that instant.
    #[arg(long, value_name = "RFC3339", env = "LEASEHOLD_SCHEDULES_ENDS_AT")]
    ends_at: Option<String>,
    /// Each item is due up to that long after its tick, so that not all begin at once.
    #[arg(long, value_name = "DURATION", env = "LEASEHOLD_SCHEDULES_JITTER")]
    jitter: Option<String>,
    /// Who, if not the user of this system.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_SCHEDULES_BY")]
    by: Option<String>,
}

pub(crate) fn run(
    arguments: Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    if let Command::Next(arguments) = &arguments.command
        && let Some(expression) = expression(arguments.cron.as_ref(), arguments.every.as_ref())?
    {
        // An expression needs no database.
        let zone = arguments.zone.as_deref().unwrap_or("UTC");
        let timing =
            Timing::parse(&expression, zone, None, None).map_err(|error| refused(&error))?;
        let coming = Coming {
            name: None,
            expression: &expression,
            zone,
        };
        return coming.show(&timing, SystemClock.now(), arguments.count, screen);
    }
    let config = Config::load(common)?;
    let database = Database::of(&config)?;
    block_on(async {
        match arguments.command {
            Command::List => list(&database, screen).await,
            Command::Show { name, payload } => {
                let schedule = found(&*database.open().await?, &name).await?;
                let payload = payload.then(|| {
                    let definition = &schedule.definition;
                    redacted(&definition.payload, config.redacted(&definition.kind))
                });
                let document = Document::of(&schedule, payload.as_ref());
                show(&document, &schedule, screen)
            }
            Command::Next(arguments) => {
                let queue = database.open().await?;
                let name = arguments.name.as_deref().unwrap_or_default();
                let schedule = found(&queue, name).await?;
                next(&queue, &schedule, arguments.count, screen).await
            }
            Command::Add(arguments) => add(*arguments, &config, &database, screen).await,
            Command::Remove(one) => {
                let (_, client) = one.open(&database).await?;
                let done = client.remove_schedule(&one.name).await?;
                one.answer(done, "is removed", "there is no schedule", screen)
            }
            Command::Pause { one, reason } => {
                if reason.trim().is_empty() {
                    return Err(Failure::usage("--reason is empty")
                        .because("whoever finds the schedule paused wants to know why")
                        .remedy("say it in a few words, as in --reason \"no reports in August\""));
                }
                let (_, client) = one.open(&database).await?;
                let reason = ShortText::new(reason);
                let done = client.pause_schedule(&one.name, &reason).await?;
                one.answer(done, "is paused", "there is no schedule", screen)
            }
            Command::Resume(one) => {
                let (_, client) = one.open(&database).await?;
                let done = client.resume_schedule(&one.name).await.map_err(failed)?;
                one.answer(done, "goes on", "there is no paused schedule", screen)
            }
            Command::RunNow(one) => run_now(&one, &database, screen).await,
        }
    })
}

impl OneArguments {
    async fn open(&self, database: &Database) -> Result<(Queue, Client), Failure> {
        let queue = database.open().await?;
        let client = (*queue).clone().with_operator(operator(self.by.clone()));
        Ok((queue, client))
    }

    fn answer(
        &self,
        done: bool,
        is_done: &str,
        is_not: &str,
        screen: &Screen,
    ) -> Result<Answer, Failure> {
        let name = &self.name;
        if screen.is_json() {
            screen.answer(&serde_json::json!({ "name": name, "done": done }))?;
        } else if done {
            screen.talk(&format!("the schedule {name} {is_done}"));
        } else {
            screen.talk(&format!(
                "{is_not} {name}; `leasehold schedules list` shows what there is"
            ));
        }
        Ok(Answer::yes_if(done))
    }
}

async fn list(database: &Database, screen: &Screen) -> Result<Answer, Failure> {
    let queue = database.open().await?;
    let schedules = queue.schedules().await?;
    if screen.is_json() {
        let documents: Vec<Document<'_>> = schedules
            .iter()
            .map(|schedule| Document::of(schedule, None))
            .collect();
        screen.answer(&serde_json::json!({ "schedules": documents }))?;
        return Ok(Answer::Yes);
    }
    if schedules.is_empty() {
        screen.talk("there are no schedules");
        return Ok(Answer::Yes);
    }
    if screen.is_terminal() {
        let now = queue.stores().work.now().await?;
        screen.table(listing::HEADER, &listing::for_people(&schedules, now))?;
    } else {
        screen.table(&[], &listing::for_pipes(&schedules))?;
    }
    for schedule in &schedules {
        if let Some(by) = schedule
            .declared_by
            .as_ref()
            .filter(|_| schedule.undeclared_at.is_some())
        {
            let name = &schedule.definition.name;
            screen.talk(&format!(
                "{name} is declared no more by {by}, and goes on: `leasehold schedules remove {name}` ends it"
            ));
        }
    }
    Ok(Answer::Yes)
}

fn show(document: &Document<'_>, schedule: &Schedule, screen: &Screen) -> Result<Answer, Failure> {
    if screen.is_json() {
        screen.answer(&serde_json::json!({ "schedule": document }))?;
    } else {
        screen.table(&[], &listing::in_full(schedule, document))?;
    }
    Ok(Answer::Yes)
}

async fn next(
    queue: &Client,
    schedule: &Schedule,
    count: u32,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let definition = &schedule.definition;
    let timing = timing_of(definition).map_err(|error| refused(&error))?;
    let coming = Coming {
        name: Some(&definition.name),
        expression: &definition.expression,
        zone: &definition.zone,
    };
    let now = queue.stores().work.now().await?;
    let answer = coming.show(&timing, now, count, screen)?;
    if let Some(pause) = schedule.paused.as_ref().filter(|_| !screen.is_json()) {
        let reason = &pause.reason;
        screen.talk(&format!(
            "it is paused, and none is made until it is resumed: {reason}"
        ));
    }
    Ok(answer)
}

/// What the ticks are of.
struct Coming<'a> {
    name: Option<&'a str>,
    expression: &'a str,
    zone: &'a str,
}

impl Coming<'_> {
    fn show(
        &self,
        timing: &Timing,
        now: Timestamp,
        count: u32,
        screen: &Screen,
    ) -> Result<Answer, Failure> {
        let zone = timing.zone();
        let ticks = std::iter::successors(timing.next_after(now), |tick| timing.next_after(*tick));
        let ticks: Vec<Timestamp> = ticks.take(count as usize).collect();
        if screen.is_json() {
            let tick = |tick: &Timestamp| {
                let local = jiff::ZonedDateTime::new(*tick, zone.clone());
                serde_json::json!({ "at": tick, "local": local.to_string() })
            };
            screen.answer(&serde_json::json!({
                "name": self.name,
                "expression": self.expression,
                "zone": self.zone,
                "ticks": ticks.iter().map(tick).collect::<Vec<_>>(),
            }))?;
            return Ok(Answer::Yes);
        }
        if !screen.is_terminal() {
            // The instants alone: a pipe has a use for them.
            let lines: Vec<String> = ticks.iter().map(Timestamp::to_string).collect();
            screen.text(&lines.join("\n"))?;
            return Ok(Answer::Yes);
        }
        screen.talk(&format!("{} {}", timing, self.zone));
        let rows: Vec<_> = ticks
            .iter()
            .map(|tick| {
                let local = jiff::ZonedDateTime::new(*tick, zone.clone());
                let shown = local.strftime("%a %Y-%m-%d %H:%M:%S %:z");
                vec![shown.to_string().into(), when::relative(now, *tick).into()]
            })
            .collect();
        screen.table(&["tick", "when"], &rows)?;
        if ticks.len() < count as usize {
            screen.talk("there are no more");
        }
        Ok(Answer::Yes)
    }
}

async fn add(
    arguments: AddArguments,
    config: &Config,
    database: &Database,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let definition = definition(&arguments, config)?;
    let name = definition.name.clone();
    let warning = config.unserved(&definition.kind, &definition.lane);
    let queue = database.open_or_create().await?;
    let client = (*queue).clone().with_operator(operator(arguments.by));
    client.put_schedule(definition).await.map_err(failed)?;
    let schedule = found(&client, &name).await?;
    if screen.is_json() {
        let document = Document::of(&schedule, None);
        screen.answer(&serde_json::json!({ "schedule": document }))?;
        return Ok(Answer::Yes);
    }
    let now = client.stores().work.now().await?;
    screen.talk(&match schedule.next_tick {
        Some(tick) => format!(
            "the schedule {name} has its next tick at {tick} ({})",
            when::relative(now, tick)
        ),
        None => format!("the schedule {name} has no tick any more"),
    });
    if let Some(warning) = warning {
        screen.talk(&format!("warning: {warning}"));
    }
    Ok(Answer::Yes)
}

fn definition(arguments: &AddArguments, config: &Config) -> Result<ScheduleDefinition, Failure> {
    let kind = parse_kind(&arguments.kind)?;
    let of_kind = config.kinds.get(&kind);
    let expression = expression(arguments.cron.as_ref(), arguments.every.as_ref())?;
    let payload = payload::one(arguments.payload.as_deref())?;
    let instant = |flag: &str, text: &Option<String>| {
        let text = text.as_deref();
        text.map(|text| when::instant(flag, text)).transpose()
    };
    let mut definition = ScheduleDefinition::new(
        &arguments.name,
        expression.unwrap_or_default(),
        kind,
        payload,
    );
    if let Some(of_kind) = of_kind {
        definition.lane = of_kind.lane.value.clone();
        definition.priority = of_kind.priority.value;
        definition.max_attempts = of_kind.max_attempts.value;
    }
    if let Some(lane) = &arguments.lane {
        definition.lane = parse_lane(lane)?;
    }
    definition.priority = arguments.priority.unwrap_or(definition.priority);
    definition.max_attempts = arguments.max_attempts.unwrap_or(definition.max_attempts);
    definition.zone.clone_from(&arguments.zone);
    definition.missed = policy::<Missed>("--missed", &arguments.missed)?;
    definition.overlap = policy::<Overlap>("--overlap", &arguments.overlap)?;
    definition.starts_at = instant("--starts-at", &arguments.starts_at)?;
    definition.ends_at = instant("--ends-at", &arguments.ends_at)?;
    if let Some(jitter) = &arguments.jitter {
        definition.jitter = when::duration("--jitter", jitter)?;
    }
    timing_of(&definition).map_err(|error| refused(&error))?;
    Ok(definition)
}

fn policy<T: std::str::FromStr<Err = leasehold::core::NameError>>(
    flag: &str,
    text: &str,
) -> Result<T, Failure> {
    text.parse().map_err(|error: leasehold::core::NameError| {
        let told = error.to_string();
        let (_, remedy) = told.rsplit_once(": ").unwrap_or(("", &told));
        Failure::usage(format!("{flag} {text:?} is no policy"))
            .because("it is none of the few that there are")
            .remedy(remedy)
    })
}

fn expression(cron: Option<&String>, every: Option<&String>) -> Result<Option<String>, Failure> {
    match (cron, every) {
        (Some(cron), _) => Ok(Some(cron.clone())),
        (None, Some(every)) => Ok(Some(Timing::every(when::duration("--every", every)?))),
        (None, None) => Ok(None),
    }
}

async fn run_now(
    one: &OneArguments,
    database: &Database,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let (queue, client) = one.open(database).await?;
    let answer = client.run_schedule_now(&one.name).await?;
    queue.told().await;
    let (done, item) = match &answer {
        RunNow::Made(item) => (true, Some(item.id)),
        RunNow::Unfinished(item) => (false, Some(*item)),
        RunNow::NotFound => return Err(no_such_schedule(&one.name)),
    };
    if screen.is_json() {
        let name = &one.name;
        screen.answer(&serde_json::json!({
            "name": name, "done": done, "item": item
        }))?;
        return Ok(Answer::yes_if(done));
    }
    match (answer, item) {
        (RunNow::Made(made), _) => {
            screen.text(&made.id.to_string())?;
            screen.talk(&format!("{} is queued on lane {}", made.kind, made.lane));
        }
        (_, Some(item)) => screen.talk(&format!(
            "its items do not overlap, and the last one is unfinished: `leasehold items explain {item}` says why"
        )),
        (_, None) => {}
    }
    Ok(Answer::yes_if(done))
}

async fn found(client: &Client, name: &str) -> Result<Schedule, Failure> {
    let schedule = client.schedule(name).await?;
    schedule.ok_or_else(|| no_such_schedule(name))
}
