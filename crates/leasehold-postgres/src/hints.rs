//! Hints: who listens on which lanes. A hint is remembered once, until it is taken.
//!
//! Subscriptions of this process are hinted at once. How a hint comes to other processes, and theirs here,
//! is the [`courier`]'s.

mod courier;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use leasehold_core::{Hints, Lane};
use tokio::sync::Notify;

pub(crate) use courier::{Courier, Route, TELL, channel_of};

/// The subscriptions of one store. Held weakly: dropping a subscription ends it.
#[derive(Debug, Default)]
pub(crate) struct Board {
    mailboxes: Mutex<Vec<Weak<Mailbox>>>,
}

#[derive(Debug)]
struct Mailbox {
    lanes: BTreeSet<Lane>,
    /// Holds one permit at most, which is what makes any number of hints count as one.
    arrived: Notify,
}

impl Board {
    pub(crate) fn subscribe(&self, lanes: &[Lane]) -> Subscription {
        let mailbox = Arc::new(Mailbox {
            lanes: lanes.iter().cloned().collect(),
            arrived: Notify::new(),
        });
        let mut mailboxes = self.lock();
        mailboxes.retain(|known| known.strong_count() > 0);
        mailboxes.push(Arc::downgrade(&mailbox));
        Subscription { mailbox }
    }

    /// Hints the subscriptions of any of the lanes.
    pub(crate) fn hint(&self, lanes: &BTreeSet<Lane>) {
        if !lanes.is_empty() {
            self.hint_where(|mailbox| !mailbox.lanes.is_disjoint(lanes));
        }
    }

    /// Hints everyone: what was missed, or whom it concerns, is not known.
    fn hint_all(&self) {
        self.hint_where(|_| true);
    }

    fn hint_where(&self, concerns: impl Fn(&Mailbox) -> bool) {
        // Waking runs code of the waiter's executor, so it is done without the lock.
        let concerned: Vec<Arc<Mailbox>> = self
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|mailbox| concerns(mailbox))
            .collect();
        for mailbox in concerned {
            mailbox.arrived.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Mailbox>>> {
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Subscription {
    mailbox: Arc<Mailbox>,
}

#[async_trait]
impl Hints for Subscription {
    async fn next(&mut self) {
        self.mailbox.arrived.notified().await;
    }
}
