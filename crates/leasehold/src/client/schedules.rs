//! Schedules: declared by programs, and put, paused and run by people.

use std::collections::HashSet;

use leasehold_core::store::schedules::{Advance, Advanced, PutSchedule};
use leasehold_core::{ItemId, Permission, ScheduleId, ShortText, StoreError, WorkItem};

use super::{Client, ClientError};
use crate::audit::{self, Act};
use crate::schedule::{
    Missed, NAME_RULE, Overlap, Schedule, ScheduleDefinition, Timing, is_name, plain_item,
    timing_of,
};
use crate::work::Work;

/// Enough for every org of sense, and a bound for a list.
const SCHEDULES_MAX: u32 = 10_000;

/// Somebody else was first so often: the schedule changes faster than it can be read.
const TRIES_MAX: u32 = 20;

/// What became of the schedules that a program declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "whoever declares less than before wants to know what goes on all the same"]
pub struct Declared {
    /// Those that are new or changed, by name.
    pub put: Vec<String>,
    /// Those that were declared under the same owner once, and are not now. They go on until somebody removes
    /// them.
    pub undeclared: Vec<Schedule>,
}

/// What came of a wish to run a schedule now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "whether an item was made"]
pub enum RunNow {
    /// The item.
    Made(Box<WorkItem>),
    /// None: the schedule's items do not overlap, and this one is unfinished.
    Unfinished(ItemId),
    /// There is no such schedule.
    NotFound,
}

impl Client {
    /// A definition whose items are this work, on the lane and with the priority and attempts of its kind; to
    /// be changed and put or declared.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the payload or a name breaks its rule.
    pub fn schedule_of<W: Work>(
        &self,
        name: impl Into<String>,
        expression: impl Into<String>,
        work: &W,
    ) -> Result<ScheduleDefinition, ClientError> {
        let item = self.typed(work)?;
        let mut definition = ScheduleDefinition::new(name, expression, item.kind, item.payload);
        definition.lane = item.lane;
        definition.priority = item.priority;
        definition.max_attempts = item.max_attempts;
        Ok(definition)
    }

    /// Puts the schedules of a program, at its start. Safe to call from any number of processes at once; what
    /// is stored as declared is left alone, with its pause and how far it has come.
    ///
    /// Schedules that `owner` declared once and does not now are marked, logged and answered. They go on: two
    /// programs that share an owner by mistake must not switch off each other's work.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] and [`ClientError::Timing`] before anything is stored;
    /// [`ClientError::NotAuthorized`]; [`ClientError::Store`], after which some may be stored: ask again.
    pub async fn declare_schedules(
        &self,
        owner: &str,
        definitions: Vec<ScheduleDefinition>,
    ) -> Result<Declared, ClientError> {
        self.context.require(Permission::OperateWork)?;
        let mut checked = Vec::with_capacity(definitions.len());
        let mut names = HashSet::new();
        for definition in definitions {
            let (definition, timing) = self.checked(definition)?;
            if !names.insert(definition.name.clone()) {
                let name = definition.name;
                return Err(ClientError::Invalid(format!(
                    "two schedules are named {name:?}"
                )));
            }
            checked.push((definition, timing));
        }
        let mut declared = Declared::default();
        for (definition, timing) in checked {
            let stored = self.schedule(&definition.name).await?;
            let is_owned = |stored: &Schedule| stored.declared_by.as_deref() == Some(owner);
            if let Some(stored) = &stored {
                let is_same = stored.definition == definition && stored.undeclared_at.is_none();
                if is_owned(stored) && is_same {
                    continue;
                }
                if !is_owned(stored) {
                    let before = stored.declared_by.as_deref().unwrap_or("a person");
                    tracing::warn!(
                        schedule = definition.name,
                        owner,
                        before,
                        "a schedule has another owner now"
                    );
                }
            }
            declared.put.push(definition.name.clone());
            self.put(definition, &timing, Some(owner)).await?;
        }
        for stored in self.schedules().await? {
            let is_own = stored.declared_by.as_deref() == Some(owner);
            if is_own && !names.contains(&stored.definition.name) {
                let org = self.context.org_id();
                let store = &self.stores.schedules;
                store.mark_undeclared(org, stored.id, owner).await?;
                tracing::warn!(
                    schedule = stored.definition.name,
                    owner,
                    "a schedule is declared no more, and goes on until it is removed"
                );
                declared.undeclared.push(stored);
            }
        }
        Ok(declared)
    }

