//! `leasehold items`: look at work, and cancel, retry or explain it.

use leasehold::core::store::work::{Cancelled, Filter, LIST_MAX, Listed, Page, Retried};
use leasehold::{Client, ItemId, JsonObject, Status, WorkItem};
use serde::Serialize;

use crate::arguments::Common;
use crate::block_on;
use crate::config::{Config, redacted};
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::names::{parse_id, parse_kind, parse_lane, parse_status};
use crate::screen::{SCHEMA, Screen};

mod document;
mod listing;

pub(crate) use document::ItemDocument;

/// Look at work, and cancel, retry or explain it.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(visible_alias = "ls")]
    List(ListArguments),
    Show(ShowArguments),
    /// Put failed items back to the start of their attempts.
    #[command(
        after_help = UNDONE,
        after_long_help = "Exits with 3 if it could not be done for each of them.

JSON: {\"schema\", \"items\": [{\"id\", \"answer\", \"status\"}, …]}. The answers are queued, not_failed and \
not_found."
    )]
    Retry(ManyArguments),
    /// Ask items to stop: one that waits ends at once, one that runs is told by its worker.
    #[command(
        after_help = UNDONE,
        after_long_help = "Exits with 3 if it could not be done for each of them.

JSON: {\"schema\", \"items\": [{\"id\", \"answer\", \"status\"}, …]}. The answers are cancelled, requested (a \
worker runs it and will be told), already_over and not_found."
    )]
    Cancel(ManyArguments),
    Explain(OneArguments),
}

/// List items, newest first, without their payloads.
///
/// On a terminal a table; in a pipe a line for each, its columns separated by tabs, without a header.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Columns in a pipe: id, kind, lane, status, attempts, max_attempts, priority, created_at, updated_at, \
available_at, claimed_by, note, failure_code.

JSON: {\"schema\", \"items\": [item, …], \"next_before\"}, where next_before is what to give --before for \
the next page, or null if all was looked at. A page of what is rare among millions may be short, or empty, \
and still have one after it.")]
struct ListArguments {
    /// Only items in this status: queued, claimed, done or failed.
    #[arg(long, value_name = "STATUS", env = "LEASEHOLD_ITEMS_STATUS")]
    status: Option<String>,

    /// Only items of this kind.
    #[arg(long, value_name = "KIND", env = "LEASEHOLD_ITEMS_KIND")]
    kind: Option<String>,

    /// Only items on this lane.
    #[arg(
        long,
        visible_alias = "queue",
        value_name = "LANE",
        env = "LEASEHOLD_ITEMS_LANE"
    )]
    lane: Option<String>,

    /// At most so many.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_ITEMS_LIMIT",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(LIST_MAX))
    )]
    limit: u32,

    /// The page after this item: only items older than it.
    #[arg(long, value_name = "ID", env = "LEASEHOLD_ITEMS_BEFORE")]
    before: Option<String>,
}

/// Show all there is to know about one item.
///
/// Payload and result are left out unless asked for: they may hold what not everybody should see. The
/// fields that the settings of the kind name under redact are masked then, too.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
JSON: {\"schema\", \"item\"}; the item has the fields of a list, and \"errors\": [{\"attempt\", \"at\", \
\"message\"}]; with --payload also \"payload\" and, once it is there, \"result\".")]
struct ShowArguments {
    /// Which item.
    id: String,

    /// Show the payload and the result, too.
    #[arg(
        long,
        env = "LEASEHOLD_ITEMS_PAYLOAD",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    payload: bool,
}

/// What `-h` says of the commands that take several items.
const UNDONE: &str = "Exits with 3 if it could not be done for each of them.";

// No doc comment: clap would show it in place of what the command that takes these does.
#[derive(Debug, clap::Args)]
struct ManyArguments {
    /// Which items.
    #[arg(required = true)]
    ids: Vec<String>,
}

/// Say why an item is where it is, and what to do about it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
JSON: {\"schema\", \"item\", \"now\", \"reasons\": [text, …], \"next\": text or null, \
\"command\": text or null}; command is the one that does what next says, if there is one.")]
struct OneArguments {
    /// Which item.
    id: String,
}

