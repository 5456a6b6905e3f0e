//! Oracles about runs: who may start, who may believe that an item is its own, and what endings mean.

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{ClaimRequest, Claimed, Settlement};
use leasehold_core::{FailureCode, Hold};

use super::Running;
use crate::sim::World;
use crate::sim::agenda::Who;
use crate::sim::plan::Jumps;
use crate::sim::rows::Cause;
use crate::sim::wire::name;

impl World {
    /// Oracle: at most one process trusts a hold on an item, at any instant.
    pub(in crate::sim) fn check_trust(&mut self, who: Who, holds: &[Hold]) {
        if self.plan.jumps == Jumps::Wild {
            return;
        }
        let now = self.agenda.now;
        for hold in holds {
            let mine = self.workers[who.seat].process.as_ref();
            if !mine.is_some_and(|process| process.leases.is_trusted(hold, now)) {
                continue;
            }
            if let Some((other, theirs)) = self.trusted_besides(hold) {
                self.violated(format!(
                    "{} trusts {hold:?} while {} trusts {theirs:?}",
                    name(who),
                    name(other)
                ));
            }
        }
    }

    /// Who trusts another hold on the item than this one.
    fn trusted_besides(&self, hold: &Hold) -> Option<(Who, Hold)> {
        let now = self.agenda.now;
        let live = self
            .workers
            .iter()
            .filter_map(|worker| worker.process.as_ref());
        live.flat_map(|process| process.held.iter().map(move |held| (process, held)))
            .find(|(process, held)| {
                held.item_id == hold.item_id
                    && *held != hold
                    && process.leases.is_trusted(held, now)
            })
            .map(|(process, held)| (process.who, *held))
    }

    /// Oracles: when the store gives an item away, nobody trusts an older hold on it any more, and no
    /// org has more than its fill of a lane.
    pub(in crate::sim) fn claimed(&mut self, claimed: &Claimed, request: &ClaimRequest) {
        let hold = Hold {
            org_id: claimed.org_id,
            item_id: claimed.item.id,
            token: request.token,
        };
        self.observe(hold.org_id, hold.item_id, &Cause::Claim(request.token));
        let claims = self.rows.claims(hold.org_id, &claimed.item.lane);
        if self.plan.tenant_cap.is_some_and(|cap| claims > cap) {
            self.violated(format!("{hold:?} was claimed beyond its org's cap"));
        }
        if self.plan.jumps == Jumps::Wild {
            return;
        }
        if let Some((other, theirs)) = self.trusted_besides(&hold) {
            self.violated(format!(
                "{hold:?} was claimed while {} trusts {theirs:?}",
                name(other)
            ));
        }
    }

    /// Oracles: who starts trusts its hold, nobody else can be running the item, and an item that must
    /// run alone does.
    pub(in crate::sim) fn check_start(&mut self, who: Who, hold: &Hold, runs_alone: bool) {
        if let Some(words) = self.may_not_start(who, hold, runs_alone) {
            self.violated(format!("{} starts {hold:?} {words}", name(who)));
        }
    }

    fn may_not_start(&self, who: Who, hold: &Hold, runs_alone: bool) -> Option<String> {
        let process = self.workers[who.seat].process.as_ref()?;
        if !process.leases.is_trusted(hold, self.agenda.now) {
            return Some("without trusting it".to_owned());
        }
        // What is merely held would be lost along with one that must run alone.
        let stuck = usize::try_from(process.dispatch.stuck()).unwrap();
        let has_company = process.held.len() > stuck + 1;
        let alone = self
            .runs
            .values()
            .any(|run| run.who == who && run.runs_alone && !run.is_stuck);
        if alone || runs_alone && has_company {
            return Some("beside others, though one must run alone".to_owned());
        }
        let of_the_item = self
            .runs
            .values()
            .filter(|run| run.hold.item_id == hold.item_id);
        of_the_item.into_iter().find_map(|run| {
            let words = self.may_not_run_beside(run, who)?;
            Some(format!("while {} {words} {:?}", name(run.who), run.hold))
        })
    }

    /// Why the run of an item ought to have ended by the time somebody starts it again, if it ought to.
    fn may_not_run_beside(&self, run: &Running, starter: Who) -> Option<&'static str> {
        let now = self.agenda.now;
        let worker = &self.workers[run.who.seat];
        let process = worker
            .process
            .as_ref()
            .filter(|process| process.who == run.who);
        let is_trusted = process.is_some_and(|process| process.leases.is_trusted(&run.hold, now));
        let is_calm = now > worker.disturbed_until() + self.plan.lease * 2;
        if run.who == starter && !run.is_stuck {
            return Some("itself still runs");
        }
        match self.plan.jumps {
            Jumps::Wild => None,
            _ if is_trusted => Some("trusts and runs"),
            _ if run.is_fenced => Some("still executes, though fenced,"),
            Jumps::None if run.is_killable && is_calm => Some("was able to stop and still runs"),
            Jumps::None | Jumps::Bounded => None,
        }
    }

    /// Oracle: what a run ended in after its lease was lost is not taken for its own doing. An overrun
    /// is: it was stopped for that before its lease was let go.
    pub(in crate::sim) fn check_settle(&mut self, settlement: &Settlement) {
        let spends = match &settlement.transition {
            Transition::Retry { failure, .. } => failure.code.as_str() != FailureCode::TIMED_OUT,
            _ => false,
        };
        if spends && self.stopped.contains(&settlement.hold) {
            self.violated(format!(
                "a run that was stopped for its lease spends an attempt: {settlement:?}"
            ));
        }
    }
}
