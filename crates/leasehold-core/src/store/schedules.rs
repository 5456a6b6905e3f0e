//! The promises about schedules: one item per tick, however many workers look.
//!
//! A tick is an instant at which a schedule makes an item. The store keeps the next one as an instant and
//! never reads the expression: whoever moves a schedule says which tick comes next. Every write of a
//! schedule raises its `revision`, and a tick is made only over the revision that its maker has read, so
//! that of many makers one wins, and none makes a tick of a definition that has changed or was paused.

use std::fmt;
use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreResult;
use super::work::Enqueued;
use crate::ids::{IdempotencyKey, ItemId, OrgId, ScheduleId};
use crate::item::NewItem;
use crate::json::JsonObject;
use crate::names::{Kind, Lane, NameError};
use crate::text::ShortText;

/// Schedules and how far each has come.
#[async_trait]
pub trait ScheduleStore: Send + Sync + Debug {
    /// Writes or replaces a definition, and raises the revision.
    ///
    /// Of a schedule that is there, `last_tick`, `last_item` and a pause stay; the mark of being undeclared
    /// goes; `next_tick` stays unless the definition's timing differs
    /// ([`ScheduleDefinition::has_timing_of`]): a new expression begins with the given tick, and what the old
    /// one still owed is not made up for. A name that another schedule of the org has is refused, as is an id
    /// that another org has.
    ///
    /// Safe to repeat.
    async fn put_schedule(&self, org: OrgId, put: &PutSchedule) -> StoreResult<()>;

    /// Deletes it; its items stay. `false` if there was none.
    async fn remove_schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<bool>;

    /// The schedule, if the org has it.
    async fn schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<Option<Schedule>>;

    /// The org's schedules in id order, at most `limit`.
    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>>;

    /// Up to `limit` schedules of all orgs whose next tick has come by the store's clock, in id order after
    /// `after`; and when the first tick of any other comes. Paused ones are neither.
    ///
    /// Takes no org: one statement tells a worker what is due and how long it may sleep.
    async fn due_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<DueSchedules>;

    /// Moves the schedule and enqueues its items, in one transaction.
    ///
    /// Owed, decided under the lock of the schedule's row: nothing is written if the revision is not the given
    /// one, or if the schedule is paused and ticks are to be made ([`Advanced::Late`]). If the schedule's
    /// overlap is [`Overlap::Skip`] and its `last_item` is queued or claimed, the items are not enqueued, and
    /// the ticks, if any, count as made ([`Advanced::Overlapping`]). Otherwise the items are enqueued as by
    /// `WorkStore::enqueue`, the last of them becomes `last_item`, and their lanes are hinted after the commit.
    /// A crash in the middle leaves the schedule and the items as they were.
    ///
    /// Asked again after a lost answer: [`Advanced::Late`].
    async fn advance(&self, org: OrgId, advance: &Advance) -> StoreResult<Advanced>;

    /// Makes no more ticks until resumed, from the moment this has answered; repeating it replaces reason and
    /// name. `false` if there is no such schedule.
    async fn pause_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        reason: &ShortText,
        by: &ShortText,
    ) -> StoreResult<bool>;

    /// Makes ticks again, beginning with the given one: those that passed in the pause are not made up for.
    /// `false` if it was not paused.
    async fn resume_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        next_tick: Option<Timestamp>,
    ) -> StoreResult<bool>;

    /// Notes since when its declarer no longer declares it; it goes on. `false` if it is marked already, or
    /// declared by somebody else.
    async fn mark_undeclared(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        declared_by: &str,
    ) -> StoreResult<bool>;
}

/// What a schedule does, as people define it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleDefinition {
    /// For people; unique in the org.
    pub name: String,
    /// What its ticks enqueue.
    pub kind: Kind,
    /// Where.
    pub lane: Lane,
    /// With what.
    pub payload: JsonObject,
    /// Lower goes first.
    pub priority: i16,
    /// Claims that each item may have; at least 1.
    pub max_attempts: u32,
    /// When, in the runtime's own notation: the store does not read it.
    pub expression: String,
    /// In which time zone the expression is meant, by its IANA name.
    pub zone: String,
    /// No tick before; and what fixed intervals are counted from.
    pub starts_at: Option<Timestamp>,
    /// No tick after.
    pub ends_at: Option<Timestamp>,
    /// What becomes of ticks that nobody made in time.
    pub missed: Missed,
    /// What becomes of a tick while the last one's item is unfinished.
    pub overlap: Overlap,
    /// Each item is due up to this long after its tick: how long follows from schedule and tick.
    pub jitter: Duration,
}