pub(crate) fn run(
    arguments: Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let config = Config::load(common)?;
    let database = Database::of(&config)?;
    match arguments.command {
        Command::List(arguments) => {
            let (filter, page) = (filter_of(&arguments)?, page_of(&arguments)?);
            block_on(list(&database, &filter, &page, screen))
        }
        Command::Show(arguments) => {
            let id = parse_id(&arguments.id)?;
            block_on(show(&database, id, arguments.payload, &config, screen))
        }
        Command::Retry(arguments) => block_on(retry(&database, parse_ids(&arguments)?, screen)),
        Command::Cancel(arguments) => block_on(cancel(&database, parse_ids(&arguments)?, screen)),
        Command::Explain(arguments) => {
            let id = parse_id(&arguments.id)?;
            block_on(explain(&database, id, common, screen))
        }
    }
}

async fn list(
    database: &Database,
    filter: &Filter,
    page: &Page,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let client = database.open().await?;
    let now = client.stores().work.now().await?;
    let Listed { items, next } = look(&client, filter, *page).await?;
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            items: Vec<ItemDocument<'a>>,
            next_before: Option<ItemId>,
        }
        screen.object(&Document {
            schema: SCHEMA,
            items: items.iter().map(ItemDocument::of).collect(),
            next_before: next,
        })?;
        return Ok(Answer::Yes);
    }
    if items.is_empty() && next.is_none() {
        screen.talk("no such items");
        return Ok(Answer::Yes);
    }
    let is_short = items.len() < page.limit as usize;
    if !screen.is_terminal() {
        screen.table(&[], &listing::for_pipes(&items))?;
    } else if !items.is_empty() {
        screen.table(listing::HEADER, &listing::for_people(&items, now))?;
    }
    if let Some(next) = next {
        if is_short {
            screen.talk(&format!(
                "not all was looked at; go on with --before {next}"
            ));
        } else if screen.is_terminal() {
            screen.talk(&format!("there may be more: --before {next}"));
        }
    }
    Ok(Answer::Yes)
}

/// One call looks at some ten thousand items: enough for a million, and for a person's patience.
const LOOKS_MAX: u32 = 100;

/// Goes on until the page is full or all was looked at, but not for ever.
async fn look(client: &Client, filter: &Filter, mut page: Page) -> Result<Listed, Failure> {
    let mut found = Listed::default();
    for _ in 0..LOOKS_MAX {
        let more = client.list(filter, &page).await?;
        page.limit = page
            .limit
            .saturating_sub(u32::try_from(more.items.len()).unwrap_or(u32::MAX));
        page.before = more.next;
        found.items.extend(more.items);
        found.next = more.next;
        if page.limit == 0 || more.next.is_none() {
            break;
        }
    }
    Ok(found)
}

async fn show(
    database: &Database,
    id: ItemId,
    with_payload: bool,
    config: &Config,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let client = database.open().await?;
    let item = found(&client, id, database).await?;
    let bodies = with_payload.then(|| Bodies::of(&item, config));
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            item: ItemDocument<'a>,
        }
        screen.object(&Document {
            schema: SCHEMA,
            item: ItemDocument::in_full(&item, bodies.as_ref()),
        })?;
    } else {
        let now = client.stores().work.now().await?;
        let times = listing::Times::seen(screen.is_terminal().then_some(now));
        screen.table(&[], &listing::in_full(&item, &times, bodies.as_ref()))?;
    }
    Ok(Answer::Yes)
}

/// What an item was given and what it gave, as it may be shown.
struct Bodies {
    payload: JsonObject,
    result: Option<JsonObject>,
}

impl Bodies {
    /// With the fields masked that the kind's settings name: a result may repeat what it was given.
    fn of(item: &WorkItem, config: &Config) -> Self {
        let names = config.redacted(&item.kind);
        Self {
            payload: redacted(&item.payload, names),
            result: item.result.as_ref().map(|result| redacted(result, names)),
        }
    }
}

async fn explain(
    database: &Database,
    id: ItemId,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let client = database.open().await?;
    let Some(explanation) = client.explain(id).await? else {
        return Err(no_such_item(id, database));
    };
    let command = explanation
        .next_is_retry
        .then(|| format!("leasehold items retry {id}{}", common.database_again()));
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            item: ItemDocument<'a>,
            now: jiff::Timestamp,
            reasons: &'a [String],
            next: Option<&'a str>,
            command: Option<&'a str>,
        }
        screen.object(&Document {
            schema: SCHEMA,
            item: ItemDocument::of(&explanation.item),
            now: explanation.now,
            reasons: &explanation.reasons,
            next: explanation.next.as_deref(),
            command: command.as_deref(),
        })?;
    } else {
        screen.text(&listing::explained(&explanation, command.as_deref()))?;
    }
    Ok(Answer::Yes)
}

