//! What the source costs: 200 tasks at capacity 16, each a command of 50 ms, over services that answer at
//! once. Time from receipt to report beyond what the command takes when started plainly, resident memory,
//! and descriptors.
//!
//! `cargo run --release -p leasehold-aws --example overhead`

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::core::{BootTime, Clock as _};
use leasehold::{
    Kind, KindSettings, Program, Stopper, Subprocess, SystemClock, Worker, WorkerSettings,
};
use leasehold_aws::{
    Message, Queue, QueueAttributes, QueueError, Receipt, Route, Routes, StepFunctions,
    StepFunctionsSettings, TaskError, TaskToken, Tasks,
};
use leasehold_fence::protocol::Channel;
use leasehold_fence::{Environment, Fence};
use tokio::sync::Notify;

const MESSAGES: usize = 200;
const CAPACITY: u32 = 16;
const COMMAND: &str = "sleep 0.05; echo '{}'";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Both services, which answer at once.
#[derive(Debug, Default)]
struct Services {
    state: Mutex<State>,
    all_told: Notify,
}

#[derive(Debug, Default)]
struct State {
    sent: usize,
    received: HashMap<String, BootTime>,
    took: Vec<Duration>,
    memory: Vec<u64>,
}

impl Services {
    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Queue for Services {
    async fn receive(&self, count: u32, wait: Duration) -> Result<Vec<Message>, QueueError> {
        let now = SystemClock.elapsed();
        let messages: Vec<Message> = self.with(|state| {
            let until = (state.sent + count as usize).min(MESSAGES);
            let numbers = state.sent..until;
            state.sent = until;
            numbers
                .map(|n| {
                    state.received.insert(format!("t{n}"), now);
                    Message {
                        id: format!("m{n}"),
                        receipt: Receipt(format!("m{n}")),
                        body: format!("{{\"task_token\": \"t{n}\"}}"),
                        deliveries: 1,
                    }
                })
                .collect()
        });
        if messages.is_empty() {
            tokio::time::sleep(wait).await;
        }
        Ok(messages)
    }

    async fn delete(&self, _: &Receipt) -> Result<(), QueueError> {
        Ok(())
    }

    async fn release(&self, _: &Receipt) -> Result<(), QueueError> {
        Ok(())
    }

    async fn attributes(&self) -> Result<QueueAttributes, QueueError> {
        Err(QueueError::Busy {
            code: "none".to_owned(),
        })
    }
}

#[async_trait]
impl Tasks for Services {
    async fn heartbeat(&self, _: &TaskToken) -> Result<(), TaskError> {
        Ok(())
    }

    async fn succeed(&self, token: &TaskToken, _: &str) -> Result<(), TaskError> {
        let now = SystemClock.elapsed();
        self.with(|state| {
            if let Some(at) = state.received.remove(token.expose()) {
                state.took.push(now.since(at));
                state.memory.push(resident());
            }
            if state.took.len() == MESSAGES {
                self.all_told.notify_one();
            }
        });
        Ok(())
    }

    async fn fail(&self, _: &TaskToken, error: &str, cause: &str) -> Result<(), TaskError> {
        println!("a task failed: {error}: {cause}");
        self.all_told.notify_one();
        Ok(())
    }
}

fn main() -> Outcome<()> {
    leasehold_fence::enter();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure())
}

async fn measure() -> Outcome<()> {
    let plain = plainly().await?;
    let fence = Fence::start()?;
    let kind = Kind::parse("WORK")?;
    let program = Program::new("/bin/sh", "/", Environment::from_parent(&[])?)
        .with_arguments(["-c", COMMAND])
        .as_task("task_token");
    let executor =
        Subprocess::new(fence.clone()).handle(kind.clone(), program, KindSettings::default());
    let settings = StepFunctionsSettings {
        capacity: CAPACITY,
        poll_wait: Duration::from_secs(1),
        ..StepFunctionsSettings::default()
    };
    let services = Arc::new(Services::default());
    let routes = Routes::all_to(Route {
        kind,
        channel: Channel::Environment,
    });
    let for_worker = settings.worker(WorkerSettings::default());
    let source = StepFunctions::new(services.clone(), services.clone(), None, routes, settings)?;
    let worker = Worker::new(source, executor, for_worker)?;
    let stopper = Stopper::new();
    let open = descriptors()?;
    let running = tokio::spawn(worker.run(stopper.clone()));
    services.all_told.notified().await;
    stopper.stop();
    running.await??;
    let left = descriptors()?;
    let (mut took, memory) = services.with(|state| (state.took.clone(), state.memory.clone()));
    took.sort();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    let at = |share: usize| memory.get(memory.len() * share / 100).copied().unwrap_or(0);
    println!("messages {}, capacity {CAPACITY}", took.len());
    println!("plainly, {CAPACITY} at once: {plain:?} at the median");
    println!(
        "as tasks: {median:?} at the median, {:?} over",
        median.saturating_sub(plain)
    );
    println!(
        "resident KiB after a quarter, a half, all: {}, {}, {}",
        at(25),
        at(50),
        at(99)
    );
    println!("descriptors before and after: {open}, {left}");
    fence.close();
    Ok(())
}

/// The command as anybody would start it, as many at once.
async fn plainly() -> Outcome<Duration> {
    let mut took = Vec::new();
    for _ in 0..8 {
        let runs = (0..CAPACITY).map(|_| {
            tokio::task::spawn_blocking(|| {
                let began = SystemClock.elapsed();
                let ran = std::process::Command::new("/bin/sh")
                    .args(["-c", COMMAND])
                    .output();
                ran.map(|_| SystemClock.elapsed().since(began))
            })
        });
        for run in runs.collect::<Vec<_>>() {
            took.push(run.await??);
        }
    }
    took.sort();
    Ok(took.get(took.len() / 2).copied().unwrap_or_default())
}

/// Of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn descriptors() -> Outcome<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}
