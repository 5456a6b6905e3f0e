use super::*;

#[tokio::test]
async fn a_probe_counts_and_lets_wait() {
    let probe = Probe::new();
    probe.wait_for(0).await;
    let theirs = probe.clone();
    let task = tokio::spawn(async move { (theirs.hit(), theirs.hit()) });
    probe.wait_for(2).await;
    assert_eq!(probe.count(), 2);
    assert_eq!(task.await.unwrap(), (1, 2));
}

#[tokio::test]
async fn a_latch_opens_for_those_who_wait_and_those_who_come() {
    let latch = Latch::new();
    assert!(!latch.is_open());
    let theirs = latch.clone();
    let task = tokio::spawn(async move { theirs.passed().await });
    latch.open();
    task.await.unwrap();
    latch.passed().await;
}

#[tokio::test]
async fn a_journal_keeps_the_order() {
    let journal = Journal::new();
    let theirs = journal.clone();
    tokio::spawn(async move {
        for number in 1..=3 {
            theirs.note(number);
        }
    });
    assert_eq!(journal.wait_for(3).await, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited for 2 hits, and there was 1")]
async fn a_wait_that_nothing_ends_says_what_for() {
    let probe = Probe::new();
    probe.hit();
    probe.wait_for(2).await;
}
