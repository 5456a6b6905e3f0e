//! Which items a claim takes.
//!
//! The index `ready_order` orders the waiting items of one (lane, kind, priority). A claim looks where each
//! queue begins, merges the due items of the lowest priority, and goes on to the next one only if that was
//! not enough. So it reads about what it takes: items that are not yet due, or of kinds it did not ask for,
//! cost it nothing however many there are. Only what other claims have locked, and a tenant at its cap, is
//! read past.
//!
//! One statement chooses, takes and answers. It reads somewhat more candidates than it is to take, since
//! other claims may be at the first ones; if that was not enough, it is repeated for the rest.
//!
//! Where claims have left much behind them, they begin at the [`floors`] of their queues.

mod floors;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use leasehold_core::store::work::{ClaimRequest, Claimed};
use leasehold_core::{
    Kind, Lane, OrgId, ShortText, Status, StoreError, UserId, WorkItem, WorkerId,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::funnel::Statements;
use crate::rows::{self, Columns, JsonText, Moment, item_columns, microseconds};
use crate::store::PostgresStore;
pub(crate) use floors::Floors;
use floors::{Key, Queue};

pub(super) const CLAIM: &str = concat!(
    include_str!("sql/claim_queues.sql"),
    include_str!("sql/claim_levels.sql"),
    include_str!("sql/claim_take.sql"),
    include_str!("sql/claim_answer.sql"),
);

pub(super) const CLAIM_CAPPED: &str = concat!(
    include_str!("sql/claim_queues_capped.sql"),
    include_str!("sql/claim_levels.sql"),
    include_str!("sql/claim_take_capped.sql"),
    include_str!("sql/claim_answer.sql"),
);

/// What a token holds.
pub(super) const HELD: &str = concat!(
    "select ",
    item_columns!(),
    " from {schema}.work_items
      where id = any (array(select id from {schema}.claims where token = $1))"
);

/// Keeps other claims with a cap out of the lanes until the transaction ends. In the order of the locks'
/// numbers, so that two cannot wait for each other.
pub(super) const LOCK_LANES: &str = "
    select pg_advisory_xact_lock(k.key)
    from (
        select distinct hashtextextended('{schema} lane ' || lane, 0) as key
        from unnest($1::text[]) as lane
        order by key
    ) k";

/// So many more candidates than the limit are read at first: a handful of other claims of a few items may be
/// at the same queues without costing a second round.
const CANDIDATES_MORE: usize = 32;

/// How many times as many candidates a round reads as the one before, which did not take enough of them.
const WIDENING: usize = 4;

/// No round reads more candidates of one queue: it bounds what a statement holds in memory, and the planner
/// knows by it how little that is. The statement repeats it.
const CANDIDATES_MAX: usize = 4_096;

/// Where a claim's first round begins. A statement looks at 64 priorities at most, so that nobody who spreads
/// items over thousands of them makes one that the server takes long for.
const PRIORITY_BELOW_ALL: i32 = -32_769;

/// How many rounds of a claim may take nothing although there was something: others were claiming all of
/// it. What is left then is found by the next claim.
const VAIN_ROUNDS_MAX: u32 = 4;

/// Answers what the token already holds, or else claims.
///
/// Without a cap each round is a transaction of its own: a crash between two leaves what the first took
/// under the token, which answers it when asked again. With a cap all rounds are one transaction.
///
/// Of one worker's claims without a cap, one is with the server at a time: two would be at the same rows, and
/// the second would read on past what the first one takes. But it goes out before the first one's rows are
/// read, so that the server does not wait for that.
pub(super) async fn claim(store: &PostgresStore, request: &ClaimRequest) -> Answer<Vec<Claimed>> {
    let (look, taken) = if request.tenant_cap.is_none() {
        let turns = store.claim_turns.of(&request.worker);
        let turn = turns.lock().await;
        let look = Look::begin(store, request);
        let connection = store.tenantless().connection().await?;
        let taken = take(&connection, request, &look).await?;
        drop((connection, turn));
        tokio::task::yield_now().await;
        (look, taken)
    } else {
        let look = Look::begin(store, request);
        let mut connection = store.tenantless().connection().await?;
        let lanes = names(&request.lanes, Lane::as_str);
        let transaction = connection.transaction().await?;
        transaction.query(LOCK_LANES, &[&lanes]).await?;
        let taken = take(&transaction, request, &look).await?;
        transaction.commit().await?;
        (look, taken)
    };
    let mut claimed = match taken {
        Taken::Before(rows) => read_held(&rows)?,
        Taken::Now(rounds) => read_rounds(&rounds, request)?,
    };
    sort(&mut claimed);
    look.end(store, &claimed);
    Ok(claimed)
}

/// What a claim came to, as the server answered it: read once nobody waits for that.
enum Taken {
    /// The token held this already, and took nothing.
    Before(Vec<Row>),
    /// The rounds that took something.
    Now(Vec<Vec<Row>>),
}

/// Takes what is due, round by round, until the limit is reached or nothing more is to be had. Nearly always
/// that is one round.
async fn take(on: &impl Statements, request: &ClaimRequest, look: &Look) -> Answer<Taken> {
    let cap = request.tenant_cap.map(i64::from);
    let text = if cap.is_none() { CLAIM } else { CLAIM_CAPPED };
    let (token, worker) = (request.token.as_uuid(), request.worker.as_str());
    let lanes = names(&request.lanes, Lane::as_str);
    let kinds = names(&request.kinds, Kind::as_str);
    let lease = microseconds(request.lease);
    let limit = request.limit as usize;
    let Floored(floor_lanes, floor_kinds, priorities, times, ids) = look.floors();
    let mut candidates = limit.saturating_add(CANDIDATES_MORE).min(CANDIDATES_MAX);
    // Under a cap, a round that takes nothing has met only what others hold locked without one.
    let mut vain_rounds = if cap.is_none() { VAIN_ROUNDS_MAX } else { 1 };
    let mut above = PRIORITY_BELOW_ALL;
    let mut rounds: Vec<Vec<Row>> = Vec::new();
    let mut taken = 0;
    while vain_rounds > 0 {
        let missing = number(limit - taken);
        let before = number(taken);
        let asked = number(candidates);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &token,
            &worker,
            &lanes,
            &kinds,
            &lease,
            &missing,
            &asked,
            &before,
            &floor_lanes,
            &floor_kinds,
            &priorities,
            &times,
            &ids,
            &above,
        ];
        if let Some(cap) = &cap {
            params.push(cap);
        }
        let rows = on.query(text, &params).await.map_err(refused)?;
        let head = rows.first().map(Head::read).transpose()?;
        let head = head.ok_or_else(|| Fault::damaged("a claim without an answer"))?;
        if head.holds_already {
            return Ok(Taken::Before(on.query(HELD, &[&token]).await?));
        }
        let took_none = head.is_empty;
        if !took_none {
            taken += rows.len();
            rounds.push(rows);
        }
        if taken >= limit {
            break;
        }
        if head.candidates < asked {
            // All of these priorities was tried.
            let Some(last) = head.last_priority else {
                break;
            };
            above = last;
            continue;
        }
        vain_rounds -= u32::from(took_none);
        candidates = (candidates * WIDENING).min(CANDIDATES_MAX);
    }
    Ok(Taken::Now(rounds))
}

