//! The order of events: work begins, one worker is killed, one is frozen, both are made up for, the
//! frozen one is let go and refused, everything is finished.
//!
//! Who is struck is not fixed: whoever holds items at the right moment. With a single file it is its
//! holder that is killed, then whoever took it over that is frozen, and the third that finishes it.
//!
//! A stopped process keeps what it has locked. One that is stopped in the middle of a write to the
//! SQLite file would keep all others from writing until it is let go: no lease can help there. So after
//! a stop it is tried whether others can still write; if not, the worker is let go at once and stopped
//! at another moment.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{ItemId, Status};

use super::crew::{self, Crew, State, Who};
use super::ledger::{Ledger, Tally, hashed};
use super::narrator::{Narrator, counted};
use super::plan::{LEASE, Plan, WORKERS};
use super::queue::Queue;
use super::report::{RENEWAL, Report};
use super::worker::Hashed;
use crate::failure::Failure;

/// How long is listened before the next look at the store.
const LOOK: Duration = Duration::from_millis(20);
/// As long, while a moment to strike is awaited.
const AIM: Duration = Duration::from_millis(4);

/// How long the frozen worker is kept after its items were recovered, so that others get to them.
const KEPT_FROZEN_MAX: Duration = Duration::from_secs(3);

/// How long a thawed worker may take to write, and a drain may take.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);

/// How long a result may take to follow a refused renewal.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(1);

/// How often a drained queue is asked whether it is.
const FINISH_LOOK: Duration = Duration::from_millis(100);

/// So many refused writes are named; the rest are counted.
const REFUSED_NAMED_MAX: usize = 4;

/// A demo that goes on.
pub(super) struct Story<'a> {
    crew: Crew,
    ledger: Ledger,
    queue: Queue<'a>,
    plan: &'a Plan,
    narrator: &'a Narrator,
    refused: Vec<Refusal>,
    drained: Vec<Drained>,
    silent: Vec<Who>,
}

struct Refusal {
    who: Who,
    item: ItemId,
    write: String,
}

struct Drained {
    who: Who,
    done: u64,
    refused: u64,
}

/// A worker that was struck, and what it held.
struct Struck {
    who: Who,
    held: Vec<(ItemId, i64)>,
    /// Whether its items were recovered, as far as was told.
    is_mended: bool,
}

/// What a demo came to.
#[derive(Debug)]
pub(super) struct Played {
    /// What the accounts come to.
    pub(super) tally: Tally,
    /// How many items of the killed worker were finished by others.
    pub(super) rescued_from_killed: usize,
    /// How many of the frozen one's.
    pub(super) rescued_from_frozen: usize,
    /// How many writes of the frozen worker the store refused, by its own metrics.
    pub(super) refused_frozen: u64,
    /// How many of the other, which a busy machine may have kept from renewing in time.
    pub(super) refused_other: u64,
    /// Whether the workers' own counts agree with the record.
    pub(super) counts_agree: bool,
    /// What was found out, in the order of paths.
    pub(super) hashed: Vec<Hashed>,
}

impl<'a> Story<'a> {
    pub(super) fn new(
        crew: Crew,
        ledger: Ledger,
        queue: Queue<'a>,
        plan: &'a Plan,
        narrator: &'a Narrator,
    ) -> Self {
        Self {
            crew,
            ledger,
            queue,
            plan,
            narrator,
            refused: Vec::new(),
            drained: Vec::new(),
            silent: Vec::new(),
        }
    }

    /// Plays it to its end.
    pub(super) async fn play(mut self) -> Result<Played, Failure> {
        self.begin().await?;
        let mut killed = self.kill_one().await?;
        self.turn(self.plan.between()).await?;
        let mut frozen = self.freeze_one(&mut killed).await?;
        self.recover(&mut killed, &mut frozen).await?;
        self.let_go(&frozen).await?;
        self.finish().await?;
        self.part().await?;
        self.close(&killed, &frozen).await
    }

