//! Oracles about rows: which changes of an item a call may make, and what must never change.
//!
//! The last seen state of every row is kept beside the store, and each call's effect is compared with
//! what its promise allows. Nothing here knows how the store does it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Renewed, Settled, Settlement};
use leasehold_core::{ClaimToken, Hold, ItemId, Lane, OrgId, Status, WorkItem};

/// Which call a change is put down to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause<'a> {
    Enqueue,
    Claim(ClaimToken),
    Renew(Hold, Renewed),
    Settle(&'a Settlement, Settled),
    Sweep,
    Cancel,
    Retry,
    Audit,
}

#[derive(Default)]
pub(super) struct Rows {
    seen: BTreeMap<ItemId, Seen>,
    /// Not ended, or dead letters whose entry is owed.
    open: usize,
}

struct Seen {
    org: OrgId,
    row: WorkItem,
    settled_by: Option<ClaimToken>,
    attempts_before_claim: u32,
    completions: u32,
}

/// What is asserted, or the words for its being otherwise.
fn must(holds: bool, words: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words.to_owned()) }
}

fn is_open(row: &WorkItem) -> bool {
    !row.status.is_final() || row.is_dead_letter() && row.audited_at.is_none()
}

fn holds(row: &WorkItem, token: ClaimToken) -> bool {
    row.status == Status::Claimed && row.claim_token == Some(token)
}

fn is_live(row: &WorkItem, now: Timestamp) -> bool {
    row.lease_expires_at.is_some_and(|end| end > now)
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// How many have not come to their end.
    pub(super) const fn open(&self) -> usize {
        self.open
    }

    /// Everything there is, as last seen.
    pub(super) fn all(&self) -> impl Iterator<Item = (OrgId, &WorkItem)> {
        self.seen.values().map(|seen| (seen.org, &seen.row))
    }

    /// How many items of the org are claimed in the lane.
    pub(super) fn claims(&self, org: OrgId, lane: &Lane) -> u32 {
        let claimed = self
            .all()
            .filter(|(of, row)| *of == org && row.lane == *lane && row.status == Status::Claimed);
        u32::try_from(claimed.count()).unwrap_or(u32::MAX)
    }

    /// The items of the org that are claimed.
    pub(super) fn claimed(&self, org: OrgId) -> Vec<ItemId> {
        let rows = self
            .all()
            .filter(|(of, row)| *of == org && row.status == Status::Claimed);
        rows.map(|(_, row)| row.id).collect()
    }

    /// Takes note of a row after a call.
    ///
    /// # Errors
    /// The words for a promise that the change breaks.
    pub(super) fn observe(
        &mut self,
        org: OrgId,
        row: WorkItem,
        cause: &Cause<'_>,
        now: Timestamp,
    ) -> Result<(), String> {
        let Some(seen) = self.seen.get_mut(&row.id) else {
            must(matches!(cause, Cause::Enqueue), "an item came from nowhere")?;
            self.open += usize::from(is_open(&row));
            let seen = Seen {
                org,
                row,
                settled_by: None,
                attempts_before_claim: 0,
                completions: 0,
            };
            self.seen.insert(seen.row.id, seen);
            return Ok(());
        };
        let verdict = seen.judge(&row, cause, now);
        self.open = self.open + usize::from(is_open(&row)) - usize::from(is_open(&seen.row));
        let before = std::mem::replace(&mut seen.row, row);
        verdict.map_err(|words| {
            format!(
                "{words}\n  by {cause:?}\n  from {before:?}\n  to {:?}",
                seen.row
            )
        })
    }

    /// Compares a row with what was last seen of it: nothing may have changed on the side.
    pub(super) fn compare(&self, row: &WorkItem) -> Result<(), String> {
        let seen = self.seen.get(&row.id).map(|seen| &seen.row);
        must(
            seen == Some(row),
            &format!("a row changed on the side\n  from {seen:?}\n  to {row:?}"),
        )
    }
}

impl Seen {
    fn judge(&mut self, after: &WorkItem, cause: &Cause<'_>, now: Timestamp) -> Result<(), String> {
        let before = &self.row;
        must(
            after.claim_seq >= before.claim_seq,
            "the fencing number fell",
        )?;
        must(
            after.attempts <= after.max_attempts,
            "an item was claimed more often than allowed",
        )?;
        if before.status.is_final() && !matches!(cause, Cause::Retry) {
            must(
                after.status == before.status
                    && after.failure_code == before.failure_code
                    && after.result == before.result,
                "an item that had ended moved on",
            )?;
        }
        match *cause {
            Cause::Enqueue => must(after == before, "an enqueue asked again changed its row"),
            Cause::Claim(token) => self.judge_claim(after, token, now),
            Cause::Renew(hold, answer) => self.judge_renewal(after, hold, answer, now),
            Cause::Settle(settlement, answer) => self.judge_settle(after, settlement, answer, now),
            Cause::Sweep => judge_sweep(before, after, now),
            Cause::Cancel => judge_cancel(before, after),
            Cause::Retry => judge_retry(before, after),
            Cause::Audit => {
                let expected = WorkItem {
                    audited_at: after.audited_at,
                    updated_at: after.updated_at,
                    updated_by: after.updated_by,
                    ..before.clone()
                };
                must(*after == expected, "a mark of the audit changed more")
            }
        }
    }

