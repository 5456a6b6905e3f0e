//! Moving a kind from a queue's table to Step Functions changes the source, and not the handler.

use std::sync::Arc;

use leasehold::core::store::work::Enqueued;
use leasehold::{
    Client, InProcess, Json, QueueSource, Run, Status, Stopper, SystemClock, Work, Worker,
    WorkerSettings,
};
use leasehold_aws::{Route, Routes};
use leasehold_fence::protocol::Channel;
use serde::{Deserialize, Serialize};

use super::harness::{Started, settings};
use super::world::{Standing, World};

#[derive(Debug, Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Work for Greet {
    const KIND: &'static str = "GREET";
}

/// The handler, of which nothing says where its work comes from.
async fn greet(work: Greet, _: Run) -> Json<serde_json::Value> {
    Json(serde_json::json!({ "greeting": format!("hello {}", work.name) }))
}

fn executor() -> InProcess {
    InProcess::new().handle::<Greet>(greet).unwrap()
}

const GREETING: &str = "{\"greeting\":\"hello Ann\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_handler_serves_a_table_and_step_functions() {
    let folder = tempfile::tempdir().unwrap();
    let options = leasehold_sqlite::Options::new(Arc::new(SystemClock));
    let store = leasehold_sqlite::open(folder.path().join("q.db"), options).unwrap();
    let client = Client::single_tenant(store.stores()).unwrap();
    let greet = Greet {
        name: "Ann".to_owned(),
    };
    let Enqueued::Inserted(item) = client.enqueue(&greet).await.unwrap() else {
        panic!("it is new");
    };
    let id = item.id;
    let source = QueueSource::new(store.stores());
    let worker = Worker::new(source, executor(), WorkerSettings::default()).unwrap();
    let mut idle = worker.idleness();
    let stopper = Stopper::new();
    let running = tokio::spawn(worker.run(stopper.clone()));
    idle.reached().await;
    stopper.stop();
    running.await.unwrap().unwrap();
    let item = client.get(id).await.unwrap().unwrap();
    assert_eq!(item.status, Status::Done);
    assert_eq!(item.result.unwrap().as_str(), GREETING);

    let world = World::new();
    world.open("t1");
    world.post("{\"task_token\": \"t1\", \"name\": \"Ann\"}");
    let routes = Routes::all_to(Route {
        kind: leasehold::Kind::parse("GREET").unwrap(),
        channel: Channel::Stdin,
    });
    let worker = Started::routed(&world, settings(), executor(), Some(world.clone()), routes);
    world.until("succeed t1", 1).await;
    worker.stop().await;
    assert_eq!(
        world.standing("t1"),
        Standing::Succeeded(GREETING.to_owned())
    );
}
