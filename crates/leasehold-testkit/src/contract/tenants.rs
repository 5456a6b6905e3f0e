//! Tenants: every method that takes an org, or a hold that carries one, keeps to that org.

use leasehold_core::store::events::{NewEntry, Stream};
use leasehold_core::store::markers::{Begin, Begun, MarkerScope};
use leasehold_core::store::schedules::{Advance, Advanced, Ticks};
use leasehold_core::store::work::{
    Cancelled, Ended, Enqueued, Filter, Page, Renewed, Retried, Settled,
};
use leasehold_core::{NewItem, ScheduleId, ShortText, WorkItem};
use uuid::Uuid;

use super::fixture::Fixture;
use super::outbox::{pending, row};
use super::samples::{
    HOUR, LEASE, OPERATOR, ORG, OTHER, USER, bury, complete, every_transition, hold, hold_in, item,
    last_attempt, renewal, request, settlement, sweep_of,
};
use super::{credentials, events, schedules};

/// A dead letter of [`ORG`].
async fn dead(f: &Fixture) -> WorkItem {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), bury()).await;
    f.row(held.id).await
}

pub async fn enqueue_keeps_to_its_org(f: &Fixture) {
    let ours = f.held(item()).await;
    let theirs = NewItem {
        id: ours.id,
        ..item()
    };
    assert_eq!(f.enqueue_in(OTHER, theirs).await, Enqueued::IdTaken);
    assert_eq!(f.row(ours.id).await, ours);
}

pub async fn get_keeps_to_its_org(f: &Fixture) {
    let ours = f.insert(item()).await;
    assert_eq!(f.work().get(OTHER, ours.id).await.unwrap(), None);
}

pub async fn get_by_key_keeps_to_its_org(f: &Fixture) {
    let ours = f.insert(item()).await;
    assert_eq!(
        f.work()
            .get_by_key(OTHER, ours.idempotency_key)
            .await
            .unwrap(),
        None
    );
}

pub async fn list_keeps_to_its_org(f: &Fixture) {
    f.insert(item()).await;
    let page = Page {
        before: None,
        limit: 10,
    };
    assert_eq!(
        f.work()
            .list(OTHER, &Filter::default(), &page)
            .await
            .unwrap(),
        []
    );
}

pub async fn cancel_keeps_to_its_org(f: &Fixture) {
    let ours = f.insert(item()).await;
    let answer = f.work().cancel(OTHER, ours.id, OPERATOR).await.unwrap();
    assert_eq!(answer, Cancelled::NotFound);
    assert_eq!(f.row(ours.id).await, ours);
    let held = f.claim_one(&request()).await;
    let answer = f.work().cancel(OTHER, ours.id, OPERATOR).await.unwrap();
    assert_eq!(answer, Cancelled::NotFound);
    assert_eq!(f.row(ours.id).await, held);
}

pub async fn retry_keeps_to_its_org(f: &Fixture) {
    let ours = dead(f).await;
    let answer = f.work().retry(OTHER, ours.id, OPERATOR).await.unwrap();
    assert_eq!(answer, Retried::NotFound);
    assert_eq!(f.row(ours.id).await, ours);
}

pub async fn requeue_stale_keeps_to_its_org(f: &Fixture) {
    let ours = f.held(last_attempt()).await;
    f.advance(LEASE).await;
    let swept = f.work().requeue_stale(OTHER, &sweep_of(10)).await.unwrap();
    assert_eq!(swept.total(), 0);
    assert_eq!(f.row(ours.id).await, ours);
}

pub async fn orphan_stale_keeps_to_its_org(f: &Fixture) {
    let ours = f.held(item()).await;
    f.advance(LEASE).await;
    assert_eq!(f.work().orphan_stale(OTHER, 10).await.unwrap(), 0);
    assert_eq!(f.row(ours.id).await, ours);
}

