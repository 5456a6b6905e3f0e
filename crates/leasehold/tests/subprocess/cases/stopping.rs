//! Commands that are asked to end: those that listen, and those that do not.

use leasehold::{Status, WorkItem};
use libtest_mimic::Trial;
use rustix::process::Signal;

use super::case;
use super::cast::{Command, LIMIT, Play};
use super::tree::{ENDLESS, Tree, endless};
use crate::yard::{inserted, millis, now};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case(
            "stopping::a_cancelled_run_that_listens_is_done",
            cancelled_and_listens,
        ),
        case(
            "stopping::a_cancelled_run_that_is_deaf_is_killed",
            cancelled_and_deaf,
        ),
        case(
            "stopping::a_run_that_is_too_slow_and_listens_is_done",
            too_slow_and_listens,
        ),
        case(
            "stopping::a_run_that_is_too_slow_and_deaf_is_killed",
            too_slow_and_deaf,
        ),
        case("stopping::a_run_that_listens_to_a_drain_is_done", drained),
        case("stopping::a_second_request_hurries_the_drain", hurried),
        case("stopping::a_grace_may_be_longer_than_a_lease", long_grace),
    ]
}

/// It answers when it is asked to end.
fn polite() -> Command {
    let script = r#"
        trap 'echo "{\"stopped\": true}"; exit 0' TERM
        : > "$YARD/up"
        while :; do sleep 30 & wait $!; done
    "#;
    Command::shell("POLITE", script)
}

fn assert_done(item: &WorkItem) {
    assert_eq!((item.status, item.attempts), (Status::Done, 1), "{item:?}");
    let result = item.result.as_ref().unwrap();
    assert_eq!(result.as_str(), r#"{"stopped": true}"#);
}

async fn cancelled_and_listens() {
    let play = Play::with([polite()], |cast| cast.stop_grace_ms = 5_000);
    let id = play.enqueue("POLITE", "{}").await;
    play.made("up").await;
    play.yard.client.cancel(id).await.unwrap();
    assert_done(&play.finished(id).await);
    play.over().await;
}

async fn cancelled_and_deaf() {
    let play = Play::of([endless()]);
    let id = play.enqueue(ENDLESS, "{}").await;
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    let asked = now();
    play.yard.client.cancel(id).await.unwrap();
    let item = play.finished(id).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    let last = tree.last_beat();
    assert!(
        last <= item.updated_at,
        "{last} is after {}",
        item.updated_at
    );
    // It was given its grace, less the moment since its last beat.
    let lived = last.duration_since(asked);
    assert!(lived > jiff::SignedDuration::from_millis(250), "{lived:?}");
    assert!(tree.living().is_empty());
    play.over().await;
}

async fn too_slow_and_listens() {
    let limited = Command {
        time_limit_ms: Some(500),
        ..polite()
    };
    let play = Play::with([limited], |cast| cast.stop_grace_ms = 5_000);
    assert_done(&play.run("POLITE", "{}").await);
    play.over().await;
}

async fn too_slow_and_deaf() {
    let limited = Command {
        time_limit_ms: Some(600),
        ..endless()
    };
    let play = Play::of([limited]);
    let item = play.run(ENDLESS, "{}").await;
    assert_eq!((item.status, item.attempts), (Status::Failed, 2));
    assert_eq!(item.failure_code.unwrap().as_str(), "timed_out");
    assert_eq!(item.errors.len(), 2);
    for fence in [1, 2] {
        let tree = Tree::of(&play.yard, item.id, fence);
        assert!(tree.living().is_empty());
        let lived = tree.last_beat().duration_since(tree.first_beat());
        assert!(lived < jiff::SignedDuration::from_secs(2), "{lived:?}");
    }
    play.over().await;
}

async fn drained() {
    let play = Play::with([polite()], |cast| cast.drain_timeout_ms = 5_000);
    let id = play.enqueue("POLITE", "{}").await;
    play.made("up").await;
    play.worker.stop().await;
    assert_done(&play.yard.item(id).await);
}

/// A run that would have a minute is handed back at the second request, dead.
async fn hurried() {
    let play = Play::with([endless()], |cast| cast.drain_timeout_ms = 60_000);
    let enqueue = play.yard.client.enqueue_raw(ENDLESS, "{}").max_attempts(3);
    let id = inserted(enqueue.await.unwrap());
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    play.worker.signal(Signal::TERM);
    crate::yard::pass(millis(300)).await; // real time: it is deaf to the first request
    assert!(!tree.living().is_empty());
    play.worker.stop().await;
    let item = play.yard.until_status(id, Status::Queued, LIMIT).await;
    assert_eq!(item.attempts, 0);
    assert!(tree.living().is_empty());
    let last = tree.last_beat();
    assert!(
        last <= item.updated_at,
        "{last} is after {}",
        item.updated_at
    );
}

/// What is asked to end keeps its lease for as long as it may take, whoever asks.
async fn long_grace() {
    let script = r#"
        trap 'sleep 2.2; echo "{\"stopped\": true}"; exit 0' TERM
        : > "$YARD/$LEASEHOLD_KIND"
        while :; do sleep 30 & wait $!; done
    "#;
    let limited = Command {
        time_limit_ms: Some(300),
        ..Command::shell("LIMITED", script)
    };
    let others = ["CANCELLED", "DRAINED"].map(|kind| Command::shell(kind, script));
    let commands: Vec<Command> = others.into_iter().chain([limited]).collect();
    let play = Play::with(commands, |cast| {
        cast.role.lease_ms = 1_000;
        cast.stop_grace_ms = 6_000;
        cast.drain_timeout_ms = 6_000;
    });
    let limited = play.enqueue("LIMITED", "{}").await;
    let cancelled = play.enqueue("CANCELLED", "{}").await;
    let drained = play.enqueue("DRAINED", "{}").await;
    for kind in ["LIMITED", "CANCELLED", "DRAINED"] {
        play.made(kind).await;
    }
    play.yard.client.cancel(cancelled).await.unwrap();
    for id in [limited, cancelled] {
        assert_done(&play.finished(id).await);
    }
    let yard = play.yard;
    play.worker.stop().await;
    assert_done(&yard.item(drained).await);
}
