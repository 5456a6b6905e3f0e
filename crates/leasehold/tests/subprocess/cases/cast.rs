//! What a worker process of a case does: it runs items as commands until it is told to stop.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use leasehold::core::rules::RetryPolicy;
use leasehold::fence::protocol::{Channel, Level, RegisteredError, RegisteredErrors, ResultRule};
use leasehold::fence::{Environment, Fence};
use leasehold::{
    Executor, InProcess, ItemId, Kind, KindSettings, Program, QueueSource, Redaction, Run, Stopper,
    Subprocess, Work, WorkItem, Worker, WorkerSettings,
};
use leasehold_testkit::fault::Faults;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use crate::yard::{Page, Part, Process, Role, Yard, inserted, millis, within};

/// How a worker process is set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cast {
    pub(super) role: Role,
    pub(super) commands: Vec<Command>,
    pub(super) stop_grace_ms: u64,
    pub(super) drain_timeout_ms: u64,
}

impl Cast {
    /// A lease of two seconds, and hardly any time for whoever is asked to end.
    pub(super) fn new(yard: &Yard, name: &str, commands: impl Into<Vec<Command>>) -> Self {
        Self {
            role: Role {
                lease_ms: 2_000,
                poll_ms: 50,
                ..yard.role(name)
            },
            commands: commands.into(),
            stop_grace_ms: 300,
            drain_timeout_ms: 700,
        }
    }

    pub(super) fn start(&self) -> Process {
        Process::start(self)
    }
}

impl Part for Cast {
    const ARGUMENTS: &[&str] = &[];

    fn folder(&self) -> &Path {
        &self.role.folder
    }
}

/// How items of a kind are run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Command {
    pub(super) kind: String,
    pub(super) words: Vec<String>,
    pub(super) time_limit_ms: Option<u64>,
    pub(super) reads_stdin: bool,
    pub(super) ignores_stdout: bool,
    /// Registered, and whether each is retryable.
    pub(super) errors: Vec<(String, bool)>,
    pub(super) redacted: Vec<String>,
    /// Variables of the worker's that it is given.
    pub(super) declared: Vec<String>,
}

impl Command {
    pub(super) fn new(kind: &str, words: &[&str]) -> Self {
        Self {
            kind: kind.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            time_limit_ms: None,
            reads_stdin: false,
            ignores_stdout: false,
            errors: Vec::new(),
            redacted: Vec::new(),
            declared: Vec::new(),
        }
    }

    pub(super) fn shell(kind: &str, script: &str) -> Self {
        Self::new(kind, &["/bin/sh", "-c", script])
    }

    fn program(&self, folder: &Path) -> Program {
        let environment = Environment::from_parent(&self.declared)
            .and_then(|all| all.with("MEMBER", std::env::current_exe().unwrap()))
            .and_then(|all| all.with("YARD", folder));
        let (channel, result) = (
            if self.reads_stdin {
                Channel::Stdin
            } else {
                Channel::Environment
            },
            if self.ignores_stdout {
                ResultRule::Ignored
            } else {
                ResultRule::Json
            },
        );
        let errors = self.errors.iter().map(|(name, retryable)| {
            let error = RegisteredError {
                level: Level::Warn,
                retryable: *retryable,
            };
            (name.as_str(), error)
        });
        Program::new(&self.words[0], folder, environment.unwrap())
            .with_arguments(&self.words[1..])
            .with_channel(channel)
            .with_result(result)
            .with_errors(RegisteredErrors::new(errors).unwrap())
            .with_redaction(Redaction::new(&self.redacted))
    }

    /// Tried again at once, so that no case waits for it.
    fn settings(&self) -> KindSettings {
        let at_once = RetryPolicy {
            base: millis(20),
            cap: millis(20),
            jitter: 0.0,
        };
        KindSettings {
            retry: at_once,
            time_limit: self.time_limit_ms.map(millis),
        }
    }
}

/// A worker process, and a queue of its own.
pub(super) struct Play {
    pub(super) yard: Yard,
    pub(super) worker: Process,
}

impl Play {
    pub(super) fn of(commands: impl Into<Vec<Command>>) -> Self {
        Self::with(commands, |_| ())
    }

    pub(super) fn with(commands: impl Into<Vec<Command>>, change: impl FnOnce(&mut Cast)) -> Self {
        let yard = Yard::new();
        let mut cast = Cast::new(&yard, "worker", commands);
        change(&mut cast);
        let worker = cast.start();
        Self { yard, worker }
    }

    /// An item that may be tried twice.
    pub(super) async fn enqueue(&self, kind: &str, payload: &str) -> ItemId {
        let enqueue = self.yard.client.enqueue_raw(kind, payload);
        inserted(enqueue.max_attempts(2).await.unwrap())
    }

