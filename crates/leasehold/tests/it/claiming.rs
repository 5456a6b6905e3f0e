//! Claiming: how much, when, for whom, and what is left alone.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::store::work::StaleRequest;
use leasehold::core::{NewItem, OrgId, RequestId, Role};
use leasehold::{
    HandlerError, InProcess, JsonObject, Kind, QueueSource, Run, Source as _, Status,
    WorkerSettings,
};
use leasehold_testkit::fault::{Fault, Operation};
use leasehold_testkit::probe::{Journal, Latch, Probe};
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::{
    Job, MS, Other, Rig, SEC, claim_request, jobs, leased, pass, settings, until,
};

/// Facts 8.4: claims within capacity; a finished item wakes the claimer, poll an hour.
#[tokio::test(start_paused = true)]
async fn a_worker_claims_within_its_capacity_and_again_when_a_slot_is_freed() {
    let rig = Rig::new();
    let ids = rig.enqueue_many((0..10).map(|n| Job { n })).await;
    let (began, gate) = (Probe::new(), Latch::new());
    let handler = {
        let (began, gate) = (began.clone(), gate.clone());
        move |_: Job, _: Run| {
            let (began, gate) = (began.clone(), gate.clone());
            async move {
                began.hit();
                gate.passed().await;
            }
        }
    };
    let worker = rig.start(jobs(handler), settings());
    began.wait_for(4).await;
    pass(SEC).await;
    assert_eq!(began.count(), 4);
    assert_eq!(worker.sum("leasehold_worker_slots_busy"), 4);
    assert_eq!(worker.sum("leasehold_items_claimed_total"), 4);
    gate.open();
    began.wait_for(10).await;
    for id in ids {
        rig.until_status(id, Status::Done).await;
    }
    assert!(
        rig.elapsed() < 2 * SEC,
        "{:?}: it waited for the poll",
        rig.elapsed()
    );
    assert_eq!(worker.stop().await.abandoned, 0);
}

/// Facts 8.4: each run has a request id of its own, and names its cause.
#[tokio::test(start_paused = true)]
async fn each_run_has_its_own_request_id_and_carries_its_cause() {
    let rig = Rig::new();
    let seen = Journal::new();
    let handler = {
        let seen = seen.clone();
        move |_: Job, run: Run| {
            seen.note(run.context().clone());
            async {}
        }
    };
    let cause = RequestId::mint();
    let mut caused = rig.client.typed(&Job { n: 1 }).unwrap();
    caused.request_id = cause;
    rig.client.enqueue_many(vec![caused]).await.unwrap();
    let mut uncaused = NewItem::new(
        Kind::parse("JOB").unwrap(),
        JsonObject::parse(r#"{"n":2}"#).unwrap(),
        crate::harness::timestamp(&*rig.clock),
    );
    uncaused.request_id = RequestId::NIL;
    rig.stores
        .work
        .enqueue(OrgId::SINGLE, vec![uncaused])
        .await
        .unwrap();
    let worker = rig.start(jobs(handler), settings());
    let contexts = seen.wait_for(2).await;
    let (first, second) = (contexts[0].request(), contexts[1].request());
    assert_ne!(first.request_id, second.request_id);
    assert_ne!(first.request_id, cause);
    assert!(!first.request_id.is_nil() && !second.request_id.is_nil());
    assert_eq!(first.caused_by, Some(cause));
    assert_eq!(second.caused_by, None);
    assert!(
        contexts
            .iter()
            .all(|context| context.role() == Role::Service)
    );
    assert_eq!(&*first.app.version, worker.id.as_str());
    worker.stop().await;
}

/// Facts 8.4: a wake that lands while a claim is under way is not lost.
#[tokio::test(start_paused = true)]
async fn a_wake_during_a_claim_is_not_lost() {
    let rig = Rig::new();
    // The claim has looked, and its answer is on the way when the item arrives.
    rig.faults
        .fail_next(Operation::Claim, Fault::Delay(Duration::ZERO));
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    rig.faults.wait_for_calls(Operation::Claim, 1).await;
    pass(SEC).await;
    for round in 0..5 {
        let calls = rig.faults.calls(Operation::Claim);
        rig.faults.fail_next(Operation::Claim, Fault::Delay(SEC));
        let first = rig.enqueue(&Job { n: round }).await;
        rig.faults.wait_for_calls(Operation::Claim, calls + 1).await;
        pass(500 * MS).await;
        let second = rig.enqueue(&Job { n: round }).await;
        rig.until_status(first, Status::Done).await;
        rig.until_status(second, Status::Done).await;
    }
    assert!(rig.elapsed() < Duration::from_mins(1));
    worker.stop().await;
}

/// Facts 8.4: a dropped wake is claimed on the poll.
#[tokio::test(start_paused = true)]
async fn a_dropped_wake_costs_one_poll_interval() {
    let rig = Rig::new();
    rig.faults.drop_hints();
    let settings = WorkerSettings {
        poll_interval: 10 * SEC,
        ..settings()
    };
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings);
    rig.faults.wait_for_calls(Operation::Claim, 1).await;
    pass(SEC).await;
    let id = rig.enqueue(&Job { n: 0 }).await;
    let asked = rig.elapsed();
    rig.until_status(id, Status::Done).await;
    let waited = rig.elapsed().saturating_sub(asked);
    // Jittered by a tenth.
    assert!(
        waited > 5 * SEC && waited <= 11 * SEC + 100 * MS,
        "{waited:?}"
    );
    worker.stop().await;
}

