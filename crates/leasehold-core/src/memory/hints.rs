//! Hints: one mailbox per subscription, which holds at most one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use event_listener::Event;

use crate::names::Lane;
use crate::store::Hints;

/// Where hints are left. Holds mailboxes weakly: dropping a subscription ends it.
#[derive(Default)]
pub(super) struct Board {
    mailboxes: Mutex<Vec<Weak<Mailbox>>>,
}

struct Mailbox {
    lanes: BTreeSet<Lane>,
    /// Whether a hint waits to be taken. The event only wakes; this is what is remembered.
    hinted: AtomicBool,
    arrived: Event,
}

impl Board {
    pub(super) fn subscribe(&self, lanes: &[Lane]) -> Subscription {
        let mailbox = Arc::new(Mailbox {
            lanes: lanes.iter().cloned().collect(),
            hinted: AtomicBool::new(false),
            arrived: Event::new(),
        });
        let mut mailboxes = self
            .mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        mailboxes.retain(|known| known.strong_count() > 0);
        mailboxes.push(Arc::downgrade(&mailbox));
        Subscription { mailbox }
    }

    /// How many subscriptions are remembered.
    #[cfg(test)]
    pub(super) fn subscriptions(&self) -> usize {
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Leaves a hint in every mailbox of one of the lanes.
    pub(super) fn hint(&self, lanes: &BTreeSet<Lane>) {
        if lanes.is_empty() {
            return;
        }
        // Waking runs code of the waiter's executor, so it is done without the lock.
        let concerned: Vec<Arc<Mailbox>> = {
            let mailboxes = self
                .mailboxes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            mailboxes
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|mailbox| !mailbox.lanes.is_disjoint(lanes))
                .collect()
        };
        for mailbox in concerned {
            mailbox.hinted.store(true, Ordering::Release);
            mailbox.arrived.notify(usize::MAX);
        }
    }
}

pub(super) struct Subscription {
    mailbox: Arc<Mailbox>,
}

#[async_trait]
impl Hints for Subscription {
    async fn next(&mut self) {
        loop {
            if self.mailbox.hinted.swap(false, Ordering::AcqRel) {
                return;
            }
            // Listens before it looks again, so that a hint in between is not slept through. The
            // hint is taken only in the step that returns: a call dropped earlier leaves it.
            let arrival = self.mailbox.arrived.listen();
            if self.mailbox.hinted.swap(false, Ordering::AcqRel) {
                return;
            }
            arrival.await;
        }
    }
}