    /// Waits until the item is finished.
    pub(super) async fn finished(&self, id: ItemId) -> WorkItem {
        within(LIMIT, &format!("{id} is finished"), async || {
            let item = self.yard.item(id).await;
            item.status.is_final().then_some(item)
        })
        .await
    }

    pub(super) async fn run(&self, kind: &str, payload: &str) -> WorkItem {
        let id = self.enqueue(kind, payload).await;
        self.finished(id).await
    }

    /// Waits until a command of the case has made that file.
    pub(super) async fn made(&self, name: &str) {
        let file = self.yard.folder.path().join(name);
        within(LIMIT, name, async || file.exists().then_some(())).await;
    }

    /// Makes a file that a command of the case waits for.
    pub(super) fn make(&self, name: &str) {
        File::create(self.yard.folder.path().join(name)).unwrap();
    }

    /// What the worker has logged.
    pub(super) fn log(&self) -> String {
        log_of(&self.yard, self.worker.id())
    }

    /// The worker lives still; it is told to stop, and answers what it counted.
    pub(super) async fn over(mut self) -> Page {
        assert!(self.worker.has_ended().is_none(), "the worker has ended");
        self.worker.stop().await
    }
}

/// Cuts the worker off from its store, as a proxy that swallows everything; [`RECONNECT`] undoes it.
pub(super) const CUT_OFF: Signal = Signal::USR1;
pub(super) const RECONNECT: Signal = Signal::USR2;

/// The worker process.
pub(super) fn work(cast: &Cast) {
    let role = &cast.role;
    log_to(&log_file(&role.folder, std::process::id()));
    let faults = Faults::new(0);
    obey(faults.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let fence = Fence::start().unwrap();
    runtime.block_on(async {
        let source = QueueSource::new(faults.wrap(role.stores()));
        let commands =
            cast.commands
                .iter()
                .fold(Subprocess::new(fence.clone()), |executor, command| {
                    let kind = Kind::parse(&command.kind).unwrap();
                    executor.handle(kind, command.program(&role.folder), command.settings())
                });
        let executor = commands.beside(blocker(&role.folder)).unwrap();
        let settings = WorkerSettings {
            stop_grace: millis(cast.stop_grace_ms),
            drain_timeout: millis(cast.drain_timeout_ms),
            ..role.settings()
        };
        let worker = Worker::new(source, executor, settings).unwrap();
        let metrics = worker.metrics();
        let stopper = Stopper::new();
        stopper.on_signals().unwrap();
        worker.run(stopper).await.unwrap();
        Page::write(&role.folder, &metrics);
    });
    drop(runtime);
    fence.close();
}

/// An item whose handler blocks its thread, which is the only one that handlers have.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Block {}

impl Work for Block {
    const KIND: &'static str = "BLOCK";
}

/// While it blocks there is this file, and it goes on until there is that one.
pub(super) const BLOCKED: &str = "blocked";
pub(super) const UNBLOCK: &str = "unblock";

fn blocker(folder: &Path) -> InProcess {
    let (blocked, unblock) = (folder.join(BLOCKED), folder.join(UNBLOCK));
    let handler = move |_: Block, _: Run| {
        let (blocked, unblock) = (blocked.clone(), unblock.clone());
        async move {
            File::create(blocked).unwrap();
            // No longer than any case.
            for _ in 0..3_000 {
                if unblock.exists() {
                    return;
                }
                std::thread::park_timeout(millis(10)); // real time: another process says how long
            }
        }
    };
    InProcess::new().handle::<Block>(handler).unwrap()
}

/// Listens on a thread of its own: a case may block all others.
fn obey(faults: Faults) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let (mut cut_off, mut reconnect) = {
        let _inside = runtime.enter();
        let signal = |wanted: Signal| signal(SignalKind::from_raw(wanted.as_raw())).unwrap();
        (signal(CUT_OFF), signal(RECONNECT))
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = cut_off.recv() => faults.block_all(),
                    _ = reconnect.recv() => faults.unblock_all(),
                }
            }
        });
    });
}

/// What the worker process of that number has logged.
pub(super) fn log_of(yard: &Yard, process: u32) -> String {
    std::fs::read_to_string(log_file(yard.folder.path(), process)).unwrap_or_default()
}

fn log_file(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("log-{process}"))
}

fn log_to(file: &Path) {
    tracing_subscriber::fmt()
        .with_writer(Mutex::new(File::create(file).unwrap()))
        .with_ansi(false)
        .with_max_level(LevelFilter::DEBUG)
        .init();
}

/// No case waits longer for anything.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