/// Facts 8.4: a claim that errors is counted and the loop goes on, with back-off.
#[tokio::test(start_paused = true)]
async fn a_claim_that_fails_is_counted_and_tried_again_with_back_off() {
    let rig = Rig::new();
    for _ in 0..6 {
        rig.faults.fail_next(Operation::Claim, Fault::unavailable());
    }
    let id = rig.enqueue(&Job { n: 0 }).await;
    let source = rig.watched();
    let calls = source.calls.clone();
    let worker = rig.start_on(source, jobs(|_: Job, _: Run| async {}), settings());
    rig.until_status(id, Status::Done).await;
    assert_eq!(
        worker.series("leasehold_store_errors_total", r#"operation="claim""#),
        6
    );
    let claims = crate::harness::moments(&calls, "claim", Duration::ZERO);
    let gaps: Vec<Duration> = claims
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    for (round, gap) in gaps.iter().take(6).enumerate() {
        let least = 100 * MS * (1 << round);
        assert!(
            *gap >= least && *gap <= least * 2,
            "gap {round} was {gap:?}"
        );
    }
    worker.stop().await;
}

/// An outage is told of once and then seldom, and so is its end.
#[tokio::test(start_paused = true)]
async fn an_outage_is_told_of_seldom_and_its_end_once() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone());
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let rig = Rig::new();
    for _ in 0..40 {
        rig.faults.fail_next(Operation::Claim, Fault::unavailable());
    }
    let id = rig.enqueue(&Job { n: 0 }).await;
    let settings = WorkerSettings {
        poll_interval: SEC,
        ..settings()
    };
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings);
    rig.until_status(id, Status::Done).await;
    worker.stop().await;
    let failures = log.lines("a claim failed; asking again");
    // Some thirty seconds: at the first, after ten, after thirty.
    assert!((2..=3).contains(&failures.len()), "{failures:#?}");
    let [end] = &log.lines("claims work again")[..] else {
        panic!("{:#?}", log.lines(""));
    };
    assert!(
        end.contains("failures=40 ") || end.ends_with("failures=40"),
        "{end}"
    );
    assert!(end.contains(" after="), "{end}");
}

/// What was logged by the thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines(&self, with: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains(with));
        lines.map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A store error that is not passing does not end the loop either.
#[tokio::test(start_paused = true)]
async fn a_claim_that_fails_for_good_reasons_does_not_end_the_loop() {
    let rig = Rig::new();
    for error in [
        leasehold::StoreError::Failed("a fault of the test".into()),
        leasehold::StoreError::Schema("a fault of the test".into()),
        leasehold::StoreError::Refused("a fault of the test".into()),
    ] {
        rig.faults.fail_next(Operation::Claim, Fault::Error(error));
    }
    let id = rig.enqueue(&Job { n: 0 }).await;
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    rig.until_status(id, Status::Done).await;
    worker.stop().await;
}

