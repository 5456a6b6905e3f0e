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

use leasehold_core::store::work::{ClaimRequest, Claimed};
use leasehold_core::{Kind, Lane, StoreError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::error::{Answer, Fault};
use crate::funnel::Statements;
use crate::rows::{Columns, microseconds};
use crate::store::PostgresStore;

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

/// Keeps other claims with a cap out of the lanes until the transaction ends. In the order of the locks'
/// numbers, so that two cannot wait for each other.
pub(super) const LOCK_LANES: &str = "
    select pg_advisory_xact_lock(k.key)
    from (
        select distinct hashtextextended('{schema} lane ' || lane, 0) as key
        from unnest($1::text[]) as lane
        order by key
    ) k";

/// So many more candidates than twice the limit are read at first: one other claim of the same size, and a
/// handful of small ones, may be at the same queues without costing a second round.
const CANDIDATES_MORE: usize = 16;

/// How many times as many candidates a round reads as the one before, which did not take enough of them.
const WIDENING: usize = 4;

/// No round reads more candidates of one queue: it bounds what a statement holds in memory, and the planner
/// knows by it how little that is. The statement repeats it.
const CANDIDATES_MAX: usize = 4_096;

/// How many rounds of a claim may take nothing although there was something: others were claiming all of
/// it. What is left then is found by the next claim.
const VAIN_ROUNDS_MAX: u32 = 4;

/// Answers what the token already holds, or else claims.
///
/// Without a cap each round is a transaction of its own: a crash between two leaves what the first took
/// under the token, which answers it when asked again. With a cap all rounds are one transaction.
pub(super) async fn claim(store: &PostgresStore, request: &ClaimRequest) -> Answer<Vec<Claimed>> {
    let mut connection = store.tenantless().connection().await?;
    if request.tenant_cap.is_none() {
        return take(&connection, request).await;
    }
    let lanes = names(&request.lanes, Lane::as_str);
    let transaction = connection.transaction().await?;
    transaction.query(LOCK_LANES, &[&lanes]).await?;
    let claimed = take(&transaction, request).await?;
    transaction.commit().await?;
    Ok(claimed)
}

/// Takes what is due, round by round, until the limit is reached or nothing more is to be had. Nearly always
/// that is one round.
async fn take(on: &impl Statements, request: &ClaimRequest) -> Answer<Vec<Claimed>> {
    let cap = request.tenant_cap.map(i64::from);
    let text = if cap.is_none() { CLAIM } else { CLAIM_CAPPED };
    let (token, worker) = (request.token.as_uuid(), request.worker.as_str());
    let lanes = names(&request.lanes, Lane::as_str);
    let kinds = names(&request.kinds, Kind::as_str);
    let lease = microseconds(request.lease);
    let limit = request.limit as usize;
    let mut candidates = (2 * limit)
        .saturating_add(CANDIDATES_MORE)
        .min(CANDIDATES_MAX);
    // Under a cap, a round that takes nothing has met only what others hold locked without one.
    let mut vain_rounds = if cap.is_none() { VAIN_ROUNDS_MAX } else { 1 };
    let mut claimed: Vec<Claimed> = Vec::new();
    while vain_rounds > 0 {
        let missing = number(limit - claimed.len());
        let before = number(claimed.len());
        let asked = number(candidates);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &token, &worker, &lanes, &kinds, &lease, &missing, &asked, &before,
        ];
        if let Some(cap) = &cap {
            params.push(cap);
        }
        let rows = on.query(text, &params).await.map_err(refused)?;
        let taken = Taken::read(&rows)?;
        vain_rounds -= u32::from(taken.items.is_empty());
        claimed.extend(taken.items);
        if taken.candidates < asked || claimed.len() >= limit {
            break;
        }
        candidates = (candidates * WIDENING).min(CANDIDATES_MAX);
    }
    Ok(claimed)
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

/// What one round answers.
struct Taken {
    /// How many candidates there were, taken or not.
    candidates: i64,
    items: Vec<Claimed>,
}

impl Taken {
    fn read(rows: &[Row]) -> Answer<Self> {
        let mut taken = Self {
            candidates: 0,
            items: Vec::with_capacity(rows.len()),
        };
        for row in rows {
            let mut columns = Columns::of(row);
            taken.candidates = columns.plain()?;
            if columns.is_null()? {
                break;
            }
            let (org_id, item) = columns.item()?;
            taken.items.push(Claimed { org_id, item });
        }
        Ok(taken)
    }
}
