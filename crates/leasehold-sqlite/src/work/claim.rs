//! Which items a claim takes.
//!
//! The queue's index orders the due items of one (lane, kind, priority). A claim looks up which
//! priorities each lane and kind has, lowest first, and merges the due items of those that share the
//! lowest, page by page. So it reads about what it takes: items that are not yet due, or of kinds it
//! did not ask for, cost it nothing however many there are. Only a tenant at its cap is read past, in
//! the index alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use leasehold_core::store::work::{ClaimRequest, Claimed};
use leasehold_core::time::later;
use leasehold_core::{ItemId, Kind, Lane, OrgId, Status, UserId, WorkItem, rules};
use rusqlite::{Row, params};
use uuid::Uuid;

use super::lanes;
use crate::error::Answer;
use crate::rows::{self, Columns, bytes, item_columns, whole_microseconds};
use crate::writer::Unit;

pub(super) const DUE: &str = include_str!("sql/claim_due.sql");
pub(super) const TAKE: &str = include_str!("sql/claim_take.sql");

pub(super) const HELD: &str = concat!(
    "SELECT ",
    item_columns!(),
    " FROM work_items INDEXED BY work_items_claimed
      WHERE status = 'claimed' AND claim_token = ?1
      ORDER BY priority, available_at, id"
);

pub(super) const NEXT_PRIORITY: &str = "
    SELECT priority FROM work_items INDEXED BY work_items_queue
    WHERE status = 'queued' AND lane = ?1 AND kind = ?2 AND priority > ?3
    ORDER BY priority LIMIT 1";

/// As [`DUE`], past the orgs listed as JSON in `?8`.
pub(super) const DUE_EXCEPT: &str = concat!(
    "SELECT rowid, ",
    item_columns!(),
    " FROM work_items INDEXED BY work_items_queue
      WHERE status = 'queued' AND lane = ?1 AND kind = ?2 AND priority = ?3
          AND (available_at, id) > (?4, ?5) AND available_at <= ?6
          AND org_id NOT IN (SELECT unhex(value) FROM json_each(?8))
      ORDER BY available_at, id
      LIMIT ?7"
);

pub(super) const CLAIMS: &str = "
    SELECT lane, org_id, count(*) FROM work_items INDEXED BY work_items_claimed
    WHERE status = 'claimed' GROUP BY lane, org_id";

/// The least that a merge reads of one queue at a time: reading on costs a look-up in the index.
const PAGE_MIN: usize = 16;

/// Answers what the token already holds, or else claims.
pub(super) fn claim(unit: &mut Unit<'_>, request: &ClaimRequest) -> Answer<Vec<Claimed>> {
    let held = held(unit, request)?;
    if !held.is_empty() {
        return Ok(held);
    }
    let chosen = choose(unit, request)?;
    let mut take = unit.db.prepare_cached(TAKE)?;
    let token = bytes(request.token.as_uuid());
    let lease_expires_at = whole_microseconds(later(unit.now, request.lease));
    let mut claimed = Vec::with_capacity(chosen.len());
    for Due {
        rowid,
        org_id,
        item,
    } in chosen
    {
        take.execute(params![
            rowid,
            token,
            request.worker.as_str(),
            lease_expires_at.as_microsecond(),
            unit.now.as_microsecond(),
        ])?;
        let item = WorkItem {
            status: Status::Claimed,
            claim_token: Some(request.token),
            claimed_by: Some(request.worker.clone()),
            claim_seq: item.claim_seq.saturating_add(1),
            lease_expires_at: Some(lease_expires_at),
            attempts: rules::attempts_after_claim(item.attempts),
            updated_at: unit.now,
            updated_by: UserId::NIL,
            progress: None,
            ..item
        };
        claimed.push(Claimed { org_id, item });
    }
    Ok(claimed)
}

