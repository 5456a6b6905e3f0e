use std::path::PathBuf;

use super::*;

/// A child at the other end of whose socket nobody stands but the case.
fn child() -> (Child, OwnedFd) {
    let (own, far) = wire::pair().unwrap();
    let streams = Streams {
        stdout: None,
        stderr: None,
        stdout_bytes_max: 16,
        stderr_bytes_max: 16,
    };
    let invocation = Invocation {
        directory: PathBuf::from("/"),
        arguments: vec!["true".into()],
        environment: Vec::new(),
    };
    (Child::new(own, streams, &invocation).unwrap(), far)
}

/// The spawner died with it in its ear: nothing was ever executed, and nobody need wait.
#[tokio::test]
async fn a_run_that_is_lost_on_its_way_ends() {
    let (child, far) = child();
    drop(far);
    let ending = child.finish(|_| ()).await.ending;
    assert!(matches!(ending, Ending::SpawnFailed(_)), "{ending}");
}

/// Once something may have been executed, a silence says nothing about its end.
#[tokio::test]
async fn a_run_that_has_begun_and_is_heard_of_no_more_has_not_ended() {
    let (child, far) = child();
    wire::send(&far, &Report::Begun, &[]).unwrap();
    drop(far);
    let waited = tokio::time::timeout(Duration::from_millis(100), child.finish(|_| ()));
    assert!(waited.await.is_err(), "it was taken for ended");
}

#[tokio::test]
async fn a_report_counts_though_the_other_side_left_orders_unread() {
    let (child, far) = child();
    child
        .control()
        .push(Deadline::after(Duration::from_secs(1)));
    wire::send(&far, &Report::Begun, &[]).unwrap();
    let status = Status::Exited(7);
    let report = Report::Ended {
        cause: None,
        status,
    };
    wire::send(&far, &report, &[]).unwrap();
    drop(far);
    let ending = child.finish(|_| ()).await.ending;
    assert_eq!(ending, Ending::Exited { code: 7 });
}
