//! PG-1 and PG-2: a worker whose server goes away, in every way in which one can, and comes back, or another
//! in its place.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::store::work::Enqueued;
use leasehold::core::{BootTime, Clock as _, OrgId};
use leasehold::{
    Client, ItemId, Metrics, Run, Status, Stopper, SystemClock, WorkItem, WorkerSettings,
};
use leasehold_core::{StoreError, WorkStore as _};
use leasehold_postgres::{Options, PostgresStore, Wakeup};
use leasehold_testkit::probe::{Journal, Latch};
use tokio::task::JoinHandle;

use crate::harness::PATIENCE;
use crate::own::{OwnServer, Stop, until};
use crate::proxy::Proxy;
use crate::worker::{Tally, settings, worker};

/// What a busy machine adds to whatever must be soon.
const SLACK: Duration = Duration::from_secs(1);

/// How soon an item starts that a worker hears of.
const HEARD_WITHIN: Duration = Duration::from_millis(200);

/// Twice the longest pause of a listener before it connects again, since a server that is still starting
/// refuses the first time, and the time to connect.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// Names the sessions of the worker.
const NAME: &str = "case";

/// `few` as a rule, `many` in a long run.
pub(crate) fn few_or<T>(few: T, many: T) -> T {
    if std::env::var_os("LEASEHOLD_LONG_TESTS").is_some() {
        many
    } else {
        few
    }
}

fn now() -> BootTime {
    SystemClock.elapsed()
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await; // real time: an outage takes some
}

/// A worker that reaches its server by a proxy, and an application that reaches it without.
struct Ground {
    server: OwnServer,
    proxy: Proxy,
    client: Client,
    starts: Journal<(ItemId, BootTime)>,
    stopper: Stopper,
    running: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

impl Ground {
    /// With a worker whose runs begin, and end when the latch is open.
    async fn with(server: OwnServer, settings: WorkerSettings, end: &Latch) -> Self {
        let proxy = Proxy::to(&server.address_for(NAME));
        let store = leasehold_postgres::connect(proxy.address(), Options::default()).await;
        let store = store.unwrap();
        let application = server.store(Options::default().with_wakeup(Wakeup::Poll));
        let client = Client::single_tenant(application.await.stores()).unwrap();
        let starts = Journal::new();
        let handler = {
            let (starts, end) = (starts.clone(), end.clone());
            move |_: Tally, run: Run| {
                starts.note((run.item().id, now()));
                let end = end.clone();
                async move {
                    tokio::select! {
                        () = end.passed() => {}
                        () = run.cancelled() => {}
                    }
                }
            }
        };
        let worker = worker(&store, handler, settings);
        let metrics = worker.metrics();
        let stopper = Stopper::new();
        let running = worker.run(stopper.clone());
        let running = tokio::spawn(async move {
            running.await.unwrap();
        });
        Self {
            server,
            proxy,
            client,
            starts,
            stopper,
            running,
            metrics,
        }
    }

    /// With a worker whose runs end at once, and who listens.
    async fn idle(poll_interval: Duration) -> Option<Self> {
        let server = OwnServer::start(&[]).await?;
        let settings = WorkerSettings {
            poll_interval,
            ..settings(4)
        };
        let end = Latch::new();
        end.open();
        let ground = Self::with(server, settings, &end).await;
        ground.listens().await;
        Some(ground)
    }

    async fn listens(&self) {
        let text = format!(
            "select count(*) = 1 from pg_stat_activity
             where application_name = '{NAME} listener' and state = 'idle' and query like '%pg_backend_pid%'"
        );
        let address = self.server.address();
        let looks = until(&address, "nobody listens", &text);
        let listens = tokio::time::timeout(LISTENS_WITHIN, looks).await;
        listens.expect("the listener takes too long");
    }

