//! What only this store has: hints without a runtime, determinism, its indexes. The promises that it
//! shares with every backend are held by the contract suite.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::*;
use crate::ids::{ClaimToken, IdempotencyKey, ItemId, OrgId, UserId};
use crate::item::{Due, ERRORS_MAX, NewItem, Status};
use crate::json::JsonObject;
use crate::names::{Kind, WorkerId};
use crate::outcome::{Failure, FailureCode};
use crate::rules::{self, Transition};
use crate::store::WorkStore;
use crate::store::work::{ClaimRequest, Claimed, Hold, Settled, Settlement, StaleRequest};
use crate::time::ManualClock;

mod hints;
mod namespaces;
mod queue;

const ORG: OrgId = OrgId::SINGLE;
const LEASE: Duration = Duration::from_mins(1);

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// All the runtime that the store needs.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

fn store() -> (Arc<ManualClock>, MemoryStore) {
    let clock = Arc::new(ManualClock::default());
    (clock.clone(), MemoryStore::new(clock))
}

fn kind() -> Kind {
    Kind::parse("NOOP").unwrap()
}

fn lane(name: &str) -> Lane {
    Lane::parse(name).unwrap()
}

/// The item of that number: small ids keep the order plain.
fn item(number: u128) -> NewItem {
    let id = Uuid::from_u128(number);
    let new = NewItem::new(kind(), JsonObject::empty(), Timestamp::UNIX_EPOCH);
    NewItem {
        id: ItemId::new(id),
        idempotency_key: IdempotencyKey::new(id),
        ..new
    }
}

fn token(number: u128) -> ClaimToken {
    ClaimToken::new(Uuid::from_u128(number))
}

fn request(number: u128, limit: u32) -> ClaimRequest {
    ClaimRequest {
        token: token(number),
        worker: WorkerId::parse("worker/1").unwrap(),
        lanes: vec![Lane::default()],
        kinds: vec![kind()],
        lease: LEASE,
        limit,
        tenant_cap: None,
    }
}

fn enqueue(store: &MemoryStore, items: impl IntoIterator<Item = NewItem>) {
    block_on(store.enqueue(ORG, items.into_iter().collect())).unwrap();
}

fn claim(store: &MemoryStore, request: &ClaimRequest) -> Vec<Claimed> {
    block_on(store.claim(request)).unwrap()
}

fn settle(store: &MemoryStore, item: u128, by: u128, transition: Transition) -> Settled {
    let hold = Hold {
        org_id: ORG,
        item_id: ItemId::new(Uuid::from_u128(item)),
        token: token(by),
    };
    block_on(store.settle(&[Settlement { hold, transition }])).unwrap()[0]
}

fn boom() -> Failure {
    Failure::own(FailureCode::HANDLER_ERROR, "boom")
}
