//! The promises about orgs and memberships.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use async_trait::async_trait;

use super::MemoryStore;
use crate::ids::{OrgId, UserId};
use crate::store::tenancy::{MembershipRecord, OrgRecord};
use crate::store::{StoreResult, TenancyStore};

/// Orgs, deleted ones included, and live memberships.
#[derive(Default)]
pub(super) struct Tenancy {
    orgs: BTreeMap<OrgId, OrgRecord>,
    members: BTreeMap<(OrgId, UserId), MembershipRecord>,
}

#[async_trait]
impl TenancyStore for MemoryStore {
    async fn create_org(&self, org: &OrgRecord) -> StoreResult<bool> {
        Ok(
            self.call(|state, _| match state.tenancy.orgs.entry(org.id) {
                Entry::Vacant(vacant) => {
                    vacant.insert(org.clone());
                    true
                }
                Entry::Occupied(_) => false,
            }),
        )
    }

    async fn delete_org(&self, org: OrgId) -> StoreResult<bool> {
        Ok(
            self.call(|state, now| match state.tenancy.orgs.get_mut(&org) {
                Some(org) if org.deleted_at.is_none() => {
                    org.deleted_at = Some(now);
                    true
                }
                _ => false,
            }),
        )
    }

    async fn org(&self, org: OrgId) -> StoreResult<Option<OrgRecord>> {
        Ok(self.call(|state, _| state.tenancy.orgs.get(&org).cloned()))
    }

    async fn live_orgs(&self, after: Option<OrgId>, limit: u32) -> StoreResult<Vec<OrgRecord>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.call(|state, _| {
            let orgs = state
                .tenancy
                .orgs
                .range((from, Bound::Unbounded))
                .map(|(_, org)| org);
            let live = orgs.filter(|org| org.deleted_at.is_none());
            live.take(limit as usize).cloned().collect()
        }))
    }

    async fn put_membership(&self, member: &MembershipRecord) -> StoreResult<()> {
        self.call(|state, _| {
            state
                .tenancy
                .members
                .insert((member.org_id, member.user_id), member.clone());
        });
        Ok(())
    }

    async fn end_membership(&self, org: OrgId, user: UserId) -> StoreResult<bool> {
        Ok(self.call(|state, _| state.tenancy.members.remove(&(org, user)).is_some()))
    }

    async fn membership(&self, org: OrgId, user: UserId) -> StoreResult<Option<MembershipRecord>> {
        Ok(self.call(|state, _| state.tenancy.members.get(&(org, user)).cloned()))
    }
}
