//! The promises about work items. What one-holder-per-claim rests on is written here.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreResult;
use crate::ids::{ClaimToken, IdempotencyKey, ItemId, OrgId, UserId};
use crate::item::{NewItem, Progress, Status, WorkItem};
use crate::names::{Kind, Lane, WorkerId};
use crate::outcome::Failure;
use crate::rules::Transition;
use crate::text::ShortText;

/// The methods of [`WorkStore`] that take no org, held both ways by a test: a method missing here and
/// an entry without a method are both findings.
pub const TENANTLESS: &[&str] = &[
    "now",
    "claim",
    "renew",
    "settle",
    "fail_orphaned",
    "maintenance_due",
    "gauges",
    "purge",
    "pause_lane",
    "resume_lane",
    "paused_lanes",
    "subscribe",
];

/// Durable work items.
#[async_trait]
pub trait WorkStore: Send + Sync + Debug {
    /// The store's clock: what due, lease and purge decisions use.
    ///
    /// Takes no org: a clock has none.
    async fn now(&self) -> StoreResult<Timestamp>;

    /// Writes new items, and answers the fate of each in the batch's order.
    ///
    /// Owed: the whole batch in one transaction. A row whose id or (org, key) is taken changes
    /// nothing: the answer carries the stored row, found by id first. Within a batch, a later row
    /// sees the earlier ones. A row whose id belongs to another org is [`Enqueued::IdTaken`], and
    /// nothing of it is shown. After the commit, workers of the lanes that gained an
    /// [`Enqueued::Inserted`] row are hinted; an answer without one hints nobody.
    ///
    /// Asked again after a lost answer: the rows that landed answer [`Enqueued::IdExists`]; a claim
    /// taken meanwhile is never touched.
    async fn enqueue(&self, org: OrgId, batch: Vec<NewItem>) -> StoreResult<Vec<Enqueued>>;

    /// Claims up to `limit` due items of the lanes and kinds, lowest priority number first, then
    /// earliest `available_at`, then lowest id (by value).
    ///
    /// Owed, in one transaction: each item returned was queued and due by the store's clock, and is
    /// now claimed with the request's token, worker and lease; `attempts` and `claim_seq` rose by
    /// one; `updated_by` is nil; the previous run's progress is cleared. No row is marked that is not
    /// returned, and never more than `limit`. Items of paused lanes are passed over. With
    /// `tenant_cap`, no org holds more than that many claims in a lane, checked so that two claims at
    /// once cannot both slip under it. Claims are durable before they are answered.
    ///
    /// Takes no org: one statement serves all tenants, and returns each item's org beside it.
    ///
    /// Asked again after a lost answer: with the *same* token, answers the items that this token
    /// already holds, as they are, and claims nothing more; only if it holds none does it claim. The
    /// caller stops repeating a token once half a lease has passed since it first sent it, and counts
    /// its trust from that first sending.
    async fn claim(&self, request: &ClaimRequest) -> StoreResult<Vec<Claimed>>;

    /// Renews leases, and answers for each hold in the batch's order.
    ///
    /// Owed, per hold, in the condition of the write: right org, claimed, this token, lease not yet
    /// over. Then the lease ends `lease` after the store's now, and progress is stored if given.
    /// [`Renewed::CancelRequested`] extends the lease too. [`Renewed::Lost`] changes nothing.
    ///
    /// Takes no org of its own: each hold carries one.
    ///
    /// Asked again after a lost answer: a renewal may be repeated freely.
    async fn renew(&self, batch: &[Renewal]) -> StoreResult<Vec<Renewed>>;

    /// Ends claims, and answers for each hold in the batch's order. One conditional write each.
    ///
    /// Owed, per hold, in the condition of the write: right org, claimed, this token, and, where
    /// [`Transition::needs_live_lease`], a lease not yet over. The claim's fields are cleared, the
    /// token is remembered as the one that settled the row last, `updated_by` is nil. Then, as the
    /// table of [`crate::rules`] says:
    ///
    /// - complete: `done`; `result` stored; `last_error` kept.
    /// - retry, park, release: `queued`, available at now plus the delay; if a cancel was requested,
    ///   `failed` with code `cancelled` instead. Park and release give the attempt back.
    /// - a retry of an item that has no attempt left buries it: the row's own count decides, since a
    ///   claim that reached the store late may have raised it after the holder looked.
    /// - bury: `failed` with the failure's code; `audited_at` is empty until [`WorkStore::mark_audited`].
    /// - retry and bury add to `errors` (newest kept) and set `last_error`; park and release set
    ///   `last_error` to their note.
    ///
    /// After the commit, the lanes of items queued with no delay are hinted. A batch with one row
    /// that the store refuses fails whole with [`super::StoreError::Refused`]; the caller bisects it.
    ///
    /// Takes no org of its own: each hold carries one.
    ///
    /// Asked again after a lost answer: answers [`Settled::AlreadySettled`] for what landed, for as
    /// long as no later claim of the item was settled.
    async fn settle(&self, batch: &[Settlement]) -> StoreResult<Vec<Settled>>;

