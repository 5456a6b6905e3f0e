//! Messages that are none, come late, come twice, or are more than a worker can take.

use super::harness::{SEC, Started, handler, pass, settings};
use super::world::{Fault, Standing, World};

/// SOURCE-4, a hundred times: the valid one is done, each other is removed, one of them is answered.
#[tokio::test(start_paused = true)]
async fn malformed_messages_are_removed_and_answered_where_they_can_be() {
    let world = World::new();
    let worker = Started::on(&world, settings());
    let random: String = (0..262_144_u32)
        .map(|n| char::from(b' ' + u8::try_from(n * 7 % 90).unwrap()))
        .collect();
    for round in 1..=100 {
        let (good, bad) = (format!("good{round}"), format!("bad{round}"));
        world.send(&good, "ok");
        world.open(&bad);
        let broken = format!("{{\"task_token\": \"{bad}\", \"a\": 1, \"a\": 2}}");
        let mut sent = Vec::new();
        for body in [
            "",
            "plain text",
            "[1, 2]",
            "null",
            "{\"task_token\": 7}",
            &random,
            "{\"a\": 1, \"a\": 2}",
            &broken,
            "{\"task_token\": \"\"}",
        ] {
            sent.push(world.post(body));
        }
        world
            .until_true(|world| {
                sent.iter().all(|number| world.is_deleted(*number))
                    && world.standing(&good) != Standing::Open
            })
            .await;
        assert_eq!(
            world.standing(&good),
            Standing::Succeeded("{\"answer\":\"ok\"}".into())
        );
        let Standing::Failed(error, _) = world.standing(&bad) else {
            panic!("{:?}", world.standing(&bad));
        };
        assert_eq!(error, "MalformedMessage");
        assert!(sent.iter().all(|number| world.deliveries(*number) == 1));
    }
    assert_eq!(worker.metrics.source_events("malformed"), 900);
    assert_eq!(worker.metrics.source_events("succeeded"), 100);
    worker.stop().await;
}

/// A typed handler's own schema is strict, and what it refuses is a malformed message too.
#[tokio::test(start_paused = true)]
async fn what_a_handlers_schema_refuses_is_malformed() {
    let world = World::new();
    world.open("t1");
    world.post("{\"task_token\": \"t1\", \"does\": 7}");
    let worker = Started::on(&world, settings());
    world.until("fail t1 MalformedMessage", 1).await;
    worker.stop().await;
    assert_eq!(world.count("run t1"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_stale_on_arrival_is_dropped() {
    let world = World::new();
    let message = world.send("t1", "ok");
    world.close("t1");
    let worker = Started::on(&world, settings());
    world.until("delete m0", 1).await;
    world.send("t2", "ok");
    world.until("succeed t2", 1).await;
    worker.stop().await;
    assert!(world.is_deleted(message));
    assert_eq!((world.count("run t1"), world.count("heartbeat t1")), (0, 1));
    let first_protection = world.told().iter().position(|what| what == "protect");
    assert!(first_protection > world.told().iter().position(|what| what == "delete m0"));
}

/// A copy of a message whose task is in hand is dropped, and the run goes on.
#[tokio::test(start_paused = true)]
async fn a_second_copy_is_dropped() {
    let world = World::new();
    let settings = leasehold_aws::StepFunctionsSettings {
        capacity: 4,
        ..settings()
    };
    world.send("t1", "sleep 30");
    let worker = Started::on(&world, settings);
    world.until("run t1", 1).await;
    let copy = world.post("{\"task_token\": \"t1\", \"does\": \"sleep 30\"}");
    world.until_true(|world| world.is_deleted(copy)).await;
    assert_eq!(world.running(), 1);
    world.until("succeed t1", 1).await;
    worker.stop().await;
    assert_eq!(world.count("run t1"), 1);
}

/// No more is received than can run.
#[tokio::test(start_paused = true)]
async fn a_worker_takes_no_more_than_it_can_run() {
    let world = World::new();
    let settings = leasehold_aws::StepFunctionsSettings {
        capacity: 3,
        ..settings()
    };
    let sent: Vec<usize> = (0..12)
        .map(|n| world.send(&format!("t{n}"), "sleep 100"))
        .collect();
    let worker = Started::on(&world, settings);
    world.until_true(|world| world.running() == 3).await;
    pass(20 * SEC).await;
    let taken = sent.iter().filter(|number| world.deliveries(**number) > 0);
    assert_eq!(taken.count(), 3);
    world
        .until_true(|world| (0..12).all(|n| world.standing(&format!("t{n}")) != Standing::Open))
        .await;
    assert!(sent.iter().all(|number| world.deliveries(*number) == 1));
    worker.stop().await;
    assert_eq!(
        world.count("protect"),
        1 + worker_renewals(&world),
        "shared"
    );
    assert_eq!(world.count("unprotect"), 1);
}

fn worker_renewals(world: &World) -> usize {
    world.count("protect").saturating_sub(1)
}

/// SOURCE-1, the mode without an agent: it runs, and says so.
#[tokio::test(start_paused = true)]
async fn without_an_agent_work_is_done_unprotected() {
    let world = World::with(false);
    world.send("t1", "ok");
    let worker = Started::with(&world, settings(), handler(&world), None);
    world.until("succeed t1", 1).await;
    worker.stop().await;
    assert_eq!(world.count("protect") + world.count("unprotect"), 0);
}

/// A queue that cannot be used is asked again, seldom.
#[tokio::test(start_paused = true)]
async fn a_queue_out_of_reach_is_not_asked_in_a_hot_loop() {
    let world = World::new();
    world.script("receive", vec![Fault::Refused; 20]);
    let worker = Started::on(&world, settings());
    pass(300 * SEC).await;
    let asked = world.count("receive");
    assert!((5..15).contains(&asked), "{asked}");
    world.send("t1", "ok");
    world.until("succeed t1", 1).await;
    worker.stop().await;
}