fn held(unit: &Unit<'_>, request: &ClaimRequest) -> Answer<Vec<Claimed>> {
    let mut statement = unit.db.prepare_cached(HELD)?;
    let items = rows::items(&mut statement, [bytes(request.token.as_uuid())])?;
    Ok(items
        .into_iter()
        .map(|(org_id, item)| Claimed { org_id, item })
        .collect())
}

/// What to take, in order.
fn choose(unit: &Unit<'_>, request: &ClaimRequest) -> Answer<Vec<Due>> {
    let limit = request.limit as usize;
    let paused: BTreeSet<Lane> = lanes::paused(unit.db)?
        .into_iter()
        .map(|paused| paused.lane)
        .collect();
    let lanes: BTreeSet<&Lane> = request
        .lanes
        .iter()
        .filter(|lane| !paused.contains(*lane))
        .collect();
    let kinds: BTreeSet<&Kind> = request.kinds.iter().collect();
    let mut queues = Vec::new();
    for lane in lanes {
        for kind in &kinds {
            let priority = next_priority(unit, lane, kind, i64::MIN)?;
            queues.push(Queue {
                lane,
                kind,
                priority,
            });
        }
    }
    let mut room = Room::of(unit, request.tenant_cap)?;
    let mut chosen = Vec::new();
    while chosen.len() < limit {
        let Some(lowest) = queues.iter().filter_map(|queue| queue.priority).min() else {
            break;
        };
        let at_lowest = queues.iter().filter(|queue| queue.priority == Some(lowest));
        let mut streams: Vec<Stream<'_>> =
            at_lowest.map(|queue| Stream::of(queue, lowest)).collect();
        merge(unit, &mut streams, &mut room, limit, &mut chosen)?;
        if chosen.len() < limit {
            for queue in queues
                .iter_mut()
                .filter(|queue| queue.priority == Some(lowest))
            {
                queue.priority = next_priority(unit, queue.lane, queue.kind, lowest)?;
            }
        }
    }
    Ok(chosen)
}

/// The queued items of one lane and kind; `priority` is the lowest not yet looked at.
struct Queue<'r> {
    lane: &'r Lane,
    kind: &'r Kind,
    priority: Option<i64>,
}

fn next_priority(unit: &Unit<'_>, lane: &Lane, kind: &Kind, above: i64) -> Answer<Option<i64>> {
    let mut statement = unit.db.prepare_cached(NEXT_PRIORITY)?;
    rows::first(
        &mut statement,
        params![lane.as_str(), kind.as_str(), above],
        |row| Ok(row.get(0)?),
    )
}

/// Takes from the streams, earliest first, until `limit` are chosen or nothing is due.
fn merge(
    unit: &Unit<'_>,
    streams: &mut [Stream<'_>],
    room: &mut Room,
    limit: usize,
    chosen: &mut Vec<Due>,
) -> Answer<()> {
    let share = streams.len().max(1);
    while chosen.len() < limit {
        let missing = limit - chosen.len();
        // Of several streams each is likely to give its share, and one may give it all.
        let page = if share == 1 {
            missing
        } else {
            (2 * missing / share).max(PAGE_MIN)
        };
        for stream in &mut *streams {
            stream.fill(unit, room, page)?;
        }
        let heads = streams.iter_mut().filter(|stream| stream.head().is_some());
        let Some(first) = heads.min_by_key(|stream| stream.head().map(Due::rank)) else {
            return Ok(());
        };
        if let Some(due) = first.page.pop_front()
            && room.take(first.lane, due.org_id)
        {
            chosen.push(due);
        }
    }
    Ok(())
}

/// The due items of one (lane, kind, priority), a page at a time.
struct Stream<'r> {
    lane: &'r Lane,
    kind: &'r Kind,
    priority: i64,
    page: VecDeque<Due>,
    /// Where the next page begins: after this.
    after: (i64, Vec<u8>),
    is_drained: bool,
}

/// An item that is due.
struct Due {
    rowid: i64,
    org_id: OrgId,
    item: WorkItem,
}

