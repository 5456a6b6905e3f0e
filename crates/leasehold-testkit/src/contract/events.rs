//! Events and audit entries: appended once, numbered without gaps.

use leasehold_core::store::events::{NewEntry, Stream};
use leasehold_core::{RequestId, UserId};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{HOUR, ORG, OTHER, USER, json};

/// An entry whose every field tells its number.
pub(super) fn entry(number: u128) -> NewEntry {
    NewEntry {
        id: Uuid::from_u128(number),
        kind: format!("work.item.made_{number}"),
        target_id: Uuid::from_u128(number + 1),
        actor_id: USER,
        request_id: RequestId::new(Uuid::from_u128(number + 2)),
        app: "mailer@1.4.0".to_owned(),
        payload: json(&format!(r#"{{"number": {number}}}"#)),
    }
}

const STREAMS: [Stream; 2] = [Stream::Events, Stream::Audit];

pub async fn entries_are_numbered_from_one_without_gaps(f: &Fixture) {
    for stream in STREAMS {
        for number in 1..=5 {
            let id = u128::from(number) + if stream == Stream::Audit { 100 } else { 0 };
            let seq = f
                .stores
                .events
                .append(ORG, stream, &entry(id))
                .await
                .unwrap();
            assert_eq!(seq, number, "each stream has numbers of its own");
        }
    }
    assert_eq!(
        f.stores
            .events
            .append(OTHER, Stream::Audit, &entry(200))
            .await
            .unwrap(),
        1
    );
}

pub async fn an_entry_comes_back_as_it_was_appended(f: &Fixture) {
    let new = NewEntry {
        kind: "work.item.dead_letter".to_owned(),
        actor_id: UserId::NIL,
        request_id: RequestId::NIL,
        app: "it's \"quoted\" 😀".to_owned(),
        payload: json(r#"{ "b":1.50, "a":"\\u0000", "n":123456789012345678901234567890 }"#),
        ..entry(1)
    };
    for stream in STREAMS {
        let new = NewEntry {
            id: Uuid::new_v5(&new.id, stream.as_str().as_bytes()),
            ..new.clone()
        };
        let (seq, moment) = f.timed(f.stores.events.append(ORG, stream, &new)).await;
        let read = f
            .stores
            .events
            .read_after(ORG, stream, 0, 10)
            .await
            .unwrap();
        let read = super::fixture::only(read);
        assert_eq!((read.seq, &read.entry), (seq.unwrap(), &new));
        assert_eq!(read.entry.payload.as_str(), new.payload.as_str());
        moment.assert_is(read.produced_at);
    }
}

pub async fn appending_again_takes_no_number_and_changes_nothing(f: &Fixture) {
    let store = &f.stores.events;
    for number in 1..=3 {
        store
            .append(ORG, Stream::Audit, &entry(number))
            .await
            .unwrap();
    }
    let before = store.read_after(ORG, Stream::Audit, 0, 10).await.unwrap();
    f.advance(HOUR).await;
    let other_words = NewEntry {
        payload: json(r#"{"other":1}"#),
        ..entry(2)
    };
    assert_eq!(
        store
            .append(ORG, Stream::Audit, &other_words)
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        store.read_after(ORG, Stream::Audit, 0, 10).await.unwrap(),
        before
    );
    assert_eq!(
        store.append(ORG, Stream::Audit, &entry(4)).await.unwrap(),
        4,
        "a gap"
    );
}

pub async fn entries_are_read_in_order_from_a_number_on(f: &Fixture) {
    let store = &f.stores.events;
    // The order is the appending's, and not the ids'.
    for number in [5, 1, 4, 2, 3] {
        store
            .append(ORG, Stream::Events, &entry(number))
            .await
            .unwrap();
    }
    let read = async |after, limit| {
        let entries = store
            .read_after(ORG, Stream::Events, after, limit)
            .await
            .unwrap();
        entries
            .iter()
            .map(|e| (e.seq, e.entry.id.as_u128()))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(0, 2).await, [(1, 5), (2, 1)]);
    assert_eq!(read(2, 2).await, [(3, 4), (4, 2)]);
    assert_eq!(read(4, 10).await, [(5, 3)]);
    assert_eq!(read(5, 10).await, []);
    assert_eq!(read(99, 10).await, []);
    assert_eq!(read(0, 0).await, []);
}
