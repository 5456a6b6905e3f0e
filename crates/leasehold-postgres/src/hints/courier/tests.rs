use super::*;

fn lanes(names: &[&str]) -> BTreeSet<Lane> {
    names
        .iter()
        .map(|name| Lane::parse(name).unwrap())
        .collect()
}

/// The answer of a call that must not wait.
async fn at_once<T>(call: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        answer = call => answer,
        () = std::future::ready(()) => panic!("the call waits"),
    }
}

async fn assert_waits<T>(call: impl Future<Output = T>) {
    tokio::select! {
        biased;
        _ = call => panic!("the call must wait"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn what_gathers_while_a_statement_is_under_way_goes_together_in_the_next() {
    let orders = Orders::default();
    orders.put(&lanes(&["mail"]));
    assert_eq!(at_once(orders.next()).await, Some(lanes(&["mail"])));
    for _ in 0..100 {
        orders.put(&lanes(&["mail", "print"]));
        orders.put(&lanes(&["mail"]));
    }
    orders.done();
    assert_eq!(
        at_once(orders.next()).await,
        Some(lanes(&["mail", "print"]))
    );
    orders.done();
    assert_waits(orders.next()).await;
}

#[tokio::test]
async fn what_was_under_way_when_the_connection_broke_is_told_again() {
    let orders = Orders::default();
    orders.put(&lanes(&["mail"]));
    let _ = at_once(orders.next()).await;
    orders.put(&lanes(&["print"]));
    orders.give_back();
    assert_eq!(
        at_once(orders.next()).await,
        Some(lanes(&["mail", "print"]))
    );
    orders.done();
    orders.give_back();
    assert_waits(orders.next()).await;
}

#[tokio::test]
async fn what_waits_when_it_is_over_is_still_told() {
    let orders = Orders::default();
    orders.put(&lanes(&["mail"]));
    orders.end();
    assert_eq!(at_once(orders.next()).await, Some(lanes(&["mail"])));
    orders.done();
    assert_eq!(at_once(orders.next()).await, None);
    at_once(orders.is_over()).await;
}

#[tokio::test]
async fn everything_is_told_once_nothing_waits_and_nothing_is_under_way() {
    let orders = Orders::default();
    at_once(orders.has_told()).await;
    orders.put(&lanes(&["mail"]));
    assert_waits(orders.has_told()).await;
    let _ = orders.next().await;
    assert_waits(orders.has_told()).await;
    let ((), ()) = tokio::join!(biased; orders.has_told(), async { orders.done() });
}

#[test]
fn lanes_without_number_are_not_kept() {
    let orders = Orders::default();
    for number in 0..2 * WAITING_MAX {
        orders.put(&lanes(&[&format!("lane-{number}")]));
    }
    assert_eq!(orders.lock().waiting.len(), WAITING_MAX);
}

#[test]
fn a_pause_is_never_longer_than_said_nor_shorter_than_its_half() {
    for _ in 0..1_000 {
        let pause = with_jitter(PAUSE_MAX);
        assert!(pause >= PAUSE_MAX / 2 && pause <= PAUSE_MAX, "{pause:?}");
    }
}

#[test]
fn a_channel_is_named_after_its_schema_as_far_as_names_go() {
    let channel = |name: &str| channel_of(&Schema::parse(name).unwrap());
    assert_eq!(channel("leasehold"), "leasehold_leasehold");
    assert_eq!(channel(&"a".repeat(63)).len(), CHANNEL_BYTES_MAX);
}
