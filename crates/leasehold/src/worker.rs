//! The worker: claims, keeps, runs, settles, and hands back when asked to go.
//!
//! Three kinds of threads take part. The **loop** claims, dispatches and settles on a thread of its
//! own and stamps the beat that `/healthz` judges. The **keeper** renews leases, publishes liveness
//! and serves the health port on another. **Handlers** run on the runtime that called
//! [`Worker::run`]. No handler can starve the other two.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_core::store::liveness::WorkerBeat;
use leasehold_core::{ClaimToken, Clock, Kind, NameError, WorkerId};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::clock::SystemClock;
use crate::config::{self, SettingsError, WorkerSettings};
use crate::executor::Executor;
use crate::health::{self, Beat};
use crate::shutdown::Stopper;
use crate::source::Source;
use crate::sweep::Sweep;
use crate::telemetry::Metrics;

#[cfg(feature = "simulation")]
pub mod dispatch;
#[cfg(not(feature = "simulation"))]
#[expect(unreachable_pub, reason = "open to the simulation, behind its feature")]
mod dispatch;
#[cfg(feature = "simulation")]
pub mod trust;
#[cfg(not(feature = "simulation"))]
#[expect(unreachable_pub, reason = "open to the simulation, behind its feature")]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "some questions only the simulation asks")
)]
mod trust;

mod drive;
pub(crate) mod holdings;
mod keeper;
mod liveness;
pub(crate) mod outages;
mod runner;
mod settle;
mod sweeping;
mod ticker;

pub(crate) use dispatch::Verdict;
pub use dispatch::{Ending, KindSettings};

use dispatch::{Chance, Dispatch, DispatchSettings};
use drive::{Drive, Load, LoopEnd};
use holdings::Holdings;
use keeper::Keeper;
use liveness::Liveness;
use outages::Outages;
use runner::Runner;
use sweeping::Sweeping;
use ticker::Ticker;

/// A worker about to run: checked, its port bound, nothing claimed yet.
#[derive(Debug)]
pub struct Worker<S, E> {
    source: Arc<S>,
    executor: Arc<E>,
    settings: Arc<WorkerSettings>,
    id: WorkerId,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    beat: Arc<Beat>,
    load: watch::Sender<Load>,
    port: Option<std::net::TcpListener>,
}

/// Tells when a worker has nothing to do; stays valid while it runs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Idleness {
    load: watch::Receiver<Load>,
}

impl Idleness {
    /// Whether the worker holds nothing, and its last claim found nothing. False before the first claim
    /// was answered, and after one that failed.
    pub fn is_idle(&self) -> bool {
        self.load.borrow().idle
    }

    /// Completes when the worker is idle, at once if it is; and when it has ended. Safe to drop.
    pub async fn reached(&mut self) {
        // An error says that the worker has ended.
        let _ = self.load.wait_for(|load| load.idle).await;
    }
}

/// Why a worker did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A setting breaks its rule. Correct it.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A name breaks its rule. Correct it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The executor knows no kind: there would be nothing to claim.
    #[error("no handler is registered, so there is nothing to claim; register one with `handle`")]
    NoKinds,
    /// The health port could not be bound.
    #[error("the health port {address} cannot be bound: {error}")]
    Port {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A thread could not be started, or ended before its time.
    #[error("a thread of the worker failed: {0}")]
    Thread(String),
    /// Too many runs did not end when they had to. Exit, so that the platform replaces the process.
    #[error("{stuck} runs do not end (stuck_max is {stuck_max}); the process must be replaced")]
    Stuck {
        /// How many.
        stuck: u32,
        /// How many are put up with.
        stuck_max: u32,
    },
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Items that could not be handed back in time; they expire, and the sweep recovers them.
    pub abandoned: usize,
}

impl<S: Source, E: Executor> Worker<S, E> {
    /// Checks the settings and binds the health port. Claims nothing yet.
    ///
    /// # Errors
    /// [`WorkerError`] names the setting and its rule.
    pub fn new(source: S, executor: E, settings: WorkerSettings) -> Result<Self, WorkerError> {
        settings.check()?;
        if let Some(calls_max) = source.stores().and_then(|stores| stores.calls_max) {
            settings.check_calls(calls_max)?;
        }
        if executor.kinds().is_empty() {
            return Err(WorkerError::NoKinds);
        }
        config::check_kinds(executor.kinds())?;
        let port = match settings.health {
            Some(address) => {
                Some(health::bind(address).map_err(|error| WorkerError::Port { address, error })?)
            }
            None => None,
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let mut metrics = Metrics::new();
        metrics.begin(executor.kinds().keys());
        let metrics = Arc::new(metrics);
        source.attach(&metrics);
        Ok(Self {
            source: Arc::new(source),
            executor: Arc::new(executor),
            id: settings.worker_id()?,
            metrics,
            beat: Arc::new(Beat::new(clock.clone(), settings.heartbeat_interval)),
            settings: Arc::new(settings),
            clock,
            load: watch::Sender::new(Load::default()),
            port,
        })
    }

    /// With another clock, for tests.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.beat = Arc::new(Beat::new(clock.clone(), self.settings.heartbeat_interval));
        self.clock = clock;
        self
    }

