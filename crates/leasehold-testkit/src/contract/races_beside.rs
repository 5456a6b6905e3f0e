//! Races in the other namespaces: markers, entries, outbox rows, ticks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::store::events::Stream;
use leasehold_core::store::markers::Begun;
use leasehold_core::store::outbox::OutboxRow;
use leasehold_core::store::schedules::Advanced;
use leasehold_core::store::{StoreResult, Stores};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::events::entry;
use super::fixture::{Fixture, insist};
use super::markers::{begin, scope};
use super::outbox::{pending, row};
use super::samples::{LEASE, ORG, request_of};
use super::schedules::{advance_to, schedule};

/// Runs so many actors from a barrier, over two handles in turn, and gathers their answers.
async fn gather<T, F>(f: &Fixture, actors: usize, act: impl Fn(usize, Stores) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let handles = [f.stores.clone(), f.second_handle().await];
    let barrier = Arc::new(Barrier::new(actors));
    let mut running = JoinSet::new();
    for at in 0..actors {
        let acting = act(at, handles[at % 2].clone());
        let barrier = barrier.clone();
        running.spawn(async move {
            barrier.wait().await;
            acting.await
        });
    }
    running.join_all().await
}

pub async fn of_ten_attempts_at_once_one_enters(f: &Fixture) {
    for round in 0..(f.repeats / 100).min(50) {
        let scope = scope(&format!("request {round}"));
        let attempt = {
            let scope = scope.clone();
            move |at: usize, stores: Stores| {
                let (scope, begin) = (scope.clone(), begin(1 + at as u128));
                async move { insist(|| stores.markers.begin(&scope, &begin)).await }
            }
        };
        let first = gather(f, 10, attempt).await;
        let winner = first
            .iter()
            .filter(|begun| matches!(begun, Begun::Entered { .. }))
            .count();
        assert_eq!(winner, 1);
        let target = first
            .into_iter()
            .find(|begun| matches!(begun, Begun::Entered { .. }));

        f.advance(LEASE + Duration::from_secs(1)).await;
        let again = move |at: usize, stores: Stores| {
            let (scope, begin) = (scope.clone(), begin(100 + at as u128));
            async move { insist(|| stores.markers.begin(&scope, &begin)).await }
        };
        let second = gather(f, 10, again).await;
        let entered: Vec<_> = second
            .into_iter()
            .filter(|b| *b != Begun::InProgress)
            .collect();
        assert_eq!(
            entered,
            [target.expect("a winner")],
            "one takes over, for the same target"
        );
    }
}

pub async fn entries_appended_at_once_are_numbered_without_gaps(f: &Fixture) {
    let count = (f.repeats / 20).min(200);
    let append = |at: usize, stores: Stores| async move {
        // Every entry is appended by two.
        let entry = entry(1 + (at / 2) as u128);
        (
            entry.id,
            insist(|| stores.events.append(ORG, Stream::Audit, &entry)).await,
        )
    };
    let answers: BTreeSet<_> = gather(f, count * 2, append).await.into_iter().collect();
    assert_eq!(
        answers.len(),
        count,
        "both writers of an entry learn of the same number"
    );
    let mut numbers: Vec<_> = answers.iter().map(|(_, seq)| *seq).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=count as u64).collect::<Vec<_>>());
    let read = f
        .stores
        .events
        .read_after(ORG, Stream::Audit, 0, 1_000)
        .await
        .unwrap();
    assert!(read.iter().all(|e| answers.contains(&(e.entry.id, e.seq))));
    assert_eq!(read.len(), count);
}

pub async fn relays_at_once_take_each_row_once(f: &Fixture) {
    let rows: Vec<_> = (1..=100).map(row).collect();
    f.stores.outbox.append_outbox(ORG, &rows).await.unwrap();
    let relay = |_, stores: Stores| async move {
        let mut taken: Vec<OutboxRow> = Vec::new();
        loop {
            let part = insist(|| stores.outbox.claim_pending(&PART)).await;
            if part.is_empty() {
                return taken;
            }
            taken.extend(part);
            assert!(taken.len() <= 100, "rows are handed out over and over");
        }
    };
    let taken: Vec<_> = gather(f, 8, relay).await.into_iter().flatten().collect();
    let ids: BTreeSet<_> = taken.iter().map(|row| row.row.id).collect();
    assert_eq!((taken.len(), ids.len()), (100, 100));
    assert!(taken.iter().all(|row| row.attempts == 1));
}

const PART: leasehold_core::store::outbox::PendingRequest = pending(3);

pub async fn of_eight_that_make_one_tick_one_does(f: &Fixture) {
    let of = schedule(1);
    let id = of.id;
    f.stores.schedules.put_schedule(ORG, &of).await.unwrap();
    let ticks = u32::try_from((f.repeats / 50).min(300)).unwrap();
    for number in 1..=ticks {
        let read = f.stores.schedules.schedule(ORG, id).await.unwrap().unwrap();
        let advance = move |_, stores: Stores| async move {
            let schedules = &stores.schedules;
            // Each with an item of its own, under the key that all of them give it.
            let tick = advance_to(id, read.revision, number);
            let call =
                || -> std::pin::Pin<Box<dyn Future<Output = StoreResult<Advanced>> + Send + '_>> {
                    schedules.advance(ORG, &tick)
                };
            insist(call).await
        };
        let won = gather(f, 8, advance)
            .await
            .into_iter()
            .filter(|answer| matches!(answer, Advanced::Made(_)))
            .count();
        assert_eq!(won, 1, "tick {number}");
    }
    assert_eq!(f.claim(&request_of(1_000)).await.len(), ticks as usize);
}
