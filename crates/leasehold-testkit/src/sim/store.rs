//! The store of the simulation, which may be told to break a promise, and the sabotages elsewhere.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::rules::Transition;
use leasehold_core::store::events::{EventStore, NewEntry, Stream, dead_letter_entry_id};
use leasehold_core::store::work::{
    ClaimRequest, Claimed, Enqueued, Filter, Page, Renewal, Renewed, Requeued, Settled, Settlement,
    StaleRequest,
};
use leasehold_core::time::{earlier, later};
use leasehold_core::{
    Clock as _, Failure, FailureCode, Hints, Hold, ItemId, JsonObject, Lane, ManualClock,
    MemoryStore, NewItem, OrgId, RequestId, Status, UserId, WorkItem, WorkStore,
};

/// A promise broken on purpose. The simulation must notice each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// A settle is accepted whatever its token.
    SettleIgnoresToken,
    /// A settle is accepted although its lease is over.
    SettleIgnoresExpiry,
    /// A settle that is asked again is answered as a conflict.
    SettleForgets,
    /// A renewal is accepted whatever its token.
    RenewIgnoresToken,
    /// The sweep takes items whose lease goes on.
    SweepIgnoresExpiry,
    /// A hand-back spends the attempt.
    HandBackSpends,
    /// The keeper trusts four times as long as it may.
    TrustTooLong,
    /// The keeper counts trust from the answer, not from the sending.
    TrustFromAnswer,
    /// The keeper tells nobody that a lease is in doubt.
    DoubtsUntold,
    /// A run that the keeper stopped ends without a word of why.
    ReasonUntold,
    /// The worker starts an item without asking whether its hold is still trusted.
    StartsUntrusted,
    /// A run counts as ended when it was told to end.
    EndsTooSoon,
    /// The warden does not mind its deadline.
    WardenAsleep,
    /// Dead letters are marked as audited, and no entry is written.
    AuditSkipped,
}

impl Sabotage {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::SettleIgnoresToken,
        Self::SettleIgnoresExpiry,
        Self::SettleForgets,
        Self::RenewIgnoresToken,
        Self::SweepIgnoresExpiry,
        Self::HandBackSpends,
        Self::TrustTooLong,
        Self::TrustFromAnswer,
        Self::DoubtsUntold,
        Self::ReasonUntold,
        Self::StartsUntrusted,
        Self::EndsTooSoon,
        Self::WardenAsleep,
        Self::AuditSkipped,
    ];
}

/// How many items a sweep moves at once: few, so that batches come back full.
pub(super) const SWEEP_LIMIT: u32 = 3;

/// The memory store, called without waiting.
pub(super) struct Store {
    memory: MemoryStore,
    clock: Arc<ManualClock>,
    sabotage: Option<Sabotage>,
}

