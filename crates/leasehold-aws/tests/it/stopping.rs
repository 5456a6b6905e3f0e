//! Shutdown: nothing new, what is begun is finished under protection, what cannot be is told at once.

use std::time::Duration;

use leasehold_aws::StepFunctionsSettings;

use super::harness::{SEC, Started, pass, settings};
use super::world::{Fault, Standing, World};

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_run_end_and_receives_no_more() {
    let world = World::new();
    world.send("t1", "sleep 40");
    let worker = Started::on(&world, settings());
    world.until("run t1", 1).await;
    let next = world.send("t2", "ok");
    worker.ask_to_stop();
    let received = world.count("receive");
    worker.ended().await;
    assert_eq!(world.count("receive"), received);
    assert!(matches!(world.standing("t1"), Standing::Succeeded(_)));
    assert!(!world.is_deleted(next) && world.is_visible(next));
    assert_eq!(world.told().last().unwrap(), "unprotect", "last of all");
}

/// The look at the queue that is under way is let end; what it brings goes back at once.
#[tokio::test(start_paused = true)]
async fn what_the_last_look_brings_goes_back() {
    let world = World::new();
    let worker = Started::on(&world, settings());
    world.until("receive", 1).await;
    pass(SEC).await;
    worker.ask_to_stop();
    pass(SEC).await;
    let message = world.send("t1", "ok");
    worker.ended().await;
    assert_eq!(world.deliveries(message), 1);
    assert!(world.is_visible(message) && !world.is_deleted(message));
    assert_eq!(world.standing("t1"), Standing::Open);
    assert_eq!(world.count("receive"), 1);
}

/// Idle, it is gone once the look has ended.
#[tokio::test(start_paused = true)]
async fn an_idle_worker_goes_when_its_look_ends() {
    let world = World::new();
    let worker = Started::on(&world, settings());
    world.until("receive", 1).await;
    pass(3 * SEC).await;
    worker.ask_to_stop();
    let asked = world.now();
    worker.ended().await;
    assert!(world.now().saturating_sub(asked) <= 8 * SEC);
}

/// Near the end of the stop time what still runs is killed and told as such, and protection ends last.
#[tokio::test(start_paused = true)]
async fn near_the_end_of_the_stop_time_a_run_is_cut_short() {
    let world = World::new();
    world.send("t1", "never");
    let worker = Started::on(&world, settings());
    world.until("run t1", 1).await;
    worker.ask_to_stop();
    let asked = world.now();
    let drained = worker.ended().await;
    assert_eq!(drained.abandoned, 0);
    let told = world.told();
    let from = told.iter().position(|what| what == "stop").unwrap();
    let end: Vec<&String> = told[from..]
        .iter()
        .filter(|what| *what != "heartbeat t1")
        .collect();
    assert_eq!(
        end,
        ["stop", "end t1", "fail t1 WorkerStopping", "unprotect"]
    );
    let took = world.now().saturating_sub(asked);
    assert!(took >= 50 * SEC && took < 60 * SEC, "{took:?}");
    assert!(
        world.moments("heartbeat t1").last() > Some(&(asked + 30 * SEC)),
        "kept to the end"
    );
}

/// Asked a second time it does not wait.
#[tokio::test(start_paused = true)]
async fn a_second_request_cuts_runs_short_at_once() {
    let world = World::new();
    world.send("t1", "never");
    let worker = Started::on(&world, settings());
    world.until("run t1", 1).await;
    worker.ask_to_stop();
    pass(SEC).await;
    worker.ask_to_stop();
    let asked = world.now();
    world.until("fail t1 WorkerStopping", 1).await;
    assert!(world.now().saturating_sub(asked) <= SEC);
    worker.ended().await;
}

/// A stop at any moment of a message's way: it is done, told, or back in the queue, and never stranded.
#[tokio::test(start_paused = true)]
async fn a_stop_at_any_step_strands_nothing() {
    let slow = || [Fault::Slow(5 * SEC)];
    for step in ["heartbeat", "protect", "delete", "succeed", "unprotect"] {
        let world = World::new();
        let message = world.send("t1", "ok");
        world.script(step, slow());
        let worker = Started::on(&world, settings());
        let named = match step {
            "delete" => "delete m0".to_owned(),
            "heartbeat" | "succeed" => format!("{step} t1"),
            step => step.to_owned(),
        };
        world.until(&named, 1).await;
        pass(Duration::from_millis(100)).await;
        worker.ask_to_stop();
        worker.ended().await;
        let told = match world.standing("t1") {
            Standing::Succeeded(_) => true,
            Standing::Failed(error, _) => error == "WorkerStopping",
            Standing::Open | Standing::TimedOut => false,
        };
        let back = world.is_visible(message);
        assert!(told != back, "{step}: {:#?}", world.told());
        assert_eq!(back, matches!(step, "heartbeat" | "protect"), "{step}");
    }
}

/// A stop before the first look: nothing is received at all.
#[tokio::test(start_paused = true)]
async fn a_stop_that_comes_first_receives_nothing() {
    let world = World::new();
    let message = world.send("t1", "ok");
    let worker = Started::on(&world, StepFunctionsSettings::default());
    worker.ask_to_stop();
    worker.ended().await;
    assert_eq!((world.count("receive"), world.deliveries(message)), (0, 0));
}
