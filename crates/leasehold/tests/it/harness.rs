//! What the cases share: stores on paused time, a worker over them, and waits that do not sleep.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use leasehold::core::store::events::{Entry, Stream};
use leasehold::core::store::work::{
    ClaimRequest, Claimed, Hints, Hold, Renewal, Renewed, Settled, Settlement,
};
use leasehold::core::{BootTime, Clock, OrgId, WorkerId};
use leasehold::{
    Assignments, Beat, Client, Drained, Executor, InProcess, ItemId, Lane, MemoryStore, Metrics,
    QueueSource, Source, Status, Stopper, StoreError, Stores, SystemClock, Tenancy, Work, WorkItem,
    Worker, WorkerError, WorkerSettings,
};
use leasehold_testkit::clock::TokioClock;
use leasehold_testkit::fault::Faults;
use leasehold_testkit::probe::Journal;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

pub(crate) use crate::yard::{inserted, pass};

/// No wait of a case outlasts this, in virtual time.
const PATIENCE: Duration = Duration::from_mins(20);

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SEC: Duration = Duration::from_secs(1);

/// The work that most cases do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) n: u32,
}

impl Work for Job {
    const KIND: &'static str = "JOB";
}

/// A second kind, for cases where two must differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Other {
    pub(crate) n: u32,
}

impl Work for Other {
    const KIND: &'static str = "OTHER";
}

/// A memory store on the runtime's paused time, with faults at hand for the workers in front of it.
pub(crate) struct Rig {
    pub(crate) clock: Arc<dyn Clock>,
    began: BootTime,
    /// Without faults: for looking.
    pub(crate) stores: Stores,
    /// Of [`Rig::source`].
    pub(crate) faults: Faults,
    pub(crate) client: Client,
}

impl Rig {
    /// On the runtime's own time, which the case has paused.
    pub(crate) fn new() -> Self {
        Self::on(Arc::new(TokioClock::new()))
    }

    /// On real time, for cases with threads that block.
    pub(crate) fn real() -> Self {
        Self::on(Arc::new(SystemClock))
    }

    /// The same stores, for a worker that does not share the first one's faults.
    pub(crate) fn new_beside(rig: &Self) -> Self {
        Self {
            clock: rig.clock.clone(),
            began: rig.began,
            stores: rig.stores.clone(),
            faults: Faults::new(8),
            client: rig.client.clone(),
        }
    }

    fn on(clock: Arc<dyn Clock>) -> Self {
        let stores = Stores::from_one(Arc::new(MemoryStore::new(clock.clone())));
        let client = Client::single_tenant(stores.clone())
            .unwrap()
            .with_clock(clock.clone());
        Self {
            began: clock.elapsed(),
            clock,
            stores,
            faults: Faults::new(7),
            client,
        }
    }

    pub(crate) fn faulty(&self) -> Stores {
        self.faults.wrap(self.stores.clone())
    }

    /// The queue as a worker sees it, behind this rig's faults.
    pub(crate) fn source(&self) -> QueueSource {
        QueueSource::new(self.faulty())
    }

    /// As [`Rig::source`], telling what was called when.
    pub(crate) fn watched(&self) -> Watched {
        Watched {
            inner: self.source(),
            clock: self.clock.clone(),
            began: self.began,
            calls: Journal::new(),
        }
    }

    pub(crate) fn worker<S: Source, E: Executor>(
        &self,
        source: S,
        executor: E,
        settings: WorkerSettings,
    ) -> Worker<S, E> {
        Worker::new(source, executor, settings)
            .unwrap()
            .with_clock(self.clock.clone())
    }

    pub(crate) fn start<E: Executor>(&self, executor: E, settings: WorkerSettings) -> Started {
        self.start_on(self.source(), executor, settings)
    }

    pub(crate) fn start_on<S: Source, E: Executor>(
        &self,
        source: S,
        executor: E,
        settings: WorkerSettings,
    ) -> Started {
        Started::here(self.worker(source, executor, settings))
    }

    pub(crate) async fn enqueue<W: Work + Sync>(&self, work: &W) -> ItemId {
        inserted(self.client.enqueue(work).await.unwrap())
    }

