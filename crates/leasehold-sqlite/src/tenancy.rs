//! The promises about orgs and memberships.

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::StoreResult;
use leasehold_core::store::TenancyStore;
use leasehold_core::store::tenancy::{MemberRole, MembershipRecord, OrgRecord};
use leasehold_core::{OrgId, UserId};
use rusqlite::{Row, params};

use crate::error::{Answer, Fault};
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;

const LIVE: &str = "
    SELECT id, name, created_at, deleted_at FROM orgs INDEXED BY orgs_live
    WHERE deleted_at IS NULL AND id > ?1
    ORDER BY id
    LIMIT ?2";

#[async_trait]
impl TenancyStore for SqliteStore {
    async fn create_org(&self, org: &OrgRecord) -> StoreResult<bool> {
        let org = org.clone();
        self.write(1, move |unit| {
            let created = unit.execute(
                "INSERT INTO orgs (id, name, created_at, deleted_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
                params![
                    bytes(org.id.as_uuid()),
                    org.name,
                    org.created_at.as_microsecond(),
                    org.deleted_at.map(Timestamp::as_microsecond),
                ],
            )?;
            Ok(created == 1)
        })
        .await
    }

    async fn delete_org(&self, org: OrgId) -> StoreResult<bool> {
        self.write(1, move |unit| {
            let deleted = unit.execute(
                "UPDATE orgs SET deleted_at = ?2 WHERE id = ?1 AND deleted_at IS NULL",
                params![bytes(org.as_uuid()), unit.now.as_microsecond()],
            )?;
            Ok(deleted == 1)
        })
        .await
    }

    async fn org(&self, org: OrgId) -> StoreResult<Option<OrgRecord>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(
                "SELECT id, name, created_at, deleted_at FROM orgs WHERE id = ?1",
            )?;
            rows::first(&mut statement, [bytes(org.as_uuid())], org_record)
        })
        .await
    }

    async fn live_orgs(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgRecord>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(LIVE)?;
            rows::collect(
                &mut statement,
                params![rows::after(after.map(|id| id.as_uuid())), limit],
                org_record,
            )
        })
        .await
    }

    async fn put_membership(&self, member: &MembershipRecord) -> StoreResult<()> {
        let member = member.clone();
        self.write(1, move |unit| {
            unit.execute(
                "INSERT INTO memberships (org_id, user_id, role) VALUES (?1, ?2, ?3)
                 ON CONFLICT (org_id, user_id) DO UPDATE SET role = excluded.role",
                params![
                    bytes(member.org_id.as_uuid()),
                    bytes(member.user_id.as_uuid()),
                    member.role.as_str(),
                ],
            )?;
            Ok(())
        })
        .await
    }

    async fn end_membership(&self, org: OrgId, user: UserId) -> StoreResult<bool> {
        self.write(1, move |unit| {
            let ended = unit.execute(
                "DELETE FROM memberships WHERE org_id = ?1 AND user_id = ?2",
                params![bytes(org.as_uuid()), bytes(user.as_uuid())],
            )?;
            Ok(ended == 1)
        })
        .await
    }

    async fn membership(&self, org: OrgId, user: UserId) -> StoreResult<Option<MembershipRecord>> {
        self.read(move |db, _| {
            let mut statement = db.prepare_cached(
                "SELECT role FROM memberships WHERE org_id = ?1 AND user_id = ?2",
            )?;
            let params = [bytes(org.as_uuid()), bytes(user.as_uuid())];
            rows::first(&mut statement, params, |row| {
                let word = Columns::of(row).text()?;
                let role = MemberRole::parse(word)
                    .ok_or_else(|| Fault::damaged(format_args!("{word:?} is no role")))?;
                Ok(MembershipRecord {
                    org_id: org,
                    user_id: user,
                    role,
                })
            })
        })
        .await
    }
}

fn org_record(row: &Row<'_>) -> Answer<OrgRecord> {
    let mut columns = Columns::of(row);
    Ok(OrgRecord {
        id: columns.uuid()?.into(),
        name: columns.text()?.to_owned(),
        created_at: columns.timestamp()?,
        deleted_at: columns.timestamp_or_null()?,
    })
}
