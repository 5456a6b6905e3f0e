//! The promises about outbox rows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::MemoryStore;
use crate::ids::OrgId;
use crate::rules::{self, RetryPolicy};
use crate::store::outbox::{NewOutboxRow, OutboxRow, PendingRequest};
use crate::store::{OutboxStore, StoreResult};
use crate::text::ShortText;
use crate::time::{age, earlier, later};

/// Rows, and indexes of those that wait and those that ended.
#[derive(Default)]
pub(super) struct Outbox {
    rows: BTreeMap<Uuid, Waiting>,
    pending: BTreeSet<Uuid>,
    ended: BTreeSet<(Timestamp, Uuid)>,
}

struct Waiting {
    row: OutboxRow,
    /// Not handed out before this, once it was taken.
    not_before: Option<Timestamp>,
    last_error: Option<ShortText>,
    end: Option<End>,
}

/// How and when a row ended.
#[derive(Clone, Copy)]
struct End {
    at: Timestamp,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Dead,
}

impl Outbox {
    pub(super) fn last_error(&self, id: Uuid) -> Option<ShortText> {
        self.rows
            .get(&id)
            .and_then(|waiting| waiting.last_error.clone())
    }

    fn append(&mut self, org_id: OrgId, row: &NewOutboxRow, now: Timestamp) -> bool {
        if self.rows.contains_key(&row.id) {
            return false;
        }
        let stored = OutboxRow {
            org_id,
            created_at: now,
            attempts: 0,
            row: row.clone(),
        };
        let waiting = Waiting {
            row: stored,
            not_before: None,
            last_error: None,
            end: None,
        };
        self.rows.insert(row.id, waiting);
        self.pending.insert(row.id);
        true
    }

    fn claim(&mut self, request: &PendingRequest, now: Timestamp) -> Vec<OutboxRow> {
        let policy = RetryPolicy {
            base: request.base,
            cap: request.cap,
            jitter: 0.0,
        };
        let settled_before = earlier(now, request.grace);
        let mut taken = Vec::new();
        for id in &self.pending {
            if taken.len() >= request.limit as usize {
                break;
            }
            let Some(waiting) = self.rows.get_mut(id) else {
                continue;
            };
            let is_old_enough = waiting.row.created_at <= settled_before;
            if is_old_enough && waiting.not_before.is_none_or(|at| at <= now) {
                waiting.row.attempts = waiting.row.attempts.saturating_add(1);
                let back_off = rules::retry_delay(waiting.row.attempts, &policy, 0.0);
                waiting.not_before = Some(later(now, back_off));
                taken.push(waiting.row.clone());
            }
        }
        taken
    }

    /// Ends a row. One that was dead becomes done if it was relayed after all.
    fn end(&mut self, id: Uuid, end: End) {
        let Some(waiting) = self.rows.get_mut(&id) else {
            return;
        };
        if let Some(before) = waiting.end {
            if before.fate == Fate::Done {
                return;
            }
            self.ended.remove(&(before.at, id));
        }
        waiting.end = Some(end);
        self.pending.remove(&id);
        self.ended.insert((end.at, id));
    }

    fn fail(&mut self, id: Uuid, error: &ShortText, dead: bool, now: Timestamp) -> bool {
        let Some(waiting) = self
            .rows
            .get_mut(&id)
            .filter(|waiting| waiting.end.is_none())
        else {
            return false;
        };
        waiting.last_error = Some(error.clone());
        if dead {
            self.end(
                id,
                End {
                    at: now,
                    fate: Fate::Dead,
                },
            );
        }
        true
    }

    fn purge(&mut self, before: Timestamp, limit: u32) -> u32 {
        let range = ..(before, Uuid::nil());
        let gone: Vec<_> = self
            .ended
            .range(range)
            .take(limit as usize)
            .copied()
            .collect();
        let mut purged = 0;
        for (at, id) in gone {
            self.ended.remove(&(at, id));
            self.rows.remove(&id);
            purged += 1;
        }
        purged
    }
}

#[async_trait]
impl OutboxStore for MemoryStore {
    async fn append_outbox(&self, org: OrgId, rows: &[NewOutboxRow]) -> StoreResult<u32> {
        Ok(self.call(|state, now| {
            let mut new = 0;
            for row in rows {
                new += u32::from(state.outbox.append(org, row, now));
            }
            new
        }))
    }

    async fn claim_pending(&self, request: &PendingRequest) -> StoreResult<Vec<OutboxRow>> {
        Ok(self.call(|state, now| state.outbox.claim(request, now)))
    }

    async fn mark_done(&self, rows: &[Uuid]) -> StoreResult<()> {
        self.call(|state, now| {
            for id in rows {
                state.outbox.end(
                    *id,
                    End {
                        at: now,
                        fate: Fate::Done,
                    },
                );
            }
        });
        Ok(())
    }

    async fn mark_failed(&self, row: Uuid, error: &ShortText, dead: bool) -> StoreResult<bool> {
        Ok(self.call(|state, now| state.outbox.fail(row, error, dead, now)))
    }

    async fn outbox_lag(&self) -> StoreResult<Duration> {
        Ok(self.call(|state, now| {
            let Outbox { rows, pending, .. } = &state.outbox;
            let oldest = pending
                .iter()
                .filter_map(|id| rows.get(id))
                .map(|row| row.row.created_at)
                .min();
            oldest.map_or(Duration::ZERO, |created_at| age(now, created_at))
        }))
    }

    async fn purge_outbox(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        Ok(self.call(|state, now| state.outbox.purge(earlier(now, retention), limit)))
    }
}
