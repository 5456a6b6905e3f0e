//! What a caller process of a case does: it runs the tree of the case's yard under a lease, pushes the
//! deadline, and notes what it did and saw.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_fence::{Control, Deadline, Fence};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::processes::{Holdings, now, signal_to};
use crate::yard::{PROGRAM, Yard, move_to, shell, tree, tree_in};

/// The file by which a caller is told to carry out its plan.
const GO: &str = "go";

/// Set in a caller process: the [`Role`] it plays.
const ROLE: &str = "LEASEHOLD_FENCE_CALLER";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Role {
    pub(super) folder: PathBuf,
    pub(super) lease: Duration,
    pub(super) plan: Plan,
    /// The control group to move to, if any.
    pub(super) group: Option<PathBuf>,
}

/// What the caller does once it is told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Plan {
    /// Goes on pushing.
    Keep,
    /// Pushes no more.
    CutOff,
    Terminate,
    Kill,
    /// Goes on pushing, with a time limit from the start.
    Limit,
    /// Goes on pushing, and lets the leader leave.
    Leave,
    /// Runs something else, and kills the tree then.
    Again,
}

/// One thing that a caller noted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Note {
    /// When the last accepted word of the lease was sent, since boot.
    Pushed(Duration),
    /// How something else ended that was run meanwhile.
    Again(String),
    /// How the tree ended, and how many of it were there when that was reported.
    Ended { ending: String, left: usize },
    /// Before the fence was started, and after it was closed.
    Held(Holdings, Holdings),
}

/// The grace of [`Plan::Terminate`] and [`Plan::Limit`].
const GRACE: Duration = Duration::from_millis(200);
/// The time limit of [`Plan::Limit`].
const LIMIT: Duration = Duration::from_millis(1_500);

/// Not a case by itself: does nothing unless it is started in a role.
#[test]
fn caller() {
    let Some(role) = std::env::var_os(ROLE) else {
        return;
    };
    let role: Role = serde_json::from_str(role.to_str().unwrap()).unwrap();
    if let Some(group) = &role.group {
        move_to(group);
    }
    let player = Player(role);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let before = Holdings::own();
    runtime.block_on(player.play());
    before.assert_again();
    player.note(&Note::Held(before, Holdings::own()));
}

/// Plays a role.
struct Player(Role);

impl Player {
    async fn play(&self) {
        let fence = Fence::with_program(PROGRAM).unwrap();
        let leaves = self.0.plan == Plan::Leave;
        let mut command = tree(&self.0.folder, if leaves { "leaver" } else { "leader" });
        if self.0.plan == Plan::Limit {
            command = command.with_time_limit(LIMIT, GRACE);
        }
        let sent = now();
        self.note(&Note::Pushed(sent));
        let child = fence.run(command, Some(self.until(sent))).unwrap();
        let control = child.control();
        let ending = tokio::select! {
            finished = child.finish(|_| ()) => finished.ending,
            () = self.keep(&fence, &control) => unreachable!("it keeps for ever"),
        };
        let tree = tree_in(&self.0.folder).unwrap_or_default();
        let left = tree.iter().filter(|one| one.is_there()).count();
        self.note(&Note::Ended {
            ending: format!("{ending:?}"),
            left,
        });
        drop(control);
        fence.close();
    }

    /// Trust ends at half the lease, counted from when the word was sent.
    fn until(&self, sent: Duration) -> Deadline {
        Deadline::at(sent + self.0.lease / 2)
    }

    async fn keep(&self, fence: &Fence, control: &Control) {
        let mut has_acted = false;
        let mut pushed = now();
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await; // real time: the tree comes about by itself
            let is_cut_off = has_acted && self.0.plan == Plan::CutOff;
            if now() >= pushed + self.0.lease / 4 && !is_cut_off {
                pushed = now();
                control.push(self.until(pushed));
                self.note(&Note::Pushed(pushed));
            }
            if !has_acted && self.0.folder.join(GO).exists() {
                self.act(fence, control).await;
                has_acted = true;
            }
        }
    }

    async fn act(&self, fence: &Fence, control: &Control) {
        match self.0.plan {
            Plan::Keep | Plan::CutOff | Plan::Limit => {}
            Plan::Terminate => control.terminate(GRACE),
            Plan::Kill => control.kill(),
            Plan::Leave => fs::write(self.0.folder.join("leave"), "").unwrap(),
            Plan::Again => {
                let again = fence.run(shell("exit 5"), None).unwrap();
                let ending = again.finish(|_| ()).await.ending;
                self.note(&Note::Again(format!("{ending:?}")));
                control.kill();
            }
        }
    }

    fn note(&self, note: &Note) {
        let path = self.0.folder.join("caller");
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        let mut line = serde_json::to_vec(note).unwrap();
        line.push(b'\n');
        file.write_all(&line).unwrap();
    }
}

/// A caller process, killed and waited for at the latest when dropped.
pub(super) struct Caller {
    child: Child,
    folder: PathBuf,
}

impl Caller {
    pub(super) fn start(yard: &Yard, lease: Duration, plan: Plan, group: Option<&Path>) -> Self {
        let role = Role {
            folder: yard.folder.path().to_owned(),
            lease,
            plan,
            group: group.map(Path::to_owned),
        };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "real_process::caller::caller"])
            .env(ROLE, serde_json::to_string(&role).unwrap())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            folder: role.folder,
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        signal_to(self.pid(), signal);
    }

    /// Tells it to carry out its plan.
    pub(super) fn go(&self) {
        fs::write(self.folder.join(GO), "").unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        notes_in(&self.folder)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn notes_in(folder: &Path) -> Vec<Note> {
    let notes = fs::read_to_string(folder.join("caller")).unwrap_or_default();
    // One that is being written is not whole yet.
    let whole = notes
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    whole.collect()
}
