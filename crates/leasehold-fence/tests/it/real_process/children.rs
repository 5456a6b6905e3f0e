//! Many commands: one after the other, and at once. Nothing of them stays.

use std::fs::File;
use std::time::Duration;

use leasehold_fence::{Command, Deadline, Ending, Fence, Output};
use rustix::process::getpid;

use crate::processes::{Holdings, Process, descendants_of, now, until};
use crate::yard::{Yard, fence, few_or, shell, tree};

/// Two helpers, one below the other, and all three ignore TERM.
const STUBBORN: &str = "trap '' TERM; (trap '' TERM; (trap '' TERM; sleep 60) & sleep 60) & ";

/// Within this nothing of a command that is killed may be alive.
const KILL_MAX: Duration = Duration::from_secs(1);

async fn ended(fence: &Fence, command: Command, until: Option<Deadline>) -> Ending {
    let child = fence.run(command, until).unwrap();
    let finished = tokio::time::timeout(Duration::from_mins(1), child.finish(|_| ())).await;
    finished.unwrap().ending
}

/// What is below this process but the spawner and those that wait.
fn commands() -> Vec<Process> {
    let all = descendants_of(getpid().as_raw_nonzero().get());
    let waits = |one: &Process| one.name.starts_with("fence-") && one.state != 'Z';
    all.into_iter().filter(|one| !waits(one)).collect()
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
async fn round_after_round_leaves_nothing() {
    let rounds = few_or(30, 300);
    let before = Holdings::own();
    let fence = fence();
    assert_eq!(
        ended(&fence, shell("exit 0"), None).await,
        Ending::Exited { code: 0 }
    );
    let running = Holdings::own();

    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let command = shell(&format!("{STUBBORN} sleep 60"));
        let child = fence.run(command, None).unwrap();
        let control = child.control();
        let waiting = tokio::spawn(child.finish(|_| ()));
        let sleepers = || commands().iter().filter(|one| one.name == "sleep").count();
        until(Duration::from_secs(10), "all of it is there", || {
            (sleepers() == 3).then_some(())
        });
        let killed = now();
        match round % 3 {
            0 => control.kill(),
            1 => control.push(Deadline::after(Duration::ZERO)),
            _ => control.terminate(Duration::ZERO),
        }
        drop(control);
        let ending = waiting.await.unwrap().ending;
        let taken = now().checked_sub(killed).unwrap();
        let expected = [Ending::Killed, Ending::LeaseLost, Ending::Killed];
        assert_eq!(ending, expected[round % 3]);
        assert_eq!(sleepers(), 0, "it was reported as {ending}");
        assert!(taken < KILL_MAX, "the kill took {taken:?}");
        longest = longest.max(taken);
    }
    println!(
        "{rounds} kills, the longest took {} ms",
        longest.as_millis()
    );

    for _ in 0..rounds {
        let ending = ended(&fence, shell(&format!("{STUBBORN} exit 3")), None).await;
        assert_eq!(ending, Ending::Exited { code: 3 });
        let left = commands();
        let left: Vec<_> = left.iter().filter(|one| one.name == "sleep").collect();
        assert!(left.is_empty(), "{left:?}");
    }
    println!("{rounds} ends by themselves");

    running.assert_again();
    until(
        Duration::from_secs(5),
        "nothing but what waits is left",
        || commands().is_empty().then_some(()),
    );
    fence.close();
    before.assert_again();
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures are for people")]
async fn two_hundred_at_once_are_no_trouble() {
    let count = 200;
    let before = Holdings::own();
    let fence = fence();
    let began = now();
    let children: Vec<_> = (0..count)
        .map(|_| fence.run(shell("sleep 2; echo done"), None).unwrap())
        .collect();
    let handed_over = now();
    let waiting: Vec<_> = children
        .into_iter()
        .map(|child| tokio::spawn(child.finish(|_| ())))
        .collect();
    let me = getpid().as_raw_nonzero().get();
    let sleepers = || {
        let family = descendants_of(me).into_iter();
        family.filter(|one| one.name == "sleep").count()
    };
    let mut most = 0;
    until(
        Duration::from_secs(20),
        "the first are at their end",
        || {
            let now = sleepers();
            most = most.max(now);
            (now < most).then_some(())
        },
    );
    let family = descendants_of(me);
    let spawner = family
        .iter()
        .find(|one| one.name == "fence-spawner")
        .unwrap();
    let (own, theirs) = (Holdings::own(), Holdings::of(spawner.pid));
    for one in waiting {
        let finished = tokio::time::timeout(Duration::from_mins(1), one).await;
        let finished = finished.unwrap().unwrap();
        assert_eq!(finished.ending, Ending::Exited { code: 0 });
        assert_eq!(finished.stdout, b"done\n");
    }
    let ended = now();
    let ms = |from: Duration, to: Duration| to.checked_sub(from).unwrap().as_millis();
    println!(
        "{count} commands of 2 s: handed over after {} ms, ended after {} ms, at most {most} at once, \
         {} descriptors in the caller, {} in the spawner",
        ms(began, handed_over),
        ms(began, ended),
        own.descriptors,
        theirs.descriptors,
    );
    fence.close();
    before.assert_again();
}

/// More than fit into the spawner's ear at once, and than the system lets a user have under way.
#[tokio::test]
async fn hundreds_in_one_go_are_all_taken_in() {
    let fence = fence();
    let start = |_| {
        let nowhere = || Output::To(File::create("/dev/null").unwrap().into());
        let command = shell("exit 3");
        let command = command.with_stdout(nowhere()).with_stderr(nowhere());
        fence.run(command, None).unwrap()
    };
    let children: Vec<_> = (0..400).map(start).collect();
    for child in children {
        let finished = tokio::time::timeout(Duration::from_mins(1), child.finish(|_| ())).await;
        assert_eq!(finished.unwrap().ending, Ending::Exited { code: 3 });
    }
    fence.close();
}

#[tokio::test]
async fn a_child_that_is_dropped_is_killed() {
    let yard = Yard::new();
    let fence = fence();
    let child = fence.run(tree(yard.folder.path(), "leader"), None).unwrap();
    let tree = yard.until_ready();
    drop(child);
    until(KILL_MAX, "nothing is left of the tree", || {
        (!tree.iter().any(Process::is_there)).then_some(())
    });
    fence.close();
    yard.assert_deserted();
}

#[tokio::test]
async fn a_fence_that_is_dropped_leaves_its_children() {
    let fence = fence();
    let child = fence.run(shell("sleep 0.3; exit 9"), None).unwrap();
    drop(fence);
    assert_eq!(
        child.finish(|_| ()).await.ending,
        Ending::Exited { code: 9 }
    );
}
