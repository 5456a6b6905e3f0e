//! Writing new items.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use leasehold_core::store::StoreError;
use leasehold_core::store::work::Enqueued;
use leasehold_core::time::CALENDAR_END;
use leasehold_core::{Due, IdempotencyKey, ItemId, Lane, NewItem, OrgId, WorkItem};
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::funnel::Statements;
use crate::rows::{self, Columns, Moment, item_columns, microseconds, whole_microseconds};
use crate::store::PostgresStore;

pub(super) const INSERT: &str = include_str!("sql/enqueue.sql");

/// The org's own rows that stand in the way of a batch.
pub(super) const COLLISIONS: &str = concat!(
    "select ",
    item_columns!(),
    " from {schema}.work_items
      where org_id = $1 and (id = any($2::uuid[]) or idempotency_key = any($3::uuid[]))"
);

/// Which ids belong to another org. Shows nothing else of it.
pub(super) const TAKEN: &str =
    "select id from {schema}.items where id = any($2::uuid[]) and org_id <> $1";

/// How often in a row nothing may come of a round. What stood in the way of a row and cannot be found was
/// purged in between, which does not happen twice.
const VAIN_ROUNDS_MAX: u32 = 3;

/// Writes a batch, and hints the lanes that gained an item.
///
/// One statement writes all there is to write. Only a batch that names an id or a key twice takes several,
/// in one transaction. A crash in between leaves nothing, and after the commit leaves all.
pub(super) async fn enqueue(
    store: &PostgresStore,
    org: OrgId,
    batch: Vec<NewItem>,
) -> Answer<Vec<Enqueued>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut connection = store.of_org(org).connection().await?;
    let fates = if firsts(&batch).len() == batch.len() {
        enqueue_within(&connection, org, batch).await?
    } else {
        let transaction = connection.transaction().await?;
        let fates = enqueue_within(&transaction, org, batch).await?;
        transaction.commit().await?;
        fates
    };
    store.hint(&gained(&fates));
    Ok(fates)
}

/// The lanes that a batch gave something to do.
pub(crate) fn gained(fates: &[Enqueued]) -> BTreeSet<Lane> {
    let lanes = fates.iter().filter_map(|fate| match fate {
        Enqueued::Inserted(item) => Some(item.lane.clone()),
        _ => None,
    });
    lanes.collect()
}

/// Writes a batch through a connection, or as part of a transaction, and answers in the batch's order.
/// Whoever calls this hints the lanes that [`gained`], after the commit.
///
/// Every round writes the rows that no earlier row without a fate stands in the way of, and then looks up
/// what stood in the way of the others. The first round leaves nothing to do unless the batch names an id
/// or a key twice: a row that another transaction wrote in the meantime is committed by the time the insert
/// has met it, and the look-up has a snapshot of its own.
pub(crate) async fn enqueue_within(
    on: &impl Statements,
    org: OrgId,
    batch: Vec<NewItem>,
) -> Answer<Vec<Enqueued>> {
    let mut batch = Batch::new(batch);
    let mut vain_rounds = 0;
    while !batch.open.is_empty() {
        let before = batch.open.len();
        let written = insert(on, org, &firsts(batch.open_items())).await?;
        batch.take_written(written);
        if !batch.open.is_empty() {
            let obstacles = obstacles(on, org, batch.open_items()).await?;
            batch.take_obstructed(&obstacles);
        }
        if batch.open.len() == before {
            vain_rounds += 1;
            if vain_rounds == VAIN_ROUNDS_MAX {
                let text = "the rows in the way of the batch vanish and come back";
                return Err(StoreError::Retry(text.to_owned()).into());
            }
        }
    }
    batch.into_fates()
}

/// The items of a batch that no earlier one shares its id or its key with.
fn firsts<'b>(batch: impl IntoIterator<Item = &'b NewItem>) -> Vec<&'b NewItem> {
    let mut named = Named::default();
    let items = batch.into_iter();
    items.filter(|new| named.are_new(new)).collect()
}

/// Ids and keys that a batch has named so far.
#[derive(Default)]
struct Named {
    ids: HashSet<ItemId>,
    keys: HashSet<IdempotencyKey>,
}

impl Named {
    /// Notes an item's id and key; whether nobody had named either.
    fn are_new(&mut self, new: &NewItem) -> bool {
        let id_is_new = self.ids.insert(new.id);
        let key_is_new = self.keys.insert(new.idempotency_key);
        id_is_new && key_is_new
    }

    fn include(&self, new: &NewItem) -> bool {
        self.ids.contains(&new.id) || self.keys.contains(&new.idempotency_key)
    }
}

/// What a statement wrote.
struct Written {
    at: Timestamp,
    ids: HashSet<ItemId>,
}

