//! Heartbeats: how often, what a refusal means, and what silence does.

use std::time::Duration;

use super::harness::{SEC, Started, settings};
use super::world::{Fault, Standing, World};

#[tokio::test(start_paused = true)]
async fn a_run_is_kept_by_a_heartbeat_each_interval() {
    let world = World::new();
    world.send("t1", "sleep 600");
    let worker = Started::on(&world, settings());
    world.until("succeed t1", 1).await;
    let beats = world.moments("heartbeat t1");
    let gaps = beats.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    for gap in gaps {
        assert!(gap <= Duration::from_millis(15_500), "{gap:?}");
    }
    assert!((40..=44).contains(&beats.len()), "{}", beats.len());
    worker.stop().await;
}

/// Stale at beat k: killed within an interval of the closing, nothing reported.
#[tokio::test(start_paused = true)]
async fn a_closed_task_is_killed_within_an_interval_and_not_reported() {
    for k in [2, 3, 5] {
        let world = World::new();
        world.send("t1", "never");
        let worker = Started::on(&world, settings());
        world.until("heartbeat t1", k).await;
        world.close("t1");
        let closed = world.now();
        world.until("end t1", 1).await;
        let took = world.now().saturating_sub(closed);
        assert!(took <= Duration::from_millis(15_500), "{took:?}");
        world.until("unprotect", 1).await;
        assert_eq!(worker.metrics.source_events("stale"), 1);
        worker.stop().await;
        let told = world.told();
        assert!(
            !told
                .iter()
                .any(|what| what.starts_with("fail") || what.starts_with("succeed")),
            "{told:#?}"
        );
    }
}

/// Throttling and silence are no staleness until half a lease, two intervals, has passed.
#[tokio::test(start_paused = true)]
async fn heartbeats_that_are_not_accepted_stop_a_run_after_two_intervals_and_no_sooner() {
    for fault in [Fault::Busy, Fault::Broken, Fault::Hangs] {
        let world = World::new();
        world.send("t1", "heed");
        let worker = Started::on(&world, settings());
        world.until("heartbeat t1", 2).await;
        let accepted = world.now();
        world.script("heartbeat", vec![fault.clone(); 50]);
        world.until("end t1", 1).await;
        let took = world.now().saturating_sub(accepted);
        let least = Duration::from_secs(29);
        assert!(took >= least && took <= 31 * SEC, "{fault:?} {took:?}");
        assert!(world.count("heartbeat t1") > 3, "asked again meanwhile");
        world.until("unprotect", 1).await;
        assert_eq!(world.standing("t1"), Standing::Open, "nothing is reported");
        assert_eq!(worker.metrics.source_events("aborted"), 1);
        worker.stop().await;
    }
}

/// What fails for one task is not held against the one beside it.
#[tokio::test(start_paused = true)]
async fn one_task_without_heartbeats_does_not_take_its_neighbour_along() {
    let world = World::new();
    let settings = leasehold_aws::StepFunctionsSettings {
        capacity: 2,
        ..settings()
    };
    world.send("t1", "never");
    world.send("t2", "sleep 300");
    let worker = Started::on(&world, settings);
    world.until_true(|world| world.running() == 2).await;
    world.close("t1");
    world.until("end t1", 1).await;
    world.until("succeed t2", 1).await;
    worker.stop().await;
}

/// Throttled for a while, and no harm done.
#[tokio::test(start_paused = true)]
async fn throttling_that_passes_changes_nothing() {
    let world = World::new();
    world.send("t1", "sleep 120");
    let worker = Started::on(&world, settings());
    world.until("heartbeat t1", 2).await;
    world.script("heartbeat", vec![Fault::Busy; 2]);
    world.until("succeed t1", 1).await;
    assert_eq!(worker.metrics.source_events("aborted"), 0);
    worker.stop().await;
}
