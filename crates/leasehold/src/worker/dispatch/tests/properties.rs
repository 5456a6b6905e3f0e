//! What holds whatever happens in whatever order.

use leasehold_core::store::work::ClaimRequest;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Look,
    Hint,
    Answer(Vec<(u8, Sort)>),
    Lose,
    End(usize, u8),
    Settle(usize, u8),
    Loss(usize, u8),
    Drain,
    Jump,
}

#[derive(Debug, Clone, Copy)]
enum Sort {
    Plain,
    Limited,
    Poison,
    Foreign,
}

fn step() -> impl Strategy<Value = Step> {
    let sort = prop_oneof![
        4 => Just(Sort::Plain),
        2 => Just(Sort::Limited),
        1 => Just(Sort::Poison),
        1 => Just(Sort::Foreign),
    ];
    // Few items, so that the same one is claimed again while an older hold on it is around.
    let items = prop::collection::vec((0..6_u8, sort), 0..4);
    prop_oneof![
        6 => (0..2_500_u64).prop_map(Step::Wait),
        6 => Just(Step::Look),
        2 => Just(Step::Hint),
        8 => items.prop_map(Step::Answer),
        1 => Just(Step::Lose),
        6 => (any::<usize>(), 0..6_u8).prop_map(|(run, how)| Step::End(run, how)),
        6 => (any::<usize>(), 0..4_u8).prop_map(|(run, how)| Step::Settle(run, how)),
        3 => (any::<usize>(), 0..3_u8).prop_map(|(run, how)| Step::Loss(run, how)),
        1 => Just(Step::Drain),
        1 => Just(Step::Jump),
    ]
}

/// What the loop's surroundings know from its actions alone.
#[derive(Default)]
struct Seen {
    claiming: VecDeque<ClaimRequest>,
    held: BTreeSet<Hold>,
    running: BTreeMap<Hold, Arc<Claimed>>,
    killed: BTreeSet<Hold>,
    stuck: BTreeSet<Hold>,
    settling: BTreeSet<Hold>,
    gone: BTreeSet<Hold>,
}

impl Seen {
    fn take(&mut self, action: Action, dispatch: &Dispatch) -> Result<(), TestCaseError> {
        match action {
            Action::Claim(request) => {
                self.claiming.push_back(request);
                prop_assert!(self.claiming.len() <= 2, "two claims at a time");
                let asked: u32 = self.claiming.iter().map(|request| request.limit).sum();
                prop_assert!(
                    asked >= 1 && asked + dispatch.occupied() <= 5,
                    "room for all"
                );
            }
            Action::Hold { holds, .. } => self.held.extend(holds),
            Action::Start(claimed) => {
                let token = claimed.item.claim_token.unwrap();
                let hold = Hold {
                    org_id: claimed.org_id,
                    item_id: claimed.item.id,
                    token,
                };
                prop_assert!(!dispatch.is_draining(), "starts in a drain");
                prop_assert!(self.held.contains(&hold) && !self.settling.contains(&hold));
                let beside = |run: &Hold| run.item_id == hold.item_id && !self.stuck.contains(run);
                prop_assert!(
                    !self.running.keys().any(beside),
                    "runs beside an earlier run of its own"
                );
                let alone = leasehold_core::rules::runs_alone(&claimed.item);
                if alone {
                    // What is merely held would be lost with it as well.
                    let stuck = usize::try_from(dispatch.stuck()).unwrap();
                    prop_assert!(self.held.len() <= stuck + 1, "is not alone");
                }
                prop_assert!(self.running.insert(hold, claimed).is_none(), "starts twice");
            }
            Action::Cancel(hold, _) => prop_assert!(self.running.contains_key(&hold)),
            Action::Kill(hold) => {
                prop_assert!(self.running.contains_key(&hold));
                prop_assert!(self.killed.insert(hold), "killed twice");
            }
            Action::Stuck(hold) => {
                prop_assert!(self.killed.contains(&hold) && self.stuck.insert(hold));
            }
            Action::RenewUntil(hold, _) => prop_assert!(self.held.contains(&hold)),
            Action::Settle(settlement) => {
                prop_assert!(
                    !self.running.contains_key(&settlement.hold),
                    "settles a run"
                );
                prop_assert!(self.settling.insert(settlement.hold), "settles twice");
            }
            Action::Forget(hold) => {
                prop_assert!(!self.running.contains_key(&hold), "forgets a run");
                self.settling.remove(&hold);
                prop_assert!(self.held.remove(&hold) && self.gone.insert(hold));
            }
            Action::Bury(_) => {}
            Action::Note(_, hold, _) => prop_assert!(self.gone.contains(&hold)),
        }
        Ok(())
    }
}

fn item_of(number: u8, sort: Sort, token: ClaimToken) -> Claimed {
    let number = u128::from(number);
    let mut claimed = match sort {
        Sort::Plain => claimed(number, "PLAIN"),
        Sort::Limited => claimed(number, "LIMITED"),
        Sort::Poison => poison(number),
        Sort::Foreign => claimed(number, "FOREIGN"),
    };
    claimed.item.claim_token = Some(token);
    claimed
}

