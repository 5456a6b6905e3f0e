//! The promises about idempotency markers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::MemoryStore;
use crate::store::markers::{Begin, Begun, MarkerAnswer, MarkerScope};
use crate::store::{MarkerStore, StoreError, StoreResult};
use crate::time::{age, earlier};

/// How long a client's key may be.
const KEY_BYTES_MAX: usize = 255;

/// All markers, and an index by when they were made.
#[derive(Default)]
pub(super) struct Markers {
    markers: BTreeMap<MarkerScope, Marker>,
    by_age: BTreeSet<(Timestamp, MarkerScope)>,
}

struct Marker {
    digest: Vec<u8>,
    target_id: Uuid,
    attempt: Uuid,
    stage: Stage,
}

enum Stage {
    /// An attempt is under way.
    Pending { began_at: Timestamp },
    /// The last attempt gave up; the next may enter.
    Released,
    /// The answer is known.
    Finished(MarkerAnswer),
}

impl Marker {
    fn begin(&mut self, begin: &Begin, now: Timestamp) -> Begun {
        if self.digest != begin.digest {
            return Begun::DigestDiffers;
        }
        match &self.stage {
            Stage::Finished(answer) => Begun::Finished(answer.clone()),
            Stage::Pending { began_at }
                if self.attempt != begin.attempt && age(now, *began_at) <= begin.lease =>
            {
                Begun::InProgress
            }
            Stage::Pending { .. } | Stage::Released => {
                self.attempt = begin.attempt;
                self.stage = Stage::Pending { began_at: now };
                Begun::Entered {
                    target_id: self.target_id,
                }
            }
        }
    }

    /// Ends the attempt, if it is under way. A repeat of the very same finish counts as one.
    fn end(&mut self, attempt: Uuid, stage: Stage) -> bool {
        if self.attempt != attempt {
            return false;
        }
        match (&self.stage, &stage) {
            (Stage::Pending { .. }, _) => {
                self.stage = stage;
                true
            }
            (Stage::Finished(stored), Stage::Finished(answer)) => stored == answer,
            _ => false,
        }
    }
}

impl Markers {
    fn begin(&mut self, scope: &MarkerScope, begin: &Begin, now: Timestamp) -> Begun {
        if let Some(marker) = self.markers.get_mut(scope) {
            return marker.begin(begin, now);
        }
        let marker = Marker {
            digest: begin.digest.clone(),
            target_id: begin.target_id,
            attempt: begin.attempt,
            stage: Stage::Pending { began_at: now },
        };
        self.by_age.insert((now, scope.clone()));
        self.markers.insert(scope.clone(), marker);
        Begun::Entered {
            target_id: begin.target_id,
        }
    }

    fn end(&mut self, scope: &MarkerScope, attempt: Uuid, stage: Stage) -> bool {
        self.markers
            .get_mut(scope)
            .is_some_and(|marker| marker.end(attempt, stage))
    }

    fn purge(&mut self, before: Timestamp, limit: u32) -> u32 {
        let mut purged = 0;
        while purged < limit
            && let Some((made_at, _)) = self.by_age.first()
            && *made_at < before
            && let Some((_, scope)) = self.by_age.pop_first()
        {
            self.markers.remove(&scope);
            purged += 1;
        }
        purged
    }
}

#[async_trait]
impl MarkerStore for MemoryStore {
    async fn begin(&self, scope: &MarkerScope, begin: &Begin) -> StoreResult<Begun> {
        if scope.key.len() > KEY_BYTES_MAX {
            let bytes = scope.key.len();
            return Err(StoreError::Refused(format!(
                "an idempotency key of {bytes} bytes; send one of at most {KEY_BYTES_MAX}"
            )));
        }
        Ok(self.call(|state, now| state.markers.begin(scope, begin, now)))
    }

    async fn finish(
        &self,
        scope: &MarkerScope,
        attempt: Uuid,
        answer: &MarkerAnswer,
    ) -> StoreResult<bool> {
        let stage = Stage::Finished(answer.clone());
        Ok(self.call(|state, _| state.markers.end(scope, attempt, stage)))
    }

    async fn release(&self, scope: &MarkerScope, attempt: Uuid) -> StoreResult<bool> {
        Ok(self.call(|state, _| state.markers.end(scope, attempt, Stage::Released)))
    }

    async fn purge_markers(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        Ok(self.call(|state, now| state.markers.purge(earlier(now, retention), limit)))
    }
}
