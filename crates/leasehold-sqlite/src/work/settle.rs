//! What a holder does with its claim: renew it or end it, each by one conditional write.

use jiff::Timestamp;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Hold, Renewal, Renewed, Settled, Settlement};
use leasehold_core::time::later;
use leasehold_core::{ClaimToken, Failure, FailureCode, ItemId, ShortText, Status};
use rusqlite::{CachedStatement, params};

use super::errors_max;
use crate::error::Answer;
use crate::rows::{self, Columns, bytes};
use crate::writer::Unit;

pub(super) const RENEW: &str = include_str!("sql/renew.sql");
pub(super) const COMPLETE: &str = include_str!("sql/settle_complete.sql");
pub(super) const RETRY: &str = include_str!("sql/settle_retry.sql");
pub(super) const BURY: &str = include_str!("sql/settle_bury.sql");
pub(super) const GIVE_BACK: &str = include_str!("sql/settle_give_back.sql");

/// Why a settle changed nothing: whether this very token settled the row last.
pub(super) const SETTLED_BY: &str = "
    SELECT 1 FROM work_items INDEXED BY work_items_id
    WHERE id = ?1 AND org_id = ?2 AND settled_token = ?3";

pub(super) const LANE: &str = "SELECT lane FROM work_items INDEXED BY work_items_id WHERE id = ?1";

pub(super) const FAIL_ORPHANED: &str = "
    UPDATE work_items INDEXED BY work_items_id
    SET status = 'failed', failure_code = ?4, audited_at = NULL,
        claimed_by = NULL, claim_token = NULL, lease_expires_at = NULL,
        updated_at = ?3, updated_by = zeroblob(16)
    WHERE id = ?1 AND status = 'claimed' AND claim_token = ?2";

/// Any lease ends after this: the floor for what needs the token alone.
const NO_LEASE_NEEDED: i64 = i64::MIN;

pub(super) fn renew(unit: &Unit<'_>, batch: &[Renewal]) -> Answer<Vec<Renewed>> {
    let mut statement = unit.db.prepare_cached(RENEW)?;
    in_id_order(
        batch,
        |renewal| renewal.hold,
        |renewal| renew_one(unit, &mut statement, renewal),
    )
}

fn renew_one(
    unit: &Unit<'_>,
    statement: &mut CachedStatement<'_>,
    renewal: &Renewal,
) -> Answer<Renewed> {
    let Hold {
        org_id,
        item_id,
        token,
    } = renewal.hold;
    let (percent, note) = match &renewal.progress {
        Some(progress) => (Some(progress.percent), Some(progress.note.as_str())),
        None => (None, None),
    };
    let is_cancel_requested = rows::first(
        statement,
        params![
            bytes(item_id.as_uuid()),
            bytes(org_id.as_uuid()),
            bytes(token.as_uuid()),
            unit.now.as_microsecond(),
            later(unit.now, renewal.lease).as_microsecond(),
            percent,
            note,
        ],
        |row| Columns::of(row).plain(),
    )?;
    Ok(match is_cancel_requested {
        Some(true) => Renewed::CancelRequested,
        Some(false) => Renewed::Kept,
        None => Renewed::Lost,
    })
}

pub(super) fn settle(unit: &mut Unit<'_>, batch: &[Settlement]) -> Answer<Vec<Settled>> {
    // The common one is looked up once for the batch, which is a tenth of its cost.
    let mut complete = unit.db.prepare_cached(COMPLETE)?;
    in_id_order(
        batch,
        |settlement| settlement.hold,
        |settlement| settle_one(unit, &mut complete, settlement),
    )
}

fn settle_one(
    unit: &mut Unit<'_>,
    complete: &mut CachedStatement<'_>,
    settlement: &Settlement,
) -> Answer<Settled> {
    let hold = settlement.hold;
    let ended = match &settlement.transition {
        Transition::Complete { result } => {
            let result = result.as_ref().map(leasehold_core::JsonObject::as_str);
            let changed = complete.execute(params![
                bytes(hold.item_id.as_uuid()),
                bytes(hold.org_id.as_uuid()),
                bytes(hold.token.as_uuid()),
                unit.now.as_microsecond(),
                result,
            ])?;
            (changed == 1).then_some(Ended::Done)
        }
        Transition::Retry { failure, delay } => {
            let available_at = later(unit.now, *delay);
            let ended = retry(unit, hold, available_at, failure)?;
            hint_if_due(unit, hold, ended, available_at)?;
            ended
        }
        Transition::Bury { failure } => {
            let changed = unit.execute(
                BURY,
                params![
                    bytes(hold.item_id.as_uuid()),
                    bytes(hold.org_id.as_uuid()),
                    bytes(hold.token.as_uuid()),
                    unit.now.as_microsecond(),
                    failure.code.as_str(),
                    failure.to_text().as_str(),
                    unit.now.to_string(),
                    errors_max(),
                ],
            )?;
            (changed == 1).then_some(Ended::DeadLetter)
        }
        Transition::Park {
            reason: note,
            delay,
        }
        | Transition::Release { note, delay } => {
            let lease_floor = if settlement.transition.needs_live_lease() {
                unit.now.as_microsecond()
            } else {
                NO_LEASE_NEEDED
            };
            let available_at = later(unit.now, *delay);
            let ended = give_back(unit, hold, available_at, note, lease_floor)?;
            hint_if_due(unit, hold, ended, available_at)?;
            ended
        }
    };
    match ended {
        Some(ended) => Ok(Settled::Settled(ended)),
        None => refusal(unit, hold),
    }
}

