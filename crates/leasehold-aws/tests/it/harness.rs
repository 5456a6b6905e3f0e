//! A worker over the fakes, and a handler that does what its request says.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    Drained, Executor, HandlerError, InProcess, Json, Kind, Metrics, Outcome, Run, Stopper, Work,
    Worker, WorkerError, WorkerSettings,
};
use leasehold_aws::{Agent, Route, Routes, StepFunctions, StepFunctionsSettings};
use leasehold_fence::protocol::Channel;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::world::World;

pub(crate) const SEC: Duration = Duration::from_secs(1);

/// Lets time pass: virtual time skips to it once nothing else is to be done.
pub(crate) async fn pass(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    task_token: String,
    does: String,
}

impl Work for Job {
    const KIND: &'static str = "JOB";
}

/// Begun here, ended when dropped, however the run ends.
struct Noted(Arc<World>, String);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.run_ends(&self.1);
    }
}

/// Does as it is told, in the words of the request: `ok`, `fail`, `panic`, `park`, `large`,
/// `sleep 7`, `never`, and `heed`, which ends when it is asked to.
pub(crate) fn handler(world: &Arc<World>) -> InProcess {
    let world = world.clone();
    let handler = move |job: Job, run: Run| {
        let world = world.clone();
        async move {
            world.run_begins(&job.task_token);
            let _noted = Noted(world, job.task_token.clone());
            match job.does.split_once(' ').unwrap_or((&job.does, "")) {
                ("fail", "") => Err(HandlerError::new("no such key").with_code("BadAsset")),
                ("fail", text) => Err(HandlerError::new(text)),
                ("panic", _) => panic!("as asked"),
                ("park", _) => Ok(Outcome::Parked {
                    reason: "no quota".into(),
                    resume_after: SEC,
                }),
                ("large", _) => Ok(done(&"ü".repeat(150_000))),
                ("sleep", seconds) => {
                    let seconds = seconds.parse().expect("seconds");
                    pass(Duration::from_secs(seconds)).await;
                    Ok(done("slept"))
                }
                ("heed", _) => {
                    run.cancelled().await;
                    Err(HandlerError::new("asked to end"))
                }
                ("never", _) => std::future::pending().await,
                _ => Ok(done("ok")),
            }
        }
    };
    InProcess::new().handle::<Job>(handler).unwrap()
}

fn done(answer: &str) -> Outcome {
    use leasehold::IntoOutcome as _;
    Json(serde_json::json!({ "answer": answer })).into_outcome()
}

pub(crate) fn routes() -> Routes {
    Routes::all_to(Route {
        kind: Kind::parse("JOB").unwrap(),
        channel: Channel::Stdin,
    })
}

/// One at a time, ten minutes of protection, a minute's time to stop in.
pub(crate) fn settings() -> StepFunctionsSettings {
    StepFunctionsSettings {
        stop_time: 60 * SEC,
        protection_period: 600 * SEC,
        ..StepFunctionsSettings::default()
    }
}

pub(crate) struct Started {
    pub(crate) world: Arc<World>,
    pub(crate) metrics: Arc<Metrics>,
    stopper: Stopper,
    run: JoinHandle<Result<Drained, WorkerError>>,
}

impl Started {
    pub(crate) fn on(world: &Arc<World>, settings: StepFunctionsSettings) -> Self {
        Self::with(world, settings, handler(world), Some(world.clone()))
    }

    pub(crate) fn with<E: Executor>(
        world: &Arc<World>,
        settings: StepFunctionsSettings,
        executor: E,
        agent: Option<Arc<World>>,
    ) -> Self {
        Self::routed(world, settings, executor, agent, routes())
    }

    pub(crate) fn routed<E: Executor>(
        world: &Arc<World>,
        settings: StepFunctionsSettings,
        executor: E,
        agent: Option<Arc<World>>,
        routes: Routes,
    ) -> Self {
        let for_worker = settings.worker(WorkerSettings::default());
        let agent = agent.map(|world| world as Arc<dyn Agent>);
        let source = StepFunctions::with_clock(
            world.clone(),
            world.clone(),
            agent,
            routes,
            settings,
            world.clock.clone(),
        );
        let worker = Worker::new(source.unwrap(), executor, for_worker)
            .unwrap()
            .with_clock(world.clock.clone());
        let stopper = Stopper::new();
        Self {
            world: world.clone(),
            metrics: worker.metrics(),
            run: tokio::spawn(worker.run_here(stopper.clone())),
            stopper,
        }
    }

    pub(crate) fn ask_to_stop(&self) {
        self.world.note("stop");
        self.stopper.stop();
    }

    /// Waits for its end; nothing is left on.
    pub(crate) async fn ended(self) -> Drained {
        let drained = self.run.await.unwrap().unwrap();
        assert!(!self.world.is_protected(), "{:#?}", self.world.told());
        self.world.check();
        drained
    }

    pub(crate) async fn stop(self) -> Drained {
        self.ask_to_stop();
        self.ended().await
    }
}
