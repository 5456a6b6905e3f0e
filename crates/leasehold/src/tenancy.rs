//! Where contexts come from: the transitions of [`leasehold_core::context`], fed with rows.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::context::{OrgGone, claim_context, member_context, service_context};
use leasehold_core::store::TenancyStore;
use leasehold_core::store::tenancy::{MemberRole, MembershipRecord, OrgRecord};
use leasehold_core::{OpContext, OrgId, RequestContext, RequestId, StoreError, UserId};

/// Makes the contexts that claims and maintenance run under. Trusted by definition.
#[async_trait]
pub trait Tenancy: Send + Sync + Debug {
    /// The context of a claimed item. A nil or departed `user` gets the org's service context.
    ///
    /// # Errors
    /// [`TenancyError::OrgGone`]: the item is failed as an orphan and never handed out.
    async fn claim_context(
        &self,
        request: &RequestContext,
        org: OrgId,
        user: UserId,
        cause: RequestId,
    ) -> Result<OpContext, TenancyError>;

    /// The context that maintenance of the org runs under.
    ///
    /// # Errors
    /// [`TenancyError::OrgGone`]: what the org left is failed as orphans.
    async fn service_context(
        &self,
        request: &RequestContext,
        org: OrgId,
    ) -> Result<OpContext, TenancyError>;
}

/// Why there is no context.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TenancyError {
    /// The org is absent or deleted.
    #[error(transparent)]
    OrgGone(#[from] OrgGone),
    /// The rows could not be read; ask again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One org and no users: the default of an installation that has no tenants.
#[derive(Debug, Clone, Copy, Default)]
pub struct SingleTenant;

impl SingleTenant {
    fn org(org: OrgId) -> Result<&'static OrgRecord, OrgGone> {
        static SINGLE: LazyLock<OrgRecord> = LazyLock::new(|| OrgRecord {
            id: OrgId::SINGLE,
            name: "single".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            deleted_at: None,
        });
        (org == OrgId::SINGLE).then_some(&*SINGLE).ok_or(OrgGone)
    }

    /// The context of whoever operates the installation: the owner of its one org.
    ///
    /// # Errors
    /// None in practice: the one org is never gone.
    pub fn owner_context(request: &RequestContext) -> Result<OpContext, OrgGone> {
        let member = MembershipRecord {
            org_id: OrgId::SINGLE,
            user_id: UserId::NIL,
            role: MemberRole::Owner,
        };
        member_context(request, Self::org(OrgId::SINGLE)?, &member)
    }
}

#[async_trait]
impl Tenancy for SingleTenant {
    async fn claim_context(
        &self,
        request: &RequestContext,
        org: OrgId,
        _user: UserId,
        cause: RequestId,
    ) -> Result<OpContext, TenancyError> {
        Ok(claim_context(request, Self::org(org).ok(), None, cause)?)
    }

    async fn service_context(
        &self,
        request: &RequestContext,
        org: OrgId,
    ) -> Result<OpContext, TenancyError> {
        Ok(service_context(request, Self::org(org)?)?)
    }
}

/// Orgs and memberships from the built-in tables.
#[derive(Debug, Clone)]
pub struct StoredTenancy {
    store: Arc<dyn TenancyStore>,
}

impl StoredTenancy {
    /// Reads from the store at each claim.
    pub fn new(store: Arc<dyn TenancyStore>) -> Self {
        Self { store }
    }
}

#[async_trait]
impl Tenancy for StoredTenancy {
    async fn claim_context(
        &self,
        request: &RequestContext,
        org: OrgId,
        user: UserId,
        cause: RequestId,
    ) -> Result<OpContext, TenancyError> {
        let record = self.store.org(org).await?;
        let member = if user.is_nil() {
            None
        } else {
            self.store.membership(org, user).await?
        };
        Ok(claim_context(
            request,
            record.as_ref(),
            member.as_ref(),
            cause,
        )?)
    }

    async fn service_context(
        &self,
        request: &RequestContext,
        org: OrgId,
    ) -> Result<OpContext, TenancyError> {
        let record = self.store.org(org).await?.ok_or(OrgGone)?;
        Ok(service_context(request, &record)?)
    }
}
