//! Makes the ticks of schedules as they come. Part of the sweep, on a timer of its own: a tick is to be made
//! in time, and not with the next pass.
//!
//! Every worker looks: one statement says what is due and when the next tick comes, and the worker sleeps
//! until then. Of those that wake for the same tick one makes it, by the store's word; the others find nothing
//! to do. The store's clock decides what is due. A look is short, like an audit entry, and not counted among
//! the calls that a worker makes at once for long.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::schedules::{Advance, Advanced, DueSchedules, Schedule, Ticks};
use leasehold_core::time::age;
use leasehold_core::{
    App, Clock, OrgId, RequestContext, RequestId, ScheduleId, ShortText, StoreError, Stores,
    WorkerId,
};
use tokio_util::sync::CancellationToken;

use super::outages::Outages;
use crate::schedule::{come, tick_item, timing_of};
use crate::sweep::{Sweep, bounded};
use crate::telemetry::Metrics;
use crate::tenancy::{Tenancy, TenancyError};

/// How many schedules one look reads.
const PAGE: u32 = 100;
/// A round looks at no more pages than these: ten thousand schedules that are due at once. What is left is
/// looked at in the next round, which follows at once.
const PAGES_MAX: u32 = 100;
/// A schedule that is new or changed is noticed after this.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// After a look that failed.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// Workers that wait for the same tick do not all come in the same instant.
const STAGGER: Duration = Duration::from_millis(50);

pub(super) struct Ticker {
    stores: Stores,
    tenancy: Arc<dyn Tenancy>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    outages: Arc<Outages>,
    worker: WorkerId,
}

/// What became of one schedule that was due.
enum Fate {
    /// It is due no more, by us or by somebody else.
    Over,
    /// It stays due, and nothing can be done about it here.
    Left,
}

impl Ticker {
    /// With what the worker's sweep works with.
    pub(super) fn beside(sweep: &Sweep) -> Self {
        Self {
            stores: sweep.stores.clone(),
            tenancy: sweep.tenancy.clone(),
            clock: sweep.clock.clone(),
            metrics: sweep.metrics.clone(),
            outages: sweep.outages.clone(),
            worker: sweep.worker.clone(),
        }
    }

    /// Looks until told to stop. A tick that is being made then is made or not, never half.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut pause = STAGGER;
        // Schedules about which there is nothing new to say.
        let mut told = HashSet::new();
        loop {
            let stagger = STAGGER.mul_f64(fastrand::f64());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause + stagger) => {}
            }
            pause = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                pause = self.round(&mut told) => pause,
            };
        }
    }

    /// Makes what is due, and answers how long there is nothing to do.
    async fn round(&self, told: &mut HashSet<ScheduleId>) -> Duration {
        let mut after = None;
        let mut is_any_over = false;
        for _ in 0..PAGES_MAX {
            let began = self.clock.elapsed();
            let look = self.stores.schedules.due_schedules(after, PAGE);
            let Some(look) = self.keep(bounded(look).await, "due_schedules") else {
                return AFTER_ERROR;
            };
            let DueSchedules { now, due, next } = look;
            after = due.last().map(|(_, schedule)| schedule.id);
            let is_last = due.len() < PAGE as usize;
            for (org, schedule) in due {
                match self.make(org, &schedule, now, told).await {
                    Some(Fate::Over) => is_any_over = true,
                    Some(Fate::Left) => {}
                    None => return AFTER_ERROR,
                }
            }
            if !is_last {
                continue;
            }
            if is_any_over {
                // What was due then has its next tick now.
                is_any_over = false;
                after = None;
                continue;
            }
            let since = self.clock.elapsed().since(began);
            let until = next.map_or(LOOK_EVERY, |next| age(next, now));
            return until.min(LOOK_EVERY).saturating_sub(since);
        }
        Duration::ZERO
    }

    /// Makes the ticks of one schedule. `None`: the store could not.
    async fn make(
        &self,
        org: OrgId,
        schedule: &Schedule,
        now: Timestamp,
        told: &mut HashSet<ScheduleId>,
    ) -> Option<Fate> {
        let name = &schedule.definition.name;
        let timing = match timing_of(&schedule.definition) {
            Ok(timing) => timing,
            Err(error) => {
                // A worker of another build, or with newer zones, may know it.
                if told.insert(schedule.id) {
                    tracing::error!(schedule = name, %error, "a schedule cannot be read here");
                }
                return Some(Fate::Left);
            }
        };
        let Some(first) = schedule.next_tick else {
            return Some(Fate::Left);
        };
        let request = RequestContext::new(RequestId::mint(), App::worker(&self.worker));
        let context = async { Ok(self.tenancy.service_context(&request, org).await) };
        match bounded(context).await {
            Ok(Ok(_)) => {}
            Ok(Err(TenancyError::OrgGone(_))) => return self.stop_of_gone_org(org, schedule).await,
            Ok(Err(TenancyError::Store(error))) | Err(error) => {
                return self.keep(Err(error), "service_context");
            }
        }
        let come = come(&timing, schedule.definition.missed, first, now);
        let item = |tick: &Timestamp| {
            tick_item(schedule.id, &schedule.definition, *tick, request.request_id)
        };
        let advance = Advance {
            schedule: schedule.id,
            revision: schedule.revision,
            ticks: Some(Ticks {
                last: come.last,
                next: come.next,
            }),
            items: come.made.iter().map(item).collect(),
        };
        let answer = self.stores.schedules.advance(org, &advance);
        match self.keep(bounded(answer).await, "advance")? {
            Advanced::Made(fates) => {
                self.metrics.ticked("made", fates.len());
                if come.has_skipped {
                    self.metrics.ticked("skipped", 1);
                    tracing::warn!(
                        schedule = name,
                        from = %first,
                        to = %come.last,
                        made = fates.len(),
                        "ticks were missed, and not all are made up for"
                    );
                }
                for fate in &fates {
                    let item = fate.stored().map(|item| item.id.to_string());
                    tracing::debug!(schedule = name, item, "a tick was made");
                }
            }
            Advanced::Overlapping(item) => {
                self.metrics.ticked("overlapping", come.made.len());
                tracing::info!(schedule = name, %item, "a tick was passed over: the last item is unfinished");
            }
            Advanced::Late => tracing::debug!(schedule = name, "a tick is another worker's"),
        }
        Some(Fate::Over)
    }

    async fn stop_of_gone_org(&self, org: OrgId, schedule: &Schedule) -> Option<Fate> {
        let reason = ShortText::new("its org is gone");
        let by = ShortText::new(self.worker.as_str());
        let store = &self.stores.schedules;
        let paused = store.pause_schedule(org, schedule.id, &reason, &by);
        self.keep(bounded(paused).await, "pause_schedule")?;
        let name = &schedule.definition.name;
        tracing::warn!(schedule = name, %org, "a schedule was paused: its org is gone");
        Some(Fate::Over)
    }

    fn keep<T>(&self, answer: Result<T, StoreError>, step: &'static str) -> Option<T> {
        match answer {
            Ok(value) => {
                self.outages.answered(self.clock.elapsed());
                Some(value)
            }
            Err(error) => {
                self.metrics.store_error(step);
                self.outages.note_if(&error, self.clock.elapsed());
                tracing::warn!(%error, step, "ticks of schedules could not be made; trying again");
                None
            }
        }
    }
}