async fn retry(database: &Database, ids: Vec<ItemId>, screen: &Screen) -> Result<Answer, Failure> {
    let queue = database.open().await?;
    let mut fates = Vec::with_capacity(ids.len());
    for id in ids {
        fates.push(match queue.retry(id).await? {
            Retried::Queued(item) => Fate::done(id, "queued", &item),
            Retried::NotFailed(item) => {
                let why = format!("is {}, and only a failed item can be retried", item.status);
                Fate::undone(id, "not_failed", Some(&item), why)
            }
            Retried::NotFound => Fate::not_found(id),
        });
    }
    queue.told().await;
    show_fates(&fates, screen)
}

async fn cancel(database: &Database, ids: Vec<ItemId>, screen: &Screen) -> Result<Answer, Failure> {
    let queue = database.open().await?;
    let mut fates = Vec::with_capacity(ids.len());
    for id in ids {
        fates.push(match queue.cancel(id).await? {
            Cancelled::Ended(item) => Fate::done(id, "cancelled", &item),
            Cancelled::Requested(item) => Fate::done(id, "requested", &item),
            Cancelled::AlreadyFinal(item) => {
                let why = format!("is {} already; nothing is left to cancel", item.status);
                Fate::undone(id, "already_over", Some(&item), why)
            }
            Cancelled::NotFound => Fate::not_found(id),
        });
    }
    queue.told().await;
    show_fates(&fates, screen)
}

/// What became of one of several items.
#[derive(Debug, Serialize)]
struct Fate {
    id: ItemId,
    answer: &'static str,
    status: Option<Status>,
    #[serde(skip)]
    why_not: Option<String>,
}

impl Fate {
    fn done(id: ItemId, answer: &'static str, item: &WorkItem) -> Self {
        Self {
            id,
            answer,
            status: Some(item.status),
            why_not: None,
        }
    }

    fn undone(id: ItemId, answer: &'static str, item: Option<&WorkItem>, why: String) -> Self {
        Self {
            id,
            answer,
            status: item.map(|item| item.status),
            why_not: Some(why),
        }
    }

    fn not_found(id: ItemId) -> Self {
        Self::undone(id, "not_found", None, "is not in this database".to_owned())
    }
}

fn show_fates(fates: &[Fate], screen: &Screen) -> Result<Answer, Failure> {
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            items: &'a [Fate],
        }
        screen.object(&Document {
            schema: SCHEMA,
            items: fates,
        })?;
    } else {
        screen.table(&["id", "answer"], &listing::fates(fates))?;
        for fate in fates {
            if let Some(why) = &fate.why_not {
                screen.talk(&format!("{} {why}", fate.id));
            }
        }
    }
    Ok(Answer::yes_if(
        fates.iter().all(|fate| fate.why_not.is_none()),
    ))
}

async fn found(client: &Client, id: ItemId, database: &Database) -> Result<WorkItem, Failure> {
    let item = client.get(id).await?;
    item.ok_or_else(|| no_such_item(id, database))
}

fn no_such_item(id: ItemId, database: &Database) -> Failure {
    Failure::no(format!("there is no item {id}"))
        .because(format!("the database at {database} has none of that id"))
        .remedy("`leasehold items list` shows what is there; finished items are purged in time")
}

fn filter_of(arguments: &ListArguments) -> Result<Filter, Failure> {
    Ok(Filter {
        status: arguments.status.as_deref().map(parse_status).transpose()?,
        lane: arguments.lane.as_deref().map(parse_lane).transpose()?,
        kind: arguments.kind.as_deref().map(parse_kind).transpose()?,
    })
}

fn page_of(arguments: &ListArguments) -> Result<Page, Failure> {
    Ok(Page {
        before: arguments.before.as_deref().map(parse_id).transpose()?,
        limit: arguments.limit,
    })
}

fn parse_ids(arguments: &ManyArguments) -> Result<Vec<ItemId>, Failure> {
    arguments.ids.iter().map(|id| parse_id(id)).collect()
}
