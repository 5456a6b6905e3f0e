//! What befalls calls, told and drawn, over the memory store.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use leasehold_core::store::Hints;
use leasehold_core::{Lane, ManualClock, MemoryStore, WorkItem};

use super::*;
use crate::contract::samples::{ORG, complete, hold, item, request, settlement};

fn stores(faults: &Faults) -> Stores {
    let store = MemoryStore::new(Arc::new(ManualClock::default()));
    faults.wrap(Stores::from_one(Arc::new(store)))
}

async fn held(stores: &Stores) -> WorkItem {
    stores.work.enqueue(ORG, vec![item()]).await.unwrap();
    stores.work.claim(&request()).await.unwrap().remove(0).item
}

fn is_pending(call: &mut (impl Future + Unpin)) -> bool {
    let polled = std::pin::Pin::new(call).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Pending)
}

#[test]
fn operations_are_numbered_in_their_order() {
    for (index, operation) in Operation::ALL.iter().enumerate() {
        assert_eq!(operation.index(), index);
    }
}

#[tokio::test]
async fn without_faults_calls_pass() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    held(&stores).await;
    assert_eq!(faults.calls(Operation::Enqueue), 1);
    assert_eq!(faults.calls(Operation::Claim), 1);
    assert_eq!(faults.calls(Operation::Settle), 0);
    assert_eq!(faults.faults(Operation::Claim), 0);
}

#[tokio::test]
async fn an_error_comes_before_the_call_and_once() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    let held = held(&stores).await;
    faults.fail_next(Operation::Settle, Fault::retry());
    faults.fail_next(Operation::Settle, Fault::unavailable());
    let batch = [settlement(hold(&held), complete())];
    let undone = stores.work.settle(&batch).await;
    assert!(matches!(undone, Err(StoreError::Retry(_))), "{undone:?}");
    let unreached = stores.work.settle(&batch).await;
    assert!(
        matches!(unreached, Err(StoreError::Unavailable(_))),
        "{unreached:?}"
    );
    assert_eq!(stores.work.get(ORG, held.id).await.unwrap(), Some(held));
    stores.work.settle(&batch).await.unwrap();
    assert_eq!(faults.calls(Operation::Settle), 3);
    assert_eq!(faults.faults(Operation::Settle), 2);
}

#[tokio::test]
async fn a_lost_answer_comes_after_the_call() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    faults.fail_next(Operation::Enqueue, Fault::LostAnswer);
    let new = item();
    let lost = stores.work.enqueue(ORG, vec![new.clone()]).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    assert!(stores.work.get(ORG, new.id).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_delay_passes_on_the_runtimes_clock() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    let delay = Duration::from_hours(2);
    faults.fail_next(Operation::Now, Fault::Delay(delay));
    let clock = crate::clock::TokioClock::new();
    let before = leasehold_core::Clock::elapsed(&clock);
    stores.work.now().await.unwrap();
    assert!(leasehold_core::Clock::elapsed(&clock).since(before) >= delay);
}

#[tokio::test]
async fn a_blocked_operation_hangs_until_unblocked() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    let held = held(&stores).await;
    faults.block(Operation::Settle);
    let batch = [settlement(hold(&held), complete())];
    let mut settle = stores.work.settle(&batch);
    assert!(is_pending(&mut settle));
    faults.wait_for_calls(Operation::Settle, 1).await;
    assert_eq!(
        stores.work.get(ORG, held.id).await.unwrap(),
        Some(held.clone())
    );
    faults.unblock(Operation::Settle);
    settle.await.unwrap();
    assert_ne!(stores.work.get(ORG, held.id).await.unwrap(), Some(held));
}

#[tokio::test]
async fn a_black_hole_swallows_everything() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    faults.block_all();
    assert!(is_pending(&mut stores.work.now()));
    assert!(is_pending(&mut stores.work.gauges()));
    faults.unblock_all();
    stores.work.now().await.unwrap();
}

fn is_hinted(hints: &mut Box<dyn Hints>) -> bool {
    let next = pin!(hints.next());
    next.poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

#[tokio::test]
async fn hints_are_lost_while_they_are_dropped() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    let mut hints = stores.work.subscribe(&[Lane::default()]);
    faults.drop_hints();
    stores.work.enqueue(ORG, vec![item()]).await.unwrap();
    assert!(!is_hinted(&mut hints));
    faults.deliver_hints();
    assert!(!is_hinted(&mut hints), "a lost hint does not come back");
    stores.work.enqueue(ORG, vec![item()]).await.unwrap();
    assert!(is_hinted(&mut hints));
}

/// Which of a hundred calls fail, while those of another operation come in between or not.
async fn failures(seed: u64, gets_between: usize) -> Vec<bool> {
    let faults = Faults::new(seed);
    let stores = stores(&faults);
    faults.set_odds(Odds {
        unavailable: 0.2,
        retry: 0.2,
        lost_answer: 0.2,
        ..Odds::default()
    });
    let mut failed = Vec::new();
    for _ in 0..100 {
        failed.push(stores.work.now().await.is_err());
        for _ in 0..gets_between {
            let _ = stores.work.gauges().await;
        }
    }
    let made = u64::try_from(failed.iter().filter(|failed| **failed).count()).unwrap();
    assert_eq!(faults.faults(Operation::Now), made);
    failed
}

#[tokio::test]
async fn the_seed_decides_whatever_is_called_in_between() {
    let first = failures(7, 0).await;
    assert_eq!(failures(7, 3).await, first);
    assert_ne!(failures(8, 0).await, first);
    let failed = first.iter().filter(|failed| **failed).count();
    assert!(
        (40..80).contains(&failed),
        "{failed} of a hundred at odds of 60 %"
    );
}

#[tokio::test]
async fn odds_are_of_their_operation() {
    let faults = Faults::new(1);
    let stores = stores(&faults);
    faults.set_odds_of(
        Operation::Gauges,
        Odds {
            unavailable: 1.0,
            ..Odds::default()
        },
    );
    for _ in 0..10 {
        assert!(stores.work.gauges().await.is_err());
        stores.work.now().await.unwrap();
    }
}