    /// Writes or replaces a schedule, as a person does. Audited.
    ///
    /// # Errors
    /// As [`Client::declare_schedules`].
    pub async fn put_schedule(&self, definition: ScheduleDefinition) -> Result<(), ClientError> {
        self.context.require(Permission::OperateWork)?;
        let (definition, timing) = self.checked(definition)?;
        self.put(definition, &timing, None).await
    }

    /// The schedule of that name.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn schedule(&self, name: &str) -> Result<Option<Schedule>, ClientError> {
        self.context.require(Permission::ReadWork)?;
        let org = self.context.org_id();
        let id = ScheduleId::of_name(org, name);
        Ok(self.stores.schedules.schedule(org, id).await?)
    }

    /// The org's schedules by name, ten thousand at most.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn schedules(&self) -> Result<Vec<Schedule>, ClientError> {
        self.context.require(Permission::ReadWork)?;
        let org = self.context.org_id();
        let mut found = self.stores.schedules.schedules(org, SCHEDULES_MAX).await?;
        found.sort_by(|one, other| one.definition.name.cmp(&other.definition.name));
        Ok(found)
    }

    /// Removes the schedule; its items stay. `false` if there is none. Audited.
    ///
    /// # Errors
    /// As [`Client::get`]; safe to ask again.
    pub async fn remove_schedule(&self, name: &str) -> Result<bool, ClientError> {
        let id = self.operated(name)?;
        let org = self.context.org_id();
        let removed = self.stores.schedules.remove_schedule(org, id).await?;
        if removed {
            self.audit_schedule("work.schedule.remove", id, name, None)
                .await;
        }
        Ok(removed)
    }

    /// Makes no more ticks of it until resumed; repeating it replaces the reason. `false` if there is none.
    /// Audited.
    ///
    /// # Errors
    /// As [`Client::get`]; safe to ask again.
    pub async fn pause_schedule(
        &self,
        name: &str,
        reason: &ShortText,
    ) -> Result<bool, ClientError> {
        let id = self.operated(name)?;
        let (org, by) = (self.context.org_id(), self.operator());
        let store = &self.stores.schedules;
        let paused = store.pause_schedule(org, id, reason, &by).await?;
        if paused {
            self.audit_schedule("work.schedule.pause", id, name, Some(reason))
                .await;
        }
        Ok(paused)
    }

    /// Makes ticks of it again from now on: those of the pause are not made up for. `false` if there is none
    /// or it was not paused. Audited.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ClientError::Timing`] if this build cannot read its expression.
    pub async fn resume_schedule(&self, name: &str) -> Result<bool, ClientError> {
        let id = self.operated(name)?;
        let Some(stored) = self.schedule(name).await? else {
            return Ok(false);
        };
        let timing = timing_of(&stored.definition)?;
        let next = timing.next_after(self.stores.work.now().await?);
        let org = self.context.org_id();
        let store = &self.stores.schedules;
        let resumed = store.resume_schedule(org, id, next).await?;
        if resumed {
            self.audit_schedule("work.schedule.resume", id, name, None)
                .await;
        }
        Ok(resumed)
    }

    /// Makes an item of it now, beside its ticks and also while it is paused; but not while its last item is
    /// unfinished, if its items do not overlap. Audited.
    ///
    /// # Errors
    /// As [`Client::get`]. After an error the item may have been made.
    pub async fn run_schedule_now(&self, name: &str) -> Result<RunNow, ClientError> {
        let id = self.operated(name)?;
        for _ in 0..TRIES_MAX {
            let Some(stored) = self.schedule(name).await? else {
                return Ok(RunNow::NotFound);
            };
            let now = self.clock.now();
            let item = self.stamped(plain_item(&stored.definition, now));
            let advance = Advance {
                schedule: id,
                revision: stored.revision,
                ticks: None,
                items: vec![item],
            };
            let org = self.context.org_id();
            match self.stores.schedules.advance(org, &advance).await? {
                Advanced::Made(fates) => {
                    let Some(item) = fates.first().and_then(|fate| fate.stored()) else {
                        return Err(StoreError::Failed("the store made no item".to_owned()).into());
                    };
                    self.audit_schedule("work.schedule.run", id, name, None)
                        .await;
                    return Ok(RunNow::Made(Box::new(item.clone())));
                }
                Advanced::Overlapping(item) => return Ok(RunNow::Unfinished(item)),
                Advanced::Late => {}
            }
        }
        Err(StoreError::Retry("the schedule changes all the time".to_owned()).into())
    }

    async fn put(
        &self,
        definition: ScheduleDefinition,
        timing: &Timing,
        owner: Option<&str>,
    ) -> Result<(), ClientError> {
        let org = self.context.org_id();
        let id = ScheduleId::of_name(org, &definition.name);
        let name = definition.name.clone();
        let put = PutSchedule {
            id,
            definition,
            declared_by: owner.map(str::to_owned),
            next_tick: timing.next_after(self.stores.work.now().await?),
        };
        self.stores.schedules.put_schedule(org, &put).await?;
        self.audit_schedule("work.schedule.put", id, &name, None)
            .await;
        Ok(())
    }

    /// The definition as it is stored, if it keeps its rules.
    fn checked(
        &self,
        mut definition: ScheduleDefinition,
    ) -> Result<(ScheduleDefinition, Timing), ClientError> {
        let name = &definition.name;
        if !is_name(name) {
            let name = leasehold_core::text::clip(name, 80);
            return Err(ClientError::Invalid(format!(
                "schedule name {name:?} is not valid: {NAME_RULE}"
            )));
        }
        if definition.overlap == Overlap::Skip && matches!(definition.missed, Missed::UpTo(_)) {
            return Err(ClientError::Invalid(format!(
                "schedule {name}: several missed ticks cannot be made at once where items must not overlap; \
                 choose missed once or skip, or overlap allow"
            )));
        }
        if let Missed::UpTo(ticks) = definition.missed
            && !(1..=Missed::UP_TO_MAX).contains(&ticks)
        {
            return Err(ClientError::Invalid(format!(
                "schedule {name}: up to {ticks} missed ticks; allow between 1 and {}",
                Missed::UP_TO_MAX
            )));
        }
        self.check(&plain_item(&definition, self.clock.now()))?;
        let timing = timing_of(&definition)?;
        // What stores keep, so that a declaration is found to be the one that is stored.
        let whole = |at: jiff::Timestamp| {
            jiff::Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
        };
        definition.starts_at = definition.starts_at.map(whole);
        definition.ends_at = definition.ends_at.map(whole);
        let micros = u64::try_from(definition.jitter.as_micros()).unwrap_or(u64::MAX);
        definition.jitter = std::time::Duration::from_micros(micros);
        Ok((definition, timing))
    }

    fn operated(&self, name: &str) -> Result<ScheduleId, ClientError> {
        self.context.require(Permission::OperateWork)?;
        Ok(ScheduleId::of_name(self.context.org_id(), name))
    }

    async fn audit_schedule(
        &self,
        kind: &str,
        id: ScheduleId,
        name: &str,
        reason: Option<&ShortText>,
    ) {
        let by = self.operator();
        let act = Act {
            name,
            by: by.as_str(),
            reason: reason.map(ShortText::as_str),
        };
        audit::act(&self.stores, &self.context, kind, id.as_uuid(), &act).await;
    }
}
