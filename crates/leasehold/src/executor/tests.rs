use leasehold_core::{JsonObject, NewItem, RequestContext, RequestId};
use serde::{Deserialize, Serialize};

use super::*;
use crate::handler::HandlerError;
use crate::tenancy::SingleTenant;

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    n: u32,
}

impl Work for Job {
    const KIND: &'static str = "JOB";
}

fn run(kind: &str, payload: &str) -> Run {
    let now = jiff::Timestamp::constant(1_767_225_600, 0);
    let kind = Kind::parse(kind).unwrap();
    let item = NewItem::new(kind, JsonObject::parse(payload).unwrap(), now).into_row(now);
    let app = leasehold_core::App {
        kind: leasehold_core::AppKind::Worker,
        version: "test".into(),
    };
    let request = RequestContext::new(RequestId::mint(), app);
    Run::for_test(SingleTenant::owner_context(&request).unwrap(), item)
}

async fn ending(executor: &InProcess, run: Run) -> Ending {
    executor.run(run, CancellationToken::new()).await
}

#[tokio::test]
async fn an_unknown_kind_is_handed_back() {
    let executor = InProcess::new()
        .handle::<Job>(|_: Job, _: Run| async {})
        .unwrap();
    let Ending::Outcome(Outcome::Released { note }) = ending(&executor, run("OTHER", "{}")).await
    else {
        panic!("not released");
    };
    assert!(note.as_str().contains("OTHER"), "{note}");
}

#[tokio::test]
async fn a_payload_that_does_not_fit_never_reaches_the_handler() {
    let executor = InProcess::new()
        .handle::<Job>(|job: Job, _: Run| async move { assert_eq!(job.n, 1, "it was called") })
        .unwrap();
    let ending = ending(&executor, run("JOB", r#"{"n":-1}"#)).await;
    let Ending::Outcome(Outcome::Failed { failure, .. }) = ending else {
        panic!("{ending:?}");
    };
    assert_eq!(failure.code.as_str(), FailureCode::PAYLOAD_INVALID);
    assert!(!failure.retryable);
}

#[tokio::test]
async fn a_kill_drops_the_handler_at_its_next_await() {
    let executor = InProcess::new()
        .handle::<Job>(|_: Job, _: Run| std::future::pending::<()>())
        .unwrap();
    let kill = CancellationToken::new();
    let running = executor.run(run("JOB", r#"{"n":1}"#), kill.clone());
    let killing = async {
        // Polled after the run, which has begun by then.
        kill.cancel();
    };
    let (ending, ()) = tokio::join!(biased; running, killing);
    assert!(matches!(ending, Ending::Killed));
}

#[tokio::test]
async fn a_run_that_is_killed_before_it_begins_never_reaches_the_handler() {
    let executor = InProcess::new()
        .handle::<Job>(|job: Job, _: Run| async move { assert_eq!(job.n, 2, "it was called") })
        .unwrap();
    let kill = CancellationToken::new();
    kill.cancel();
    let ending = executor.run(run("JOB", r#"{"n":1}"#), kill).await;
    assert!(matches!(ending, Ending::Unbegun));
}

#[tokio::test]
async fn what_has_ended_by_itself_was_not_killed() {
    let kill = CancellationToken::new();
    let killed_meanwhile = kill.clone();
    let executor = InProcess::new()
        .handle::<Job>(move |_: Job, _: Run| {
            killed_meanwhile.cancel();
            async {}
        })
        .unwrap();
    let ending = executor.run(run("JOB", r#"{"n":1}"#), kill).await;
    assert!(matches!(ending, Ending::Outcome(Outcome::Done { .. })));
}

#[test]
fn a_kind_that_is_no_name_is_refused() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Odd {}
    impl Work for Odd {
        const KIND: &'static str = "send invoice";
    }
    let refused = InProcess::new().handle::<Odd>(|_: Odd, _: Run| async {});
    let message = refused.err().map(|error| error.to_string()).unwrap();
    assert!(message.contains("send invoice"), "{message}");
}

#[tokio::test]
async fn two_executors_run_side_by_side_each_its_own_kinds() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Other {}
    impl Work for Other {
        const KIND: &'static str = "OTHER";
    }
    let first = InProcess::new()
        .handle::<Job>(|_: Job, _: Run| async { Err::<(), _>(HandlerError::new("first")) })
        .unwrap();
    let second = InProcess::new()
        .handle::<Other>(|_: Other, _: Run| async { Err::<(), _>(HandlerError::new("second")) })
        .unwrap();
    let both = first.beside(second).unwrap();
    assert_eq!(both.kinds().len(), 2);
    for (kind, payload, said) in [("JOB", r#"{"n":1}"#, "first"), ("OTHER", "{}", "second")] {
        let ending = both.run(run(kind, payload), CancellationToken::new()).await;
        let Ending::Outcome(Outcome::Failed { failure, .. }) = ending else {
            panic!("{ending:?}");
        };
        assert_eq!(failure.message.as_str(), said);
    }
}

#[test]
fn a_kind_that_two_executors_know_is_refused() {
    let knows = || {
        InProcess::new()
            .handle::<Job>(|_: Job, _: Run| async {})
            .unwrap()
    };
    let refused = knows().beside(knows()).err().unwrap();
    assert!(refused.to_string().contains("JOB"), "{refused}");
}

#[test]
fn no_command_can_report_a_code_of_our_own() {
    let ours: std::collections::BTreeSet<&str> = FailureCode::RESERVED.iter().copied().collect();
    let reserved = leasehold_fence::protocol::RESERVED_NAMES;
    assert_eq!(ours, reserved.into_iter().collect());
}
