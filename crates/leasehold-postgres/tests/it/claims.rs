//! Claims beside other transactions, claims that take several rounds, and batches that name an item twice.

use std::time::Duration;

use leasehold_core::store::work::{ClaimRequest, Ended, Renewal, Renewed, Settled};
use leasehold_core::time::later;
use leasehold_core::{Due, ItemId, NewItem, WorkStore as _, WorkerId};
use leasehold_testkit::contract::samples::{
    DAY, LEASE, ORG, OTHER, complete, hold, id, kind, lane, numbered, release, renewal, request_of,
    settlement,
};
use tokio_postgres::Client;

use crate::harness::{OneSchema, PATIENCE, lone};

async fn enqueue(on: &OneSchema, numbers: std::ops::RangeInclusive<u128>) {
    let batch = numbers.map(numbered).collect();
    on.store.enqueue(ORG, batch).await.unwrap();
}

/// What the request takes, without waiting for anybody.
async fn claim(on: &OneSchema, request: &ClaimRequest) -> Vec<ItemId> {
    let claimed = tokio::time::timeout(PATIENCE, on.store.claim(request))
        .await
        .expect("it waits for another transaction");
    claimed.unwrap().iter().map(|c| c.item.id).collect()
}

/// Begins a transaction that holds the first waiting items, as a claim does that is still under way.
async fn hold_first(on: &OneSchema, count: i64) -> Client {
    let holder = lone(on.address()).await;
    holder.batch_execute("begin").await.unwrap();
    let text = format!(
        "select from {}.ready order by available_at, id limit $1 for update",
        on.schema
    );
    assert_eq!(
        holder.execute(&text, &[&count]).await.unwrap(),
        u64::try_from(count).unwrap()
    );
    holder
}

#[tokio::test]
async fn a_claim_passes_over_what_others_hold_however_much_it_is() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=300).await;
    let _holder = hold_first(&on, 298).await;
    assert_eq!(claim(&on, &request_of(1)).await, [id(299)]);
    assert_eq!(claim(&on, &request_of(1)).await, [id(300)]);
    assert_eq!(
        claim(&on, &request_of(1)).await,
        [],
        "others hold all the rest"
    );
}

#[tokio::test]
async fn a_claim_fills_up_from_behind_what_others_hold() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=100).await;
    let _holder = hold_first(&on, 40).await;
    let expected: Vec<_> = (41..=60).map(id).collect();
    assert_eq!(claim(&on, &request_of(20)).await, expected);
}

/// Otherwise a second claim would find nothing although there is something, and wait for its next look.
#[tokio::test]
async fn a_claim_locks_nothing_that_it_does_not_take() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    for (number, kind_name) in (1..=6).zip(["A", "B", "C"].into_iter().cycle()) {
        let item = NewItem {
            kind: kind(kind_name),
            ..numbered(number)
        };
        on.store.enqueue(ORG, vec![item]).await.unwrap();
    }
    let request = |limit| ClaimRequest {
        kinds: vec![kind("A"), kind("B"), kind("C")],
        ..request_of(limit)
    };
    // Somebody seems to be claiming by the same token: the claim has chosen, and waits at its first write.
    // Another worker's: one worker's own claims go one after the other.
    let first = ClaimRequest {
        worker: WorkerId::parse("another").unwrap(),
        ..request(2)
    };
    let barrier = lone(on.address()).await;
    let text = format!(
        "begin;
         insert into {}.tokens (token, claimed_at) values ('{}', now())",
        on.schema,
        first.token.as_uuid(),
    );
    barrier.batch_execute(&text).await.unwrap();
    let store = on.store.clone();
    let first = tokio::spawn(async move { store.claim(&first).await });
    let waiting = "select from pg_stat_activity
         where wait_event_type = 'Lock' and strpos(query, $1) > 0";
    while on.outsider.execute(waiting, &[&on.schema]).await.unwrap() == 0 {}
    let second = claim(&on, &request(9)).await;
    assert_eq!(second, [id(3), id(4), id(5), id(6)]);
    barrier.batch_execute("rollback").await.unwrap();
    let first = first.await.unwrap().unwrap();
    let first: Vec<_> = first.iter().map(|c| c.item.id).collect();
    assert_eq!(first, [id(1), id(2)]);
}

