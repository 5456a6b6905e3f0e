//! Commands beside a handler that blocks the only thread that handlers have: their leases go on without
//! it, and so do their ends.

use leasehold::{ItemId, Status};
use libtest_mimic::Trial;

use super::case;
use super::cast::{BLOCKED, Block, CUT_OFF, Command, LIMIT, Play, RECONNECT, UNBLOCK};
use super::tree::{ENDLESS, Tree, endless};
use crate::yard::{inserted, millis, now, pass, within};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("blocked::a_command_goes_on_while_its_lease_does", goes_on),
        case("blocked::a_lost_lease_kills_all_the_same", lost),
        case("blocked::a_cancel_kills_all_the_same", cancelled),
    ]
}

/// Blocks the thread, and answers once it is blocked.
async fn block(play: &Play) -> ItemId {
    let block = inserted(play.yard.client.enqueue(&Block {}).await.unwrap());
    play.made(BLOCKED).await;
    block
}

async fn unblock(play: &Play, block: ItemId) {
    play.make(UNBLOCK);
    play.yard.until_status(block, Status::Done, LIMIT).await;
}

/// It runs for two leases beside a thread that is blocked for three, and is done.
async fn goes_on() {
    let script = r#": > "$YARD/up"; sleep 2; : > "$YARD/over"; echo '{}'"#;
    let long = Command::shell("LONG", script);
    let play = Play::with([long], |cast| cast.role.lease_ms = 1_000);
    let id = play.enqueue("LONG", "{}").await;
    play.made("up").await;
    let blocked = now();
    let block = block(&play).await;
    play.made("over").await;
    let three_leases = jiff::SignedDuration::from_secs(3);
    within(LIMIT, "three leases", async || {
        (now().duration_since(blocked) > three_leases).then_some(())
    })
    .await;
    let held = play.yard.item(id).await;
    assert_eq!((held.status, held.claim_seq), (Status::Claimed, 1));
    unblock(&play, block).await;
    let item = play.finished(id).await;
    assert_eq!(
        (item.status, item.attempts, item.claim_seq),
        (Status::Done, 1, 1)
    );
    play.over().await;
}

async fn lost() {
    let play = Play::of([endless()]);
    let id = play.enqueue(ENDLESS, "{}").await;
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    let block = block(&play).await;
    let lease_end = play.yard.item(id).await.lease_expires_at.unwrap();
    play.worker.signal(CUT_OFF);
    let gone = tree.gone(LIMIT).await;
    assert!(
        gone < lease_end,
        "gone at {gone}, the lease was over at {lease_end}"
    );
    play.worker.signal(RECONNECT);
    unblock(&play, block).await;
    play.over().await;
}

async fn cancelled() {
    let play = Play::of([endless()]);
    let id = play.enqueue(ENDLESS, "{}").await;
    let tree = Tree::of(&play.yard, id, 1);
    tree.grown().await;
    let block = block(&play).await;
    play.yard.client.cancel(id).await.unwrap();
    let asked = now();
    let gone = tree.gone(LIMIT).await;
    // A renewal each half a second tells of it, and the grace is less.
    let took = gone.duration_since(asked);
    assert!(took < jiff::SignedDuration::from_millis(1_500), "{took:?}");
    // What has happened is not known to anybody yet.
    assert_eq!(play.yard.item(id).await.status, Status::Claimed);
    pass(millis(300)).await; // real time: nobody can tell meanwhile
    unblock(&play, block).await;
    let item = play.finished(id).await;
    assert_eq!(item.failure_code.unwrap().as_str(), "cancelled");
    play.over().await;
}
