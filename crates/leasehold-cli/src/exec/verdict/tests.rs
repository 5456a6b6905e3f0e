//! What is told of runs that cannot be had by a command of a test's own.

use leasehold::Kind;
use leasehold_fence::capture::StderrCapture;
use leasehold_fence::protocol::{RegisteredErrors, ResultRule};
use leasehold_fence::{Ending, Finished, SpawnFailure};

use super::{Outputs, Told, Verdict};

fn verdict(ending: Ending, stdout: &str) -> Verdict {
    let finished = Finished {
        ending,
        stdout: stdout.into(),
        stderr: StderrCapture::new(1 << 10),
    };
    Verdict::of(&finished, &RegisteredErrors::default(), ResultRule::Json)
}

fn told(verdict: Verdict, ending: &Ending) -> String {
    let told = Told {
        kind: &Kind::parse("SEND").unwrap(),
        ending: Some(ending),
        verdict,
        outputs: Outputs::default(),
        took: std::time::Duration::from_secs(75),
    };
    told.lines().join("\n")
}

#[test]
fn a_passing_trouble_of_the_system_spends_no_attempt() {
    let ending = Ending::SpawnFailed(SpawnFailure::System {
        reason: "out of memory".to_owned(),
    });
    let verdict = verdict(ending.clone(), "");
    assert!(matches!(&verdict, Verdict::HandedBack { note } if note == "out of memory"));
    insta::assert_snapshot!(told(verdict, &ending), @"
    not started: out of memory
      the item would be handed back, and no attempt be spent
    ");
}

#[test]
fn a_run_that_was_stopped_has_no_outcome() {
    for ending in [Ending::Killed, Ending::LeaseLost] {
        assert_eq!(verdict(ending, r#"{"a": 1}"#), Verdict::Stopped);
    }
    let told = told(Verdict::Stopped, &Ending::Killed);
    insta::assert_snapshot!(told, @"
    ended: stopped on request, after 1m15s
    wrote: 0 bytes to stdout (at most 0), 0 to stderr (0 are kept)
    stopped: the run has no outcome
      the item would be handed back, and no attempt be spent
    ");
}

#[test]
fn a_result_that_no_store_can_hold_is_final() {
    let verdict = verdict(Ending::Exited { code: 0 }, r#"{"text": "\u0000"}"#);
    assert!(
        matches!(&verdict, Verdict::Failed { name, message, retryable: false, .. }
            if name == "result_invalid" && message.contains("$.text")),
        "{verdict:?}"
    );
}

#[test]
fn each_answer_has_a_code_of_its_own() {
    use crate::failure::Exit;
    let exit = |code, stdout| verdict(Ending::Exited { code }, stdout).answer().exit();
    assert_eq!(exit(0, "{}"), Exit::Done);
    assert_eq!(exit(1, r#"{"error": "Bad", "message": ""}"#), Exit::Failed);
    assert_eq!(
        exit(75, r#"{"reason": "later", "retry_after": 1}"#),
        Exit::No
    );
}
