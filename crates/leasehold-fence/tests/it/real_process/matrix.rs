//! Every way a run can come to its end, each with a tree that does not want to die: all of it is gone
//! before the lease's end, and nothing is left of what watched over it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::caller::{Caller, Note, Plan};
use crate::processes::{
    Holdings, Process, descendants_of, is_ours, now, reap_ours, take_in_orphans, until, within,
};
use crate::yard::{Outside, Yard, few_or};

/// A lease of tests: half of it is far longer than any kill takes, on a busy machine as well.
const LEASE: Duration = Duration::from_secs(3);

/// One round: a caller, its tree, and those between them.
struct Round {
    yard: Yard,
    caller: Caller,
    tree: Vec<Process>,
    warden: Process,
    spawner: Process,
    /// When nothing was left of the tree, and when its lease ended or would have, since boot.
    gone: Option<(Duration, Duration)>,
    /// Removed when the round is over.
    _outside: Option<Outside>,
}

impl Round {
    /// With control groups, or outside of them.
    fn begin(plan: Plan, outside: Option<Outside>) -> Self {
        let yard = Yard::new();
        let group = outside.as_ref().and_then(Outside::folder);
        let caller = Caller::start(&yard, LEASE, plan, group);
        let tree = yard.until_ready();
        let warden = Process::of(tree[0].parent).unwrap();
        let spawner = Process::of(warden.parent).unwrap();
        assert_eq!(warden.name, "fence-warden");
        assert_eq!(spawner.name, "fence-spawner");
        assert_eq!(spawner.parent, caller.pid());
        Self {
            yard,
            caller,
            tree,
            warden,
            spawner,
            gone: None,
            _outside: outside,
        }
    }

    /// Waits until nothing is left of the tree.
    fn until_gone(&mut self) -> (Duration, Duration) {
        if let Some(known) = self.gone {
            return known;
        }
        let gone = until(LEASE * 3, "nothing is left of the tree", || {
            let left = self.tree.iter().any(Process::is_there);
            (!left).then(now)
        });
        *self.gone.insert((gone, self.lease_end()))
    }

    /// Waits until the caller has noted how the tree ended, and that nothing was left of it then.
    fn ending(&self) -> String {
        until(LEASE * 3, "the caller hears of the end", || {
            self.caller.notes().into_iter().find_map(|note| match note {
                Note::Ended { ending, left } => {
                    assert_eq!(left, 0, "reported as {ending} with some of the tree left");
                    Some(ending)
                }
                _ => None,
            })
        })
    }

    /// It was not the deadline that ended the tree: that would have been later.
    fn assert_prompt(&mut self) {
        let (gone, end) = self.until_gone();
        let deadline = end.checked_sub(LEASE / 2).unwrap();
        assert!(gone < deadline, "it lived until its deadline");
    }

    fn assert_ending(&self, expected: &str) {
        assert_eq!(self.ending(), expected);
    }

    fn lease_end(&self) -> Duration {
        let notes = self.caller.notes().into_iter().rev();
        let mut pushed = notes.filter_map(|note| match note {
            Note::Pushed(sent) => Some(sent),
            _ => None,
        });
        pushed.next().unwrap() + LEASE
    }

    /// The caller goes, by itself if it lives, and nothing of the fence stays.
    fn end(mut self, is_alive: bool) {
        if is_alive {
            until(LEASE * 3, "the caller ends", || {
                self.caller.has_ended().then_some(())
            });
            let held = self.caller.notes().into_iter().find_map(|note| match note {
                Note::Held(before, after) => Some((before, after)),
                _ => None,
            });
            let (before, after) = held.expect("the caller holds what it held before");
            assert_eq!(before, after);
        }
        until(LEASE, "the spawner and the warden are gone", || {
            reap_ours();
            let both = [&self.warden, &self.spawner];
            (!both.into_iter().any(Process::is_there)).then_some(())
        });
        let beats = self.yard.beats();
        self.yard.assert_deserted();
        assert_eq!(beats, self.yard.beats());
    }
}

