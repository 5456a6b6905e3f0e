//! The promises about sessions and tickets.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::credentials::{
    Credential, Digest, NewSession, SEEN_EVERY, SessionRecord, TicketRecord,
};
use leasehold_core::store::{CredentialStore, StoreResult};
use leasehold_core::time::{age, earlier, later};
use leasehold_core::{OrgId, SessionId, UserId};
use rusqlite::{Row, params};

use crate::error::{Answer, Fault};
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;

const CREATE: &str = "
    INSERT INTO sessions (
        id, org_id, user_id, identity_id, digest, created_at, last_seen_at, expires_at
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7)
    ON CONFLICT (id) DO NOTHING";

const FIND: &str = "
    SELECT id, org_id, user_id, identity_id, created_at, last_seen_at, expires_at
    FROM sessions INDEXED BY sessions_digest
    WHERE digest = ?1 AND expires_at > ?2 AND last_seen_at > ?3";

const SEE: &str = "
    UPDATE sessions SET last_seen_at = ?2
    WHERE id = ?1 AND expires_at > ?2 AND last_seen_at > ?3 AND last_seen_at <= ?4";

const READ: &str = "
    SELECT id, org_id, user_id, identity_id, created_at, last_seen_at, expires_at
    FROM sessions
    WHERE id = ?1 AND expires_at > ?2 AND last_seen_at > ?3 AND org_id = ?4";

const PURGE_SESSIONS: &str = "
    DELETE FROM sessions WHERE id IN (
        SELECT id FROM sessions WHERE expires_at <= ?1 OR last_seen_at <= ?2 LIMIT ?3
    )";

const CREATE_TICKET: &str = "
    INSERT INTO socket_tickets (digest, org_id, credential_kind, credential_id, expires_at)
    VALUES (?1, ?2, ?3, ?4, ?5)";

const REDEEM: &str = "
    DELETE FROM socket_tickets WHERE digest = ?1 AND expires_at > ?2
    RETURNING org_id, credential_kind, credential_id";

const PURGE_TICKETS: &str = "
    DELETE FROM socket_tickets WHERE digest IN (
        SELECT digest FROM socket_tickets WHERE expires_at <= ?1 LIMIT ?2
    )";

/// The last moment at which a session that is over by now was seen.
fn idle_since(now: Timestamp, idle: Duration) -> i64 {
    earlier(now, idle).as_microsecond()
}

#[async_trait]
impl CredentialStore for SqliteStore {
    async fn create_session(
        &self,
        org: OrgId,
        session: &NewSession,
        lifetime: Duration,
    ) -> StoreResult<bool> {
        let session = session.clone();
        self.write(1, move |unit| {
            let created = unit.execute(
                CREATE,
                params![
                    bytes(session.id.as_uuid()),
                    bytes(org.as_uuid()),
                    bytes(session.user_id.as_uuid()),
                    bytes(session.identity_id.as_uuid()),
                    session.digest.as_bytes(),
                    unit.now.as_microsecond(),
                    later(unit.now, lifetime).as_microsecond(),
                ],
            )?;
            Ok(created == 1)
        })
        .await
    }

