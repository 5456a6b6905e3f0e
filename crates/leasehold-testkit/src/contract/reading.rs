//! Reading: one item, and lists by page and filter.

use std::time::Duration;

use leasehold_core::store::work::{Filter, LIST_MAX, LIST_READ_MAX, Listed, Page};
use leasehold_core::{ItemId, NewItem, Status};

use super::fixture::Fixture;
use super::samples::{
    ORG, OTHER, bury, complete, hold, id, ids, item, kind, lane, numbered, park, request_of,
    settlement,
};

const FIRST: Page = Page {
    before: None,
    limit: 100,
};

async fn listed(f: &Fixture, filter: &Filter, page: &Page) -> Vec<ItemId> {
    ids(&f.work().list(ORG, filter, page).await.unwrap().items)
}

pub async fn an_item_is_found_by_its_id_and_by_its_key(f: &Fixture) {
    let row = f.insert(item()).await;
    assert_eq!(f.work().get(ORG, row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(
        f.work().get_by_key(ORG, row.idempotency_key).await.unwrap(),
        Some(row)
    );
}

pub async fn an_item_that_is_not_there_is_not_found(f: &Fixture) {
    f.insert(item()).await;
    assert_eq!(f.work().get(ORG, id(1)).await.unwrap(), None);
    let key = numbered(1).idempotency_key;
    assert_eq!(f.work().get_by_key(ORG, key).await.unwrap(), None);
}

pub async fn a_list_shows_the_highest_ids_first_and_whole_rows(f: &Fixture) {
    let mut rows = Vec::new();
    for number in [2, 9, 4] {
        rows.push(f.insert(numbered(number)).await);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    assert_eq!(
        f.work()
            .list(ORG, &Filter::default(), &FIRST)
            .await
            .unwrap(),
        Listed {
            items: rows,
            next: None
        }
    );
}

pub async fn a_list_is_read_page_by_page(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=7).map(numbered).collect())
        .await
        .unwrap();
    let mut seen = Vec::new();
    let mut page = Page {
        before: None,
        limit: 3,
    };
    for length in [3, 3, 1] {
        let part = f.work().list(ORG, &Filter::default(), &page).await.unwrap();
        assert_eq!(part.items.len(), length);
        let last = part.items.last().filter(|_| length == 3);
        assert_eq!(part.next, last.map(|item| item.id));
        seen.extend(ids(&part.items));
        // What comes in meanwhile has a higher id, and moves nothing.
        f.insert(numbered(100 + seen.len() as u128 + length as u128))
            .await;
        if part.next.is_none() {
            break;
        }
        page.before = part.next;
    }
    assert_eq!(seen, (1..=7).rev().map(id).collect::<Vec<_>>());
    let none = Page {
        before: None,
        limit: 0,
    };
    let listed = f.work().list(ORG, &Filter::default(), &none).await.unwrap();
    assert_eq!(listed, Listed::default());
}

pub async fn a_list_is_bounded_whatever_is_asked(f: &Fixture) {
    for start in [0, 1_000] {
        let batch = (start + 1..=start + 1_000).map(numbered).collect();
        f.work().enqueue(ORG, batch).await.unwrap();
    }
    let page = Page {
        before: None,
        limit: u32::MAX,
    };
    let part = listed(f, &Filter::default(), &page).await;
    assert_eq!(part.len(), LIST_MAX as usize);
    assert_eq!((part[0], part[999]), (id(2_000), id(1_001)));
}

pub async fn a_list_shows_one_status(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=5).map(numbered).collect())
        .await
        .unwrap();
    let held = f.claim_many(4).await;
    let settlements = [
        settlement(hold(&held[1]), complete()),
        settlement(hold(&held[2]), bury()),
        settlement(hold(&held[3]), park(Duration::from_mins(1))),
    ];
    let _ = f.work().settle(&settlements).await.unwrap();
    let expected: [(Status, &[u128]); 4] = [
        (Status::Queued, &[5, 4]),
        (Status::Claimed, &[1]),
        (Status::Done, &[2]),
        (Status::Failed, &[3]),
    ];
    for (status, numbers) in expected {
        let filter = Filter {
            status: Some(status),
            ..Filter::default()
        };
        let numbers: Vec<_> = numbers.iter().copied().map(id).collect();
        assert_eq!(listed(f, &filter, &FIRST).await, numbers, "{status}");
    }
}

