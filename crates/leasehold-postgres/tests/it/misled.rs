//! PG-4: a claim takes what it asked for and no more, whatever the planner makes of it.

use std::sync::Arc;

use leasehold_core::store::work::{ClaimRequest, Ended, Settled};
use leasehold_core::{NewItem, WorkStore as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::contract::samples::{
    ORG, complete, hold, lane, numbered, request_of, settlement,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::faults::with_parameter;
use crate::harness::OneSchema;

const WAITING: u128 = 10_000;
const CLAIMERS: usize = 16;

/// Statistics from when there were three rows, and every join a nested loop.
async fn misled() -> Option<(OneSchema, Arc<PostgresStore>)> {
    let on = OneSchema::new().await?;
    on.store
        .enqueue(ORG, (1..=3).map(numbered).collect())
        .await
        .unwrap();
    on.analyze().await;
    for table in ["items", "ready", "claims"] {
        let text = format!(
            "alter table {}.{table} set (autovacuum_enabled = off)",
            on.schema
        );
        on.outsider.batch_execute(&text).await.unwrap();
    }
    for first in (4..=WAITING).step_by(1_000) {
        let last = WAITING.min(first + 999);
        let batch = (first..=last).map(|number| NewItem {
            lane: lane(if number % 2 == 0 { "even" } else { "default" }),
            ..numbered(number)
        });
        on.store.enqueue(ORG, batch.collect()).await.unwrap();
    }
    let address = with_parameter(
        on.address(),
        "options",
        "-c enable_hashjoin=off -c enable_mergejoin=off",
    );
    let options = on.options().with_connections(CLAIMERS);
    let store = leasehold_postgres::connect(&address, options)
        .await
        .unwrap();
    Some((on, store))
}

fn claimer_request(claimer: usize, tenant_cap: Option<u32>) -> ClaimRequest {
    ClaimRequest {
        lanes: vec![lane("default"), lane("even")],
        tenant_cap,
        ..request_of(if claimer.is_multiple_of(2) { 1 } else { 7 })
    }
}

#[tokio::test]
async fn a_claim_takes_what_it_answers_and_never_more_than_it_asked_for() {
    const EACH: usize = 60;
    let Some((on, store)) = misled().await else {
        return;
    };
    let mut claimers = JoinSet::new();
    for claimer in 0..CLAIMERS {
        let store = store.clone();
        claimers.spawn(async move {
            let mut told = Vec::new();
            for _ in 0..EACH {
                let request = claimer_request(claimer, None);
                let claimed = store.claim(&request).await.unwrap();
                assert!(claimed.len() <= request.limit as usize);
                told.extend(claimed.into_iter().map(|claimed| {
                    assert_eq!(claimed.item.claim_token, Some(request.token));
                    (claimed.item.id.as_uuid(), request.token.as_uuid())
                }));
            }
            told
        });
    }
    let mut told: Vec<_> = claimers.join_all().await.into_iter().flatten().collect();
    assert_eq!(
        told.len(),
        EACH * CLAIMERS / 2 * 8,
        "there was enough for all"
    );
    let text = format!("select id, token from {}.claims", on.schema);
    let rows = on.outsider.query(&text, &[]).await.unwrap();
    let mut marked: Vec<(Uuid, Uuid)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    told.sort_unstable();
    marked.sort_unstable();
    assert!(
        told == marked,
        "{} told, {} marked",
        told.len(),
        marked.len()
    );
    let text = format!("select from {}.ready", on.schema);
    let waiting = on.outsider.execute(&text, &[]).await.unwrap();
    assert_eq!(u128::from(waiting) + told.len() as u128, WAITING);
}

#[tokio::test]
async fn never_more_of_a_tenant_is_held_than_its_cap() {
    const EACH: usize = 20;
    const CAP: u32 = 3;
    let Some((on, store)) = misled().await else {
        return;
    };
    let mut claimers = JoinSet::new();
    for claimer in 0..CLAIMERS {
        let store = store.clone();
        claimers.spawn(async move {
            let mut claimed_by_it = 0;
            for _ in 0..EACH {
                let request = claimer_request(claimer, Some(CAP));
                let claimed = store.claim(&request).await.unwrap();
                assert!(claimed.len() <= request.limit as usize);
                claimed_by_it += claimed.len();
                let done: Vec<_> = claimed
                    .iter()
                    .map(|claimed| settlement(hold(&claimed.item), complete()))
                    .collect();
                let settled = store.settle(&done).await.unwrap();
                assert!(
                    settled
                        .iter()
                        .all(|answer| *answer == Settled::Settled(Ended::Done))
                );
            }
            claimed_by_it
        });
    }
    let text = format!(
        "select coalesce(max(held), 0) from (
             select count(*) as held from {}.claims group by lane, org_id
         ) as crowd",
        on.schema
    );
    let (mut claimed, mut held_max) = (0, 0);
    loop {
        tokio::select! {
            joined = claimers.join_next() => match joined {
                Some(joined) => claimed += joined.unwrap(),
                None => break,
            },
            row = on.outsider.query_one(&text, &[]) => {
                held_max = held_max.max(row.unwrap().get::<_, i64>(0));
            }
        }
    }
    assert!(claimed > 0);
    assert!(
        (1..=i64::from(CAP)).contains(&held_max),
        "{held_max} were held"
    );
}
