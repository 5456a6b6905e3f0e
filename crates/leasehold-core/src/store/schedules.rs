//! The promises about schedules: one item per tick, however many workers look.

use std::fmt::Debug;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreResult;
use crate::ids::{IdempotencyKey, OrgId, ScheduleId};
use crate::item::NewItem;
use crate::json::JsonObject;
use crate::names::{Kind, Lane};

/// Schedules and how far each has come.
#[async_trait]
pub trait ScheduleStore: Send + Sync + Debug {
    /// Writes or replaces the definition; `last_tick` of one that is there stays.
    async fn put_schedule(&self, org: OrgId, schedule: &Schedule) -> StoreResult<()>;

    /// Deletes it; its items stay. `false` if there was none.
    async fn remove_schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<bool>;

    /// The org's schedules in id order, at most `limit`.
    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>>;

    /// Up to `limit` schedules of all orgs in id order after `after`.
    ///
    /// Takes no org: the sweep finds out here which are due, by the expression and `last_tick`.
    async fn all_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<Vec<(OrgId, Schedule)>>;

    /// Moves `last_tick` from `from` to `to` and enqueues `items`, in one transaction. `false`, and
    /// nothing written, if `last_tick` is not `from`: somebody else was first, which is no error.
    ///
    /// An item whose key is taken changes nothing, as in `WorkStore::enqueue`. Hints the lanes.
    async fn advance(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        from: Option<Timestamp>,
        to: Timestamp,
        items: Vec<NewItem>,
    ) -> StoreResult<bool>;
}

/// A schedule as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// For people; unique in the org.
    pub name: String,
    /// What its ticks enqueue.
    pub kind: Kind,
    /// Where.
    pub lane: Lane,
    /// With what.
    pub payload: JsonObject,
    /// When, in the runtime's own notation: the store does not read it.
    pub expression: String,
    /// The last tick that was enqueued.
    pub last_tick: Option<Timestamp>,
}

/// The key of the item of one tick: the same for every worker that enqueues it.
pub fn tick_key(schedule: ScheduleId, tick: Timestamp) -> IdempotencyKey {
    let name = tick.as_microsecond().to_string();
    IdempotencyKey::new(uuid::Uuid::new_v5(&schedule.as_uuid(), name.as_bytes()))
}
