//! Idempotency markers: of any number of attempts at one request, one enters.

use std::time::Duration;

use leasehold_core::store::markers::{Begin, Begun, MarkerAnswer, MarkerScope};
use leasehold_core::{OrgId, StoreError, UserId};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{DAY, LEASE, OPERATOR, ORG, OTHER, USER};

pub(super) fn scope(key: &str) -> MarkerScope {
    MarkerScope {
        org_id: ORG,
        user_id: USER,
        key: key.to_owned(),
    }
}

/// An attempt by number, which would create under the target of that number.
pub(super) fn begin(number: u128) -> Begin {
    Begin {
        digest: b"request".to_vec(),
        target_id: Uuid::from_u128(number),
        attempt: attempt(number),
        lease: LEASE,
    }
}

pub(super) fn attempt(number: u128) -> Uuid {
    Uuid::from_u128(1_000 + number)
}

pub(super) fn entered(number: u128) -> Begun {
    Begun::Entered {
        target_id: Uuid::from_u128(number),
    }
}

fn answer() -> MarkerAnswer {
    MarkerAnswer {
        status: 201,
        body: "{\"id\": 7,  \"name\":\"é😀\\u0000\"}\n".to_owned(),
    }
}

async fn begun(f: &Fixture, number: u128) -> Begun {
    f.stores
        .markers
        .begin(&scope("key"), &begin(number))
        .await
        .unwrap()
}

pub async fn the_first_attempt_enters_and_keeps_others_out(f: &Fixture) {
    assert_eq!(begun(f, 1).await, entered(1));
    assert_eq!(begun(f, 2).await, Begun::InProgress);
    f.advance(LEASE / 2).await;
    assert_eq!(begun(f, 3).await, Begun::InProgress);
}

pub async fn the_same_attempt_enters_again(f: &Fixture) {
    assert_eq!(begun(f, 1).await, entered(1));
    assert_eq!(begun(f, 1).await, entered(1));
    assert_eq!(begun(f, 2).await, Begun::InProgress);
}

pub async fn an_attempt_is_taken_over_after_its_lease_under_the_first_target(f: &Fixture) {
    assert_eq!(begun(f, 1).await, entered(1));
    f.advance(LEASE + Duration::from_secs(1)).await;
    assert_eq!(begun(f, 2).await, entered(1), "the first target survives");
    assert_eq!(
        begun(f, 3).await,
        Begun::InProgress,
        "the lease counts anew"
    );
    f.advance(LEASE + Duration::from_secs(1)).await;
    assert_eq!(begun(f, 4).await, entered(1));
}

pub async fn an_attempt_that_was_taken_over_ends_nothing(f: &Fixture) {
    begun(f, 1).await;
    f.advance(LEASE + Duration::from_secs(1)).await;
    begun(f, 2).await;
    let store = &f.stores.markers;
    assert!(
        !store
            .finish(&scope("key"), attempt(1), &answer())
            .await
            .unwrap()
    );
    assert!(!store.release(&scope("key"), attempt(1)).await.unwrap());
    assert_eq!(begun(f, 3).await, Begun::InProgress);
    assert!(
        store
            .finish(&scope("key"), attempt(2), &answer())
            .await
            .unwrap()
    );
    assert_eq!(begun(f, 3).await, Begun::Finished(answer()));
}

pub async fn a_finished_request_is_answered_from_its_record(f: &Fixture) {
    begun(f, 1).await;
    assert!(
        f.stores
            .markers
            .finish(&scope("key"), attempt(1), &answer())
            .await
            .unwrap()
    );
    for number in [2, 3] {
        assert_eq!(begun(f, number).await, Begun::Finished(answer()));
        f.advance(LEASE * 2).await;
    }
}

pub async fn a_released_request_is_entered_at_once_under_the_first_target(f: &Fixture) {
    begun(f, 1).await;
    assert!(
        f.stores
            .markers
            .release(&scope("key"), attempt(1))
            .await
            .unwrap()
    );
    assert_eq!(begun(f, 2).await, entered(1));
    assert_eq!(begun(f, 3).await, Begun::InProgress);
    assert!(
        !f.stores
            .markers
            .release(&scope("key"), attempt(1))
            .await
            .unwrap()
    );
}

