//! PG-5: an old snapshot keeps every row that the queue has left behind. Claims stay as fast as they were, by
//! and large, and none of the store's own sessions ever holds one.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Clock as _;
use leasehold::{Client, Run, Stopper, SystemClock};
use leasehold_core::store::work::ClaimRequest;
use leasehold_core::store::work::{Ended, Settled};
use leasehold_core::{NewItem, WorkStore as _};
use leasehold_postgres::{Options, PostgresStore};
use leasehold_testkit::contract::samples::{
    ORG, complete, hold, on_lane, request_from, settlement,
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client as Session, NoTls};

use crate::outages::{few_or, pass};
use crate::own::OwnServer;
use crate::worker::{Tally, settings, stop, worker};

/// So many items are enqueued in a round, by who measures and again for a worker beside it.
const EACH: u32 = 25;

/// So many times as long as at first a claim may take.
const SLOWER_MAX: u32 = 10;

/// Names the sessions of the store's.
const NAME: &str = "case";

/// How many rounds there are before, under and after the snapshot, and how long one takes at least: as many
/// as five minutes have at 500 items a second, or as fast as it goes.
struct Scale {
    before: usize,
    under: usize,
    after: usize,
    pace: Duration,
}

/// How long the claims of so many rounds took.
async fn rounds(
    store: &PostgresStore,
    beside: &Client,
    count: usize,
    pace: Duration,
) -> Vec<Duration> {
    let mut claims = Vec::with_capacity(count);
    let mut ticks = tokio::time::interval(pace.max(Duration::from_millis(1))); // real time: a steady load
    for _ in 0..count {
        ticks.tick().await;
        let new: Vec<NewItem> = (0..EACH).map(|_| on_lane("measured")).collect();
        store.enqueue(ORG, new).await.unwrap();
        let tallies = (0..EACH).map(|n| beside.typed(&Tally { n }).unwrap());
        beside.enqueue_many(tallies.collect()).await.unwrap();
        let request = ClaimRequest {
            limit: EACH,
            ..request_from("measured")
        };
        let began = SystemClock.elapsed();
        let claimed = store.claim(&request).await.unwrap();
        claims.push(SystemClock.elapsed().since(began));
        assert_eq!(claimed.len(), EACH as usize);
        let done: Vec<_> = claimed
            .iter()
            .map(|claimed| settlement(hold(&claimed.item), complete()))
            .collect();
        let settled = store.settle(&done).await.unwrap();
        assert!(
            settled
                .iter()
                .all(|answer| *answer == Settled::Settled(Ended::Done))
        );
    }
    claims.sort_unstable();
    claims
}

/// The middle one, and the 99th of a hundred.
fn figures(sorted: &[Duration]) -> (Duration, Duration) {
    (sorted[sorted.len() / 2], sorted[sorted.len() * 99 / 100])
}

/// Looks ten times a second for a session of the store's that is idle in a transaction, or holds a snapshot,
/// for more than a second. Answers what it found when it is aborted, so it panics at once.
fn watch_sessions(onlooker: Session) -> JoinHandle<()> {
    let text = "select pid, state, query from pg_stat_activity
         where application_name like $1 || '%'
             and (state like 'idle in transaction%' and state_change < clock_timestamp() - interval '1 s'
                 or backend_xmin is not null and xact_start < clock_timestamp() - interval '1 s')";
    tokio::spawn(async move {
        loop {
            let found = onlooker.query(text, &[&NAME]).await.unwrap();
            if let Some(row) = found.first() {
                let (state, query): (String, String) = (row.get(1), row.get(2));
                panic!("a session of the store's is {state} for a second: {query}");
            }
            pass(Duration::from_millis(100)).await;
        }
    })
}

/// A session that listens, and whose client reads nothing from then on.
async fn deaf_listener(server: &OwnServer) -> (Session, impl Sized) {
    let (client, mut connection) = tokio_postgres::connect(&server.address(), NoTls)
        .await
        .unwrap();
    {
        let mut listen = Box::pin(client.batch_execute("listen leasehold_leasehold"));
        poll_fn(|context| {
            assert!(connection.poll_message(context).is_pending());
            listen.as_mut().poll(context).map(Result::unwrap)
        })
        .await;
    }
    (client, connection)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_snapshot_makes_no_claim_slow_and_is_never_the_stores_own() {
    let scale = few_or(
        Scale {
            before: 60,
            under: 400,
            after: 60,
            pace: Duration::ZERO,
        },
        Scale {
            before: 600,
            under: 1_800,
            after: 600,
            pace: Duration::from_millis(100),
        },
    );
    let Some(server) = OwnServer::start(&["autovacuum_naptime=5s"]).await else {
        return;
    };
    let address = server.address_for(NAME);
    let store = leasehold_postgres::connect(&address, Options::default()).await;
    let store: Arc<PostgresStore> = store.unwrap();
    let worked = leasehold_postgres::connect(&address, Options::default()).await;
    let worker = worker(&worked.unwrap(), |_: Tally, _: Run| async {}, settings(50));
    let (metrics, stopper) = (worker.metrics(), Stopper::new());
    let running = tokio::spawn(worker.run(stopper.clone()));
    let beside = Client::single_tenant(store.stores()).unwrap();
    let watching = watch_sessions(server.outsider().await);
    let _deaf = deaf_listener(&server).await;

    // Statements are planned, caches are filled.
    rounds(&store, &beside, 10, Duration::ZERO).await;
    let before = figures(&rounds(&store, &beside, scale.before, scale.pace).await);
    let pinned = server.outsider().await;
    let pin = "begin isolation level repeatable read; select from leasehold.items limit 1";
    pinned.batch_execute(pin).await.unwrap();
    let half = scale.under / 2;
    rounds(&store, &beside, half, scale.pace).await;
    let under = figures(&rounds(&store, &beside, half, scale.pace).await);
    pinned.batch_execute("rollback").await.unwrap();
    let vacuumed = "vacuum leasehold.ready, leasehold.claims";
    pinned.batch_execute(vacuumed).await.unwrap();
    let after = figures(&rounds(&store, &beside, scale.after, scale.pace).await);

    let told = format!("median and 99 %: {before:?} before, {under:?} under it, {after:?} after");
    assert!(under.0 <= SLOWER_MAX * before.0, "{told}");
    assert!(under.1 <= SLOWER_MAX * before.1, "{told}");
    assert!(after.0 <= 3 * before.0, "{told}");
    assert!(!watching.is_finished(), "{:?}", watching.await);
    watching.abort();
    // What a person sees of it: claims are timed, and so are passes of the sweep.
    let page = metrics.encode();
    assert!(page.contains("leasehold_claim_seconds_bucket"), "{page}");
    stop(stopper, running).await;
}