    /// Fails a claimed item whose org is gone, with code `orphaned`. `true` if this token held it.
    ///
    /// Takes no org: there is none left to act in. Conditional on claimed and token; an expired
    /// lease does not matter. Not a dead letter. Repeating it answers `false` and changes nothing.
    async fn fail_orphaned(&self, item: ItemId, token: ClaimToken) -> StoreResult<bool>;

    /// Up to `limit` orgs, in id order after `after`, with something due for maintenance: a claim
    /// whose lease is over, or a dead letter without its audit entry.
    ///
    /// Takes no org: it finds out which orgs to visit. Reads only.
    async fn maintenance_due(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgId>>;

    /// Moves up to `request.limit` items of the org whose lease is over, lowest id first.
    ///
    /// Owed, in the condition of the write itself and never on the strength of an earlier read:
    /// claimed and lease over. [`crate::rules::requeue`] decides: queued again (attempt spent,
    /// available after [`crate::rules::stagger`] by position), a dead letter with code
    /// `lease_expired`, or cancelled. `worker_losses` rises; the error is recorded; the claim's
    /// fields are cleared and its token is *not* remembered as having settled. Rows that another
    /// transaction holds are skipped. Afterwards lanes with items due at once are hinted.
    ///
    /// A full answer means: call again while the budget lasts. Repeating it is harmless; a dead letter
    /// whose answer was lost shows in [`WorkStore::unaudited`].
    async fn requeue_stale(&self, org: OrgId, request: &StaleRequest) -> StoreResult<Requeued>;

    /// As [`WorkStore::requeue_stale`] for an org that is gone: fails them as orphans. How many.
    async fn orphan_stale(&self, org: OrgId, limit: u32) -> StoreResult<u32>;

    /// Up to `limit` dead letters of the org whose audit entry is owed, lowest id first.
    async fn unaudited(&self, org: OrgId, limit: u32) -> StoreResult<Vec<WorkItem>>;

    /// Records that the audit entries of these dead letters are written.
    ///
    /// Conditional on failed and the given `claim_seq`, so that a retry in between is not marked.
    async fn mark_audited(&self, org: OrgId, items: &[(ItemId, i64)]) -> StoreResult<()>;

    /// Asks for an item to stop. `by` is the operator, written as `updated_by`.
    ///
    /// Owed, in one transaction: queued becomes failed with code `cancelled`; claimed has
    /// `cancel_requested_at` set, once, and its holder learns of it by its next renewal; a finished
    /// item is left alone: done beats cancel. Repeating it is harmless.
    async fn cancel(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Cancelled>;

    /// Puts a failed item back: queued and due now, `attempts` and `worker_losses` 0, `last_error`,
    /// failure code, cancel request and audit mark cleared; `errors` and `claim_seq` kept.
    ///
    /// Conditional on failed. Hints its lane. Repeating it answers [`Retried::NotFailed`].
    async fn retry(&self, org: OrgId, item: ItemId, by: UserId) -> StoreResult<Retried>;

    /// The item, if the org has it.
    async fn get(&self, org: OrgId, item: ItemId) -> StoreResult<Option<WorkItem>>;

    /// The item that holds the key in the org.
    async fn get_by_key(&self, org: OrgId, key: IdempotencyKey) -> StoreResult<Option<WorkItem>>;

    /// Items of the org that pass the filter, highest id first, at most [`LIST_MAX`] of them.
    ///
    /// Owed: one snapshot, and a call that looks at no more than [`LIST_READ_MAX`] items, however rare
    /// those are that pass; an implementor may look at all claims instead, which are as many as workers
    /// have room for. A page that ended there is short, or empty, and names where to go on.
    ///
    /// Going on until [`Listed::next`] is empty shows every item exactly once that was there and passed
    /// the filter from the first call to the last; one that came, ended or changed its status in between
    /// is shown once or not at all, and none is shown twice.
    async fn list(&self, org: OrgId, filter: &Filter, page: &Page) -> StoreResult<Listed>;

    /// What waits and what failed, across orgs.
    ///
    /// Takes no org: an operator's figures. Counts stop at [`COUNT_MAX`], so that a pass costs the
    /// same however deep the queue is. Reads only.
    async fn gauges(&self) -> StoreResult<Gauges>;

    /// Deletes up to `limit` finished items, of every org, not written for `retention`. How many.
    ///
    /// Takes no org: one bounded statement. Leaves queued and claimed items, and dead letters whose
    /// audit entry is owed. A full answer means: call again. The only hard delete of work items.
    async fn purge(&self, retention: Duration, limit: u32) -> StoreResult<u32>;

    /// Stops claims of the lane until resumed; repeating it replaces the reason and who gave it, and leaves
    /// since when.
    ///
    /// Takes no org: lanes are the installation's.
    async fn pause_lane(&self, lane: &Lane, reason: &ShortText, by: &ShortText) -> StoreResult<()>;

    /// Lets claims of the lane go on, and hints it. `false` if it was not paused.
    ///
    /// Takes no org: lanes are the installation's.
    async fn resume_lane(&self, lane: &Lane) -> StoreResult<bool>;

    /// The paused lanes and why.
    ///
    /// Takes no org: lanes are the installation's.
    async fn paused_lanes(&self) -> StoreResult<Vec<PausedLane>>;

    /// Begins to listen for hints about the lanes. From this call on, a hint is remembered until
    /// [`Hints::next`] takes it: subscribe before you look.
    ///
    /// Takes no org: hints carry no data. Hints may be lost, late, doubled or false.
    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints>;
}

/// A subscription to "there may be work now".
#[async_trait]
pub trait Hints: Send {
    /// Waits for a hint since the last one taken; any number of hints count as one.
    ///
    /// Safe to drop: an untaken hint stays for the next call. May wait for ever.
    async fn next(&mut self);
}

/// The fate of one enqueued row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It is new.
    Inserted(WorkItem),
    /// Its id was there; the stored row, untouched.
    IdExists(WorkItem),
    /// Its key was there under another id; the stored row, untouched.
    KeyExists(WorkItem),
    /// Its id belongs to another org. Mint another.
    IdTaken,
}

impl Enqueued {
    /// The row that is stored for it, unless its id is another org's.
    pub const fn stored(&self) -> Option<&WorkItem> {
        match self {
            Self::Inserted(item) | Self::IdExists(item) | Self::KeyExists(item) => Some(item),
            Self::IdTaken => None,
        }
    }
}

/// What a worker asks for when it claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Minted by the worker, fresh for each statement; the same again only to repeat it.
    pub token: ClaimToken,
    /// Who will hold the items, for people.
    pub worker: WorkerId,
    /// Which lanes. None: nothing is claimed.
    pub lanes: Vec<Lane>,
    /// Which kinds the worker knows. None: nothing is claimed.
    pub kinds: Vec<Kind>,
    /// How long the claim lasts unless renewed.
    pub lease: Duration,
    /// At most so many items.
    pub limit: u32,
    /// At most so many claims per org and lane, others' included.
    pub tenant_cap: Option<u32>,
}