pub async fn a_marker_that_is_not_there_is_not_ended(f: &Fixture) {
    let store = &f.stores.markers;
    assert!(
        !store
            .finish(&scope("key"), attempt(1), &answer())
            .await
            .unwrap()
    );
    assert!(!store.release(&scope("key"), attempt(1)).await.unwrap());
    assert_eq!(begun(f, 1).await, entered(1));
}

pub async fn a_key_used_for_another_request_is_refused(f: &Fixture) {
    begun(f, 1).await;
    let other = Begin {
        digest: b"another request".to_vec(),
        ..begin(2)
    };
    let pending = f.stores.markers.begin(&scope("key"), &other).await.unwrap();
    assert_eq!(pending, Begun::DigestDiffers);
    f.stores
        .markers
        .finish(&scope("key"), attempt(1), &answer())
        .await
        .unwrap();
    let finished = f.stores.markers.begin(&scope("key"), &other).await.unwrap();
    assert_eq!(finished, Begun::DigestDiffers);
    assert_eq!(begun(f, 3).await, Begun::Finished(answer()));
}

pub async fn a_marker_is_of_its_org_user_and_key(f: &Fixture) {
    let of = |org_id: OrgId, user_id: UserId, key: &str| MarkerScope {
        org_id,
        user_id,
        key: key.to_owned(),
    };
    let scopes = [
        of(ORG, USER, "key"),
        of(OTHER, USER, "key"),
        of(ORG, OPERATOR, "key"),
        of(ORG, USER, "KEY"),
        of(ORG, USER, &"é".repeat(127)),
        of(OrgId::NIL, USER, "key"),
    ];
    for (scope, number) in scopes.iter().zip(1..) {
        assert_eq!(
            f.stores.markers.begin(scope, &begin(number)).await.unwrap(),
            entered(number)
        );
    }
    assert!(
        f.stores
            .markers
            .finish(&scopes[0], attempt(1), &answer())
            .await
            .unwrap()
    );
    for scope in &scopes[1..] {
        let other = f.stores.markers.begin(scope, &begin(99)).await.unwrap();
        assert_eq!(other, Begun::InProgress);
    }
}

pub async fn markers_go_after_retention_and_not_after_their_lease(f: &Fixture) {
    begun(f, 1).await;
    f.stores
        .markers
        .finish(&scope("key"), attempt(1), &answer())
        .await
        .unwrap();
    f.advance(DAY / 2).await;
    assert_eq!(f.stores.markers.purge_markers(DAY, 10).await.unwrap(), 0);
    assert_eq!(begun(f, 2).await, Begun::Finished(answer()));
    f.advance(DAY).await;
    assert_eq!(f.stores.markers.purge_markers(DAY, 10).await.unwrap(), 1);
    assert_eq!(begun(f, 3).await, entered(3), "it runs as new");
}

pub async fn a_purge_of_markers_deletes_no_more_than_its_limit(f: &Fixture) {
    for number in 1..=3 {
        let scope = scope(&number.to_string());
        f.stores
            .markers
            .begin(&scope, &begin(number))
            .await
            .unwrap();
    }
    f.advance(2 * DAY).await;
    for deleted in [2, 1, 0] {
        assert_eq!(
            f.stores.markers.purge_markers(DAY, 2).await.unwrap(),
            deleted
        );
    }
}

pub async fn a_key_is_refused_beyond_its_limit_of_bytes(f: &Fixture) {
    let longest = scope(&"k".repeat(255));
    assert_eq!(
        f.stores.markers.begin(&longest, &begin(1)).await.unwrap(),
        entered(1)
    );
    let longer = scope(&"é".repeat(128));
    let answer = f.stores.markers.begin(&longer, &begin(2)).await;
    assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
}
