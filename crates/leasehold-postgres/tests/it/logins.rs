//! The fence between tenants: what each login sees and may do, whatever a statement forgets.

use leasehold_core::store::ScheduleStore as _;
use leasehold_core::{OrgId, StoreError, WorkStore as _};
use leasehold_postgres::roles::TABLES;
use leasehold_postgres::{ConnectError, Logins, Password, Purpose};
use leasehold_testkit::contract::samples::{self, ORG, OTHER};
use leasehold_testkit::contract::schedules;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::harness::{OneSchema, lone};

/// Not a right, or a row that the policy does not let in.
const DENIED: &SqlState = &SqlState::INSUFFICIENT_PRIVILEGE;

impl OneSchema {
    /// A bare session of that login.
    async fn session_of(&self, purpose: Purpose) -> Client {
        lone(&self.address_of(purpose)).await
    }

    /// Both orgs have an item, and one of each other thing that orgs have.
    async fn furnish(&self) {
        for org in [ORG, OTHER] {
            self.store
                .enqueue(org, vec![samples::item()])
                .await
                .unwrap();
            let text = format!(
                "insert into {0}.orgs values ('{1}', 'an org', now());
                 insert into {0}.memberships values ('{1}', gen_random_uuid(), 'viewer')",
                self.schema,
                org.as_uuid()
            );
            self.outsider.batch_execute(&text).await.unwrap();
        }
    }

    /// How many rows of the table the session sees.
    async fn count(&self, session: &Client, table: &str) -> i64 {
        let text = format!("select count(*) from {}.{table}", self.schema);
        session.query_one(&text, &[]).await.unwrap().get(0)
    }

    /// How the server refuses the statement; `None`: it does not.
    async fn refusal(&self, session: &Client, text: &str) -> Option<SqlState> {
        let text = text.replace("{schema}", &self.schema);
        let refused = session.batch_execute(&text).await.err()?;
        let _ = session.batch_execute("rollback").await;
        refused.code().cloned()
    }
}

/// Begins a transaction for these orgs.
async fn begin(session: &Client, orgs: &[OrgId]) {
    let orgs: Vec<String> = orgs.iter().map(|org| org.as_uuid().to_string()).collect();
    let text = format!("begin; set local leasehold.orgs = '{}'", orgs.join(","));
    session.batch_execute(&text).await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_names_no_org_sees_nothing_and_writes_nothing() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    on.furnish().await;
    let session = on.session_of(Purpose::Runtime).await;
    let look = async |when: &str| {
        for table in TABLES {
            let may_look = table.rights(Purpose::Runtime).contains("select");
            if may_look && table.scope.org_column().is_some() {
                let seen = on.count(&session, table.name).await;
                assert_eq!(seen, 0, "{} {when}", table.name);
            }
        }
        assert_eq!(on.count(&session, "work_items").await, 0, "{when}");
        let org = format!(
            "insert into {{schema}}.orgs values ('{}', 'a', now())",
            Uuid::new_v4()
        );
        let refused = on.refusal(&session, &org).await;
        assert_eq!(refused.as_ref(), Some(DENIED), "{when}");
    };
    look("before any transaction").await;
    begin(&session, &[ORG]).await;
    assert_eq!(on.count(&session, "items").await, 1);
    session.batch_execute("commit").await.unwrap();
    look("after one that named an org").await;
    begin(&session, &[]).await;
    look("in one that names none").await;
}

#[tokio::test]
async fn a_transaction_sees_the_orgs_that_it_names_and_no_others() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    on.furnish().await;
    let session = on.session_of(Purpose::Runtime).await;
    for (orgs, count) in [(&[ORG][..], 1), (&[OTHER], 1), (&[ORG, OTHER], 2)] {
        begin(&session, orgs).await;
        for table in ["orgs", "memberships", "items", "ready", "work_items"] {
            assert_eq!(on.count(&session, table).await, count, "{table} {orgs:?}");
        }
        session.batch_execute("commit").await.unwrap();
    }
    begin(&session, &[ORG]).await;
    let text = format!(
        "delete from {}.ready where org_id <> '{}'",
        on.schema,
        ORG.as_uuid()
    );
    assert_eq!(session.execute(&text, &[]).await.unwrap(), 0);
    let text = format!(
        "insert into {{schema}}.memberships values ('{}', gen_random_uuid(), 'owner')",
        OTHER.as_uuid()
    );
    assert_eq!(on.refusal(&session, &text).await.as_ref(), Some(DENIED));
    begin(&session, &[ORG]).await;
    let text = format!(
        "update {{schema}}.memberships set org_id = '{}'",
        OTHER.as_uuid()
    );
    assert_eq!(on.refusal(&session, &text).await.as_ref(), Some(DENIED));
}

