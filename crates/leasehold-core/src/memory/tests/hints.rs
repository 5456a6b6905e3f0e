use std::pin::Pin;
use std::sync::mpsc;

use super::*;
use crate::store::Hints;

/// Polls the subscription once and drops the call: whether a hint was taken.
fn take(hints: &mut Box<dyn Hints>) -> bool {
    let mut next: Pin<Box<dyn Future<Output = ()> + Send + '_>> = hints.next();
    next.as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

#[test]
fn a_hint_is_remembered_from_the_subscription_on() {
    let (_, store) = store();
    enqueue(&store, [item(1)]);
    let mut hints = store.subscribe(&[Lane::default()]);
    assert!(!take(&mut hints));
    enqueue(&store, [item(2)]);
    assert!(take(&mut hints));
    assert!(!take(&mut hints));
}

#[test]
fn any_number_of_hints_count_as_one() {
    let (_, store) = store();
    let mut hints = store.subscribe(&[Lane::default()]);
    enqueue(&store, [item(1)]);
    enqueue(&store, [item(2), item(3)]);
    assert!(take(&mut hints));
    assert!(!take(&mut hints));
}

#[test]
fn a_dropped_call_leaves_the_hint_that_arrived_while_it_waited() {
    let (_, store) = store();
    let mut hints = store.subscribe(&[Lane::default()]);
    let mut waiting = hints.next();
    assert!(
        waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    enqueue(&store, [item(1)]);
    drop(waiting);
    assert!(take(&mut hints));
}

#[test]
fn subscriptions_take_hints_apart_and_of_their_own_lanes() {
    let (_, store) = store();
    let mut first = store.subscribe(&[Lane::default()]);
    let mut second = store.subscribe(&[Lane::default(), lane("other")]);
    let mut third = store.subscribe(&[lane("other")]);
    let mut none = store.subscribe(&[]);
    enqueue(&store, [item(1)]);
    assert!(take(&mut first) && take(&mut second));
    assert!(!take(&mut third) && !take(&mut none));
}

#[test]
fn a_waiting_call_is_woken_from_another_thread() {
    let (_, store) = store();
    let mut hints = store.subscribe(&[Lane::default()]);
    let (waits, waiting) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            let mut next = hints.next();
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            assert!(
                next.as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
            waits.send(()).unwrap();
            block_on(next);
        });
        waiting.recv().unwrap();
        enqueue(&store, [item(1)]);
        waiter.join().unwrap();
    });
}

#[test]
fn a_dropped_subscription_is_forgotten() {
    let (_, store) = store();
    for _ in 0..100 {
        drop(store.subscribe(&[Lane::default()]));
    }
    let kept = store.subscribe(&[Lane::default()]);
    assert_eq!(store.hints.subscriptions(), 1);
    drop(kept);
    enqueue(&store, [item(1)]);
}

#[test]
fn only_what_can_be_claimed_anew_is_hinted() {
    let (clock, store) = store();
    let mut hints = store.subscribe(&[Lane::default()]);
    let mut hinted = |expected: bool, what: &str| assert_eq!(take(&mut hints), expected, "{what}");

    enqueue(&store, [item(1), item(2), item(3)]);
    hinted(true, "a new item");
    enqueue(&store, [item(1)]);
    hinted(false, "an item that was there");
    claim(&store, &request(1, 1));
    claim(&store, &request(2, 1));
    claim(&store, &request(3, 1));
    hinted(false, "a claim");
    let delay = Duration::from_secs(1);
    let _ = settle(
        &store,
        1,
        1,
        Transition::Retry {
            failure: boom(),
            delay,
        },
    );
    hinted(false, "an item queued for later");
    let _ = settle(&store, 2, 2, rules::hand_back("stopping"));
    hinted(true, "a hand-back");
    clock.advance(LEASE);
    let stale = StaleRequest {
        limit: 10,
        spread: Duration::from_secs(10),
    };
    assert_eq!(
        block_on(store.requeue_stale(ORG, &stale))
            .unwrap()
            .recovered,
        1
    );
    hinted(true, "a recovered item");

    block_on(store.pause_lane(&Lane::default(), &"trouble".into(), &"ops".into())).unwrap();
    hinted(false, "a pause");
    assert!(block_on(store.resume_lane(&Lane::default())).unwrap());
    hinted(true, "the end of a pause");
    assert!(!block_on(store.resume_lane(&Lane::default())).unwrap());
    hinted(false, "no end of a pause");
}
