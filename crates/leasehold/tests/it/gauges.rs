//! Gauges: what the sweep tells of the queue, and never a false zero.

use std::time::Duration;

use leasehold::core::rules;
use leasehold::{Failure, FailureCode, Run, StoreError};
use leasehold_testkit::fault::{Fault, Operation};

use crate::harness::{Job, Rig, SEC, jobs, pass};
use crate::sweeping::{end, lose, sweeper, sweeping};

/// A gauge that cannot be read keeps what it said: never a false zero.
#[tokio::test(start_paused = true)]
async fn gauges_are_left_alone_on_a_failed_read() {
    let rig = Rig::new();
    rig.enqueue_many((0..3).map(|n| Job { n })).await;
    let worker = sweeper(&rig, sweeping());
    pass(5 * SEC).await;
    let ready = r#"lane="default",state="ready""#;
    assert_eq!(worker.series("leasehold_items", ready), 3);
    let age = worker.metrics.sum("leasehold_queue_oldest_age_seconds");
    assert!(age > 3.0, "{age}");
    for _ in 0..100 {
        rig.faults
            .fail_next(Operation::Gauges, Fault::unavailable());
    }
    pass(2 * SEC).await;
    let (calls, age) = (
        rig.faults.calls(Operation::Gauges),
        worker.metrics.sum("leasehold_queue_oldest_age_seconds"),
    );
    pass(10 * SEC).await;
    assert!(rig.faults.calls(Operation::Gauges) > calls);
    assert_eq!(worker.series("leasehold_items", ready), 3);
    let later = worker.metrics.sum("leasehold_queue_oldest_age_seconds");
    assert_eq!(later.to_bits(), age.to_bits());
    worker.stop().await;
}

/// The gauges tell of dead letters and of expired claims.
#[tokio::test(start_paused = true)]
async fn gauges_tell_of_what_failed() {
    let rig = Rig::new();
    let dead = rig.enqueue(&Job { n: 0 }).await;
    let failure = Failure::own(FailureCode::HANDLER_ERROR, "dead");
    end(&rig, dead, rules::Transition::Bury { failure }).await;
    rig.enqueue(&Job { n: 1 }).await;
    lose(&rig, SEC, 1).await;
    rig.client
        .enqueue(&Job { n: 2 })
        .delay(Duration::from_hours(1))
        .await
        .unwrap();
    // Recovery cannot read what is due, so the expired claim stays.
    for _ in 0..100 {
        let failed = StoreError::Failed("a fault of the test".into());
        rig.faults
            .fail_next(Operation::MaintenanceDue, Fault::Error(failed));
    }
    let worker = sweeper(&rig, sweeping());
    pass(5 * SEC).await;
    assert_eq!(worker.sum("leasehold_work_failed"), 1);
    assert_eq!(worker.sum("leasehold_claims_expired"), 1);
    let delayed = r#"lane="default",state="delayed""#;
    assert_eq!(worker.series("leasehold_items", delayed), 1);
    let claimed = r#"lane="default",state="claimed""#;
    assert_eq!(worker.series("leasehold_items", claimed), 1);
    worker.stop().await;
}

/// A lane that has nothing left is not told of any more: no age stays behind.
#[tokio::test(start_paused = true)]
async fn a_lane_that_is_empty_is_not_told_of() {
    let rig = Rig::new();
    let waiting = rig.client.enqueue(&Job { n: 0 }).lane("bulk");
    waiting.await.unwrap();
    let worker = sweeper(&rig, sweeping());
    pass(5 * SEC).await;
    let tells = |page: String| page.contains(r#"lane="bulk""#);
    assert!(tells(worker.metrics.encode()));
    let settings = leasehold::WorkerSettings {
        lanes: vec![leasehold::Lane::parse("bulk").unwrap()],
        ..crate::harness::settings()
    };
    let other = rig.start(jobs(|_: Job, _: Run| async {}), settings);
    pass(5 * SEC).await;
    assert!(
        !tells(worker.metrics.encode()),
        "{}",
        worker.metrics.encode()
    );
    worker.stop().await;
    other.stop().await;
}
