//! Enqueueing: what is stored, and the fate of each row.

use std::time::Duration;

use leasehold_core::store::work::Enqueued;
use leasehold_core::time::{earlier, later};
use leasehold_core::{Due, IdempotencyKey, NewItem, RequestId, Status, TargetId, WorkItem};
use uuid::Uuid;

use super::fixture::{Fixture, inserted, only};
use super::samples::{
    CREATED, DAY, HOUR, ORG, OTHER, complete, every_transition, hold, id, ids, item, json, kind,
    lane, numbered, request, request_of,
};

pub async fn an_item_is_stored_as_it_was_constructed(f: &Fixture) {
    let new = NewItem {
        kind: kind("SEND_INVOICE"),
        target_id: TargetId::new(Uuid::from_u128(7)),
        idempotency_key: IdempotencyKey::from_text("invoice 7"),
        request_id: RequestId::new(Uuid::from_u128(8)),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        payload: json(r#"{"invoice": 7}"#),
        lane: lane("region:eu-1/mail.v2"),
        priority: -5,
        due: Due::At(CREATED),
        max_attempts: 9,
        ..item()
    };
    let (fate, moment) = f.timed(f.enqueue(new.clone())).await;
    let row = inserted(fate);
    moment.assert_is(row.updated_at);
    assert_eq!(row, new.into_row(row.updated_at));
    assert_eq!(f.row(row.id).await, row);
}

pub async fn the_extremes_of_every_number_are_stored(f: &Fixture) {
    for (number, priority, max_attempts) in
        [(1, i16::MIN, 1), (2, i16::MAX, i32::MAX.unsigned_abs())]
    {
        let row = f
            .insert(NewItem {
                priority,
                max_attempts,
                ..numbered(number)
            })
            .await;
        let stored = f.row(row.id).await;
        assert_eq!(
            (stored.priority, stored.max_attempts),
            (priority, max_attempts)
        );
    }
}

pub async fn an_item_of_no_attempts_has_one(f: &Fixture) {
    let row = f
        .insert(NewItem {
            max_attempts: 0,
            ..item()
        })
        .await;
    assert_eq!(row.max_attempts, 1);
    assert_eq!(f.row(row.id).await, row);
}

pub async fn an_item_with_no_due_time_is_due_at_the_stores_now(f: &Fixture) {
    let (fate, moment) = f.timed(f.enqueue(item())).await;
    moment.assert_is(inserted(fate).available_at);
}

pub async fn a_delay_counts_from_the_stores_now(f: &Fixture) {
    let (fate, moment) = f
        .timed(f.enqueue(NewItem {
            due: Due::After(HOUR),
            ..item()
        }))
        .await;
    moment.assert_is_before(HOUR, inserted(fate).available_at);
}

pub async fn an_instant_that_is_given_is_kept(f: &Fixture) {
    let now = f.now().await;
    for instant in [CREATED, earlier(CREATED, DAY), later(CREATED, 10_000 * DAY)] {
        let row = f
            .insert(NewItem {
                due: Due::At(instant),
                ..item()
            })
            .await;
        assert_eq!(f.row(row.id).await.available_at, instant, "at {now}");
    }
}

pub async fn a_batch_is_answered_in_its_order(f: &Fixture) {
    let old = f.insert(numbered(5)).await;
    let batch = vec![
        numbered(9),
        NewItem {
            id: id(8),
            ..numbered(5)
        },
        numbered(1),
        numbered(5),
        numbered(7),
    ];
    let fates = f.work().enqueue(ORG, batch).await.unwrap();
    assert_eq!(fates[1], Enqueued::KeyExists(old.clone()));
    assert_eq!(fates[3], Enqueued::IdExists(old));
    for (at, number) in [(0, 9), (2, 1), (4, 7)] {
        assert_eq!(inserted(fates[at].clone()).id, id(number));
    }
    assert_eq!(fates.len(), 5);
}

pub async fn an_empty_batch_is_answered_with_nothing(f: &Fixture) {
    assert_eq!(f.work().enqueue(ORG, Vec::new()).await.unwrap(), []);
}

pub async fn a_batch_of_a_thousand_is_stored_whole(f: &Fixture) {
    let batch: Vec<_> = (1..=1_000).map(numbered).collect();
    let fates = f.work().enqueue(ORG, batch).await.unwrap();
    assert_eq!(fates.len(), 1_000);
    for (fate, number) in fates.into_iter().zip(1..) {
        assert_eq!(inserted(fate).id, id(number));
    }
    assert_eq!(f.claim(&request_of(2_000)).await.len(), 1_000);
}

pub async fn the_same_id_again_answers_the_stored_row_untouched(f: &Fixture) {
    let row = f.insert(item()).await;
    f.advance(HOUR).await;
    let again = NewItem {
        id: row.id,
        payload: json(r#"{"other":true}"#),
        lane: lane("elsewhere"),
        ..item()
    };
    let fate = f.enqueue(again.clone()).await;
    assert_eq!(fate, Enqueued::IdExists(row.clone()));
    assert_eq!(f.row(row.id).await, row);
    let found = f
        .work()
        .get_by_key(ORG, again.idempotency_key)
        .await
        .unwrap();
    assert_eq!(found, None, "the row that was not stored took its key");
}

pub async fn the_same_key_under_another_id_answers_the_holder_untouched(f: &Fixture) {
    let row = f.insert(item()).await;
    f.advance(HOUR).await;
    let again = NewItem {
        idempotency_key: row.idempotency_key,
        payload: json(r#"{"other":true}"#),
        ..item()
    };
    let other_id = again.id;
    let fate = f.enqueue(again).await;
    assert_eq!(fate, Enqueued::KeyExists(row.clone()));
    assert_eq!(f.row(row.id).await, row);
    assert_eq!(f.work().get(ORG, other_id).await.unwrap(), None);
}

pub async fn a_taken_id_is_reported_before_a_taken_key(f: &Fixture) {
    let by_id = f.insert(numbered(1)).await;
    f.insert(numbered(2)).await;
    let both = NewItem {
        id: id(1),
        ..numbered(2)
    };
    assert_eq!(f.enqueue(both).await, Enqueued::IdExists(by_id));
}

pub async fn a_key_of_another_org_is_free(f: &Fixture) {
    let theirs = f.insert_in(OTHER, item()).await;
    let ours = f
        .insert(NewItem {
            idempotency_key: theirs.idempotency_key,
            ..item()
        })
        .await;
    assert_ne!(ours.id, theirs.id);
    let key = theirs.idempotency_key;
    assert_eq!(f.work().get_by_key(ORG, key).await.unwrap(), Some(ours));
    assert_eq!(f.work().get_by_key(OTHER, key).await.unwrap(), Some(theirs));
}

pub async fn an_id_of_another_org_is_taken_and_shows_nothing(f: &Fixture) {
    let theirs = f.insert_in(OTHER, item()).await;
    let ours = NewItem {
        id: theirs.id,
        ..item()
    };
    let key = ours.idempotency_key;
    assert_eq!(f.enqueue(ours).await, Enqueued::IdTaken);
    assert_eq!(f.work().get(ORG, theirs.id).await.unwrap(), None);
    assert_eq!(
        f.work().get_by_key(ORG, key).await.unwrap(),
        None,
        "the key was taken all the same"
    );
    assert_eq!(f.row_in(OTHER, theirs.id).await, theirs);
}

pub async fn an_id_of_another_org_is_reported_before_a_taken_key(f: &Fixture) {
    let theirs = f.insert_in(OTHER, item()).await;
    let ours = f.insert(item()).await;
    let both = NewItem {
        id: theirs.id,
        idempotency_key: ours.idempotency_key,
        ..item()
    };
    assert_eq!(f.enqueue(both).await, Enqueued::IdTaken);
}

pub async fn a_row_that_is_taken_takes_none_of_its_batch_along(f: &Fixture) {
    let theirs = f.insert_in(OTHER, numbered(1)).await;
    let ours = f.insert(numbered(2)).await;
    let batch = vec![
        numbered(3),
        NewItem {
            id: theirs.id,
            ..item()
        },
        numbered(2),
        numbered(4),
    ];
    let fates = f.work().enqueue(ORG, batch).await.unwrap();
    assert_eq!(fates[1..3], [Enqueued::IdTaken, Enqueued::IdExists(ours)]);
    for number in [3, 4] {
        assert_eq!(f.row(id(number)).await.status, Status::Queued);
    }
}

pub async fn a_later_row_of_a_batch_sees_the_earlier_ones(f: &Fixture) {
    let batch = vec![
        numbered(1),
        NewItem {
            payload: json(r#"{"second":1}"#),
            ..numbered(1)
        },
        NewItem {
            id: id(2),
            ..numbered(1)
        },
    ];
    let fates = f.work().enqueue(ORG, batch).await.unwrap();
    let first = inserted(fates[0].clone());
    assert_eq!(first.payload, numbered(1).payload);
    assert_eq!(fates[1], Enqueued::IdExists(first.clone()));
    assert_eq!(fates[2], Enqueued::KeyExists(first));
    assert_eq!(f.work().get(ORG, id(2)).await.unwrap(), None);
}

pub async fn a_batch_asked_again_answers_the_rows_that_landed(f: &Fixture) {
    let batch: Vec<_> = (1..=3).map(numbered).collect();
    let fates = f.work().enqueue(ORG, batch.clone()).await.unwrap();
    let rows: Vec<WorkItem> = fates.into_iter().map(inserted).collect();
    f.advance(HOUR).await;
    let again = f.work().enqueue(ORG, batch).await.unwrap();
    assert_eq!(
        again,
        rows.into_iter().map(Enqueued::IdExists).collect::<Vec<_>>()
    );
}

pub async fn enqueueing_again_never_touches_a_claim(f: &Fixture) {
    let new = item();
    let held = f.held(new.clone()).await;
    f.advance(Duration::from_secs(1)).await;
    assert_eq!(
        f.enqueue(new.clone()).await,
        Enqueued::IdExists(held.clone())
    );
    let by_key = NewItem {
        idempotency_key: new.idempotency_key,
        ..item()
    };
    assert_eq!(f.enqueue(by_key).await, Enqueued::KeyExists(held.clone()));
    assert_eq!(f.row(held.id).await, held);
    assert_eq!(f.claim(&request()).await, []);
}

pub async fn a_key_stays_taken_whatever_became_of_its_item(f: &Fixture) {
    for transition in every_transition() {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
        let again = NewItem {
            idempotency_key: held.idempotency_key,
            ..item()
        };
        let stored = f.row(held.id).await;
        assert_eq!(f.enqueue(again).await, Enqueued::KeyExists(stored));
    }
}

pub async fn a_key_is_free_once_its_item_was_purged(f: &Fixture) {
    let held = f.held(item()).await;
    let _ = f.settle(hold(&held), complete()).await;
    f.advance(2 * DAY).await;
    assert_eq!(f.work().purge(DAY, 10).await.unwrap(), 1);
    let again = NewItem {
        idempotency_key: held.idempotency_key,
        ..item()
    };
    let row = f.insert(again).await;
    let claimed = only(f.claim(&request()).await).item;
    assert_eq!(ids([&claimed]), ids([&row]));
}