pub async fn unaudited_keeps_to_its_org(f: &Fixture) {
    dead(f).await;
    assert_eq!(f.work().unaudited(OTHER, 10).await.unwrap(), []);
}

pub async fn mark_audited_keeps_to_its_org(f: &Fixture) {
    let ours = dead(f).await;
    f.work()
        .mark_audited(OTHER, &[(ours.id, ours.claim_seq)])
        .await
        .unwrap();
    assert_eq!(f.row(ours.id).await, ours);
}

pub async fn a_settle_with_the_right_token_and_the_wrong_org_is_refused(f: &Fixture) {
    let ours = f.held(item()).await;
    for transition in every_transition() {
        assert_eq!(
            f.settle(hold_in(OTHER, &ours), transition).await,
            Settled::Conflict
        );
        assert_eq!(f.row(ours.id).await, ours);
    }
}

pub async fn the_wrong_org_is_refused_beside_the_right_one(f: &Fixture) {
    let ours = f.held(item()).await;
    let batch = [hold_in(OTHER, &ours), hold(&ours)];
    let renewed = f.work().renew(&batch.map(renewal)).await.unwrap();
    assert_eq!(renewed, [Renewed::Lost, Renewed::Kept]);
    let settled = f
        .work()
        .settle(&batch.map(|hold| settlement(hold, complete())))
        .await
        .unwrap();
    assert_eq!(settled, [Settled::Conflict, Settled::Settled(Ended::Done)]);
}

pub async fn a_settle_asked_again_with_the_wrong_org_is_refused(f: &Fixture) {
    let ours = f.held(item()).await;
    let _ = f.settle(hold(&ours), bury()).await;
    let wrong = hold_in(OTHER, &ours);
    assert_eq!(f.settle(wrong, bury()).await, Settled::Conflict);
}

pub async fn a_renewal_with_the_right_token_and_the_wrong_org_is_refused(f: &Fixture) {
    let ours = f.held(item()).await;
    f.advance(LEASE / 4).await;
    assert_eq!(
        f.renew_as(renewal(hold_in(OTHER, &ours))).await,
        Renewed::Lost
    );
    assert_eq!(f.row(ours.id).await, ours);
}

fn entry(number: u128) -> NewEntry {
    events::entry(number)
}

pub async fn events_keep_to_their_org(f: &Fixture) {
    let store = &f.stores.events;
    assert_eq!(
        store.append(ORG, Stream::Events, &entry(1)).await.unwrap(),
        1
    );
    assert_eq!(
        store
            .read_after(OTHER, Stream::Events, 0, 10)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        store
            .append(OTHER, Stream::Events, &entry(2))
            .await
            .unwrap(),
        1
    );
    let ours = store.read_after(ORG, Stream::Events, 0, 10).await.unwrap();
    assert_eq!(
        ours.into_iter().map(|e| e.entry).collect::<Vec<_>>(),
        [entry(1)]
    );
}

pub async fn an_outbox_row_stays_with_its_first_org(f: &Fixture) {
    let store = &f.stores.outbox;
    assert_eq!(store.append_outbox(ORG, &[row(1)]).await.unwrap(), 1);
    assert_eq!(
        store.append_outbox(OTHER, &[row(1), row(2)]).await.unwrap(),
        1
    );
    let taken = store.claim_pending(&pending(10)).await.unwrap();
    let orgs: Vec<_> = taken
        .iter()
        .map(|row| (row.row.id.as_u128(), row.org_id))
        .collect();
    assert_eq!(orgs, [(1, ORG), (2, OTHER)]);
}

