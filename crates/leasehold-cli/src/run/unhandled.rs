//! Due items that nobody here has a handler for: what `--until-empty` leaves, though it is due.

use std::collections::BTreeSet;

use leasehold::core::store::work::{Filter, Page};
use leasehold::{Client, ClientError, Kind, Lane, Status, WorkItem};

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unhandled {
    /// How many items, of those that were looked at.
    pub(super) count: usize,
    /// Of which kinds, and on which lanes.
    places: BTreeSet<(Kind, Lane)>,
    /// Whether there were more to look at.
    is_cut: bool,
}

/// An item comes with its payload, so only so many are held at once.
const PAGE_ITEMS: u32 = 100;

/// Enough to see what is misspelt; a queue may hold millions.
const PAGES_MAX: usize = 10;

/// More places than this say no more to a person.
const PLACES_SHOWN_MAX: usize = 5;

impl Unhandled {
    /// Looks at what is queued, the newest first, as far as the bound goes.
    pub(super) async fn look(
        client: &Client,
        kinds: &BTreeSet<Kind>,
        lanes: &[Lane],
    ) -> Result<Self, ClientError> {
        let now = client.stores().work.now().await?;
        let filter = Filter {
            status: Some(Status::Queued),
            ..Filter::default()
        };
        let is_left = |item: &WorkItem| {
            let is_ours = kinds.contains(&item.kind) && lanes.contains(&item.lane);
            item.available_at <= now && !is_ours
        };
        let mut found = Self::default();
        let mut before = None;
        for _ in 0..PAGES_MAX {
            let limit = PAGE_ITEMS;
            let listed = client.list(&filter, &Page { before, limit }).await?;
            before = listed.next;
            found.is_cut = before.is_some();
            for item in listed.items.into_iter().filter(is_left) {
                found.count += 1;
                found.places.insert((item.kind, item.lane));
            }
            if !found.is_cut {
                break;
            }
        }
        Ok(found)
    }

    /// What to tell a person; nothing if there is none.
    pub(super) fn line(&self) -> Option<String> {
        let Self {
            count,
            places,
            is_cut,
        } = self;
        let items = match count {
            0 => return None,
            1 => "1 due item has".to_owned(),
            count => format!("{count} due items have"),
        };
        let at_least = if *is_cut { "at least " } else { "" };
        let shown = places.iter().take(PLACES_SHOWN_MAX);
        let mut shown: Vec<String> = shown
            .map(|(kind, lane)| format!("{kind} on {lane}"))
            .collect();
        if places.len() > shown.len() {
            shown.push("…".to_owned());
        }
        let shown = shown.join(", ");
        Some(format!("{at_least}{items} no handler here: {shown}"))
    }
}

#[cfg(test)]
mod tests;