async fn insert(on: &impl Statements, org: OrgId, batch: &[&NewItem]) -> Answer<Written> {
    let uuids = |of: fn(&NewItem) -> Uuid| -> Vec<Uuid> { column(batch, of) };
    let texts = |of: fn(&NewItem) -> &str| -> Vec<&str> { column(batch, of) };
    let traceparents: Vec<Option<&str>> = column(batch, |new| new.traceparent.as_deref());
    let created: Vec<Moment> = column(batch, |new| Moment(new.created_at));
    let priorities: Vec<i16> = column(batch, |new| new.priority);
    let attempts: Vec<i32> = batch
        .iter()
        .map(|new| attempts_max(new))
        .collect::<Answer<_>>()?;
    let due_at: Vec<Option<Moment>> = column(batch, due_at);
    let delays: Vec<i64> = column(batch, delay);

    let row = on
        .query_opt(
            INSERT,
            &[
                &org.as_uuid(),
                &uuids(|new| new.id.as_uuid()),
                &created,
                &uuids(|new| new.created_by.as_uuid()),
                &texts(|new| new.kind.as_str()),
                &uuids(|new| new.target_id.as_uuid()),
                &uuids(|new| new.idempotency_key.as_uuid()),
                &uuids(|new| new.request_id.as_uuid()),
                &traceparents,
                &texts(|new| new.lane.as_str()),
                &priorities,
                &attempts,
                &texts(|new| new.payload.as_str()),
                &due_at,
                &delays,
            ],
        )
        .await?;
    let row = row.ok_or_else(|| Fault::damaged("an enqueue does not say what it wrote"))?;
    let mut columns = Columns::of(&row);
    let at = columns.timestamp()?;
    let ids: Vec<Uuid> = columns.plain()?;
    Ok(Written {
        at,
        ids: ids.into_iter().map(ItemId::new).collect(),
    })
}

fn column<'b, T>(batch: &[&'b NewItem], of: fn(&'b NewItem) -> T) -> Vec<T> {
    batch.iter().map(|new| of(new)).collect()
}

fn attempts_max(new: &NewItem) -> Answer<i32> {
    let attempts = new.max_attempts.max(1);
    i32::try_from(attempts).map_err(|_| {
        let text = format!(
            "item {} may be attempted {attempts} times; allow at most {}",
            new.id,
            i32::MAX
        );
        StoreError::Refused(text).into()
    })
}

fn due_at(new: &NewItem) -> Option<Moment> {
    match new.due {
        Due::At(instant) => Some(Moment(instant.min(CALENDAR_END))),
        Due::Now | Due::After(_) => None,
    }
}

fn delay(new: &NewItem) -> i64 {
    match new.due {
        Due::After(delay) => microseconds(delay),
        Due::Now | Due::At(_) => 0,
    }
}

/// What stands in the way of items.
#[derive(Default)]
struct Obstacles {
    by_id: HashMap<ItemId, WorkItem>,
    taken: HashSet<ItemId>,
    by_key: HashMap<IdempotencyKey, WorkItem>,
}

impl Obstacles {
    /// By id first, and then by key.
    fn fate(&self, new: &NewItem) -> Option<Enqueued> {
        if let Some(stored) = self.by_id.get(&new.id) {
            Some(Enqueued::IdExists(stored.clone()))
        } else if self.taken.contains(&new.id) {
            Some(Enqueued::IdTaken)
        } else {
            let stored = self.by_key.get(&new.idempotency_key)?;
            Some(Enqueued::KeyExists(stored.clone()))
        }
    }
}

async fn obstacles(
    on: &impl Statements,
    org: OrgId,
    open: impl Iterator<Item = &NewItem>,
) -> Answer<Obstacles> {
    let (ids, keys): (Vec<Uuid>, Vec<Uuid>) = open
        .map(|new| (new.id.as_uuid(), new.idempotency_key.as_uuid()))
        .unzip();
    let rows = on.query(COLLISIONS, &[&org.as_uuid(), &ids, &keys]).await?;
    let mut found = Obstacles::default();
    for stored in rows::items(&rows)? {
        found.by_key.insert(stored.idempotency_key, stored.clone());
        found.by_id.insert(stored.id, stored);
    }
    let others: Vec<Uuid> = ids
        .into_iter()
        .filter(|id| !found.by_id.contains_key(&ItemId::new(*id)))
        .collect();
    if !others.is_empty() {
        // Those that this transaction has written itself are the org's own.
        let rows = on.query_beyond(TAKEN, &[&org.as_uuid(), &others]).await?;
        for row in &rows {
            found.taken.insert(Columns::of(row).uuid()?.into());
        }
    }
    Ok(found)
}

/// A batch whose fates become known round by round.
struct Batch {
    fates: Vec<Option<Enqueued>>,
    /// Those without a fate, each with its place, in the batch's order.
    open: Vec<(usize, NewItem)>,
}

impl Batch {
    fn new(batch: Vec<NewItem>) -> Self {
        Self {
            fates: batch.iter().map(|_| None).collect(),
            open: batch.into_iter().enumerate().collect(),
        }
    }

    fn open_items(&self) -> impl Iterator<Item = &NewItem> {
        self.open.iter().map(|(_, new)| new)
    }

    /// Of several items with a written id, the first is the one that was written.
    fn take_written(&mut self, mut written: Written) {
        for (place, new) in std::mem::take(&mut self.open) {
            if written.ids.remove(&new.id) {
                let mut item = new.into_row(written.at);
                item.created_at = whole_microseconds(item.created_at);
                item.available_at = whole_microseconds(item.available_at.min(CALENDAR_END));
                self.fates[place] = Some(Enqueued::Inserted(item));
            } else {
                self.open.push((place, new));
            }
        }
    }

    /// An item that comes after an open one with the same id or key stays open: it has to see what
    /// becomes of that one.
    fn take_obstructed(&mut self, obstacles: &Obstacles) {
        let mut named = Named::default();
        for (place, new) in std::mem::take(&mut self.open) {
            match obstacles.fate(&new) {
                Some(fate) if !named.include(&new) => self.fates[place] = Some(fate),
                _ => {
                    named.are_new(&new);
                    self.open.push((place, new));
                }
            }
        }
    }

    fn into_fates(self) -> Answer<Vec<Enqueued>> {
        let fates: Option<Vec<Enqueued>> = self.fates.into_iter().collect();
        fates.ok_or_else(|| Fault::damaged("an item of the batch has no fate"))
    }
}