    fn judge_claim(
        &mut self,
        after: &WorkItem,
        token: ClaimToken,
        now: Timestamp,
    ) -> Result<(), String> {
        let before = &self.row;
        if holds(before, token) {
            return must(after == before, "a claim asked again changed what it holds");
        }
        must(
            before.status == Status::Queued && before.available_at <= now,
            "an item was claimed that was not due",
        )?;
        must(
            holds(after, token)
                && is_live(after, now)
                && after.attempts == before.attempts + 1
                && after.claim_seq == before.claim_seq + 1,
            "a claim did not count",
        )?;
        self.attempts_before_claim = before.attempts;
        Ok(())
    }

    fn judge_renewal(
        &self,
        after: &WorkItem,
        hold: Hold,
        answer: Renewed,
        now: Timestamp,
    ) -> Result<(), String> {
        let before = &self.row;
        let is_held = holds(before, hold.token) && is_live(before, now);
        if answer == Renewed::Lost {
            must(!is_held, "a renewal was refused to the holder")?;
            return must(after == before, "a refused renewal changed its row");
        }
        must(is_held, "a renewal was accepted from one who holds nothing")?;
        let cancelled = before.cancel_requested_at.is_some();
        must(
            cancelled == (answer == Renewed::CancelRequested),
            "a cancel was not told, or told for nothing",
        )?;
        must(
            holds(after, hold.token) && is_live(after, now) && after.attempts == before.attempts,
            "a renewal changed the claim",
        )
    }

    fn judge_settle(
        &mut self,
        after: &WorkItem,
        settlement: &Settlement,
        answer: Settled,
        now: Timestamp,
    ) -> Result<(), String> {
        let before = &self.row;
        let token = settlement.hold.token;
        let transition = &settlement.transition;
        let may = holds(before, token) && (is_live(before, now) || !transition.needs_live_lease());
        let ended = match answer {
            Settled::AlreadySettled => {
                must(!may, "a settle was passed over")?;
                must(
                    self.settled_by == Some(token),
                    "a settle was taken for one that never landed",
                )?;
                return must(after == before, "a settle asked again changed its row");
            }
            Settled::Conflict => {
                must(!may, "a settle was refused to the holder")?;
                must(
                    self.settled_by != Some(token),
                    "a settle asked again was called a conflict",
                )?;
                return must(after == before, "a refused settle changed its row");
            }
            Settled::Settled(ended) => ended,
        };
        must(
            may,
            "a settle was accepted from one who does not hold the item",
        )?;
        self.settled_by = Some(token);
        if ended == Ended::Done {
            self.completions += 1;
            must(self.completions == 1, "an item was completed twice")?;
        }
        let gives_back = matches!(
            transition,
            Transition::Park { .. } | Transition::Release { .. }
        );
        let attempts = if gives_back {
            self.attempts_before_claim
        } else {
            before.attempts
        };
        must(
            after.attempts == attempts,
            "a hand-back spent an attempt, or an ending did not",
        )?;
        let queued = if before.cancel_requested_at.is_some() {
            Ended::Cancelled
        } else {
            Ended::Queued
        };
        let (expected, status) = match transition {
            Transition::Complete { .. } => (Ended::Done, Status::Done),
            Transition::Bury { .. } => (Ended::DeadLetter, Status::Failed),
            Transition::Retry { .. } if before.attempts >= before.max_attempts => {
                (Ended::DeadLetter, Status::Failed)
            }
            _ if queued == Ended::Cancelled => (queued, Status::Failed),
            _ => (queued, Status::Queued),
        };
        must(
            ended == expected && after.status == status && after.claim_token.is_none(),
            "a settle did not do what it said",
        )
    }
}

fn judge_sweep(before: &WorkItem, after: &WorkItem, now: Timestamp) -> Result<(), String> {
    if after == before {
        return Ok(());
    }
    must(
        before.status == Status::Claimed && !is_live(before, now),
        "the sweep took an item whose lease goes on",
    )?;
    let status = if before.cancel_requested_at.is_some() || before.attempts >= before.max_attempts {
        Status::Failed
    } else {
        Status::Queued
    };
    must(
        after.status == status
            && after.attempts == before.attempts
            && after.worker_losses == before.worker_losses + 1
            && after.claim_token.is_none(),
        "the sweep did something else with an item",
    )
}

fn judge_cancel(before: &WorkItem, after: &WorkItem) -> Result<(), String> {
    match before.status {
        Status::Queued => must(
            after.status == Status::Failed,
            "a cancel left an item queued",
        ),
        Status::Claimed => must(
            after.claim_token == before.claim_token
                && after.lease_expires_at == before.lease_expires_at
                && after.cancel_requested_at.is_some(),
            "a cancel wrote under the holder's feet",
        ),
        Status::Done | Status::Failed => must(after == before, "a cancel touched an ended item"),
    }
}

fn judge_retry(before: &WorkItem, after: &WorkItem) -> Result<(), String> {
    if before.status != Status::Failed {
        return must(
            after == before,
            "a retry touched an item that has not failed",
        );
    }
    must(
        after.status == Status::Queued
            && after.attempts == 0
            && after.claim_seq == before.claim_seq,
        "a retry did not start over",
    )
}
