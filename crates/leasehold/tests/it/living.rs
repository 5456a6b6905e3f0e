//! Living: `/healthz` answers for the loop alone, and an outage of what nothing depends on changes
//! nothing.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::store::work::{
    ClaimRequest, Hints, Hold, Renewal, Renewed, Settled, Settlement,
};
use leasehold::{
    Assignments, Executor, Lane, Metrics, QueueSource, Run, Source, Status, StoreError, Stores,
    Tenancy, Worker, WorkerError, WorkerSettings,
};
use leasehold_testkit::probe::{Latch, Probe};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Job, MS, Rig, SEC, Skewed, Started, jobs, pass, settings, until};
use crate::trouble::{Trouble, Troubled};

fn served() -> WorkerSettings {
    WorkerSettings {
        health: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        heartbeat_interval: 100 * MS,
        poll_interval: 50 * MS,
        ..settings()
    }
}

/// Facts 8.4: a liveness store that is missing, stalls or fails: claims go on, the loop counts as
/// alive, the failures are counted, and a stop still returns.
#[tokio::test(start_paused = true)]
async fn an_outage_of_liveness_changes_nothing_else() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let rig = Rig::new();
        let (stores, liveness) = Troubled::liveness(rig.faulty());
        liveness.set(trouble);
        let settings = WorkerSettings {
            heartbeat_interval: SEC,
            ..settings()
        };
        let worker = rig.start_on(
            QueueSource::new(stores),
            jobs(|_: Job, _: Run| async {}),
            settings,
        );
        for n in 0..20 {
            let id = rig.enqueue(&Job { n }).await;
            rig.until_status(id, Status::Done).await;
            assert!(worker.beat.is_alive());
            pass(SEC).await;
        }
        let errors = worker.sum("leasehold_liveness_publish_errors_total");
        assert!(errors >= 5, "{trouble:?}: {errors}");
        let asked = rig.elapsed();
        worker.stop().await;
        let took = rig.elapsed().saturating_sub(asked);
        assert!(took <= 3 * SEC, "{trouble:?}: {took:?}");
    }
}

/// The outage over, the worker is there again.
#[tokio::test(start_paused = true)]
async fn liveness_comes_back_by_itself() {
    let rig = Rig::new();
    let (stores, liveness) = Troubled::liveness(rig.faulty());
    liveness.set(Trouble::Fails);
    let settings = WorkerSettings {
        heartbeat_interval: SEC,
        ..settings()
    };
    let worker = rig.start_on(
        QueueSource::new(stores),
        jobs(|_: Job, _: Run| async {}),
        settings,
    );
    liveness.wait_for_calls(3).await;
    assert!(
        rig.stores
            .liveness
            .live_workers(9)
            .await
            .unwrap()
            .is_empty()
    );
    liveness.set(Trouble::None);
    let calls = liveness.calls();
    liveness.wait_for_calls(calls + 1).await;
    pass(MS).await;
    let live = rig.stores.liveness.live_workers(9).await.unwrap();
    assert_eq!(live[0].beat.worker, worker.id);
    assert_eq!(live[0].beat.capacity, 4);
    worker.stop().await;
}

/// A worker that is killed is not there any more after three beats.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_gone_without_a_word_expires() {
    let rig = Rig::new();
    let settings = WorkerSettings {
        heartbeat_interval: SEC,
        ..settings()
    };
    let worker = rig.worker(rig.source(), jobs(|_: Job, _: Run| async {}), settings);
    // Dropped half-way, which is as close to a kill as one process comes.
    let ran = tokio::time::timeout(5 * SEC, worker.run_here(leasehold::Stopper::new())).await;
    assert!(ran.is_err());
    assert_eq!(rig.stores.liveness.live_workers(9).await.unwrap().len(), 1);
    pass(4 * SEC).await;
    assert!(
        rig.stores
            .liveness
            .live_workers(9)
            .await
            .unwrap()
            .is_empty()
    );
}

