//! The worker's small port: `/healthz` and `/metrics`, answered from memory without I/O.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use leasehold_core::{BootTime, Clock};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::telemetry::{self, Metrics};

/// The loop's own liveness: when it last came round.
///
/// Stamped by the loop and read by the port. It is the loop's beat and nobody else's: an outage of a
/// database never stops it, and a loop that hangs always does.
#[derive(Debug)]
pub struct Beat {
    clock: Arc<dyn Clock>,
    /// Nanoseconds since boot; 0 before the first beat.
    last: AtomicU64,
    patience: Duration,
}

impl Beat {
    /// Dead until the first stamp, and whenever the last one is older than three intervals.
    pub(crate) fn new(clock: Arc<dyn Clock>, interval: Duration) -> Self {
        Self {
            clock,
            last: AtomicU64::new(0),
            patience: interval * 3,
        }
    }

    pub(crate) fn stamp(&self, now: BootTime) {
        let nanoseconds = u64::try_from(now.since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.last.store(nanoseconds, Ordering::Release);
    }

    /// How long ago the loop last came round; `None` before it first did.
    pub fn age(&self) -> Option<Duration> {
        let last = self.last.load(Ordering::Acquire);
        let stamped = BootTime::new(Duration::from_nanos(last));
        (last > 0).then(|| self.clock.elapsed().since(stamped))
    }

    /// Whether the loop lives.
    pub fn is_alive(&self) -> bool {
        self.age().is_some_and(|age| age <= self.patience)
    }

    fn answer(&self) -> (StatusCode, String) {
        match self.age() {
            None => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the loop has not started\n".to_owned(),
            ),
            Some(age) if age <= self.patience => (StatusCode::OK, "ok\n".to_owned()),
            Some(age) => {
                let text = format!(
                    "the loop has not come round for {:.1} s; it may take {:.1} s\n",
                    age.as_secs_f64(),
                    self.patience.as_secs_f64()
                );
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

/// Probes come one at a time; more at once are somebody's mistake and wait.
const CONNECTIONS_MAX: usize = 32;
/// A probe that does not send its request in time is hung up on.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(10);

/// Binds the port before anything starts, so that a taken one refuses the start.
///
/// # Errors
/// The operating system's, such as "address in use".
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// One port for several workers of a process: `/healthz` answers for the sickest of them, `/metrics`
/// with what all of them count.
///
/// A single worker serves its own: [`WorkerSettings::health`](crate::WorkerSettings::health).
#[derive(Debug)]
pub struct HealthPort {
    listener: std::net::TcpListener,
}

/// What one port answers for.
#[derive(Debug, Clone)]
struct Members(Arc<[Member]>);

#[derive(Debug)]
struct Member {
    /// Told apart from the others by this; a worker that is alone needs no name.
    name: Option<String>,
    beat: Arc<Beat>,
    metrics: Arc<Metrics>,
}

impl HealthPort {
    /// Binds the port, so that one that is taken refuses the start.
    ///
    /// # Errors
    /// The operating system's, such as "address in use".
    pub fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = bind(address)?;
        Ok(Self { listener })
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// The operating system's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for the workers of these names until it is dropped. Run it where no handler can starve
    /// it, such as on a thread of its own.
    pub async fn serve(self, workers: impl IntoIterator<Item = (String, Arc<Beat>, Arc<Metrics>)>) {
        let members = workers.into_iter().map(|(name, beat, metrics)| Member {
            name: Some(name),
            beat,
            metrics,
        });
        accept(self.listener, Members(members.collect())).await;
    }
}

impl Members {
    /// That of the loop that has been away for longest.
    fn health(&self) -> (StatusCode, String) {
        let answers = self.0.iter().map(|member| (member, member.beat.answer()));
        let worst = answers.max_by_key(|(member, (status, _))| {
            let age = member.beat.age().unwrap_or(Duration::MAX);
            (*status != StatusCode::OK, age)
        });
        match worst {
            Some((member, (status, text))) if status != StatusCode::OK => {
                let name = member.name.as_deref().map(|name| format!("{name}: "));
                (status, format!("{}{text}", name.unwrap_or_default()))
            }
            _ => (StatusCode::OK, "ok\n".to_owned()),
        }
    }

    fn metrics(&self) -> String {
        match &*self.0 {
            [member] if member.name.is_none() => member.metrics.encode(),
            members => {
                let pages = members.iter().map(|member| {
                    let name = member.name.as_deref().unwrap_or_default();
                    (name, member.metrics.encode())
                });
                telemetry::merged(pages)
            }
        }
    }
}

/// Serves one worker until dropped.
pub(crate) async fn serve(listener: std::net::TcpListener, beat: Arc<Beat>, metrics: Arc<Metrics>) {
    let member = Member {
        name: None,
        beat,
        metrics,
    };
    accept(listener, Members(Arc::new([member]))).await;
}

async fn accept(listener: std::net::TcpListener, members: Members) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the health port cannot be served");
            return;
        }
    };
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: wait for some to be closed.
                tracing::warn!(%error, "a probe could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let members = members.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = respond(request.uri().path(), &members);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A probe that hangs up early is its own affair.
            let _ = tokio::time::timeout(CONNECTION_LIFETIME, connection).await;
            drop(slot);
        });
    }
}

fn respond(path: &str, members: &Members) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match path {
        "/healthz" => {
            let (status, text) = members.health();
            (status, plain, text)
        }
        "/metrics" => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, kind, members.metrics())
        }
        _ => (
            StatusCode::NOT_FOUND,
            plain,
            "only /healthz and /metrics are here\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
