//! The outbox: each row is handed to a relay until it is done, with a growing wait in between.

use std::time::Duration;

use leasehold_core::store::outbox::{NewOutboxRow, OutboxRow, PendingRequest};
use leasehold_core::{RequestId, ShortText, TargetId};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{DAY, HOUR, ORG, OTHER, USER, json};

/// A row under the id of its number.
pub(super) fn row(number: u128) -> NewOutboxRow {
    NewOutboxRow {
        id: Uuid::from_u128(number),
        kind: "work.send_invoice".to_owned(),
        target_id: TargetId::new(Uuid::from_u128(number + 1)),
        payload: json(&format!(r#"{{"number": {number}}}"#)),
        actor_id: USER,
        request_id: RequestId::new(Uuid::from_u128(number + 2)),
        traceparent: None,
        app: "api@2.0".to_owned(),
    }
}

/// A request without grace, that waits a minute and at most four.
pub(super) const fn pending(limit: u32) -> PendingRequest {
    PendingRequest {
        limit,
        grace: Duration::ZERO,
        base: MINUTE,
        cap: Duration::from_mins(4),
    }
}

const MINUTE: Duration = Duration::from_mins(1);

async fn append(f: &Fixture, numbers: &[u128]) -> u32 {
    let rows: Vec<_> = numbers.iter().copied().map(row).collect();
    f.stores.outbox.append_outbox(ORG, &rows).await.unwrap()
}

async fn taken(f: &Fixture, request: &PendingRequest) -> Vec<u128> {
    let rows: Vec<OutboxRow> = f.stores.outbox.claim_pending(request).await.unwrap();
    rows.iter().map(|row| row.row.id.as_u128()).collect()
}

pub async fn a_row_comes_back_as_it_was_appended(f: &Fixture) {
    let new = NewOutboxRow {
        payload: json(r#"{ "b":1.50, "a":"\\u0000", "n":123456789012345678901234567890 }"#),
        traceparent: Some("00-ab-cd-01".to_owned()),
        app: "it's 😀".to_owned(),
        ..row(1)
    };
    let (appended, moment) = f
        .timed(
            f.stores
                .outbox
                .append_outbox(OTHER, std::slice::from_ref(&new)),
        )
        .await;
    assert_eq!(appended.unwrap(), 1);
    let taken = f.stores.outbox.claim_pending(&pending(10)).await.unwrap();
    let taken = super::fixture::only(taken);
    assert_eq!((taken.org_id, taken.attempts, &taken.row), (OTHER, 1, &new));
    assert_eq!(taken.row.payload.as_str(), new.payload.as_str());
    moment.assert_is(taken.created_at);
}

pub async fn appending_again_leaves_the_row_alone(f: &Fixture) {
    assert_eq!(append(f, &[1, 2]).await, 2);
    let changed = NewOutboxRow {
        app: "other".to_owned(),
        ..row(1)
    };
    let appended = f
        .stores
        .outbox
        .append_outbox(ORG, &[changed, row(3)])
        .await
        .unwrap();
    assert_eq!(appended, 1);
    assert_eq!(append(f, &[]).await, 0);
    let rows = f.stores.outbox.claim_pending(&pending(10)).await.unwrap();
    let rows: Vec<_> = rows.into_iter().map(|taken| taken.row).collect();
    assert_eq!(rows, [row(1), row(2), row(3)]);
}

pub async fn the_oldest_ids_go_first_up_to_the_limit(f: &Fixture) {
    append(f, &[4, 2, 5, 1, 3]).await;
    assert_eq!(taken(f, &pending(0)).await, []);
    assert_eq!(taken(f, &pending(2)).await, [1, 2]);
    assert_eq!(taken(f, &pending(2)).await, [3, 4]);
    assert_eq!(taken(f, &pending(2)).await, [5]);
    assert_eq!(taken(f, &pending(2)).await, []);
}

pub async fn a_row_younger_than_the_grace_is_left_to_its_writer(f: &Fixture) {
    append(f, &[1]).await;
    let request = PendingRequest {
        grace: HOUR,
        ..pending(10)
    };
    assert_eq!(taken(f, &request).await, []);
    f.advance(HOUR + Duration::from_secs(1)).await;
    append(f, &[2]).await;
    assert_eq!(taken(f, &request).await, [1]);
}

pub async fn a_row_is_handed_out_again_after_a_growing_wait(f: &Fixture) {
    append(f, &[1]).await;
    for (attempts, wait) in (1..).zip([1, 2, 4, 4, 4]) {
        let rows = f.stores.outbox.claim_pending(&pending(10)).await.unwrap();
        assert_eq!(super::fixture::only(rows).attempts, attempts);
        f.advance((2 * wait - 1) * MINUTE / 2).await;
        assert_eq!(taken(f, &pending(10)).await, [], "after attempt {attempts}");
        f.advance(MINUTE / 2 + Duration::from_secs(1)).await;
    }
}

pub async fn a_done_row_is_handed_out_no_more(f: &Fixture) {
    append(f, &[1, 2, 3]).await;
    let done = [Uuid::from_u128(1), Uuid::from_u128(3), Uuid::from_u128(99)];
    f.stores.outbox.mark_done(&done).await.unwrap();
    f.stores.outbox.mark_done(&done).await.unwrap();
    f.stores.outbox.mark_done(&[]).await.unwrap();
    assert_eq!(taken(f, &pending(10)).await, [2]);
    f.advance(HOUR).await;
    assert_eq!(taken(f, &pending(10)).await, [2]);
}

pub async fn a_row_that_fails_is_tried_again_until_it_is_dead(f: &Fixture) {
    append(f, &[1, 2]).await;
    assert_eq!(taken(f, &pending(10)).await, [1, 2]);
    let fail = async |dead| {
        let error = ShortText::new("unknown kind");
        f.stores
            .outbox
            .mark_failed(Uuid::from_u128(1), &error, dead)
            .await
            .unwrap()
    };
    assert!(fail(false).await);
    f.advance(HOUR).await;
    assert_eq!(
        taken(f, &pending(10)).await,
        [1, 2],
        "a bad row blocks nobody"
    );
    assert!(fail(true).await);
    f.advance(HOUR).await;
    assert_eq!(taken(f, &pending(10)).await, [2]);
    assert!(!fail(true).await, "it was dead before");
    assert!(!fail(false).await);
}

pub async fn a_done_row_does_not_fail(f: &Fixture) {
    append(f, &[1]).await;
    f.stores
        .outbox
        .mark_done(&[Uuid::from_u128(1)])
        .await
        .unwrap();
    for number in [1, 99] {
        let error = ShortText::new("late");
        let id = Uuid::from_u128(number);
        assert!(!f.stores.outbox.mark_failed(id, &error, true).await.unwrap());
    }
}

pub async fn a_row_committed_late_is_not_skipped(f: &Fixture) {
    append(f, &[10, 20]).await;
    assert_eq!(taken(f, &pending(10)).await, [10, 20]);
    f.stores
        .outbox
        .mark_done(&[Uuid::from_u128(20)])
        .await
        .unwrap();
    append(f, &[5, 15]).await;
    assert_eq!(taken(f, &pending(10)).await, [5, 15]);
}

pub async fn the_lag_is_the_age_of_the_oldest_pending_row(f: &Fixture) {
    let lag = async || f.stores.outbox.outbox_lag().await.unwrap();
    // A clock that moves by itself adds a little; this much would be another row.
    let about = |time: Duration| time..time + HOUR / 2;
    assert_eq!(lag().await, Duration::ZERO);
    append(f, &[3]).await;
    f.advance(HOUR).await;
    append(f, &[2]).await;
    f.advance(HOUR).await;
    append(f, &[1]).await;
    assert!(about(2 * HOUR).contains(&lag().await));
    taken(f, &pending(10)).await;
    assert!(
        about(2 * HOUR).contains(&lag().await),
        "a row that was taken is pending still"
    );
    f.stores
        .outbox
        .mark_done(&[Uuid::from_u128(3)])
        .await
        .unwrap();
    assert!(about(HOUR).contains(&lag().await));
    let error = ShortText::new("no such kind");
    f.stores
        .outbox
        .mark_failed(Uuid::from_u128(2), &error, true)
        .await
        .unwrap();
    assert!(
        about(Duration::ZERO).contains(&lag().await),
        "a dead row is not pending"
    );
    f.stores
        .outbox
        .mark_done(&[Uuid::from_u128(1)])
        .await
        .unwrap();
    assert_eq!(lag().await, Duration::ZERO);
}

pub async fn rows_go_after_retention_from_when_they_ended(f: &Fixture) {
    append(f, &[1, 2, 3, 4]).await;
    f.stores
        .outbox
        .mark_done(&[Uuid::from_u128(1)])
        .await
        .unwrap();
    f.advance(2 * DAY).await;
    f.stores
        .outbox
        .mark_done(&[Uuid::from_u128(2)])
        .await
        .unwrap();
    let error = ShortText::new("no such kind");
    f.stores
        .outbox
        .mark_failed(Uuid::from_u128(3), &error, true)
        .await
        .unwrap();
    let purge = async |limit| f.stores.outbox.purge_outbox(DAY, limit).await.unwrap();
    assert_eq!(purge(10).await, 1, "the others had not ended");
    f.advance(2 * DAY).await;
    assert_eq!(purge(1).await, 1);
    assert_eq!(purge(10).await, 1);
    assert_eq!(purge(10).await, 0, "a pending row stays however old");
    assert_eq!(taken(f, &pending(10)).await, [4]);
}
