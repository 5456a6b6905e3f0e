//! The promises about events and audit entries.

use std::collections::BTreeMap;

use async_trait::async_trait;
use uuid::Uuid;

use super::MemoryStore;
use crate::ids::OrgId;
use crate::store::events::{Entry, NewEntry, Stream};
use crate::store::{EventStore, StoreResult};

/// The streams of every org.
#[derive(Default)]
pub(super) struct Events {
    streams: BTreeMap<(OrgId, Stream), Log>,
}

/// One stream: the entry numbered `n` stands at `n − 1`, so the length is the cursor.
#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    numbers: BTreeMap<Uuid, u64>,
}

#[async_trait]
impl EventStore for MemoryStore {
    async fn append(&self, org: OrgId, stream: Stream, entry: &NewEntry) -> StoreResult<u64> {
        Ok(self.call(|state, now| {
            let log = state.events.streams.entry((org, stream)).or_default();
            if let Some(seq) = log.numbers.get(&entry.id) {
                return *seq;
            }
            let seq = log.entries.len() as u64 + 1;
            log.entries.push(Entry {
                seq,
                produced_at: now,
                entry: entry.clone(),
            });
            log.numbers.insert(entry.id, seq);
            seq
        }))
    }

    async fn read_after(
        &self,
        org: OrgId,
        stream: Stream,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<Entry>> {
        let after = usize::try_from(after).unwrap_or(usize::MAX);
        Ok(self.call(|state, _| {
            let log = state.events.streams.get(&(org, stream));
            let entries = log
                .and_then(|log| log.entries.get(after..))
                .unwrap_or_default();
            entries.iter().take(limit as usize).cloned().collect()
        }))
    }
}
