//! What every driver does to its queue, and how it tells what came of it: one JSON object on a line.
//!
//! `DRIVER OPERATION`, with the database in `DATABASE_URL` and the amount in `ITEMS`. The driver of Node,
//! `../../node/measure.mjs`, does the same; keep the two alike.

use std::future::Future;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A queue that is measured. An item's payload is `{"id": ID}`, and its handler calls [`handled`].
pub trait Peer: Clone + Send + Sync + 'static {
    /// Makes what the queue needs in an empty database.
    fn setup(&self) -> impl Future<Output = ()> + Send;
    /// Enqueues one item; durable once it returns.
    fn one(&self, id: u64) -> impl Future<Output = ()> + Send;
    /// Enqueues all of them in one call.
    fn many(&self, ids: Range<u64>) -> impl Future<Output = ()> + Send;
    /// Starts the worker and returns.
    fn start(&self) -> impl Future<Output = ()> + Send;
}

/// Items of one bulk call: what the widest calls of the peers are documented with.
const BATCH: u64 = 1_000;
/// How far `sustain` enqueues ahead: enough that no worker runs dry while a call is under way.
const AHEAD: u64 = 20_000;
/// Pickups that are not counted: the first ones prepare statements.
const WARM_UPS: u64 = 3;
/// A worker that has just started is not idle yet.
const IDLE_AFTER: Duration = Duration::from_millis(1_500);
/// For the last completions to be sent. Graceful stops of some queues take seconds, which is not measured.
const FLUSH: Duration = Duration::from_millis(300);
/// A queue that does not drain must not hang a script for ever.
const PATIENCE: Duration = Duration::from_secs(600);

static COUNT: AtomicU64 = AtomicU64::new(0);
static LAST_NANOSECONDS: AtomicU64 = AtomicU64::new(0);
static SEEN: Notify = Notify::const_new();

/// The first line of every handler.
pub fn handled() {
    LAST_NANOSECONDS.store(nanoseconds(), Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Release);
    SEEN.notify_one();
}

/// A setting of the queue's, so that another than the documented one can be tried.
pub fn setting<T: std::str::FromStr>(name: &str, documented: T) -> T {
    let given = std::env::var(name).ok();
    given
        .and_then(|text| text.parse().ok())
        .unwrap_or(documented)
}

pub fn url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL")
}

/// Carries out the operation that the program was told, and ends the process.
pub async fn run(peer: impl Peer) -> ! {
    let operation = std::env::args().nth(1).unwrap_or_default();
    let items = setting("ITEMS", 20_000);
    nanoseconds();
    let measured = match operation.as_str() {
        "setup" => {
            peer.setup().await;
            json!({})
        }
        "enqueue" => timed(items, enqueue(&peer, items)).await,
        "single" => timed(items, one_by_one(&peer, items)).await,
        "drain" => drain(&peer, items, PATIENCE).await,
        "sustain" => {
            tokio::spawn(keep_ahead(peer.clone()));
            let seconds = Duration::from_secs(setting("SECONDS", 180));
            drain(&peer, u64::MAX, seconds).await
        }
        "latency" => latency(&peer, items).await,
        _ => panic!("one of setup, enqueue, single, drain, sustain, latency"),
    };
    println!("{measured}");
    tokio::time::sleep(FLUSH).await;
    std::process::exit(0)
}

async fn enqueue(peer: &impl Peer, items: u64) {
    let mut sent = 0;
    while sent < items {
        let next = items.min(sent + BATCH);
        peer.many(sent..next).await;
        sent = next;
    }
}

async fn one_by_one(peer: &impl Peer, items: u64) {
    for id in 0..items {
        peer.one(id).await;
    }
}

async fn timed(items: u64, work: impl Future<Output = ()>) -> Value {
    let (cpu, began) = (cpu_seconds(), Instant::now());
    work.await;
    told(items, began.elapsed(), cpu_seconds() - cpu, Vec::new())
}

/// From the start of the worker to the handler of the last item, or for so long.
async fn drain(peer: &impl Peer, items: u64, limit: Duration) -> Value {
    let (cpu, began) = (cpu_seconds(), Instant::now());
    peer.start().await;
    let (mut series, mut before) = (Vec::new(), 0);
    let mut next = Duration::from_secs(1);
    while count() < items && began.elapsed() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if began.elapsed() >= next {
            series.push(count() - before);
            before = count();
            next += Duration::from_secs(1);
        }
    }
    told(count(), began.elapsed(), cpu_seconds() - cpu, series)
}

/// Enqueues while others drain, so that there is always something and never a growing backlog.
async fn keep_ahead(peer: impl Peer) {
    let mut sent = 0;
    loop {
        if sent < count() + AHEAD {
            peer.many(sent..sent + BATCH).await;
            sent += BATCH;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// One item at a time on an idle queue, 20 to 110 ms apart.
async fn latency(peer: &impl Peer, items: u64) -> Value {
    peer.start().await;
    tokio::time::sleep(IDLE_AFTER).await;
    let (mut from_call, mut from_answer) = (Vec::new(), Vec::new());
    for id in 0..items + WARM_UPS {
        let called = nanoseconds();
        peer.one(id).await;
        let answered = nanoseconds();
        SEEN.notified().await;
        let picked_up = LAST_NANOSECONDS.load(Ordering::Acquire) as f64;
        if id >= WARM_UPS {
            from_call.push((picked_up - called as f64) / 1e6);
            from_answer.push((picked_up - answered as f64) / 1e6);
        }
        tokio::time::sleep(Duration::from_millis(20 + id * 37 % 90)).await;
    }
    json!({
        "items": from_call.len(),
        "p50_ms": percentile(&mut from_call, 0.5),
        "p99_ms": percentile(&mut from_call, 0.99),
        "after_answer_p50_ms": percentile(&mut from_answer, 0.5),
        "after_answer_p99_ms": percentile(&mut from_answer, 0.99),
    })
}

fn told(items: u64, elapsed: Duration, cpu_seconds: f64, series: Vec<u64>) -> Value {
    let seconds = elapsed.as_secs_f64();
    let per_second = items as f64 / seconds;
    json!({
        "items": items,
        "seconds": seconds,
        "per_second": per_second,
        "worker_cpu_seconds": cpu_seconds,
        "series": series,
    })
}

fn count() -> u64 {
    COUNT.load(Ordering::Acquire)
}

/// Since the first call.
fn nanoseconds() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Of this process, all threads together.
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or_default()
}