impl Store {
    pub(super) fn new(clock: Arc<ManualClock>, sabotage: Option<Sabotage>) -> Self {
        Self {
            memory: MemoryStore::new(clock.clone()),
            clock,
            sabotage,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn enqueue(&self, org: OrgId, item: NewItem) -> Enqueued {
        let fates = at_once(self.memory.enqueue(org, vec![item])).unwrap();
        fates.into_iter().next().unwrap()
    }

    pub(super) fn claim(&self, request: &ClaimRequest) -> Vec<Claimed> {
        at_once(self.memory.claim(request)).unwrap()
    }

    pub(super) fn renew(&self, renewal: &Renewal) -> Renewed {
        let mut renewal = renewal.clone();
        if self.sabotage == Some(Sabotage::RenewIgnoresToken) {
            renewal.hold = self.current(renewal.hold);
        }
        at_once(self.memory.renew(&[renewal])).unwrap()[0]
    }

    pub(super) fn settle(&self, settlement: &Settlement) -> Settled {
        let mut settlement = settlement.clone();
        let now = self.clock.now();
        match self.sabotage {
            Some(Sabotage::SettleIgnoresToken) => settlement.hold = self.current(settlement.hold),
            Some(Sabotage::SettleIgnoresExpiry) => {
                let row = self.row(settlement.hold.org_id, settlement.hold.item_id);
                let end = row.lease_expires_at.unwrap_or(now);
                let just_before = earlier(end, Duration::from_nanos(1));
                self.clock.set_calendar(now.min(just_before));
            }
            Some(Sabotage::HandBackSpends) => spend(&mut settlement),
            _ => {}
        }
        let answer = at_once(self.memory.settle(&[settlement])).unwrap()[0];
        self.clock.set_calendar(now);
        match answer {
            Settled::AlreadySettled if self.sabotage == Some(Sabotage::SettleForgets) => {
                Settled::Conflict
            }
            answer => answer,
        }
    }

    pub(super) fn maintenance_due(&self) -> Vec<OrgId> {
        at_once(self.memory.maintenance_due(None, 10)).unwrap()
    }

    pub(super) fn requeue_stale(&self, org: OrgId, spread: Duration) -> Requeued {
        let request = StaleRequest {
            limit: SWEEP_LIMIT,
            spread,
        };
        let now = self.clock.now();
        if self.sabotage == Some(Sabotage::SweepIgnoresExpiry) {
            self.clock.set_calendar(later(now, Duration::from_mins(2)));
        }
        let requeued = at_once(self.memory.requeue_stale(org, &request)).unwrap();
        self.clock.set_calendar(now);
        requeued
    }

    pub(super) fn unaudited(&self, org: OrgId) -> Vec<WorkItem> {
        at_once(self.memory.unaudited(org, SWEEP_LIMIT)).unwrap()
    }

    pub(super) fn audit(&self, org: OrgId, item: ItemId, claim_seq: i64) {
        if self.sabotage == Some(Sabotage::AuditSkipped) {
            return;
        }
        let entry = NewEntry {
            id: dead_letter_entry_id(item, claim_seq),
            kind: "work.item.dead_letter".to_owned(),
            target_id: item.as_uuid(),
            actor_id: UserId::NIL,
            request_id: RequestId::NIL,
            app: "simulation".to_owned(),
            payload: JsonObject::empty(),
        };
        at_once(self.memory.append(org, Stream::Audit, &entry)).unwrap();
    }

    /// Whether the entry of the dead letter is there, once and no more.
    pub(super) fn is_audited(&self, org: OrgId, item: ItemId, claim_seq: i64) -> bool {
        let id = dead_letter_entry_id(item, claim_seq);
        let entries = at_once(self.memory.read_after(org, Stream::Audit, 0, 1_000)).unwrap();
        entries.iter().filter(|entry| entry.entry.id == id).count() == 1
    }

    pub(super) fn mark_audited(&self, org: OrgId, item: ItemId, claim_seq: i64) {
        at_once(self.memory.mark_audited(org, &[(item, claim_seq)])).unwrap();
    }

    pub(super) fn cancel(&self, org: OrgId, item: ItemId) {
        at_once(self.memory.cancel(org, item, UserId::NIL)).unwrap();
    }

    pub(super) fn retry(&self, org: OrgId, item: ItemId) {
        at_once(self.memory.retry(org, item, UserId::NIL)).unwrap();
    }

    pub(super) fn pause(&self, lane: &Lane) {
        at_once(
            self.memory
                .pause_lane(lane, &"a person looks".into(), &"a person".into()),
        )
        .unwrap();
    }

    pub(super) fn resume(&self, lane: &Lane) {
        at_once(self.memory.resume_lane(lane)).unwrap();
    }

    pub(super) fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        self.memory.subscribe(lanes)
    }

    /// The row, which is there: nothing is purged.
    pub(super) fn row(&self, org: OrgId, item: ItemId) -> WorkItem {
        at_once(self.memory.get(org, item)).unwrap().unwrap()
    }

    /// All rows of the org.
    pub(super) fn rows(&self, org: OrgId) -> Vec<WorkItem> {
        let page = Page {
            before: None,
            limit: 1_000,
        };
        let listed = at_once(self.memory.list(org, &Filter::default(), &page));
        listed.unwrap().items
    }

    /// The hold as whoever holds the item now would write it.
    fn current(&self, hold: Hold) -> Hold {
        let row = self.row(hold.org_id, hold.item_id);
        let token = row
            .claim_token
            .filter(|_| row.status == Status::Claimed)
            .unwrap_or(hold.token);
        Hold { token, ..hold }
    }
}

fn spend(settlement: &mut Settlement) {
    if let Transition::Release { note, delay } = &settlement.transition {
        let failure = Failure::own(FailureCode::HANDLER_ERROR, note.as_str());
        settlement.transition = Transition::Retry {
            failure,
            delay: *delay,
        };
    }
}

/// Whether a hint lies ready.
pub(super) fn is_hinted(hints: &mut dyn Hints) -> bool {
    let next = pin!(hints.next());
    next.poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

/// What the memory store answers: it never waits.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store waited"),
    }
}