pub async fn a_list_shows_one_lane_and_one_kind(f: &Fixture) {
    let at = |number, lane_name, kind_name| NewItem {
        lane: lane(lane_name),
        kind: kind(kind_name),
        ..numbered(number)
    };
    let batch = vec![
        at(1, "a", "X"),
        at(2, "b", "X"),
        at(3, "a", "Y"),
        at(4, "a", "X"),
    ];
    f.work().enqueue(ORG, batch).await.unwrap();
    let of = |lane_name: Option<&str>, kind_name: Option<&str>| Filter {
        lane: lane_name.map(lane),
        kind: kind_name.map(kind),
        status: None,
    };
    assert_eq!(
        listed(f, &of(Some("a"), None), &FIRST).await,
        [id(4), id(3), id(1)]
    );
    assert_eq!(
        listed(f, &of(None, Some("X")), &FIRST).await,
        [id(4), id(2), id(1)]
    );
    assert_eq!(
        listed(f, &of(Some("a"), Some("X")), &FIRST).await,
        [id(4), id(1)]
    );
    let page = Page {
        before: Some(id(4)),
        limit: 1,
    };
    assert_eq!(listed(f, &of(Some("a"), Some("X")), &page).await, [id(1)]);
    let claimed = Filter {
        status: Some(Status::Claimed),
        ..of(Some("a"), Some("X"))
    };
    assert_eq!(listed(f, &claimed, &FIRST).await, []);
}

/// Goes on to the end of a list, and answers the pages.
async fn pages(f: &Fixture, filter: &Filter, limit: u32) -> Vec<Listed> {
    let mut pages = Vec::new();
    let mut page = Page {
        before: None,
        limit,
    };
    loop {
        let listed = f.work().list(ORG, filter, &page).await.unwrap();
        let goes_on = listed.next.is_none_or(|next| {
            page.before.is_none_or(|before| next < before)
                && listed.items.iter().all(|item| next <= item.id)
        });
        assert!(goes_on, "it goes back from {:?}: {listed:?}", page.before);
        page.before = listed.next;
        pages.push(listed);
        if page.before.is_none() {
            return pages;
        }
    }
}

/// More than two calls may look at, of an org that is not alone, of which few pass any filter but one.
async fn fill_for_lists(f: &Fixture) -> u128 {
    let all = 2 * u128::from(LIST_READ_MAX) + 100;
    // The lowest end; of those above every thousandth is on a lane of its own, and of a kind of its own.
    f.work()
        .enqueue(ORG, (1..=4).map(numbered).collect())
        .await
        .unwrap();
    let held = f.claim_many(3).await;
    let settlements = [
        settlement(hold(&held[0]), complete()),
        settlement(hold(&held[1]), bury()),
    ];
    let _ = f.work().settle(&settlements).await.unwrap();
    let rare = |number| {
        let is_rare = number % 1_000 == 500;
        NewItem {
            lane: lane(if is_rare { "rare" } else { "default" }),
            kind: kind(if is_rare { "RARE" } else { "NOTE" }),
            ..numbered(number)
        }
    };
    for start in (5..=all).step_by(1_000) {
        let end = (start + 999).min(all);
        let batch = (start..=end).map(rare).collect();
        f.work().enqueue(ORG, batch).await.unwrap();
        f.insert_in(OTHER, numbered(all + start)).await;
    }
    all
}