    pub(crate) async fn enqueue_many<W: Work>(
        &self,
        works: impl IntoIterator<Item = W>,
    ) -> Vec<ItemId> {
        let items = works
            .into_iter()
            .map(|work| self.client.typed(&work).unwrap())
            .collect();
        let fates = self.client.enqueue_many(items).await.unwrap();
        fates.into_iter().map(inserted).collect()
    }

    pub(crate) async fn item(&self, id: ItemId) -> WorkItem {
        let item = self.stores.work.get(OrgId::SINGLE, id).await.unwrap();
        item.expect("the item is there")
    }

    pub(crate) async fn status(&self, id: ItemId) -> Status {
        self.item(id).await.status
    }

    /// Waits until the item has the status, and answers it.
    pub(crate) async fn until_status(&self, id: ItemId, status: Status) -> WorkItem {
        self.until_item(id, |item| item.status == status).await
    }

    pub(crate) async fn until_item(&self, id: ItemId, is: impl Fn(&WorkItem) -> bool) -> WorkItem {
        until(async || {
            let item = self.item(id).await;
            is(&item).then_some(item)
        })
        .await
    }

    pub(crate) async fn audit(&self) -> Vec<Entry> {
        let events = &self.stores.events;
        events
            .read_after(OrgId::SINGLE, Stream::Audit, 0, 10_000)
            .await
            .unwrap()
    }

    /// How long the rig has existed.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.elapsed().since(self.began)
    }

    /// Claims for somebody else: a holder that no worker of the case knows.
    pub(crate) async fn claim_elsewhere(&self, lease: Duration) -> Vec<Claimed> {
        self.stores
            .work
            .claim(&claim_request(lease, 1))
            .await
            .unwrap()
    }
}

pub(crate) fn claim_request(lease: Duration, limit: u32) -> ClaimRequest {
    ClaimRequest {
        token: leasehold::core::ClaimToken::mint(),
        worker: WorkerId::parse("somebody-else").unwrap(),
        lanes: vec![Lane::default()],
        kinds: vec![Job::KIND, Other::KIND]
            .into_iter()
            .map(|kind| leasehold::Kind::parse(kind).unwrap())
            .collect(),
        lease,
        limit,
        tenant_cap: None,
    }
}

/// Four slots, an hour's poll and an hour's sweep: nothing happens by the clock unless a case says so.
pub(crate) fn settings() -> WorkerSettings {
    WorkerSettings {
        name: "case".to_owned(),
        capacity: 4,
        poll_interval: Duration::from_hours(1),
        sweep_interval: Duration::from_hours(1),
        ..WorkerSettings::default()
    }
}

/// As [`settings`] with a lease of `lease`.
pub(crate) fn leased(lease: Duration) -> WorkerSettings {
    WorkerSettings {
        lease,
        ..settings()
    }
}

/// A worker that runs.
pub(crate) struct Started {
    pub(crate) stopper: Stopper,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) beat: Arc<Beat>,
    pub(crate) id: WorkerId,
    task: JoinHandle<Result<Drained, WorkerError>>,
}

impl Started {
    /// On the calling runtime, on one timeline with the case.
    pub(crate) fn here<S: Source, E: Executor>(worker: Worker<S, E>) -> Self {
        let stopper = Stopper::new();
        Self {
            metrics: worker.metrics(),
            beat: worker.beat(),
            id: worker.id().clone(),
            task: tokio::spawn(worker.run_here(stopper.clone())),
            stopper,
        }
    }

    /// With threads of its own, in real time.
    pub(crate) fn apart<S: Source, E: Executor>(worker: Worker<S, E>) -> Self {
        let stopper = Stopper::new();
        Self {
            metrics: worker.metrics(),
            beat: worker.beat(),
            id: worker.id().clone(),
            task: tokio::spawn(worker.run(stopper.clone())),
            stopper,
        }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(self) -> Drained {
        self.stopper.stop();
        self.ended().await.unwrap()
    }

    pub(crate) async fn ended(self) -> Result<Drained, WorkerError> {
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended.expect("the worker ends").unwrap()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// What a counter or a gauge of whole numbers says, summed over its series.
    pub(crate) fn sum(&self, metric: &str) -> i64 {
        let page = self.metrics.encode();
        let series = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(metric)?;
            rest.starts_with([' ', '{'])
                .then(|| rest.rsplit_once(' '))
                .flatten()
        });
        series.map(|(_, value)| value.parse::<i64>().unwrap()).sum()
    }