fn retry(
    unit: &Unit<'_>,
    hold: Hold,
    available_at: Timestamp,
    failure: &Failure,
) -> Answer<Option<Ended>> {
    let mut statement = unit.db.prepare_cached(RETRY)?;
    rows::first(
        &mut statement,
        params![
            bytes(hold.item_id.as_uuid()),
            bytes(hold.org_id.as_uuid()),
            bytes(hold.token.as_uuid()),
            unit.now.as_microsecond(),
            available_at.as_microsecond(),
            failure.to_text().as_str(),
            unit.now.to_string(),
            errors_max(),
            failure.code.as_str(),
        ],
        queued_or_ended,
    )
}

fn give_back(
    unit: &Unit<'_>,
    hold: Hold,
    available_at: Timestamp,
    note: &ShortText,
    lease_floor: i64,
) -> Answer<Option<Ended>> {
    let mut statement = unit.db.prepare_cached(GIVE_BACK)?;
    rows::first(
        &mut statement,
        params![
            bytes(hold.item_id.as_uuid()),
            bytes(hold.org_id.as_uuid()),
            bytes(hold.token.as_uuid()),
            unit.now.as_microsecond(),
            available_at.as_microsecond(),
            note.as_str(),
            lease_floor,
        ],
        queued_or_cancelled,
    )
}

/// As [`queued_or_cancelled`], or a dead letter for want of an attempt.
fn queued_or_ended(row: &rusqlite::Row<'_>) -> Answer<Ended> {
    let mut columns = Columns::of(row);
    let is_queued = columns.text()? == Status::Queued.as_str();
    let is_exhausted = columns.plain()?;
    Ok(match (is_queued, is_exhausted) {
        (true, _) => Ended::Queued,
        (false, true) => Ended::DeadLetter,
        (false, false) => Ended::Cancelled,
    })
}

fn queued_or_cancelled(row: &rusqlite::Row<'_>) -> Answer<Ended> {
    let is_queued = Columns::of(row).text()? == Status::Queued.as_str();
    Ok(if is_queued {
        Ended::Queued
    } else {
        Ended::Cancelled
    })
}

fn hint_if_due(
    unit: &mut Unit<'_>,
    hold: Hold,
    ended: Option<Ended>,
    available_at: Timestamp,
) -> Answer<()> {
    if ended == Some(Ended::Queued) && available_at <= unit.now {
        let mut statement = unit.db.prepare_cached(LANE)?;
        let id = bytes(hold.item_id.as_uuid());
        let lane = rows::first(&mut statement, [id], |row| {
            Columns::of(row).named(leasehold_core::Lane::parse)
        })?;
        if let Some(lane) = lane {
            unit.hint(&lane);
        }
    }
    Ok(())
}

fn refusal(unit: &Unit<'_>, hold: Hold) -> Answer<Settled> {
    let mut statement = unit.db.prepare_cached(SETTLED_BY)?;
    let by_this_token = statement.exists(params![
        bytes(hold.item_id.as_uuid()),
        bytes(hold.org_id.as_uuid()),
        bytes(hold.token.as_uuid()),
    ])?;
    Ok(if by_this_token {
        Settled::AlreadySettled
    } else {
        Settled::Conflict
    })
}

pub(super) fn fail_orphaned(unit: &Unit<'_>, item: ItemId, token: ClaimToken) -> Answer<bool> {
    let changed = unit.execute(
        FAIL_ORPHANED,
        params![
            bytes(item.as_uuid()),
            bytes(token.as_uuid()),
            unit.now.as_microsecond(),
            FailureCode::ORPHANED,
        ],
    )?;
    Ok(changed == 1)
}

/// Applies `write` to the batch in the order of item ids, and answers in the batch's own order. Of
/// two entries about one item the earlier goes first.
fn in_id_order<E, T>(
    batch: &[E],
    hold: impl Fn(&E) -> Hold,
    mut write: impl FnMut(&E) -> Answer<T>,
) -> Answer<Vec<T>> {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.sort_by_key(|place| batch.get(*place).map(|entry| hold(entry).item_id));
    let mut answers = Vec::with_capacity(batch.len());
    for place in order {
        if let Some(entry) = batch.get(place) {
            answers.push((place, write(entry)?));
        }
    }
    answers.sort_unstable_by_key(|(place, _)| *place);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}
