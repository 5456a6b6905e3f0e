//! Reading: one item, and lists by page and filter.

use std::time::Duration;

use leasehold_core::store::work::{Filter, LIST_MAX, Page};
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
    ids(&f.work().list(ORG, filter, page).await.unwrap())
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
        rows
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
    for length in [3, 3, 1, 0] {
        let part = listed(f, &Filter::default(), &page).await;
        assert_eq!(part.len(), length);
        page.before = part.last().copied().or(page.before);
        seen.extend(part);
        // What comes in meanwhile has a higher id, and moves nothing.
        f.insert(numbered(100 + seen.len() as u128 + length as u128))
            .await;
    }
    assert_eq!(seen, (1..=7).rev().map(id).collect::<Vec<_>>());
    let none = Page {
        before: None,
        limit: 0,
    };
    assert_eq!(listed(f, &Filter::default(), &none).await, []);
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
