use super::*;

#[tokio::test(start_paused = true)]
async fn the_clock_moves_with_the_runtimes_time_and_not_without() {
    let clock = TokioClock::new();
    let (now, elapsed) = (clock.now(), clock.elapsed());
    assert_eq!((clock.now(), clock.elapsed()), (now, elapsed));
    let step = Duration::from_mins(90);
    tokio::time::advance(step).await;
    assert_eq!(clock.now(), later(now, step));
    assert_eq!(clock.elapsed().since(elapsed), step);
}

#[tokio::test(start_paused = true)]
async fn another_thread_reads_the_same_time() {
    let clock = TokioClock::new();
    tokio::time::advance(Duration::from_hours(5)).await;
    let theirs = clock.clone();
    let read = std::thread::spawn(move || theirs.now()).join().unwrap();
    assert_eq!(read, clock.now());
}
