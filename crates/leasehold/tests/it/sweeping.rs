//! Sweeping: what crashes left is mended, by whoever comes by, and one failing step stops nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::store::tenancy::OrgRecord;
use leasehold::core::store::work::{Enqueued, Settlement, StaleRequest};
use leasehold::core::{ClaimToken, Hold, OrgId, rules};
use leasehold::{
    Failure, FailureCode, HandlerError, ItemId, QueueSource, Run, Status, StoreError,
    StoredTenancy, WorkerSettings,
};
use leasehold_testkit::fault::{Fault, Odds, Operation};
use leasehold_testkit::probe::{Journal, Probe};

use crate::harness::{
    Job, MS, Other, Rig, SEC, Started, claim_request, jobs, leased, moments, pass, settings,
};
use crate::trouble::{Trouble, Troubled};

/// Sweeps every second.
pub(crate) fn sweeping() -> WorkerSettings {
    WorkerSettings {
        sweep_interval: SEC,
        sweep_budget: 500 * MS,
        ..settings()
    }
}

/// A worker that does the kind nobody enqueues: it only sweeps.
pub(crate) fn sweeper(rig: &Rig, settings: WorkerSettings) -> Started {
    let idle = leasehold::InProcess::new();
    rig.start(
        idle.handle::<Idle>(|_: Idle, _: Run| async {}).unwrap(),
        settings,
    )
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Idle {}

impl leasehold::Work for Idle {
    const KIND: &'static str = "IDLE";
}

/// Claims `limit` items for a holder that then dies.
pub(crate) async fn lose(rig: &Rig, lease: Duration, limit: u32) {
    let claimed = rig
        .stores
        .work
        .claim(&claim_request(lease, limit))
        .await
        .unwrap();
    assert!(!claimed.is_empty());
}

/// Recovered items are queued again, the attempt spent, spread over the window; live claims are left
/// alone, and claims go on at once.
#[tokio::test(start_paused = true)]
async fn expired_claims_are_queued_again_and_live_ones_left_alone() {
    let rig = Rig::new();
    let live = rig.enqueue(&Job { n: 0 }).await;
    rig.claim_elsewhere(Duration::from_hours(1)).await;
    let lost = rig.enqueue_many((1..=20).map(|n| Job { n })).await;
    lose(&rig, SEC, 20).await;
    let settings = WorkerSettings {
        sweep_batch: 20,
        ..sweeping()
    };
    let worker = sweeper(&rig, settings);
    let mut due = Vec::new();
    for id in &lost {
        let item = rig.until_status(*id, Status::Queued).await;
        assert_eq!((item.attempts, item.worker_losses), (1, 1));
        assert!(
            item.last_error
                .as_ref()
                .unwrap()
                .as_str()
                .starts_with("lease_expired: ")
        );
        due.push(item.available_at.duration_since(item.updated_at));
    }
    assert!(rig.elapsed() < 4 * SEC);
    due.sort();
    // A full batch over ten seconds: every half second one.
    let gaps = due.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    assert!(
        gaps.clone()
            .all(|gap| gap == jiff::SignedDuration::from_millis(500)),
        "{due:?}"
    );
    assert_eq!(rig.status(live).await, Status::Claimed);
    assert_eq!(worker.sum("leasehold_sweep_requeued_total"), 20);
    worker.stop().await;
}

/// More than a batch: the sweep goes on within one pass while its budget lasts.
#[tokio::test(start_paused = true)]
async fn full_batches_are_followed_by_more() {
    let rig = Rig::new();
    rig.enqueue_many((0..95).map(|n| Job { n })).await;
    lose(&rig, SEC, 95).await;
    pass(2 * SEC).await;
    let settings = WorkerSettings {
        sweep_batch: 10,
        sweep_interval: Duration::from_hours(1),
        sweep_budget: SEC,
        ..settings()
    };
    let worker = sweeper(&rig, settings);
    let recovered = || async { (worker.sum("leasehold_sweep_requeued_total") == 95).then_some(()) };
    crate::harness::until(recovered).await;
    assert_eq!(rig.faults.calls(Operation::RequeueStale), 10);
    worker.stop().await;
}

/// A spent budget ends the pass; the next goes on where it stopped, round the ring of orgs.
#[tokio::test(start_paused = true)]
async fn a_pass_out_of_budget_goes_on_where_it_stopped() {
    let rig = Rig::new();
    let mut orgs = Vec::new();
    for n in 0_u128..6 {
        let id = OrgId::new(uuid::Uuid::from_u128(n + 1));
        let created_at = rig.clock.now();
        let org = OrgRecord {
            id,
            name: n.to_string(),
            created_at,
            deleted_at: None,
        };
        rig.stores.tenancy.create_org(&org).await.unwrap();
        let item = rig.client.typed(&Job { n: 0 }).unwrap();
        rig.stores.work.enqueue(id, vec![item]).await.unwrap();
        orgs.push(id);
    }
    lose(&rig, SEC, 6).await;
    pass(2 * SEC).await;
    // Every org takes longer than the whole budget.
    for _ in 0..100 {
        rig.faults
            .fail_next(Operation::RequeueStale, Fault::Delay(SEC));
    }
    let settings = WorkerSettings {
        sweep_interval: 10 * SEC,
        sweep_budget: 500 * MS,
        requeue_spread: Duration::ZERO,
        ..settings()
    };
    let stores = rig.faulty();
    let tenancy = StoredTenancy::new(stores.tenancy.clone());
    let source = QueueSource::new(stores).with_tenancy(Arc::new(tenancy));
    let idle = leasehold::InProcess::new();
    let idle = idle.handle::<Idle>(|_: Idle, _: Run| async {}).unwrap();
    let worker = rig.start_on(source, idle, settings);
    for round in 1..=6 {
        rig.faults
            .wait_for_calls(Operation::RequeueStale, round)
            .await;
        pass(2 * SEC).await;
        let due = rig.stores.work.maintenance_due(None, 10).await.unwrap();
        let at = usize::try_from(round).unwrap();
        assert_eq!(due, orgs[at..], "one org a pass, in the order of the ring");
    }
    worker.stop().await;
}

/// No attempt left: a dead letter, audited once and counted.
#[tokio::test(start_paused = true)]
async fn an_item_lost_on_its_last_attempt_is_a_dead_letter_audited_and_counted() {
    let rig = Rig::new();
    let fate = rig
        .client
        .enqueue(&Job { n: 0 })
        .max_attempts(1)
        .await
        .unwrap();
    let id = crate::harness::inserted(fate);
    lose(&rig, SEC, 1).await;
    let workers: Vec<Started> = (0..3).map(|_| sweeper(&rig, sweeping())).collect();
    let item = rig.until_item(id, |item| item.audited_at.is_some()).await;
    assert_eq!(
        item.failure_code.as_ref().unwrap().as_str(),
        "lease_expired"
    );
    pass(5 * SEC).await;
    let audit = rig.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0].entry.kind, "work.item.dead_letter");
    let counted: i64 = workers
        .iter()
        .map(|worker| worker.sum("leasehold_dead_letters_total"))
        .sum();
    assert_eq!(counted, 1);
    for worker in workers {
        worker.stop().await;
    }
}

