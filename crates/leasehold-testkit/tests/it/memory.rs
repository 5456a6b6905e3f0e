//! The store contract over [`MemoryStore`].

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ManualClock, MemoryStore, Stores};
use leasehold_testkit::Harness;

struct Memory {
    clock: Arc<ManualClock>,
    stores: Stores,
}

impl Harness for Memory {
    const REPEATS: usize = 40_000;

    async fn open() -> Self {
        let clock = Arc::new(ManualClock::default());
        let stores = Stores::from_one(Arc::new(MemoryStore::new(clock.clone())));
        Self { clock, stores }
    }

    fn stores(&self) -> Stores {
        self.stores.clone()
    }

    async fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    async fn second_handle(&self) -> Stores {
        self.stores.clone()
    }
}

leasehold_testkit::store_contract!(Memory);