    async fn begin(&mut self) -> Result<(), Failure> {
        while !self.crew.is_complete() {
            self.turn(LOOK).await?;
        }
        let everyone: Vec<String> = self
            .crew
            .all(State::Running)
            .map(|who| self.crew.introduction(who))
            .collect();
        self.narrator.say(&format!(
            "{} claim from it: at most {} each, under a lease of {} s",
            everyone.join(", "),
            counted(self.plan.capacity as usize, "item"),
            LEASE.as_secs()
        ));
        while self.ledger.accepted() < self.plan.warm_up() {
            self.turn(LOOK).await?;
        }
        Ok(())
    }

    async fn kill_one(&mut self) -> Result<Struck, Failure> {
        let who = self.aim(None).await?;
        self.crew.kill(who).await?;
        while !self.silent.contains(&who) {
            self.turn(LOOK).await?;
        }
        let held = self.held_by(who).await?;
        self.record_the_dead(who).await?;
        if held.is_empty() {
            return Err(Failure::failed("the worker was killed at a bad moment")
                .because("it held nothing just then, so there is nothing to rescue")
                .remedy("run the demo again; the machine is very busy"));
        }
        self.narrator.strike(&format!(
            "SIGKILL {} while it holds {}",
            crew::name(who),
            counted(held.len(), "item")
        ));
        Ok(Struck {
            who,
            held,
            is_mended: false,
        })
    }

    /// Freezes a worker that holds items and no lock.
    async fn freeze_one(&mut self, killed: &mut Struck) -> Result<Struck, Failure> {
        loop {
            let who = self.aim(Some(killed)).await?;
            self.crew.freeze(who).await?;
            let held = if self.queue.can_write().await? {
                self.held_by(who).await?
            } else {
                self.narrator.note(&format!(
                    "{} was stopped in the middle of a write: let go, to be stopped at another moment",
                    crew::name(who)
                ));
                Vec::new()
            };
            if !held.is_empty() {
                self.narrator.strike(&format!(
                    "SIGSTOP {} while it holds {}, which it goes on believing to be its own",
                    crew::name(who),
                    counted(held.len(), "item")
                ));
                return Ok(Struck {
                    who,
                    held,
                    is_mended: false,
                });
            }
            self.crew.thaw(who)?;
            self.turn(LOOK).await?;
        }
    }

    /// Waits until the leases of both are over and their items in other hands.
    async fn recover(&mut self, killed: &mut Struck, frozen: &mut Struck) -> Result<(), Failure> {
        while !(killed.is_mended && frozen.is_mended) {
            self.turn(LOOK).await?;
            self.look_after(killed).await?;
            self.look_after(frozen).await?;
        }
        let since = self.narrator.elapsed();
        while self.narrator.since(since) < KEPT_FROZEN_MAX {
            let finished = frozen
                .held
                .iter()
                .find_map(|(item, _)| Some((*item, self.ledger.finisher(*item)?)));
            if let Some((item, finisher)) = finished {
                self.narrator.mend(&format!(
                    "{} has finished {}, which {} held",
                    crew::name(finisher),
                    self.ledger.path(item),
                    crew::name(frozen.who)
                ));
                break;
            }
            self.turn(LOOK).await?;
        }
        Ok(())
    }

    async fn look_after(&mut self, struck: &mut Struck) -> Result<(), Failure> {
        if struck.is_mended || !self.is_out_of_its_hands(struck).await? {
            return Ok(());
        }
        struck.is_mended = true;
        let how = match self.crew.state(struck.who) {
            Some(State::Dead) => "killed",
            _ => "frozen",
        };
        self.narrator.mend(&format!(
            "the lease of the {how} {} is over: its {} recovered by the sweep",
            crew::name(struck.who),
            match struck.held.len() {
                1 => "item was".to_owned(),
                count => format!("{count} items were"),
            }
        ));
        Ok(())
    }

