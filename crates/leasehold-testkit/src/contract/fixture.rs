//! What a case is given: fresh stores, a clock that it moves, and the calls that most cases make.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{
    ClaimRequest, Claimed, Enqueued, Renewal, Renewed, Requeued, Settled,
};
use leasehold_core::store::{StoreResult, Stores};
use leasehold_core::time::{earlier, later};
use leasehold_core::{Hold, ItemId, NewItem, OrgId, StoreError, WorkItem, WorkStore};

use super::Harness;
use super::samples::{ORG, renewal, request_of, settlement, sweep_of};

/// Fresh stores for one case.
pub struct Fixture {
    /// The stores under test.
    pub stores: Stores,
    /// How often a case of many repetitions repeats itself.
    pub repeats: usize,
    harness: Box<dyn AnyHarness>,
}

impl Fixture {
    pub(super) async fn open<H: Harness>() -> Self {
        let harness = H::open().await;
        Self {
            stores: harness.stores(),
            repeats: H::REPEATS,
            harness: Box::new(harness),
        }
    }

    /// The work store under test.
    pub fn work(&self) -> &dyn WorkStore {
        &*self.stores.work
    }

    /// Another handle on the same data.
    pub async fn second_handle(&self) -> Stores {
        self.harness.second_handle().await
    }

    /// Moves the store's clock.
    pub async fn advance(&self, duration: Duration) {
        self.harness.advance(duration).await;
    }

    /// The store's now.
    pub async fn now(&self) -> Timestamp {
        self.work().now().await.unwrap()
    }

    /// Runs a call, and says between which two readings of the store's clock.
    pub async fn timed<T>(&self, call: impl Future<Output = T>) -> (T, Moment) {
        let from = self.now().await;
        let answer = call.await;
        (
            answer,
            Moment {
                from,
                to: self.now().await,
            },
        )
    }

    /// Enqueues an item that is new, in [`ORG`].
    pub async fn insert(&self, item: NewItem) -> WorkItem {
        self.insert_in(ORG, item).await
    }

    /// Enqueues an item that is new.
    pub async fn insert_in(&self, org: OrgId, item: NewItem) -> WorkItem {
        inserted(self.enqueue_in(org, item).await)
    }

    /// Enqueues one item, in [`ORG`].
    pub async fn enqueue(&self, item: NewItem) -> Enqueued {
        self.enqueue_in(ORG, item).await
    }

    /// Enqueues one item.
    pub async fn enqueue_in(&self, org: OrgId, item: NewItem) -> Enqueued {
        only(self.work().enqueue(org, vec![item]).await.unwrap())
    }

    /// Claims as asked.
    pub async fn claim(&self, request: &ClaimRequest) -> Vec<Claimed> {
        self.work().claim(request).await.unwrap()
    }

    /// Claims as asked, and expects exactly one item.
    pub async fn claim_one(&self, request: &ClaimRequest) -> WorkItem {
        only(self.claim(request).await).item
    }

    /// Claims `count` plain items, and expects so many.
    pub async fn claim_many(&self, count: u32) -> Vec<WorkItem> {
        let claimed = self.claim(&request_of(count)).await;
        assert_eq!(claimed.len(), count as usize, "not every item was claimed");
        claimed.into_iter().map(|claimed| claimed.item).collect()
    }

    /// Enqueues an item in [`ORG`] and claims it. Nothing else must be due.
    pub async fn held(&self, item: NewItem) -> WorkItem {
        let row = self.insert(item).await;
        self.claim_again(&row).await
    }

    /// Claims the item, which must be the only one due on its lane.
    pub async fn claim_again(&self, row: &WorkItem) -> WorkItem {
        let request = ClaimRequest {
            lanes: vec![row.lane.clone()],
            kinds: vec![row.kind.clone()],
            ..request_of(1)
        };
        let claimed = self.claim_one(&request).await;
        assert_eq!(claimed.id, row.id, "another item was due");
        claimed
    }

    /// Ends one claim.
    pub async fn settle(&self, hold: Hold, transition: Transition) -> Settled {
        only(
            self.work()
                .settle(&[settlement(hold, transition)])
                .await
                .unwrap(),
        )
    }

    /// Renews one lease.
    pub async fn renew(&self, hold: Hold) -> Renewed {
        self.renew_as(renewal(hold)).await
    }

    /// Renews one lease, as given.
    pub async fn renew_as(&self, renewal: Renewal) -> Renewed {
        only(self.work().renew(&[renewal]).await.unwrap())
    }

    /// Sweeps [`ORG`] with no spread.
    pub async fn sweep(&self) -> Requeued {
        self.work()
            .requeue_stale(ORG, &sweep_of(1_000))
            .await
            .unwrap()
    }

    /// The stored row of an item of [`ORG`].
    pub async fn row(&self, item: ItemId) -> WorkItem {
        self.row_in(ORG, item).await
    }

    /// The stored row of an item.
    pub async fn row_in(&self, org: OrgId, item: ItemId) -> WorkItem {
        self.work()
            .get(org, item)
            .await
            .unwrap()
            .expect("the item is stored")
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("stores", &self.stores)
            .finish_non_exhaustive()
    }
}

/// When a call took place, by the store's clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    from: Timestamp,
    to: Timestamp,
}

impl Moment {
    /// Stores keep microseconds.
    const PRECISION: Duration = Duration::from_micros(1);

    /// Asserts that `at` is this moment.
    #[track_caller]
    pub fn assert_is(&self, at: Timestamp) {
        self.assert_is_before(Duration::ZERO, at);
    }

    /// Asserts that `at` is this moment plus `delay`.
    #[track_caller]
    pub fn assert_is_before(&self, delay: Duration, at: Timestamp) {
        let from = earlier(later(self.from, delay), Self::PRECISION);
        let to = later(later(self.to, delay), Self::PRECISION);
        assert!(from <= at && at <= to, "{at} is not from {from} to {to}");
    }
}

/// The one answer to a batch of one.
#[track_caller]
pub fn only<T: fmt::Debug>(mut answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "one answer was expected: {answers:?}");
    answers.remove(0)
}

/// The row of an item that must have been new.
#[track_caller]
pub fn inserted(fate: Enqueued) -> WorkItem {
    match fate {
        Enqueued::Inserted(row) => row,
        other => panic!("the item is not new: {other:?}"),
    }
}

/// Asks again for as long as the store undoes the call for having met another one.
pub async fn insist<T, F: Future<Output = StoreResult<T>>>(mut call: impl FnMut() -> F) -> T {
    // A call that meets a handful of others is through after a handful of tries.
    const TRIES_MAX: u32 = 1_000;
    for _ in 0..TRIES_MAX {
        match call().await {
            Err(StoreError::Retry(_)) => tokio::task::yield_now().await,
            answer => return answer.unwrap(),
        }
    }
    panic!("the store undid the call {TRIES_MAX} times");
}

/// A second handle's work store, shared with the task that uses it.
pub type SharedWork = Arc<dyn WorkStore>;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A [`Harness`] whose type is forgotten, so that the cases are compiled once for all backends.
trait AnyHarness: Send + Sync {
    fn advance(&self, duration: Duration) -> Boxed<'_, ()>;
    fn second_handle(&self) -> Boxed<'_, Stores>;
}

impl<H: Harness> AnyHarness for H {
    fn advance(&self, duration: Duration) -> Boxed<'_, ()> {
        Box::pin(Harness::advance(self, duration))
    }

    fn second_handle(&self) -> Boxed<'_, Stores> {
        Box::pin(Harness::second_handle(self))
    }
}
