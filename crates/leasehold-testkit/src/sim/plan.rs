//! What a seed draws before anything happens: the set-up, and how hostile the surroundings are.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::worker::dispatch::{DispatchSettings, KindSettings};
use leasehold_core::item::Due;
use leasehold_core::rules::RetryPolicy;
use leasehold_core::time::later;
use leasehold_core::{ItemId, JsonObject, Kind, Lane, NewItem, OrgId, WorkerId};
use uuid::Uuid;

use super::dice::Dice;
use super::{Faults, Settings};

/// How the store's calendar moves besides running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Jumps {
    /// Not at all.
    None,
    /// Within what the second run of a fenced item is promised for: one step ahead within a lease, of
    /// less than half of it less the time a kill takes. Steps back are no danger.
    Bounded,
    /// By many leases, at any time. What rests on clocks is not checked then.
    Wild,
}

/// How often a thing happens, from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// A call fails and did not take place.
    pub(super) error: f64,
    /// A call takes place, and its answer is an error.
    pub(super) lost_answer: f64,
    /// A call is never answered, whether it took place or not.
    pub(super) black_hole: f64,
    /// A call is on its way for up to more than a lease.
    pub(super) slow: f64,
    /// A hint does not arrive.
    pub(super) lost_hint: f64,
    /// A step of a sweep does not take place, and the pass ends there.
    pub(super) broken_sweep: f64,
    /// A run takes its whole worker along.
    pub(super) poison: f64,
    /// A run that was killed goes on.
    pub(super) unkillable: f64,
}

/// One item to be enqueued.
pub(super) struct Planned {
    pub(super) after: Duration,
    pub(super) org: OrgId,
    pub(super) item: NewItem,
}

pub(super) struct Plan {
    pub(super) lease: Duration,
    pub(super) lanes: Vec<Lane>,
    /// At most so many claims per org and lane.
    pub(super) tenant_cap: Option<u32>,
    pub(super) workers: Vec<DispatchSettings>,
    pub(super) items: Vec<Planned>,
    /// How long faults go on.
    pub(super) active: Duration,
    /// How long the rest may take once they have stopped.
    pub(super) quiet: Duration,
    pub(super) jumps: Jumps,
    pub(super) rates: Rates,
    /// The longest pause between two blows to workers.
    pub(super) respite: Duration,
    /// The longest pause between two acts of operators.
    pub(super) idle_operators: Duration,
}

/// Runs of these are processes of their own, each under a warden.
pub(super) fn is_fenced(kind: &Kind) -> bool {
    kind.as_str().starts_with("FENCED")
}

impl Plan {
    pub(super) fn draw(dice: &mut Dice, settings: &Settings, now: Timestamp) -> Self {
        let lease = dice.between(Duration::from_secs(1), Duration::from_mins(1));
        let lanes: Vec<Lane> = (0..=dice.below(2))
            .map(|number| Lane::parse(&format!("lane{number}")).unwrap())
            .collect();
        let orgs: Vec<OrgId> = (0..=dice.below(3))
            .map(|_| OrgId::new(dice.uuid()))
            .collect();
        let kinds = kinds(dice, lease);
        let active = lease * 25;
        let jumps = match settings.faults {
            Faults::None => Jumps::None,
            Faults::All => dice.weigh(&[(4, Jumps::None), (3, Jumps::Bounded), (1, Jumps::Wild)]),
        };
        let rates = match settings.faults {
            Faults::None => Rates::NONE,
            Faults::All => Rates::draw(dice),
        };
        let tenant_cap = dice.happens(0.3).then(|| small(dice, 1, 3));
        let setups = (0..settings.workers)
            .map(|seat| worker(dice, seat, lease, &lanes, &kinds, tenant_cap))
            .collect();
        let names: Vec<Kind> = kinds.keys().cloned().collect();
        let items = (0..settings.items)
            .map(|number| Planned {
                after: dice.up_to(active * 9 / 10),
                org: dice.pick(&orgs),
                item: item(dice, number, lease, &lanes, &names, now),
            })
            .collect();
        Self {
            lease,
            lanes,
            tenant_cap,
            workers: setups,
            items,
            active,
            quiet: quiet(jumps, lease, settings.items),
            jumps,
            rates,
            respite: dice.between(lease / 4, lease * 4),
            idle_operators: dice.between(lease / 2, lease * 6),
        }
    }
}

