//! The workers' processes: starting them, hearing them, and doing them harm.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::plan::{Plan, WORKERS};
use super::process::{self, Process};
use super::report::Report;
use crate::failure::Failure;

/// The workers. Dropping it kills those that live, the frozen one included.
pub(super) struct Crew {
    members: Vec<Member>,
    reports: mpsc::Receiver<Heard>,
}

/// Which of the workers, from 0.
pub(super) type Who = usize;

/// What a worker said; `None` when its output ended.
pub(super) type Heard = (Who, Option<Report>);

struct Member {
    process: Process,
    /// As it stands on items.
    worker: Option<String>,
    state: State,
}

/// How a worker fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It works.
    Running,
    /// It was stopped.
    Frozen,
    /// It was killed.
    Dead,
    /// It was asked to go.
    Leaving,
}

/// How many reports may wait; a worker that is ahead of us waits in turn.
const REPORTS_MAX: usize = 1_024;

impl Crew {
    /// Starts the workers.
    pub(super) fn start(
        plan: &Plan,
        queue: &Path,
        folder: &Path,
        verbose: u8,
    ) -> Result<Self, Failure> {
        let (tell, reports) = mpsc::channel(REPORTS_MAX);
        let mut members = Vec::with_capacity(WORKERS);
        for who in 0..WORKERS {
            let command = command(who, plan, queue, folder, verbose)?;
            let (process, stdout) = Process::start(command)?;
            tokio::spawn(hear(who, stdout, tell.clone()));
            members.push(Member {
                process,
                worker: None,
                state: State::Running,
            });
        }
        Ok(Self { members, reports })
    }

    /// The name, and the process behind it.
    pub(super) fn introduction(&self, who: Who) -> String {
        match self.members.get(who) {
            Some(member) => format!("{} (pid {})", name(who), member.process.pid()),
            None => name(who),
        }
    }

    /// The worker of that name on an item.
    pub(super) fn who(&self, worker: &str) -> Option<Who> {
        self.members
            .iter()
            .position(|member| member.worker.as_deref() == Some(worker))
    }

    /// How the worker fares.
    pub(super) fn state(&self, who: Who) -> Option<State> {
        self.members.get(who).map(|member| member.state)
    }

    /// The workers in that state.
    pub(super) fn all(&self, state: State) -> impl Iterator<Item = Who> {
        self.members
            .iter()
            .enumerate()
            .filter(move |(_, member)| member.state == state)
            .map(|(who, _)| who)
    }

    /// Whether all have said that they run.
    pub(super) fn is_complete(&self) -> bool {
        self.members.iter().all(|member| member.worker.is_some())
    }

    /// What is said next, or nothing within the time.
    pub(super) async fn hear(&mut self, within: Duration) -> Option<Heard> {
        let heard = timeout(within, self.reports.recv()).await.ok().flatten()?;
        if let (who, Some(Report::Started { worker })) = &heard
            && let Some(member) = self.members.get_mut(*who)
        {
            member.worker = Some(worker.clone());
        }
        Some(heard)
    }

    /// SIGKILL, and waits until the process is gone. What it had said before can still be heard.
    pub(super) async fn kill(&mut self, who: Who) -> Result<(), Failure> {
        let member = self.member(who)?;
        member.state = State::Dead;
        member.process.kill().await
    }

    /// SIGSTOP, and waits until no thread of the process runs.
    pub(super) async fn freeze(&mut self, who: Who) -> Result<(), Failure> {
        let member = self.member(who)?;
        member.state = State::Frozen;
        member.process.freeze().await
    }

    /// SIGCONT.
    pub(super) fn thaw(&mut self, who: Who) -> Result<(), Failure> {
        let member = self.member(who)?;
        member.state = State::Running;
        member.process.thaw()
    }

    /// Asks those that run to drain; each tells when it has.
    pub(super) fn dismiss(&mut self) {
        for member in &mut self.members {
            if member.state == State::Running {
                member.state = State::Leaving;
                member.process.dismiss();
            }
        }
    }

    /// Waits until those that were asked to drain have gone, and answers whether all ended well.
    pub(super) async fn gone(&mut self, patience: Duration) -> bool {
        let mut well = true;
        for member in &mut self.members {
            if member.state == State::Leaving {
                well &= member.process.ends_well(patience).await;
            }
        }
        well
    }

    fn member(&mut self, who: Who) -> Result<&mut Member, Failure> {
        self.members
            .get_mut(who)
            .ok_or_else(|| Failure::failed(format!("there is no {}", name(who))))
    }
}

/// The name of a worker, as the story tells it.
pub(super) fn name(who: Who) -> String {
    format!("worker-{}", who + 1)
}

fn command(
    who: Who,
    plan: &Plan,
    queue: &Path,
    folder: &Path,
    verbose: u8,
) -> Result<Command, Failure> {
    let mut command = process::command("demo-worker")?;
    command
        .args(["--name", &name(who)])
        .arg("--queue")
        .arg(queue)
        .arg("--folder")
        .arg(folder)
        .args(["--capacity", &plan.capacity.to_string()])
        .args(["--pace-ms", &plan.pace.as_millis().to_string()])
        .args((0..verbose).map(|_| "-v"));
    Ok(command)
}

/// Passes on what a worker says, and that it has ended.
async fn hear(who: Who, stdout: ChildStdout, tell: mpsc::Sender<Heard>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(report) = Report::read(&line)
            && tell.send((who, Some(report))).await.is_err()
        {
            return;
        }
    }
    // If nobody listens, nobody needs to know.
    let _ = tell.send((who, None)).await;
}
