//! The store's clock, which decides everything that is due or over.

use leasehold_core::time::later;

use super::fixture::Fixture;
use super::samples::HOUR;

pub async fn the_clock_goes_forward(f: &Fixture) {
    let before = f.now().await;
    assert!(f.now().await >= before);
    f.advance(HOUR).await;
    assert!(f.now().await >= later(before, HOUR));
}

pub async fn every_handle_reads_the_same_clock(f: &Fixture) {
    let other = f.second_handle().await;
    for _ in 0..3 {
        let (theirs, moment) = f.timed(other.work.now()).await;
        moment.assert_is(theirs.unwrap());
        f.advance(HOUR).await;
    }
}
