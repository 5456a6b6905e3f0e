//! Processes frozen and slowed down.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Status;
use rustix::process::Signal;

use super::role::Step;
use crate::yard::{Process, Role, Yard, few_or, millis, pass, within};

const LIMIT: Duration = Duration::from_mins(1);

/// How a process is slowed down: it runs and stands still by turns.
#[derive(Clone, Copy)]
struct DutyCycle {
    runs: Duration,
    stands: Duration,
}

/// LEASE-3(b), gaps shorter than half a lease: one execution, or, where no renewal could be sent in
/// time, the first holder stops itself; never two accepted settles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_slowed_down_keeps_its_item_or_stops_itself() {
    let (runs, stands) = few_or((25, 425), (25, 475));
    let cycle = DutyCycle {
        runs: millis(runs),
        stands: millis(stands),
    };
    let rounds = few_or(3, 50);
    for batch in batches(rounds) {
        join_all(batch.map(|_| slowed(cycle))).await;
    }
}

/// LEASE-3(b), with some gaps longer than the lease: the item is taken over, and the first holder's
/// late settle is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_frozen_for_longer_than_its_lease_settles_nothing() {
    let stands = few_or(1_800, 3_000);
    let cycle = DutyCycle {
        runs: millis(100),
        stands: millis(stands),
    };
    for batch in batches(few_or(3, 50)) {
        let executions = join_all(batch.map(|_| slowed(cycle))).await;
        let is_taken_over = |executions: &usize| *executions > 1;
        assert!(
            executions.iter().all(is_taken_over),
            "{executions:?}: a lease ran out for nobody"
        );
    }
}

/// Five rounds at a time: they mostly stand still.
fn batches(rounds: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..rounds)
        .step_by(5)
        .map(move |from| from..(from + 5).min(rounds))
}

/// One round. How many executions there were.
async fn slowed(cycle: DutyCycle) -> usize {
    let yard = Yard::new();
    let (lease_ms, item_ms) = few_or((1_000, 3_000), (2_000, 10_000));
    let id = yard.enqueue(&Step { ms: item_ms }).await;
    let slow = Process::start(&Role {
        lease_ms,
        capacity: 1,
        ..yard.role("slow")
    });
    within(LIMIT, "the slow worker has the item", async || {
        (!yard.began(id).is_empty()).then_some(())
    })
    .await;
    let steady = Process::start(&Role {
        lease_ms,
        poll_ms: 20,
        ..yard.role("steady")
    });
    let cycles = async {
        loop {
            slow.signal(Signal::STOP);
            pass(cycle.stands).await; // real time: the process stands still
            slow.signal(Signal::CONT);
            pass(cycle.runs).await; // real time: and runs for a moment
        }
    };
    let item = tokio::select! {
        item = yard.until_status(id, Status::Done, LIMIT) => item,
        () = cycles => unreachable!("the cycle has no end"),
    };
    slow.signal(Signal::CONT);
    let executions = yard.began(id);
    // A former holder that wakes up writes nothing any more.
    pass(millis(2 * lease_ms)).await; // real time: for what must not happen there is nothing to await
    assert_eq!(yard.item(id).await, item);
    let (slow, steady) = (slow.stop().await, steady.stop().await);
    let done = r#"kind="STEP",outcome="done""#;
    let accepted = [&slow, &steady].map(|page| page.series("leasehold_items_finished_total", done));
    assert_eq!(
        accepted.iter().sum::<u64>(),
        1,
        "accepted settles: {accepted:?}"
    );
    let ended: Vec<_> = yard
        .diary()
        .into_iter()
        .filter(|entry| entry.what == "ended")
        .collect();
    if executions.len() == 1 {
        assert_eq!(ended.len(), 1);
    } else {
        // Whoever lost it was stopped, or came to its end and was refused.
        let lost: u64 = ["lease_lost", "conflict", "released", "given_up"]
            .iter()
            .map(|outcome| {
                let labels = format!("kind=\"STEP\",outcome=\"{outcome}\"");
                slow.series("leasehold_items_finished_total", &labels)
                    + steady.series("leasehold_items_finished_total", &labels)
            })
            .sum();
        assert_eq!(lost, executions.len() as u64 - 1, "{:?}", yard.diary());
    }
    executions.len()
}
