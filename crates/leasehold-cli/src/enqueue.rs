//! `leasehold enqueue`: puts work into the queue.

use jiff::Timestamp;
use leasehold::core::store::work::Enqueued;
use leasehold::core::text::clip;
use leasehold::core::{Due, IdempotencyKey};
use leasehold::{Client, ItemId, JsonObject, Kind, Lane, NewItem, WorkItem};
use leasehold_fence::protocol;
use serde::Serialize;

use crate::arguments::Common;
use crate::config::{Config, KindConfig};
use crate::database::Database;
use crate::failure::{Answer, Failure};
use crate::items::ItemDocument;
use crate::names::{parse_kind, parse_lane};
use crate::screen::{SCHEMA, Screen, plain};
use crate::{block_on, payload, when};

/// Put work into the queue.
///
/// Prints the id of each item, one a line. Creates the database if there is none.
///
/// Enqueueing again is safe with --key or --id: the item that is there is found and left as it is.
///
/// Warns if the file of settings names kinds, and no worker of it would run the item: the kind or the
/// lane may be misspelt.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  leasehold enqueue SEND_INVOICE '{\"id\": 7}' --key invoice-7
  leasehold enqueue REPORT @report.json --in 5m --lane slow
  producer | leasehold enqueue IMPORT_ROW --batch -

JSON: {\"schema\", \"fate\", \"item\", \"warnings\": [text, …]}, where fate is inserted, id_exists or
key_exists; a batch gives {\"schema\", \"inserted\", \"items\": [item, …], \"warnings\"}.")]
pub(crate) struct Arguments {
    /// What to do: a name in capitals such as `SEND_INVOICE`.
    kind: String,

    /// The payload: a JSON object, @file to read one, or - for standard input. `{}` if left out.
    #[arg(value_name = "JSON | @FILE | -", conflicts_with = "batch")]
    payload: Option<String>,

    /// Not before that long from now: 90s, 5m, 1h30m, 2d.
    #[arg(
        long = "in",
        value_name = "DURATION",
        env = "LEASEHOLD_ENQUEUE_IN",
        allow_hyphen_values = true,
        conflicts_with = "at"
    )]
    delay: Option<String>,

    /// Not before that instant, such as 2027-01-31T09:00:00Z.
    #[arg(long, value_name = "RFC3339", env = "LEASEHOLD_ENQUEUE_AT")]
    at: Option<String>,

    /// Any text that names this piece of work: a second item with the same key is not made.
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_ENQUEUE_KEY",
        conflicts_with = "batch"
    )]
    key: Option<String>,

    /// Where it is routed; only workers of the lane claim it. The kind's in the file of settings, or
    /// default.
    #[arg(
        long,
        visible_alias = "queue",
        value_name = "LANE",
        env = "LEASEHOLD_ENQUEUE_LANE"
    )]
    lane: Option<String>,

    /// Lower goes first; may be negative. The kind's in the file of settings, or 0.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_ENQUEUE_PRIORITY",
        allow_negative_numbers = true
    )]
    priority: Option<i16>,

    /// How often it may be tried before it is a dead letter. The kind's in the file of settings, or 3.
    #[arg(
        long,
        value_name = "N",
        env = "LEASEHOLD_ENQUEUE_MAX_ATTEMPTS",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_attempts: Option<u32>,

    /// An id of your own, so that asking again finds the item.
    #[arg(
        long,
        value_name = "UUID",
        env = "LEASEHOLD_ENQUEUE_ID",
        conflicts_with = "batch"
    )]
    id: Option<String>,

    /// Enqueue one item for each line of a file of JSON objects, or of standard input: all or none.
    #[arg(long, value_name = "FILE.jsonl | -", env = "LEASEHOLD_ENQUEUE_BATCH")]
    batch: Option<String>,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let config = Config::load(common)?;
    let template = Template::of(arguments, &config)?;
    let payloads = if let Some(file) = &arguments.batch {
        payload::lines(file)?
    } else {
        let payload = payload::one(arguments.payload.as_deref())?;
        vec![("the payload".to_owned(), payload)]
    };
    if let Some(of_kind) = config.kinds.get(&template.kind) {
        for (place, payload) in &payloads {
            check_size(place, payload, &template.kind, of_kind)?;
        }
    }
    let database = Database::of(&config)?;
    let warning = config.unserved(&template.kind, &template.lane);
    block_on(async {
        let client = database.open_or_create().await?;
        let now = client.stores().work.now().await?;
        let items: Vec<NewItem> = payloads
            .into_iter()
            .map(|(_, payload)| template.item(payload, now, &client))
            .collect();
        let ids: Vec<ItemId> = items.iter().map(|item| item.id).collect();
        let sent = items.first().cloned();
        let fates = client.enqueue_together(items).await?;
        client.told().await;
        for (id, fate) in ids.iter().zip(&fates) {
            if matches!(fate, Enqueued::IdTaken) {
                return Err(leasehold::ClientError::IdTaken(*id).into());
            }
        }
        let fates: Vec<Fate<'_>> = fates.iter().filter_map(Fate::of).collect();
        let warnings = warning.as_slice();
        if arguments.batch.is_some() {
            show_batch(&fates, warnings, screen)?;
        } else {
            show_one(&fates, sent.as_ref(), now, warnings, screen)?;
        }
        if !screen.is_json() {
            for warning in warnings {
                screen.talk(&format!("warning: {}", plain(warning)));
            }
        }
        Ok(Answer::Yes)
    })
}

