//! Processes killed in the middle of their work.

use std::time::Duration;

use leasehold::{ItemId, Run, Status, Worker};
use leasehold_testkit::probe::Journal;

use super::role::{Hang, Poison, Step, millis};
use super::yard::{Process, Yard, now, within};
use crate::harness::{Started, pass};

const LIMIT: Duration = Duration::from_secs(30);

#[derive(serde::Serialize, serde::Deserialize)]
struct Idle {}

impl leasehold::Work for Idle {
    const KIND: &'static str = "IDLE";
}

/// A worker of the case's own process that only sweeps.
fn sweeper(yard: &Yard) -> Started {
    let role = yard.role("sweeper");
    let idle = leasehold::InProcess::new();
    let idle = idle.handle::<Idle>(|_: Idle, _: Run| async {}).unwrap();
    Started::apart(Worker::new(role.open(), idle, role.settings()).unwrap())
}

/// RECOVER-1: three attempts are allowed, and the worker is killed in the middle of attempts 1, 2 and 3. The
/// item is ready again twice, its count up by one each time, then a dead letter: one audit entry, one
/// count. It is never shown as held for longer than a lease and a sweep, and never dead early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_every_attempt_leaves_a_dead_letter_and_never_early() {
    let yard = Yard::new();
    let id = yard.enqueue(&Hang {}).await;
    let sweeper = sweeper(&yard);
    let timeline = Journal::new();
    let sampler = sample(&yard, id, &timeline);
    for attempt in 1..=3 {
        let process = Process::start(&yard.role("victim"));
        let what = format!("attempt {attempt} runs");
        within(LIMIT, &what, async || {
            (yard.began(id).len() == attempt as usize).then_some(())
        })
        .await;
        let held = yard.item(id).await;
        assert_eq!((held.status, held.attempts), (Status::Claimed, attempt));
        process.kill();
        let killed = now();
        let after = if attempt < 3 {
            Status::Queued
        } else {
            Status::Failed
        };
        let item = yard.until_status(id, after, LIMIT).await;
        let took = now().duration_since(killed);
        // The lease of 1 s, a sweep each 0.33 s at most, and what a busy machine adds.
        assert!(took < jiff::SignedDuration::from_millis(3_000), "{took:?}");
        assert_eq!((item.attempts, item.worker_losses), (attempt, attempt));
        assert!(
            item.last_error
                .unwrap()
                .as_str()
                .starts_with("lease_expired: ")
        );
    }
    let item = within(LIMIT, "the audit entry", async || {
        let item = yard.item(id).await;
        item.audited_at.is_some().then_some(item)
    })
    .await;
    sampler.abort();
    assert_eq!(item.failure_code.unwrap().as_str(), "lease_expired");
    assert_eq!(item.errors.len(), 3);
    assert_eq!(yard.audit_kinds().await, ["work.item.dead_letter"]);
    assert_eq!(sweeper.sum("leasehold_dead_letters_total"), 1);
    assert_eq!(yard.began(id).len(), 3);
    let life = [
        (Status::Queued, 0),
        (Status::Claimed, 1),
        (Status::Queued, 1),
        (Status::Claimed, 2),
        (Status::Queued, 2),
        (Status::Claimed, 3),
        (Status::Failed, 3),
    ];
    // A sample may miss a state that was over soon; it never sees another one, or another order.
    let seen = timeline.entries();
    let places: Vec<usize> = seen
        .iter()
        .map(|state| life.iter().position(|of_life| of_life == state).unwrap())
        .collect();
    assert!(places.is_sorted(), "{seen:?}");
    assert!(places.len() > life.len());
    sweeper.stop().await;
}

/// The state every 50 ms, as another process sees it.
fn sample(
    yard: &Yard,
    id: ItemId,
    timeline: &Journal<(Status, u32)>,
) -> tokio::task::JoinHandle<()> {
    let (client, timeline) = (yard.client.clone(), timeline.clone());
    tokio::spawn(async move {
        loop {
            let item = client.get(id).await.unwrap().unwrap();
            timeline.note((item.status, item.attempts));
            pass(millis(50)).await; // real time: a sample of what other processes do
        }
    })
}

/// ATTEMPT-1(a): an item that kills its process, under a supervisor that restarts it. It starts three
/// times at most and ends as a dead letter that names the loss; twenty healthy items complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_kills_its_worker_dies_alone() {
    let yard = Yard::new();
    let mut healthy = Vec::new();
    for _ in 0..10 {
        healthy.push(yard.enqueue(&Step { ms: 40 }).await);
    }
    let poison = yard.enqueue(&Poison {}).await;
    for _ in 0..10 {
        healthy.push(yard.enqueue(&Step { ms: 40 }).await);
    }
    let role = yard.role("supervised");
    let mut process = Process::start(&role);
    let mut restarts = 0;
    let deadline = now() + 2 * LIMIT;
    loop {
        assert!(now() < deadline, "the queue is not emptied");
        if process.has_ended().is_some() {
            process = Process::start(&role);
            restarts += 1;
        }
        let gauges = yard.stores.work.gauges().await.unwrap();
        if gauges.lanes.is_empty() {
            break;
        }
        pass(millis(20)).await; // real time: another process works
    }
    let item = yard.item(poison).await;
    assert_eq!((item.status, item.worker_losses), (Status::Failed, 3));
    assert_eq!(item.failure_code.unwrap().as_str(), "lease_expired");
    assert!(
        item.last_error
            .unwrap()
            .as_str()
            .contains("the worker died")
    );
    assert_eq!(yard.began(poison).len(), 3);
    assert!(restarts <= 3, "{restarts}");
    for id in healthy {
        let item = yard.item(id).await;
        assert_eq!(item.status, Status::Done, "{item:?}");
    }
    assert_eq!(yard.audit_kinds().await, ["work.item.dead_letter"]);
    process.stop().await;
}
