use super::*;
use crate::store::tenancy::MemberRole;

fn request() -> RequestContext {
    let app = App {
        kind: AppKind::Worker,
        version: "tests@0".into(),
    };
    RequestContext::new(RequestId::mint(), app)
}

fn org(deleted: bool) -> OrgRecord {
    let deleted_at = deleted.then_some(Timestamp::UNIX_EPOCH);
    OrgRecord {
        id: OrgId::SINGLE,
        name: "acme".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
        deleted_at,
    }
}

fn member(org_id: OrgId) -> MembershipRecord {
    MembershipRecord {
        org_id,
        user_id: UserId::new(uuid::Uuid::from_u128(7)),
        role: MemberRole::Viewer,
    }
}

#[test]
fn a_claim_runs_as_the_service_on_behalf_of_its_enqueuer() {
    let cause = RequestId::mint();
    let member = member(OrgId::SINGLE);
    let context = claim_context(&request(), Some(&org(false)), Some(&member), cause).unwrap();
    assert_eq!(context.user_id(), member.user_id);
    assert_eq!(context.role(), Role::Service);
    assert_eq!(context.request().caused_by, Some(cause));
    assert_ne!(context.request().request_id, cause);
}

#[test]
fn a_departed_enqueuer_leaves_exactly_the_service_context() {
    let request = request();
    let stranger = member(OrgId::new(uuid::Uuid::from_u128(9)));
    let service = service_context(&request, &org(false)).unwrap();
    for enqueuer in [None, Some(&stranger)] {
        let context = claim_context(&request, Some(&org(false)), enqueuer, RequestId::NIL).unwrap();
        assert_eq!(context, service);
    }
}

#[test]
fn a_gone_org_yields_no_context() {
    let request = request();
    assert_eq!(
        claim_context(&request, None, None, RequestId::NIL),
        Err(OrgGone)
    );
    assert_eq!(
        claim_context(&request, Some(&org(true)), None, RequestId::NIL),
        Err(OrgGone)
    );
    assert_eq!(service_context(&request, &org(true)), Err(OrgGone));
    let elsewhere = member(OrgId::NIL);
    assert_eq!(
        member_context(&request, &org(false), &elsewhere),
        Err(OrgGone)
    );
}

#[test]
fn each_rung_allows_what_the_one_below_does_and_only_the_service_settles() {
    use Permission::{EnqueueWork, OperateWork, ReadWork, RunWork};
    let ladder = [Role::Viewer, Role::Member, Role::Admin, Role::Owner];
    for pair in ladder.windows(2) {
        for permission in [ReadWork, EnqueueWork, OperateWork] {
            assert!(!pair[0].allows(permission) || pair[1].allows(permission));
        }
    }
    assert!(ladder.iter().all(|role| !role.allows(RunWork)));
    assert!(Role::Service.allows(RunWork) && !Role::Service.allows(OperateWork));
    let member = member_context(&request(), &org(false), &member(OrgId::SINGLE)).unwrap();
    assert!(member.require(ReadWork).is_ok() && member.require(EnqueueWork).is_err());
}