pub async fn pages_join_to_the_whole_however_rare_what_passes(f: &Fixture) {
    let all = fill_for_lists(f).await;
    let of = |status, name: Option<&str>| Filter {
        status,
        lane: name.map(|_| lane("rare")),
        kind: name.map(|_| kind("RARE")),
    };
    let rare: Vec<_> = (5..=all).rev().filter(|n| n % 1_000 == 500).collect();
    let queued = (4..=all).rev().collect();
    let cases: [(Option<Status>, Option<&str>, Vec<u128>); 7] = [
        (Some(Status::Done), None, vec![1]),
        (Some(Status::Failed), None, vec![2]),
        (Some(Status::Claimed), None, vec![3]),
        (Some(Status::Done), Some("rare"), vec![]),
        (Some(Status::Queued), Some("rare"), rare.clone()),
        (None, Some("rare"), rare),
        (Some(Status::Queued), None, queued),
    ];
    for (status, name, expected) in cases {
        let filter = of(status, name);
        let limit = if expected.len() > 100 { LIST_MAX } else { 7 };
        let pages = pages(f, &filter, limit).await;
        let seen: Vec<_> = pages.iter().flat_map(|page| ids(&page.items)).collect();
        let expected: Vec<_> = expected.into_iter().map(id).collect();
        assert!(seen == expected, "{filter:?}: {} are shown", seen.len());
    }
}

/// An item that passes from the first page to the last is shown once, and none is shown twice, whatever
/// the others do meanwhile.
pub async fn a_list_goes_on_while_items_move(f: &Fixture) {
    f.work()
        .enqueue(ORG, (1..=60).map(numbered).collect())
        .await
        .unwrap();
    let mut seen = Vec::new();
    let mut held = Vec::new();
    let filter = Filter {
        status: Some(Status::Queued),
        ..Filter::default()
    };
    let mut page = Page {
        before: None,
        limit: 4,
    };
    let mut came = 1_000;
    loop {
        let listed = f.work().list(ORG, &filter, &page).await.unwrap();
        seen.extend(ids(&listed.items));
        // The lowest leave from before the page, and some of them come back.
        held.extend(f.claim_many(2).await);
        if held.len() == 6 {
            let batch: Vec<_> = held
                .iter()
                .map(|item| settlement(hold(item), park(Duration::from_mins(1))))
                .collect();
            let _ = f.work().settle(&batch).await.unwrap();
        }
        came += 1;
        f.insert(numbered(came)).await;
        if listed.next.is_none() {
            break;
        }
        page.before = listed.next;
    }
    assert!(seen.is_sorted_by(|one, next| one > next), "{seen:?}");
    let moved: Vec<_> = held.iter().map(|item| item.id).collect();
    let stayed: Vec<_> = (1..=60).map(id).filter(|id| !moved.contains(id)).collect();
    assert!(stayed.len() > 20, "too much moved to tell");
    assert!(stayed.iter().all(|id| seen.contains(id)), "{seen:?}");
}

pub async fn a_list_shows_one_org(f: &Fixture) {
    f.insert(numbered(1)).await;
    f.insert_in(OTHER, numbered(2)).await;
    assert_eq!(listed(f, &Filter::default(), &FIRST).await, [id(1)]);
}

pub async fn what_one_handle_writes_the_other_reads(f: &Fixture) {
    let other = f.second_handle().await;
    let row = f.insert(item()).await;
    assert_eq!(
        other.work.get(ORG, row.id).await.unwrap(),
        Some(row.clone())
    );
    let held = other
        .work
        .claim(&request_of(1))
        .await
        .unwrap()
        .remove(0)
        .item;
    assert_eq!(f.row(row.id).await, held);
    let _ = f.settle(hold(&held), complete()).await;
    let read = other
        .work
        .get(ORG, row.id)
        .await
        .unwrap()
        .expect("the item");
    assert_eq!(read.status, Status::Done);
}
