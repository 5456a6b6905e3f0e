//! Paused lanes, and the cap on one tenant's claims in a lane.

use leasehold_core::store::work::ClaimRequest;
use leasehold_core::{Lane, NewItem, OrgId, ShortText, Status};

use super::fixture::Fixture;
use super::samples::{
    LEASE, ORG, OTHER, complete, hold, id, ids, item, lane, numbered, on_lane, request,
    request_from, request_of,
};

pub async fn a_paused_lane_is_passed_over_until_resumed(f: &Fixture) {
    let row = f.insert(on_lane("mail")).await;
    f.work()
        .pause_lane(
            &lane("mail"),
            &ShortText::new("bounces"),
            &ShortText::new("ops"),
        )
        .await
        .unwrap();
    assert_eq!(f.claim(&request_from("mail")).await, []);
    assert_eq!(f.row(row.id).await, row);
    assert!(f.work().resume_lane(&lane("mail")).await.unwrap());
    assert_eq!(f.claim_one(&request_from("mail")).await.id, row.id);
}

pub async fn other_lanes_of_the_claim_go_on_beside_a_paused_one(f: &Fixture) {
    f.insert(on_lane("mail")).await;
    let open = f.insert(on_lane("print")).await;
    f.work()
        .pause_lane(
            &lane("mail"),
            &ShortText::new("bounces"),
            &ShortText::new("ops"),
        )
        .await
        .unwrap();
    let request = ClaimRequest {
        lanes: vec![lane("mail"), lane("print")],
        ..request_of(10)
    };
    assert_eq!(f.claim_one(&request).await.id, open.id);
}

pub async fn a_pause_takes_enqueues_and_leaves_claims_alone(f: &Fixture) {
    let held = f.held(on_lane("mail")).await;
    f.work()
        .pause_lane(
            &lane("mail"),
            &ShortText::new("bounces"),
            &ShortText::new("ops"),
        )
        .await
        .unwrap();
    f.insert(on_lane("mail")).await;
    assert_eq!(
        f.renew(hold(&held)).await,
        leasehold_core::store::work::Renewed::Kept
    );
    let _ = f.settle(hold(&held), complete()).await;
    assert_eq!(f.row(held.id).await.status, Status::Done);
}

pub async fn paused_lanes_are_listed_with_their_reasons(f: &Fixture) {
    assert_eq!(f.work().paused_lanes().await.unwrap(), []);
    let pause = async |name, reason: &str| {
        f.work()
            .pause_lane(&lane(name), &reason.into(), &ShortText::new("ops"))
            .await
            .unwrap();
    };
    let ((), moment) = f.timed(pause("mail", "bounces")).await;
    let paused = super::fixture::only(f.work().paused_lanes().await.unwrap());
    assert_eq!(
        (paused.lane, paused.reason, paused.by),
        (lane("mail"), "bounces".into(), "ops".into())
    );
    moment.assert_is(paused.since);
    pause("print", "no paper").await;
    pause("mail", "still bounces").await;
    let mut listed: Vec<_> = f
        .work()
        .paused_lanes()
        .await
        .unwrap()
        .into_iter()
        .map(|paused| (paused.lane, paused.reason))
        .collect();
    listed.sort();
    let expected = [
        (lane("mail"), "still bounces".into()),
        (lane("print"), "no paper".into()),
    ];
    assert_eq!(listed, expected);
}

pub async fn only_a_paused_lane_is_resumed(f: &Fixture) {
    assert!(!f.work().resume_lane(&Lane::default()).await.unwrap());
    f.work()
        .pause_lane(
            &Lane::default(),
            &ShortText::new("once"),
            &ShortText::new("ops"),
        )
        .await
        .unwrap();
    f.work()
        .pause_lane(
            &Lane::default(),
            &ShortText::new("twice"),
            &ShortText::new("ops"),
        )
        .await
        .unwrap();
    assert!(f.work().resume_lane(&Lane::default()).await.unwrap());
    assert!(!f.work().resume_lane(&Lane::default()).await.unwrap());
    assert_eq!(f.work().paused_lanes().await.unwrap(), []);
}

fn capped(cap: u32) -> ClaimRequest {
    ClaimRequest {
        tenant_cap: Some(cap),
        ..request_of(10)
    }
}

fn of_org(claimed: &[leasehold_core::store::work::Claimed], org: OrgId) -> usize {
    claimed.iter().filter(|c| c.org_id == org).count()
}

