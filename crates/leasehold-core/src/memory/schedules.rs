//! The promises about schedules.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{MemoryStore, State};
use crate::ids::{ItemId, OrgId, ScheduleId};
use crate::store::schedules::{
    Advance, Advanced, DueSchedules, Overlap, PutSchedule, Schedule, SchedulePause,
};
use crate::store::work::Enqueued;
use crate::store::{ScheduleStore, StoreError, StoreResult};
use crate::text::ShortText;

/// The schedules of every org.
#[derive(Default)]
pub(super) struct Schedules {
    schedules: BTreeMap<ScheduleId, (OrgId, Schedule)>,
}

impl Schedules {
    fn put(&mut self, org: OrgId, put: &PutSchedule) -> StoreResult<()> {
        let name = &put.definition.name;
        let is_taken = self.schedules.values().any(|(other_org, other)| {
            *other_org == org && other.definition.name == *name && other.id != put.id
        });
        if is_taken {
            return Err(StoreError::Refused(format!(
                "another schedule of the org is named {name:?}; choose another name"
            )));
        }
        match self.schedules.entry(put.id) {
            Entry::Vacant(vacant) => {
                let fresh = Schedule {
                    id: put.id,
                    definition: put.definition.clone(),
                    declared_by: put.declared_by.clone(),
                    undeclared_at: None,
                    paused: None,
                    next_tick: put.next_tick,
                    last_tick: None,
                    last_item: None,
                    revision: 1,
                };
                vacant.insert((org, fresh));
            }
            Entry::Occupied(mut occupied) => {
                let (owner, stored) = occupied.get_mut();
                if *owner != org {
                    return Err(StoreError::Refused(format!(
                        "the schedule id {} is taken; mint another",
                        put.id
                    )));
                }
                if !stored.definition.has_timing_of(&put.definition) {
                    stored.next_tick = put.next_tick;
                }
                stored.definition = put.definition.clone();
                stored.declared_by.clone_from(&put.declared_by);
                stored.undeclared_at = None;
                stored.revision += 1;
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

    /// Changes the org's schedule if `change` says so, and raises its revision then.
    fn change(
        &mut self,
        org: OrgId,
        id: ScheduleId,
        change: impl FnOnce(&mut Schedule) -> bool,
    ) -> bool {
        self.of_org(org, id).is_some_and(|schedule| {
            let is_changed = change(schedule);
            schedule.revision += i64::from(is_changed);
            is_changed
        })
    }
}

impl State {
    /// The item that a tick of the schedule has to wait for, if it must not overlap with it.
    fn in_the_way(&self, org: OrgId, schedule: &Schedule) -> Option<ItemId> {
        let skips = schedule.definition.overlap == Overlap::Skip;
        let last = schedule.last_item.filter(|_| skips)?;
        let item = self.work.item(org, last)?;
        (!item.status.is_final()).then_some(last)
    }
}

#[async_trait]
impl ScheduleStore for MemoryStore {
    async fn put_schedule(&self, org: OrgId, put: &PutSchedule) -> StoreResult<()> {
        self.call(|state, _| state.schedules.put(org, put))
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

    async fn schedule(&self, org: OrgId, schedule: ScheduleId) -> StoreResult<Option<Schedule>> {
        Ok(self.call(|state, _| state.schedules.of_org(org, schedule).cloned()))
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

    async fn due_schedules(
        &self,
        after: Option<ScheduleId>,
        limit: u32,
    ) -> StoreResult<DueSchedules> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.call(|state, now| {
            let all = &state.schedules.schedules;
            let tick = |schedule: &Schedule| match schedule.paused {
                Some(_) => None,
                None => schedule.next_tick,
            };
            let is_due = |schedule: &Schedule| tick(schedule).is_some_and(|tick| tick <= now);
            let rest = all.range((from, Bound::Unbounded));
            let due = rest.map(|(_, owned)| owned).filter(|one| is_due(&one.1));
            let coming = all.values().filter_map(|(_, schedule)| tick(schedule));
            DueSchedules {
                now,
                due: due.take(limit as usize).cloned().collect(),
                next: coming.filter(|tick| *tick > now).min(),
            }
        }))
    }

    async fn advance(&self, org: OrgId, advance: &Advance) -> StoreResult<Advanced> {
        Ok(self.call_and_hint(|state, now, lanes| {
            let stored = state.schedules.of_org(org, advance.schedule);
            let Some(stored) = stored.filter(|stored| {
                let may_move = advance.ticks.is_none() || stored.paused.is_none();
                stored.revision == advance.revision && may_move
            }) else {
                return Advanced::Late;
            };
            let mut moved = stored.clone();
            if let Some(ticks) = advance.ticks {
                moved.last_tick = Some(ticks.last);
                moved.next_tick = ticks.next;
                moved.revision += 1;
            }
            let answer = if let Some(last) = state.in_the_way(org, &moved) {
                Advanced::Overlapping(last)
            } else {
                let fates = state.work.enqueue(org, advance.items.clone(), now, lanes);
                if let Some(item) = fates.iter().rev().find_map(Enqueued::stored) {
                    moved.last_item = Some(item.id);
                    moved.revision = advance.revision + 1;
                }
                Advanced::Made(fates)
            };
            if let Some(stored) = state.schedules.of_org(org, advance.schedule) {
                *stored = moved;
            }
            answer
        }))
    }

    async fn pause_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        reason: &ShortText,
        by: &ShortText,
    ) -> StoreResult<bool> {
        Ok(self.call(|state, now| {
            state.schedules.change(org, schedule, |stored| {
                stored.paused = Some(SchedulePause {
                    reason: reason.clone(),
                    by: by.clone(),
                    since: stored.paused.as_ref().map_or(now, |pause| pause.since),
                });
                true
            })
        }))
    }

    async fn resume_schedule(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        next_tick: Option<Timestamp>,
    ) -> StoreResult<bool> {
        Ok(self.call(|state, _| {
            state.schedules.change(org, schedule, |stored| {
                let was_paused = stored.paused.take().is_some();
                if was_paused {
                    stored.next_tick = next_tick;
                }
                was_paused
            })
        }))
    }

    async fn mark_undeclared(
        &self,
        org: OrgId,
        schedule: ScheduleId,
        declared_by: &str,
    ) -> StoreResult<bool> {
        Ok(self.call(|state, now| {
            state.schedules.change(org, schedule, |stored| {
                let is_owner = stored.declared_by.as_deref() == Some(declared_by);
                let marks = is_owner && stored.undeclared_at.is_none();
                if marks {
                    stored.undeclared_at = Some(now);
                }
                marks
            })
        }))
    }
}
