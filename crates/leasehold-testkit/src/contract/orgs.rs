//! Orgs and memberships.

use leasehold_core::store::tenancy::{MemberRole, MembershipRecord, OrgRecord};
use leasehold_core::{OrgId, UserId};
use uuid::Uuid;

use super::fixture::Fixture;
use super::samples::{CREATED, HOUR, OPERATOR, ORG, OTHER, USER, item};

fn org(id: OrgId) -> OrgRecord {
    OrgRecord {
        id,
        name: format!("it's \"{id}\" 😀"),
        created_at: CREATED,
        deleted_at: None,
    }
}

fn numbered(number: u128) -> OrgId {
    OrgId::new(Uuid::from_u128(number))
}

async fn live(f: &Fixture, after: Option<OrgId>, limit: u32) -> Vec<OrgId> {
    let orgs = f.stores.tenancy.live_orgs(after, limit).await.unwrap();
    orgs.iter().map(|org| org.id).collect()
}

pub async fn an_org_comes_back_as_it_was_created(f: &Fixture) {
    assert_eq!(f.stores.tenancy.org(ORG).await.unwrap(), None);
    assert!(f.stores.tenancy.create_org(&org(ORG)).await.unwrap());
    assert_eq!(f.stores.tenancy.org(ORG).await.unwrap(), Some(org(ORG)));
    assert_eq!(
        f.stores.tenancy.live_orgs(None, 10).await.unwrap(),
        [org(ORG)]
    );
}

pub async fn an_org_is_created_once(f: &Fixture) {
    assert!(f.stores.tenancy.create_org(&org(ORG)).await.unwrap());
    let renamed = OrgRecord {
        name: "renamed".to_owned(),
        ..org(ORG)
    };
    assert!(!f.stores.tenancy.create_org(&renamed).await.unwrap());
    assert_eq!(f.stores.tenancy.org(ORG).await.unwrap(), Some(org(ORG)));
}

pub async fn a_deleted_org_is_marked_once_and_can_still_be_read(f: &Fixture) {
    f.stores.tenancy.create_org(&org(ORG)).await.unwrap();
    let (deleted, moment) = f.timed(f.stores.tenancy.delete_org(ORG)).await;
    assert!(deleted.unwrap());
    let stored = f.stores.tenancy.org(ORG).await.unwrap().expect("the org");
    moment.assert_is(stored.deleted_at.expect("a mark"));
    assert_eq!(
        OrgRecord {
            deleted_at: None,
            ..stored.clone()
        },
        org(ORG)
    );
    f.advance(HOUR).await;
    assert!(!f.stores.tenancy.delete_org(ORG).await.unwrap());
    assert!(!f.stores.tenancy.create_org(&org(ORG)).await.unwrap());
    assert_eq!(f.stores.tenancy.org(ORG).await.unwrap(), Some(stored));
    assert_eq!(live(f, None, 10).await, []);
}

pub async fn an_org_that_is_not_there_is_not_deleted(f: &Fixture) {
    assert!(!f.stores.tenancy.delete_org(ORG).await.unwrap());
}

pub async fn live_orgs_are_read_in_id_order_page_by_page(f: &Fixture) {
    for number in [4, 1, 3, 2, 5] {
        f.stores
            .tenancy
            .create_org(&org(numbered(number)))
            .await
            .unwrap();
    }
    f.stores.tenancy.delete_org(numbered(3)).await.unwrap();
    assert_eq!(live(f, None, 2).await, [numbered(1), numbered(2)]);
    assert_eq!(
        live(f, Some(numbered(2)), 2).await,
        [numbered(4), numbered(5)]
    );
    assert_eq!(live(f, Some(numbered(3)), 1).await, [numbered(4)]);
    assert_eq!(live(f, Some(numbered(5)), 2).await, []);
}

pub async fn the_items_of_a_deleted_org_stay(f: &Fixture) {
    f.stores.tenancy.create_org(&org(ORG)).await.unwrap();
    let row = f.insert(item()).await;
    f.stores.tenancy.delete_org(ORG).await.unwrap();
    assert_eq!(f.row(row.id).await, row);
}

fn member(org_id: OrgId, user_id: UserId, role: MemberRole) -> MembershipRecord {
    MembershipRecord {
        org_id,
        user_id,
        role,
    }
}

pub async fn a_membership_is_of_its_org_and_user(f: &Fixture) {
    let store = &f.stores.tenancy;
    for id in [ORG, OTHER] {
        store.create_org(&org(id)).await.unwrap();
    }
    let ours = member(ORG, USER, MemberRole::Admin);
    store.put_membership(&ours).await.unwrap();
    assert_eq!(store.membership(ORG, USER).await.unwrap(), Some(ours));
    assert_eq!(store.membership(OTHER, USER).await.unwrap(), None);
    assert_eq!(store.membership(ORG, OPERATOR).await.unwrap(), None);
    let theirs = member(OTHER, USER, MemberRole::Viewer);
    store.put_membership(&theirs).await.unwrap();
    assert!(store.end_membership(ORG, USER).await.unwrap());
    assert_eq!(store.membership(ORG, USER).await.unwrap(), None);
    assert_eq!(store.membership(OTHER, USER).await.unwrap(), Some(theirs));
}

pub async fn a_membership_is_replaced_by_the_next_one(f: &Fixture) {
    f.stores.tenancy.create_org(&org(ORG)).await.unwrap();
    for role in MemberRole::ALL {
        f.stores
            .tenancy
            .put_membership(&member(ORG, USER, role))
            .await
            .unwrap();
        let stored = f.stores.tenancy.membership(ORG, USER).await.unwrap();
        assert_eq!(stored, Some(member(ORG, USER, role)));
    }
}

pub async fn a_membership_ends_once_and_may_begin_again(f: &Fixture) {
    let store = &f.stores.tenancy;
    store.create_org(&org(ORG)).await.unwrap();
    assert!(!store.end_membership(ORG, USER).await.unwrap());
    store
        .put_membership(&member(ORG, USER, MemberRole::Owner))
        .await
        .unwrap();
    assert!(store.end_membership(ORG, USER).await.unwrap());
    assert!(!store.end_membership(ORG, USER).await.unwrap());
    store
        .put_membership(&member(ORG, USER, MemberRole::Member))
        .await
        .unwrap();
    let stored = store.membership(ORG, USER).await.unwrap();
    assert_eq!(stored, Some(member(ORG, USER, MemberRole::Member)));
}