pub async fn a_tenant_cap_binds_within_one_claim_and_passes_over_to_others(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    f.work()
        .enqueue(OTHER, (11..=15).map(numbered).collect())
        .await
        .unwrap();
    let claimed = f.claim(&capped(2)).await;
    assert_eq!((of_org(&claimed, ORG), of_org(&claimed, OTHER)), (2, 2));
    let mut taken: Vec<_> = claimed.iter().map(|c| c.item.id).collect();
    taken.sort();
    assert_eq!(
        taken,
        [id(1), id(2), id(11), id(12)],
        "the first ones of each"
    );
}

pub async fn a_tenant_cap_counts_the_claims_of_others(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let first = f.claim_many(2).await;
    assert_eq!(f.claim(&capped(3)).await.len(), 1);
    assert_eq!(f.claim(&capped(3)).await, []);
    let theirs = f.insert_in(OTHER, item()).await;
    assert_eq!(f.claim_one(&capped(3)).await.id, theirs.id);
    let _ = f.settle(hold(&first[0]), complete()).await;
    assert_eq!(
        f.claim_one(&capped(3)).await.id,
        id(4),
        "a settled claim makes room"
    );
    // A claim without a cap is not bound by another's.
    assert_eq!(ids([&f.claim_one(&request()).await]), [id(5)]);
}

pub async fn a_tenant_cap_counts_each_lane_by_itself(f: &Fixture) {
    for name in ["a", "b"] {
        for _ in 0..3 {
            f.insert(on_lane(name)).await;
        }
    }
    let both = |cap| ClaimRequest {
        lanes: vec![lane("a"), lane("b")],
        ..capped(cap)
    };
    let claimed = f.claim(&both(2)).await;
    let on = |name| claimed.iter().filter(|c| c.item.lane == lane(name)).count();
    assert_eq!((on("a"), on("b")), (2, 2));
    assert_eq!(f.claim(&both(2)).await, []);
}

pub async fn a_tenant_cap_keeps_to_the_limit_and_the_order(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let request = ClaimRequest {
        limit: 2,
        ..capped(4)
    };
    let claimed: Vec<_> = f
        .claim(&request)
        .await
        .into_iter()
        .map(|c| c.item)
        .collect();
    assert_eq!(ids(&claimed), [id(1), id(2)]);
}

pub async fn a_capped_claim_is_answered_again_by_its_token(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let request = capped(2);
    let mut first = f.claim(&request).await;
    let mut again = f.claim(&request).await;
    first.sort_by_key(|c| c.item.id);
    again.sort_by_key(|c| c.item.id);
    assert_eq!(again, first);
    f.advance(LEASE).await;
    f.sweep().await;
    assert_eq!(
        f.claim(&capped(2)).await.len(),
        2,
        "recovered items make room"
    );
}

/// ORDER-3: the order is strict, and a lane is the way out.
pub async fn a_lower_priority_waits_while_a_higher_one_is_due_and_not_in_a_lane_of_its_own(
    f: &Fixture,
) {
    let low = NewItem {
        priority: 1,
        ..item()
    };
    let apart = NewItem {
        priority: 1,
        ..on_lane("apart")
    };
    let (low, apart) = (f.insert(low).await, f.insert(apart).await);
    for _ in 0..100 {
        let high = f.insert(item()).await;
        let claimed = f.claim_one(&request()).await;
        assert_eq!(
            claimed.id, high.id,
            "always one of the higher priority is due"
        );
        let _ = f.settle(hold(&claimed), complete()).await;
    }
    assert_eq!(f.claim_one(&request_from("apart")).await.id, apart.id);
    assert_eq!(f.claim_one(&request()).await.id, low.id);
}

/// ORDER-3: the figures of docs/fairness.md.
pub async fn a_tenants_one_item_behind_anothers_thousand_starts_first_under_a_cap(f: &Fixture) {
    let items = (1..=1_000).map(numbered).collect();
    f.work().enqueue(ORG, items).await.unwrap();
    let one = f.insert_in(OTHER, numbered(2_000)).await;
    let first = f.claim(&capped(9)).await;
    assert_eq!((of_org(&first, ORG), of_org(&first, OTHER)), (9, 1));
    for claimed in first {
        let _ = f
            .settle(
                super::samples::hold_in(claimed.org_id, &claimed.item),
                complete(),
            )
            .await;
    }
    assert_eq!(f.row_in(OTHER, one.id).await.status, Status::Done);
    let late = f.insert_in(OTHER, numbered(2_001)).await;
    let mut before = 0;
    loop {
        let claimed = f.claim(&request_of(10)).await;
        if of_org(&claimed, OTHER) == 1 {
            before += of_org(&claimed, ORG);
            break;
        }
        before += claimed.len();
    }
    assert_eq!(
        before, 991,
        "all of the other tenant's go first: {}",
        late.id
    );
}