impl Due {
    const fn rank(&self) -> (Timestamp, ItemId) {
        (self.item.available_at, self.item.id)
    }
}

impl<'r> Stream<'r> {
    const fn of(queue: &Queue<'r>, priority: i64) -> Self {
        Self {
            lane: queue.lane,
            kind: queue.kind,
            priority,
            page: VecDeque::new(),
            after: (i64::MIN, Vec::new()),
            is_drained: false,
        }
    }

    fn head(&self) -> Option<&Due> {
        self.page.front()
    }

    fn fill(&mut self, unit: &Unit<'_>, room: &Room, page: usize) -> Answer<()> {
        if !self.page.is_empty() || self.is_drained {
            return Ok(());
        }
        let full = room.full_orgs(self.lane);
        let mut statement =
            unit.db
                .prepare_cached(if full.is_some() { DUE_EXCEPT } else { DUE })?;
        let (lane, kind) = (self.lane.as_str(), self.kind.as_str());
        let (available_at, id) = &self.after;
        let now = unit.now.as_microsecond();
        let limit = i64::try_from(page).unwrap_or(i64::MAX);
        let found = match full {
            None => {
                let params = params![lane, kind, self.priority, available_at, id, now, limit];
                rows::collect(&mut statement, params, due)?
            }
            Some(full) => {
                let params = params![
                    lane,
                    kind,
                    self.priority,
                    available_at,
                    id,
                    now,
                    limit,
                    full
                ];
                rows::collect(&mut statement, params, due)?
            }
        };
        self.is_drained = found.len() < page;
        if let Some(last) = found.last() {
            let Due { item, .. } = last;
            self.after = (
                item.available_at.as_microsecond(),
                bytes(item.id.as_uuid()).to_vec(),
            );
        }
        self.page = found.into();
        Ok(())
    }
}

fn due(row: &Row<'_>) -> Answer<Due> {
    let mut columns = Columns::of(row);
    let rowid = columns.plain()?;
    let (org_id, item) = columns.item()?;
    Ok(Due {
        rowid,
        org_id,
        item,
    })
}

/// How many more claims each org may have in each lane.
struct Room {
    cap: Option<u32>,
    claims: BTreeMap<Lane, BTreeMap<OrgId, u32>>,
}

impl Room {
    fn of(unit: &Unit<'_>, cap: Option<u32>) -> Answer<Self> {
        let mut room = Self {
            cap,
            claims: BTreeMap::new(),
        };
        if cap.is_some() {
            let mut statement = unit.db.prepare_cached(CLAIMS)?;
            let counts = rows::collect(&mut statement, (), |row| {
                let mut columns = Columns::of(row);
                let lane = columns.named(Lane::parse)?;
                Ok((lane, OrgId::new(columns.uuid()?), columns.count()?))
            })?;
            for (lane, org, claims) in counts {
                room.claims.entry(lane).or_default().insert(org, claims);
            }
        }
        Ok(room)
    }

    /// Counts a claim, unless the org has its fill of the lane.
    fn take(&mut self, lane: &Lane, org: OrgId) -> bool {
        let Some(cap) = self.cap else {
            return true;
        };
        let lane = match self.claims.get_mut(lane) {
            Some(known) => known,
            None => self.claims.entry(lane.clone()).or_default(),
        };
        let claims = lane.entry(org).or_default();
        let has_room = *claims < cap;
        *claims += u32::from(has_room);
        has_room
    }

    /// The orgs that have their fill of the lane, as a JSON list of hexadecimal ids.
    fn full_orgs(&self, lane: &Lane) -> Option<String> {
        let cap = self.cap?;
        let orgs = self.claims.get(lane)?.iter();
        let full: Vec<String> = orgs
            .filter(|(_, claims)| **claims >= cap)
            .map(|(org, _)| format!("\"{}\"", Uuid::simple(org.as_uuid())))
            .collect();
        (!full.is_empty()).then(|| format!("[{}]", full.join(",")))
    }
}