/// G1: a claim whose answer was lost is asked for again, and nothing is claimed that nobody knows.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_found_again() {
    let rig = Rig::new();
    let ids = rig.enqueue_many((0..3).map(|n| Job { n })).await;
    rig.faults.fail_next(Operation::Claim, Fault::LostAnswer);
    let runs = Probe::new();
    let handler = {
        let runs = runs.clone();
        move |_: Job, _: Run| {
            runs.hit();
            async {}
        }
    };
    let worker = rig.start(jobs(handler), settings());
    for id in ids {
        let item = rig.until_status(id, Status::Done).await;
        assert_eq!((item.attempts, item.claim_seq), (1, 1));
    }
    assert_eq!(runs.count(), 3);
    worker.stop().await;
}

/// A claim that hangs is asked again with the same token while its answer can still be of use.
#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_is_asked_again() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    rig.faults.block(Operation::Claim);
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), leased(20 * SEC));
    rig.faults.wait_for_calls(Operation::Claim, 2).await;
    assert!(rig.elapsed() <= 6 * SEC, "{:?}", rig.elapsed());
    rig.faults.unblock(Operation::Claim);
    let item = rig.until_status(id, Status::Done).await;
    assert_eq!(item.attempts, 1);
    worker.stop().await;
}

/// RECOVER-3: a burst by eight producers while the worker runs, then one more.
#[tokio::test(start_paused = true)]
async fn a_burst_leaves_nothing_waiting() {
    burst(|_| {}, settings(), SEC).await;
}

/// RECOVER-3, variant: every wake-up is dropped, and polling alone finishes the work.
#[tokio::test(start_paused = true)]
async fn a_burst_without_hints_is_finished_by_polling() {
    let settings = WorkerSettings {
        poll_interval: SEC,
        ..settings()
    };
    burst(|rig| rig.faults.drop_hints(), settings, SEC).await;
}