/// G7: a dead letter whose audit entry was swallowed is audited by the sweep of another worker.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_audit_was_swallowed_is_repaired() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let handler = |_: Job, _: Run| async { Err::<(), _>(HandlerError::new("no").for_good()) };
    let (stores, audit) = Troubled::events(rig.faulty());
    audit.set(Trouble::Fails);
    let worker = rig.start_on(QueueSource::new(stores), jobs(handler), settings());
    rig.until_status(id, Status::Failed).await;
    audit.wait_for_calls(1).await;
    worker.stop().await;
    let item = rig.item(id).await;
    assert!(item.audited_at.is_none());
    assert!(rig.audit().await.is_empty());
    let other = sweeper(&rig, sweeping());
    rig.until_item(id, |item| item.audited_at.is_some()).await;
    assert_eq!(rig.audit().await.len(), 1);
    other.stop().await;
}

/// As above, where the crash came between the settle and the audit: the row alone is there.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_without_an_audit_entry_is_found() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let request = claim_request(SEC, 1);
    rig.stores.work.claim(&request).await.unwrap();
    let settlement = Settlement {
        hold: Hold {
            org_id: OrgId::SINGLE,
            item_id: id,
            token: request.token,
        },
        transition: rules::Transition::Bury {
            failure: Failure::own(FailureCode::HANDLER_ERROR, "and then it crashed"),
        },
    };
    let _ = rig.stores.work.settle(&[settlement]).await.unwrap();
    let worker = sweeper(&rig, sweeping());
    rig.until_item(id, |item| item.audited_at.is_some()).await;
    pass(5 * SEC).await;
    assert_eq!(rig.audit().await.len(), 1);
    worker.stop().await;
}