    async fn let_go(&mut self, frozen: &Struck) -> Result<(), Failure> {
        self.narrator.say(&format!(
            "SIGCONT {}: it wakes, and tries to finish what it held",
            crew::name(frozen.who)
        ));
        self.crew.thaw(frozen.who)?;
        let since = self.narrator.elapsed();
        let refusals = loop {
            self.turn(LOOK).await?;
            let refusals = self.refusals(frozen.who);
            let renewals = refusals.values().filter(|write| **write == RENEWAL).count();
            let missing = frozen.held.len().saturating_sub(refusals.len());
            let waited = self.narrator.since(since);
            // A run that was stopped by a refused renewal writes nothing more.
            let is_over = missing == 0 && (renewals == 0 || waited > RENEWAL_PATIENCE);
            if is_over || waited > WRITE_PATIENCE {
                break refusals;
            }
        };
        for (item, write) in refusals.iter().take(REFUSED_NAMED_MAX) {
            self.narrator.mend(&format!(
                "refused: the late {write} of {} for {}",
                crew::name(frozen.who),
                self.ledger.path(*item)
            ));
        }
        if refusals.len() > REFUSED_NAMED_MAX {
            let more = refusals.len() - REFUSED_NAMED_MAX;
            self.narrator.mend(&format!("refused: {more} more of them"));
        }
        Ok(())
    }

    /// What a worker wanted to write last of each item that it was refused.
    fn refusals(&self, who: Who) -> BTreeMap<ItemId, String> {
        let mut writes = BTreeMap::new();
        for refusal in self.refused.iter().filter(|refusal| refusal.who == who) {
            let write = writes
                .entry(refusal.item)
                .or_insert_with(|| refusal.write.clone());
            if *write == RENEWAL {
                write.clone_from(&refusal.write);
            }
        }
        writes
    }

    async fn finish(&mut self) -> Result<(), Failure> {
        while self.queue.left().await? > 0 {
            self.turn(FINISH_LOOK).await?;
        }
        self.narrator
            .say("nothing is left to do; the two workers drain and go");
        Ok(())
    }

    async fn part(&mut self) -> Result<(), Failure> {
        let leaving: Vec<Who> = self.crew.all(State::Running).collect();
        self.crew.dismiss();
        while !leaving.iter().all(|who| self.silent.contains(who)) {
            self.turn(LOOK).await?;
        }
        if self.crew.gone(WRITE_PATIENCE).await {
            Ok(())
        } else {
            Err(Failure::failed("a worker did not end well")
                .because("it was asked to drain, and ended with an error")
                .remedy("run the demo with -v to see what it says"))
        }
    }

    async fn close(self, killed: &Struck, frozen: &Struck) -> Result<Played, Failure> {
        let rows = self.queue.rows(None).await?;
        let rescued = |struck: &Struck| {
            let row = |id| rows.iter().find(|row| row.id == id);
            let is_rescued = |(id, fence): &&(ItemId, i64)| {
                row(*id).is_some_and(|row| row.status == Status::Done && row.claim_seq > *fence)
            };
            struck.held.iter().filter(is_rescued).count()
        };
        let refused = |by_frozen: bool| {
            let drained = self.drained.iter();
            let of_whom = drained.filter(|drained| (drained.who == frozen.who) == by_frozen);
            of_whom.map(|drained| drained.refused).sum()
        };
        let mut hashed: Vec<Hashed> = rows.iter().filter_map(hashed).collect();
        hashed.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(Played {
            tally: self.ledger.close(&rows, crew::name),
            rescued_from_killed: rescued(killed),
            rescued_from_frozen: rescued(frozen),
            refused_frozen: refused(true),
            refused_other: refused(false),
            counts_agree: self
                .drained
                .iter()
                .all(|drained| drained.done == self.ledger.accepted_from(drained.who)),
            hashed,
        })
    }