/// What is no list of ids is refused, and not taken for none.
#[tokio::test]
async fn what_names_no_orgs_is_refused() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    let session = on.session_of(Purpose::Runtime).await;
    for orgs in ["*", "true", ",", "a' or 'a' = 'a"] {
        let orgs = orgs.replace('\'', "''");
        let text = format!("set leasehold.orgs = '{orgs}'; select from {{schema}}.items");
        let refused = on.refusal(&session, &text).await;
        let unreadable = Some(SqlState::INVALID_TEXT_REPRESENTATION);
        assert_eq!(refused, unreadable, "{orgs}");
    }
}

#[tokio::test]
async fn the_runtime_login_may_not_do_what_is_the_systems() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    on.furnish().await;
    let session = on.session_of(Purpose::Runtime).await;
    for text in [
        "select from {schema}.paused_lanes",
        "insert into {schema}.paused_lanes values ('default', 'no', now())",
        "select from {schema}.worker_beats",
        "delete from {schema}.items",
        "update {schema}.items set lane = 'other'",
        "update {schema}.ready set priority = 0",
        "insert into {schema}.claims select from {schema}.claims",
        "select from {schema}.outbox",
        "delete from {schema}.markers",
        "delete from {schema}.entries",
        "truncate {schema}.ready",
        "insert into {schema}.logins values ('system', 'me')",
        "delete from {schema}.migrations",
        "create table {schema}.mine ()",
        "set role {schema}_system",
        "set role {schema}_enqueuer",
        "alter table {schema}.items disable row level security",
        "create or replace function {schema}.named_orgs() returns uuid[] language sql as 'select null'",
    ] {
        let refused = on.refusal(&session, text).await;
        assert_eq!(refused.as_ref(), Some(DENIED), "{text}");
    }
    // A superuser's setting is that of every policy; turned off, statements that a policy would cut fail.
    begin(&session, &[ORG]).await;
    let text = "set local row_security = off; select from {schema}.items";
    assert_eq!(on.refusal(&session, text).await.as_ref(), Some(DENIED));
}

#[tokio::test]
async fn the_system_login_sees_every_org_and_owns_nothing() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    on.furnish().await;
    let session = on.session_of(Purpose::System).await;
    for table in ["orgs", "items", "ready"] {
        assert_eq!(on.count(&session, table).await, 2, "{table}");
    }
    for text in [
        "insert into {schema}.items select * from {schema}.items",
        "update {schema}.items set lane = 'other'",
        "select from {schema}.memberships",
        "select from {schema}.entries",
        "insert into {schema}.outbox select from {schema}.outbox",
        "truncate {schema}.ready",
        "alter table {schema}.items disable row level security",
        "set role {schema}_runtime",
    ] {
        let refused = on.refusal(&session, text).await;
        assert_eq!(refused.as_ref(), Some(DENIED), "{text}");
    }
}

/// The function that enqueues acts with the rights of a login of its own, whoever calls it; and nobody may until
/// it is granted.
#[tokio::test]
async fn enqueueing_from_sql_goes_by_the_enqueuer_and_must_be_granted() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    let session = on.session_of(Purpose::Runtime).await;
    let call = "select {schema}.enqueue('SEND', '{}', org => '{org}')"
        .replace("{org}", &OTHER.as_uuid().to_string());
    assert_eq!(on.refusal(&session, &call).await.as_ref(), Some(DENIED));
    let grant = format!(
        "grant execute on function {}.enqueue to {}",
        on.schema,
        on.login(Purpose::Runtime)
    );
    on.outsider.batch_execute(&grant).await.unwrap();
    assert_eq!(on.refusal(&session, &call).await, None, "granted");
    assert_eq!(on.count(&session, "items").await, 0);
    begin(&session, &[OTHER]).await;
    assert_eq!(on.count(&session, "work_items").await, 1);
}

/// Another org's schedule is not there for a login that is fenced, and its id is taken all the same.
#[tokio::test]
async fn a_schedule_id_of_another_org_is_refused_through_the_fence() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    let schedule = schedules::schedule(1);
    on.store.put_schedule(OTHER, &schedule).await.unwrap();
    on.store.put_schedule(OTHER, &schedule).await.unwrap();
    let refused = on.store.put_schedule(ORG, &schedule).await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    let kept = on.store.schedules(OTHER, 2).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].definition, schedule.definition);
}

