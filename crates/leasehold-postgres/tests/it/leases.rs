//! LEASE-1 and LEASE-2: whoever ends a claim decides by the row as it is when it is written, and of two who
//! would end one, one does.
//!
//! Each side has a clock of its own here, so that what is over for the one is not yet over for the other:
//! both are in the right, and only the row decides.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{Ended, Renewed, Requeued, Settled, Settlement};
use leasehold_core::{NewItem, Status, WorkItem, WorkStore as _};
use leasehold_postgres::{PostgresStore, Wakeup};
use leasehold_testkit::contract::samples::{
    DAY, HOUR, LEASE, MOST_OF_LEASE, ORG, REST_OF_LEASE, bury, complete, hold, id, last_attempt,
    numbered, release, renewal, request_of, retry, settlement, sweep_of,
};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::faults::{until_waiting, with_parameter};
use crate::harness::{OneSchema, lone};

/// Names the lock at which a sweep waits that has begun.
const GATE: i64 = 0x6c65_6173;

/// A schema on which holders and a sweep go by clocks of their own.
struct Ground {
    on: OneSchema,
    /// Sweeps by the clock of those who sweep.
    sweeper: Arc<PostgresStore>,
}

impl Ground {
    async fn new() -> Option<Self> {
        let on = OneSchema::new().await?;
        let name = format!("{}_sweeper", on.schema);
        let address = with_parameter(on.address(), "application_name", &name);
        let options = on.options().with_wakeup(Wakeup::Poll);
        let sweeper = leasehold_postgres::connect(&address, options).await;
        Some(Self {
            sweeper: sweeper.unwrap(),
            on,
        })
    }

    /// Sets the clocks: how far ahead of the server's is the holders', and how far ahead of theirs the
    /// sweeper's, whose statements wait at the gate with what they have seen, if somebody closes it.
    async fn set_clocks(&self, ahead: Duration, sweeper_ahead: Duration) {
        let text = format!(
            "create or replace function {schema}.clock() returns timestamptz
                 language plpgsql stable as $$
             declare
                 reads timestamptz := pg_catalog.now() + {} * interval '1 microsecond';
             begin
                 if current_setting('application_name') <> '{schema}_sweeper' then
                     return reads;
                 end if;
                 perform pg_advisory_xact_lock_shared({GATE}, hashtext('{schema}'));
                 return reads + {} * interval '1 microsecond';
             end $$",
            ahead.as_micros(),
            sweeper_ahead.as_micros(),
            schema = self.on.schema,
        );
        self.on.outsider.batch_execute(&text).await.unwrap();
    }

    /// Keeps sweeps half-way until the client rolls back.
    async fn close_gate(&self) -> Client {
        let gate = lone(self.on.address()).await;
        let text = format!(
            "begin; select pg_advisory_xact_lock({GATE}, hashtext('{}'))",
            self.on.schema
        );
        gate.batch_execute(&text).await.unwrap();
        gate
    }

    /// Begins a sweep that has seen what there is, and waits at the gate.
    async fn sweep_half_way(&self) -> JoinHandle<Requeued> {
        let sweeper = self.sweeper.clone();
        let sweep =
            tokio::spawn(async move { sweeper.requeue_stale(ORG, &sweep_of(9)).await.unwrap() });
        until_waiting(&self.on, 1).await;
        sweep
    }

    async fn claim(&self, new: Vec<NewItem>) -> Vec<WorkItem> {
        let count = u32::try_from(new.len()).unwrap();
        self.on.store.enqueue(ORG, new).await.unwrap();
        let claimed = self.on.store.claim(&request_of(count)).await.unwrap();
        assert_eq!(claimed.len(), count as usize);
        claimed.into_iter().map(|claimed| claimed.item).collect()
    }

    async fn settle(&self, held: &WorkItem, to: Transition) -> Settled {
        let batch = [settlement(hold(held), to)];
        self.on.store.settle(&batch).await.unwrap()[0]
    }

    async fn row(&self, number: u128) -> WorkItem {
        self.on.store.get(ORG, id(number)).await.unwrap().unwrap()
    }
}

