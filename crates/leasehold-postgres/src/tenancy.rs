//! The promises about orgs and memberships.

use async_trait::async_trait;
use leasehold_core::store::StoreResult;
use leasehold_core::store::TenancyStore;
use leasehold_core::store::tenancy::{MemberRole, MembershipRecord, OrgRecord};
use leasehold_core::{OrgId, UserId};
use tokio_postgres::Row;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::{self, Columns, Moment};
use crate::store::PostgresStore;

const CREATE: &str = "
    insert into {schema}.orgs (id, name, created_at, deleted_at) values ($1, $2, $3, $4)
    on conflict do nothing";

const DELETE: &str = "
    update {schema}.orgs set deleted_at = {schema}.clock() where id = $1 and deleted_at is null";

const READ: &str = "select id, name, created_at, deleted_at from {schema}.orgs where id = $1";

const LIVE: &str = "
    select id, name, created_at, deleted_at from {schema}.orgs
    where deleted_at is null and id >= $1
    order by id
    limit $2";

const PUT_MEMBERSHIP: &str = "
    insert into {schema}.memberships (org_id, user_id, role) values ($1, $2, $3)
    on conflict (org_id, user_id) do update set role = excluded.role";

const END_MEMBERSHIP: &str = "
    delete from {schema}.memberships where org_id = $1 and user_id = $2";

const MEMBERSHIP: &str = "
    select role from {schema}.memberships where org_id = $1 and user_id = $2";

#[async_trait]
impl TenancyStore for PostgresStore {
    async fn create_org(&self, org: &OrgRecord) -> StoreResult<bool> {
        let created = self
            .of_org(org.id)
            .execute(
                CREATE,
                &[
                    &org.id.as_uuid(),
                    &org.name,
                    &Moment(org.created_at),
                    &org.deleted_at.map(Moment),
                ],
            )
            .await?;
        Ok(created == 1)
    }

    async fn delete_org(&self, org: OrgId) -> StoreResult<bool> {
        let deleted = self.of_org(org).execute(DELETE, &[&org.as_uuid()]).await?;
        Ok(deleted == 1)
    }

    async fn org(&self, org: OrgId) -> StoreResult<Option<OrgRecord>> {
        let row = self.of_org(org).query_opt(READ, &[&org.as_uuid()]).await?;
        Ok(row.as_ref().map(org_record).transpose()?)
    }

    async fn live_orgs(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgRecord>> {
        let Some(start) = rows::page_start(after.map(|id| id.as_uuid())) else {
            return Ok(Vec::new());
        };
        let rows = self
            .tenantless()
            .query(LIVE, &[&start, &i64::from(limit)])
            .await?;
        let orgs: Answer<_> = rows.iter().map(org_record).collect();
        Ok(orgs?)
    }

    async fn put_membership(&self, member: &MembershipRecord) -> StoreResult<()> {
        self.of_org(member.org_id)
            .execute(
                PUT_MEMBERSHIP,
                &[
                    &member.org_id.as_uuid(),
                    &member.user_id.as_uuid(),
                    &member.role.as_str(),
                ],
            )
            .await?;
        Ok(())
    }

    async fn end_membership(&self, org: OrgId, user: UserId) -> StoreResult<bool> {
        let ended = self
            .of_org(org)
            .execute(END_MEMBERSHIP, &[&org.as_uuid(), &user.as_uuid()])
            .await?;
        Ok(ended == 1)
    }

    async fn membership(&self, org: OrgId, user: UserId) -> StoreResult<Option<MembershipRecord>> {
        let row = self
            .of_org(org)
            .query_opt(MEMBERSHIP, &[&org.as_uuid(), &user.as_uuid()])
            .await?;
        let role = row.as_ref().map(role).transpose()?;
        Ok(role.map(|role| MembershipRecord {
            org_id: org,
            user_id: user,
            role,
        }))
    }
}

fn role(row: &Row) -> Answer<MemberRole> {
    let word = Columns::of(row).text()?;
    MemberRole::parse(word).ok_or_else(|| Fault::damaged(format_args!("{word:?} is no role")))
}

fn org_record(row: &Row) -> Answer<OrgRecord> {
    let mut columns = Columns::of(row);
    Ok(OrgRecord {
        id: columns.uuid()?.into(),
        name: columns.text()?.to_owned(),
        created_at: columns.timestamp()?,
        deleted_at: columns.timestamp_or_null()?,
    })
}
