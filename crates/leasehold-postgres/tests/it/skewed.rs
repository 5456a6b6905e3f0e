//! TIME-1: workers whose calendars disagree. Whatever is due, over or old is so by the server's clock; a
//! worker's own only measures how long it may trust.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use leasehold::core::rules::RetryPolicy;
use leasehold::core::store::work::Enqueued;
use leasehold::core::{BootTime, Clock, OrgId};
use leasehold::{
    Client, HandlerError, InProcess, ItemId, Metrics, QueueSource, Run, Status, Stopper,
    SystemClock, Work, WorkItem, Worker, WorkerSettings,
};
use leasehold_core::WorkStore as _;
use leasehold_testkit::probe::Journal;
use serde::{Deserialize, Serialize};

use crate::harness::OneSchema;
use crate::outages::{few_or, pass};
use crate::worker::{settings, stop};

/// A calendar that somebody has set wrong.
#[derive(Debug, Default)]
struct Skewed(Mutex<SignedDuration>);

impl Skewed {
    fn set(&self, ahead: SignedDuration) {
        *self.0.lock().unwrap() = ahead;
    }
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        SystemClock.now() + *self.0.lock().unwrap()
    }

    fn elapsed(&self) -> BootTime {
        SystemClock.elapsed()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Takes longer than a lease.
    Long,
    Short,
    /// Fails once.
    Retried,
}

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    what: What,
}

impl Work for Job {
    const KIND: &'static str = "JOB";

    fn retry() -> RetryPolicy {
        let delay = scale().retry;
        RetryPolicy {
            base: delay,
            cap: delay,
            jitter: 0.0,
        }
    }
}

/// How long things take.
#[derive(Debug, Clone, Copy)]
struct Scale {
    lease: Duration,
    long: Duration,
    later: Duration,
    retry: Duration,
}

fn scale() -> Scale {
    let secs = Duration::from_secs;
    few_or(
        Scale {
            lease: secs(3),
            long: secs(5),
            later: secs(3),
            retry: secs(2),
        },
        Scale {
            lease: secs(30),
            long: secs(45),
            later: secs(60),
            retry: secs(10),
        },
    )
}

/// What began, in which attempt, and when by the server's clock, which is this machine's.
type Began = (ItemId, u32, Timestamp);

fn executor(scale: Scale, begun: &Journal<Began>) -> InProcess {
    let begun = begun.clone();
    let handler = move |job: Job, run: Run| {
        let begun = begun.clone();
        async move {
            begun.note((run.item().id, run.attempt(), SystemClock.now()));
            match job.what {
                What::Long => pass(scale.long).await,
                What::Retried if run.attempt() == 1 => return Err(HandlerError::new("once")),
                What::Short | What::Retried => {}
            }
            Ok(())
        }
    };
    InProcess::new().handle::<Job>(handler).unwrap()
}

/// By the jittered poll, and what a busy machine adds.
const LATE_MAX: SignedDuration = SignedDuration::from_millis(2_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_whose_calendars_disagree_follow_the_servers_clock() {
    let scale = scale();
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let begun = Journal::<Began>::new();
    let clocks: [Arc<Skewed>; 3] = std::array::from_fn(|_| Arc::default());
    clocks[0].set(SignedDuration::from_mins(10));
    clocks[1].set(SignedDuration::from_mins(-10));
    let mut workers = Vec::new();
    for clock in &clocks {
        let settings = WorkerSettings {
            lease: scale.lease,
            // Shorter than what the calendars are apart: a purge by one of them would show.
            item_retention: Duration::from_mins(5),
            ..settings(6)
        };
        let source = QueueSource::new(on.connect().await.stores());
        let worker = Worker::new(source, executor(scale, &begun), settings).unwrap();
        let worker = worker.with_clock(clock.clone());
        let (metrics, stopper) = (worker.metrics(), Stopper::new());
        let running = tokio::spawn(worker.run(stopper.clone()));
        workers.push((metrics, stopper, running));
    }
    // Nor does the calendar of who enqueues count.
    let client = Client::single_tenant(on.store.stores()).unwrap();
    let client = client.with_clock(clocks[0].clone());
    let mut items = Vec::new();
    for _ in 0..6 {
        for (what, delay) in [
            (What::Long, Duration::ZERO),
            (What::Short, scale.later),
            (What::Retried, Duration::ZERO),
        ] {
            match client.enqueue(&Job { what }).delay(delay).await.unwrap() {
                Enqueued::Inserted(item) => items.push((what, item)),
                fate => panic!("{fate:?}"),
            }
        }
    }
    pass(scale.long / 2).await;
    clocks[2].set(SignedDuration::from_hours(-1));
    for (what, stored) in &items {
        let item = until_done(&on, stored.id).await;
        assert_eq!(item.worker_losses, 0, "a live item was taken: {item:?}");
        judge(*what, stored, &item, &begun.entries(), scale);
    }
    until_skews(&workers, [600.0, -600.0, -3_600.0]).await;
    let jumps = workers[2].0.sum("leasehold_clock_jumps_total");
    assert!((jumps - 1.0).abs() < 0.1, "{jumps} jumps");
    for (_, stopper, running) in workers {
        stop(stopper, running).await;
    }
    let left = format!("select from {}.ends", on.schema);
    let left = on.outsider.execute(&left, &[]).await.unwrap();
    assert_eq!(left, items.len() as u64, "finished items were purged early");
}

async fn until_done(on: &OneSchema, id: ItemId) -> WorkItem {
    let looks = async {
        loop {
            let item = on.store.get(OrgId::SINGLE, id).await.unwrap().unwrap();
            if item.status == Status::Done {
                return item;
            }
            pass(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_mins(2), looks).await;
    done.expect("the item is not done")
}

/// Each begins when the server's clock says, at most a poll later, and as often as it must.
fn judge(what: What, stored: &WorkItem, item: &WorkItem, begun: &[Began], scale: Scale) {
    let begun: Vec<_> = begun.iter().filter(|(id, ..)| *id == stored.id).collect();
    let mut due = vec![stored.available_at];
    if what == What::Retried {
        due.push(item.errors[0].at + SignedDuration::try_from(scale.retry).unwrap());
    }
    let attempts: Vec<_> = begun.iter().map(|(_, attempt, _)| *attempt).collect();
    let expected: Vec<_> = (1..).take(due.len()).collect();
    assert_eq!(attempts, expected, "{what:?}: executions");
    for ((_, _, at), due) in begun.into_iter().zip(due) {
        let late = at.duration_since(due);
        let is_soon = !late.is_negative() && late <= LATE_MAX;
        // A worker whose calendar jumps claims nothing for two seconds; the others do.
        assert!(is_soon, "{what:?} began {late:?} after it was due");
    }
}

/// For whoever must set the time. A sweep measures it.
async fn until_skews<T>(workers: &[(Arc<Metrics>, Stopper, T)], ahead: [f64; 3]) {
    let are_told = || {
        let mut skews = workers.iter().zip(ahead);
        skews.all(|((metrics, ..), ahead)| {
            (metrics.sum("leasehold_clock_skew_seconds") - ahead).abs() < 2.0
        })
    };
    let looks = async {
        while !are_told() {
            pass(Duration::from_millis(20)).await;
        }
    };
    let told = tokio::time::timeout(crate::harness::PATIENCE, looks).await;
    told.expect("nobody tells how far the calendars are off");
}