    /// The id of this start.
    pub fn id(&self) -> &WorkerId {
        &self.id
    }

    /// What it counts; stays valid after the worker has ended.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// The loop's beat; stays valid after the worker has ended.
    pub fn beat(&self) -> Arc<Beat> {
        self.beat.clone()
    }

    /// Tells when it has nothing to do.
    pub fn idleness(&self) -> Idleness {
        Idleness {
            load: self.load.subscribe(),
        }
    }

    /// Where `/healthz` and `/metrics` are served.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.port.as_ref().and_then(|port| port.local_addr().ok())
    }

    /// Runs until `stopper` asks it to go and everything is handed back, within the drain's limits.
    ///
    /// The loop and the keeper get threads of their own; handlers run on the calling runtime.
    /// Dropping the future asks for a drain, which goes on by itself in those threads.
    ///
    /// A handler that never awaits keeps its thread after the worker has ended, and a runtime that is
    /// dropped waits for it: end the runtime with `shutdown_background`, or exit the process.
    ///
    /// # Errors
    /// [`WorkerError::Stuck`] after a drain that too many stuck runs caused; [`WorkerError::Thread`].
    pub async fn run(self, stopper: Stopper) -> Result<Drained, WorkerError> {
        let settings = self.settings.clone();
        let left = CancellationToken::new();
        let Parts { looping, keeping } = self.parts(Handle::current(), &stopper, left.clone());
        let _leaves_on_drop = left.drop_guard();
        let keeper_stop = CancellationToken::new();
        let kept = on_thread(KEEPER, keeping.run(keeper_stop.clone()))?;
        // The keeper ends with the loop, also if this future is dropped and nobody waits any more.
        let ends_with_the_loop = keeper_stop.drop_guard();
        let end = on_thread(LOOP, async move {
            let end = looping.run().await;
            drop(ends_with_the_loop);
            end
        })?;
        // The keeper ends well only after the loop. If it ends otherwise nobody renews any more: what
        // runs is stopped and handed back at once.
        let kept = ended(KEEPER, kept).await;
        if kept.is_err() {
            stopper.stop();
            stopper.stop();
        }
        let end = ended(LOOP, end).await?;
        kept?;
        verdict(end, &settings)
    }

    /// As [`Worker::run`], with the loop and the keeper on the calling runtime as well.
    ///
    /// For tests with a paused clock: everything moves on one timeline. A handler that blocks starves
    /// the keeper here, which is why [`Worker::run`] does otherwise. Dropping the future is as a crash:
    /// nothing is handed back, and handlers under way are left to themselves.
    ///
    /// # Errors
    /// As [`Worker::run`].
    pub async fn run_here(self, stopper: Stopper) -> Result<Drained, WorkerError> {
        let settings = self.settings.clone();
        let left = CancellationToken::new();
        let Parts { looping, keeping } = self.parts(Handle::current(), &stopper, left);
        let keeper_stop = CancellationToken::new();
        let kept = AbortOnDropHandle::new(tokio::spawn(keeping.run(keeper_stop.clone())));
        let end = looping.run().await;
        keeper_stop.cancel();
        kept.await
            .map_err(|error| WorkerError::Thread(error.to_string()))?;
        verdict(end, &settings)
    }

    fn parts(self, handlers: Handle, stopper: &Stopper, left: CancellationToken) -> Parts<S, E> {
        let (announce, events) = mpsc::channel(drive::EVENTS_WAITING_MAX);
        let load = self.load;
        let outages = Arc::new(Outages::default());
        let holdings = Arc::new(Holdings::new(self.settings.stop_grace));
        let dispatch_settings = DispatchSettings {
            worker: self.id.clone(),
            lanes: self.settings.lanes.clone(),
            kinds: self.executor.kinds().clone(),
            capacity: self.settings.capacity,
            prefetch: self.settings.prefetch,
            claim_max: config::CLAIM_MAX,
            lease: self.settings.lease,
            poll_interval: self.settings.poll_interval,
            tenant_cap: self.settings.tenant_cap,
            requeue_spread: self.settings.requeue_spread,
            stop_grace: self.settings.stop_grace,
            drain_finish: self.settings.drain_finish,
            drain_timeout: self.settings.drain_timeout,
            drain_kill: self.settings.drain_kill,
        };
        let now = self.clock.elapsed();
        let dispatch = Dispatch::new(dispatch_settings, Box::new(SystemChance), now);
        let stores = self.source.stores().cloned();
        let kinds: Vec<Kind> = self.executor.kinds().keys().cloned().collect();
        let keeper = Keeper {
            source: self.source.clone(),
            holdings: holdings.clone(),
            events: announce.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            outages: outages.clone(),
            lease: self.settings.lease,
        };
        let liveness = stores.as_ref().map(|stores| Liveness {
            store: stores.liveness.clone(),
            beat: WorkerBeat {
                worker: self.id.clone(),
                lanes: self.settings.lanes.clone(),
                kinds,
                capacity: self.settings.capacity,
                running: 0,
                draining: false,
                started_at: self.clock.now(),
            },
            interval: self.settings.heartbeat_interval,
            load: load.subscribe(),
            metrics: self.metrics.clone(),
        });
        let sweep = stores.map(|stores| Sweep {
            stores,
            tenancy: self.source.tenancy().clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            outages: outages.clone(),
            settings: self.settings.clone(),
            worker: self.id.clone(),
        });
        let runner = Arc::new(Runner {
            executor: self.executor,
            holdings: holdings.clone(),
            announce,
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
        });
        let drive = Drive {
            source: self.source.clone(),
            runner,
            dispatch,
            holdings,
            handlers,
            events,
            stop: stopper.subscribe(),
            left,
            clock: self.clock,
            metrics: self.metrics.clone(),
            outages,
            beat: self.beat.clone(),
            audits: TaskTracker::new(),
            load,
            settings: self.settings.clone(),
            app: Arc::from(self.id.as_str()),
        };
        Parts {
            looping: Looping {
                source: self.source,
                drive,
                ticker: sweep.as_ref().map(Ticker::beside),
                sweep: sweep.map(Sweeping::new),
            },
            keeping: Keeping {
                keeper,
                liveness,
                port: self.port,
                beat: self.beat,
                metrics: self.metrics,
            },
        }
    }
}