/// An item and the org it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The tenant.
    pub org_id: OrgId,
    /// Carries the token, the lease and the attempt.
    pub item: WorkItem,
}

/// One holder's hold on one item: what every conditional write compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold {
    /// The tenant.
    pub org_id: OrgId,
    /// The item.
    pub item_id: ItemId,
    /// The fence.
    pub token: ClaimToken,
}

/// One lease to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Whose.
    pub hold: Hold,
    /// From the store's now.
    pub lease: Duration,
    /// Stored along, if the handler reported any since.
    pub progress: Option<Progress>,
}

/// The answer to one [`Renewal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The lease goes on.
    Kept,
    /// The lease goes on, for stopping the run: a person cancelled the item.
    CancelRequested,
    /// The hold is gone. Stop at once; do not try again.
    Lost,
}

/// One claim to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Whose.
    pub hold: Hold,
    /// How.
    pub transition: Transition,
}

/// The answer to one [`Settlement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a conflict means that the run's result was refused"]
pub enum Settled {
    /// It was written.
    Settled(Ended),
    /// This very token had settled the item before: an answer was lost. Treat as success.
    AlreadySettled,
    /// The hold is stale; nothing was changed and no attempt was spent.
    Conflict,
}

/// What became of a settled item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Done.
    Done,
    /// Queued again.
    Queued,
    /// Failed for good; its audit entry is owed.
    DeadLetter,
    /// Failed as cancelled.
    Cancelled,
}