/// The beat is the loop's own: dead before the first, alive while it comes round, old when it does not.
#[tokio::test(start_paused = true)]
async fn the_beat_is_the_loops() {
    let rig = Rig::new();
    let clock = Skewed::new(rig.clock.clone());
    let worker = rig
        .worker(rig.source(), jobs(|_: Job, _: Run| async {}), settings())
        .with_clock(clock.clone());
    let beat = worker.beat();
    assert_eq!(beat.age(), None);
    assert!(!beat.is_alive());
    let worker = Started::here(worker);
    pass(Duration::from_mins(5)).await;
    assert!(
        beat.is_alive(),
        "an idle loop comes round, poll of an hour or not"
    );
    worker.stop().await;
    clock.suspend(31 * SEC);
    assert!(!beat.is_alive(), "three beats of ten seconds were missed");
}

struct Answer {
    status: u16,
    kind: String,
    body: String,
}

async fn get(address: SocketAddr, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: worker\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "))
        .unwrap_or_default();
    Answer {
        status,
        kind: kind.to_owned(),
        body: body.to_owned(),
    }
}

fn real<S: Source, E: Executor>(rig: &Rig, source: S, executor: E) -> (Worker<S, E>, SocketAddr) {
    let worker = rig.worker(source, executor, served());
    let address = worker.health_address().unwrap();
    (worker, address)
}

/// 200 while the loop lives, the metrics as text, and 404 everywhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_answers_health_and_metrics_and_nothing_else() {
    let rig = Rig::real();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let (worker, address) = real(&rig, rig.source(), jobs(|_: Job, _: Run| async {}));
    let worker = Started::apart(worker);
    rig.until_status(id, Status::Done).await;
    let health = get(address, "/healthz").await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let metrics = get(address, "/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.kind.starts_with("application/openmetrics-text"),
        "{}",
        metrics.kind
    );
    assert!(
        metrics.body.contains("leasehold_items_claimed_total 1\n"),
        "{}",
        metrics.body
    );
    assert!(metrics.body.ends_with("# EOF\n"));
    assert!(
        !metrics.body.contains(&id.to_string()),
        "no label holds an id"
    );
    for path in ["/", "/health", "/healthz/", "/metrics/x", "/favicon.ico"] {
        assert_eq!(get(address, path).await.status, 404, "{path}");
    }
    assert_eq!(get(address, "/healthz?verbose=1").await.status, 200);
    worker.stop().await;
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the port is closed with the worker"
    );
}

/// Every metric of the table in the documentation is on the page, and none that is not in it.
#[tokio::test(start_paused = true)]
async fn the_page_holds_the_metrics_of_the_table() {
    let rig = Rig::new();
    rig.enqueue(&crate::harness::Other { n: 0 }).await;
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    pass(5 * SEC).await;
    // The queue has none of its own.
    worker.metrics.source_event("a test");
    let table = leasehold::telemetry::names::ALL.iter();
    let mut table: Vec<&str> = table.map(|metric| metric.stem).collect();
    let page = worker.metrics.encode();
    let mut listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE leasehold_"))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    table.sort_unstable();
    listed.sort_unstable();
    assert_eq!(table, listed);
    worker.stop().await;
}

/// 503 before the loop has started, from the moment the port is bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_answers_503_before_the_loop_starts() {
    let rig = Rig::real();
    let held = Held::new(rig.source());
    held.close();
    let (worker, address) = real(&rig, held.clone(), jobs(|_: Job, _: Run| async {}));
    let worker = Started::apart(worker);
    let early = get(address, "/healthz").await;
    assert_eq!(
        (early.status, early.body.as_str()),
        (503, "the loop has not started\n")
    );
    held.open();
    until(async || (get(address, "/healthz").await.status == 200).then_some(())).await;
    worker.stop().await;
}

