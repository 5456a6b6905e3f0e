//! Claiming: who gets what, in which order, and what the row says afterwards.

use std::time::Duration;

use leasehold_core::store::work::ClaimRequest;
use leasehold_core::time::{earlier, later};
use leasehold_core::{Due, Lane, NewItem, Progress, Status, UserId, WorkItem};

use super::fixture::{Fixture, only};
use super::samples::{
    CREATED, HOUR, LEASE, ORG, OTHER, bury, complete, hold, id, ids, item, kind, lane, numbered,
    on_lane, release, renewal, request, request_from, request_of, worker,
};

pub async fn a_claim_stamps_worker_token_lease_and_attempt(f: &Fixture) {
    let before = f.insert(item()).await;
    f.advance(Duration::from_secs(5)).await;
    let request = ClaimRequest {
        worker: worker("mailer@1.4.0/7"),
        ..request()
    };
    let (claimed, moment) = f.timed(f.claim(&request)).await;
    let claimed = only(claimed);
    assert_eq!(claimed.org_id, ORG);
    let after = claimed.item;
    let lease_expires_at = after.lease_expires_at.expect("a lease");
    moment.assert_is(after.updated_at);
    moment.assert_is_before(LEASE, lease_expires_at);
    let expected = WorkItem {
        status: Status::Claimed,
        claimed_by: Some(request.worker),
        claim_token: Some(request.token),
        lease_expires_at: Some(lease_expires_at),
        attempts: 1,
        claim_seq: 1,
        updated_by: UserId::NIL,
        updated_at: after.updated_at,
        ..before
    };
    assert_eq!(after, expected);
    assert_eq!(
        f.row(after.id).await,
        after,
        "the answer is not what was stored"
    );
}

pub async fn a_claimed_item_is_not_claimed_again(f: &Fixture) {
    let held = f.held(item()).await;
    assert_eq!(f.claim(&request_of(10)).await, []);
    f.advance(2 * LEASE).await;
    assert_eq!(
        f.claim(&request_of(10)).await,
        [],
        "the sweep had not moved it"
    );
    assert_eq!(f.row(held.id).await, held);
}

pub async fn finished_items_are_not_claimed(f: &Fixture) {
    for transition in [complete(), bury()] {
        let held = f.held(item()).await;
        let _ = f.settle(hold(&held), transition).await;
    }
    f.advance(HOUR).await;
    assert_eq!(f.claim(&request_of(10)).await, []);
}

pub async fn a_claim_without_lanes_takes_nothing(f: &Fixture) {
    f.insert(item()).await;
    assert_eq!(
        f.claim(&ClaimRequest {
            lanes: Vec::new(),
            ..request()
        })
        .await,
        []
    );
}

pub async fn a_claim_without_kinds_takes_nothing(f: &Fixture) {
    f.insert(item()).await;
    assert_eq!(
        f.claim(&ClaimRequest {
            kinds: Vec::new(),
            ..request()
        })
        .await,
        []
    );
}

pub async fn other_lanes_are_left_alone(f: &Fixture) {
    let row = f.insert(on_lane("mail")).await;
    for name in ["default", "mai", "mail2", "MAIL"] {
        assert_eq!(f.claim(&request_from(name)).await, [], "lane {name}");
    }
    assert_eq!(f.row(row.id).await, row);
    assert_eq!(f.claim_one(&request_from("mail")).await.id, row.id);
}

pub async fn other_kinds_are_left_alone(f: &Fixture) {
    let row = f.insert(item()).await;
    let others = ClaimRequest {
        kinds: vec![kind("NOT"), kind("NOTES"), kind("N_TE")],
        ..request()
    };
    assert_eq!(f.claim(&others).await, []);
    assert_eq!(f.row(row.id).await, row);
    let with_it = ClaimRequest {
        kinds: vec![kind("NOTES"), kind("NOTE")],
        ..request()
    };
    assert_eq!(f.claim_one(&with_it).await.id, row.id);
}