fn pick<T: Copy>(from: impl Iterator<Item = T>, at: usize) -> Option<T> {
    let all: Vec<T> = from.collect();
    (!all.is_empty()).then(|| all[at % all.len()])
}

fn event_of(step: Step, seen: &mut Seen) -> Option<Event> {
    Some(match step {
        Step::Wait(_) | Step::Look => Event::Tick,
        Step::Hint => Event::Hint,
        Step::Answer(items) => {
            let request = seen.claiming.pop_front()?;
            let mut claimed: BTreeMap<u8, Claimed> = BTreeMap::new();
            for (number, sort) in items.into_iter().take(request.limit as usize) {
                claimed.insert(number, item_of(number, sort, request.token));
            }
            let claimed = claimed.into_values().map(Arc::new).collect();
            Event::Claimed(request.token, Ok(claimed))
        }
        Step::Lose => {
            let request = seen.claiming.pop_back()?;
            Event::Claimed(request.token, Err(unavailable()))
        }
        Step::End(at, how) => {
            let hold = pick(seen.running.keys().copied(), at)?;
            seen.running.remove(&hold);
            let ending = match how {
                0 => Ending::Outcome(done()),
                1 => Ending::Outcome(failed()),
                2 => Ending::Outcome(parked()),
                3 => Ending::Outcome(refused()),
                4 => Ending::Outcome(released()),
                _ => Ending::Killed,
            };
            Event::Ended(hold, ending)
        }
        Step::Settle(at, how) => {
            let hold = pick(seen.settling.iter().copied(), at)?;
            let answer = match how {
                0 => SettleAnswer::Answered(Settled::Settled(Ended::Done)),
                1 => SettleAnswer::Answered(Settled::AlreadySettled),
                2 => SettleAnswer::Answered(Settled::Conflict),
                _ => SettleAnswer::GivenUp,
            };
            Event::Settled(hold, answer)
        }
        Step::Loss(at, how) => {
            let hold = pick(seen.held.iter().copied(), at)?;
            let loss = match how {
                0 => Loss::Refused,
                1 => Loss::Doubted,
                _ => Loss::CancelRequested,
            };
            Event::Loss(hold, loss)
        }
        Step::Drain => Event::Drain,
        Step::Jump => Event::ClockJumped,
    })
}

struct Play {
    dispatch: Dispatch,
    seen: Seen,
    now: u64,
}

impl Play {
    fn step(&mut self, event: Event) -> Result<(), TestCaseError> {
        let now = at(self.now);
        let mut out = Vec::new();
        self.dispatch.handle(now, event, &mut out);
        self.dispatch.advance(now, &mut out);
        for action in out {
            self.seen.take(action, &self.dispatch)?;
        }
        let (dispatch, seen) = (&self.dispatch, &self.seen);
        prop_assert!(
            dispatch.next_look() > now || dispatch.is_finished(now),
            "would look again at once, for ever"
        );
        prop_assert_eq!(dispatch.occupied() as usize, seen.running.len());
        prop_assert!(dispatch.stuck() <= dispatch.occupied());
        prop_assert!(dispatch.occupied() <= dispatch.settings.capacity);
        prop_assert_eq!(dispatch.holds().collect::<BTreeSet<_>>(), seen.held.clone());
        let timed = dispatch.runs.values().filter(|run| run.timer.is_some());
        prop_assert_eq!(timed.count(), dispatch.timers.len());
        Ok(())
    }

    /// Everything still under way ends well.
    fn come_to_rest(&mut self) -> Result<(), TestCaseError> {
        self.step(Event::Drain)?;
        while let Some(request) = self.seen.claiming.pop_front() {
            self.step(Event::Claimed(request.token, Ok(Vec::new())))?;
        }
        self.now += 10_000;
        self.step(Event::Tick)?;
        for hold in std::mem::take(&mut self.seen.running).into_keys() {
            // Taken out before the loop is told, as the surroundings would.
            let mut out = Vec::new();
            self.dispatch
                .handle(at(self.now), Event::Ended(hold, Ending::Killed), &mut out);
            for action in out {
                self.seen.take(action, &self.dispatch)?;
            }
        }
        for hold in self.seen.settling.clone() {
            self.step(Event::Settled(hold, SettleAnswer::GivenUp))?;
        }
        prop_assert!(self.dispatch.is_finished(at(self.now)));
        prop_assert_eq!(self.dispatch.held(), 0);
        prop_assert_eq!((self.dispatch.occupied(), self.dispatch.stuck()), (0, 0));
        prop_assert!(self.dispatch.timers.is_empty());
        prop_assert!(self.dispatch.waiting.is_empty() && self.dispatch.waiting_alone.is_none());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn the_loop_keeps_its_books_and_comes_to_rest(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut settings = settings();
        (settings.capacity, settings.prefetch, settings.claim_max) = (4, 1, 2);
        let dispatch = Dispatch::new(settings, Box::new(Plain(0)), at(0));
        let mut play = Play { dispatch, seen: Seen::default(), now: 0 };
        play.step(Event::Tick)?;
        for step in steps {
            if let Step::Wait(wait) = step {
                play.now += wait;
            }
            if let Some(event) = event_of(step, &mut play.seen) {
                play.step(event)?;
            }
        }
        play.come_to_rest()?;
    }
}
