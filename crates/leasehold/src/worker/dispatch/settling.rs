//! Endings: what becomes of an item when its run is over, and what the store's answer means.

use std::collections::btree_map::Entry;
use std::time::Duration;

use leasehold_core::rules::{self, Transition};
use leasehold_core::store::work::{Ended, Settled, Settlement};
use leasehold_core::{Failure, FailureCode, Hold, Outcome};

use super::stopping::note;
use super::{
    Action, Dispatch, Ending, KindSettings, Run, SettleAnswer, State, StopReason, Verdict,
};

/// What a settle under way asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    Completion,
    Retry,
    Burial,
    Park,
    Release,
}

impl Wrote {
    const fn of(transition: &Transition) -> Self {
        match transition {
            Transition::Complete { .. } => Self::Completion,
            Transition::Retry { .. } => Self::Retry,
            Transition::Bury { .. } => Self::Burial,
            Transition::Park { .. } => Self::Park,
            Transition::Release { .. } => Self::Release,
        }
    }

    const fn verdict(self) -> Verdict {
        match self {
            Self::Completion => Verdict::Done,
            Self::Retry => Verdict::Retried,
            Self::Burial => Verdict::Dead,
            Self::Park => Verdict::Parked,
            Self::Release => Verdict::Released,
        }
    }
}

impl Dispatch {
    pub(super) fn ended(&mut self, hold: Hold, ending: Ending, out: &mut Vec<Action>) {
        let Some(run) = self.runs.get_mut(&hold).filter(|run| run.occupies()) else {
            return;
        };
        if let Some(at) = run.timer.take() {
            self.timers.remove(&(at, hold));
        }
        self.running_alone = self.running_alone.filter(|alone| *alone != hold);
        self.occupied -= 1;
        // A freed slot looks for work by itself, so that its speed does not depend on the poll.
        self.claim.wake();
        if run.state == State::Stuck {
            self.stuck -= 1;
        }
        let kind = self.settings.kind(&run.claimed.item.kind);
        let jitter = self.chance.jitter();
        match conclude(run, kind, ending, jitter, self.settings.requeue_spread) {
            Some(transition) => run.write(hold, transition, out),
            None => self.drop_lost(hold, out),
        }
    }

    pub(super) fn settled(&mut self, hold: Hold, answer: SettleAnswer, out: &mut Vec<Action>) {
        let Entry::Occupied(entry) = self.runs.entry(hold) else {
            return;
        };
        let State::Settling(wrote) = entry.get().state else {
            return;
        };
        let run = entry.remove();
        let verdict = match answer {
            SettleAnswer::GivenUp => Verdict::GivenUp,
            SettleAnswer::Answered(Settled::Conflict) => Verdict::Conflict,
            SettleAnswer::Answered(Settled::Settled(Ended::Cancelled)) => Verdict::Cancelled,
            // Also where something else was asked for: the store had refused the run's data.
            SettleAnswer::Answered(Settled::Settled(Ended::DeadLetter)) => Verdict::Dead,
            SettleAnswer::Answered(Settled::Settled(_) | Settled::AlreadySettled) => {
                wrote.verdict()
            }
        };
        if self.settings.tenant_cap.is_some() {
            // Its org may have had its fill, and has room from here on.
            self.claim.wake();
        }
        out.push(Action::Forget(hold));
        out.push(Action::Note(run.claimed.clone(), hold, verdict));
        if verdict == Verdict::Dead {
            out.push(Action::Bury(run.claimed));
        }
    }

    pub(super) fn write(&mut self, hold: Hold, transition: Transition, out: &mut Vec<Action>) {
        if let Some(run) = self.runs.get_mut(&hold) {
            run.write(hold, transition, out);
        }
    }

    pub(super) fn drop_lost(&mut self, hold: Hold, out: &mut Vec<Action>) {
        if let Some(run) = self.runs.remove(&hold) {
            out.push(Action::Forget(hold));
            out.push(Action::Note(run.claimed, hold, Verdict::LeaseLost));
        }
    }
}

impl Run {
    fn write(&mut self, hold: Hold, transition: Transition, out: &mut Vec<Action>) {
        self.state = State::Settling(Wrote::of(&transition));
        out.push(Action::Settle(Settlement { hold, transition }));
    }
}

/// What the run's ending means, given why it was stopped; `None` if nothing may be written.
fn conclude(
    run: &Run,
    kind: KindSettings,
    ending: Ending,
    jitter: f64,
    spread: Duration,
) -> Option<Transition> {
    let settle = |outcome| rules::settle(&run.claimed.item, outcome, &kind.retry, jitter);
    let Some(reason) = run.stop else {
        return Some(match ending {
            Ending::Outcome(outcome) => settle(outcome),
            Ending::Killed => rules::hand_back("the run was killed"),
            Ending::Unbegun => rules::hand_back("the run did not begin"),
        });
    };
    let counts = |outcome: &Outcome| match reason {
        StopReason::Drain | StopReason::LeaseDoubted => matches!(
            outcome,
            Outcome::Done { .. } | Outcome::Parked { .. } | Outcome::Refused { .. }
        ),
        StopReason::TimeLimit | StopReason::Cancel => matches!(outcome, Outcome::Done { .. }),
        StopReason::LeaseLost => false,
    };
    match (reason, ending) {
        (StopReason::LeaseLost, _) => None,
        (_, Ending::Outcome(outcome)) if counts(&outcome) => Some(settle(outcome)),
        // It waited for a thread all the while: no attempt was made, and none of this worker's threads
        // is likely to be free at once.
        (StopReason::TimeLimit, Ending::Unbegun) => Some(Transition::Release {
            note: "the run did not begin in time".into(),
            delay: rules::HAND_BACK_DELAY_MIN,
        }),
        (StopReason::TimeLimit, _) => {
            let limit = kind.time_limit.unwrap_or_default();
            let message = format!("the run took longer than {limit:?}");
            let failure = Failure::own(FailureCode::TIMED_OUT, message);
            Some(settle(Outcome::failed(failure)))
        }
        (StopReason::Drain | StopReason::LeaseDoubted | StopReason::Cancel, _) => {
            Some(stopped(reason, jitter, spread))
        }
    }
}

/// Hands back what was stopped: at once, unless many others are likely to be handed back at this moment.
pub(super) fn stopped(reason: StopReason, jitter: f64, spread: Duration) -> Transition {
    if reason == StopReason::LeaseDoubted {
        Transition::Release {
            note: note(reason).into(),
            delay: spread.mul_f64(jitter.clamp(0.0, 1.0)),
        }
    } else {
        rules::hand_back(note(reason))
    }
}
