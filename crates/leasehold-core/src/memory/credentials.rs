//! The promises about sessions and tickets.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::MemoryStore;
use crate::ids::{OrgId, SessionId, UserId};
use crate::store::credentials::{
    Credential, Digest, NewSession, SEEN_EVERY, SessionRecord, TicketRecord,
};
use crate::store::{CredentialStore, StoreResult};
use crate::time::{age, later};

/// Sessions and tickets, those that are over included until they are purged.
#[derive(Default)]
pub(super) struct Credentials {
    sessions: BTreeMap<SessionId, (SessionRecord, Digest)>,
    tickets: BTreeMap<Digest, Ticket>,
}

struct Ticket {
    record: TicketRecord,
    expires_at: Timestamp,
}

fn is_over(session: &SessionRecord, idle: Duration, now: Timestamp) -> bool {
    session.expires_at <= now || age(now, session.last_seen_at) >= idle
}

/// Deletes the first `limit` that are over.
fn purge<K: Ord + Copy, V>(
    rows: &mut BTreeMap<K, V>,
    limit: u32,
    is_over: impl Fn(&V) -> bool,
) -> u32 {
    let over = rows.iter().filter(|(_, row)| is_over(row));
    let over: Vec<K> = over.map(|(key, _)| *key).take(limit as usize).collect();
    let mut purged = 0;
    for key in over {
        rows.remove(&key);
        purged += 1;
    }
    purged
}

#[async_trait]
impl CredentialStore for MemoryStore {
    async fn create_session(
        &self,
        org: OrgId,
        session: &NewSession,
        lifetime: Duration,
    ) -> StoreResult<bool> {
        Ok(self.call(|state, now| {
            let sessions = &mut state.credentials.sessions;
            if sessions.contains_key(&session.id) {
                return false;
            }
            let record = SessionRecord {
                id: session.id,
                org_id: org,
                user_id: session.user_id,
                identity_id: session.identity_id,
                created_at: now,
                last_seen_at: now,
                expires_at: later(now, lifetime),
            };
            sessions.insert(session.id, (record, session.digest));
            true
        }))
    }

    async fn use_session(
        &self,
        digest: &Digest,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>> {
        Ok(self.call(|state, now| {
            let mut sessions = state.credentials.sessions.values_mut();
            let (session, _) =
                sessions.find(|(session, its)| its == digest && !is_over(session, idle, now))?;
            if age(now, session.last_seen_at) >= SEEN_EVERY {
                session.last_seen_at = now;
            }
            Some(session.clone())
        }))
    }

    async fn session(
        &self,
        org: OrgId,
        session: SessionId,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>> {
        Ok(self.call(|state, now| {
            let (session, _) = state.credentials.sessions.get(&session)?;
            let is_its = session.org_id == org && !is_over(session, idle, now);
            is_its.then(|| session.clone())
        }))
    }

    async fn end_session(&self, org: OrgId, session: SessionId) -> StoreResult<bool> {
        Ok(self.call(|state, _| {
            let sessions = &mut state.credentials.sessions;
            let is_its = sessions
                .get(&session)
                .is_some_and(|(session, _)| session.org_id == org);
            is_its && sessions.remove(&session).is_some()
        }))
    }

    async fn end_sessions(&self, org: OrgId, user: UserId) -> StoreResult<u32> {
        Ok(self.call(|state, _| {
            purge(&mut state.credentials.sessions, u32::MAX, |(session, _)| {
                session.org_id == org && session.user_id == user
            })
        }))
    }

    async fn purge_sessions(&self, idle: Duration, limit: u32) -> StoreResult<u32> {
        Ok(self.call(|state, now| {
            purge(&mut state.credentials.sessions, limit, |(session, _)| {
                is_over(session, idle, now)
            })
        }))
    }

    async fn create_socket_ticket(
        &self,
        org: OrgId,
        digest: &Digest,
        credential: Credential,
        lifetime: Duration,
    ) -> StoreResult<()> {
        self.call(|state, now| {
            let record = TicketRecord {
                org_id: org,
                credential,
            };
            let expires_at = later(now, lifetime);
            let ticket = Ticket { record, expires_at };
            state.credentials.tickets.insert(*digest, ticket);
        });
        Ok(())
    }

    async fn redeem_socket_ticket(&self, digest: &Digest) -> StoreResult<Option<TicketRecord>> {
        Ok(self.call(|state, now| {
            let tickets = &mut state.credentials.tickets;
            let record = tickets
                .get(digest)
                .filter(|ticket| ticket.expires_at > now)?
                .record;
            tickets.remove(digest);
            Some(record)
        }))
    }

    async fn purge_socket_tickets(&self, limit: u32) -> StoreResult<u32> {
        Ok(self.call(|state, now| {
            purge(&mut state.credentials.tickets, limit, |ticket| {
                ticket.expires_at <= now
            })
        }))
    }
}
