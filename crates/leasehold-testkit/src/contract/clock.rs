//! The store's clock, which decides everything that is due or over.

use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::store::work::ClaimRequest;
use leasehold_core::time::later;
use leasehold_core::{Due, NewItem, Status};

use super::fixture::Fixture;
use super::samples::{CREATED, DAY, HOUR, complete, hold, item, park, request};

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

/// A thousand years are not endless, and every store's calendar holds them.
pub async fn a_duration_without_end_stops_at_the_end_of_the_calendar(f: &Fixture) {
    let far = later(CREATED, 365_000 * DAY);
    for due in [Due::After(Duration::MAX), Due::At(Timestamp::MAX)] {
        let never = f.insert(NewItem { due, ..item() }).await;
        assert!(f.row(never.id).await.available_at > far);
    }

    let row = f.insert(item()).await;
    let endless = ClaimRequest {
        lease: Duration::MAX,
        ..request()
    };
    let held = f.claim_one(&endless).await;
    assert_eq!(held.id, row.id);
    assert!(held.lease_expires_at.expect("a lease") > far);
    let _ = f.settle(hold(&held), park(Duration::MAX)).await;
    let parked = f.row(row.id).await;
    assert_eq!(parked.status, Status::Queued);
    assert!(parked.available_at > far);

    let done = f.held(item()).await;
    let _ = f.settle(hold(&done), complete()).await;
    f.advance(DAY).await;
    assert_eq!(f.work().purge(Duration::MAX, 10).await.unwrap(), 0);
    assert_eq!(f.row(done.id).await.status, Status::Done);
}
