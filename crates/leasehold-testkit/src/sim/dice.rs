//! Where everything random of one seed comes from.

use std::time::Duration;

use leasehold::worker::dispatch::Chance;
use leasehold_core::ClaimToken;
use uuid::Uuid;

/// The same seed gives the same throws on every machine: nothing is drawn by a word's own width.
pub(super) struct Dice(fastrand::Rng);

impl Dice {
    pub(super) fn of(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Dice of their own for one who needs to keep them.
    pub(super) fn part(&mut self) -> Self {
        Self::of(self.0.u64(..))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(super) fn uuid(&mut self) -> Uuid {
        Uuid::from_u128(u128::from(self.number()) << 64 | u128::from(self.number()))
    }

    /// From 0 to below `end`, which is above 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    /// Whether something that happens this often (0 to 1) happens now.
    pub(super) fn happens(&mut self, rate: f64) -> bool {
        self.0.f64() < rate
    }

    /// From 0 to below 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0.f64()
    }

    /// A length of time between the two.
    pub(super) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let width = longest.saturating_sub(shortest);
        let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX);
        shortest + Duration::from_nanos(self.0.u64(..=width))
    }

    pub(super) fn up_to(&mut self, longest: Duration) -> Duration {
        self.between(Duration::ZERO, longest)
    }

    /// A place in a list of that length, which is not empty.
    pub(super) fn place(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(length)).unwrap_or_default()
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.place(from.len())].clone()
    }

    /// One of the entries, each as likely as its weight says.
    pub(super) fn weigh<T: Copy>(&mut self, table: &[(u64, T)]) -> T {
        let total = table.iter().map(|(weight, _)| weight).sum();
        let mut thrown = self.below(total);
        for (weight, entry) in table {
            if thrown < *weight {
                return *entry;
            }
            thrown -= weight;
        }
        table[0].1
    }

    /// Some of the list in its order, at least one.
    pub(super) fn some_of<T: Clone>(&mut self, from: &[T]) -> Vec<T> {
        let mut some: Vec<T> = from.to_vec();
        some.retain(|_| self.happens(0.6));
        if some.is_empty() {
            some.push(self.pick(from));
        }
        some
    }
}

impl Chance for Dice {
    fn token(&mut self) -> ClaimToken {
        ClaimToken::new(self.uuid())
    }

    fn jitter(&mut self) -> f64 {
        self.share()
    }
}
