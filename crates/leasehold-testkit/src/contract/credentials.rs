//! Sessions and tickets: what a secret opens, and for how long.

use std::time::Duration;

use leasehold_core::store::CredentialStore;
use leasehold_core::store::credentials::{
    Credential, Digest, NewSession, SEEN_EVERY, SessionRecord, TicketRecord,
};
use leasehold_core::{ApiKeyId, IdentityId, OrgId, SessionId};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{DAY, HOUR, OPERATOR, ORG, OTHER, USER};

pub(super) const IDLE: Duration = HOUR;
const WITHIN_IDLE: Duration = Duration::from_mins(50);
const LIFETIME: Duration = DAY;
const SECOND: Duration = Duration::from_secs(1);

/// The digest of the secret of that number.
pub(super) fn digest(number: u8) -> Digest {
    Digest::new([number; 32])
}

pub(super) fn session_id(number: u8) -> SessionId {
    SessionId::new(Uuid::from_u128(u128::from(number)))
}

/// A session of [`USER`] by number, whose secret has that number too.
pub(super) fn new_session(number: u8) -> NewSession {
    NewSession {
        id: session_id(number),
        user_id: USER,
        identity_id: IdentityId::new(Uuid::from_u128(40)),
        digest: digest(number),
    }
}

pub(super) async fn begin_session(f: &Fixture, org: OrgId, number: u8) {
    let session = new_session(number);
    let created = store(f).create_session(org, &session, LIFETIME).await;
    assert!(created.unwrap());
}

fn store(f: &Fixture) -> &dyn CredentialStore {
    f.stores.credentials.as_ref()
}

async fn used(f: &Fixture, number: u8) -> Option<SessionRecord> {
    store(f).use_session(&digest(number), IDLE).await.unwrap()
}

async fn read(f: &Fixture, number: u8) -> Option<SessionRecord> {
    store(f)
        .session(ORG, session_id(number), IDLE)
        .await
        .unwrap()
}

pub async fn a_session_is_found_by_its_secret_until_it_ends(f: &Fixture) {
    let session = new_session(1);
    let create = store(f).create_session(ORG, &session, LIFETIME);
    let (created, moment) = f.timed(create).await;
    assert!(created.unwrap());
    let found = used(f, 1).await.expect("a session");
    moment.assert_is(found.created_at);
    moment.assert_is_before(LIFETIME, found.expires_at);
    let same = SessionRecord {
        id: session.id,
        org_id: ORG,
        user_id: USER,
        identity_id: session.identity_id,
        last_seen_at: found.created_at,
        ..found
    };
    assert_eq!(found, same);
    assert_eq!(read(f, 1).await, Some(found));
    assert_eq!(used(f, 2).await, None);
    assert!(store(f).end_session(ORG, session.id).await.unwrap());
    assert!(!store(f).end_session(ORG, session.id).await.unwrap());
    assert_eq!(used(f, 1).await, None);
    assert_eq!(read(f, 1).await, None);
}

pub async fn a_session_that_is_created_again_stays_as_it_was(f: &Fixture) {
    begin_session(f, ORG, 1).await;
    let stored = used(f, 1).await;
    let again = NewSession {
        user_id: OPERATOR,
        digest: digest(2),
        ..new_session(1)
    };
    assert!(!store(f).create_session(OTHER, &again, HOUR).await.unwrap());
    assert_eq!(used(f, 1).await, stored);
    assert_eq!(used(f, 2).await, None);
}

pub async fn a_session_that_nobody_uses_for_too_long_is_over(f: &Fixture) {
    begin_session(f, ORG, 1).await;
    f.advance(WITHIN_IDLE).await;
    assert!(used(f, 1).await.is_some());
    f.advance(WITHIN_IDLE).await;
    assert!(used(f, 1).await.is_some(), "it was used in between");
    f.advance(IDLE + SECOND).await;
    assert_eq!(read(f, 1).await, None);
    assert_eq!(used(f, 1).await, None, "nor does asking wake it");
    assert_eq!(used(f, 1).await, None);
}

pub async fn a_session_in_use_is_over_when_its_time_is(f: &Fixture) {
    let session = new_session(1);
    let lifetime = IDLE * 2;
    store(f)
        .create_session(ORG, &session, lifetime)
        .await
        .unwrap();
    for _ in 0..3 {
        f.advance(IDLE / 2).await;
        assert!(used(f, 1).await.is_some());
    }
    f.advance(IDLE / 2 + SECOND).await;
    assert_eq!(used(f, 1).await, None);
    assert_eq!(read(f, 1).await, None);
}

pub async fn a_session_is_noted_as_seen_once_a_minute_at_most(f: &Fixture) {
    begin_session(f, ORG, 1).await;
    let began = used(f, 1).await.expect("a session");
    assert_eq!(began.last_seen_at, began.created_at);
    f.advance(SEEN_EVERY * 2).await;
    let (noted, moment) = f.timed(used(f, 1)).await;
    let noted = noted.expect("a session");
    moment.assert_is(noted.last_seen_at);
    assert_eq!(used(f, 1).await, Some(noted.clone()));
    assert_eq!(read(f, 1).await, Some(noted));
}

