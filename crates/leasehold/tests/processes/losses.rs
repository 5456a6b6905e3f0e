//! RECOVER-1: what becomes of an item whose worker is killed in the middle of every attempt, whatever
//! runs the item.

use std::time::Duration;

use jiff::SignedDuration;
use leasehold::{ItemId, Status};
use leasehold_testkit::probe::Journal;

use crate::yard::{Process, Yard, millis, now, pass, within};

const LIMIT: Duration = Duration::from_secs(30);

/// Three attempts are allowed, and the worker is killed in the middle of attempts 1, 2 and 3. The item
/// is ready again twice, its count up by one each time, then a dead letter: one audit entry. It is
/// never shown as held for longer than `held_at_most` after a kill, and never dead early.
///
/// `start` starts a worker, `begun` answers how often a run was begun.
pub(crate) async fn killed_in_every_attempt(
    yard: &Yard,
    id: ItemId,
    held_at_most: Duration,
    start: impl Fn() -> Process,
    begun: impl Fn() -> usize,
) {
    let timeline = Journal::new();
    let sampler = sample(yard, id, &timeline);
    for attempt in 1..=3 {
        let process = start();
        let what = format!("attempt {attempt} runs");
        within(LIMIT, &what, async || {
            (begun() == attempt as usize).then_some(())
        })
        .await;
        let held = yard.item(id).await;
        assert_eq!((held.status, held.attempts), (Status::Claimed, attempt));
        process.kill();
        let killed = now();
        let after = if attempt < 3 {
            Status::Queued
        } else {
            Status::Failed
        };
        let item = yard.until_status(id, after, LIMIT).await;
        let took = now().duration_since(killed);
        let most = SignedDuration::try_from(held_at_most).unwrap();
        assert!(took < most, "{took:?}");
        assert_eq!((item.attempts, item.worker_losses), (attempt, attempt));
        let error = item.last_error.unwrap();
        assert!(error.as_str().starts_with("lease_expired: "), "{error}");
    }
    let audited = yard.audit_kinds(&[id]).await;
    let item = yard.item(id).await;
    sampler.abort();
    assert_eq!(item.failure_code.unwrap().as_str(), "lease_expired");
    assert_eq!(item.errors.len(), 3);
    assert_eq!(audited, ["work.item.dead_letter"]);
    assert_eq!(begun(), 3);
    let life = [
        (Status::Queued, 0),
        (Status::Claimed, 1),
        (Status::Queued, 1),
        (Status::Claimed, 2),
        (Status::Queued, 2),
        (Status::Claimed, 3),
        (Status::Failed, 3),
    ];
    // A sample may miss a state that was over soon; it never sees another one, or another order.
    let seen = timeline.entries();
    let places: Vec<usize> = seen
        .iter()
        .map(|state| life.iter().position(|of_life| of_life == state).unwrap())
        .collect();
    assert!(places.is_sorted(), "{seen:?}");
    assert!(places.len() > life.len());
}

/// The state every 50 ms, as another process sees it.
fn sample(
    yard: &Yard,
    id: ItemId,
    timeline: &Journal<(Status, u32)>,
) -> tokio::task::JoinHandle<()> {
    let (client, timeline) = (yard.client.clone(), timeline.clone());
    tokio::spawn(async move {
        loop {
            let item = client.get(id).await.unwrap().unwrap();
            timeline.note((item.status, item.attempts));
            pass(millis(50)).await; // real time: a sample of what other processes do
        }
    })
}
