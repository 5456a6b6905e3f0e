//! A process tree that does what it can to stay alive, and tells all the while that it does.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::ItemId;

use super::cast::Command;
use super::custody;
use crate::yard::{Yard, now, within};

/// The first argument of a member.
const MARK: &str = "--member";

/// The kind of items whose first run never ends, and whose second does at once.
pub(super) const STUBBORN: &str = "STUBBORN";
/// The kind of items no run of which ever ends.
pub(super) const ENDLESS: &str = "ENDLESS";

/// Who is in a tree: the leader, which ignores the request to end, as do all below it; its child; a
/// process below that one, in a session of its own; and one whose parents have left it.
const MEMBERS: [&str; 4] = ["child", "double", "leader", "session"];

const GROW: &str = r#"
trap '' TERM
sh -c '"$MEMBER" --member child 0 & setsid "$MEMBER" --member session 0 & wait' &
( ( "$MEMBER" --member double 0 & ) & )
exec "$MEMBER" --member leader 0
"#;

const SECOND_TIME: &str = r#"
[ "$LEASEHOLD_FENCE" = 1 ] || { "$MEMBER" --member leader 1; echo '{"run": 2}'; exit 0; }
"#;

pub(super) fn stubborn() -> Command {
    Command::shell(STUBBORN, &format!("{SECOND_TIME}{GROW}"))
}

pub(super) fn endless() -> Command {
    Command::shell(ENDLESS, GROW)
}

/// A process of a tree. It ends by itself after a minute and a half, so that a case that fails leaves
/// nothing for long.
pub(super) struct Member {
    name: String,
    beats: usize,
    run: PathBuf,
}

const BEAT: Duration = Duration::from_millis(10);
const BEATS_MAX: usize = 9_000;

impl Member {
    pub(super) fn of_this_process() -> Option<Self> {
        let mut arguments = std::env::args().skip(1);
        if arguments.next()? != MARK {
            return None;
        }
        let name = arguments.next()?;
        let beats = arguments.next()?.parse().ok()?;
        let variable = |name: &str| std::env::var(name).ok();
        let (item, fence) = (
            variable("LEASEHOLD_ITEM_ID")?,
            variable("LEASEHOLD_FENCE")?.parse().ok()?,
        );
        Some(Self {
            name,
            beats: if beats == 0 { BEATS_MAX } else { beats },
            run: file(Path::new(&variable("YARD")?), &item, fence),
        })
    }

    pub(super) fn live(&self) {
        let options = OpenOptions::new().create(true).append(true).to_owned();
        let mut run = options.open(&self.run).unwrap();
        for _ in 0..self.beats {
            let at = now().as_nanosecond();
            let beat = format!("{} {} {at}\n", self.name, std::process::id());
            run.write_all(beat.as_bytes()).unwrap();
            std::thread::park_timeout(BEAT); // real time: it tells that it lives
        }
    }
}

fn file(folder: &Path, item: &str, fence: i64) -> PathBuf {
    folder.join(format!("run-{item}-{fence}"))
}

/// A run of an item, as its tree has told of it.
pub(super) struct Tree {
    item: ItemId,
    fence: i64,
    file: PathBuf,
}

struct Beat {
    name: String,
    pid: i32,
    at: Timestamp,
}

impl Tree {
    /// The tree of the run under that fencing number.
    pub(super) fn of(yard: &Yard, item: ItemId, fence: i64) -> Self {
        Self {
            item,
            fence,
            file: file(yard.folder.path(), &item.to_string(), fence),
        }
    }

    fn beats(&self) -> Vec<Beat> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let beats = text.lines().map(|line| {
            let mut words = line.split(' ');
            let mut next = || words.next().unwrap();
            Beat {
                name: next().to_owned(),
                pid: next().parse().unwrap(),
                at: Timestamp::from_nanosecond(next().parse().unwrap()).unwrap(),
            }
        });
        beats.collect()
    }

    pub(super) fn first_beat(&self) -> Timestamp {
        let beats = self.beats().into_iter().map(|beat| beat.at);
        beats.min().expect("the run was begun")
    }

    pub(super) fn last_beat(&self) -> Timestamp {
        let beats = self.beats().into_iter().map(|beat| beat.at);
        beats.max().expect("the run was begun")
    }

    /// Whether every member has told that it lives.
    pub(super) fn is_grown(&self) -> bool {
        let names: BTreeSet<String> = self.beats().into_iter().map(|beat| beat.name).collect();
        names.into_iter().eq(MEMBERS)
    }

    /// Waits until every member lives.
    pub(super) async fn grown(&self) {
        within(Duration::from_secs(20), "the tree is grown", async || {
            // The shell between leader and child is seen, too; or nothing that is said of who lives is
            // true.
            let is_seen = || self.living().len() > MEMBERS.len();
            (self.is_grown() && is_seen()).then_some(())
        })
        .await;
    }

    fn told(&self) -> BTreeSet<i32> {
        self.beats().into_iter().map(|beat| beat.pid).collect()
    }

    fn living_by(&self, look: &custody::Look) -> BTreeSet<i32> {
        look.of_run(self.item, self.fence, &self.told())
    }

    /// The processes of it that may still execute: those that are found, and those that told.
    pub(super) fn living(&self) -> BTreeSet<i32> {
        self.living_by(&custody::Look::now())
    }

    /// As [`Tree::living`], and those that have told that they did.
    pub(super) fn ever(&self) -> BTreeSet<i32> {
        self.told().into_iter().chain(self.living()).collect()
    }

    /// Waits until nothing of it executes, and answers when that was seen.
    pub(super) async fn gone(&self, limit: Duration) -> Timestamp {
        gone(&[self], limit).await[0]
    }
}

/// Waits until nothing of these executes, and answers when that was seen, of each.
pub(super) async fn gone(trees: &[&Tree], limit: Duration) -> Vec<Timestamp> {
    let seen: Vec<Cell<Option<Timestamp>>> = trees.iter().map(|_| Cell::default()).collect();
    within(limit, "the trees are gone", async || {
        let looked = now();
        // Twice: one may be missed while its parent ends.
        let looks = [custody::Look::now(), custody::Look::now()];
        for (tree, seen) in trees.iter().zip(&seen) {
            if looks.iter().all(|look| tree.living_by(look).is_empty()) {
                seen.set(seen.get().or(Some(looked)));
            } else {
                assert_eq!(seen.get(), None, "it was gone, and is there again");
            }
        }
        seen.iter().map(Cell::get).collect()
    })
    .await
}