async fn burst(prepare: impl FnOnce(&Rig), settings: WorkerSettings, poll: Duration) {
    const PRODUCERS: u32 = 8;
    const EACH: u32 = 1_250;
    let rig = Arc::new(Rig::new());
    prepare(&rig);
    let runs = Probe::new();
    let handler = {
        let runs = runs.clone();
        move |_: Job, _: Run| {
            runs.hit();
            async {}
        }
    };
    // Claims take a moment, so that wakes land in the middle of them.
    rig.faults.set_odds_of(
        Operation::Claim,
        leasehold_testkit::fault::Odds {
            delay: 0.5,
            delay_max: 4 * MS,
            ..Default::default()
        },
    );
    let worker = rig.start(jobs(handler), settings);
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let rig = rig.clone();
            tokio::spawn(async move {
                for n in 0..EACH {
                    rig.enqueue(&Job {
                        n: producer * EACH + n,
                    })
                    .await;
                    if n % 10 == 0 {
                        pass(MS).await;
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    runs.wait_for(u64::from(PRODUCERS * EACH)).await;
    until(async || (worker.sum("leasehold_worker_slots_busy") == 0).then_some(())).await;
    pass(5 * SEC).await;
    let last = rig.enqueue(&Job { n: 0 }).await;
    let asked = rig.elapsed();
    rig.until_status(last, Status::Done).await;
    let waited = rig.elapsed().saturating_sub(asked);
    assert!(waited <= poll.mul_f64(1.1) + 50 * MS, "{waited:?}");
    assert_eq!(runs.count(), u64::from(PRODUCERS * EACH) + 1);
    let gauges = rig.stores.work.gauges().await.unwrap();
    assert!(gauges.lanes.is_empty(), "{gauges:?}");
    worker.stop().await;
}

/// With prefetch more is claimed than runs, and what waits is kept and started in turn.
#[tokio::test(start_paused = true)]
async fn prefetched_items_are_held_and_run_in_turn() {
    let rig = Rig::new();
    rig.enqueue_many((0..10).map(|n| Job { n })).await;
    let (seen, gate) = (Journal::new(), Latch::new());
    let handler = {
        let (seen, gate) = (seen.clone(), gate.clone());
        move |job: Job, _: Run| {
            seen.note(job.n);
            let gate = gate.clone();
            async move { gate.passed().await }
        }
    };
    let settings = WorkerSettings {
        capacity: 1,
        prefetch: 3,
        ..leased(4 * SEC)
    };
    let worker = rig.start(jobs(handler), settings);
    seen.wait_for(1).await;
    // Several leases: those that wait are renewed as well.
    pass(20 * SEC).await;
    assert_eq!(worker.sum("leasehold_items_claimed_total"), 4);
    assert_eq!(worker.sum("leasehold_worker_slots_busy"), 1);
    gate.open();
    assert_eq!(seen.wait_for(10).await, (0..10).collect::<Vec<_>>());
    assert_eq!(worker.sum("leasehold_lease_lost_total"), 0);
    assert_eq!(worker.stop().await.abandoned, 0);
}

/// G6: the last attempt of an item that has lost a worker runs alone: no neighbour runs beside it, and
/// none is held that would be lost with it.
#[tokio::test(start_paused = true)]
async fn a_poison_items_last_attempt_runs_alone() {
    let rig = Rig::new();
    // Two that have lost two workers each; which of them is the poison nobody knows.
    let suspects = rig.enqueue_many([Job { n: 98 }, Job { n: 99 }]).await;
    for _ in 0..2 {
        let claimed = rig.stores.work.claim(&claim_request(SEC, 2)).await;
        assert_eq!(claimed.unwrap().len(), 2);
        pass(2 * SEC).await;
        let request = StaleRequest {
            limit: 10,
            spread: Duration::ZERO,
        };
        let moved = rig.stores.work.requeue_stale(OrgId::SINGLE, &request);
        assert_eq!(moved.await.unwrap().recovered, 2);
    }
    rig.enqueue_many((0..6).map(|n| Job { n })).await;
    let running = Journal::new();
    let handler = {
        let (running, stores) = (running.clone(), rig.stores.clone());
        move |job: Job, _: Run| {
            let (running, stores) = (running.clone(), stores.clone());
            async move {
                let gauges = stores.work.gauges().await.unwrap();
                running.note((job.n, gauges.lanes[0].claimed));
                pass(SEC).await;
            }
        }
    };
    let worker = rig.start(jobs(handler), settings());
    let runs = running.wait_for(8).await;
    for (n, held) in runs {
        if n >= 98 {
            assert_eq!(held, 1, "{n} took a neighbour's claim along");
        }
    }
    for suspect in suspects {
        rig.until_status(suspect, Status::Done).await;
    }
    worker.stop().await;
}

/// A worker claims the kinds it knows and no other.
#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_knows_is_left_alone() {
    let rig = Rig::new();
    let unknown = rig.enqueue(&Other { n: 1 }).await;
    let known = rig.enqueue(&Job { n: 1 }).await;
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings());
    rig.until_status(known, Status::Done).await;
    pass(SEC).await;
    let item = rig.item(unknown).await;
    assert_eq!((item.status, item.claim_seq), (Status::Queued, 0));
    worker.stop().await;
}

/// Nothing to claim is a mistake at the start, said at once.
#[tokio::test(start_paused = true)]
async fn a_worker_without_handlers_is_refused() {
    let rig = Rig::new();
    let refused = leasehold::Worker::new(rig.source(), InProcess::new(), settings());
    let message = refused.err().map(|error| error.to_string()).unwrap();
    assert!(message.contains("no handler"), "{message}");
}

/// A pool that cannot serve a worker's claim, settles, renewal, sweep and heartbeat at once.
#[tokio::test(start_paused = true)]
async fn a_store_with_too_few_connections_for_the_capacity_is_refused() {
    let rig = Rig::new();
    let start = |capacity: u32, calls_max: u32| {
        let stores = rig
            .source()
            .stores()
            .unwrap()
            .clone()
            .with_calls_max(calls_max);
        let settings = WorkerSettings {
            capacity,
            ..settings()
        };
        let executor = jobs(|_: Job, _: Run| async {});
        leasehold::Worker::new(QueueSource::new(stores), executor, settings).map(drop)
    };
    let message = start(16, 5).err().map(|error| error.to_string()).unwrap();
    assert_eq!(
        message,
        "capacity = 16: a worker of it makes 6 calls to the store at once, which has 5 connections for \
         them; give the store more connections"
    );
    assert!(start(16, 6).is_ok());
    // It never settles more than one item at once.
    assert!(start(1, 5).is_ok());
    assert!(start(1, 4).is_err());
}

/// A handler of a kind registered twice: the later one counts.
#[tokio::test(start_paused = true)]
async fn the_last_handler_of_a_kind_counts() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 1 }).await;
    let executor = jobs(|_: Job, _: Run| async { Err::<(), _>(HandlerError::new("the first")) })
        .handle::<Job>(|_: Job, _: Run| async {})
        .unwrap();
    let worker = rig.start(executor, settings());
    rig.until_status(id, Status::Done).await;
    worker.stop().await;
}