    /// Takes in what the workers say, for about as long as given.
    async fn turn(&mut self, pause: Duration) -> Result<(), Failure> {
        if self.narrator.elapsed() > self.plan.patience() {
            return Err(Failure::failed("the demo does not come to its end")
                .because(format!(
                    "{} of {} items are done after {} s",
                    self.ledger.accepted(),
                    self.ledger.len(),
                    self.narrator.elapsed().as_secs()
                ))
                .remedy("run it again on a less busy machine, or with -v to see where it stands"));
        }
        let until = self.narrator.elapsed() + pause;
        loop {
            let left = until.saturating_sub(self.narrator.elapsed());
            match self.crew.hear(left).await {
                Some((who, Some(report))) => self.take(who, report),
                Some((who, None)) => self.ended(who)?,
                None => break,
            }
            if left.is_zero() {
                break;
            }
        }
        let living = self.crew.all(State::Running).count();
        self.narrator.progress(
            self.ledger.accepted(),
            &format!("{living} of 3 workers run"),
        );
        Ok(())
    }

    fn take(&mut self, who: Who, report: Report) {
        match report {
            Report::Started { .. } => {}
            Report::Accepted { item } => self.ledger.accept(item, who),
            Report::Refused { item, write } => self.refused.push(Refusal { who, item, write }),
            Report::Drained { done, refused } => self.drained.push(Drained { who, done, refused }),
        }
    }

    fn ended(&mut self, who: Who) -> Result<(), Failure> {
        self.silent.push(who);
        match self.crew.state(who) {
            Some(State::Dead | State::Leaving) => Ok(()),
            _ => Err(
                Failure::failed(format!("{} ended before its time", crew::name(who)))
                    .because("nobody had asked it to; what it said stands above")
                    .remedy("run the demo with -v to see more"),
            ),
        }
    }

    /// Waits for a worker that has just taken something up, so that it still holds it when the signal
    /// arrives.
    async fn aim(&mut self, mut killed: Option<&mut Struck>) -> Result<Who, Failure> {
        let (young, old) = (self.plan.pace / 8, self.plan.pace * 3 / 8);
        loop {
            let mut fresh = [0_usize; WORKERS];
            for held in self.queue.held().await? {
                if let Some(who) = self.crew.who(&held.worker)
                    && self.crew.state(who) == Some(State::Running)
                    && (young..=old).contains(&held.age)
                {
                    fresh[who] += 1;
                }
            }
            let most = (0..fresh.len()).max_by_key(|who| fresh[*who]);
            if let Some(who) = most.filter(|who| fresh[*who] > 0) {
                return Ok(who);
            }
            self.turn(AIM).await?;
            if let Some(killed) = killed.as_deref_mut() {
                self.look_after(killed).await?;
            }
        }
    }

    /// What the store says a worker holds, with the fencing number of each hold.
    async fn held_by(&self, who: Who) -> Result<Vec<(ItemId, i64)>, Failure> {
        let held = self.queue.held().await?;
        let of_whom = held
            .iter()
            .filter(|held| self.crew.who(&held.worker) == Some(who));
        Ok(of_whom.map(|held| (held.item, held.fence)).collect())
    }

    async fn is_out_of_its_hands(&self, struck: &Struck) -> Result<bool, Failure> {
        for (item, fence) in &struck.held {
            if self.queue.is_held(*item, *fence).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts on record what the store holds as done by a worker that could not tell of it any more.
    async fn record_the_dead(&mut self, who: Who) -> Result<(), Failure> {
        let name = crew::name(who);
        for row in self.queue.rows(Some(Status::Done)).await? {
            let untold = self.ledger.finisher(row.id).is_none();
            if untold && hashed(&row).is_some_and(|hashed| hashed.worker == name) {
                self.ledger.accept(row.id, who);
            }
        }
        Ok(())
    }
}