pub async fn one_claim_serves_several_lanes_kinds_and_orgs(f: &Fixture) {
    f.insert(NewItem {
        lane: lane("a"),
        kind: kind("X"),
        ..numbered(1)
    })
    .await;
    f.insert_in(
        OTHER,
        NewItem {
            lane: lane("b"),
            kind: kind("Y"),
            ..numbered(2)
        },
    )
    .await;
    f.insert(NewItem {
        lane: lane("c"),
        kind: kind("X"),
        ..numbered(3)
    })
    .await;
    f.insert(NewItem {
        lane: lane("a"),
        kind: kind("Z"),
        ..numbered(4)
    })
    .await;
    let request = ClaimRequest {
        lanes: vec![lane("a"), lane("b")],
        kinds: vec![kind("X"), kind("Y")],
        ..request_of(10)
    };
    let mut claimed: Vec<_> = f
        .claim(&request)
        .await
        .into_iter()
        .map(|c| (c.org_id, c.item.id))
        .collect();
    claimed.sort_by_key(|(_, item)| *item);
    assert_eq!(claimed, [(ORG, id(1)), (OTHER, id(2))]);
}

pub async fn a_lane_named_twice_is_claimed_from_once(f: &Fixture) {
    f.insert(item()).await;
    let request = ClaimRequest {
        lanes: vec![Lane::default(), Lane::default()],
        kinds: vec![kind("NOTE"), kind("NOTE")],
        ..request_of(10)
    };
    assert_eq!(f.claim(&request).await.len(), 1);
}

pub async fn an_item_is_not_claimed_before_it_is_due(f: &Fixture) {
    let row = f
        .insert(NewItem {
            due: Due::After(HOUR),
            ..item()
        })
        .await;
    assert_eq!(f.claim(&request()).await, []);
    f.advance(HOUR / 2).await;
    assert_eq!(f.claim(&request()).await, []);
    assert_eq!(f.row(row.id).await, row);
    f.advance(HOUR / 2).await;
    assert_eq!(
        f.claim_one(&request()).await.id,
        row.id,
        "it is due from that very moment"
    );
}

pub async fn items_go_by_priority_then_due_time_then_id(f: &Fixture) {
    let due = |hours: u32| Due::At(later(CREATED, hours * HOUR));
    // Ids are compared as unsigned bytes: the last ones would come first if a sign were seen.
    let high = 0xF000_0000_0000_7000_8000_0000_0000_0000;
    let order = [
        NewItem {
            priority: -1,
            due: due(9),
            ..numbered(80)
        },
        NewItem {
            due: due(1),
            ..numbered(70)
        },
        NewItem {
            due: due(2),
            ..numbered(1)
        },
        NewItem {
            due: due(2),
            ..numbered(2)
        },
        NewItem {
            due: due(2),
            ..numbered(0x0000_0000_0000_7000_8000_0000_0000_0000)
        },
        NewItem {
            due: due(2),
            ..numbered(0x0000_0000_0000_7000_F000_0000_0000_0000)
        },
        NewItem {
            due: due(2),
            ..numbered(0x7FFF_0000_0000_7000_8000_0000_0000_0000)
        },
        NewItem {
            due: due(2),
            ..numbered(high)
        },
        NewItem {
            due: due(3),
            ..numbered(3)
        },
        NewItem {
            priority: 1,
            due: due(0),
            ..numbered(4)
        },
    ];
    let expected: Vec<_> = order.iter().map(|item| item.id).collect();
    let mut shuffled = order.to_vec();
    shuffled.rotate_left(3);
    shuffled.swap(0, 5);
    shuffled.reverse();
    f.work().enqueue(ORG, shuffled).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(f.claim_one(&request()).await.id);
    }
    // A claim of several answers in the same order.
    taken.extend(ids(&f.claim_many(4).await));
    taken.extend(ids(&f.claim_many(3).await));
    assert_eq!(taken, expected);
}

