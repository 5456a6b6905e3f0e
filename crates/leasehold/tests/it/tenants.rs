//! Tenants: whose authority an item runs under, and what becomes of a gone org's work.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold::core::store::tenancy::{MemberRole, MembershipRecord, OrgRecord};
use leasehold::core::store::work::Enqueued;
use leasehold::core::{OpContext, OrgId, RequestContext, RequestId, Role, UserId};
use leasehold::{
    QueueSource, Run, SingleTenant, Status, StoreError, StoredTenancy, Tenancy, TenancyError,
    WorkerSettings,
};
use leasehold_testkit::fault::Operation;
use leasehold_testkit::probe::{Journal, Probe};

use crate::harness::{Job, Rig, SEC, jobs, leased, pass, settings};
use crate::sweeping::lose;

async fn create_org(rig: &Rig) -> OrgId {
    let org = OrgRecord {
        id: OrgId::new(uuid::Uuid::now_v7()),
        name: "an org".to_owned(),
        created_at: crate::harness::timestamp(&*rig.clock),
        deleted_at: None,
    };
    assert!(rig.stores.tenancy.create_org(&org).await.unwrap());
    org.id
}

async fn enqueue_in(rig: &Rig, org: OrgId, by: UserId) -> leasehold::ItemId {
    let mut item = rig.client.typed(&Job { n: 0 }).unwrap();
    item.created_by = by;
    let fates = rig.stores.work.enqueue(org, vec![item]).await.unwrap();
    match &fates[0] {
        Enqueued::Inserted(item) => item.id,
        fate => panic!("{fate:?}"),
    }
}

fn tenanted(rig: &Rig) -> QueueSource {
    let stores = rig.faulty();
    let tenancy = StoredTenancy::new(stores.tenancy.clone());
    QueueSource::new(stores).with_tenancy(Arc::new(tenancy))
}

/// Facts 8.4: an item whose org is gone is failed and never handed out; the next item is claimed.
#[tokio::test(start_paused = true)]
async fn an_item_of_a_gone_org_ends_as_an_orphan_and_the_claim_goes_on() {
    let rig = Rig::new();
    let (gone, alive) = (create_org(&rig).await, create_org(&rig).await);
    let orphans = [
        enqueue_in(&rig, gone, UserId::NIL).await,
        enqueue_in(&rig, gone, UserId::NIL).await,
        enqueue_in(&rig, gone, UserId::NIL).await,
    ];
    let item = enqueue_in(&rig, alive, UserId::NIL).await;
    rig.stores.tenancy.delete_org(gone).await.unwrap();
    let seen = Journal::new();
    let handler = {
        let seen = seen.clone();
        move |_: Job, run: Run| {
            seen.note(run.item().id);
            async {}
        }
    };
    // One slot: the claim itself has to go on past the orphans.
    let settings = WorkerSettings {
        capacity: 1,
        ..settings()
    };
    let worker = rig.start_on(tenanted(&rig), jobs(handler), settings);
    assert_eq!(seen.wait_for(1).await, vec![item]);
    for orphan in orphans {
        let row = rig.stores.work.get(gone, orphan).await.unwrap().unwrap();
        assert_eq!(row.status, Status::Failed);
        assert_eq!(row.failure_code.unwrap().as_str(), "orphaned");
    }
    let stream = leasehold::core::store::events::Stream::Audit;
    let audit = rig.stores.events.read_after(gone, stream, 0, 10).await;
    assert!(audit.unwrap().is_empty(), "an orphan is not audited");
    assert_eq!(worker.sum("leasehold_dead_letters_total"), 0);
    worker.stop().await;
}

/// Orphans met on the way do not make a claim look short: what is behind them is claimed at once.
#[tokio::test(start_paused = true)]
async fn what_is_behind_orphans_is_claimed_at_once() {
    let rig = Rig::new();
    let (gone, alive) = (create_org(&rig).await, create_org(&rig).await);
    for _ in 0..3 {
        enqueue_in(&rig, gone, UserId::NIL).await;
    }
    for _ in 0..5 {
        enqueue_in(&rig, alive, UserId::NIL).await;
    }
    rig.stores.tenancy.delete_org(gone).await.unwrap();
    let began = Probe::new();
    let handler = {
        let began = began.clone();
        move |_: Job, _: Run| {
            began.hit();
            std::future::pending::<()>()
        }
    };
    let worker = rig.start_on(tenanted(&rig), jobs(handler), settings());
    began.wait_for(4).await;
    assert!(
        rig.elapsed() < SEC,
        "{:?}: it waited for the poll",
        rig.elapsed()
    );
    worker.stop().await;
}

/// One pass visits every org with something due, however many.
#[tokio::test(start_paused = true)]
async fn one_pass_recovers_in_every_org() {
    let rig = Rig::new();
    for _ in 0..250 {
        let org = create_org(&rig).await;
        enqueue_in(&rig, org, UserId::NIL).await;
    }
    lose(&rig, SEC, 250).await;
    pass(2 * SEC).await;
    let settings = WorkerSettings {
        capacity: 1,
        ..settings()
    };
    let source = tenanted(&rig);
    let worker = rig.start_on(source, jobs(|_: Job, _: Run| pass(60 * SEC)), settings);
    pass(5 * SEC).await;
    assert_eq!(rig.faults.calls(Operation::Gauges), 1, "one pass");
    assert_eq!(worker.sum("leasehold_sweep_requeued_total"), 250);
    worker.stop().await;
}

