//! The promises about orgs and memberships.

use std::fmt::Debug;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreResult;
use crate::context::Role;
use crate::ids::{OrgId, UserId};

/// Orgs and who belongs to them. Rows only: contexts are made by [`crate::context`].
#[async_trait]
pub trait TenancyStore: Send + Sync + Debug {
    /// Writes an org. `false` if its id is there; the stored row is untouched.
    async fn create_org(&self, org: &OrgRecord) -> StoreResult<bool>;

    /// Marks an org deleted at the store's now. `false` if absent or deleted before. Its work items
    /// stay, and end as orphans when a claim or the sweep meets them.
    async fn delete_org(&self, org: OrgId) -> StoreResult<bool>;

    /// The org, deleted ones included; the reader judges.
    async fn org(&self, org: OrgId) -> StoreResult<Option<OrgRecord>>;

    /// Up to `limit` live orgs in id order after `after`.
    ///
    /// Takes no org: it is how maintenance finds them.
    async fn live_orgs(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgRecord>>;

    /// Writes or replaces a membership of the org.
    async fn put_membership(&self, member: &MembershipRecord) -> StoreResult<()>;

    /// Ends a membership. `false` if there was none.
    async fn end_membership(&self, org: OrgId, user: UserId) -> StoreResult<bool>;

    /// The live membership of the user in the org.
    async fn membership(&self, org: OrgId, user: UserId) -> StoreResult<Option<MembershipRecord>>;
}

/// An org as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgRecord {
    /// Its id.
    pub id: OrgId,
    /// For people.
    pub name: String,
    /// As its creator constructed it.
    pub created_at: Timestamp,
    /// Set once it is gone.
    pub deleted_at: Option<Timestamp>,
}

/// A user's membership of an org, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembershipRecord {
    /// The org.
    pub org_id: OrgId,
    /// The user.
    pub user_id: UserId,
    /// What the user may do there.
    pub role: MemberRole,
}

/// A rung of the ladder. The service role is not among them: no membership carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberRole {
    /// See [`Role::Viewer`].
    Viewer,
    /// See [`Role::Member`].
    Member,
    /// See [`Role::Admin`].
    Admin,
    /// See [`Role::Owner`].
    Owner,
}

impl MemberRole {
    /// Every rung, lowest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Admin, Self::Owner];

    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// The rung of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

impl From<MemberRole> for Role {
    fn from(role: MemberRole) -> Self {
        match role {
            MemberRole::Viewer => Self::Viewer,
            MemberRole::Member => Self::Member,
            MemberRole::Admin => Self::Admin,
            MemberRole::Owner => Self::Owner,
        }
    }
}