impl ScheduleDefinition {
    /// A schedule on the default lane, in UTC, that makes up for missed ticks once and lets its items overlap.
    pub fn new(
        name: impl Into<String>,
        expression: impl Into<String>,
        kind: Kind,
        payload: JsonObject,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            lane: Lane::default(),
            payload,
            priority: 0,
            max_attempts: NewItem::MAX_ATTEMPTS,
            expression: expression.into(),
            zone: "UTC".to_owned(),
            starts_at: None,
            ends_at: None,
            missed: Missed::default(),
            overlap: Overlap::default(),
            jitter: Duration::ZERO,
        }
    }

    /// Whether both have their ticks at the same instants.
    pub fn has_timing_of(&self, other: &Self) -> bool {
        let timing = |one: &Self| (one.starts_at, one.ends_at);
        self.expression == other.expression
            && self.zone == other.zone
            && timing(self) == timing(other)
    }
}

/// What becomes of ticks that nobody made in time, because no worker ran or the store was out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Missed {
    /// They are gone. A tick is missed when it is more than a minute late.
    Skip,
    /// One item makes up for all of them: that of the latest tick.
    #[default]
    Once,
    /// The latest so many are all made.
    UpTo(u32),
}

impl Missed {
    /// More at once would be a flood, and a batch of the store.
    pub const UP_TO_MAX: u32 = 100;
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skip => f.pad("skip"),
            Self::Once => f.pad("once"),
            Self::UpTo(ticks) => f.pad(&format!("up-to-{ticks}")),
        }
    }
}

impl FromStr for Missed {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let rule = "use skip, once or up-to-N with N from 1 to 100";
        match text {
            "skip" => Ok(Self::Skip),
            "once" => Ok(Self::Once),
            text => text
                .strip_prefix("up-to-")
                .and_then(|ticks| ticks.parse().ok())
                .filter(|ticks| (1..=Self::UP_TO_MAX).contains(ticks))
                .map(Self::UpTo)
                .ok_or_else(|| NameError::new("policy for missed ticks", text, rule)),
        }
    }
}

/// What becomes of a tick while the item of the last one that made an item is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Overlap {
    /// It makes an item all the same.
    #[default]
    Allow,
    /// It makes none, and the schedule goes on to the next.
    Skip,
}

impl Overlap {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Overlap {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "allow" => Ok(Self::Allow),
            "skip" => Ok(Self::Skip),
            text => Err(NameError::new(
                "policy for overlapping ticks",
                text,
                "use allow or skip",
            )),
        }
    }
}

/// A schedule as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// What it does.
    pub definition: ScheduleDefinition,
    /// Which program declares it at each start; `None`: a person made it.
    pub declared_by: Option<String>,
    /// Since when its declarer no longer does.
    pub undeclared_at: Option<Timestamp>,
    /// Why it makes no ticks, if it is paused.
    pub paused: Option<SchedulePause>,
    /// The next tick to be made; `None` if there is none any more.
    pub next_tick: Option<Timestamp>,
    /// The last tick that is over, whether an item was made for it or not.
    pub last_tick: Option<Timestamp>,
    /// The item that was made last.
    pub last_item: Option<ItemId>,
    /// Rises with every write.
    pub revision: i64,
}

/// Why a schedule makes no ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePause {
    /// Why.
    pub reason: ShortText,
    /// Who paused it, for people.
    pub by: ShortText,
    /// Since when, by the store's clock.
    pub since: Timestamp,
}

/// A definition to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutSchedule {
    /// Which; [`ScheduleId::of_name`] gives every process the same.
    pub id: ScheduleId,
    /// What it does.
    pub definition: ScheduleDefinition,
    /// Which program declares it.
    pub declared_by: Option<String>,
    /// Its first tick, if it is new or its timing is.
    pub next_tick: Option<Timestamp>,
}

/// What a look at all schedules found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedules {
    /// The store's now.
    pub now: Timestamp,
    /// Those whose tick has come.
    pub due: Vec<(OrgId, Schedule)>,
    /// When the first tick of the others comes.
    pub next: Option<Timestamp>,
}

/// Ticks to be made, or one item beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// Of which schedule.
    pub schedule: ScheduleId,
    /// As it was read.
    pub revision: i64,
    /// The ticks that are over then; `None` for an item that a person asks for, which moves no tick and
    /// needs no schedule that goes on.
    pub ticks: Option<Ticks>,
    /// What they make.
    pub items: Vec<NewItem>,
}

/// How far a schedule has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    /// The last tick that is over.
    pub last: Timestamp,
    /// The one after it.
    pub next: Option<Timestamp>,
}

/// What came of an [`Advance`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "whether the items were made"]
pub enum Advanced {
    /// The schedule moved; the fates of the items, in order.
    Made(Vec<Enqueued>),
    /// The schedule moved, and its items were not made: this one, which was made last, is unfinished.
    Overlapping(ItemId),
    /// Nothing was written: somebody else was first, or the schedule was changed, paused or removed. No error.
    Late,
}

/// The key of the item of one tick: the same for every worker that enqueues it.
pub fn tick_key(schedule: ScheduleId, tick: Timestamp) -> IdempotencyKey {
    let name = tick.as_microsecond().to_string();
    IdempotencyKey::new(uuid::Uuid::new_v5(&schedule.as_uuid(), name.as_bytes()))
}
