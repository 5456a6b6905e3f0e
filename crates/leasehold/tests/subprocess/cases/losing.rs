//! LEASE-5 and RECOVER-1 with commands: leases that are lost, and workers.

use futures_util::future::join_all;
use leasehold::Status;
use libtest_mimic::Trial;
use rustix::process::Signal;

use super::case;
use super::cast::{CUT_OFF, Cast, Command, LIMIT, RECONNECT, log_of};
use super::tree::{ENDLESS, STUBBORN, Tree, endless, gone, stubborn};
use crate::losses::killed_in_every_attempt;
use crate::yard::{Role, Yard, inserted, millis, within};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("losing::a_lost_lease_kills_before_it_is_over", lost_lease),
        case("losing::a_worker_killed_in_every_attempt", killed),
        case(
            "losing::a_result_that_comes_after_the_lease_is_refused",
            late_result,
        ),
    ]
}

/// LEASE-5: cut off right after a renewal was accepted, the trees are gone by the end of the leases and
/// the second runs begin after it; exactly one attempt was spent on the loss; the worker tells of each.
async fn lost_lease() {
    const ITEMS: usize = 4;
    let yard = Yard::new();
    let mut cast = Cast::new(&yard, "cut-off", [stubborn()]);
    cast.role.lease_ms = 3_000;
    let cut_off = cast.start();
    let mut ids = Vec::new();
    for _ in 0..ITEMS {
        let id = yard.client.enqueue_raw(STUBBORN, "{}").await.unwrap();
        ids.push(inserted(id));
    }
    let trees: Vec<Tree> = ids.iter().map(|id| Tree::of(&yard, *id, 1)).collect();
    join_all(trees.iter().map(Tree::grown)).await;
    let before = yard.item(ids[0]).await.lease_expires_at;
    within(LIMIT, "a renewal", async || {
        (yard.item(ids[0]).await.lease_expires_at > before).then_some(())
    })
    .await;
    cut_off.signal(CUT_OFF);
    let held = join_all(ids.iter().map(|id| yard.item(*id))).await;
    cast.role.name = "second".to_owned();
    let second = cast.start();
    let gone = gone(&trees.iter().collect::<Vec<_>>(), LIMIT).await;
    for (held, gone) in held.iter().zip(gone) {
        let expiry = held.lease_expires_at.unwrap();
        assert!(
            gone <= expiry,
            "gone at {gone}, the lease was over at {expiry}"
        );
        let item = yard.until_status(held.id, Status::Done, LIMIT).await;
        let began = Tree::of(&yard, held.id, 2).first_beat();
        assert!(
            expiry <= began,
            "begun at {began}, the lease was over at {expiry}"
        );
        assert_eq!((item.attempts, item.worker_losses), (2, 1));
        assert_eq!(item.result.unwrap().as_str(), r#"{"run": 2}"#);
    }
    cut_off.signal(RECONNECT);
    let log = log_of(&yard, cut_off.id());
    for id in &ids {
        let told = |line: &str| line.contains("lease doubted") && line.contains(&id.to_string());
        assert!(log.lines().any(told), "{id}: {log}");
    }
    let page = cut_off.stop().await;
    let lost = page.series("leasehold_lease_lost_total", r#"reason="doubted""#);
    assert_eq!(lost, ITEMS as u64);
    second.stop().await;
}

/// The command has ended in time, and its worker learns of it too late: the result of the second run
/// stands.
async fn late_result() {
    let script = r#"
        echo "{\"run\": $LEASEHOLD_FENCE}"
        [ "$LEASEHOLD_FENCE" = 2 ] || { : > "$YARD/up"; sleep 0.3; }
    "#;
    let late = Command::shell("LATE", script);
    let yard = Yard::new();
    let mut cast = Cast::new(&yard, "frozen", [late]);
    cast.role.lease_ms = 1_000;
    let frozen = cast.start();
    let id = inserted(yard.client.enqueue_raw("LATE", "{}").await.unwrap());
    let up = yard.folder.path().join("up");
    within(LIMIT, "it runs", async || up.exists().then_some(())).await;
    frozen.signal(Signal::STOP);
    cast.role.name = "second".to_owned();
    let second = cast.start();
    let item = yard.until_status(id, Status::Done, LIMIT).await;
    assert_eq!(item.result.as_ref().unwrap().as_str(), r#"{"run": 2}"#);
    frozen.signal(Signal::CONT);
    let page = frozen.stop().await;
    let refused = r#"kind="LATE",outcome="conflict""#;
    assert_eq!(page.series("leasehold_items_finished_total", refused), 1);
    assert_eq!(yard.item(id).await, item);
    second.stop().await;
}

/// RECOVER-1, for commands whose tree outlives whatever it can.
async fn killed() {
    let yard = Yard::new();
    let enqueue = yard.client.enqueue_raw(ENDLESS, "{}").max_attempts(3);
    let id = inserted(enqueue.await.unwrap());
    // It knows no kind of item that there is.
    let sweeper = Cast::new(&yard, "sweeper", [Command::shell("NONE", "exit 1")]);
    let sweeper = sweeper.start();
    let victim = Cast {
        role: Role {
            lease_ms: 1_000,
            ..yard.role("victim")
        },
        ..Cast::new(&yard, "victim", [endless()])
    };
    let begun = || {
        (1..=3)
            .filter(|fence| Tree::of(&yard, id, *fence).is_grown())
            .count()
    };
    // The lease of 1 s, a sweep each 0.33 s at most, and what a busy machine adds.
    killed_in_every_attempt(&yard, id, millis(3_000), || victim.start(), begun).await;
    for fence in 1..=3 {
        assert!(Tree::of(&yard, id, fence).living().is_empty());
    }
    let page = sweeper.stop().await;
    let dead = page.series("leasehold_dead_letters_total", r#"kind="ENDLESS""#);
    assert_eq!(dead, 1);
}
