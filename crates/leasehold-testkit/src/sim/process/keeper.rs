//! The keeper: renews in time, and stops runs whose lease is in danger.

use leasehold::worker::dispatch::Event as Heard;
use leasehold::worker::trust::Loss;
use leasehold_core::Hold;

use super::Renewing;
use crate::sim::World;
use crate::sim::agenda::{Turn, Who};
use crate::sim::store::Sabotage;
use crate::sim::wire::{Answer, Request, name};

/// How many renewals are under way at once, as the runtime has it.
const RENEWALS_MAX: usize = 8;

impl World {
    pub(super) fn keeper_turn(&mut self, who: Who) {
        let now = self.agenda.now;
        let lease = self.plan.lease;
        let Some(process) = self.process(who) else {
            return;
        };
        process.keeper_turn.at = None;
        let losses = process.leases.doubted(now);
        self.lost(who, losses);
        let Some(process) = self.process(who) else {
            return;
        };
        let has_room = process.renewing.len() < RENEWALS_MAX;
        if has_room {
            let mut batch = process.leases.due(now);
            let patience = process.leases.patience(&batch, now) * 2;
            for renewal in &mut batch {
                // A sabotaged keeper believes in longer leases than it asks for.
                renewal.lease = lease;
            }
            if !batch.is_empty() {
                let renewing = Renewing {
                    sent: now,
                    batch: batch.clone(),
                };
                let call = self.send(who, Request::Renew(batch), patience);
                if let Some(process) = self.process(who) {
                    process.renewing.insert(call, renewing);
                }
            }
        }
        let next = self
            .process(who)
            .and_then(|process| process.leases.next_look());
        let Some(next) = next else { return };
        if has_room && next <= now {
            self.violated(format!("the keeper of {} would spin", name(who)));
        }
        // Without room, what is due waits for an answer; a doubt does not.
        let soonest = if has_room { now } else { now + lease / 64 };
        let lag = self.dice.up_to(lease / 32);
        self.wake_keeper(who, next.max(soonest) + lag);
    }

    pub(super) fn renewed(&mut self, who: Who, renewing: Renewing, answer: Answer) {
        let now = self.agenda.now;
        let counts_from_answer = self.sabotage == Some(Sabotage::TrustFromAnswer);
        let Some(process) = self.process(who) else {
            return;
        };
        if let Answer::Renew(answers) = answer {
            let sent = if counts_from_answer {
                now
            } else {
                renewing.sent
            };
            let holds: Vec<Hold> = renewing.batch.iter().map(|renewal| renewal.hold).collect();
            let answers = holds.iter().copied().zip(answers);
            let losses = process.leases.answered(sent, answers);
            self.lost(who, losses);
            self.check_trust(who, &holds);
            self.push_deadlines(who, &holds);
        } else {
            process.leases.unanswered(renewing.batch);
        }
        self.wake_keeper(who, now);
    }

    /// The keeper stops the runs itself, and tells the loop.
    fn lost(&mut self, who: Who, losses: Vec<(Hold, Loss)>) {
        for (hold, loss) in losses {
            self.note(format_args!("{} keeper: {loss:?} {hold:?}", name(who)));
            self.report.count(match loss {
                Loss::Refused => "leases refused",
                Loss::Doubted => "leases doubted",
                Loss::CancelRequested => "cancels told",
            });
            if loss == Loss::Doubted && self.sabotage == Some(Sabotage::DoubtsUntold) {
                continue;
            }
            let latency = self.latency();
            self.stopped_by_keeper(who, &hold, loss);
            self.turn_run(who, &hold, latency, Turn::Cancelled);
            if loss == Loss::Refused {
                self.turn_run(who, &hold, latency, Turn::Killed);
            }
            let latency = self.latency();
            self.tell_loop(who, latency, Heard::Loss(hold, loss));
        }
    }
}
