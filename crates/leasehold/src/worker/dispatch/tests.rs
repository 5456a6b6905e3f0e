use jiff::Timestamp;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Settled};
use leasehold_core::{
    Failure, FailureCode, ItemId, JsonObject, NewItem, OrgId, Outcome, StoreError,
};
use uuid::Uuid;

use super::*;

mod claiming;
mod draining;
mod properties;
mod settling;
mod stopping;

/// Milliseconds; divides by eight. The trust window is half of it.
const LEASE: u64 = 8_000;
const POLL: u64 = 3_000;
const GRACE: u64 = 500;
const TIME_LIMIT: u64 = 1_200;
const DRAIN_TIMEOUT: u64 = 5_000;
const DRAIN_KILL: u64 = 1_000;

/// All times are milliseconds after this moment.
const START: BootTime = BootTime::new(Duration::from_secs(100));

fn at(ms: u64) -> BootTime {
    START + Duration::from_millis(ms)
}

/// Tokens 1, 2, 3, …, and jitter that leaves every interval as it is.
struct Plain(u128);

impl Chance for Plain {
    fn token(&mut self) -> ClaimToken {
        self.0 += 1;
        ClaimToken::new(Uuid::from_u128(self.0))
    }

    fn jitter(&mut self) -> f64 {
        0.5
    }
}

fn settings() -> DispatchSettings {
    let mut kinds = BTreeMap::new();
    kinds.insert(Kind::parse("PLAIN").unwrap(), KindSettings::default());
    let limited = KindSettings {
        time_limit: Some(Duration::from_millis(TIME_LIMIT)),
        ..KindSettings::default()
    };
    kinds.insert(Kind::parse("LIMITED").unwrap(), limited);
    DispatchSettings {
        worker: WorkerId::parse("w1").unwrap(),
        lanes: vec![Lane::default()],
        kinds,
        capacity: 2,
        prefetch: 0,
        claim_max: 500,
        lease: Duration::from_millis(LEASE),
        poll_interval: Duration::from_millis(POLL),
        tenant_cap: None,
        requeue_spread: Duration::ZERO,
        stop_grace: Duration::from_millis(GRACE),
        drain_finish: Duration::ZERO,
        drain_timeout: Duration::from_millis(DRAIN_TIMEOUT),
        drain_kill: Duration::from_millis(DRAIN_KILL),
    }
}

/// An item as the store hands it out at its first attempt of three.
fn claimed(number: u128, kind: &str) -> Claimed {
    let new = NewItem {
        id: ItemId::new(Uuid::from_u128(number)),
        ..NewItem::new(
            Kind::parse(kind).unwrap(),
            JsonObject::empty(),
            Timestamp::UNIX_EPOCH,
        )
    };
    let mut item = new.into_row(Timestamp::UNIX_EPOCH);
    item.attempts = 1;
    Claimed {
        org_id: OrgId::SINGLE,
        item,
    }
}

/// At its last attempt, after it has lost a worker.
fn poison(number: u128) -> Claimed {
    let mut claimed = claimed(number, "PLAIN");
    claimed.item.attempts = claimed.item.max_attempts;
    claimed.item.worker_losses = 1;
    claimed
}

fn hold(item: u128, token: u128) -> Hold {
    Hold {
        org_id: OrgId::SINGLE,
        item_id: ItemId::new(Uuid::from_u128(item)),
        token: ClaimToken::new(Uuid::from_u128(token)),
    }
}

fn ended(item: u128, token: u128, outcome: Outcome) -> Event {
    Event::Ended(hold(item, token), Ending::Outcome(outcome))
}

fn done() -> Outcome {
    Outcome::done()
}

fn failed() -> Outcome {
    Outcome::failed(Failure::own(FailureCode::HANDLER_ERROR, "boom"))
}

fn parked() -> Outcome {
    Outcome::Parked {
        reason: "not yet".into(),
        resume_after: Duration::from_secs(5),
    }
}

fn refused() -> Outcome {
    Outcome::Refused {
        reason: "never".into(),
    }
}

fn released() -> Outcome {
    Outcome::Released {
        note: "not me".into(),
    }
}

fn settled(item: u128, token: u128, ended: Ended) -> Event {
    let answer = SettleAnswer::Answered(Settled::Settled(ended));
    Event::Settled(hold(item, token), answer)
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("cut off".to_owned())
}

/// A loop whose events and looks are given by hand, and whose actions are read as short lines.
struct Bench(Dispatch);

