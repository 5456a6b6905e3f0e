//! What handlers saw of being stopped, and the two that most cases of losing a lease need.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::store::work::Settlement;
use leasehold::core::{Hold, OrgId, rules};
use leasehold::{HandlerError, InProcess, ItemId, Run, WorkItem};
use leasehold_testkit::probe::Journal;

use crate::harness::{Job, Rig, jobs};

/// What a handler saw, by the rig's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saw {
    Began(Duration),
    Cancelled(Duration),
    /// Dropped before it ended by itself.
    Dropped(Duration),
}

/// Tells when the run is dropped.
struct Told<F: FnMut()>(F);

impl<F: FnMut()> Drop for Told<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Runs until it is cancelled, and then gives up.
pub(crate) fn cooperative(rig: &Arc<Rig>, saw: &Journal<Saw>) -> InProcess {
    let (rig, saw) = (rig.clone(), saw.clone());
    jobs(move |_: Job, run: Run| {
        let (rig, saw) = (rig.clone(), saw.clone());
        async move {
            saw.note(Saw::Began(rig.elapsed()));
            run.cancelled().await;
            saw.note(Saw::Cancelled(rig.elapsed()));
            Err::<(), _>(HandlerError::new("stopped half-way"))
        }
    })
}

/// Awaits for ever, whatever it is told.
pub(crate) fn deaf(rig: &Arc<Rig>, saw: &Journal<Saw>) -> InProcess {
    let (rig, saw) = (rig.clone(), saw.clone());
    jobs(move |_: Job, _: Run| {
        let (rig, saw) = (rig.clone(), saw.clone());
        async move {
            saw.note(Saw::Began(rig.elapsed()));
            let _told = Told(move || saw.note(Saw::Dropped(rig.elapsed())));
            std::future::pending::<()>().await;
        }
    })
}

/// When the run began.
pub(crate) fn began(saw: &[Saw]) -> Duration {
    match saw.first() {
        Some(Saw::Began(at)) => *at,
        other => panic!("{other:?}"),
    }
}

/// Takes the item away behind its holder's back, and gives it to somebody else.
pub(crate) async fn steal(rig: &Rig, id: ItemId) -> WorkItem {
    let item = rig.item(id).await;
    let hold = Hold {
        org_id: OrgId::SINGLE,
        item_id: id,
        token: item.claim_token.unwrap(),
    };
    let release = Settlement {
        hold,
        transition: rules::hand_back("stolen"),
    };
    let _ = rig.stores.work.settle(&[release]).await.unwrap();
    let claimed = rig.claim_elsewhere(Duration::from_hours(1)).await;
    assert_eq!(claimed[0].item.id, id);
    rig.item(id).await
}