#[tokio::test]
async fn logins_are_made_once_and_a_password_is_told_once() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let logins = Logins::default();
    let make = async || {
        leasehold_postgres::create_logins(on.address(), &on.options(), &logins)
            .await
            .unwrap()
    };
    let first = make().await;
    let verifier = "select rolname::text, rolpassword from pg_authid where rolname like $1 || '%'";
    let verifiers = async || -> Vec<(String, Option<String>)> {
        let rows = on.outsider.query(verifier, &[&on.schema]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let before = verifiers().await;
    assert_eq!(before.len(), 3);
    for login in &first {
        assert!(login.is_new);
        let has_password = login.generated_password.is_some();
        assert_eq!(has_password, login.purpose != Purpose::Enqueuer);
        if let Some(password) = &login.generated_password {
            assert!(password.len() >= 32, "{} characters", password.len());
            assert!(!format!("{login:?}").contains(password));
        }
    }
    assert!(before.iter().all(|(name, kept)| match kept {
        Some(kept) => kept.starts_with("SCRAM-SHA-256$"),
        None => name.ends_with("_enqueuer"),
    }));
    let again = make().await;
    assert!(
        again
            .iter()
            .all(|login| !login.is_new && login.generated_password.is_none())
    );
    assert_eq!(verifiers().await, before);
}

#[tokio::test]
async fn a_login_that_no_fence_would_hold_is_refused() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let name = on.login(Purpose::Runtime);
    let refused = async |login: &str| {
        on.outsider.batch_execute(login).await.unwrap();
        let logins = Logins::default().with_name(Purpose::Runtime, &name);
        let made = leasehold_postgres::create_logins(on.address(), &on.options(), &logins).await;
        match made {
            Err(ConnectError::Logins(reason)) => reason,
            other => panic!("{login}: {other:?}"),
        }
    };
    let reason = refused(&format!("create role {name} login bypassrls")).await;
    assert!(reason.contains("NOBYPASSRLS"), "{reason}");
    let reason = refused(&format!("alter role {name} nobypassrls superuser")).await;
    assert!(reason.contains("NOSUPERUSER"), "{reason}");
    let reason = refused(&format!("alter role {name} nosuperuser nologin")).await;
    assert!(reason.contains("LOGIN"), "{reason}");
    let owner = format!("alter role {name} login; grant current_user to {name}");
    let owner = owner.replace("current_user", &on.owner().await);
    let reason = refused(&owner).await;
    assert!(reason.contains("owns the tables"), "{reason}");
    // Nothing of it was done.
    let text = format!("select from {}.logins", on.schema);
    assert!(on.outsider.query(&text, &[]).await.unwrap().is_empty());
}

/// As in a database of somebody else's: by a login that owns the schema and may make logins, and no more.
#[tokio::test]
async fn a_login_that_is_no_superuser_raises_the_fence() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let migrator = on.login(Purpose::Runtime).replace("runtime", "migrator");
    let schema = format!("{}_b", on.schema);
    let text = format!(
        "create role {migrator} login createrole password 'of-a-test';
         grant {migrator} to current_user;
         create schema {schema} authorization {migrator}"
    );
    on.outsider.batch_execute(&text).await.unwrap();
    let address = on
        .address_of(Purpose::Runtime)
        .replace("_runtime:", "_migrator:");
    let options = on.options().with_schema(&schema);
    let password = Password::Given("of-a-test".to_owned());
    let logins = Logins::default().with_password(Purpose::Runtime, password);
    for _ in 0..2 {
        leasehold_postgres::create_logins(&address, &options, &logins)
            .await
            .unwrap();
    }
    let runtime = on
        .address_of(Purpose::Runtime)
        .replace("_runtime:", "_b_runtime:");
    let view = leasehold_postgres::look_at_fence(&runtime, &options)
        .await
        .unwrap();
    assert!(view.holds(), "{view:?}");
    let view = leasehold_postgres::look_at_fence(&address, &options)
        .await
        .unwrap();
    assert!(view.owns && !view.holds(), "{view:?}");
    let text = format!(
        "drop schema {schema} cascade;
         drop role {schema}_runtime, {schema}_system, {schema}_enqueuer, {migrator}"
    );
    on.outsider.batch_execute(&text).await.unwrap();
}

#[tokio::test]
async fn a_view_of_the_fence_tells_who_it_holds() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let look = async |address: &str| {
        leasehold_postgres::look_at_fence(address, &on.options())
            .await
            .unwrap()
    };
    let view = look(on.address()).await;
    assert!(
        !view.is_raised && view.bypasses && !view.holds(),
        "{view:?}"
    );
    on.make_logins().await;
    let view = look(on.address()).await;
    assert!(view.is_raised && view.bypasses && !view.holds(), "{view:?}");
    let view = look(&on.address_of(Purpose::Runtime)).await;
    assert!(view.holds(), "{view:?}");
    let view = look(&on.address_of(Purpose::System)).await;
    assert_eq!(view.purpose, Some(Purpose::System));
    assert!(!view.holds());
    let text = format!(
        "alter table {}.claims no force row level security",
        on.schema
    );
    on.outsider.batch_execute(&text).await.unwrap();
    let view = look(&on.address_of(Purpose::Runtime)).await;
    assert_eq!(view.open_tables, ["claims"]);
    assert!(!view.holds());
}