/// Facts 8.4: a departed member's item still runs, as the service; a member's own is attributed.
#[tokio::test(start_paused = true)]
async fn a_departed_members_item_runs_as_the_service() {
    let rig = Rig::new();
    let org = create_org(&rig).await;
    let (present, departed) = (
        UserId::new(uuid::Uuid::now_v7()),
        UserId::new(uuid::Uuid::now_v7()),
    );
    for user_id in [present, departed] {
        let member = MembershipRecord {
            org_id: org,
            user_id,
            role: MemberRole::Member,
        };
        rig.stores.tenancy.put_membership(&member).await.unwrap();
    }
    let by_present = enqueue_in(&rig, org, present).await;
    let by_departed = enqueue_in(&rig, org, departed).await;
    rig.stores
        .tenancy
        .end_membership(org, departed)
        .await
        .unwrap();
    let seen = Journal::new();
    let handler = {
        let seen = seen.clone();
        move |_: Job, run: Run| {
            let context = run.context();
            seen.note((
                run.item().id,
                context.user_id(),
                context.role(),
                context.org_id(),
            ));
            async {}
        }
    };
    let worker = rig.start_on(tenanted(&rig), jobs(handler), settings());
    let mut runs = seen.wait_for(2).await;
    runs.sort_by_key(|run| run.0 != by_present);
    assert_eq!(
        runs,
        vec![
            (by_present, present, Role::Service, org),
            (by_departed, UserId::NIL, Role::Service, org)
        ]
    );
    worker.stop().await;
}

/// A tenant cap holds over workers, and a capped org's next item starts when one of it ends.
#[tokio::test(start_paused = true)]
async fn a_tenant_cap_holds_across_workers() {
    let rig = Rig::new();
    let (greedy, modest) = (create_org(&rig).await, create_org(&rig).await);
    for _ in 0..8 {
        enqueue_in(&rig, greedy, UserId::NIL).await;
    }
    enqueue_in(&rig, modest, UserId::NIL).await;
    let running = Journal::new();
    let handler = {
        let running = running.clone();
        move |_: Job, run: Run| {
            let running = running.clone();
            async move {
                running.note((run.context().org_id(), 1_i32));
                pass(SEC).await;
                running.note((run.context().org_id(), -1));
            }
        }
    };
    let capped = || WorkerSettings {
        tenant_cap: Some(2),
        ..settings()
    };
    let one = rig.start_on(tenanted(&rig), jobs(handler.clone()), capped());
    let two = rig.start_on(tenanted(&rig), jobs(handler), capped());
    let runs = running.wait_for(18).await;
    let (mut now, mut most) = (0, 0);
    for (org, change) in &runs {
        if *org == greedy {
            now += change;
            most = most.max(now);
        }
    }
    assert_eq!(most, 2);
    // The modest org did not wait for the greedy one's eight.
    let at = runs.iter().position(|run| *run == (modest, 1)).unwrap();
    assert!(at <= 4, "{at}");
    one.stop().await;
    two.stop().await;
}

/// Orgs in a database of their own, which is out of reach as told.
#[derive(Debug)]
struct Unreachable {
    how: Mutex<Outage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Over,
    Refused,
    Hangs,
}

#[async_trait]
impl Tenancy for Unreachable {
    async fn claim_context(
        &self,
        request: &RequestContext,
        org: OrgId,
        user: UserId,
        cause: RequestId,
    ) -> Result<OpContext, TenancyError> {
        let how = *self.how.lock().unwrap();
        match how {
            Outage::Over => SingleTenant.claim_context(request, org, user, cause).await,
            Outage::Refused => Err(StoreError::Unavailable("a fault of the test".into()).into()),
            Outage::Hangs => std::future::pending().await,
        }
    }

    async fn service_context(
        &self,
        request: &RequestContext,
        org: OrgId,
    ) -> Result<OpContext, TenancyError> {
        SingleTenant.service_context(request, org).await
    }
}

/// TIME-2, for the orgs' database alone: an outage of it spends no attempt of anyone's work.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_orgs_database_spends_no_attempt() {
    for how in [Outage::Refused, Outage::Hangs] {
        let rig = Rig::new();
        let ids = rig.enqueue_many((0..3).map(|n| Job { n })).await;
        let orgs = Arc::new(Unreachable {
            how: Mutex::new(how),
        });
        let source = rig.source().with_tenancy(orgs.clone());
        let runs = Probe::new();
        let handler = {
            let runs = runs.clone();
            move |_: Job, _: Run| {
                runs.hit();
                async {}
            }
        };
        let settings = WorkerSettings {
            sweep_interval: SEC,
            sweep_budget: SEC,
            ..leased(8 * SEC)
        };
        let worker = rig.start_on(source, jobs(handler), settings);
        pass(120 * SEC).await;
        assert_eq!(runs.count(), 0);
        *orgs.how.lock().unwrap() = Outage::Over;
        for id in ids {
            let item = rig.until_status(id, Status::Done).await;
            assert_eq!((item.attempts, item.worker_losses), (1, 0), "{how:?}");
        }
        assert_eq!(runs.count(), 3);
        worker.stop().await;
    }
}
