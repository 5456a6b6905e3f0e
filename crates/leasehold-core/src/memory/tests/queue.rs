use std::sync::Barrier;

use super::*;
use crate::item::WorkItem;
use crate::store::work::{Cancelled, Renewal, Renewed, Retried};

#[test]
fn of_two_threads_that_race_for_one_item_exactly_one_wins() {
    for round in 0..200 {
        let (_, store) = store();
        enqueue(&store, [item(1)]);
        let start = Barrier::new(2);
        let race = |token: u128| {
            start.wait();
            claim(&store, &request(token, 1)).len()
        };
        let won = thread::scope(|scope| {
            let other = scope.spawn(|| race(1));
            race(2) + other.join().unwrap()
        });
        assert_eq!(won, 1, "round {round}");
    }
}

#[test]
fn every_item_goes_to_one_of_many_threads() {
    let (_, store) = store();
    enqueue(&store, (1..=2_000).map(item));
    let take = |base: u128| -> Vec<ItemId> {
        let mut taken = Vec::new();
        for statement in 0.. {
            let claimed = claim(&store, &request(base + statement, 7));
            if claimed.is_empty() {
                break;
            }
            taken.extend(claimed.into_iter().map(|claimed| claimed.item.id));
        }
        taken
    };
    let mut taken: Vec<ItemId> = thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|n: u128| scope.spawn(move || take(n << 64)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    taken.sort();
    assert_eq!(
        taken,
        (1..=2_000)
            .map(|n| ItemId::new(Uuid::from_u128(n)))
            .collect::<Vec<_>>()
    );
}

/// A few thousand calls drawn from a seed, and everything they answered.
fn history(mut seed: u64) -> Vec<String> {
    // xorshift: enough to mix the calls, and no dependency.
    let mut draw = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let (clock, store) = store();
    let mut answers = Vec::new();
    for step in 1..=2_000_u128 {
        let answer = match draw(7) {
            0 | 1 => {
                let due = [Due::Now, Due::After(Duration::from_secs(draw(90)))];
                let new = NewItem {
                    due: due[usize::from(draw(2) == 0)],
                    priority: [0, -1][usize::from(draw(2) == 0)],
                    lane: lane(["default", "other"][usize::from(draw(3) == 0)]),
                    ..item(u128::from(draw(500)))
                };
                format!("{:?}", block_on(store.enqueue(ORG, vec![new])))
            }
            2 | 3 => {
                let lanes = vec![lane("other"), Lane::default()];
                let asked = ClaimRequest {
                    lanes,
                    ..request(step, 3)
                };
                format!("{:?}", claim(&store, &asked))
            }
            4 => {
                let held = u128::from(draw(500));
                let id = ItemId::new(Uuid::from_u128(held));
                let row = block_on(store.get(ORG, id)).unwrap();
                let by = row
                    .and_then(|row| row.claim_token)
                    .map_or(0, |t| t.as_uuid().as_u128());
                let transition = match draw(3) {
                    0 => Transition::Complete { result: None },
                    1 => Transition::Retry {
                        failure: boom(),
                        delay: LEASE,
                    },
                    _ => rules::hand_back("back"),
                };
                format!("{:?}", settle(&store, held, by, transition))
            }
            5 => {
                let stale = StaleRequest {
                    limit: 5,
                    spread: Duration::from_secs(10),
                };
                format!("{:?}", block_on(store.requeue_stale(ORG, &stale)))
            }
            _ => {
                clock.advance(Duration::from_secs(draw(20)));
                format!("{:?}", block_on(store.gauges()))
            }
        };
        answers.push(answer);
    }
    answers
}

#[test]
fn the_same_calls_give_the_same_answers() {
    for seed in [1, 42, 0xDEAD_BEEF] {
        assert_eq!(history(seed), history(seed), "seed {seed}");
    }
}

#[test]
fn claims_merge_lanes_and_kinds_by_priority_then_due_time_then_id() {
    let (clock, store) = store();
    let now = clock.now();
    let other = Kind::parse("OTHER").unwrap();
    let at = |seconds| Due::At(crate::time::earlier(now, Duration::from_secs(seconds)));
    enqueue(
        &store,
        [
            NewItem {
                priority: 1,
                due: at(99),
                ..item(1)
            },
            NewItem {
                priority: 0,
                due: at(1),
                lane: lane("other"),
                ..item(2)
            },
            NewItem {
                priority: 0,
                due: at(2),
                kind: other.clone(),
                ..item(3)
            },
            NewItem {
                priority: 0,
                due: at(1),
                ..item(4)
            },
            NewItem {
                priority: -5,
                due: Due::After(LEASE),
                ..item(5)
            },
            NewItem {
                priority: i16::MAX,
                due: at(0),
                ..item(6)
            },
            NewItem {
                priority: i16::MAX,
                due: Due::After(LEASE),
                ..item(7)
            },
            NewItem {
                priority: i16::MIN,
                due: at(0),
                ..item(8)
            },
        ],
    );
    let asked = ClaimRequest {
        lanes: vec![lane("other"), Lane::default(), lane("other")],
        kinds: vec![other, kind(), kind()],
        ..request(1, 100)
    };
    let claimed = claim(&store, &asked);
    let order: Vec<u128> = claimed
        .iter()
        .map(|claimed| claimed.item.id.as_uuid().as_u128())
        .collect();
    assert_eq!(order, [8, 3, 2, 4, 1, 6]);
    assert_eq!(
        claim(&store, &asked),
        claimed,
        "asked again, in the same order"
    );
}

#[test]
fn a_clock_at_either_end_of_the_calendar_breaks_nothing() {
    let (clock, store) = store();
    enqueue(&store, [item(1), item(2)]);
    for end in [Timestamp::MAX, Timestamp::MIN, Timestamp::MAX] {
        clock.set_calendar(end);
        let asked = ClaimRequest {
            lease: Duration::MAX,
            ..request(1, 10)
        };
        claim(&store, &asked);
        let failure = boom();
        let _ = settle(
            &store,
            1,
            1,
            Transition::Retry {
                failure,
                delay: Duration::MAX,
            },
        );
        let stale = StaleRequest {
            limit: u32::MAX,
            spread: Duration::MAX,
        };
        block_on(store.requeue_stale(ORG, &stale)).unwrap();
        block_on(store.gauges()).unwrap();
        block_on(store.purge(Duration::MAX, u32::MAX)).unwrap();
        block_on(store.maintenance_due(None, u32::MAX)).unwrap();
    }
}

#[test]
fn a_row_keeps_its_newest_errors() {
    let (_, store) = store();
    enqueue(
        &store,
        [NewItem {
            max_attempts: 100,
            ..item(1)
        }],
    );
    for attempt in 1..=u128::try_from(ERRORS_MAX).unwrap() + 5 {
        claim(&store, &request(attempt, 1));
        let retry = Transition::Retry {
            failure: boom(),
            delay: Duration::ZERO,
        };
        let _ = settle(&store, 1, attempt, retry);
    }
    let row = read(&store, 1);
    let attempts: Vec<u32> = row.errors.iter().map(|error| error.attempt).collect();
    assert_eq!(attempts, (6..=25).collect::<Vec<u32>>());
}

#[test]
fn the_indexes_follow_an_item_through_its_whole_life() {
    let (clock, store) = store();
    enqueue(&store, [item(1)]);
    let id = ItemId::new(Uuid::from_u128(1));
    let by = UserId::new(Uuid::from_u128(7));
    for round in 0..3_u128 {
        claim(&store, &request(round * 2 + 1, 1));
        clock.advance(LEASE);
        assert_eq!(block_on(store.gauges()).unwrap().expired, 1);
        assert_eq!(block_on(store.maintenance_due(None, 10)).unwrap(), [ORG]);
        let stale = StaleRequest {
            limit: 10,
            spread: Duration::ZERO,
        };
        assert_eq!(
            block_on(store.requeue_stale(ORG, &stale))
                .unwrap()
                .recovered,
            1
        );
        claim(&store, &request(round * 2 + 2, 1));
        let _ = settle(
            &store,
            1,
            round * 2 + 2,
            Transition::Bury { failure: boom() },
        );
        assert_eq!(block_on(store.gauges()).unwrap().dead, 1);
        assert_eq!(block_on(store.maintenance_due(None, 10)).unwrap(), [ORG]);
        assert_eq!(
            block_on(store.purge(Duration::ZERO, 10)).unwrap(),
            0,
            "its entry is owed"
        );
        let owed = block_on(store.unaudited(ORG, 10)).unwrap();
        block_on(store.mark_audited(ORG, &[(id, owed[0].claim_seq)])).unwrap();
        assert!(
            block_on(store.maintenance_due(None, 10))
                .unwrap()
                .is_empty()
        );
        assert!(matches!(
            block_on(store.retry(ORG, id, by)).unwrap(),
            Retried::Queued(_)
        ));
        assert_eq!(block_on(store.gauges()).unwrap().dead, 0);
    }
    assert!(matches!(
        block_on(store.cancel(ORG, id, by)).unwrap(),
        Cancelled::Ended(_)
    ));
    assert_eq!(block_on(store.purge(Duration::ZERO, 10)).unwrap(), 1);
    assert!(block_on(store.gauges()).unwrap().lanes.is_empty());
    enqueue(&store, [item(1)]);
    assert_eq!(
        read(&store, 1).status,
        Status::Queued,
        "its id and its key are free again"
    );
}

#[test]
fn a_renewal_moves_the_lease_and_nothing_but_the_lease() {
    let (clock, store) = store();
    enqueue(&store, [item(1)]);
    let before = claim(&store, &request(1, 1)).remove(0).item;
    clock.advance(LEASE / 2);
    let hold = Hold {
        org_id: ORG,
        item_id: before.id,
        token: token(1),
    };
    let renewal = Renewal {
        hold,
        lease: LEASE,
        progress: None,
    };
    assert_eq!(block_on(store.renew(&[renewal])).unwrap(), [Renewed::Kept]);
    let now = clock.now();
    let expected = WorkItem {
        lease_expires_at: Some(crate::time::later(now, LEASE)),
        updated_at: now,
        ..before
    };
    assert_eq!(read(&store, 1), expected);
}

#[test]
fn a_deep_queue_costs_a_claim_no_more() {
    let (_, store) = store();
    let later = |n| NewItem {
        due: Due::After(LEASE),
        ..item(n)
    };
    enqueue(&store, (1..=30_000).map(later));
    enqueue(
        &store,
        (30_001..=60_000).map(|n| NewItem {
            priority: 1,
            ..item(n)
        }),
    );
    // Ten thousand claims over sixty thousand rows: a scan would take minutes.
    for n in 1..=10_000 {
        assert_eq!(claim(&store, &request(n, 1)).len(), 1);
    }
    assert_eq!(block_on(store.gauges()).unwrap().lanes[0].claimed, 10_000);
}

fn read(store: &MemoryStore, number: u128) -> WorkItem {
    block_on(store.get(ORG, ItemId::new(Uuid::from_u128(number))))
        .unwrap()
        .unwrap()
}