/// What a token held already.
fn read_held(rows: &[Row]) -> Answer<Vec<Claimed>> {
    let items = rows.iter().map(rows::item);
    items
        .map(|read| read.map(|(org_id, item)| Claimed { org_id, item }))
        .collect()
}

/// Puts items into the order in which they are claimed.
fn sort(claimed: &mut [Claimed]) {
    claimed.sort_unstable_by_key(|claimed| {
        let item = &claimed.item;
        (item.priority, item.available_at, item.id)
    });
}

/// One claim's way through its queues.
struct Look {
    floors: Vec<(Queue, Key)>,
    /// Under a cap there are no floors: what is passed over for its org's sake would be left below them.
    is_noted: bool,
    began: Instant,
}

/// Floors as parameters: lanes, kinds, priorities, times and ids.
struct Floored<'c>(Vec<&'c str>, Vec<&'c str>, Vec<i16>, Vec<Moment>, Vec<Uuid>);

impl Look {
    fn begin(store: &PostgresStore, request: &ClaimRequest) -> Self {
        let began = Floors::now();
        let is_noted = request.tenant_cap.is_none();
        let mut floors = Vec::new();
        if is_noted {
            let known = store.floors.lock().unwrap_or_else(PoisonError::into_inner);
            let asked = known.from(began).into_iter().filter(|(queue, _)| {
                request.lanes.contains(&queue.lane) && request.kinds.contains(&queue.kind)
            });
            floors.extend(asked.map(|(queue, key)| (queue.clone(), key)));
        }
        Self {
            floors,
            is_noted,
            began,
        }
    }