/// LEASE-1: three leases are over when the sweep looks. Before it writes, one's holder completes it, late,
/// and one is handed back and claimed by somebody else. The third one's holder is gone.
#[tokio::test]
async fn a_sweep_decides_by_the_rows_as_they_are_when_it_writes() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let held = ground.claim((1..=3).map(numbered).collect()).await;
    ground.set_clocks(LEASE, Duration::ZERO).await;
    let gate = ground.close_gate().await;
    let sweep = ground.sweep_half_way().await;

    let late = ground.settle(&held[0], complete()).await;
    assert_eq!(late, Settled::Conflict, "its lease is over");
    let back = ground.settle(&held[1], release(Duration::ZERO)).await;
    assert_eq!(back, Settled::Settled(Ended::Queued));
    let again = ground.on.store.claim(&request_of(1)).await.unwrap();
    assert_eq!(again[0].item.id, id(2));
    gate.batch_execute("rollback").await.unwrap();

    let swept = sweep.await.unwrap();
    assert_eq!((swept.recovered, swept.total()), (2, 2));
    assert_eq!(ground.row(2).await, again[0].item, "it was touched");
    for number in [1, 3] {
        let row = ground.row(number).await;
        assert_eq!((row.status, row.attempts), (Status::Queued, 1));
        assert_eq!(row.worker_losses, 1);
    }
}

/// LEASE-1, variant: one is renewed just in time, by a clock that has not come that far.
#[tokio::test]
async fn a_sweep_leaves_alone_what_was_renewed_while_it_looked() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let held = ground.claim((1..=3).map(numbered).collect()).await;
    ground.set_clocks(MOST_OF_LEASE, REST_OF_LEASE).await;
    let gate = ground.close_gate().await;
    let sweep = ground.sweep_half_way().await;

    let renewed = [renewal(hold(&held[0]))];
    let renewed = ground.on.store.renew(&renewed).await.unwrap();
    assert_eq!(renewed, [Renewed::Kept]);
    let renewed = ground.row(1).await;
    let back = ground.settle(&held[1], release(Duration::ZERO)).await;
    assert_eq!(back, Settled::Settled(Ended::Queued));
    let again = ground.on.store.claim(&request_of(1)).await.unwrap();
    gate.batch_execute("rollback").await.unwrap();

    let swept = sweep.await.unwrap();
    assert_eq!((swept.recovered, swept.total()), (1, 1));
    assert_eq!(ground.row(1).await, renewed, "it was touched");
    assert_eq!(ground.row(2).await, again[0].item, "it was touched");
    assert_eq!(ground.row(3).await.worker_losses, 1);
    let done = ground.settle(&held[0], complete()).await;
    assert_eq!(done, Settled::Settled(Ended::Done));
}

/// How many items each race is about.
fn rounds() -> u32 {
    match std::env::var_os("LEASEHOLD_LONG_TESTS") {
        Some(_) => 1_000,
        None => 250,
    }
}

/// What came of a race: how many rounds either side won.
#[derive(Debug, Default)]
struct Score {
    holder: u32,
    rival: u32,
}

/// Lets the holder of an item and a rival end its claim at one moment, round after round. `ended` says who
/// won, and must hold what either was told against the row.
async fn race<R: Send + 'static>(
    ground: &Ground,
    new: impl Fn() -> NewItem,
    holders: Transition,
    rival: impl AsyncFn(&PostgresStore, Settlement) -> R,
    ended: impl Fn(Settled, &R, &WorkItem) -> bool,
) -> Score {
    // The lease is over for the sweeper and for nobody else.
    ground.set_clocks(Duration::ZERO, LEASE).await;
    let mut score = Score::default();
    for _ in 0..rounds() {
        let held = ground.claim(vec![new()]).await.remove(0);
        let barrier = Arc::new(Barrier::new(2));
        let settling = {
            let (store, barrier) = (ground.on.store.clone(), barrier.clone());
            let batch = [settlement(hold(&held), holders.clone())];
            tokio::spawn(async move {
                barrier.wait().await;
                store.settle(&batch).await.unwrap()[0]
            })
        };
        barrier.wait().await;
        let told = rival(&ground.sweeper, settlement(hold(&held), complete())).await;
        let settled = settling.await.unwrap();
        let row = ground.on.store.get(ORG, held.id).await.unwrap().unwrap();
        if ended(settled, &told, &row) {
            score.holder += 1;
        } else {
            score.rival += 1;
        }
    }
    assert_eq!(score.holder + score.rival, rounds());
    let met = score.holder > 0 && score.rival > 0;
    assert!(met, "the two never met: {score:?}");
    score
}

async fn sweep(store: &PostgresStore, _: Settlement) -> Requeued {
    store.requeue_stale(ORG, &sweep_of(9)).await.unwrap()
}