impl Bench {
    /// A loop whose first claim, token 1, is under way since 0.
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut DispatchSettings)) -> Self {
        let mut settings = settings();
        change(&mut settings);
        let mut bench = Self(Dispatch::new(settings, Box::new(Plain(0)), at(0)));
        assert_eq!(bench.look(0), ["claim #1 up to 2"]);
        bench
    }

    /// A loop that runs item 1 under token 1 since 10, in one of two slots.
    fn running(kind: &str) -> Self {
        let mut bench = Self::new();
        let actions = bench.answer(10, vec![claimed(1, kind)]);
        assert_eq!(actions, ["hold 1#1 from 0", "start 1"]);
        bench
    }

    /// Takes the event in, looks around, and answers what is to be done.
    fn tell(&mut self, ms: u64, event: Event) -> Vec<String> {
        let mut out = Vec::new();
        self.0.handle(at(ms), event, &mut out);
        self.0.advance(at(ms), &mut out);
        if !self.0.is_finished(at(ms)) {
            assert!(self.0.next_look() > at(ms), "looks again at once for ever");
        }
        out.iter().map(line).collect()
    }

    /// Answers the claim that has been under way for longest.
    fn answer(&mut self, ms: u64, items: Vec<Claimed>) -> Vec<String> {
        self.answer_of(self.under_way()[0], ms, items)
    }

    fn answer_of(&mut self, token: ClaimToken, ms: u64, items: Vec<Claimed>) -> Vec<String> {
        let items = items.into_iter().map(Arc::new).collect();
        self.tell(ms, Event::Claimed(token, Ok(items)))
    }

    /// As [`Bench::answer`], with an error.
    fn fail(&mut self, ms: u64, error: StoreError) -> Vec<String> {
        self.fail_of(self.under_way()[0], ms, error)
    }

    fn fail_of(&mut self, token: ClaimToken, ms: u64, error: StoreError) -> Vec<String> {
        self.tell(ms, Event::Claimed(token, Err(error)))
    }

    fn under_way(&self) -> Vec<ClaimToken> {
        self.0.claims_under_way().collect()
    }

    fn look(&mut self, ms: u64) -> Vec<String> {
        self.tell(ms, Event::Tick)
    }

    /// Looks when the loop wants to, until `until`, and answers when it did what.
    fn play(&mut self, until: u64) -> Vec<String> {
        let mut lines = Vec::new();
        while self.0.next_look() <= at(until) {
            let now = ms(self.0.next_look());
            lines.extend(self.look(now).iter().map(|line| format!("{now}: {line}")));
            if self.0.is_finished(at(now)) {
                lines.push(format!("{now}: finished"));
                break;
            }
        }
        lines
    }
}

fn ms(instant: BootTime) -> u64 {
    u64::try_from(instant.since(START).as_millis()).unwrap()
}

fn short(hold: &Hold) -> String {
    let item = hold.item_id.as_uuid().as_u128();
    let token = hold.token.as_uuid().as_u128();
    format!("{item}#{token}")
}

fn line(action: &Action) -> String {
    match action {
        Action::Claim(request) => {
            let token = request.token.as_uuid().as_u128();
            format!("claim #{token} up to {}", request.limit)
        }
        Action::Hold { holds, sent } => {
            let holds: Vec<String> = holds.iter().map(short).collect();
            format!("hold {} from {}", holds.join(" "), ms(*sent))
        }
        Action::Start(claimed) => format!("start {}", claimed.item.id.as_uuid().as_u128()),
        Action::Cancel(hold, reason) => format!("cancel {}: {}", short(hold), reason.name()),
        Action::Kill(hold) => format!("kill {}", short(hold)),
        Action::Settle(settlement) => {
            let text = match &settlement.transition {
                Transition::Complete { .. } => "done".to_owned(),
                Transition::Retry { failure, .. } => format!("retry: {}", failure.code),
                Transition::Bury { failure } => format!("bury: {}", failure.code),
                Transition::Park { reason, .. } => format!("park: {reason}"),
                Transition::Release { note, delay } => {
                    format!("release after {}: {note}", delay.as_millis())
                }
            };
            format!("settle {} {text}", short(&settlement.hold))
        }
        Action::Forget(hold) => format!("forget {}", short(hold)),
        Action::RenewUntil(hold, until) => format!("renew {} until {}", short(hold), ms(*until)),
        Action::Stuck(hold) => format!("stuck {}", short(hold)),
        Action::Bury(claimed) => format!("bury {}", claimed.item.id.as_uuid().as_u128()),
        Action::Note(_, hold, verdict) => format!("note {} {}", short(hold), verdict.name()),
    }
}
