//! The small namespaces in trouble: a liveness or an audit store that fails, hangs or is slow.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::store::events::{Entry, NewEntry, Stream};
use leasehold::core::store::liveness::{LiveWorker, WorkerBeat};
use leasehold::core::store::{EventStore, LivenessStore, StoreResult};
use leasehold::core::{OrgId, WorkerId};
use leasehold::{StoreError, Stores};
use tokio::sync::watch;

use crate::harness::pass;

/// What befalls each call from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    Fails,
    Hangs,
    Slow(Duration),
}

/// A store in trouble, and the control of it.
#[derive(Debug)]
pub(crate) struct Troubled<S: ?Sized> {
    inner: Arc<S>,
    trouble: watch::Sender<Trouble>,
    calls: watch::Sender<u64>,
}

impl Troubled<dyn EventStore> {
    pub(crate) fn events(stores: Stores) -> (Stores, Arc<Self>) {
        let troubled = Self::around(stores.events.clone());
        let events = troubled.clone();
        (Stores { events, ..stores }, troubled)
    }
}

impl Troubled<dyn LivenessStore> {
    pub(crate) fn liveness(stores: Stores) -> (Stores, Arc<Self>) {
        let troubled = Self::around(stores.liveness.clone());
        let liveness = troubled.clone();
        (Stores { liveness, ..stores }, troubled)
    }
}

impl<S: ?Sized> Troubled<S> {
    fn around(inner: Arc<S>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            trouble: watch::Sender::new(Trouble::None),
            calls: watch::Sender::new(0),
        })
    }

    /// Also for calls that hang by now.
    pub(crate) fn set(&self, trouble: Trouble) {
        self.trouble.send_replace(trouble);
    }

    pub(crate) async fn wait_for_calls(&self, calls: u64) {
        let mut begun = self.calls.subscribe();
        let _ = begun.wait_for(|begun| *begun >= calls).await;
    }

    pub(crate) fn calls(&self) -> u64 {
        *self.calls.borrow()
    }

    async fn pass<T>(&self, call: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        self.calls.send_modify(|calls| *calls += 1);
        let mut trouble = self.trouble.subscribe();
        let now = *trouble
            .wait_for(|trouble| *trouble != Trouble::Hangs)
            .await
            .unwrap();
        match now {
            Trouble::Fails => Err(StoreError::Unavailable("a fault of the test".into())),
            Trouble::Slow(time) => {
                pass(time).await;
                call.await
            }
            Trouble::None | Trouble::Hangs => call.await,
        }
    }
}

#[async_trait]
impl EventStore for Troubled<dyn EventStore> {
    async fn append(&self, org: OrgId, stream: Stream, entry: &NewEntry) -> StoreResult<u64> {
        self.pass(self.inner.append(org, stream, entry)).await
    }

    async fn read_after(
        &self,
        org: OrgId,
        stream: Stream,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<Entry>> {
        self.inner.read_after(org, stream, after, limit).await
    }
}

#[async_trait]
impl LivenessStore for Troubled<dyn LivenessStore> {
    async fn publish(&self, beat: &WorkerBeat, ttl: Duration) -> StoreResult<()> {
        self.pass(self.inner.publish(beat, ttl)).await
    }

    async fn remove(&self, worker: &WorkerId) -> StoreResult<bool> {
        self.pass(self.inner.remove(worker)).await
    }

    async fn live_workers(&self, limit: u32) -> StoreResult<Vec<LiveWorker>> {
        self.inner.live_workers(limit).await
    }
}