/// Plays the rounds of a case, some at once, with and without control groups, and prints the margins.
#[expect(clippy::print_stdout, reason = "the figures are for people")]
fn check(case: &str, plan: Plan, is_alive: bool, act: impl Fn(&mut Round) + Sync) {
    take_in_orphans();
    let before = Holdings::own();
    let rounds = few_or(3, 30);
    let at_once = few_or(3, 20).min(rounds);
    let next = AtomicUsize::new(0);
    let margins = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= rounds {
                        return;
                    }
                    let outside = number.is_multiple_of(2).then(Outside::new);
                    let mut round = Round::begin(plan, outside);
                    let began = now();
                    act(&mut round);
                    let (gone, end) = round.until_gone();
                    assert!(
                        gone < end,
                        "gone {:?} after the end of the lease",
                        gone.saturating_sub(end)
                    );
                    let margin = end.saturating_sub(gone).as_millis();
                    margins
                        .lock()
                        .unwrap()
                        .push((margin, gone.saturating_sub(began).as_millis()));
                    round.end(is_alive);
                }
            });
        }
    });
    reap_ours();
    before.assert_again();
    let margins = margins.into_inner().unwrap();
    let least = margins.iter().map(|(margin, _)| margin).min().unwrap();
    let longest = margins.iter().map(|(_, taken)| taken).max().unwrap();
    println!(
        "{case}: rounds={} margin={least}ms longest={longest}ms lease={}ms",
        margins.len(),
        LEASE.as_millis()
    );
}

#[test]
fn the_caller_is_killed() {
    check("caller killed", Plan::Keep, false, |round| {
        round.caller.kill();
        round.assert_prompt();
    });
}

#[test]
fn the_caller_is_frozen() {
    check("caller frozen", Plan::Keep, true, |round| {
        round.caller.signal(Signal::STOP);
        round.until_gone();
        round.caller.signal(Signal::CONT);
        round.assert_ending("LeaseLost");
    });
}

#[test]
fn the_caller_is_cut_off() {
    check("caller cut off", Plan::CutOff, true, |round| {
        round.caller.go();
        round.assert_ending("LeaseLost");
    });
}

#[test]
fn the_caller_asks_it_to_end() {
    check("terminated", Plan::Terminate, true, |round| {
        round.caller.go();
        round.assert_prompt();
        round.assert_ending("Killed");
    });
}

#[test]
fn the_caller_kills_it() {
    check("killed", Plan::Kill, true, |round| {
        round.caller.go();
        round.assert_prompt();
        round.assert_ending("Killed");
    });
}

#[test]
fn its_time_is_over() {
    check("time limit", Plan::Limit, true, |round| {
        round.assert_ending("TimedOut");
    });
}

#[test]
fn the_leader_leaves() {
    check("leader leaves", Plan::Leave, true, |round| {
        round.caller.go();
        round.assert_prompt();
        round.assert_ending("Exited { code: 0 }");
    });
}

#[test]
fn the_warden_is_killed() {
    check("warden killed", Plan::Keep, true, |round| {
        round.warden.signal(Signal::KILL);
        round.assert_ending("WardenLost");
    });
}

#[test]
fn the_warden_and_the_caller_are_killed() {
    check("warden and caller killed", Plan::Keep, false, |round| {
        round.warden.signal(Signal::KILL);
        round.caller.kill();
        round.assert_prompt();
    });
}

#[test]
fn the_caller_and_the_warden_are_killed() {
    check("caller and warden killed", Plan::Keep, false, |round| {
        round.caller.kill();
        // It may have done its work and gone, which is as good.
        if let Some(warden) = Pid::from_raw(round.warden.pid) {
            let _ = kill_process(warden, Signal::KILL);
        }
        round.assert_prompt();
    });
}

#[test]
fn the_spawner_is_killed() {
    check("spawner killed", Plan::Again, true, |round| {
        round.spawner.signal(Signal::KILL);
        until(LEASE, "the spawner is gone", || {
            (!round.spawner.is_there()).then_some(())
        });
        // The run goes on under its warden, and the next is started by another spawner.
        let beats = round.yard.beats();
        until(LEASE, "the tree goes on", || {
            let goes_on = round
                .yard
                .beats()
                .iter()
                .zip(beats)
                .all(|(now, then)| *now > then);
            goes_on.then_some(())
        });
        round.caller.go();
        round.assert_ending("Killed");
        let again = Note::Again("Exited { code: 5 }".to_owned());
        assert!(round.caller.notes().contains(&again));
    });
}

#[test]
fn every_process_of_the_fence_is_asked_to_end() {
    check("fence signalled", Plan::Keep, false, |round| {
        // As a service manager does that signals all of a service.
        let ours = descendants_of(round.caller.pid());
        let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
        for one in ours.iter().filter(|one| is_ours(one)) {
            // One that waits as a stage is no more than the command it may become.
            if one.name != "fence-stage" {
                for signal in signals {
                    one.signal(signal);
                }
            }
        }
        let beats = round.yard.beats();
        let ended = within(LEASE / 3, || (!round.warden.is_there()).then_some(()));
        assert!(ended.is_none(), "the warden heard what was not for it");
        assert_ne!(beats, round.yard.beats());
        round.caller.kill();
    });
}
