//! The store beside the one in memory: the same random calls, the same answers.
//!
//! The contract names what is promised; this looks for what nobody thought of naming. A failure
//! prints its seed.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::memory::MemoryStore;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{ClaimRequest, Filter, Page, Renewal, Settlement, StaleRequest};
use leasehold_core::{
    ClaimToken, Clock, Due, Failure, Hold, IdempotencyKey, ItemId, JsonObject, Kind, Lane, NewItem,
    OrgId, Progress, ShortText, Status, UserId, WorkStore, WorkerId,
};
use uuid::Uuid;

use crate::harness::OneFile;

/// Enough for every call to meet every state, in a few seconds.
const SEEDS: u64 = 4;
const CALLS: usize = 400;

/// Both stores, on one clock, and what the calls so far have made known.
struct Pair {
    file: OneFile,
    memory: MemoryStore,
    seed: u64,
    random: Rng,
    items: Vec<(OrgId, ItemId)>,
    keys: Vec<IdempotencyKey>,
    claims: Vec<ClaimRequest>,
    holds: Vec<Hold>,
}

/// Makes the same call of both, and expects the same answer.
macro_rules! same {
    ($pair:expr, $method:ident ( $($argument:expr),* )) => {{
        let stored = $pair.file.store.$method($($argument),*).await.unwrap();
        let remembered = $pair.memory.$method($($argument),*).await.unwrap();
        assert!(
            stored == remembered,
            "{} of seed {}: {}",
            stringify!($method),
            $pair.seed,
            difference(&stored, &remembered),
        );
        stored
    }};
}