/// 503 once the loop hangs, from a port that answers all the same; 200 when it comes round again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_answers_503_when_the_loop_hangs() {
    let rig = Rig::real();
    let held = Held::new(rig.source());
    let (worker, address) = real(&rig, held.clone(), jobs(|_: Job, _: Run| async {}));
    let worker = Started::apart(worker);
    until(async || (get(address, "/healthz").await.status == 200).then_some(())).await;
    held.close();
    let hung = until(async || {
        let answer = get(address, "/healthz").await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert!(hung.body.contains("has not come round"), "{}", hung.body);
    assert_eq!(get(address, "/metrics").await.status, 200);
    held.open();
    until(async || (get(address, "/healthz").await.status == 200).then_some(())).await;
    worker.stop().await;
}

/// A handler that hogs its runtime flips nothing: neither the loop nor the port is on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_does_not_flip_health() {
    let rig = Rig::real();
    let (began, gate) = (Probe::new(), Arc::new(Gate::default()));
    let handler = {
        let (began, gate) = (began.clone(), gate.clone());
        move |_: Job, _: Run| {
            let (began, gate) = (began.clone(), gate.clone());
            async move {
                began.hit();
                gate.pass();
            }
        }
    };
    gate.close();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let (worker, address) = real(&rig, rig.source(), jobs(handler));
    let worker = Started::apart(worker);
    began.wait_for(1).await;
    for _ in 0..10 {
        assert_eq!(get(address, "/healthz").await.status, 200);
        pass(50 * MS).await; // real time: five times what the loop may take to come round
    }
    gate.open();
    rig.until_status(id, Status::Done).await;
    worker.stop().await;
}

/// A port that is taken refuses the start and says which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_port_refuses_the_start() {
    let rig = Rig::real();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let settings = WorkerSettings {
        health: Some(address),
        ..settings()
    };
    let refused = Worker::new(rig.source(), jobs(|_: Job, _: Run| async {}), settings);
    let error = refused.err().unwrap();
    assert!(matches!(error, WorkerError::Port { .. }));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

/// Many probes at once, and some that never say a word, keep nobody from an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_probes_do_not_keep_others_from_an_answer() {
    let rig = Rig::real();
    let (worker, address) = real(&rig, rig.source(), jobs(|_: Job, _: Run| async {}));
    let worker = Started::apart(worker);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let latch = Latch::new();
    let probes: Vec<_> = (0..40)
        .map(|_| {
            let latch = latch.clone();
            tokio::spawn(async move {
                latch.passed().await;
                get(address, "/healthz").await.status
            })
        })
        .collect();
    until(async || (get(address, "/healthz").await.status == 200).then_some(())).await;
    latch.open();
    for probe in probes {
        assert_eq!(probe.await.unwrap(), 200);
    }
    drop(silent);
    worker.stop().await;
}

/// Blocks threads while it is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }
}

/// A source whose calls block the loop's thread while it is closed: the loop hangs.
#[derive(Clone)]
struct Held {
    inner: QueueSource,
    gate: Arc<Gate>,
}

impl Held {
    fn new(inner: QueueSource) -> Self {
        Self {
            inner,
            gate: Arc::default(),
        }
    }

    fn close(&self) {
        self.gate.close();
    }

    fn open(&self) {
        self.gate.open();
    }
}

#[async_trait]
impl Source for Held {
    async fn claim(&self, request: &ClaimRequest) -> Result<Assignments, StoreError> {
        self.gate.pass();
        self.inner.claim(request).await
    }

    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Option<Renewed>>, StoreError> {
        self.inner.renew(batch).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
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
        // Called before the loop's first round.
        self.gate.pass();
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

/// A worker is idle once it has looked and found nothing, not before, and not while it holds anything.
#[tokio::test(start_paused = true)]
async fn a_worker_is_idle_when_it_looked_and_found_nothing() {
    let rig = Rig::new();
    let gate = Arc::new(Latch::new());
    let opened = gate.clone();
    let handler = move |_: Job, _: Run| {
        let gate = opened.clone();
        async move { gate.passed().await }
    };
    let id = rig.enqueue(&Job { n: 1 }).await;
    let worker = rig.worker(rig.source(), jobs(handler), settings());
    let mut idleness = worker.idleness();
    assert!(!idleness.is_idle(), "it has not looked yet");
    let worker = Started::here(worker);
    rig.until_status(id, Status::Claimed).await;
    pass(30 * SEC).await;
    assert!(!idleness.is_idle(), "it holds an item");
    gate.open();
    idleness.reached().await;
    assert_eq!(rig.status(id).await, Status::Done);
    worker.stop().await;
    idleness.reached().await;
}
