//! The workers of one process: made from the settings, run and ended together.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_util::future::join_all;
use leasehold::core::rules::RetryPolicy;
use leasehold::{
    Beat, HealthPort, Idleness, Kind, KindSettings, Metrics, Program, QueueSource, Redaction,
    Stopper, Stores, Subprocess, Worker, WorkerError, WorkerSettings,
};
use leasehold_fence::protocol::RegisteredErrors;
use leasehold_fence::{Environment, Fence};
use tokio::sync::oneshot;

use crate::config::{Config, KindConfig};
use crate::database::{Database, Queue, Verdict};
use crate::failure::Failure;
use crate::screen::Screen;

/// Workers about to run: checked, their port bound, nothing claimed yet.
pub(super) struct Crew {
    queue: Queue,
    workers: Vec<Member>,
    /// Of several workers; one alone has its own.
    port: Option<HealthPort>,
    introduction: String,
}

struct Member {
    name: String,
    lanes: String,
    worker: Worker<QueueSource, Arc<Subprocess>>,
}

/// Warns where nothing stands behind the statements that keep tenants apart, and refuses to work where a fence
/// hides the work.
async fn look_at_fences(database: &Database) -> Result<(), Failure> {
    for verdict in database.fences().await? {
        match verdict {
            Verdict::Up(what) => tracing::debug!("{what}"),
            Verdict::Down { what, remedy } => tracing::warn!("{what}; {remedy}"),
            Verdict::InTheWay { what, remedy } => {
                return Err(Failure::cannot_open("there is nothing to work on here")
                    .because(what)
                    .remedy(remedy));
            }
        }
    }
    Ok(())
}

/// Puts the schedules of the file. Without a file there are none to be compared with those that are stored.
async fn declare(config: &Config, queue: &Queue) -> Result<(), Failure> {
    if config.file.is_none() {
        return Ok(());
    }
    let owner = &config.worker.settings.name;
    let schedules = config.schedules.values();
    let schedules = schedules.map(|schedule| schedule.value.clone()).collect();
    let declared = queue.declare_schedules(owner, schedules).await?;
    for name in &declared.put {
        tracing::info!(schedule = name, "a schedule was put");
    }
    Ok(())
}

impl Crew {
    /// Opens the queue, which is made if there is none, and prepares a worker for the lanes that share
    /// a capacity and one for each that has its own.
    pub(super) async fn of(config: &Config, fence: &Fence) -> Result<Self, Failure> {
        if config.step_functions.is_some() {
            return Err(
                Failure::usage("the settings are those of a worker for Step Functions")
                    .because(
                        "they have a section [step_functions], and this command works on a queue",
                    )
                    .remedy("use `leasehold run`, or leave the section out"),
            );
        }
        if config.kinds.is_empty() {
            return Err(Failure::usage("there is nothing to run")
                .because("no kind of work has a command")
                .remedy(
                    "add a section [kinds.HELLO] with a command to leasehold.toml, or try \
                     `leasehold run HELLO -- python3 hello.py`",
                ));
        }
        let executor = Arc::new(executor(&config.kinds, fence)?);
        let settings = config.workers();
        let database = Database::of(config)?.serving(config.calls_at_once())?;
        let queue = database.open_or_create().await?;
        look_at_fences(&database).await?;
        declare(config, &queue).await?;
        let stores = queue.stores().clone();
        let port = shared_port(config, &settings)?;
        let workers: Result<Vec<Member>, Failure> = settings
            .into_iter()
            .map(|settings| Member::of(settings, &stores, &executor))
            .collect();
        let workers = workers?;
        let kinds: Vec<&str> = config.kinds.keys().map(Kind::as_str).collect();
        let lanes: Vec<&str> = workers.iter().map(|member| member.lanes.as_str()).collect();
        let introduction = format!(
            "runs {} from {} of {database}; Ctrl-C drains",
            kinds.join(", "),
            lanes.join("; "),
        );
        Ok(Self {
            queue,
            workers,
            port,
            introduction,
        })
    }

    /// Says what is about to run, and where its health is told: whoever chose port 0 wants to know.
    pub(super) fn introduce(&self, screen: &Screen) {
        if !screen.is_json() {
            screen.talk(&self.introduction);
        }
        let shared = self.port.iter().filter_map(|port| port.address().ok());
        let own = self.workers.iter();
        let own = own.filter_map(|member| member.worker.health_address());
        for address in shared.chain(own) {
            tracing::info!(%address, "/healthz and /metrics are served");
        }
    }

    /// What they work on.
    pub(super) const fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(super) fn ids(&self) -> Vec<String> {
        let workers = self.workers.iter();
        workers
            .map(|member| member.worker.id().to_string())
            .collect()
    }

    pub(super) fn metrics(&self) -> Vec<Arc<Metrics>> {
        let workers = self.workers.iter();
        workers.map(|member| member.worker.metrics()).collect()
    }

    pub(super) fn idleness(&self) -> Vec<Idleness> {
        let workers = self.workers.iter();
        workers.map(|member| member.worker.idleness()).collect()
    }

