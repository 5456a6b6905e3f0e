//! What commands write: too much, for ever, nothing, or not as text.

use std::time::Duration;

use leasehold_fence::{Command, Ending, Finished};

use crate::processes::{now, status_of};
use crate::yard::{run, shell};

const MIB: usize = 1 << 20;

/// The most that this process has ever held in memory, in KiB.
fn peak_kib() -> usize {
    let peak = status_of(std::process::id(), "VmHWM").unwrap();
    peak.trim_end_matches(" kB").parse().unwrap()
}

/// Both outputs' limits, and room for the pieces that are read.
const GROWTH_MAX_KIB: usize = 8 << 10;

#[tokio::test]
async fn a_flood_of_talk_beside_a_large_result_is_taken_in() {
    let before = peak_kib();
    let script = "head -c 50M /dev/zero >&2; printf '{\"x\":\"'; head -c 1048566 /dev/zero | tr '\\0' y; \
                  printf '\"}'; head -c 50M /dev/zero >&2; exit 0";
    let finished = run(shell(script)).await;
    assert_eq!(finished.ending, Ending::Exited { code: 0 });
    assert_eq!(finished.stdout.len(), MIB - 2);
    let result: serde_json::Value = serde_json::from_slice(&finished.stdout).unwrap();
    assert!(result["x"].is_string());
    assert_eq!(finished.stderr.total_bytes(), 100 * MIB as u64);
    let kept = finished.stderr.to_text();
    assert!(kept.contains("bytes left out"));
    let growth = peak_kib() - before;
    assert!(growth < GROWTH_MAX_KIB, "grew by {growth} KiB");
}

#[tokio::test]
async fn output_without_end_is_cut_off() {
    let before = peak_kib();
    let began = now();
    let finished = run(shell("cat /dev/zero")).await;
    let ending = Ending::OutputTooLarge {
        limit: Command::STDOUT_BYTES_MAX,
    };
    assert_eq!(finished.ending, ending);
    assert_eq!(finished.stdout.len(), Command::STDOUT_BYTES_MAX);
    assert!(finished.ending.to_string().contains("1048576 bytes"));
    assert!(now().checked_sub(began).unwrap() < Duration::from_secs(10));
    let growth = peak_kib() - before;
    assert!(growth < GROWTH_MAX_KIB, "grew by {growth} KiB");
}

#[tokio::test]
async fn a_little_too_much_at_the_end_is_too_much() {
    let command = shell("head -c 101 /dev/zero").with_output_bytes_max(100, 100);
    let finished = run(command).await;
    assert_eq!(finished.ending, Ending::OutputTooLarge { limit: 100 });
    let command = shell("head -c 100 /dev/zero").with_output_bytes_max(100, 100);
    let finished = run(command).await;
    assert_eq!(finished.ending, Ending::Exited { code: 0 });
}

#[tokio::test]
async fn an_output_that_is_closed_early_is_no_end() {
    let began = now();
    let finished = run(shell("echo '{}'; exec >&- 2>&-; sleep 1; exit 4")).await;
    assert_eq!(finished.ending, Ending::Exited { code: 4 });
    assert_eq!(finished.stdout, b"{}\n");
    assert!(now().checked_sub(began).unwrap() >= Duration::from_secs(1));
}

#[tokio::test]
async fn an_output_that_somebody_holds_open_is_not_waited_for() {
    // A full pipe of it is there when the leader goes.
    let finished = run(shell("sleep 60 & head -c 65536 /dev/zero; exit 0")).await;
    assert_eq!(finished.ending, Ending::Exited { code: 0 });
    assert_eq!(finished.stdout.len(), 65_536);
}

#[tokio::test]
async fn nothing_is_an_output_too() {
    let Finished {
        ending,
        stdout,
        stderr,
    } = run(shell("exit 0")).await;
    assert_eq!(ending, Ending::Exited { code: 0 });
    assert!(stdout.is_empty());
    assert_eq!(stderr.total_bytes(), 0);
}

#[tokio::test]
async fn what_is_no_text_is_kept_as_it_is() {
    let finished = run(shell(r"printf 'a\377\376\000b'; printf '\377' >&2")).await;
    assert_eq!(finished.stdout, b"a\xff\xfe\0b");
    assert_eq!(finished.stderr.to_text(), r"\xff");
}

#[tokio::test]
async fn talk_is_heard_as_it_comes() {
    let fence = crate::yard::fence();
    let child = fence
        .run(
            shell("echo one >&2; sleep 0.3; echo two >&2; sleep 0.3"),
            None,
        )
        .unwrap();
    let mut heard = Vec::new();
    child
        .finish(|piece| heard.push((now(), piece.to_vec())))
        .await;
    let text: Vec<u8> = heard.iter().flat_map(|(_, piece)| piece.clone()).collect();
    assert_eq!(text, b"one\ntwo\n");
    let (first, last) = (heard[0].0, heard[heard.len() - 1].0);
    let apart = last.checked_sub(first).unwrap();
    assert!(apart >= Duration::from_millis(200), "{apart:?}");
}