/// What the items of one call have in common.
struct Template {
    kind: Kind,
    lane: Lane,
    due: Due,
    key: Option<IdempotencyKey>,
    id: Option<ItemId>,
    priority: i16,
    max_attempts: u32,
}

impl Template {
    fn of(arguments: &Arguments, config: &Config) -> Result<Self, Failure> {
        let due = match (&arguments.delay, &arguments.at) {
            (Some(delay), _) => Due::After(when::duration("--in", delay)?),
            (None, Some(instant)) => Due::At(when::instant("--at", instant)?),
            (None, None) => Due::Now,
        };
        let kind = parse_kind(&arguments.kind)?;
        let of_kind = config.kinds.get(&kind);
        let lane = arguments.lane.as_deref().map(parse_lane).transpose()?;
        let lane = lane.or_else(|| Some(of_kind?.lane.value.clone()));
        let priority = arguments.priority.or_else(|| Some(of_kind?.priority.value));
        let max_attempts = arguments.max_attempts;
        let max_attempts = max_attempts.or_else(|| Some(of_kind?.max_attempts.value));
        Ok(Self {
            kind,
            lane: lane.unwrap_or_default(),
            due,
            key: arguments.key.as_deref().map(parse_key).transpose()?,
            id: arguments.id.as_deref().map(parse_own_id).transpose()?,
            priority: priority.unwrap_or_default(),
            max_attempts: max_attempts.unwrap_or(NewItem::MAX_ATTEMPTS),
        })
    }

    fn item(&self, payload: JsonObject, now: Timestamp, client: &Client) -> NewItem {
        let mut item = NewItem::new(self.kind.clone(), payload, now);
        if let Some(id) = self.id {
            item.id = id;
            item.idempotency_key = IdempotencyKey::new(id.as_uuid());
        }
        if let Some(key) = self.key {
            item.idempotency_key = key;
        }
        item.lane = self.lane.clone();
        item.due = self.due;
        item.priority = self.priority;
        item.max_attempts = self.max_attempts;
        item.created_by = client.context().user_id();
        item.request_id = client.context().request().request_id;
        item
    }
}

/// Refuses a payload that the command of the kind cannot be handed: its first run would be its last.
fn check_size(
    place: &str,
    payload: &JsonObject,
    kind: &Kind,
    of_kind: &KindConfig,
) -> Result<(), Failure> {
    let delivery = protocol::deliver(payload.as_str().as_bytes(), of_kind.request.value);
    let Err(refused) = delivery else {
        return Ok(());
    };
    // Its text says what to do as well, in the words of the protocol.
    let told = refused.to_string();
    let why = told.split("; ").next().unwrap_or_default();
    let what = format!("{place} is too large for the command of {kind}; nothing was stored");
    Err(Failure::usage(what).because(why).remedy(format!(
        "set request = \"stdin\" in [kinds.{kind}], and read standard input in the handler"
    )))
}