/// Whether the holder won over a sweep, by what both were told: never both, and never neither.
fn beat_the_sweep(settled: Settled, swept: &Requeued) -> bool {
    match settled {
        Settled::Settled(_) => {
            assert_eq!(swept.total(), 0, "both had it");
            true
        }
        Settled::Conflict => {
            assert_eq!(swept.total(), 1, "neither had it");
            false
        }
        Settled::AlreadySettled => panic!("nobody settled it before"),
    }
}

impl Ground {
    /// How many rows of a table meet the condition.
    async fn count(&self, table: &str, condition: &str) -> u32 {
        let text = format!("select from {}.{table} where {condition}", self.on.schema);
        let count = self.on.outsider.execute(&text, &[]).await.unwrap();
        u32::try_from(count).unwrap()
    }
}

/// LEASE-2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_completion_and_an_expiry_one_happens() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let score = race(
        &ground,
        last_attempt,
        complete(),
        sweep,
        |settled, swept, row| {
            let won = beat_the_sweep(settled, swept);
            let status = if won { Status::Done } else { Status::Failed };
            assert_eq!((row.status, row.attempts), (status, 1));
            assert_eq!(row.worker_losses, u32::from(!won));
            assert_eq!(row.errors.len(), usize::from(!won), "a loser wrote");
            won
        },
    )
    .await;
    assert_eq!(ground.count("ends", "is_done").await, score.holder);
    assert_eq!(ground.count("ends", "not is_done").await, score.rival);
    let owed = ground.on.store.unaudited(ORG, 2 * rounds()).await.unwrap();
    assert_eq!(owed.len(), score.rival as usize);
    assert_eq!(ground.count("claims", "true").await, 0);
}

/// LEASE-2, fail against expire, with an attempt left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_failure_and_an_expiry_one_happens() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    // Whoever wins, it is queued for later than the race.
    let later = async |store: &PostgresStore, _: Settlement| {
        let mut request = sweep_of(1);
        request.spread = DAY;
        store.requeue_stale(ORG, &request).await.unwrap()
    };
    let score = race(
        &ground,
        || NewItem {
            max_attempts: 2,
            ..last_attempt()
        },
        retry(HOUR),
        later,
        |settled, swept, row| {
            let won = beat_the_sweep(settled, swept);
            assert_eq!((row.status, row.attempts), (Status::Queued, 1));
            assert_eq!(row.errors.len(), 1, "both spent an attempt");
            assert_eq!(row.worker_losses, u32::from(!won));
            won
        },
    )
    .await;
    let lost = ground.count("ready", "worker_losses = 1").await;
    assert_eq!(lost, score.rival);
    assert_eq!(
        ground.count("ready", "worker_losses = 0").await,
        score.holder
    );
}

/// LEASE-2, a last failure against expire: one dead letter, with one reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_last_failure_and_an_expiry_one_makes_the_dead_letter() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let score = race(
        &ground,
        last_attempt,
        bury(),
        sweep,
        |settled, swept, row| {
            let won = beat_the_sweep(settled, swept);
            assert!(row.is_dead_letter());
            assert_eq!((row.attempts, row.errors.len()), (1, 1));
            assert_eq!(swept.dead.len(), usize::from(!won));
            won
        },
    )
    .await;
    let expired = "failure_code = 'lease_expired'";
    assert_eq!(ground.count("ends", expired).await, score.rival);
    let broken = "failure_code = 'handler_error'";
    assert_eq!(ground.count("ends", broken).await, score.holder);
}

/// LEASE-2, complete against release, which both have the token for: the one that came second changes
/// nothing, and is told that it was settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_completion_and_a_release_one_happens() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let release = async |store: &PostgresStore, entry: Settlement| {
        let batch = [settlement(entry.hold, release(HOUR))];
        store.settle(&batch).await.unwrap()[0]
    };
    let score = race(
        &ground,
        last_attempt,
        complete(),
        release,
        |settled, told, row| match (settled, told) {
            (Settled::Settled(Ended::Done), Settled::AlreadySettled) => {
                assert_eq!((row.status, row.attempts), (Status::Done, 1));
                assert_eq!(row.last_error, None);
                true
            }
            (Settled::AlreadySettled, Settled::Settled(Ended::Queued)) => {
                assert_eq!((row.status, row.attempts), (Status::Queued, 0));
                false
            }
            other => panic!("the two were told {other:?}"),
        },
    )
    .await;
    assert_eq!(ground.count("ends", "true").await, score.holder);
    assert_eq!(ground.count("ready", "true").await, score.rival);
}
