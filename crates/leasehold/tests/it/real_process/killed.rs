//! Processes killed in the middle of their work.

use std::time::Duration;

use leasehold::{QueueSource, Run, Status, Worker};

use super::role::{Hang, Poison, Step};
use crate::harness::Started;
use crate::losses::killed_in_every_attempt;
use crate::yard::{Process, Yard, millis, now, pass};

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
    Started::apart(Worker::new(QueueSource::new(role.stores()), idle, role.settings()).unwrap())
}

/// RECOVER-1, for a handler of the process itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_in_every_attempt_leaves_a_dead_letter_and_never_early() {
    let yard = Yard::new();
    let id = yard.enqueue(&Hang {}).await;
    let sweeper = sweeper(&yard);
    // The lease of 1 s, a sweep each 0.33 s at most, and what a busy machine adds.
    let held_at_most = millis(3_000);
    let start = || Process::start(&yard.role("victim"));
    let begun = || yard.began(id).len();
    killed_in_every_attempt(&yard, id, held_at_most, start, begun).await;
    assert_eq!(sweeper.sum("leasehold_dead_letters_total"), 1);
    sweeper.stop().await;
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
    assert_eq!(yard.audit_kinds(&[poison]).await, ["work.item.dead_letter"]);
    process.stop().await;
}