/// The first line of two answers that differs: whole answers are too long to compare by eye.
fn difference(stored: &impl Debug, remembered: &impl Debug) -> String {
    let (stored, remembered) = (format!("{stored:#?}"), format!("{remembered:#?}"));
    let mut lines = stored.lines().zip(remembered.lines());
    match lines.find(|(one, other)| one != other) {
        Some((one, other)) => format!("{} stored, {} in memory", one.trim(), other.trim()),
        None => "one goes on where the other ends".to_owned(),
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let file = OneFile::new();
        let clock: Arc<dyn Clock> = file.folder.clock.clone();
        Self {
            file,
            memory: MemoryStore::new(clock),
            seed,
            random: Rng::with_seed(seed),
            items: Vec::new(),
            keys: Vec::new(),
            claims: Vec::new(),
            holds: Vec::new(),
        }
    }

    fn one_of<T: Clone>(&mut self, known: &[T]) -> Option<T> {
        self.random.choice(known).cloned()
    }

    fn org(&mut self) -> OrgId {
        OrgId::new(Uuid::from_u128(self.random.u128(1..=3)))
    }

    fn lane(&mut self) -> Lane {
        Lane::parse(["a", "b", "c"][self.random.usize(0..3)]).unwrap()
    }

    fn kind(&mut self) -> Kind {
        Kind::parse(["FIRST", "SECOND", "THIRD"][self.random.usize(0..3)]).unwrap()
    }

    fn delay(&mut self) -> Duration {
        match self.random.u8(0..3) {
            0 => Duration::ZERO,
            1 => Duration::from_secs(self.random.u64(0..90)),
            _ => Duration::from_micros(self.random.u64(0..90_000_000)),
        }
    }

    fn user(&mut self) -> UserId {
        UserId::new(Uuid::from_u128(self.random.u128(0..3)))
    }

    /// One seldom looked for, so that a page is not always full.
    fn limit(&mut self) -> u32 {
        self.random.u32(0..60)
    }

    fn new_item(&mut self) -> NewItem {
        let known_ids = self.items.clone();
        let known_keys = self.keys.clone();
        let mut id = ItemId::new(Uuid::from_u128(self.random.u128(..)));
        let mut key = IdempotencyKey::new(id.as_uuid());
        if self.random.u8(0..20) == 0
            && let Some((_, known)) = self.one_of(&known_ids)
        {
            id = known;
        }
        if self.random.u8(0..20) == 0
            && let Some(known) = self.one_of(&known_keys)
        {
            key = known;
        }
        self.keys.push(key);
        let now = self.file.folder.clock.now();
        let due = match self.random.u8(0..3) {
            0 => Due::Now,
            1 => Due::After(self.delay()),
            _ => Due::At(leasehold_core::time::earlier(now, self.delay())),
        };
        NewItem {
            id,
            idempotency_key: key,
            lane: self.lane(),
            created_by: self.user(),
            priority: self.random.i16(-1..=1),
            due,
            max_attempts: self.random.u32(0..4),
            ..NewItem::new(self.kind(), JsonObject::empty(), now)
        }
    }

    async fn enqueue(&mut self) {
        let org = self.org();
        let batch: Vec<NewItem> = (0..self.random.usize(0..40))
            .map(|_| self.new_item())
            .collect();
        self.items.extend(batch.iter().map(|new| (org, new.id)));
        same!(self, enqueue(org, batch.clone()));
    }

    async fn claim(&mut self) {
        let known = self.claims.clone();
        let again = self.random.u8(0..8) == 0;
        let request = match self.one_of(&known) {
            Some(request) if again => request,
            _ => ClaimRequest {
                token: ClaimToken::new(Uuid::from_u128(self.random.u128(..))),
                worker: WorkerId::parse("worker").unwrap(),
                lanes: (0..self.random.usize(0..5)).map(|_| self.lane()).collect(),
                kinds: (0..self.random.usize(0..5)).map(|_| self.kind()).collect(),
                lease: Duration::from_secs(self.random.u64(1..120)),
                limit: self.limit(),
                tenant_cap: (self.random.u8(0..3) == 0).then(|| self.random.u32(0..20)),
            },
        };
        for claimed in same!(self, claim(&request)) {
            self.holds.push(Hold {
                org_id: claimed.org_id,
                item_id: claimed.item.id,
                token: request.token,
            });
        }
        self.claims.push(request);
    }

    /// Some of what was ever held: most of it has moved on by the time it is used.
    fn some_holds(&mut self) -> Vec<Hold> {
        let newest = self.holds.len().saturating_sub(120);
        let known = self.holds[newest..].to_vec();
        (0..self.random.usize(0..12))
            .filter_map(|_| self.one_of(&known))
            .collect()
    }

    fn transition(&mut self) -> Transition {
        let failure = Failure::own(
            leasehold_core::FailureCode::TIMED_OUT,
            "took \"too\" long\n",
        );
        let delay = self.delay();
        match self.random.u8(0..5) {
            0 => Transition::Complete {
                result: self
                    .random
                    .bool()
                    .then(|| JsonObject::parse("{\"n\":1.0}").unwrap()),
            },
            1 => Transition::Retry { failure, delay },
            2 => Transition::Bury { failure },
            3 => Transition::Park {
                reason: "later".into(),
                delay,
            },
            _ => Transition::Release {
                note: "stopping".into(),
                delay,
            },
        }
    }

    async fn settle(&mut self) {
        let holds = self.some_holds();
        let batch: Vec<Settlement> = holds
            .into_iter()
            .map(|hold| Settlement {
                hold,
                transition: self.transition(),
            })
            .collect();
        let _ = same!(self, settle(&batch));
    }

    async fn renew(&mut self) {
        let holds = self.some_holds();
        let batch: Vec<Renewal> = holds
            .into_iter()
            .map(|hold| Renewal {
                hold,
                lease: Duration::from_secs(self.random.u64(1..120)),
                progress: self.random.bool().then(|| Progress::new(50, "half")),
            })
            .collect();
        same!(self, renew(&batch));
    }

    async fn operate(&mut self) {
        let known = self.items.clone();
        let Some((org, item)) = self.one_of(&known) else {
            return;
        };
        let by = self.user();
        if self.random.bool() {
            same!(self, cancel(org, item, by));
        } else {
            same!(self, retry(org, item, by));
        }
        same!(self, get(org, item));
    }

    async fn sweep(&mut self) {
        let (org, limit) = (self.org(), self.limit());
        // A whole number of seconds each: memory keeps nanoseconds, and the file does not.
        let request = StaleRequest {
            limit,
            spread: Duration::from_secs(self.random.u64(0..3) * u64::from(limit)),
        };
        same!(self, maintenance_due(None, limit));
        if self.random.u8(0..4) == 0 {
            same!(self, orphan_stale(org, limit));
        } else {
            same!(self, requeue_stale(org, &request));
        }
        let owed = same!(self, unaudited(org, limit));
        let written: Vec<(ItemId, i64)> = owed
            .iter()
            .filter(|_| self.random.bool())
            .map(|row| (row.id, row.claim_seq))
            .collect();
        same!(self, mark_audited(org, &written));
        same!(self, gauges());
    }

    async fn purge(&mut self) {
        let retention = Duration::from_secs(self.random.u64(0..600));
        // Which of the equally old go first is nobody's promise, so all of them go.
        same!(self, purge(retention, 100_000));
    }

    async fn list(&mut self) {
        let org = self.org();
        let filter = Filter {
            status: self
                .random
                .bool()
                .then(|| Status::ALL[self.random.usize(0..4)]),
            lane: (self.random.u8(0..3) == 0).then(|| self.lane()),
            kind: (self.random.u8(0..3) == 0).then(|| self.kind()),
        };
        let known = self.items.clone();
        let before = self.random.bool().then(|| self.one_of(&known)).flatten();
        let page = Page {
            before: before.map(|(_, id)| id),
            limit: self.limit(),
        };
        same!(self, list(org, &filter, &page));
    }

    async fn lanes(&mut self) {
        let lane = self.lane();
        if self.random.u8(0..4) == 0 {
            same!(
                self,
                pause_lane(
                    &lane,
                    &ShortText::new("because"),
                    &ShortText::new("somebody")
                )
            );
        } else {
            same!(self, resume_lane(&lane));
        }
        same!(self, paused_lanes());
    }

    async fn call(&mut self) {
        match self.random.u8(0..24) {
            0..4 => self.enqueue().await,
            4..9 => self.claim().await,
            9..14 => self.settle().await,
            14..16 => self.renew().await,
            16..18 => self.operate().await,
            18..20 => self.sweep().await,
            20 => self.purge().await,
            21 => self.list().await,
            22 => self.lanes().await,
            _ => {
                let pause = self.delay();
                self.file.folder.clock.advance(pause);
            }
        }
    }
}

#[tokio::test]
async fn random_calls_are_answered_as_in_memory() {
    for seed in 0..SEEDS {
        let mut pair = Pair::new(seed);
        for _ in 0..CALLS {
            pair.call().await;
        }
    }
}
