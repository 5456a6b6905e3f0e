//! Trust: how long a holder may believe that its leases are its own.
//!
//! # Overview
//! A claim's lease is counted by the store's clock, which the holder cannot see. The holder counts
//! elapsed time instead, from the moment the last *accepted* request was **sent**: the store cannot
//! have begun the lease before that. A renewal is due after a quarter of the lease; trust ends after
//! half, so that a holder that cannot renew has stopped half a lease before anyone else may claim.
//!
//! # States of one lease
//! ```text
//!            claimed
//!               │
//!               ▼        accepted answer: counted from its sending
//!           trusted ◀──────────────┐
//!      quarter  │  ────────────────┘
//!       lease   │
//!               ├── refused ──────────▶ lost      (stop at once, never renew again)
//!               └── half a lease ─────▶ doubted   (stop; a hand-back may still count)
//! ```
//! Both ends are final: an answer that arrives later changes nothing, since stopping has begun.
//!
//! # Two holds on one item
//! A worker may hold an item twice: an older hold whose lease ran out, and a newer claim of the same
//! item. Each is kept under its own token until it is removed, so that the older run is stopped too.
//!
//! # Settling
//! An item whose settle is under way is still held: it is renewed. A refusal of its renewal is ignored,
//! because the settle may just have landed, and the settle's own answer decides. It is trusted no
//! more, for the same reason: nothing may be started on the strength of it.
//!
//! # Cancelling
//! The store tells of a requested cancel in the answer to a renewal. It is reported once; the lease is
//! renewed for as long as the run may take to end, one more lease's length at least, and no longer.
//!
//! Nothing here awaits or reads a clock: the keeper and the simulation drive the same code.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::rules::{renewal_due_after, trust_ends_after};
use leasehold_core::store::work::{Renewal, Renewed};
use leasehold_core::{BootTime, ClaimToken, Hold, ItemId, Progress};

/// Every lease that one worker holds.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<Key, Lease>,
    /// How long a run may take to end once it was told of a cancel.
    stop_grace: Duration,
}

/// In the order in which a store locks rows.
type Key = (ItemId, ClaimToken);

#[derive(Debug)]
struct Lease {
    hold: Hold,
    length: Duration,
    /// When the last accepted claim or renewal was sent.
    accepted: BootTime,
    /// Not renewed before this; `None` once it is renewed no more.
    renew_at: Option<BootTime>,
    standing: Standing,
    settling: bool,
    /// Not renewed from this on: the grace of a stop is over.
    renew_until: Option<BootTime>,
    cancel_told: bool,
    progress: Option<Progress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Trusted,
    Doubted,
    Lost,
}

/// Why a run has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The store refused a renewal: the hold is gone.
    Refused,
    /// No renewal was accepted for half a lease: the hold may be gone soon.
    Doubted,
    /// A person cancelled the item; the hold is intact.
    CancelRequested,
}

/// How long after a renewal that failed the next is tried: two tries fit before trust ends.
fn retry_after(lease: Duration) -> Duration {
    lease / 8
}

impl Leases {
    /// None held; a run told of a cancel may take so long to end.
    pub fn with_stop_grace(stop_grace: Duration) -> Self {
        Self {
            held: BTreeMap::new(),
            stop_grace,
        }
    }

    /// Takes up a lease whose claim was sent at `sent`.
    pub fn insert(&mut self, hold: Hold, length: Duration, sent: BootTime) {
        let lease = Lease {
            hold,
            length,
            accepted: sent,
            renew_at: Some(sent + renewal_due_after(length)),
            standing: Standing::Trusted,
            settling: false,
            renew_until: None,
            cancel_told: false,
            progress: None,
        };
        self.held.insert(key(&hold), lease);
    }

    /// Gives up a lease: its item was settled, or is left to expire. Another hold on the same item is
    /// left alone.
    pub fn remove(&mut self, hold: &Hold) {
        self.held.remove(&key(hold));
    }

    /// Notes that the item's settle is under way.
    pub fn settling(&mut self, hold: &Hold) {
        if let Some(lease) = self.held.get_mut(&key(hold)) {
            lease.settling = true;
        }
    }