    /// Asks until the item is stored.
    async fn enqueue(&self) -> ItemId {
        let id = ItemId::mint();
        let asked = async {
            loop {
                match self.client.enqueue(&Tally { n: 0 }).id(id).await {
                    Ok(Enqueued::Inserted(_) | Enqueued::IdExists(_)) => return,
                    Err(leasehold::ClientError::Store(error)) if error.is_passing() => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        let stored = tokio::time::timeout(PATIENCE, asked).await;
        stored.expect("it cannot be stored");
        id
    }

    /// Waits until the item has begun, and answers when.
    async fn began(&self, item: ItemId) -> BootTime {
        let looks = async {
            loop {
                let starts = self.starts.entries();
                if let Some((_, at)) = starts.iter().find(|(id, _)| *id == item) {
                    return *at;
                }
                self.starts.wait_for(starts.len() + 1).await;
            }
        };
        let began = tokio::time::timeout(PATIENCE, looks).await;
        began.expect("the item does not start")
    }

    async fn item(&self, id: ItemId) -> WorkItem {
        self.client.get(id).await.unwrap().unwrap()
    }

    async fn until_done(&self, id: ItemId) -> WorkItem {
        let looks = async {
            loop {
                match self.client.get(id).await {
                    Ok(Some(item)) if item.status == Status::Done => return item,
                    Ok(_) => pass(Duration::from_millis(20)).await,
                    Err(leasehold::ClientError::Store(error)) if error.is_passing() => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let done = tokio::time::timeout(PATIENCE + LISTENS_WITHIN, looks).await;
        done.expect("the item is not done")
    }

    /// The database is reachable from now on: what waits starts within a poll interval, the worker listens
    /// again, and then hears at once.
    async fn recovers(&self, poll_interval: Duration) {
        assert!(!self.running.is_finished(), "the worker has ended");
        let reachable = now();
        let first = self.enqueue().await;
        let delay = self.began(first).await.since(reachable);
        // The interval is jittered by a tenth.
        let soon = poll_interval.mul_f64(1.1) + SLACK;
        assert!(
            delay <= soon,
            "it started {delay:?} after the database was back"
        );
        self.listens().await;
        let mut delays = Vec::new();
        for _ in 0..9 {
            let stored = now();
            let id = self.enqueue().await;
            delays.push(self.began(id).await.since(stored));
        }
        delays.sort_unstable();
        // The middle one: others use the machine too.
        assert!(delays[4] <= HEARD_WITHIN, "not heard of: {delays:?}");
    }

    async fn stop(self) {
        self.stopper.stop();
        let ended = tokio::time::timeout(PATIENCE, self.running).await;
        ended.expect("the worker ends").unwrap();
    }
}

/// How much processor time this process has had, with all its threads, if the system says.
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may hold anything: the 14th and 15th fields, in hundredths of a second.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Some(Duration::from_millis(10 * fields.iter().sum::<u64>()))
}

/// Lets an outage last, in which this process is to be near idle.
async fn nothing_is_done_for(time: Duration) {
    let before = processor_time();
    pass(time).await;
    if let (Some(before), Some(after)) = (before, processor_time()) {
        let busy = after.saturating_sub(before);
        assert!(busy <= time / 10, "busy for {busy:?} of {time:?}");
    }
}

/// PG-1 (a).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listening_session_that_is_ended_once_is_made_again() {
    let poll_interval = Duration::from_secs(3);
    let Some(ground) = Ground::idle(poll_interval).await else {
        return;
    };
    let text = "select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'case listener'";
    let outsider = ground.server.outsider().await;
    assert_eq!(outsider.execute(text, &[]).await.unwrap(), 1);
    ground.recovers(poll_interval).await;
    ground.stop().await;
}

/// PG-1 (b).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_for_a_while_is_come_back_to() {
    let poll_interval = Duration::from_secs(3);
    let Some(mut ground) = Ground::idle(poll_interval).await else {
        return;
    };
    ground.server.stop(Stop::Fast);
    nothing_is_done_for(few_or(Duration::from_secs(4), Duration::from_secs(20))).await;
    assert!(ground.metrics.sum("leasehold_store_errors_total") > 0.0);
    assert!(
        ground.metrics.sum("leasehold_store_up") < 0.5,
        "nobody sees it"
    );
    ground.server.start_again().await;
    ground.recovers(poll_interval).await;
    assert!(
        ground.metrics.sum("leasehold_store_up") > 0.5,
        "nobody sees it"
    );
    ground.stop().await;
}

/// PG-1 (c).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_again_and_again_is_come_back_to() {
    let poll_interval = Duration::from_secs(3);
    let Some(mut ground) = Ground::idle(poll_interval).await else {
        return;
    };
    for round in 0..few_or(3, 5) {
        let how = if round % 2 == 0 {
            Stop::Fast
        } else {
            Stop::Immediate
        };
        ground.server.stop(how);
        ground.server.start_again().await;
    }
    ground.recovers(poll_interval).await;
    ground.stop().await;
}

/// PG-1 (d): the connections that are there never speak again, and none is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_swallow_everything_are_given_up() {
    // Longer than a claim is waited for in vain.
    let poll_interval = Duration::from_secs(6);
    let Some(ground) = Ground::idle(poll_interval).await else {
        return;
    };
    ground.proxy.swallow();
    nothing_is_done_for(few_or(Duration::from_secs(8), Duration::from_secs(20))).await;
    ground.proxy.admit();
    ground.recovers(poll_interval).await;
    ground.stop().await;
}

/// A worker that runs three items on the server, with a lease of that length.
async fn running(server: OwnServer, lease: Duration) -> (Ground, Latch, Vec<ItemId>) {
    let settings = WorkerSettings {
        lease,
        ..settings(4)
    };
    let end = Latch::new();
    let ground = Ground::with(server, settings, &end).await;
    let mut items = Vec::new();
    for _ in 0..3 {
        items.push(ground.enqueue().await);
    }
    for item in &items {
        ground.began(*item).await;
    }
    ground.listens().await;
    (ground, end, items)
}

impl Ground {
    /// Lets the standby take over: its server writes from now on, and the name leads to it.
    async fn fail_over(&mut self, standby: OwnServer) -> OwnServer {
        standby.promote().await;
        self.proxy.lead_to(&standby.address());
        let store = standby.store(Options::default().with_wakeup(Wakeup::Poll));
        self.client = Client::single_tenant(store.await.stores()).unwrap();
        std::mem::replace(&mut self.server, standby)
    }

