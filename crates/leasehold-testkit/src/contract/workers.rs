//! What several real workers do together over one store.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::schedule::{Missed, ScheduleDefinition};
use leasehold::{
    Client, InProcess, QueueSource, Run, Stopper, Stores, Work, Worker, WorkerSettings,
};
use leasehold_core::store::schedules::tick_key;
use leasehold_core::store::work::{Filter, LIST_MAX, Page};
use leasehold_core::{OrgId, ScheduleId, WorkItem};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::fixture::Fixture;

#[derive(Debug, Serialize, Deserialize)]
struct Beep {}

impl Work for Beep {
    const KIND: &'static str = "BEEP";
}

const WORKERS: usize = 8;
/// Far longer than a tick takes to be made.
const PATIENCE: Duration = Duration::from_secs(30);
const NAME: &str = "beep";
/// Of missed ticks so many are made.
const CAUGHT_UP: u32 = 5;

/// Eight workers, of which every other one looks through another handle.
struct Crew {
    stopper: Stopper,
    running: JoinSet<()>,
}

impl Crew {
    async fn start(f: &Fixture) -> Self {
        let stopper = Stopper::new();
        let handles = [f.stores.clone(), f.second_handle().await];
        let mut running = JoinSet::new();
        for at in 0..WORKERS {
            let settings = WorkerSettings {
                name: format!("worker-{at}"),
                ..WorkerSettings::default()
            };
            let executor = InProcess::new().handle(async |_: Beep, _: Run| {});
            let source = QueueSource::new(handles[at % 2].clone());
            let worker = Worker::new(source, executor.unwrap(), settings).unwrap();
            let stopper = stopper.clone();
            running.spawn(async move {
                worker.run_here(stopper).await.unwrap();
            });
        }
        Self { stopper, running }
    }

    async fn stop(self) {
        self.stopper.stop();
        self.running.join_all().await;
    }
}

async fn items(client: &Client) -> Vec<WorkItem> {
    let page = Page {
        before: None,
        limit: LIST_MAX,
    };
    client.list(&Filter::default(), &page).await.unwrap().items
}

/// The ticks that have an item, once there are so many.
async fn ticks(f: &Fixture, client: &Client, count: usize) -> BTreeSet<Timestamp> {
    let looking = async {
        loop {
            let found = items(client).await;
            if found.len() >= count {
                return found;
            }
            f.advance(Duration::from_millis(100)).await;
            // real time: workers sleep until a tick comes.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, looking).await;
    let found = found.expect("the ticks are made");
    let id = ScheduleId::of_name(OrgId::SINGLE, NAME);
    let mut ticks = BTreeSet::new();
    for item in found {
        assert_eq!(item.idempotency_key, tick_key(id, item.created_at));
        assert!(ticks.insert(item.created_at), "{} twice", item.created_at);
    }
    ticks
}

fn client(stores: &Stores) -> Client {
    Client::single_tenant(stores.clone()).unwrap()
}

/// Every second one, however many look, also across a restart; and after a clock that jumps an hour ahead as
/// many of those missed as are asked for.
pub async fn eight_workers_make_one_item_of_each_tick(f: &Fixture) {
    let client = client(&f.stores);
    let beep = client.schedule_of(NAME, "@every 1s", &Beep {}).unwrap();
    let declared = || {
        let missed = Missed::UpTo(CAUGHT_UP);
        vec![ScheduleDefinition {
            missed,
            ..beep.clone()
        }]
    };
    let first = client.declare_schedules("test", declared()).await.unwrap();
    assert_eq!(first.put, [NAME]);
    let crew = Crew::start(f).await;
    ticks(f, &client, 3).await;
    crew.stop().await;
    let again = client.declare_schedules("test", declared()).await.unwrap();
    assert_eq!(again.put, Vec::<String>::new(), "it is as it was");
    let crew = Crew::start(f).await;
    let before = ticks(f, &client, 6).await;
    f.advance(Duration::from_hours(1)).await;
    let after = ticks(f, &client, before.len() + CAUGHT_UP as usize + 1).await;
    crew.stop().await;
    let second = |tick: &Timestamp| tick.as_second();
    let made: Vec<i64> = after.iter().map(second).collect();
    let gaps: Vec<i64> = made.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let jumps: Vec<&i64> = gaps.iter().filter(|gap| **gap != 1).collect();
    assert!(
        jumps.len() <= 1,
        "no tick is left out but for the jump: {gaps:?}"
    );
    assert!(jumps.iter().all(|gap| **gap > 3_000), "{gaps:?}");
}
