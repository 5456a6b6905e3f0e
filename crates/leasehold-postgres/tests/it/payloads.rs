//! DATA-1 and DATA-3 on the side of the store: payloads that a database might choke on, and large ones.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{Client, ClientError};
use leasehold_core::rules::Transition;
use leasehold_core::store::OutboxStore as _;
use leasehold_core::store::outbox::{NewOutboxRow, PendingRequest};
use leasehold_core::store::work::{Ended, Enqueued, Filter, Page, Settled};
use leasehold_core::{JsonObject, NewItem, OrgId, RequestId, Status, TargetId, WorkStore as _};
use leasehold_testkit::contract::samples::{
    ORG, USER, hold_in, id, item, json, lane, numbered, request_of, settlement,
};
use uuid::Uuid;

use crate::harness::OneSchema;
use crate::proxy::Proxy;

/// The zero character in a value, in a key and in a list, and halves of a pair; and where it is.
const BAD: [(&str, &str); 6] = [
    (r#"{"a":"x\u0000y"}"#, "$.a"),
    (r#"{"a":{"b\u0000":1}}"#, "$.a"),
    (r#"{"a":[1,["\u0000"]]}"#, "$.a[1][0]"),
    (r#"{"a":"\ud800"}"#, "column"),
    (r#"{"a":"\udc00\ud800"}"#, "column"),
    (r#"{"\ud800":1}"#, "column"),
];

/// Six characters that look like the escape of the zero character, and are none.
const HARMLESS: [&str; 4] = [
    r#"{"a":"\\u0000"}"#,
    r#"{"\\u0000":1}"#,
    r#"{"a":["\\u0000","\\\\u0000"]}"#,
    r#"{"a":"\u005cu0000"}"#,
];

/// A client, as of an application.
fn client(on: &OneSchema) -> Client {
    Client::single_tenant(on.store.stores()).unwrap()
}

async fn count(on: &OneSchema, table: &str) -> u64 {
    let text = format!("select from {}.{table}", on.schema);
    on.outsider.execute(&text, &[]).await.unwrap()
}

fn outbox_row(payload: &JsonObject) -> NewOutboxRow {
    NewOutboxRow {
        id: Uuid::new_v4(),
        kind: "work.note".to_owned(),
        target_id: TargetId::NIL,
        payload: payload.clone(),
        actor_id: USER,
        request_id: RequestId::NIL,
        traceparent: None,
        app: "test".to_owned(),
    }
}

const RELAY: PendingRequest = PendingRequest {
    limit: 100,
    grace: Duration::ZERO,
    base: Duration::from_mins(1),
    cap: Duration::from_mins(1),
};

/// DATA-1: refused before the database, with the place; of a batch of a hundred with one that is bad,
/// nothing is stored and the row is named.
#[tokio::test]
async fn what_cannot_be_stored_is_refused_with_its_place() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let client = client(&on);
    for (bad, place) in BAD {
        let refused = client.enqueue_raw("NOTE", bad).await.unwrap_err();
        assert!(matches!(refused, ClientError::Invalid(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(place), "{bad}: {text}");
        let batch: Result<Vec<_>, _> = (0..100)
            .map(|row| client.raw("NOTE", if row == 57 { bad } else { "{}" }))
            .collect();
        assert!(batch.is_err());
    }
    assert_eq!(count(&on, "items").await, 0);
}

/// DATA-1: what only looks like it goes through every column unchanged.
#[tokio::test]
async fn what_only_looks_like_the_zero_character_is_kept() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let client = client(&on);
    for text in HARMLESS {
        let payload = json(text);
        client.enqueue_raw("NOTE", text).await.unwrap();
        let claimed = on.store.claim(&request_of(1)).await.unwrap().remove(0);
        assert_eq!(claimed.item.payload.as_str(), text);
        let to = Transition::Complete {
            result: Some(payload.clone()),
        };
        let end = [settlement(hold_in(OrgId::SINGLE, &claimed.item), to)];
        let settled = on.store.settle(&end).await.unwrap();
        assert_eq!(settled, [Settled::Settled(Ended::Done)]);
        let stored = client.get(claimed.item.id).await.unwrap().unwrap();
        assert_eq!(stored.result.unwrap().as_str(), text);
        let row = outbox_row(&payload);
        on.store.append_outbox(ORG, &[row]).await.unwrap();
        let taken = on.store.claim_pending(&RELAY).await.unwrap();
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].row.payload.as_str(), text);
    }
}

/// DATA-1: somebody wrote past every check of ours what the database lets pass. Whoever meets such a row
/// meets it alone: nothing of its neighbours is held up.
#[tokio::test]
async fn a_bad_row_that_others_wrote_holds_up_nobody() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let count = u32::try_from(BAD.len()).unwrap();
    let batch = (1..=u128::from(count) + 1).map(numbered).collect();
    on.store.enqueue(ORG, batch).await.unwrap();
    let rows: Vec<_> = (0..=count).map(|_| outbox_row(&json("{}"))).collect();
    on.store.append_outbox(ORG, &rows).await.unwrap();
    for ((bad, _), number) in BAD.iter().zip(1..) {
        for (table, id) in [
            ("items", id(number).as_uuid()),
            ("outbox", rows[usize::try_from(number).unwrap()].id),
        ] {
            let text = format!(
                "update {}.{table} set payload = $2::text::json where id = $1",
                on.schema
            );
            let written = on.outsider.execute(&text, &[&id, bad]).await.unwrap();
            assert_eq!(written, 1);
        }
    }
    let claimed = on.store.claim(&request_of(100)).await.unwrap();
    let payloads: Vec<_> = claimed.iter().map(|c| c.item.payload.as_str()).collect();
    let mut written: Vec<_> = BAD.iter().map(|(bad, _)| *bad).collect();
    written.push(r#"{"note":1}"#);
    assert_eq!(payloads, written, "as it was written, and not made to fit");
    let page = Page {
        before: None,
        limit: 100,
    };
    let listed = on.store.list(ORG, &Filter::default(), &page).await.unwrap();
    assert_eq!(listed.items.len(), written.len());
    let taken = on.store.claim_pending(&RELAY).await.unwrap();
    assert_eq!(taken.len(), written.len());
    let again = on.store.claim_pending(&RELAY).await.unwrap();
    assert!(again.is_empty(), "the relay goes round in circles");
}

/// DATA-3: at the limit a payload is stored; one byte more, or a gigabyte, is refused while nothing passes
/// to the database at all.
#[tokio::test]
async fn a_payload_over_the_limit_is_refused_before_the_database() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let proxy = Proxy::to(on.address());
    let store = leasehold_postgres::connect(proxy.address(), on.options()).await;
    let client = Client::single_tenant(store.unwrap().stores()).unwrap();
    let of = |bytes: usize| format!(r#"{{"b":"{}"}}"#, "x".repeat(bytes - r#"{"b":""}"#.len()));
    for bytes in [1 << 10, JsonObject::BYTES_MAX] {
        let fate = client.enqueue_raw("NOTE", &of(bytes)).await.unwrap();
        match fate {
            Enqueued::Inserted(item) => assert_eq!(item.payload.as_str().len(), bytes),
            fate => panic!("{fate:?}"),
        }
    }
    proxy.swallow();
    let gigabyte = match std::env::var_os("LEASEHOLD_LONG_TESTS") {
        Some(_) => 1 << 30,
        None => 1 << 26,
    };
    for bytes in [JsonObject::BYTES_MAX + 1, gigabyte] {
        let refused = client.enqueue_raw("NOTE", &of(bytes)).await.unwrap_err();
        assert!(matches!(refused, ClientError::Invalid(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(&bytes.to_string()), "{text}");
    }
    let small = client.with_payload_bytes_max(100);
    let refused = small.enqueue_raw("NOTE", &of(101)).await.unwrap_err();
    assert!(matches!(refused, ClientError::Invalid(_)), "{refused:?}");
    assert_eq!(count(&on, "items").await, 2);
}

/// DATA-3: large rows and many, page by page by key; no page is larger than it was asked to be, and
/// together they are everything once.
#[tokio::test]
async fn lists_go_page_by_page_through_whatever_there_is() {
    const LARGE: u128 = 20;
    const MANY: u128 = 3_000;
    const PAGE: u32 = 170;
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let blob = json(&format!(
        r#"{{"b":"{}"}}"#,
        "é".repeat((JsonObject::BYTES_MAX - 8) / 2)
    ));
    let large = (1..=LARGE).map(|number| NewItem {
        payload: blob.clone(),
        lane: lane("large"),
        max_attempts: 1,
        ..numbered(number * 100)
    });
    on.store.enqueue(ORG, large.collect()).await.unwrap();
    let many = (1..=MANY).map(|number| numbered(1_000_000 + number));
    for batch in many.collect::<Vec<_>>().chunks(1_000) {
        on.store.enqueue(ORG, batch.to_vec()).await.unwrap();
    }
    on.store.enqueue(ORG, vec![item()]).await.unwrap();
    let expected = usize::try_from(LARGE + MANY + 1).unwrap();
    for status in [None, Some(Status::Queued)] {
        let filter = Filter {
            status,
            ..Filter::default()
        };
        let mut seen = BTreeSet::new();
        let mut page = Page {
            before: None,
            limit: PAGE,
        };
        loop {
            let listed = on.store.list(ORG, &filter, &page).await.unwrap();
            assert!(listed.items.len() <= PAGE as usize);
            assert!(listed.items.is_sorted_by(|one, next| one.id > next.id));
            for item in &listed.items {
                assert!(seen.insert(item.id), "{} is shown twice", item.id);
            }
            if listed.next.is_none() {
                break;
            }
            page.before = listed.next;
        }
        assert_eq!(seen.len(), expected);
    }
}
