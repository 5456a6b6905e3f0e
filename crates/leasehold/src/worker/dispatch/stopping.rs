//! Stopping runs: who is asked to end, who is killed, and when a run counts as stuck.

use std::time::Duration;

use leasehold_core::rules;
use leasehold_core::{BootTime, Hold};

use super::{Action, Dispatch, DispatchSettings, State, StopReason, settling};

/// A drain under way.
pub(super) struct Drain {
    ask_at: BootTime,
    kill_at: BootTime,
    over_at: BootTime,
    has_asked: bool,
    has_killed: bool,
}

impl Drain {
    fn begun(now: BootTime, settings: &DispatchSettings) -> Self {
        let ask_at = now + settings.drain_finish;
        let kill_at = ask_at + settings.drain_timeout;
        Self {
            ask_at,
            kill_at,
            over_at: kill_at + settings.drain_kill,
            has_asked: false,
            has_killed: false,
        }
    }

    /// Asked for again: there is no more time to cooperate.
    fn hurry(&mut self, now: BootTime, after_kill: Duration) {
        self.ask_at = self.ask_at.min(now);
        self.kill_at = self.kill_at.min(now);
        self.over_at = self.over_at.min(now + after_kill);
    }

    pub(super) fn is_over(&self, now: BootTime) -> bool {
        now >= self.over_at
    }

    pub(super) const fn next_look(&self) -> BootTime {
        if self.has_killed {
            self.over_at
        } else if !self.has_asked {
            self.ask_at
        } else {
            self.kill_at
        }
    }
}

impl Dispatch {
    /// Stops the run for the reason, unless it is being stopped for a graver one already.
    pub(super) fn stop(
        &mut self,
        hold: Hold,
        reason: StopReason,
        now: BootTime,
        out: &mut Vec<Action>,
    ) {
        let grace = self.settings.stop_grace;
        let lease = self.settings.lease;
        let Some(run) = self.runs.get_mut(&hold) else {
            return;
        };
        match run.state {
            State::Waiting => {
                self.waiting.retain(|waiting| *waiting != hold);
                self.waiting_alone = self.waiting_alone.filter(|waiting| *waiting != hold);
                if reason == StopReason::LeaseLost {
                    self.drop_lost(hold, out);
                } else {
                    let jitter = self.chance.jitter();
                    let back = settling::stopped(reason, jitter, self.settings.requeue_spread);
                    self.write(hold, back, out);
                }
            }
            State::Running | State::Stopping if run.stop.is_none_or(|held| held < reason) => {
                // A graver reason does not prolong a stop; the time limit's own timer is no stop.
                let kill_by = run.timer.filter(|_| run.state == State::Stopping);
                run.stop = Some(reason);
                run.state = State::Stopping;
                out.push(Action::Cancel(hold, reason));
                let kill_at = match reason {
                    StopReason::LeaseLost => return self.kill(hold, now, out),
                    StopReason::LeaseDoubted => now + lease / 4,
                    StopReason::Cancel | StopReason::TimeLimit => {
                        out.push(Action::RenewUntil(hold, now + grace + lease / 2));
                        now + grace
                    }
                    // The drain's own limits say when it is killed.
                    StopReason::Drain => return self.clear_timer(hold),
                };
                self.set_timer(hold, kill_by.map_or(kill_at, |by| by.min(kill_at)));
            }
            // A killed run's lease is let go, so a doubt says nothing new: what it overran stays what it
            // is judged by, or a handler that always overruns would be handed back for ever.
            State::Killed | State::Stuck => {
                if reason == StopReason::LeaseLost {
                    run.stop = Some(reason);
                }
            }
            State::Running | State::Stopping | State::Settling(_) => {}
        }
    }

    fn kill(&mut self, hold: Hold, now: BootTime, out: &mut Vec<Action>) {
        let Some(run) = self.runs.get_mut(&hold) else {
            return;
        };
        if matches!(run.state, State::Running | State::Stopping) {
            run.state = State::Killed;
            out.push(Action::Kill(hold));
            self.set_timer(hold, now + self.settings.lease / 4);
        }
    }

    pub(super) fn fire_timers(&mut self, now: BootTime, out: &mut Vec<Action>) {
        while let Some((_, hold)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.clear_timer(hold);
            let Some(run) = self.runs.get_mut(&hold) else {
                continue;
            };
            match run.state {
                State::Running => self.stop(hold, StopReason::TimeLimit, now, out),
                State::Stopping => self.kill(hold, now, out),
                State::Killed => {
                    run.state = State::Stuck;
                    self.stuck += 1;
                    self.running_alone = self.running_alone.filter(|alone| *alone != hold);
                    out.push(Action::RenewUntil(hold, now));
                    out.push(Action::Stuck(hold));
                }
                State::Waiting | State::Stuck | State::Settling(_) => {}
            }
        }
    }

    /// With every slot lost, what waits for one is another worker's to run.
    pub(super) fn hand_back_if_all_stuck(&mut self, out: &mut Vec<Action>) {
        if self.stuck < self.settings.capacity {
            return;
        }
        let waiting: Vec<Hold> = self
            .waiting
            .drain(..)
            .chain(self.waiting_alone.take())
            .collect();
        for hold in waiting {
            self.write(
                hold,
                rules::hand_back("every slot of the worker is stuck"),
                out,
            );
        }
    }

    pub(super) fn drain(&mut self, now: BootTime, out: &mut Vec<Action>) {
        if let Some(drain) = &mut self.drain {
            drain.hurry(now, self.settings.drain_kill);
            return;
        }
        self.drain = Some(Drain::begun(now, &self.settings));
        // What has not begun goes back at once, however long those that run may take.
        let waiting: Vec<Hold> = self
            .runs
            .iter()
            .filter(|(_, run)| run.state == State::Waiting)
            .map(|(hold, _)| *hold)
            .collect();
        for hold in waiting {
            self.stop(hold, StopReason::Drain, now, out);
        }
        self.advance_drain(now, out);
    }

    pub(super) fn advance_drain(&mut self, now: BootTime, out: &mut Vec<Action>) {
        let Some(drain) = &mut self.drain else { return };
        if !drain.has_asked && now >= drain.ask_at {
            drain.has_asked = true;
            let holds: Vec<Hold> = self.holds().collect();
            for hold in holds {
                self.stop(hold, StopReason::Drain, now, out);
            }
        }
        let Some(drain) = &mut self.drain else { return };
        if drain.has_killed || now < drain.kill_at {
            return;
        }
        drain.has_killed = true;
        let holds: Vec<Hold> = self.holds().collect();
        for hold in holds {
            self.kill(hold, now, out);
        }
    }
}

/// What stands on an item that is handed back because its run was stopped.
pub(super) const fn note(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Drain => "worker stopping",
        StopReason::TimeLimit => "the run took too long",
        StopReason::Cancel => "cancelled",
        StopReason::LeaseDoubted => "the lease could not be kept in time",
        StopReason::LeaseLost => "the lease is gone",
    }
}
