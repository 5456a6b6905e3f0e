//! The order of calls, on every path and with a fault at each step.

use super::harness::{SEC, Started, pass, settings};
use super::world::{Fault, Standing, World};

/// The path of a message that goes well.
#[tokio::test(start_paused = true)]
async fn a_task_is_protected_deleted_run_and_reported_in_this_order() {
    let world = World::new();
    world.send("t1", "sleep 20");
    let worker = Started::on(&world, settings());
    world.until("unprotect", 1).await;
    let expected = [
        "heartbeat t1",
        "protect",
        "delete m0",
        "run t1",
        "heartbeat t1",
        "end t1",
        "succeed t1",
        "unprotect",
    ];
    assert_eq!(world.told(), expected);
    assert_eq!(
        world.standing("t1"),
        Standing::Succeeded("{\"answer\":\"slept\"}".to_owned())
    );
    worker.stop().await;
    assert_eq!(world.count("unprotect"), 1, "given up once");
}

/// Each step meets each fault once. Whatever it is: nothing wrong is seen by the fakes, the task is
/// closed once or its message is there, no protection is left on, and the worker goes on.
#[tokio::test(start_paused = true)]
async fn a_fault_at_any_step_breaks_no_order_and_loses_nothing() {
    use Fault::{Broken, Busy, Closed, Denied, Expired, Foreign, Hangs, Lost, Refused, Slow};
    let slow = Slow(5 * SEC);
    let faults: [(&'static str, Vec<Fault>); 8] = [
        ("receive", vec![Busy, Broken, Hangs, slow.clone(), Refused]),
        ("heartbeat", vec![Busy, Broken, Hangs, slow.clone(), Closed]),
        (
            "protect",
            vec![
                Busy,
                Broken,
                Hangs,
                slow.clone(),
                Denied,
                Lost,
                Foreign,
                Expired,
            ],
        ),
        (
            "delete",
            vec![Busy, Broken, Hangs, slow.clone(), Denied, Lost],
        ),
        ("release", vec![Busy, Broken, Hangs, slow.clone()]),
        (
            "succeed",
            vec![Busy, Broken, Hangs, slow.clone(), Closed, Lost, Refused],
        ),
        (
            "fail",
            vec![Busy, Broken, Hangs, slow.clone(), Closed, Lost],
        ),
        ("unprotect", vec![Busy, Broken, Hangs, slow]),
    ];
    for (call, faults) in faults {
        for fault in faults {
            for times in [1, 2, 3, 7] {
                let case = format!("{call}: {fault:?} × {times}");
                let world = World::new();
                let does = if call == "fail" { "fail" } else { "sleep 20" };
                let message = world.send("t1", does);
                if call == "release" {
                    world.script("protect", [Denied]);
                }
                world.script(call, vec![fault.clone(); times]);
                let worker = Started::on(&world, settings());
                let over =
                    |world: &World| world.standing("t1") != Standing::Open && world.running() == 0;
                // Somebody else's by now, or deleted without a word of it: the state's own heartbeat
                // ends the try, and nothing was begun.
                let is_lost = call == "delete" && (fault == Denied || fault == Lost);
                if is_lost {
                    world.until("delete m0", 1).await;
                    pass(30 * SEC).await;
                } else {
                    world.until_true(over).await;
                }
                // The next one is done whatever happened to the first.
                world.forget_scripts();
                world.send("t2", "ok");
                world
                    .until_true(|world| world.standing("t2") != Standing::Open)
                    .await;
                worker.stop().await;
                assert!(
                    is_lost || world.is_deleted(message),
                    "{case}: {:#?}",
                    world.told()
                );
            }
        }
    }
}