    /// Renews no longer than until `instant`: a run that does not end must not hold its item for ever.
    /// Of several instants the earliest counts.
    pub fn renew_until(&mut self, hold: &Hold, instant: BootTime) {
        if let Some(lease) = self.held.get_mut(&key(hold)) {
            lease.limit(instant);
        }
    }

    /// Keeps the run's latest progress for the next renewal.
    pub fn report(&mut self, hold: &Hold, progress: Progress) {
        if let Some(lease) = self.held.get_mut(&key(hold)) {
            lease.progress = Some(progress);
        }
    }

    /// How many leases are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether the holder may still believe that the item is its own, and so start or go on with its
    /// run. Not while the item is being settled: that may have landed.
    pub fn is_trusted(&self, hold: &Hold, now: BootTime) -> bool {
        self.held
            .get(&key(hold))
            .is_some_and(|lease| !lease.settling && lease.is_trusted(now))
    }

    /// When trust in the hold ends unless another renewal is accepted: the warden's deadline.
    pub fn trusted_until(&self, hold: &Hold) -> Option<BootTime> {
        self.held.get(&key(hold)).map(Lease::trusted_until)
    }

    /// When the lease itself must be considered over: a settle is not retried beyond it.
    pub fn over_at(&self, hold: &Hold) -> Option<BootTime> {
        let lease = self.held.get(&key(hold))?;
        Some(lease.accepted + lease.length)
    }

    /// The renewals to send now, all in one statement, in id order; none if none is due.
    ///
    /// Once one is due, every lease past half of its own interval goes along: leases claimed at
    /// different moments fall into step. One so near the end of its trust that it would cut the
    /// statement's patience short for all does not.
    pub fn due(&mut self, now: BootTime) -> Vec<Renewal> {
        for lease in self.held.values_mut() {
            if lease.renew_until.is_some_and(|until| until <= now) {
                lease.renew_at = None;
            }
        }
        if !self.held.values().any(|lease| lease.is_due(now)) {
            return Vec::new();
        }
        let mut batch = Vec::new();
        for lease in self.held.values_mut() {
            if lease.is_due(now) || lease.goes_along(now) {
                lease.renew_from(now + retry_after(lease.length));
                batch.push(Renewal {
                    hold: lease.hold,
                    lease: lease.length,
                    progress: lease.progress.take(),
                });
            }
        }
        batch
    }

    /// How long a renewal that covers these leases may take: no longer than until the next try, nor
    /// than until the first of them is no longer trusted. Items that wait to be settled have no trust
    /// left to lose and do not hurry the others.
    pub fn patience(&self, batch: &[Renewal], now: BootTime) -> Duration {
        batch
            .iter()
            .map(|renewal| {
                let retry = retry_after(renewal.lease);
                match self.held.get(&key(&renewal.hold)) {
                    Some(lease) if lease.can_be_doubted() => {
                        lease.trusted_until().since(now).min(retry)
                    }
                    _ => retry,
                }
            })
            .min()
            .unwrap_or_default()
    }

    /// Takes the answers to a renewal sent at `sent`, and says which runs have to stop.
    pub fn answered(
        &mut self,
        sent: BootTime,
        answers: impl IntoIterator<Item = (Hold, Renewed)>,
    ) -> Vec<(Hold, Loss)> {
        let mut stops = Vec::new();
        let stop_grace = self.stop_grace;
        for (hold, answer) in answers {
            let Some(lease) = self.held.get_mut(&key(&hold)) else {
                continue;
            };
            if lease.standing != Standing::Trusted && !lease.settling {
                continue;
            }
            match answer {
                Renewed::Lost if lease.settling => {}
                Renewed::Lost => {
                    lease.standing = Standing::Lost;
                    stops.push((hold, Loss::Refused));
                }
                Renewed::Kept => lease.accept(sent),
                Renewed::CancelRequested => {
                    if !lease.cancel_told && !lease.settling {
                        lease.cancel_told = true;
                        // Half a lease more, so that trust does not end before the grace does.
                        lease.limit(sent + lease.length.max(stop_grace + lease.length / 2));
                        stops.push((hold, Loss::CancelRequested));
                    }
                    lease.accept(sent);
                }
            }
        }
        stops
    }

