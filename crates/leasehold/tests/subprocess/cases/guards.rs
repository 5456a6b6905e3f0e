//! The fence's own processes killed under a running worker.

use leasehold::Status;
use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};

use super::cast::{Command, LIMIT, Play};
use super::tree::{STUBBORN, Tree, stubborn};
use super::{case, custody};
use crate::yard::{millis, pass, within};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("guards::a_killed_spawner_takes_nothing_along", spawner),
        case("guards::a_killed_warden_leaves_nobody", warden),
        case("guards::a_run_that_may_live_is_not_handed_back", both),
    ]
}

fn commands() -> [Command; 2] {
    [stubborn(), Command::shell("QUICK", "echo '{}'")]
}

fn the_spawner(play: &Play) -> Pid {
    let below = custody::below(play.worker.id());
    let spawner = below.iter().find(|process| process.name == "fence-spawner");
    Pid::from_raw(spawner.unwrap().pid).unwrap()
}

/// The warden above the tree: some process of the tree is below it.
fn the_warden(play: &Play, tree: &Tree) -> Pid {
    let below = custody::below(play.worker.id());
    let is_above = |pid: i32| {
        let below = custody::below(pid.unsigned_abs());
        let living = tree.living();
        below.iter().any(|process| living.contains(&process.pid))
    };
    let warden = below
        .iter()
        .find(|process| process.name == "fence-warden" && is_above(process.pid));
    Pid::from_raw(warden.unwrap().pid).unwrap()
}

/// A run goes on for longer than a lease, and the next items run.
async fn spawner() {
    let play = Play::with(commands(), |cast| cast.role.lease_ms = 1_000);
    let id = play.enqueue(STUBBORN, "{}").await;
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    for _ in 0..3 {
        kill_process(the_spawner(&play), Signal::KILL).unwrap();
        let item = play.run("QUICK", "{}").await;
        assert_eq!((item.status, item.attempts), (Status::Done, 1), "{item:?}");
    }
    let before = tree.last_beat();
    pass(millis(1_500)).await; // real time: longer than a lease
    assert!(tree.last_beat() > before);
    assert_eq!(play.yard.item(id).await.claim_seq, 1);
    // It is told to stop as if nothing had been.
    let yard = play.yard;
    play.worker.stop().await;
    let item = yard.item(id).await;
    assert_eq!(
        (item.status, item.attempts),
        (Status::Queued, 0),
        "{item:?}"
    );
    let last = tree.last_beat();
    assert!(
        last <= item.updated_at,
        "{last} is after {}",
        item.updated_at
    );
}

/// What it left is dead before the item fails, and the item is tried again.
async fn warden() {
    let play = Play::of(commands());
    let id = play.enqueue(STUBBORN, "{}").await;
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    kill_process(the_warden(&play, &tree), Signal::KILL).unwrap();
    let item = play.finished(id).await;
    assert_eq!((item.status, item.attempts), (Status::Done, 2), "{item:?}");
    let error = &item.errors[0];
    let told = "SubprocessCrashError: killed, because its warden was killed from outside";
    assert!(error.message.as_str().starts_with(told), "{error:?}");
    let last = tree.last_beat();
    assert!(last <= error.at, "{last} is after {}", error.at);
    assert!(tree.living().is_empty());
    play.over().await;
}

/// Nobody knows then whether its tree is gone: the command itself is, what it started is not. The item
/// is not handed back for it, not even by a worker that goes, and is left to expire.
async fn both() {
    let play = Play::with(commands(), |cast| cast.role.lease_ms = 1_000);
    let id = play.enqueue(STUBBORN, "{}").await;
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    let (spawner, warden) = (the_spawner(&play), the_warden(&play, &tree));
    let grown = tree.living().len();
    // First the one that would end what the other leaves.
    kill_process(spawner, Signal::KILL).unwrap();
    kill_process(warden, Signal::KILL).unwrap();
    within(LIMIT, "the command is gone", async || {
        (tree.living().len() < grown).then_some(())
    })
    .await;
    let yard = play.yard;
    play.worker.stop().await;
    let item = yard.item(id).await;
    assert_eq!(
        (item.status, item.claim_seq, item.attempts),
        (Status::Claimed, 1, 1)
    );
    custody::end(&tree.ever());
}