pub async fn a_session_read_by_its_id_is_not_used(f: &Fixture) {
    begin_session(f, ORG, 1).await;
    let began = used(f, 1).await;
    f.advance(SEEN_EVERY * 2).await;
    assert_eq!(read(f, 1).await, began);
}

pub async fn the_sessions_of_a_user_in_an_org_end_together(f: &Fixture) {
    for (org, number) in [(ORG, 1), (ORG, 2), (OTHER, 3)] {
        begin_session(f, org, number).await;
    }
    let anothers = NewSession {
        user_id: OPERATOR,
        ..new_session(4)
    };
    store(f)
        .create_session(ORG, &anothers, LIFETIME)
        .await
        .unwrap();
    assert_eq!(store(f).end_sessions(ORG, USER).await.unwrap(), 2);
    assert_eq!(store(f).end_sessions(ORG, USER).await.unwrap(), 0);
    for (number, lives) in [(1, false), (2, false), (3, true), (4, true)] {
        assert_eq!(used(f, number).await.is_some(), lives, "{number}");
    }
}

pub async fn sessions_that_are_over_are_purged_and_living_ones_stay(f: &Fixture) {
    let short = new_session(1);
    store(f)
        .create_session(ORG, &short, HOUR / 2)
        .await
        .unwrap();
    begin_session(f, OTHER, 2).await;
    begin_session(f, ORG, 3).await;
    f.advance(HOUR * 3 / 4).await;
    assert!(used(f, 3).await.is_some());
    assert_eq!(store(f).purge_sessions(IDLE, 10).await.unwrap(), 1);
    f.advance(HOUR / 2).await;
    assert_eq!(store(f).purge_sessions(IDLE, 10).await.unwrap(), 1);
    assert_eq!(store(f).purge_sessions(IDLE, 10).await.unwrap(), 0);
    assert!(used(f, 3).await.is_some());
    assert_eq!(store(f).purge_sessions(Duration::MAX, 10).await.unwrap(), 0);
}

pub async fn a_purge_of_sessions_deletes_no_more_than_its_limit(f: &Fixture) {
    for number in 1..=3 {
        begin_session(f, ORG, number).await;
    }
    f.advance(2 * DAY).await;
    for deleted in [2, 1, 0] {
        assert_eq!(store(f).purge_sessions(IDLE, 2).await.unwrap(), deleted);
    }
}

pub(super) fn behind() -> [Credential; 2] {
    [
        Credential::Session(session_id(7)),
        Credential::ApiKey(ApiKeyId::new(Uuid::from_u128(8))),
    ]
}

async fn issue(f: &Fixture, org: OrgId, number: u8, credential: Credential) {
    store(f)
        .create_socket_ticket(org, &digest(number), credential, HOUR)
        .await
        .unwrap();
}

async fn redeemed(f: &Fixture, number: u8) -> Option<TicketRecord> {
    store(f)
        .redeem_socket_ticket(&digest(number))
        .await
        .unwrap()
}

pub async fn a_ticket_is_redeemed_once(f: &Fixture) {
    for (credential, number) in behind().into_iter().zip(1..) {
        issue(f, ORG, number, credential).await;
        let org_id = ORG;
        let ticket = TicketRecord { org_id, credential };
        assert_eq!(redeemed(f, number).await, Some(ticket));
        assert_eq!(redeemed(f, number).await, None);
    }
    assert_eq!(redeemed(f, 9).await, None);
}

pub async fn of_many_who_redeem_a_ticket_one_does(f: &Fixture) {
    let other = f.second_handle().await;
    let both = [&f.stores.credentials, &other.credentials];
    for _ in 0..f.repeats.min(50) {
        issue(f, ORG, 1, behind()[0]).await;
        let calls = (0..4).map(|turn| {
            let store = both[turn % 2].clone();
            tokio::spawn(async move { store.redeem_socket_ticket(&digest(1)).await.unwrap() })
        });
        let mut winners = 0;
        for call in calls.collect::<Vec<_>>() {
            winners += u32::from(call.await.unwrap().is_some());
        }
        assert_eq!(winners, 1);
    }
}

pub async fn a_ticket_is_worthless_after_its_time(f: &Fixture) {
    issue(f, ORG, 1, behind()[0]).await;
    f.advance(HOUR + SECOND).await;
    assert_eq!(redeemed(f, 1).await, None);
}

pub async fn tickets_that_are_over_are_purged_and_others_stay(f: &Fixture) {
    issue(f, ORG, 1, behind()[0]).await;
    issue(f, OTHER, 2, behind()[1]).await;
    f.advance(HOUR / 2).await;
    issue(f, ORG, 3, behind()[0]).await;
    assert_eq!(store(f).purge_socket_tickets(10).await.unwrap(), 0);
    f.advance(HOUR / 2 + SECOND).await;
    assert_eq!(store(f).purge_socket_tickets(10).await.unwrap(), 2);
    assert_eq!(store(f).purge_socket_tickets(10).await.unwrap(), 0);
    assert!(redeemed(f, 3).await.is_some());
}

pub async fn a_purge_of_tickets_deletes_no_more_than_its_limit(f: &Fixture) {
    for number in 1..=3 {
        issue(f, ORG, number, behind()[0]).await;
    }
    f.advance(2 * HOUR).await;
    for deleted in [2, 1, 0] {
        assert_eq!(store(f).purge_socket_tickets(2).await.unwrap(), deleted);
    }
}