    /// Runs all of them until they have drained; if one ends before its time, the others are asked to
    /// go, too. Answers how many items could not be handed back.
    pub(super) async fn run(self, stopper: &Stopper) -> Result<usize, WorkerError> {
        let _serving = self.port.map(|port| {
            let answers: Vec<(String, Arc<Beat>, Arc<Metrics>)> = self
                .workers
                .iter()
                .map(|member| {
                    let worker = &member.worker;
                    (member.name.clone(), worker.beat(), worker.metrics())
                })
                .collect();
            Serving::begin(port.serve(answers))
        });
        let runs = self.workers.into_iter().map(|member| async {
            let ended = member.worker.run(stopper.clone()).await;
            // Asked again, the others would not wait for what still runs.
            if !stopper.was_asked() {
                stopper.stop();
            }
            ended
        });
        let ended = join_all(runs).await;
        // Of what was handed back.
        self.queue.told().await;
        ended.into_iter().try_fold(0, |abandoned, end| {
            end.map(|drained| abandoned + drained.abandoned)
        })
    }
}

impl Member {
    fn of(
        settings: WorkerSettings,
        stores: &Stores,
        executor: &Arc<Subprocess>,
    ) -> Result<Self, Failure> {
        let lanes: Vec<&str> = settings.lanes.iter().map(leasehold::Lane::as_str).collect();
        let lanes = match lanes.as_slice() {
            [lane] => format!("lane {lane}"),
            lanes => format!("lanes {}", lanes.join(", ")),
        };
        let name = settings.name.clone();
        let worker = Worker::new(QueueSource::new(stores.clone()), executor.clone(), settings)
            .map_err(|error| not_made(&error))?;
        Ok(Self {
            name,
            lanes,
            worker,
        })
    }
}

pub(super) fn not_made(error: &WorkerError) -> Failure {
    let failure = Failure::usage("the worker cannot be started").because(error);
    match error {
        WorkerError::Port { .. } => {
            failure.remedy("stop what listens there, or choose another with --health")
        }
        _ => failure.remedy(
            "correct the settings; `leasehold config show --origin` says where they come from",
        ),
    }
}

/// The port for several workers of one process; one alone binds its own.
fn shared_port(config: &Config, workers: &[WorkerSettings]) -> Result<Option<HealthPort>, Failure> {
    match (config.worker.settings.health, workers) {
        (Some(address), [_, _, ..]) => HealthPort::bind(address)
            .map(Some)
            .map_err(|error| not_made(&WorkerError::Port { address, error })),
        _ => Ok(None),
    }
}

/// A port served on a thread of its own until this is dropped, so that nothing can starve it.
struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn begin(serve: impl Future<Output = ()> + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let started = std::thread::Builder::new()
            .name("leasehold-health".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                match runtime {
                    Ok(runtime) => runtime.block_on(async {
                        tokio::select! {
                            () = serve => {}
                            _ = stopped => {}
                        }
                    }),
                    Err(error) => tracing::error!(%error, "the health port cannot be served"),
                }
            });
        let thread = started
            .map_err(|error| tracing::error!(%error, "the health port cannot be served"))
            .ok();
        Self {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended by itself.
            let _ = stop.send(());
        }
        // The port is closed when the thread has ended, a moment later, so that a successor can bind it.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn executor(kinds: &BTreeMap<Kind, KindConfig>, fence: &Fence) -> Result<Subprocess, Failure> {
    kinds.iter().try_fold(
        Subprocess::new(fence.clone()),
        |executor, (kind, config)| {
            let settings = KindSettings {
                retry: RetryPolicy {
                    base: config.retry_base.value,
                    cap: config.retry_cap.value,
                    jitter: config.retry_jitter.value,
                },
                time_limit: config.time_limit.value,
            };
            Ok(executor.handle(kind.clone(), program(kind, config)?, settings))
        },
    )
}

/// What runs tasks: the same commands, without what only items of a queue have.
#[cfg(feature = "aws")]
pub(super) fn executor_of_tasks(
    kinds: &BTreeMap<Kind, KindConfig>,
    tasks: &leasehold_aws::StepFunctionsSettings,
    fence: &Fence,
) -> Result<Subprocess, Failure> {
    kinds.iter().try_fold(
        Subprocess::new(fence.clone()),
        |executor, (kind, config)| {
            let mut config = config.clone();
            let names = leasehold_aws::TASK_VARIABLES.map(str::to_owned);
            config.environment.value.extend(names);
            let program = program(kind, &config)?.as_task(&tasks.token_field);
            let settings = KindSettings {
                retry: RetryPolicy::default(),
                time_limit: Some(
                    config
                        .time_limit
                        .value
                        .map_or(tasks.message_processing_timeout, |limit| {
                            limit.min(tasks.message_processing_timeout)
                        }),
                ),
            };
            Ok(executor.handle(kind.clone(), program, settings))
        },
    )
}

/// What runs the items of a kind, by its section of the settings.
fn program(kind: &Kind, config: &KindConfig) -> Result<Program, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("the command of {kind} cannot be run")).because(error)
    };
    let environment =
        Environment::from_parent(&config.environment.value).map_err(|error| refused(&error))?;
    let directory =
        std::path::absolute(&config.directory.value).map_err(|error| refused(&error))?;
    let errors = config.errors.iter();
    let errors = RegisteredErrors::new(errors.map(|(name, error)| (name, error.value)))
        .map_err(|error| refused(&error))?;
    let (name, arguments) = config
        .command
        .value
        .split_first()
        .ok_or_else(|| refused(&"it is empty"))?;
    let mut program = Program::new(name, directory, environment)
        .with_arguments(arguments)
        .with_channel(config.request.value)
        .with_result(config.result.value)
        .with_errors(errors)
        .with_redaction(Redaction::new(&config.redact.value))
        .with_output_bytes_max(config.stdout_bytes_max.value, config.stderr_bytes_max.value);
    if config.no_new_privileges.value {
        program = program.without_new_privileges();
    }
    Ok(program)
}