    fn floors(&self) -> Floored<'_> {
        let column = self.floors.iter();
        Floored(
            column
                .clone()
                .map(|(queue, _)| queue.lane.as_str())
                .collect(),
            column
                .clone()
                .map(|(queue, _)| queue.kind.as_str())
                .collect(),
            column.clone().map(|(queue, _)| queue.priority).collect(),
            column.clone().map(|(_, (at, _))| Moment(*at)).collect(),
            column.map(|(_, (_, id))| *id).collect(),
        )
    }

    /// Notes how far the claim came.
    fn end(self, store: &PostgresStore, claimed: &[Claimed]) {
        if !self.is_noted {
            return;
        }
        // In each queue the last is the highest: the items are sorted.
        let mut taken: Vec<(Queue, Key, u64)> = Vec::new();
        for Claimed { item, .. } in claimed {
            let key = (item.available_at, item.id.as_uuid());
            let known = taken.iter_mut().rev().find(|(queue, ..)| {
                queue.priority == item.priority
                    && queue.kind == item.kind
                    && queue.lane == item.lane
            });
            if let Some((_, last, items)) = known {
                *last = key;
                *items += 1;
            } else {
                let queue = Queue {
                    lane: item.lane.clone(),
                    kind: item.kind.clone(),
                    priority: item.priority,
                };
                taken.push((queue, key, 1));
            }
        }
        let now = Floors::now();
        let lasted: Duration = now - self.began;
        let mut floors = store.floors.lock().unwrap_or_else(PoisonError::into_inner);
        floors.note(taken, self.floors.is_empty(), lasted, now);
    }
}

/// Whose turn it is among the claims of each worker that shares a store.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<WorkerId, Weak<Turn>>>);

/// Held while a claim is with the server.
type Turn = tokio::sync::Mutex<()>;

impl Turns {
    fn of(&self, worker: &WorkerId) -> Arc<Turn> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = known.get(worker).and_then(Weak::upgrade) {
            return turn;
        }
        known.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        known.insert(worker.clone(), Arc::downgrade(&turn));
        turn
    }
}

/// The only thing that can stand there twice is the token of a claim that was under way when this one began:
/// it has ended by now, and when asked again this one answers what it took.
fn refused(fault: Fault) -> Fault {
    if fault.is_duplicate() {
        StoreError::Retry("another claim by this token has just ended".to_owned()).into()
    } else {
        fault
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn names<T>(names: &[T], text: fn(&T) -> &str) -> Vec<&str> {
    names.iter().map(text).collect()
}

/// What every row of a round begins with.
struct Head {
    /// Whether the token held something before, and so takes nothing.
    holds_already: bool,
    /// How many candidates there were, taken or not.
    candidates: i64,
    /// The last of the priorities, if so many were looked at that a statement goes no further.
    last_priority: Option<i32>,
    lease: Lease,
    /// Nothing was taken: the one row has no item.
    is_empty: bool,
}

impl Head {
    fn read(row: &Row) -> Answer<Self> {
        Self::of(&mut Columns::of(row))
    }

    fn of(columns: &mut Columns<'_>) -> Answer<Self> {
        Ok(Self {
            holds_already: columns.plain()?,
            candidates: columns.plain()?,
            last_priority: columns.plain()?,
            lease: Lease {
                begins_at: columns.timestamp()?,
                expires_at: columns.timestamp()?,
            },
            is_empty: columns.is_null()?,
        })
    }
}

fn read_rounds(rounds: &[Vec<Row>], request: &ClaimRequest) -> Answer<Vec<Claimed>> {
    let mut claimed = Vec::with_capacity(rounds.iter().map(Vec::len).sum());
    for row in rounds.iter().flatten() {
        let mut columns = Columns::of(row);
        let lease = Head::of(&mut columns)?.lease;
        let (org_id, item) = read_claimed(&mut columns, request, lease)?;
        claimed.push(Claimed { org_id, item });
    }
    Ok(claimed)
}

/// What all items of a round have in common, by the store's clock.
#[derive(Clone, Copy)]
struct Lease {
    begins_at: Timestamp,
    expires_at: Timestamp,
}

fn read_claimed(
    columns: &mut Columns<'_>,
    request: &ClaimRequest,
    lease: Lease,
) -> Answer<(OrgId, WorkItem)> {
    let id = columns.uuid()?.into();
    let org_id = columns.uuid()?.into();
    let item = WorkItem {
        id,
        created_at: columns.timestamp()?,
        updated_at: lease.begins_at,
        created_by: columns.uuid()?.into(),
        updated_by: UserId::NIL,
        kind: columns.one_of(&request.kinds, Kind::parse)?,
        target_id: columns.uuid()?.into(),
        idempotency_key: columns.uuid()?.into(),
        request_id: columns.uuid()?.into(),
        traceparent: columns.text_or_null()?.map(str::to_owned),
        lane: columns.one_of(&request.lanes, Lane::parse)?,
        priority: columns.plain()?,
        status: Status::Claimed,
        available_at: columns.timestamp()?,
        claimed_by: Some(request.worker.clone()),
        claim_token: Some(request.token),
        claim_seq: columns.plain()?,
        lease_expires_at: Some(lease.expires_at),
        attempts: columns.count()?,
        max_attempts: columns.count()?,
        worker_losses: columns.count()?,
        failure_code: None,
        cancel_requested_at: None,
        audited_at: None,
        progress: None,
        last_error: columns.text_or_null()?.map(ShortText::new),
        errors: rows::errors(columns.plain::<Option<JsonText>>()?)?,
        result: None,
        payload: columns.json()?,
    };
    Ok((org_id, item))
}
