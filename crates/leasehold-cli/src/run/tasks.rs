//! A worker for tasks of Step Functions: the same commands, another source.

use std::sync::Arc;

use leasehold::core::Clock as _;
use leasehold::{Stopper, SystemClock, Worker};
use leasehold_aws::{Agent, AgentEndpoint, Connection, StepFunctions};
use leasehold_fence::Fence;

use super::crew;
use super::summary::Summary;
use crate::config::{Config, StepFunctionsConfig};
use crate::failure::Failure;
use crate::screen::Screen;
use crate::stops::Stops;

/// Takes tasks until asked to stop, and finishes those that it has begun.
pub(super) async fn work(
    config: &Config,
    tasks: &StepFunctionsConfig,
    fence: &Fence,
    stops: &mut Stops,
    screen: &Screen,
) -> Result<Summary, Failure> {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::usage("tasks of Step Functions cannot be taken").because(error)
    };
    let settings = tasks.settings.clone();
    let agent = AgentEndpoint::from_environment().map_err(|error| refused(&error))?;
    let agent = agent.map(|agent| Arc::new(agent) as Arc<dyn Agent>);
    let connection = Connection::new(&tasks.queue, settings.poll_wait)
        .await
        .map_err(|error| refused(&error))?;
    let connection = Arc::new(connection);
    let executor = crew::executor_of_tasks(&config.kinds, &settings, fence)?;
    let for_worker = settings.worker(config.worker.settings.clone());
    let source = StepFunctions::new(
        connection.clone(),
        connection,
        agent,
        tasks.routes.clone(),
        settings,
    )
    .map_err(|error| refused(&error))?;
    let worker =
        Worker::new(source, executor, for_worker).map_err(|error| crew::not_made(&error))?;
    if !screen.is_json() {
        let kinds: Vec<&str> = config.kinds.keys().map(leasehold::Kind::as_str).collect();
        screen.talk(&format!(
            "runs {} for the tasks of {}; Ctrl-C drains",
            kinds.join(", "),
            tasks.queue
        ));
    }
    if let Some(address) = worker.health_address() {
        tracing::info!(%address, "/healthz and /metrics are served");
    }
    let begun = SystemClock.elapsed();
    let (workers, metrics) = (vec![worker.id().to_string()], vec![worker.metrics()]);
    let stopper = Stopper::new();
    let running = worker.run(stopper.clone());
    tokio::pin!(running);
    let drained = loop {
        tokio::select! {
            drained = &mut running => break drained,
            () = stops.next() => {
                let text = if stopper.was_asked() {
                    "asked again to stop; nothing is waited for"
                } else {
                    "asked to stop; what runs is finished"
                };
                tracing::info!("{text}");
                stopper.stop();
            }
        }
    };
    let abandoned = drained.map_err(|error| super::not_well(&error))?.abandoned;
    Ok(Summary {
        workers,
        metrics,
        abandoned,
        unhandled: None,
        took: SystemClock.elapsed().since(begun),
    })
}