    async fn use_session(
        &self,
        digest: &Digest,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>> {
        let digest = *digest;
        // A reader looks first: most uses write nothing, and must not wait for the writer.
        let (found, now) = self
            .read(move |db, now| {
                let mut statement = db.prepare_cached(FIND)?;
                let params = params![
                    digest.as_bytes(),
                    now.as_microsecond(),
                    idle_since(now, idle)
                ];
                Ok((rows::first(&mut statement, params, session)?, now))
            })
            .await?;
        let found = match found {
            Some(found) if age(now, found.last_seen_at) >= SEEN_EVERY => found,
            other => return Ok(other),
        };
        self.write(1, move |unit| {
            let now = unit.now.as_microsecond();
            let id = bytes(found.id.as_uuid());
            let idle_since = idle_since(unit.now, idle);
            let due = seen_until(unit.now);
            unit.execute(SEE, params![id, now, idle_since, due])?;
            let mut statement = unit.db.prepare_cached(FIND)?;
            rows::first(
                &mut statement,
                params![digest.as_bytes(), now, idle_since],
                session,
            )
        })
        .await
    }

    async fn session(
        &self,
        org: OrgId,
        id: SessionId,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>> {
        self.read(move |db, now| {
            let mut statement = db.prepare_cached(READ)?;
            let params = params![
                bytes(id.as_uuid()),
                now.as_microsecond(),
                idle_since(now, idle),
                bytes(org.as_uuid()),
            ];
            rows::first(&mut statement, params, session)
        })
        .await
    }

    async fn end_session(&self, org: OrgId, id: SessionId) -> StoreResult<bool> {
        self.write(1, move |unit| {
            let ended = unit.execute(
                "DELETE FROM sessions WHERE org_id = ?1 AND id = ?2",
                params![bytes(org.as_uuid()), bytes(id.as_uuid())],
            )?;
            Ok(ended == 1)
        })
        .await
    }

    async fn end_sessions(&self, org: OrgId, user: UserId) -> StoreResult<u32> {
        self.write(1, move |unit| {
            let ended = unit.execute(
                "DELETE FROM sessions WHERE org_id = ?1 AND user_id = ?2",
                params![bytes(org.as_uuid()), bytes(user.as_uuid())],
            )?;
            Ok(count(ended))
        })
        .await
    }

    async fn purge_sessions(&self, idle: Duration, limit: u32) -> StoreResult<u32> {
        self.write(limit as usize, move |unit| {
            let idle_since = idle_since(unit.now, idle);
            let params = params![unit.now.as_microsecond(), idle_since, limit];
            Ok(count(unit.execute(PURGE_SESSIONS, params)?))
        })
        .await
    }

    async fn create_socket_ticket(
        &self,
        org: OrgId,
        digest: &Digest,
        credential: Credential,
        lifetime: Duration,
    ) -> StoreResult<()> {
        let digest = *digest;
        self.write(1, move |unit| {
            let (kind, id) = credential.parts();
            unit.execute(
                CREATE_TICKET,
                params![
                    digest.as_bytes(),
                    bytes(org.as_uuid()),
                    kind,
                    bytes(id),
                    later(unit.now, lifetime).as_microsecond(),
                ],
            )?;
            Ok(())
        })
        .await
    }

    async fn redeem_socket_ticket(&self, digest: &Digest) -> StoreResult<Option<TicketRecord>> {
        let digest = *digest;
        self.write(1, move |unit| {
            let mut statement = unit.db.prepare_cached(REDEEM)?;
            let params = params![digest.as_bytes(), unit.now.as_microsecond()];
            let tickets = rows::collect(&mut statement, params, ticket)?;
            Ok(tickets.into_iter().next())
        })
        .await
    }

    async fn purge_socket_tickets(&self, limit: u32) -> StoreResult<u32> {
        self.write(limit as usize, move |unit| {
            let params = params![unit.now.as_microsecond(), limit];
            Ok(count(unit.execute(PURGE_TICKETS, params)?))
        })
        .await
    }
}

/// A session last seen then or before is due to be noted again.
fn seen_until(now: Timestamp) -> i64 {
    earlier(now, SEEN_EVERY).as_microsecond()
}

fn count(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

fn session(row: &Row<'_>) -> Answer<SessionRecord> {
    let mut columns = Columns::of(row);
    Ok(SessionRecord {
        id: columns.uuid()?.into(),
        org_id: columns.uuid()?.into(),
        user_id: columns.uuid()?.into(),
        identity_id: columns.uuid()?.into(),
        created_at: columns.timestamp()?,
        last_seen_at: columns.timestamp()?,
        expires_at: columns.timestamp()?,
    })
}

fn ticket(row: &Row<'_>) -> Answer<TicketRecord> {
    let mut columns = Columns::of(row);
    let org_id = columns.uuid()?.into();
    let word = columns.text()?;
    let credential = Credential::from_parts(word, columns.uuid()?)
        .ok_or_else(|| Fault::damaged(format_args!("{word:?} is no kind of credential")))?;
    Ok(TicketRecord { org_id, credential })
}