/// Finished items are deleted once they have been kept for as long as the setting says.
#[tokio::test(start_paused = true)]
async fn finished_items_are_purged_after_their_retention() {
    let rig = Rig::new();
    let done = rig.enqueue(&Job { n: 0 }).await;
    let settings = WorkerSettings {
        item_retention: 60 * SEC,
        ..sweeping()
    };
    let worker = rig.start(jobs(|_: Job, _: Run| async {}), settings);
    rig.until_status(done, Status::Done).await;
    let waiting = rig.enqueue(&Other { n: 0 }).await;
    pass(50 * SEC).await;
    rig.item(done).await;
    pass(20 * SEC).await;
    let gone = rig.stores.work.get(OrgId::SINGLE, done).await.unwrap();
    assert!(gone.is_none());
    rig.item(waiting).await;
    assert_eq!(worker.sum("leasehold_sweep_purged_total"), 1);
    worker.stop().await;
}

/// What a gone org's dead workers left is failed as orphans, and not audited.
#[tokio::test(start_paused = true)]
async fn stale_items_of_a_gone_org_end_as_orphans() {
    let rig = Rig::new();
    let org = OrgRecord {
        id: OrgId::new(uuid::Uuid::now_v7()),
        name: "gone".to_owned(),
        created_at: rig.clock.now(),
        deleted_at: None,
    };
    rig.stores.tenancy.create_org(&org).await.unwrap();
    let item = rig.client.typed(&Job { n: 0 }).unwrap();
    let fates = rig.stores.work.enqueue(org.id, vec![item]).await.unwrap();
    let Enqueued::Inserted(item) = &fates[0] else {
        panic!()
    };
    lose(&rig, SEC, 1).await;
    rig.stores.tenancy.delete_org(org.id).await.unwrap();
    let stores = rig.faulty();
    let tenancy = StoredTenancy::new(stores.tenancy.clone());
    let source = QueueSource::new(stores).with_tenancy(Arc::new(tenancy));
    let worker = rig.start_on(source, jobs(|_: Job, _: Run| async {}), sweeping());
    let row = crate::harness::until(async || {
        let row = rig.stores.work.get(org.id, item.id).await.unwrap();
        row.filter(|row| row.status == Status::Failed)
    })
    .await;
    assert_eq!(row.failure_code.unwrap().as_str(), "orphaned");
    assert_eq!(worker.sum("leasehold_dead_letters_total"), 0);
    worker.stop().await;
}

