//! What a holder does with its claim: renew it or end it.
//!
//! One statement writes a whole batch, whatever its transitions. It locks the claims in the order of their
//! items, judges them as they then are, and answers for those that it wrote; so two batches never wait for
//! each other, and of two that would end one claim the second finds none. A crash leaves all of a
//! statement or nothing of it, and a settle that landed is told by its token when it is asked again.

use std::collections::BTreeSet;

use leasehold_core::item::ERRORS_MAX;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Hold, Renewal, Renewed, Settled, Settlement};
use leasehold_core::{ClaimToken, FailureCode, ItemId, JsonObject, Lane, OrgId, ShortText};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::funnel::{Access, Statements as _};
use crate::rows::{Columns, microseconds};
use crate::store::PostgresStore;

pub(super) const RENEW: &str = include_str!("sql/renew.sql");
pub(super) const COMPLETE: &str = include_str!("sql/complete.sql");
pub(super) const SETTLE: &str = include_str!("sql/settle.sql");
pub(super) const SETTLED_BY: &str = include_str!("sql/settled_by.sql");
pub(super) const FAIL_ORPHANED: &str = include_str!("sql/fail_orphaned.sql");

/// Renews leases, each part of the batch in a transaction of its own.
pub(super) async fn renew(store: &PostgresStore, batch: &[Renewal]) -> Answer<Vec<Renewed>> {
    let mut answers = vec![Renewed::Lost; batch.len()];
    for part in parts(batch, |renewal| renewal.hold) {
        let part = Part::new(part, |renewal: &Renewal| renewal.hold);
        let leases: Vec<i64> = part.each(|renewal| microseconds(renewal.lease));
        let percents: Vec<Option<i16>> = part.each(|renewal| {
            let progress = renewal.progress.as_ref();
            progress.map(|progress| progress.percent.into())
        });
        let notes: Vec<Option<&str>> = part.each(|renewal| {
            let progress = renewal.progress.as_ref();
            progress.map(|progress| progress.note.as_str())
        });
        let params = part.params(&[&leases, &percents, &notes]);
        for row in part.access(store).query(RENEW, &params).await? {
            let mut columns = Columns::of(&row);
            let answer = part.answer(&mut answers, columns.plain()?)?;
            let is_cancel_requested: bool = columns.plain()?;
            *answer = if is_cancel_requested {
                Renewed::CancelRequested
            } else {
                Renewed::Kept
            };
        }
    }
    Ok(answers)
}

/// Ends claims, each part of the batch in a transaction of its own, and hints the lanes of what can be
/// claimed again at once.
pub(super) async fn settle(store: &PostgresStore, batch: &[Settlement]) -> Answer<Vec<Settled>> {
    let mut answers = vec![None; batch.len()];
    for part in parts(batch, hold_of) {
        let lanes = settle_part(store, part, &mut answers).await?;
        store.hint(&lanes);
    }
    refuse(store, batch, &mut answers).await?;
    Ok(answers
        .into_iter()
        .map(|answer| answer.unwrap_or(Settled::Conflict))
        .collect())
}

/// Ends a part of a batch, and answers the lanes of what can be claimed again at once. Completions go apart,
/// so that they are spared what the others need.
async fn settle_part(
    store: &PostgresStore,
    part: Vec<(usize, &Settlement)>,
    answers: &mut [Option<Settled>],
) -> Answer<BTreeSet<Lane>> {
    let (completions, others): (Vec<_>, Vec<_>) = part
        .into_iter()
        .partition(|(_, entry)| matches!(entry.transition, Transition::Complete { .. }));
    if !completions.is_empty() {
        complete(store, &Part::new(completions, hold_of), answers).await?;
    }
    if others.is_empty() {
        return Ok(BTreeSet::new());
    }
    settle_others(store, &Part::new(others, hold_of), answers).await
}

fn hold_of(settlement: &Settlement) -> Hold {
    settlement.hold
}

async fn complete(
    store: &PostgresStore,
    part: &Part<'_, Settlement>,
    answers: &mut [Option<Settled>],
) -> Answer<()> {
    let results: Vec<Option<&str>> =
        part.each(|settlement| Move::of(&settlement.transition).result);
    let params = part.params(&[&results]);
    let completed = part.access(store).query_opt(COMPLETE, &params).await?;
    let entries: Vec<i64> = match completed {
        Some(row) => Columns::of(&row).plain()?,
        None => Vec::new(),
    };
    for entry in entries {
        *part.answer(answers, entry)? = Some(Settled::Settled(Ended::Done));
    }
    Ok(())
}

async fn settle_others(
    store: &PostgresStore,
    part: &Part<'_, Settlement>,
    answers: &mut [Option<Settled>],
) -> Answer<BTreeSet<Lane>> {
    let moves: Vec<Move<'_>> = part.each(|settlement| Move::of(&settlement.transition));
    let names: Vec<&str> = part.each(|settlement| settlement.transition.name());
    let delays: Vec<i64> = moves.iter().map(|to| to.delay).collect();
    let codes: Vec<Option<&str>> = moves.iter().map(|to| to.code).collect();
    let notes: Vec<Option<&str>> = moves
        .iter()
        .map(|to| to.note.as_ref().map(ShortText::as_str))
        .collect();
    let results: Vec<Option<&str>> = moves.iter().map(|to| to.result).collect();
    let errors_max = i64::try_from(ERRORS_MAX).unwrap_or(i64::MAX);
    let params = part.params(&[&names, &delays, &codes, &notes, &results, &errors_max]);
    let mut lanes = BTreeSet::new();
    for row in part.access(store).query(SETTLE, &params).await? {
        let mut columns = Columns::of(&row);
        let answer = part.answer(answers, columns.plain()?)?;
        *answer = Some(Settled::Settled(fate(columns.text()?)?));
        if let Some(lane) = columns.text_or_null()? {
            lanes.insert(Lane::parse(lane).map_err(Fault::damaged)?);
        }
    }
    Ok(lanes)
}