#[tokio::test]
async fn a_claim_goes_through_many_priorities_in_rounds() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    // Every other priority has an item that is due, and the others one for tomorrow.
    let items = (0..400_i16).map(|priority| NewItem {
        priority: priority - 200,
        due: if priority % 2 == 0 {
            Due::Now
        } else {
            Due::After(DAY)
        },
        ..numbered(1_000 + u128::try_from(priority).unwrap())
    });
    on.store.enqueue(ORG, items.collect()).await.unwrap();
    let expected: Vec<_> = (0..200).map(|nth| id(1_000 + 2 * nth)).collect();
    assert_eq!(claim(&on, &request_of(250)).await, expected);
    // Each round is a transaction of its own: 400 priorities, 64 in each.
    let text = format!(
        "select count(distinct xmin::text) from {}.claims",
        on.schema
    );
    let rounds: i64 = on.outsider.query_one(&text, &[]).await.unwrap().get(0);
    assert_eq!(rounds, 7);
}

#[tokio::test]
async fn a_claim_larger_than_a_round_is_filled_in_order() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=5_000).await;
    let expected: Vec<_> = (1..=4_999).map(id).collect();
    let request = request_of(4_999);
    assert_eq!(claim(&on, &request).await, expected);
    assert_eq!(claim(&on, &request).await, expected, "asked again");
}

#[tokio::test]
async fn a_capped_claim_reads_past_a_tenant_that_has_its_fill() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=100).await;
    let rest = (101..=103).map(numbered).collect();
    on.store.enqueue(OTHER, rest).await.unwrap();
    let request = ClaimRequest {
        tenant_cap: Some(2),
        ..request_of(3)
    };
    assert_eq!(claim(&on, &request).await, [id(1), id(2), id(101)]);
    let request = ClaimRequest {
        tenant_cap: Some(2),
        ..request_of(3)
    };
    assert_eq!(claim(&on, &request).await, [id(102)]);
}

#[tokio::test]
async fn a_capped_claim_does_not_wait_for_what_others_hold() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=100).await;
    let _holder = hold_first(&on, 3).await;
    let capped = |limit| ClaimRequest {
        tenant_cap: Some(2),
        ..request_of(limit)
    };
    assert_eq!(claim(&on, &capped(9)).await, [id(4), id(5)]);
    assert_eq!(claim(&on, &capped(9)).await, []);
}

#[tokio::test]
async fn priorities_without_anything_due_are_passed_over() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let now = on.store.now().await.unwrap();
    let mut batch: Vec<_> = (1..=200_i16)
        .map(|priority| NewItem {
            priority,
            due: leasehold_core::Due::At(later(now, LEASE)),
            lane: lane("slow"),
            ..numbered(priority.unsigned_abs().into())
        })
        .collect();
    batch.push(NewItem {
        priority: i16::MAX,
        lane: lane("slow"),
        ..numbered(1_000)
    });
    batch.push(NewItem {
        priority: i16::MIN,
        lane: lane("slow"),
        ..numbered(1_001)
    });
    on.store.enqueue(ORG, batch).await.unwrap();
    let request = ClaimRequest {
        lanes: vec![lane("slow")],
        ..request_of(10)
    };
    assert_eq!(claim(&on, &request).await, [id(1_001), id(1_000)]);
}

#[tokio::test]
async fn of_two_settles_of_one_item_in_a_batch_the_first_counts() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=2).await;
    let held = on.store.claim(&request_of(2)).await.unwrap();
    let [one, two] = [0, 1].map(|at| hold(&held[at].item));
    let batch = [
        settlement(two, release(Duration::ZERO)),
        settlement(one, complete()),
        settlement(two, complete()),
        settlement(two, complete()),
    ];
    assert_eq!(
        on.store.settle(&batch).await.unwrap(),
        [
            Settled::Settled(Ended::Queued),
            Settled::Settled(Ended::Done),
            Settled::AlreadySettled,
            Settled::AlreadySettled,
        ]
    );
}

#[tokio::test]
async fn of_two_renewals_of_one_item_in_a_batch_the_last_counts() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    enqueue(&on, 1..=1).await;
    let held = on.store.claim(&request_of(1)).await.unwrap();
    let of = hold(&held[0].item);
    let lasting = |lease| Renewal {
        lease,
        ..renewal(of)
    };
    let batch = [lasting(9 * LEASE), lasting(LEASE / 2)];
    assert_eq!(
        on.store.renew(&batch).await.unwrap(),
        [Renewed::Kept, Renewed::Kept]
    );
    let row = on.store.get(ORG, of.item_id).await.unwrap().unwrap();
    let end = later(row.updated_at, LEASE / 2);
    assert_eq!(row.lease_expires_at, Some(end));
}