/// The names of the two threads.
const KEEPER: &str = "leasehold-keeper";
const LOOP: &str = "leasehold-loop";

struct Parts<S, E> {
    looping: Looping<S, E>,
    keeping: Keeping<S>,
}

/// What runs on the loop's thread.
struct Looping<S, E> {
    source: Arc<S>,
    drive: Drive<S, E>,
    sweep: Option<Sweeping>,
    ticker: Option<Ticker>,
}

impl<S: Source, E: Executor> Looping<S, E> {
    async fn run(self) -> LoopEnd {
        let sweep_stop = CancellationToken::new();
        let sweeping = self
            .sweep
            .map(|sweep| tokio::spawn(sweep.run(sweep_stop.clone())))
            .map(AbortOnDropHandle::new);
        let ticking = self
            .ticker
            .map(|ticker| tokio::spawn(ticker.run(sweep_stop.clone())))
            .map(AbortOnDropHandle::new);
        let end = self.drive.run().await;
        self.source.close().await;
        sweep_stop.cancel();
        if let Some(sweeping) = sweeping {
            // A sweep that panicked has ended too; the loop's own end counts.
            let _ = sweeping.await;
        }
        if let Some(ticking) = ticking {
            let _ = ticking.await;
        }
        end
    }
}

/// What runs on the keeper's thread.
struct Keeping<S> {
    keeper: Keeper<S>,
    liveness: Option<Liveness>,
    port: Option<std::net::TcpListener>,
    beat: Arc<Beat>,
    metrics: Arc<Metrics>,
}

impl<S: Source> Keeping<S> {
    async fn run(self, stop: CancellationToken) {
        let serving = self
            .port
            .map(|port| tokio::spawn(health::serve(port, self.beat, self.metrics)))
            .map(AbortOnDropHandle::new);
        let living = self
            .liveness
            .map(|liveness| tokio::spawn(liveness.run(stop.clone())))
            .map(AbortOnDropHandle::new);
        self.keeper.run(stop).await;
        // Going offline is the last step but for the port, which answers until the end.
        if let Some(living) = living {
            let _ = living.await;
        }
        if let Some(serving) = serving {
            serving.abort();
            // Closed by the time the worker has ended, so that a successor can bind it.
            let _ = serving.await;
        }
    }
}

/// Runs a future on a thread and a runtime of its own. The end is awaited with [`ended`].
fn on_thread<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<oneshot::Receiver<io::Result<T>>, WorkerError> {
    let (tell, end) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // Made here: a runtime must not be dropped where others wait, as it would be if the thread
            // could not be started.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            // Nobody may be waiting any more, which is no reason not to end well.
            let _ = tell.send(runtime.map(|runtime| runtime.block_on(future)));
        })
        .map_err(|error| WorkerError::Thread(format!("{name}: {error}")))?;
    Ok(end)
}

/// What the thread of this name came to.
async fn ended<T>(
    name: &'static str,
    end: oneshot::Receiver<io::Result<T>>,
) -> Result<T, WorkerError> {
    let failed = |why: &dyn std::fmt::Display| WorkerError::Thread(format!("{name}: {why}"));
    let end = end.await.map_err(|_| failed(&"it ended early"))?;
    end.map_err(|error| failed(&error))
}

fn verdict(end: LoopEnd, settings: &WorkerSettings) -> Result<Drained, WorkerError> {
    match (end.stuck, settings.stuck_max) {
        (Some(stuck), Some(stuck_max)) => Err(WorkerError::Stuck { stuck, stuck_max }),
        _ => Ok(Drained {
            abandoned: end.abandoned,
        }),
    }
}

/// Randomness from the operating system.
struct SystemChance;

impl Chance for SystemChance {
    fn token(&mut self) -> ClaimToken {
        ClaimToken::mint()
    }

    fn jitter(&mut self) -> f64 {
        fastrand::f64()
    }
}