/// One failing step stops none of the others, and is counted.
#[tokio::test(start_paused = true)]
async fn a_failing_step_stops_nothing() {
    for broken in [
        Operation::MaintenanceDue,
        Operation::RequeueStale,
        Operation::Unaudited,
        Operation::Purge,
        Operation::Gauges,
    ] {
        let rig = Rig::new();
        let done = rig.enqueue(&Other { n: 0 }).await;
        end(&rig, done, rules::Transition::Complete { result: None }).await;
        let lost = rig.enqueue(&Job { n: 0 }).await;
        lose(&rig, SEC, 1).await;
        let failed = StoreError::Failed("a fault of the test".into());
        for _ in 0..1_000 {
            rig.faults.fail_next(broken, Fault::Error(failed.clone()));
        }
        let settings = WorkerSettings {
            item_retention: 5 * SEC,
            ..sweeping()
        };
        let worker = sweeper(&rig, settings);
        pass(20 * SEC).await;
        let name = broken.name();
        let recovers = !matches!(broken, Operation::MaintenanceDue | Operation::RequeueStale);
        let recovered = rig.status(lost).await == Status::Queued;
        assert_eq!(recovered, recovers, "{name}");
        let purged = rig
            .stores
            .work
            .get(OrgId::SINGLE, done)
            .await
            .unwrap()
            .is_none();
        assert_eq!(purged, broken != Operation::Purge, "{name}");
        let tallied = worker.sum("leasehold_items") > 0;
        assert_eq!(tallied, broken != Operation::Gauges, "{name}");
        let errors = worker.series(
            "leasehold_store_errors_total",
            &format!("operation=\"{name}\""),
        );
        assert!(errors >= 1, "{name} was not counted");
        worker.stop().await;
    }
}

pub(crate) async fn end(rig: &Rig, id: ItemId, transition: rules::Transition) {
    let token = ClaimToken::mint();
    let request = leasehold::core::store::work::ClaimRequest {
        token,
        ..claim_request(SEC, 1)
    };
    let claimed = rig.stores.work.claim(&request).await.unwrap();
    assert_eq!(claimed[0].item.id, id);
    let hold = Hold {
        org_id: OrgId::SINGLE,
        item_id: id,
        token,
    };
    let _ = rig
        .stores
        .work
        .settle(&[Settlement { hold, transition }])
        .await
        .unwrap();
}

/// After an outage requeue waits, so that living holders hand back first: an outage that outlasts the
/// lease spends no attempt.
#[tokio::test(start_paused = true)]
async fn after_an_outage_living_holders_hand_back_before_anything_is_requeued() {
    let rig = Rig::new();
    let ids = rig.enqueue_many((0..4).map(|n| Job { n })).await;
    let starts = Journal::new();
    let handler = {
        let starts = starts.clone();
        move |_: Job, run: Run| {
            starts.note((run.item().id, run.attempt(), run.fence()));
            async move {
                run.cancelled().await;
                Err::<(), _>(HandlerError::new("stopped half-way"))
            }
        }
    };
    let settings = WorkerSettings {
        poll_interval: SEC,
        requeue_spread: Duration::ZERO,
        lease: 10 * SEC,
        ..sweeping()
    };
    // Two workers on one store: the one that does not hold the items sweeps as well.
    let holder = rig.start(jobs(handler), settings.clone());
    starts.wait_for(4).await;
    let other = sweeper(&rig, settings);
    pass(SEC).await;
    // The database is down: connections are refused.
    let down = Odds {
        unavailable: 1.0,
        ..Default::default()
    };
    rig.faults.set_odds(down);
    pass(60 * SEC).await;
    rig.faults.set_odds(Odds::default());
    let restarts = starts.wait_for(8).await;
    for (_, attempt, fence) in &restarts[4..] {
        assert_eq!(
            (*attempt, *fence),
            (1, 2),
            "an attempt was spent on the outage"
        );
    }
    for id in ids {
        assert_eq!(rig.item(id).await.worker_losses, 0);
    }
    holder.stop().await;
    other.stop().await;
}