pub async fn a_claim_takes_no_more_than_its_limit(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=10).map(numbered).collect())
        .await
        .unwrap();
    assert_eq!(f.claim(&request_of(0)).await, []);
    assert_eq!(ids(&f.claim_many(3).await), [id(1), id(2), id(3)]);
    assert_eq!(f.claim(&request_of(100)).await.len(), 7);
}

pub async fn every_row_that_is_marked_is_returned(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=20).map(numbered).collect())
        .await
        .unwrap();
    for _ in 0..4 {
        let request = request_of(3);
        let returned: Vec<_> = f
            .claim(&request)
            .await
            .into_iter()
            .map(|c| c.item)
            .collect();
        let mut marked = Vec::new();
        for number in 1..=20 {
            let row = f.row(id(number)).await;
            if row.claim_token == Some(request.token) {
                marked.push(row);
            }
        }
        assert_eq!(marked, returned);
    }
}

pub async fn a_claim_clears_the_progress_of_the_run_before(f: &Fixture) {
    let first = f.held(item()).await;
    let mut renewal = renewal(hold(&first));
    renewal.progress = Some(Progress::new(80, "nearly there"));
    f.renew_as(renewal).await;
    let _ = f.settle(hold(&first), release(Duration::ZERO)).await;
    let second = f.claim_again(&first).await;
    assert_eq!(second.progress, None);
    assert_eq!(f.row(first.id).await.progress, None);
}

pub async fn an_item_due_long_ago_is_claimed(f: &Fixture) {
    let row = f
        .insert(NewItem {
            due: Due::At(earlier(CREATED, 1_000 * HOUR)),
            ..item()
        })
        .await;
    assert_eq!(f.claim_one(&request()).await.id, row.id);
}

pub async fn lanes_kinds_and_orgs_are_no_part_of_the_order(f: &Fixture) {
    let due = |hours: u32| Due::At(later(CREATED, hours * HOUR));
    let at = |number, lane_name, kind_name, priority, hours| NewItem {
        lane: lane(lane_name),
        kind: kind(kind_name),
        priority,
        due: due(hours),
        ..numbered(number)
    };
    f.insert(at(1, "a", "X", 0, 3)).await;
    f.insert_in(OTHER, at(2, "b", "X", 0, 1)).await;
    f.insert(at(3, "b", "Y", 0, 2)).await;
    f.insert(at(4, "b", "Z", -1, 9)).await;
    f.insert_in(OTHER, at(5, "a", "Z", 1, 0)).await;
    let request = |limit| ClaimRequest {
        lanes: vec![lane("a"), lane("b")],
        kinds: vec![kind("X"), kind("Y"), kind("Z")],
        ..request_of(limit)
    };
    assert_eq!(f.claim_one(&request(1)).await.id, id(4));
    let rest: Vec<_> = f
        .claim(&request(9))
        .await
        .into_iter()
        .map(|c| c.item.id)
        .collect();
    assert_eq!(rest, [id(2), id(3), id(1), id(5)]);
}

pub async fn a_delayed_item_hides_nothing_behind_it(f: &Fixture) {
    f.insert(NewItem {
        priority: -2,
        due: Due::After(HOUR),
        ..numbered(1)
    })
    .await;
    f.insert(NewItem {
        priority: -1,
        due: Due::After(2 * HOUR),
        ..numbered(2)
    })
    .await;
    f.insert(NewItem {
        priority: -1,
        ..numbered(3)
    })
    .await;
    f.insert(NewItem {
        priority: 5,
        ..numbered(4)
    })
    .await;
    assert_eq!(ids(&f.claim_many(2).await), [id(3), id(4)]);
    f.advance(2 * HOUR).await;
    assert_eq!(ids(&f.claim_many(2).await), [id(1), id(2)]);
}