/// What the statement is told about a transition beside its name.
#[derive(Default)]
struct Move<'b> {
    delay: i64,
    code: Option<&'b str>,
    /// What becomes the item's `last_error`.
    note: Option<ShortText>,
    result: Option<&'b str>,
}

impl<'b> Move<'b> {
    fn of(transition: &'b Transition) -> Self {
        match transition {
            Transition::Complete { result } => Self {
                result: result.as_ref().map(JsonObject::as_str),
                ..Self::default()
            },
            Transition::Retry { failure, delay } => Self {
                delay: microseconds(*delay),
                code: Some(failure.code.as_str()),
                note: Some(failure.to_text()),
                ..Self::default()
            },
            Transition::Bury { failure } => Self {
                code: Some(failure.code.as_str()),
                note: Some(failure.to_text()),
                ..Self::default()
            },
            Transition::Park {
                reason: note,
                delay,
            }
            | Transition::Release { note, delay } => Self {
                delay: microseconds(*delay),
                note: Some(note.clone()),
                ..Self::default()
            },
        }
    }
}

/// Reads the statement's word for what became of an item.
fn fate(word: &str) -> Answer<Ended> {
    Ok(match word {
        "done" => Ended::Done,
        "queued" => Ended::Queued,
        "dead" => Ended::DeadLetter,
        "cancelled" => Ended::Cancelled,
        _ => return Err(Fault::damaged(format_args!("{word:?} is no fate"))),
    })
}

/// Answers for what was not written: whether this very token had settled the item, or never will. Whoever
/// took the item away has committed by now, so one look tells.
async fn refuse(
    store: &PostgresStore,
    batch: &[Settlement],
    answers: &mut [Option<Settled>],
) -> Answer<()> {
    let refused: Vec<usize> = (0..)
        .zip(&*answers)
        .filter(|(_, answer)| answer.is_none())
        .map(|(place, _)| place)
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    let entries = refused
        .into_iter()
        .filter_map(|place| Some((place, batch.get(place)?)))
        .collect();
    let part = Part::new(entries, hold_of);
    let params = part.params(&[]);
    for row in part.access(store).query(SETTLED_BY, &params).await? {
        let answer = part.answer(answers, Columns::of(&row).plain()?)?;
        *answer = Some(Settled::AlreadySettled);
    }
    Ok(())
}

/// Fails a claimed item whose org is gone, in one statement.
pub(super) async fn fail_orphaned(
    store: &PostgresStore,
    item: ItemId,
    token: ClaimToken,
) -> Answer<bool> {
    let params: [&(dyn ToSql + Sync); 3] =
        [&item.as_uuid(), &token.as_uuid(), &FailureCode::ORPHANED];
    let failed = store.tenantless().execute(FAIL_ORPHANED, &params).await?;
    Ok(failed == 1)
}

/// Splits a batch into parts that name no item twice, each in the order of its items; of two entries about
/// one item the earlier is in the earlier part. Nearly always that is one part.
fn parts<E>(batch: &[E], hold: fn(&E) -> Hold) -> Vec<Vec<(usize, &E)>> {
    let mut rest: Vec<(usize, &E)> = batch.iter().enumerate().collect();
    rest.sort_by_key(|(_, entry)| hold(entry).item_id);
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let mut entries: Vec<(usize, &E)> = Vec::with_capacity(rest.len());
        let mut again = Vec::new();
        for (place, entry) in rest {
            let item = hold(entry).item_id;
            if entries
                .last()
                .is_some_and(|(_, last)| hold(last).item_id == item)
            {
                again.push((place, entry));
            } else {
                entries.push((place, entry));
            }
        }
        parts.push(entries);
        rest = again;
    }
    parts
}

/// Entries of a batch with their places in it, and their holds as the first three parameters.
struct Part<'b, E> {
    entries: Vec<(usize, &'b E)>,
    items: Vec<Uuid>,
    orgs: Vec<Uuid>,
    tokens: Vec<Uuid>,
}

impl<'b, E> Part<'b, E> {
    fn new(entries: Vec<(usize, &'b E)>, hold: fn(&E) -> Hold) -> Self {
        let holds = || entries.iter().map(|(_, entry)| hold(entry));
        Self {
            items: holds().map(|hold| hold.item_id.as_uuid()).collect(),
            orgs: holds().map(|hold| hold.org_id.as_uuid()).collect(),
            tokens: holds().map(|hold| hold.token.as_uuid()).collect(),
            entries,
        }
    }

    /// Reaches the orgs of the holds.
    fn access<'s>(&self, store: &'s PostgresStore) -> Access<'s> {
        store.of_orgs(self.orgs.iter().map(|org| OrgId::new(*org)))
    }

    fn each<T>(&self, value: impl Fn(&'b E) -> T) -> Vec<T> {
        self.entries.iter().map(|(_, entry)| value(entry)).collect()
    }

    fn params<'p>(&'p self, more: &[&'p (dyn ToSql + Sync)]) -> Vec<&'p (dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&self.items, &self.orgs, &self.tokens];
        params.extend_from_slice(more);
        params
    }

    /// Where the answer belongs about the entry that is at `ordinal`, from 1, in the parameters.
    fn answer<'a, A>(&self, answers: &'a mut [A], ordinal: i64) -> Answer<&'a mut A> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.entries.get(ordinal.checked_sub(1)?))
            .and_then(|(place, _)| answers.get_mut(*place))
            .ok_or_else(|| Fault::damaged(format_args!("entry {ordinal} was not asked for")))
    }
}