/// What nobody hands back after the outage is recovered soon after, and not an interval later.
#[tokio::test(start_paused = true)]
async fn after_an_outage_recovery_comes_soon() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    lose(&rig, SEC, 1).await;
    let settings = WorkerSettings {
        sweep_interval: Duration::from_mins(10),
        sweep_budget: SEC,
        ..settings()
    };
    rig.faults.fail_next(Operation::Claim, Fault::unavailable());
    let worker = sweeper(&rig, settings);
    rig.until_status(id, Status::Queued).await;
    assert!(rig.elapsed() < 15 * SEC, "{:?}", rig.elapsed());
    worker.stop().await;
}

/// Errors that never cease do not keep recovery off for ever, as long as other calls are answered.
#[tokio::test(start_paused = true)]
async fn errors_of_one_step_do_not_keep_recovery_off() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    lose(&rig, SEC, 1).await;
    let down = Odds {
        unavailable: 1.0,
        ..Odds::default()
    };
    rig.faults.set_odds_of(Operation::Purge, down);
    rig.faults.fail_next(Operation::Claim, Fault::unavailable());
    let worker = sweeper(&rig, sweeping());
    rig.until_item(id, |item| item.worker_losses == 1).await;
    let waited = rig.elapsed();
    assert!(waited >= 15 * SEC && waited < 20 * SEC, "{waited:?}");
    worker.stop().await;
}

/// No statement of the sweep is waited for for ever.
#[tokio::test(start_paused = true)]
async fn a_sweep_that_hangs_is_given_up_and_comes_again() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    lose(&rig, SEC, 1).await;
    rig.faults.block(Operation::MaintenanceDue);
    let worker = sweeper(&rig, sweeping());
    rig.faults
        .wait_for_calls(Operation::MaintenanceDue, 2)
        .await;
    rig.faults.unblock(Operation::MaintenanceDue);
    rig.until_status(id, Status::Queued).await;
    worker.stop().await;
}

/// A worker that stops sweeps no more, and is not kept by a pass under way.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_sweep() {
    let rig = Rig::new();
    rig.faults.block(Operation::Gauges);
    let worker = sweeper(&rig, sweeping());
    rig.faults.wait_for_calls(Operation::Gauges, 1).await;
    let asked = rig.elapsed();
    worker.stop().await;
    assert!(rig.elapsed().saturating_sub(asked) < 100 * MS);
    let calls = rig.faults.calls(Operation::Gauges);
    rig.faults.unblock(Operation::Gauges);
    pass(10 * SEC).await;
    assert_eq!(rig.faults.calls(Operation::Gauges), calls);
}

/// Workers started together do not sweep at the same moment for ever.
#[tokio::test(start_paused = true)]
async fn passes_are_spread() {
    let rig = Rig::new();
    let source = rig.watched();
    let calls = source.calls.clone();
    let worker = rig.start_on(source, jobs(|_: Job, _: Run| async {}), sweeping());
    pass(20 * SEC).await;
    worker.stop().await;
    let passes = rig.faults.calls(Operation::Gauges);
    assert!((15..=24).contains(&passes), "{passes}");
    assert!(!moments(&calls, "claim", Duration::ZERO).is_empty());
}

/// The sweep's own requeue is not what another worker's renewal loses to.
#[tokio::test(start_paused = true)]
async fn a_renewed_claim_is_never_recovered() {
    let rig = Rig::new();
    let id = rig.enqueue(&Job { n: 0 }).await;
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |_: Job, _: Run| {
            began.hit();
            pass(60 * SEC)
        }
    };
    let worker = rig.start(jobs(handler), leased(2 * SEC));
    began.wait_for(1).await;
    let others: Vec<Started> = (0..3).map(|_| sweeper(&rig, sweeping())).collect();
    let item = rig.until_status(id, Status::Done).await;
    assert_eq!((item.attempts, began.count()), (1, 1));
    let request = StaleRequest {
        limit: 10,
        spread: Duration::ZERO,
    };
    let moved = rig
        .stores
        .work
        .requeue_stale(OrgId::SINGLE, &request)
        .await
        .unwrap();
    assert_eq!(moved.recovered, 0);
    worker.stop().await;
    for other in others {
        other.stop().await;
    }
}