/// What the sweep asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleRequest {
    /// At most so many items.
    pub limit: u32,
    /// Recovered items become due spread over this.
    pub spread: Duration,
}

/// What [`WorkStore::requeue_stale`] moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requeued {
    /// Queued again.
    pub recovered: u32,
    /// Ended as cancelled.
    pub cancelled: u32,
    /// Dead letters, to be audited and counted.
    pub dead: Vec<WorkItem>,
}

impl Requeued {
    /// All rows moved.
    pub fn total(&self) -> u32 {
        self.recovered + self.cancelled + u32::try_from(self.dead.len()).unwrap_or(u32::MAX)
    }
}

/// The answer to a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It was queued and has ended.
    Ended(WorkItem),
    /// It is running; its holder will be told.
    Requested(WorkItem),
    /// It had ended before; nothing changed.
    AlreadyFinal(WorkItem),
    /// The org has no such item.
    NotFound,
}

/// The answer to a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retried {
    /// It is queued again.
    Queued(WorkItem),
    /// It is not failed; nothing changed.
    NotFailed(WorkItem),
    /// The org has no such item.
    NotFound,
}

/// Which items a list shows; each `None` leaves that open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// In this status.
    pub status: Option<Status>,
    /// On this lane.
    pub lane: Option<Lane>,
    /// Of this kind.
    pub kind: Option<Kind>,
}

impl Filter {
    /// Whether the item passes.
    pub fn passes(&self, item: &WorkItem) -> bool {
        self.status.is_none_or(|status| status == item.status)
            && self.lane.as_ref().is_none_or(|lane| *lane == item.lane)
            && self.kind.as_ref().is_none_or(|kind| *kind == item.kind)
    }
}

/// Which part of a list, by key: the part after `before` in descending id order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Only ids below this: [`Listed::next`] of the page before.
    pub before: Option<ItemId>,
    /// At most so many; [`LIST_MAX`] bounds it. A page of none is empty and has none after it.
    pub limit: u32,
}

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Highest id first.
    pub items: Vec<WorkItem>,
    /// Give this as [`Page::before`] to go on: the last item of a page that is full, otherwise the lowest
    /// id that was looked at. Empty once there is nothing left to look at.
    pub next: Option<ItemId>,
}

impl Listed {
    /// The page of at most `limit` of these, where `looked_to` is the lowest id that was looked at if
    /// there may be more below it.
    pub fn new(items: Vec<WorkItem>, limit: u32, looked_to: Option<ItemId>) -> Self {
        let is_full = items.len() >= limit as usize;
        let last = items.last().map(|item| item.id);
        let next = if is_full { last } else { looked_to };
        Self { items, next }
    }
}

/// No list answers more rows: a page for people, and a bound for memory.
pub const LIST_MAX: u32 = 1_000;

/// No list looks at more items to find those that it answers: some tens of milliseconds for a database.
pub const LIST_READ_MAX: u32 = 10_000;

/// Gauges count no further than this, and say so by reaching it.
pub const COUNT_MAX: u64 = 100_000;

/// Figures across orgs at one moment of the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauges {
    /// The store's now.
    pub now: Timestamp,
    /// Each lane that holds a queued or claimed item.
    pub lanes: Vec<LaneGauge>,
    /// Dead letters: failed, and neither cancelled nor orphaned. At most [`COUNT_MAX`].
    pub dead: u64,
    /// Claims whose lease is over. At most [`COUNT_MAX`].
    pub expired: u64,
}

/// One lane's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneGauge {
    /// Which lane.
    pub lane: Lane,
    /// Queued and due. At most [`COUNT_MAX`].
    pub ready: u64,
    /// Queued and not yet due. At most [`COUNT_MAX`].
    pub delayed: u64,
    /// Claimed. At most [`COUNT_MAX`].
    pub claimed: u64,
    /// How long the oldest ready item has been due; zero when none is.
    pub oldest_age: Duration,
}

/// A lane that is not claimed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PausedLane {
    /// Which.
    pub lane: Lane,
    /// Why.
    pub reason: ShortText,
    /// Who paused it, for people.
    pub by: ShortText,
    /// Since when, by the store's clock.
    pub since: Timestamp,
}

/// The failure that the sweep records on a claim whose lease ran out.
pub fn lease_expired() -> Failure {
    Failure::own(
        crate::outcome::FailureCode::LEASE_EXPIRED,
        crate::rules::LEASE_EXPIRED_NOTE,
    )
}

#[cfg(test)]
mod tests;