    /// Holds that new work is claimed in time, and that each item was done once: by its first run, or after
    /// that was lost by a second.
    async fn goes_on(&self, items: &[ItemId], runs: usize) {
        let writable = now();
        let next = self.enqueue().await;
        let delay = self.began(next).await.since(writable);
        assert!(
            delay <= Duration::from_secs(10),
            "claims resume after {delay:?}"
        );
        for item in items {
            let done = self.until_done(*item).await;
            let starts = self.starts.entries();
            let begun = starts.iter().filter(|(id, _)| id == item).count();
            assert_eq!(begun, runs, "{done:?}");
            assert!(done.attempts as usize <= runs, "{done:?}");
        }
        self.until_done(next).await;
        let done = self.metrics.finished_as("done");
        assert_eq!(done, items.len() as u64 + 1, "an item was settled twice");
    }
}

/// PG-2: the server takes no more writes, of the sessions that are open neither, and another one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_turns_read_only_is_left_for_the_one_that_writes() {
    let Some((server, standby)) = OwnServer::start_followed().await else {
        return;
    };
    let (mut ground, end, items) = running(server, Duration::from_secs(20)).await;
    let old = ground.server.outsider().await;
    for text in [
        "alter system set default_transaction_read_only = on",
        "select pg_reload_conf()",
    ] {
        old.batch_execute(text).await.unwrap();
    }
    let read_only = "select current_setting('default_transaction_read_only') = 'on'";
    until(&ground.server.address(), "it is not reloaded", read_only).await;
    ground.server.is_followed_by(&standby).await;
    // They end while nothing can be written: their settles are asked again.
    end.open();
    pass(few_or(Duration::from_secs(1), Duration::from_secs(5))).await;
    let former = ground.fail_over(standby).await;
    ground.goes_on(&items, 1).await;
    ground.listens().await;
    let gone = "select count(*) = 0 from pg_stat_activity where application_name like 'case%'";
    until(
        &former.address(),
        "a session is left on the old server",
        gone,
    )
    .await;
    ground.stop().await;
}

/// PG-2, variant: the server ends its sessions and shuts down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shuts_down_is_left_for_its_successor() {
    let Some((server, standby)) = OwnServer::start_followed().await else {
        return;
    };
    let (mut ground, end, items) = running(server, Duration::from_secs(20)).await;
    ground.server.is_followed_by(&standby).await;
    ground.server.stop(Stop::Fast);
    end.open();
    pass(few_or(Duration::from_secs(1), Duration::from_secs(5))).await;
    drop(ground.fail_over(standby).await);
    ground.goes_on(&items, 1).await;
    ground.stop().await;
}

/// PG-2, variant: connections are refused for longer than the lease. The holder stops its runs, hands them
/// back when it can, and they are run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_for_longer_than_the_lease_costs_each_run_a_second() {
    let lease = few_or(Duration::from_secs(2), Duration::from_secs(20));
    let Some(server) = OwnServer::start(&[]).await else {
        return;
    };
    let (ground, end, items) = running(server, lease).await;
    ground.proxy.refuse();
    ground.proxy.cut();
    pass(lease + lease / 2).await;
    let lost = ground.metrics.sum("leasehold_lease_lost_total");
    assert!((lost - 3.0).abs() < 0.1, "{lost} runs were stopped");
    end.open();
    ground.proxy.admit();
    ground.goes_on(&items, 2).await;
    for item in &items {
        let item = ground.item(*item).await;
        assert!(item.errors.len() <= 1, "{item:?}");
    }
    ground.stop().await;
}

/// An application that enqueues is told of the outage, and can ask again.
#[tokio::test]
async fn an_enqueue_on_a_server_that_is_gone_can_be_asked_again() {
    let Some(mut server) = OwnServer::start(&[]).await else {
        return;
    };
    let store: Arc<PostgresStore> = server.store(Options::default()).await;
    server.stop(Stop::Immediate);
    let client = Client::single_tenant(store.stores()).unwrap();
    let item = client.typed(&Tally { n: 0 }).unwrap();
    let refused = store.enqueue(OrgId::SINGLE, vec![item.clone()]).await;
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
    server.start_again().await;
    let stored = store.enqueue(OrgId::SINGLE, vec![item]).await.unwrap();
    assert!(matches!(stored[..], [Enqueued::Inserted(_)]));
}
