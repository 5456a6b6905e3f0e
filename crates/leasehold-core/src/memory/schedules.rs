//! The promises about schedules.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use async_trait::async_trait;
use jiff::Timestamp;

use super::MemoryStore;
use crate::ids::{OrgId, ScheduleId};
use crate::item::NewItem;
use crate::store::schedules::Schedule;
use crate::store::{ScheduleStore, StoreError, StoreResult};

/// The schedules of every org.
#[derive(Default)]
pub(super) struct Schedules {
    schedules: BTreeMap<ScheduleId, (OrgId, Schedule)>,
}

impl Schedules {
    fn put(&mut self, org: OrgId, schedule: &Schedule) -> StoreResult<()> {
        let is_taken = self.schedules.values().any(|(other_org, other)| {
            *other_org == org && other.name == schedule.name && other.id != schedule.id
        });
        if is_taken {
            return Err(StoreError::Refused(format!(
                "another schedule of the org is named {:?}; choose another name",
                schedule.name
            )));
        }
        match self.schedules.entry(schedule.id) {
            Entry::Vacant(vacant) => {
                vacant.insert((org, schedule.clone()));
            }
            Entry::Occupied(mut occupied) => {
                let (owner, stored) = occupied.get_mut();
                if *owner != org {
                    return Err(StoreError::Refused(format!(
                        "the schedule id {} is taken; mint another",
                        schedule.id
                    )));
                }
                *stored = Schedule {
                    last_tick: stored.last_tick,
                    ..schedule.clone()
                };
            }
        }
        Ok(())
    }

    fn of_org(&mut self, org: OrgId, id: ScheduleId) -> Option<&mut Schedule> {
        self.schedules
            .get_mut(&id)
            .filter(|(owner, _)| *owner == org)
            .map(|(_, schedule)| schedule)
    }
}

#[async_trait]
impl ScheduleStore for MemoryStore {
    async fn put_schedule(&self, org: OrgId, schedule: &Schedule) -> StoreResult<()> {
        self.call(|state, _| state.schedules.put(org, schedule))
    }

    async fn remove_schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<bool> {
        Ok(self.call(|state, _| {
            let is_there = state.schedules.of_org(org, schedule).is_some();
            if is_there {
                state.schedules.schedules.remove(&schedule);
            }
            is_there
        }))
    }

    async fn schedules(&self, org: OrgId, limit: u32) -> StoreResult<Vec<Schedule>> {
        Ok(self.call(|state, _| {
            let all = state.schedules.schedules.values();
            let own = all
                .filter(|(owner, _)| *owner == org)
                .map(|(_, schedule)| schedule);
            own.take(limit as usize).cloned().collect()
        }))
    }

    async fn all_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<Vec<(OrgId, Schedule)>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.call(|state, _| {
            let rest = state.schedules.schedules.range((from, Bound::Unbounded));
            rest.take(limit as usize)
                .map(|(_, owned)| owned.clone())
                .collect()
        }))
    }

    async fn advance(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        from: Option<Timestamp>,
        to: Timestamp,
        items: Vec<NewItem>,
    ) -> StoreResult<bool> {
        Ok(self.call_and_hint(|state, now, lanes| {
            match state.schedules.of_org(org, schedule) {
                Some(stored) if stored.last_tick == from => stored.last_tick = Some(to),
                _ => return false,
            }
            state.work.enqueue(org, items, now, lanes);
            true
        }))
    }
}