/// Time for what is left of attempts, back-off, expiries and sweeps, twice of what any of thousands of
/// seeds has needed; for the items themselves, of which a cap may let run but one at a time; and for
/// the fixed pauses, which weigh on short leases. A calendar that was set back by many leases takes
/// that long to come to what was due.
fn quiet(jumps: Jumps, lease: Duration, items: usize) -> Duration {
    let items = u32::try_from(items).unwrap_or(u32::MAX);
    let running = (lease / 10).saturating_mul(items);
    match jumps {
        Jumps::None | Jumps::Bounded => lease * 12 + running + Duration::from_mins(1),
        Jumps::Wild => lease * 400 + running,
    }
}

impl Rates {
    fn draw(dice: &mut Dice) -> Self {
        // Each kind of fault is absent from a third of the seeds, so that the others are seen alone.
        let mut rate = |most: f64| {
            if dice.happens(0.33) {
                0.0
            } else {
                dice.share() * most
            }
        };
        Self {
            error: rate(0.08),
            lost_answer: rate(0.12),
            black_hole: rate(0.06),
            slow: rate(0.06),
            lost_hint: rate(1.0),
            broken_sweep: rate(0.3),
            poison: rate(0.03),
            unkillable: rate(0.6),
        }
    }

    /// Nothing goes wrong.
    pub(super) const NONE: Self = Self {
        error: 0.0,
        lost_answer: 0.0,
        black_hole: 0.0,
        slow: 0.0,
        lost_hint: 0.0,
        broken_sweep: 0.0,
        poison: 0.0,
        unkillable: 0.0,
    };
}

fn kinds(dice: &mut Dice, lease: Duration) -> BTreeMap<Kind, KindSettings> {
    let names = ["PLAIN", "LIMITED", "FENCED", "FENCED_LIMITED"];
    let kinds = names.into_iter().map(|name| {
        let limit = name
            .ends_with("LIMITED")
            .then(|| dice.between(lease / 4, lease * 2));
        let settings = KindSettings {
            retry: RetryPolicy {
                base: lease / 8,
                cap: lease * 2,
                jitter: 0.2,
            },
            time_limit: limit,
        };
        (Kind::parse(name).unwrap(), settings)
    });
    kinds.collect()
}

fn worker(
    dice: &mut Dice,
    seat: usize,
    lease: Duration,
    lanes: &[Lane],
    kinds: &BTreeMap<Kind, KindSettings>,
    tenant_cap: Option<u32>,
) -> DispatchSettings {
    let names: Vec<Kind> = kinds.keys().cloned().collect();
    // The first worker takes everything, so that nothing is left for nobody.
    let (lanes, known) = if seat == 0 {
        (lanes.to_vec(), names)
    } else {
        (dice.some_of(lanes), dice.some_of(&names))
    };
    DispatchSettings {
        worker: WorkerId::parse(&format!("w{seat}")).unwrap(),
        lanes,
        kinds: known
            .into_iter()
            .map(|kind| (kind.clone(), kinds[&kind]))
            .collect(),
        capacity: small(dice, 1, 4),
        prefetch: small(dice, 0, 2),
        claim_max: small(dice, 1, 4),
        lease,
        poll_interval: dice.between(lease / 8, lease),
        tenant_cap,
        requeue_spread: Duration::ZERO,
        stop_grace: dice.between(lease / 20, lease / 2),
        drain_finish: Duration::ZERO,
        drain_timeout: dice.between(lease / 10, lease * 2),
        drain_kill: dice.between(lease / 10, lease),
    }
}

fn item(
    dice: &mut Dice,
    number: usize,
    lease: Duration,
    lanes: &[Lane],
    kinds: &[Kind],
    now: Timestamp,
) -> NewItem {
    let due = match dice.below(4) {
        0 => Due::After(dice.up_to(lease * 4)),
        1 => Due::At(later(now, dice.up_to(lease * 25))),
        _ => Due::Now,
    };
    // Random in the upper half, so that ids come in no order; its number in the lower one.
    let number = u128::try_from(number).unwrap();
    let id = Uuid::from_u128(u128::from(dice.number()) << 64 | number);
    let mut item = NewItem::new(dice.pick(kinds), JsonObject::empty(), now);
    item.id = ItemId::new(id);
    item.idempotency_key = leasehold_core::IdempotencyKey::new(id);
    item.lane = dice.pick(lanes);
    item.priority = i16::try_from(dice.below(3)).unwrap() - 1;
    item.due = due;
    item.max_attempts = small(dice, 1, 5);
    item
}

fn small(dice: &mut Dice, least: u32, most: u32) -> u32 {
    least + u32::try_from(dice.below(u64::from(most - least) + 1)).unwrap()
}