    /// What one series says; `labels` as they stand between the braces.
    pub(crate) fn series(&self, metric: &str, labels: &str) -> i64 {
        let series = format!("{metric}{{{labels}}} ");
        let page = self.metrics.encode();
        let value = page.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

/// Looks every so often until there is an answer, for as long as [`PATIENCE`].
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(look: impl Fn() -> F) -> T {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            pass(10 * MS).await;
        }
    });
    found.await.expect("what the case waits for comes about")
}

/// Handlers of [`Job`] made of one closure.
pub(crate) fn jobs<H>(handler: H) -> InProcess
where
    H: leasehold::Handler<Job>,
{
    InProcess::new().handle::<Job>(handler).unwrap()
}

/// A call to a source.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// Since the rig was made.
    pub(crate) at: Duration,
    /// How many were asked for, renewed or settled.
    pub(crate) count: usize,
}

/// A source that notes when it is called.
pub(crate) struct Watched {
    inner: QueueSource,
    clock: Arc<dyn Clock>,
    began: BootTime,
    pub(crate) calls: Journal<Call>,
}

impl Watched {
    fn note(&self, name: &'static str, count: usize) {
        let at = self.clock.elapsed().since(self.began);
        self.calls.note(Call { name, at, count });
    }
}

#[async_trait]
impl Source for Watched {
    async fn claim(&self, request: &ClaimRequest) -> Result<Assignments, StoreError> {
        self.note("claim", request.limit as usize);
        self.inner.claim(request).await
    }

    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Option<Renewed>>, StoreError> {
        self.note("renew", batch.len());
        self.inner.renew(batch).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        self.note("settle", batch.len());
        self.inner.settle(batch).await
    }

    fn forget(&self, holds: &[Hold]) {
        self.inner.forget(holds);
    }

    fn drain(&self) {
        self.inner.drain();
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        self.inner.subscribe(lanes)
    }

    fn attach(&self, metrics: &Arc<Metrics>) {
        self.inner.attach(metrics);
    }

    fn stores(&self) -> Option<&Stores> {
        self.inner.stores()
    }

    fn tenancy(&self) -> &Arc<dyn Tenancy> {
        self.inner.tenancy()
    }
}

/// The calls of a name, as moments since `from`.
pub(crate) fn moments(calls: &Journal<Call>, name: &str, from: Duration) -> Vec<Duration> {
    let calls = calls.entries();
    let named = calls
        .iter()
        .filter(|call| call.name == name && call.at >= from);
    named.map(|call| call.at.saturating_sub(from)).collect()
}

pub(crate) fn timestamp(clock: &dyn Clock) -> Timestamp {
    clock.now()
}

/// A worker's own clock, which goes wrong as told: set, frozen, or suspended.
#[derive(Debug)]
pub(crate) struct Skewed {
    inner: Arc<dyn Clock>,
    state: Mutex<Skew>,
}

#[derive(Debug, Default)]
struct Skew {
    calendar: SignedDuration,
    suspended: Duration,
    frozen: Option<BootTime>,
}

impl Skewed {
    pub(crate) fn new(inner: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            state: Mutex::default(),
        })
    }

    /// Sets the calendar that far ahead of the true one, or behind it.
    pub(crate) fn set_calendar(&self, ahead: SignedDuration) {
        self.state.lock().unwrap().calendar = ahead;
    }

    /// Time passes that no timer of the process has seen.
    pub(crate) fn suspend(&self, time: Duration) {
        self.state.lock().unwrap().suspended += time;
    }

    /// Elapsed time stands still: its owner notices nothing of what passes.
    pub(crate) fn freeze(&self) {
        let now = self.elapsed();
        self.state.lock().unwrap().frozen = Some(now);
    }

    /// Elapsed time goes on, with all that has passed.
    pub(crate) fn thaw(&self) {
        self.state.lock().unwrap().frozen = None;
    }
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let ahead = self.state.lock().unwrap().calendar;
        self.inner.now() + ahead
    }

    fn elapsed(&self) -> BootTime {
        let state = self.state.lock().unwrap();
        state
            .frozen
            .unwrap_or_else(|| self.inner.elapsed() + state.suspended)
    }
}