pub async fn markers_keep_to_their_org(f: &Fixture) {
    let store = &f.stores.markers;
    let scope = |org_id| MarkerScope {
        org_id,
        user_id: OPERATOR,
        key: "key".to_owned(),
    };
    let begin = |number| Begin {
        digest: vec![1],
        target_id: Uuid::from_u128(number),
        attempt: Uuid::from_u128(number),
        lease: LEASE,
    };
    let entered = |number| Begun::Entered {
        target_id: Uuid::from_u128(number),
    };
    assert_eq!(
        store.begin(&scope(ORG), &begin(1)).await.unwrap(),
        entered(1)
    );
    assert_eq!(
        store.begin(&scope(OTHER), &begin(2)).await.unwrap(),
        entered(2)
    );
    assert!(
        !store
            .release(&scope(OTHER), Uuid::from_u128(1))
            .await
            .unwrap()
    );
    assert_eq!(
        store.begin(&scope(ORG), &begin(3)).await.unwrap(),
        Begun::InProgress
    );
}

pub async fn schedules_keep_to_their_org(f: &Fixture) {
    let store = &f.stores.schedules;
    let mut ours = schedules::schedule(1);
    ours.declared_by = Some("billing".to_owned());
    store.put_schedule(ORG, &ours).await.unwrap();
    assert_eq!(store.schedules(OTHER, 10).await.unwrap(), []);
    assert_eq!(store.schedule(OTHER, ours.id).await.unwrap(), None);
    assert!(!store.remove_schedule(OTHER, ours.id).await.unwrap());
    let mut advance = Advance {
        schedule: ours.id,
        revision: 1,
        ticks: None,
        items: vec![item()],
    };
    let late = store.advance(OTHER, &advance).await.unwrap();
    assert_eq!(late, Advanced::Late);
    advance.ticks = Some(Ticks {
        last: f.now().await,
        next: None,
    });
    let late = store.advance(OTHER, &advance).await.unwrap();
    assert_eq!(late, Advanced::Late);
    let word = ShortText::new("ours");
    let paused = store.pause_schedule(OTHER, ours.id, &word, &word).await;
    assert!(!paused.unwrap());
    let marked = store.mark_undeclared(OTHER, ours.id, "billing").await;
    assert!(!marked.unwrap());
    // What an org answers to an id that is another's is its own affair; the row is not.
    let mut theirs = schedules::schedule(1);
    "every second".clone_into(&mut theirs.definition.expression);
    let _ = store.put_schedule(OTHER, &theirs).await;
    let stored = schedules::fresh(ours.clone());
    assert_eq!(store.schedules(ORG, 10).await.unwrap(), [stored]);
    let paused = store.pause_schedule(ORG, ours.id, &word, &word).await;
    assert!(paused.unwrap());
    let resumed = store.resume_schedule(OTHER, ours.id, None).await;
    assert!(!resumed.unwrap());
    let unknown = ScheduleId::new(Uuid::from_u128(99));
    assert!(!store.remove_schedule(ORG, unknown).await.unwrap());
    f.advance(HOUR).await;
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn sessions_keep_to_their_org(f: &Fixture) {
    let store = &f.stores.credentials;
    credentials::begin_session(f, ORG, 1).await;
    let id = credentials::session_id(1);
    let idle = credentials::IDLE;
    assert_eq!(store.session(OTHER, id, idle).await.unwrap(), None);
    assert!(!store.end_session(OTHER, id).await.unwrap());
    assert_eq!(store.end_sessions(OTHER, USER).await.unwrap(), 0);
    let again = credentials::new_session(1);
    assert!(!store.create_session(OTHER, &again, HOUR).await.unwrap());
    let stored = store.session(ORG, id, idle).await.unwrap().expect("ours");
    assert_eq!(stored.org_id, ORG);
}

pub async fn a_ticket_opens_its_org(f: &Fixture) {
    let store = &f.stores.credentials;
    let [credential, _] = credentials::behind();
    for (org, number) in [(ORG, 1), (OTHER, 2)] {
        let digest = credentials::digest(number);
        store
            .create_socket_ticket(org, &digest, credential, HOUR)
            .await
            .unwrap();
        let ticket = store.redeem_socket_ticket(&digest).await.unwrap();
        assert_eq!(ticket.expect("a ticket").org_id, org);
    }
}
