//! Protection: SOURCE-1 and SOURCE-2.

use std::time::Duration;

use leasehold_aws::{ProtectionMode, StepFunctionsSettings};

use super::harness::{SEC, Started, handler, pass, settings};
use super::world::{Fault, Standing, World};

/// Nothing begins without it: the message comes back soon, and is asked for less and less often.
#[tokio::test(start_paused = true)]
async fn a_message_whose_protection_is_refused_goes_back() {
    use Fault::{Broken, Busy, Denied, Expired, Foreign, Hangs};
    for fault in [Denied, Busy, Broken, Hangs, Expired] {
        let world = World::new();
        let message = world.send("t1", "ok");
        world.script("protect", vec![fault.clone(); 12]);
        let worker = Started::on(&world, settings());
        world.until("release m0", 1).await;
        pass(Duration::from_millis(10)).await;
        assert!(
            !world.is_deleted(message) && world.is_visible(message),
            "{fault:?}"
        );
        assert_eq!(world.count("run t1"), 0);
        world.until("succeed t1", 1).await;
        let back = world.moments("release m0");
        let gaps: Vec<_> = back
            .windows(2)
            .map(|pair| pair[1].saturating_sub(pair[0]))
            .collect();
        assert!(gaps.iter().all(|gap| *gap >= SEC), "{gaps:?}");
        if gaps.len() > 3 {
            assert!(gaps.last() > gaps.first(), "{gaps:?}");
        }
        assert_eq!(
            worker.metrics.source_events("protection_refused"),
            back.len() as u64
        );
        worker.stop().await;
    }
    // The first answer names the task; a later one about another is not believed.
    let world = World::new();
    world.send("t1", "ok");
    let worker = Started::on(&world, settings());
    world.until("unprotect", 1).await;
    world.script("protect", vec![Foreign; 3]);
    world.send("t2", "ok");
    world.until("release m1", 1).await;
    world.until("succeed t2", 1).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_it_is_optional_work_goes_on_without_it() {
    let world = World::with(false);
    world.send("t1", "sleep 60");
    world.script("protect", [Fault::Denied]);
    let optional = StepFunctionsSettings {
        protection: ProtectionMode::Optional,
        ..settings()
    };
    let worker = Started::on(&world, optional);
    world.until("run t1", 1).await;
    assert!(!world.is_protected());
    // And it is asked for again while the run lasts.
    world.until("protect", 2).await;
    assert_eq!(world.standing("t1"), Standing::Open);
    world.until("succeed t1", 1).await;
    worker.stop().await;
    let off = StepFunctionsSettings {
        protection: ProtectionMode::Off,
        ..settings()
    };
    let world = World::with(false);
    world.send("t1", "ok");
    let worker = Started::with(&world, off, handler(&world), Some(world.clone()));
    world.until("succeed t1", 1).await;
    worker.stop().await;
    assert_eq!(world.count("protect"), 0);
}

/// A period of a minute, two runs of three and five, one of which panics, a renewal that fails: no
/// uncovered second, which the fakes look for at each beginning and end, and here in between.
#[tokio::test(start_paused = true)]
async fn protection_lasts_as_long_as_any_run() {
    for second in ["sleep 300", "panic"] {
        let world = World::new();
        let short = StepFunctionsSettings {
            protection_period: 60 * SEC,
            capacity: 2,
            ..settings()
        };
        world.send("t1", "sleep 180");
        world.send("t2", second);
        let worker = Started::on(&world, short);
        world.until("run t1", 1).await;
        let mut has_failed = false;
        while world.running() > 0 {
            assert!(
                world.is_protected(),
                "at {:?}: {:#?}",
                world.now(),
                world.told()
            );
            if world.now() > 120 * SEC && !has_failed {
                has_failed = true;
                world.script("protect", [Fault::Broken]);
            }
            pass(Duration::from_millis(250)).await;
        }
        world.until("unprotect", 1).await;
        assert_eq!(worker.metrics.source_events("protection_renewal_failed"), 1);
        worker.stop().await;
        assert_eq!(world.count("unprotect"), 1);
        let last = world.told().pop();
        assert_eq!(last.as_deref(), Some("stop"));
    }
}

/// A worker that is busy all the time asks once, and once each third of the period.
#[tokio::test(start_paused = true)]
async fn a_busy_worker_changes_nothing_between_two_messages() {
    let world = World::new();
    for n in 0..50 {
        world.send(&format!("t{n}"), "sleep 1");
    }
    let worker = Started::on(&world, settings());
    world
        .until_true(|world| world.standing("t49") != Standing::Open)
        .await;
    assert_eq!(world.count("protect"), 1);
    worker.stop().await;
    assert_eq!(world.count("unprotect"), 1);
}

/// Giving it up is asked for until it is confirmed, also at the end.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_asked_for_again() {
    let world = World::new();
    world.send("t1", "ok");
    world.script("unprotect", vec![Fault::Broken; 3]);
    let worker = Started::on(&world, settings());
    world.until("succeed t1", 1).await;
    worker.stop().await;
    assert_eq!(world.count("unprotect"), 4);
}
