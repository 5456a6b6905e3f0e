use super::*;
use crate::ids::{RequestId, ScheduleId, TargetId};
use crate::store::markers::{Begin, Begun, MarkerAnswer, MarkerScope};
use crate::store::outbox::{NewOutboxRow, PendingRequest};
use crate::store::schedules::{Missed, Overlap, PutSchedule, ScheduleDefinition};
use crate::store::{MarkerStore, OutboxStore, ScheduleStore, StoreError};

fn row(number: u128) -> NewOutboxRow {
    NewOutboxRow {
        id: Uuid::from_u128(number),
        kind: "work.noop".to_owned(),
        target_id: TargetId::NIL,
        payload: JsonObject::empty(),
        actor_id: UserId::NIL,
        request_id: RequestId::NIL,
        traceparent: None,
        app: "test".to_owned(),
    }
}

#[test]
fn a_row_that_could_not_be_relayed_says_why_and_may_be_relayed_after_all() {
    let (clock, store) = store();
    block_on(store.append_outbox(ORG, &[row(1)])).unwrap();
    let id = Uuid::from_u128(1);
    assert_eq!(store.outbox_error(id), None);
    assert!(block_on(store.mark_failed(id, &"no such kind".into(), true)).unwrap());
    assert!(!block_on(store.mark_failed(id, &"again".into(), true)).unwrap());
    assert_eq!(store.outbox_error(id), Some("no such kind".into()));
    clock.advance(LEASE);
    block_on(store.mark_done(&[id])).unwrap();
    // It ended a second time, and counts from then.
    clock.advance(LEASE);
    assert_eq!(
        block_on(store.purge_outbox(LEASE + LEASE / 2, 10)).unwrap(),
        0
    );
    clock.advance(LEASE);
    assert_eq!(
        block_on(store.purge_outbox(LEASE + LEASE / 2, 10)).unwrap(),
        1
    );
}

#[test]
fn a_taken_row_waits_out_a_growing_back_off() {
    let (clock, store) = store();
    block_on(store.append_outbox(ORG, &[row(2), row(1)])).unwrap();
    let second = Duration::from_secs(1);
    let asked = PendingRequest {
        limit: 1,
        grace: Duration::ZERO,
        base: second,
        cap: second * 2,
    };
    let taken = || {
        let rows = block_on(store.claim_pending(&asked)).unwrap();
        rows.first().map(|row| (row.row.id.as_u128(), row.attempts))
    };
    assert_eq!(
        [taken(), taken(), taken()],
        [Some((1, 1)), Some((2, 1)), None]
    );
    clock.advance(second);
    assert_eq!(
        [taken(), taken(), taken()],
        [Some((1, 2)), Some((2, 2)), None]
    );
    clock.advance(second);
    assert_eq!(taken(), None);
    clock.advance(second);
    assert_eq!(taken(), Some((1, 3)));
}

#[test]
fn a_finish_may_be_repeated_and_an_overlong_key_is_refused() {
    let (_, store) = store();
    let scope = MarkerScope {
        org_id: ORG,
        user_id: UserId::NIL,
        key: "k".repeat(255),
    };
    let [target_id, attempt] = [1, 2].map(Uuid::from_u128);
    let begin = Begin {
        digest: vec![1],
        target_id,
        attempt,
        lease: LEASE,
    };
    assert_eq!(
        block_on(store.begin(&scope, &begin)).unwrap(),
        Begun::Entered { target_id }
    );
    let answer = MarkerAnswer {
        status: 201,
        body: "made".to_owned(),
    };
    assert!(block_on(store.finish(&scope, attempt, &answer)).unwrap());
    assert!(block_on(store.finish(&scope, attempt, &answer)).unwrap());
    let other = MarkerAnswer {
        status: 500,
        ..answer.clone()
    };
    assert!(!block_on(store.finish(&scope, attempt, &other)).unwrap());
    assert!(!block_on(store.release(&scope, attempt)).unwrap());
    assert_eq!(
        block_on(store.begin(&scope, &begin)).unwrap(),
        Begun::Finished(answer)
    );

    let longer = MarkerScope {
        key: "k".repeat(256),
        ..scope
    };
    assert!(matches!(
        block_on(store.begin(&longer, &begin)),
        Err(StoreError::Refused(_))
    ));
}

#[test]
fn a_schedule_whose_name_or_id_is_taken_is_refused() {
    let (_, store) = store();
    let schedule = |number: u128, name: &str| PutSchedule {
        id: ScheduleId::new(Uuid::from_u128(number)),
        definition: ScheduleDefinition {
            name: name.to_owned(),
            kind: kind(),
            lane: Lane::default(),
            payload: JsonObject::empty(),
            priority: 0,
            max_attempts: 1,
            expression: "@daily".to_owned(),
            zone: "UTC".to_owned(),
            starts_at: None,
            ends_at: None,
            missed: Missed::Once,
            overlap: Overlap::Allow,
            jitter: Duration::ZERO,
        },
        declared_by: None,
        next_tick: None,
    };
    let put = |org, schedule: &PutSchedule| block_on(store.put_schedule(org, schedule));
    let other_org = OrgId::new(Uuid::from_u128(9));
    put(ORG, &schedule(1, "nightly")).unwrap();
    put(ORG, &schedule(1, "nightly")).unwrap();
    put(other_org, &schedule(2, "nightly")).unwrap();
    assert!(matches!(
        put(ORG, &schedule(3, "nightly")),
        Err(StoreError::Refused(_))
    ));
    assert!(matches!(
        put(other_org, &schedule(1, "weekly")),
        Err(StoreError::Refused(_))
    ));
    let stored = block_on(store.schedules(ORG, 10)).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].definition, schedule(1, "nightly").definition);
}
