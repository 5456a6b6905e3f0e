//! The promises about sessions and tickets.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::credentials::{
    Credential, Digest, NewSession, SEEN_EVERY, SessionRecord, TicketRecord,
};
use leasehold_core::store::{CredentialStore, StoreResult};
use leasehold_core::{OrgId, SessionId, UserId};
use tokio_postgres::Row;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::{Columns, microseconds, microseconds_back};
use crate::store::PostgresStore;

const CREATE: &str = include_str!("sql/create_session.sql");

const USE: &str = include_str!("sql/use_session.sql");

const READ: &str = "
    select id, org_id, user_id, identity_id, created_at, last_seen_at, expires_at
    from {schema}.sessions
    where id = $1 and org_id = $2 and expires_at > {schema}.clock()
        and last_seen_at > {schema}.clock() - $3::bigint * interval '1 microsecond'";

const END: &str = "delete from {schema}.sessions where org_id = $1 and id = $2";

const END_ALL: &str = "delete from {schema}.sessions where org_id = $1 and user_id = $2";

const PURGE_SESSIONS: &str = "
    with over as materialized (
        select id from {schema}.sessions
        where expires_at <= {schema}.clock()
            or last_seen_at <= {schema}.clock() - $1::bigint * interval '1 microsecond'
        limit $2
        for update skip locked
    )
    delete from {schema}.sessions session using over where session.id = over.id";

const CREATE_TICKET: &str = include_str!("sql/create_ticket.sql");

const REDEEM: &str = "
    delete from {schema}.socket_tickets where digest = $1 and expires_at > {schema}.clock()
    returning org_id, credential_kind, credential_id";

const PURGE_TICKETS: &str = "
    with over as materialized (
        select digest from {schema}.socket_tickets
        where expires_at <= {schema}.clock()
        limit $1
        for update skip locked
    )
    delete from {schema}.socket_tickets ticket using over where ticket.digest = over.digest";

#[async_trait]
impl CredentialStore for PostgresStore {
    async fn create_session(
        &self,
        org: OrgId,
        session: &NewSession,
        lifetime: Duration,
    ) -> StoreResult<bool> {
        let created = self
            .of_org(org)
            .execute(
                CREATE,
                &[
                    &session.id.as_uuid(),
                    &org.as_uuid(),
                    &session.user_id.as_uuid(),
                    &session.identity_id.as_uuid(),
                    &session.digest.as_bytes().as_slice(),
                    &microseconds(lifetime),
                ],
            )
            .await?;
        Ok(created == 1)
    }

    async fn use_session(
        &self,
        digest: &Digest,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>> {
        let row = self
            .tenantless()
            .query_opt(
                USE,
                &[
                    &digest.as_bytes().as_slice(),
                    &microseconds_back(idle),
                    &microseconds(SEEN_EVERY),
                ],
            )
            .await?;
        Ok(row.as_ref().map(session).transpose()?)
    }

    async fn session(
        &self,
        org: OrgId,
        id: SessionId,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>> {
        let params = (id.as_uuid(), org.as_uuid(), microseconds_back(idle));
        let row = self
            .of_org(org)
            .query_opt(READ, &[&params.0, &params.1, &params.2])
            .await?;
        Ok(row.as_ref().map(session).transpose()?)
    }

    async fn end_session(&self, org: OrgId, id: SessionId) -> StoreResult<bool> {
        let ended = self
            .of_org(org)
            .execute(END, &[&org.as_uuid(), &id.as_uuid()])
            .await?;
        Ok(ended == 1)
    }

    async fn end_sessions(&self, org: OrgId, user: UserId) -> StoreResult<u32> {
        let ended = self
            .of_org(org)
            .execute(END_ALL, &[&org.as_uuid(), &user.as_uuid()])
            .await?;
        Ok(count(ended))
    }

    async fn purge_sessions(&self, idle: Duration, limit: u32) -> StoreResult<u32> {
        let purged = self
            .tenantless()
            .execute(
                PURGE_SESSIONS,
                &[&microseconds_back(idle), &i64::from(limit)],
            )
            .await?;
        Ok(count(purged))
    }

    async fn create_socket_ticket(
        &self,
        org: OrgId,
        digest: &Digest,
        credential: Credential,
        lifetime: Duration,
    ) -> StoreResult<()> {
        let (kind, id) = credential.parts();
        self.of_org(org)
            .execute(
                CREATE_TICKET,
                &[
                    &digest.as_bytes().as_slice(),
                    &org.as_uuid(),
                    &kind,
                    &id,
                    &microseconds(lifetime),
                ],
            )
            .await?;
        Ok(())
    }

    async fn redeem_socket_ticket(&self, digest: &Digest) -> StoreResult<Option<TicketRecord>> {
        let row = self
            .tenantless()
            .query_opt(REDEEM, &[&digest.as_bytes().as_slice()])
            .await?;
        Ok(row.as_ref().map(ticket).transpose()?)
    }

    async fn purge_socket_tickets(&self, limit: u32) -> StoreResult<u32> {
        let purged = self
            .tenantless()
            .execute(PURGE_TICKETS, &[&i64::from(limit)])
            .await?;
        Ok(count(purged))
    }
}

fn count(rows: u64) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

fn session(row: &Row) -> Answer<SessionRecord> {
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

fn ticket(row: &Row) -> Answer<TicketRecord> {
    let mut columns = Columns::of(row);
    let org_id = columns.uuid()?.into();
    let word = columns.text()?;
    let credential = Credential::from_parts(word, columns.uuid()?)
        .ok_or_else(|| Fault::damaged(format_args!("{word:?} is no kind of credential")))?;
    Ok(TicketRecord { org_id, credential })
}
