//! ATTEMPT-1(b) and CHILD-1: commands that die, by a hand of ours or another, and what is left of them.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{ItemId, Status};
use libtest_mimic::Trial;

use super::cast::{Command, LIMIT, Play};
use super::tree::{ENDLESS, Tree, endless};
use super::{case, custody};
use crate::yard::{few_or, inserted, within};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("crashing::an_item_that_dies_of_a_signal_dies_alone", || {
            poison("kill -KILL $$", "signal 9 (SIGKILL)")
        }),
        case(
            "crashing::an_item_that_takes_too_much_memory_dies_alone",
            || {
                // Memory that cannot be had is the end of most programs, by this signal.
                let script = format!("ulimit -v 400000; ulimit -c 0; exec \"$MEMBER\" {HOG}");
                poison(script, "signal 6 (SIGABRT)")
            },
        ),
        case("crashing::many_runs_leave_nothing_behind", many_runs),
    ]
}

/// The only argument of a process that takes memory until it is given no more.
pub(super) const HOG: &str = "--hog";

pub(super) fn hog() {
    const CHUNK: usize = 16 << 20;
    let mut taken = Vec::new();
    // More than any limit of a case, less than a machine has.
    for _ in 0..64 {
        taken.push(vec![1_u8; CHUNK]);
    }
    assert_eq!(taken.len(), 64);
}

/// Three starts, then a dead letter that names the signal: told at once, for with this lease nothing
/// expires in time. All healthy items are done, by the same worker process.
async fn poison(script: impl AsRef<str>, signal: &str) {
    let poison = format!("echo start >> \"$YARD/starts\"\n{}", script.as_ref());
    let commands = [
        Command::shell("POISON", &poison),
        Command::shell("HEALTHY", "echo '{}'"),
    ];
    let play = Play::with(commands, |cast| cast.role.lease_ms = 60_000);
    let mut healthy = enqueue_healthy(&play, 10).await;
    let poison = play.yard.client.enqueue_raw("POISON", "{}").max_attempts(3);
    let poison = inserted(poison.await.unwrap());
    healthy.extend(enqueue_healthy(&play, 10).await);
    let item = play.finished(poison).await;
    assert_eq!(item.status, Status::Failed);
    assert_eq!((item.attempts, item.worker_losses), (3, 0));
    assert_eq!(item.failure_code.unwrap().as_str(), "SubprocessCrashError");
    let error = item.last_error.unwrap();
    assert!(error.as_str().contains(signal), "{error}");
    assert_eq!(item.errors.len(), 3);
    let starts = std::fs::read_to_string(play.yard.folder.path().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 3);
    for id in healthy {
        assert_eq!(play.finished(id).await.status, Status::Done);
    }
    assert_eq!(
        play.yard.audit_kinds(&[poison]).await,
        ["work.item.dead_letter"]
    );
    let page = play.over().await;
    let done = r#"kind="HEALTHY",outcome="done""#;
    assert_eq!(page.series("leasehold_items_finished_total", done), 20);
}

async fn enqueue_healthy(play: &Play, count: usize) -> Vec<ItemId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(play.enqueue("HEALTHY", "{}").await);
    }
    ids
}

/// CHILD-1: after rounds of kills and as many of good ends the worker has as many descriptors, threads
/// and processes below it as before, and none of them is a zombie.
async fn many_runs() {
    let rounds = few_or(10, 300);
    let limited = Command {
        time_limit_ms: Some(400),
        ..endless()
    };
    let quick = Command::shell("QUICK", "echo '{}'");
    let play = Play::with([limited, quick], |cast| cast.role.capacity = 10);
    // Whatever a first run needs for good is there from here on.
    play.run("QUICK", "{}").await;
    let worker = play.worker.id();
    let before = Footprint::settled(worker).await;
    let mut killed = Vec::new();
    for _ in 0..rounds {
        let enqueue = play.yard.client.enqueue_raw(ENDLESS, "{}").max_attempts(1);
        killed.push(inserted(enqueue.await.unwrap()));
        play.enqueue("QUICK", "{}").await;
    }
    let ended = join_all(killed.iter().map(|id| play.finished(*id))).await;
    for item in ended {
        assert_eq!(item.failure_code.unwrap().as_str(), "timed_out");
        let tree = Tree::of(&play.yard, item.id, 1);
        assert!(tree.living().is_empty());
        let last = tree.last_beat();
        assert!(
            last <= item.updated_at,
            "{last} is after {}",
            item.updated_at
        );
    }
    within(LIMIT, &format!("as before: {before:?}"), async || {
        (Footprint::of(worker) == before).then_some(())
    })
    .await;
    let page = play.over().await;
    let done = r#"kind="QUICK",outcome="done""#;
    let count = page.series("leasehold_items_finished_total", done);
    assert_eq!(count, rounds + 1);
}

/// What a worker process takes up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Footprint {
    descriptors: usize,
    threads: usize,
    /// Below it, by name.
    processes: Vec<String>,
}

impl Footprint {
    fn of(pid: u32) -> Self {
        let below = custody::below(pid);
        let mut processes: Vec<String> = below
            .into_iter()
            .map(|process| {
                let state = if process.is_dead() { " (dead)" } else { "" };
                format!("{}{state}", process.name)
            })
            .collect();
        processes.sort();
        Self {
            descriptors: custody::descriptors(pid),
            threads: std::fs::read_dir(format!("/proc/{pid}/task"))
                .unwrap()
                .count(),
            processes,
        }
    }

    /// With nothing running, but for what is kept ready.
    async fn settled(pid: u32) -> Self {
        within(Duration::from_secs(10), "nothing runs", async || {
            let footprint = Self::of(pid);
            let idle = ["fence-spawner", "fence-stage", "fence-warden"];
            (footprint.processes == idle).then_some(footprint)
        })
        .await
    }
}
