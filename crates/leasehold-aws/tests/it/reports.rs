//! The last word: said once, in time, within its limits, and never a failure after a success that may
//! have been heard.

use super::harness::{SEC, Started, settings};
use super::world::{Fault, Standing, World};

async fn ending(does: &str) -> Standing {
    let world = World::new();
    world.send("t1", does);
    let worker = Started::on(&world, settings());
    world
        .until_true(|world| world.standing("t1") != Standing::Open)
        .await;
    worker.stop().await;
    world.standing("t1")
}

fn failed(standing: &Standing) -> (&str, &str) {
    match standing {
        Standing::Failed(error, cause) => (error, cause),
        other => panic!("no failure: {other:?}"),
    }
}

/// The endings of handlers in this process, by their names on the wire.
#[tokio::test(start_paused = true)]
async fn endings_have_their_names() {
    assert_eq!(
        ending("ok").await,
        Standing::Succeeded("{\"answer\":\"ok\"}".into())
    );
    assert_eq!(failed(&ending("fail").await), ("BadAsset", "no such key"));
    assert_eq!(failed(&ending("fail x").await), ("handler_error", "x"));
    assert_eq!(failed(&ending("panic").await), ("panicked", "as asked"));
    assert_eq!(failed(&ending("park").await), ("Parked", "no quota"));
    // SOURCE-3 (c).
    let large = ending("large").await;
    let (error, cause) = failed(&large);
    assert_eq!(error, "OutputTooLarge");
    assert!(cause.contains("262144") && cause.len() < 300, "{cause}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_fails_as_such() {
    use leasehold::{Executor as _, KindSettings};
    let world = World::new();
    world.send("t1", "never");
    let inner = super::harness::handler(&world);
    let kinds = inner.kinds().keys().map(|kind| {
        let limited = KindSettings {
            time_limit: Some(60 * SEC),
            ..KindSettings::default()
        };
        (kind.clone(), limited)
    });
    let kinds = kinds.collect();
    let limited = Limited { inner, kinds };
    let worker = Started::with(&world, settings(), limited, Some(world.clone()));
    world.until("fail t1 ProcessingTimeout", 1).await;
    assert!(
        world.now() >= 60 * SEC && world.now() <= 70 * SEC,
        "{:?}",
        world.now()
    );
    worker.stop().await;
}

struct Limited {
    inner: leasehold::InProcess,
    kinds: std::collections::BTreeMap<leasehold::Kind, leasehold::KindSettings>,
}

impl leasehold::Executor for Limited {
    fn kinds(&self) -> &std::collections::BTreeMap<leasehold::Kind, leasehold::KindSettings> {
        &self.kinds
    }

    fn run(
        &self,
        run: leasehold::Run,
        kill: tokio_util::sync::CancellationToken,
    ) -> leasehold::Running {
        self.inner.run(run, kill)
    }
}

/// The answer to a success is lost: it is said again, learns that the task is closed, and that is that.
#[tokio::test(start_paused = true)]
async fn a_success_whose_answer_is_lost_is_never_followed_by_a_failure() {
    for faults in [
        vec![Fault::Lost],
        vec![Fault::Broken, Fault::Lost],
        vec![Fault::Broken, Fault::Refused],
        vec![Fault::Hangs],
        vec![Fault::Hangs, Fault::Busy, Fault::Lost],
    ] {
        let world = World::new();
        world.send("t1", "ok");
        world.script("succeed", faults.clone());
        let worker = Started::on(&world, settings());
        world.until("unprotect", 1).await;
        worker.stop().await;
        assert_eq!(
            world
                .told()
                .iter()
                .filter(|told| told.starts_with("fail"))
                .count(),
            0,
            "{faults:?}"
        );
        let heard = matches!(world.standing("t1"), Standing::Succeeded(_));
        assert_eq!(heard, faults.last() != Some(&Fault::Refused), "{faults:?}");
    }
}

/// A success that the service will never take is told as a short failure, since it was not taken.
#[tokio::test(start_paused = true)]
async fn a_success_that_is_refused_is_told_as_a_failure() {
    let world = World::new();
    world.send("t1", "ok");
    world.script("succeed", [Fault::Busy, Fault::Refused]);
    let worker = Started::on(&world, settings());
    world
        .until_true(|world| world.standing("t1") != Standing::Open)
        .await;
    worker.stop().await;
    let standing = world.standing("t1");
    assert_eq!(failed(&standing).0, "MalformedSubprocessOutput");
}

/// A task that is closed when its report comes is closed: quiet, and nothing else is tried.
#[tokio::test(start_paused = true)]
async fn a_report_of_a_closed_task_is_quiet() {
    for (does, call) in [("ok", "succeed"), ("fail", "fail")] {
        let world = World::new();
        world.send("t1", does);
        world.script(call, [Fault::Closed]);
        let worker = Started::on(&world, settings());
        world.until("unprotect", 1).await;
        assert_eq!(worker.metrics.source_events("report_closed"), 1);
        worker.stop().await;
        let reports = world.told();
        let reports = reports
            .iter()
            .filter(|told| told.starts_with("succeed") || told.starts_with("fail"));
        assert_eq!(reports.count(), 1);
    }
}

/// A report is said again while the lease lasts, and no heartbeat is sent meanwhile; then it is left.
#[tokio::test(start_paused = true)]
async fn a_report_that_is_never_accepted_is_given_up_when_the_lease_is_over() {
    let world = World::new();
    world.send("t1", "ok");
    world.script("succeed", vec![Fault::Busy; 10_000]);
    let worker = Started::on(&world, settings());
    world.until("unprotect", 1).await;
    assert!(
        world.now() >= 55 * SEC && world.now() <= 75 * SEC,
        "{:?}",
        world.now()
    );
    assert_eq!(world.count("heartbeat t1"), 1);
    worker.stop().await;
}

/// A heartbeat under way when a run ends is let end before the report.
#[tokio::test(start_paused = true)]
async fn a_slow_heartbeat_ends_before_the_report() {
    let world = World::new();
    world.send("t1", "sleep 16");
    world.script(
        "heartbeat",
        [Fault::Slow(std::time::Duration::ZERO), Fault::Slow(4 * SEC)],
    );
    let worker = Started::on(&world, settings());
    world.until("succeed t1", 1).await;
    assert!(world.now() >= 18 * SEC, "{:?}", world.now());
    worker.stop().await;
}
