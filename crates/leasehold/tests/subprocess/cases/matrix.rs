//! G3 and G4: what befalls a worker, and what becomes of the trees that it runs.
//!
//! Each round is an item whose tree does what it can to stay alive. Whatever befalls the worker, all of
//! the tree is gone before the lease is over, and nobody begins a second run before.

use futures_util::future::join_all;
use jiff::Timestamp;
use leasehold::{ItemId, Status};
use libtest_mimic::Trial;
use rustix::process::Signal;

use super::cast::{CUT_OFF, Cast, Command, LIMIT, RECONNECT};
use super::tree::{STUBBORN, Tree, gone, stubborn};
use super::{case, custody};
use crate::yard::{Process, Yard, few_or, inserted, millis, pass, within};

pub(super) fn cases() -> Vec<Trial> {
    vec![
        case("matrix::a_worker_that_is_killed_leaves_nobody", || {
            rounds(Blow::Kill)
        }),
        case("matrix::a_worker_that_is_frozen_keeps_nobody", || {
            rounds(Blow::Freeze)
        }),
        case("matrix::a_worker_that_is_cut_off_keeps_nobody", || {
            rounds(Blow::CutOff)
        }),
        case(
            "matrix::a_worker_told_to_stop_hands_back_what_is_dead",
            || rounds(Blow::Stop),
        ),
    ]
}

/// What befalls the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Kill,
    Freeze,
    CutOff,
    Stop,
}

/// Over the four blows 32 rounds, and 320 in a long run, of so many items at once.
async fn rounds(blow: Blow) {
    let (batches, items) = few_or((2, 4), (4, 20));
    for _ in 0..batches {
        batch(blow, items).await;
    }
}

/// One item, and its first run.
struct Round {
    id: ItemId,
    tree: Tree,
    /// The end of the lease, as the row had it before the blow.
    lease_end: Timestamp,
}

async fn batch(blow: Blow, items: usize) {
    let yard = Yard::new();
    let quick = Command::shell("QUICK", "echo '{}'");
    let mut victim = Cast::new(&yard, "victim", [stubborn(), quick]);
    victim.role.capacity = u32::try_from(items).unwrap();
    let taker = Cast {
        role: crate::yard::Role {
            name: "taker".to_owned(),
            ..victim.role.clone()
        },
        ..victim.clone()
    };
    let victim = victim.start();
    // Whatever a first run needs for good is there from here on.
    let first = inserted(yard.client.enqueue_raw("QUICK", "{}").await.unwrap());
    yard.until_status(first, Status::Done, LIMIT).await;
    let descriptors = custody::descriptors(victim.id());

    let ids = enqueue(&yard, items).await;
    let trees: Vec<Tree> = ids.iter().map(|id| Tree::of(&yard, *id, 1)).collect();
    join_all(trees.iter().map(Tree::grown)).await;
    let rounds = join_all(
        trees
            .into_iter()
            .zip(ids)
            .map(|(tree, id)| round(&yard, id, tree)),
    )
    .await;
    let taker = match blow {
        Blow::Kill => {
            victim.signal(Signal::KILL);
            Some(taker.start())
        }
        Blow::Freeze => {
            victim.signal(Signal::STOP);
            Some(taker.start())
        }
        Blow::CutOff => {
            victim.signal(CUT_OFF);
            Some(taker.start())
        }
        Blow::Stop => {
            victim.signal(Signal::TERM);
            join_all(rounds.iter().map(|round| handed_back(&yard, round))).await;
            None
        }
    };
    let trees: Vec<&Tree> = rounds.iter().map(|round| &round.tree).collect();
    let gone = gone(&trees, LIMIT).await;
    let margins = rounds.iter().zip(gone);
    let margins: Vec<i128> = margins.map(|(round, gone)| round.margin(gone)).collect();
    tell(blow, &margins);
    let taker = taker.unwrap_or_else(|| Cast::new(&yard, "taker", [stubborn()]).start());
    let spent = u32::from(blow != Blow::Stop);
    for round in &rounds {
        let item = yard.until_status(round.id, Status::Done, LIMIT).await;
        let second = Tree::of(&yard, round.id, 2);
        assert!(second.first_beat() > round.tree.last_beat());
        assert_eq!(item.claim_seq, 2, "{item:?}");
        assert_eq!((item.attempts, item.worker_losses), (spent + 1, spent));
    }
    aftermath(blow, &yard, victim, descriptors, &rounds).await;
    taker.stop().await;
}

async fn enqueue(yard: &Yard, items: usize) -> Vec<ItemId> {
    let item = || yard.client.raw(STUBBORN, "{}").unwrap();
    let items = (0..items).map(|_| item()).collect();
    let fates = yard.client.enqueue_many(items).await.unwrap();
    fates.into_iter().map(inserted).collect()
}

async fn round(yard: &Yard, id: ItemId, tree: Tree) -> Round {
    let lease_end = yard.item(id).await.lease_expires_at.unwrap();
    Round {
        id,
        tree,
        lease_end,
    }
}

impl Round {
    /// How long before the end of its lease the tree was seen gone, in milliseconds.
    fn margin(&self, gone: Timestamp) -> i128 {
        let margin = self.lease_end.duration_since(gone).as_millis();
        assert!(
            margin > 0,
            "the tree was there {} ms after its lease",
            -margin
        );
        margin
    }
}

/// The item is handed back with a note and no attempt spent, and not before its tree is dead.
async fn handed_back(yard: &Yard, round: &Round) {
    let item = loop {
        let item = yard.item(round.id).await;
        if item.status != Status::Claimed {
            let living = round.tree.living();
            assert!(living.is_empty(), "handed back while {living:?} lived");
            break item;
        }
        pass(millis(20)).await; // real time: the row is watched
    };
    assert_eq!(
        (item.status, item.attempts),
        (Status::Queued, 0),
        "{item:?}"
    );
    assert_eq!(item.last_error.unwrap().as_str(), "worker stopping");
    let last = round.tree.last_beat();
    assert!(
        last <= item.updated_at,
        "{last} is after {}",
        item.updated_at
    );
}

/// Whoever survived the blow changes nothing any more, and holds on to nothing.
async fn aftermath(blow: Blow, yard: &Yard, victim: Process, descriptors: usize, rounds: &[Round]) {
    match blow {
        Blow::Kill => return victim.kill(),
        Blow::Freeze => victim.signal(Signal::CONT),
        Blow::CutOff => victim.signal(RECONNECT),
        Blow::Stop => {}
    }
    if blow != Blow::Stop {
        let pid = victim.id();
        within(
            LIMIT,
            "the descriptors of the runs are closed",
            async || (custody::descriptors(pid) == descriptors).then_some(()),
        )
        .await;
    }
    let page = victim.stop().await;
    let lost = page.series("leasehold_lease_lost_total", r#"reason="doubted""#);
    let expected = if blow == Blow::Stop { 0 } else { rounds.len() };
    assert_eq!(lost, expected as u64, "leases that were told to be lost");
    for round in rounds {
        let item = yard.item(round.id).await;
        assert_eq!((item.status, item.claim_seq), (Status::Done, 2), "{item:?}");
    }
}

#[expect(clippy::print_stdout, reason = "a figure for people")]
fn tell(blow: Blow, margins: &[i128]) {
    let least = margins.iter().min().unwrap();
    let most = margins.iter().max().unwrap();
    println!(
        "{blow:?}: {} trees, margin={least}ms (at most {most}ms)",
        margins.len()
    );
}