    /// Puts progress back that a failed renewal carried, unless the run has reported since.
    pub fn unanswered(&mut self, batch: Vec<Renewal>) {
        for renewal in batch {
            if let Some(lease) = self.held.get_mut(&key(&renewal.hold)) {
                lease.progress = lease.progress.take().or(renewal.progress);
            }
        }
    }

    /// The runs whose lease is no longer trusted at `now`, each reported once.
    pub fn doubted(&mut self, now: BootTime) -> Vec<(Hold, Loss)> {
        let leases = self.held.values_mut();
        leases.filter_map(|lease| lease.doubt(now)).collect()
    }

    /// As [`Leases::doubted`], of one run alone: whoever sees first that it is over reports it.
    pub fn doubted_one(&mut self, hold: &Hold, now: BootTime) -> Option<(Hold, Loss)> {
        self.held.get_mut(&key(hold))?.doubt(now)
    }

    /// When to look again: the first renewal due, or the first end of trust. `None` while there is
    /// nothing to wait for. Never in the past once [`Leases::doubted`] and [`Leases::due`] were
    /// called, in this order.
    pub fn next_look(&self) -> Option<BootTime> {
        self.held
            .values()
            .flat_map(|lease| {
                let doubt = lease.can_be_doubted().then(|| lease.trusted_until());
                let renewal = lease.renew_at.filter(|_| lease.is_renewed());
                [doubt, renewal]
            })
            .flatten()
            .min()
    }
}

fn key(hold: &Hold) -> Key {
    (hold.item_id, hold.token)
}

impl Lease {
    fn trusted_until(&self) -> BootTime {
        self.accepted + trust_ends_after(self.length)
    }

    fn is_trusted(&self, now: BootTime) -> bool {
        self.standing == Standing::Trusted && now < self.trusted_until()
    }

    const fn can_be_doubted(&self) -> bool {
        matches!(self.standing, Standing::Trusted) && !self.settling
    }

    fn doubt(&mut self, now: BootTime) -> Option<(Hold, Loss)> {
        if !self.can_be_doubted() || now < self.trusted_until() {
            return None;
        }
        self.standing = Standing::Doubted;
        Some((self.hold, Loss::Doubted))
    }

    /// Whether it is renewed at all: a run that was told to stop for a lease in danger is not.
    const fn is_renewed(&self) -> bool {
        matches!(self.standing, Standing::Trusted) || self.settling
    }

    /// Whether a renewal sent now could still be of use.
    fn renews(&self, now: BootTime) -> bool {
        (self.settling || self.is_trusted(now)) && self.renew_until.is_none_or(|until| now < until)
    }

    fn is_due(&self, now: BootTime) -> bool {
        self.renew_at.is_some_and(|at| now >= at) && self.renews(now)
    }

    fn goes_along(&self, now: BootTime) -> bool {
        let ahead = now + renewal_due_after(self.length) / 2;
        let in_no_hurry =
            self.settling || self.trusted_until().since(now) >= retry_after(self.length);
        self.renew_at.is_some_and(|at| ahead >= at) && self.renews(now) && in_no_hurry
    }

    fn accept(&mut self, sent: BootTime) {
        // An answer may overtake an earlier one; the later sending counts.
        self.accepted = self.accepted.max(sent);
        self.renew_from(self.accepted + renewal_due_after(self.length));
    }

    fn limit(&mut self, instant: BootTime) {
        self.renew_until = Some(self.renew_until.map_or(instant, |until| until.min(instant)));
        self.renew_at = self.renew_at.filter(|at| *at < instant);
    }

    fn renew_from(&mut self, instant: BootTime) {
        self.renew_at = Some(instant).filter(|at| self.renew_until.is_none_or(|until| *at < until));
    }
}

#[cfg(test)]
mod tests;