/// Refuses a key that says nothing: a script whose variable is not set would give one to all its work.
fn parse_key(text: &str) -> Result<IdempotencyKey, Failure> {
    if text.trim().is_empty() {
        return Err(Failure::usage("--key (or LEASEHOLD_ENQUEUE_KEY) is empty")
            .because("all items with an empty key would be one: only the first would be made")
            .remedy("leave --key out, or give a text that names this piece of work"));
    }
    Ok(IdempotencyKey::from_text(text))
}

fn parse_own_id(text: &str) -> Result<ItemId, Failure> {
    text.parse().map_err(|_| {
        Failure::usage(format!("--id {:?} is no UUID", clip(text, 80)))
            .because("an item's id is one, such as 0197c2f4-7d0a-7000-8000-0123456789ab")
            .remedy("give a UUID (version 7) of your own, or leave --id out")
    })
}

/// What became of one item.
struct Fate<'a> {
    name: &'static str,
    item: &'a WorkItem,
}

impl<'a> Fate<'a> {
    fn of(fate: &'a Enqueued) -> Option<Self> {
        let (name, item) = match fate {
            Enqueued::Inserted(item) => (INSERTED, item),
            Enqueued::IdExists(item) => ("id_exists", item),
            Enqueued::KeyExists(item) => ("key_exists", item),
            Enqueued::IdTaken => return None,
        };
        Some(Self { name, item })
    }
}

const INSERTED: &str = "inserted";

fn show_one(
    fates: &[Fate<'_>],
    sent: Option<&NewItem>,
    now: Timestamp,
    warnings: &[String],
    screen: &Screen,
) -> Result<(), Failure> {
    let Some(Fate { name, item }) = fates.first() else {
        return Err(Failure::failed("the database answered nothing"));
    };
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            fate: &'static str,
            item: ItemDocument<'a>,
            warnings: &'a [String],
        }
        return screen.object(&Document {
            schema: SCHEMA,
            fate: name,
            item: ItemDocument::of(item),
            warnings,
        });
    }
    screen.text(&item.id.to_string())?;
    let (kind, lane, status) = (&item.kind, &item.lane, item.status);
    screen.talk(&match *name {
        INSERTED => format!(
            "{kind} is queued on lane {lane}, due {}",
            when::relative(now, item.available_at)
        ),
        name => {
            let by = if name == "id_exists" { "id" } else { "key" };
            let but = match sent.and_then(|sent| difference(sent, item)) {
                Some(what) => format!(", and {what} from what you sent"),
                None => String::new(),
            };
            format!("an item of that {by} is there ({kind}, {status}); it is left as it is{but}")
        }
    });
    Ok(())
}

/// What the stored item is to do differently from the one that was sent, without showing either.
fn difference(sent: &NewItem, stored: &WorkItem) -> Option<&'static str> {
    let is_same = sent.payload == stored.payload
        || payload::without_space(&sent.payload).eq(payload::without_space(&stored.payload));
    match (sent.kind == stored.kind, is_same) {
        (true, true) => None,
        (false, true) => Some("its kind differs"),
        (true, false) => Some("its payload differs"),
        (false, false) => Some("its kind and its payload differ"),
    }
}

fn show_batch(fates: &[Fate<'_>], warnings: &[String], screen: &Screen) -> Result<(), Failure> {
    let inserted = fates.iter().filter(|fate| fate.name == INSERTED).count();
    if screen.is_json() {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            inserted: usize,
            items: Vec<ItemDocument<'a>>,
            warnings: &'a [String],
        }
        return screen.object(&Document {
            schema: SCHEMA,
            inserted,
            items: fates
                .iter()
                .map(|fate| ItemDocument::of(fate.item))
                .collect(),
            warnings,
        });
    }
    let ids: Vec<String> = fates.iter().map(|fate| fate.item.id.to_string()).collect();
    screen.text(&ids.join("\n"))?;
    screen.talk(&format!("{inserted} items are queued"));
    Ok(())
}
