//! The SQL function `enqueue`, as any language calls it.

use std::fmt::Write as _;

use jiff::Timestamp;
use leasehold::Client;
use leasehold_core::store::work::Enqueued;
use leasehold_core::{IdempotencyKey, ItemId, Lane, OrgId, TargetId, WorkItem, WorkStore as _};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client as Session, Row};
use uuid::Uuid;

use crate::harness::{OneSchema, PATIENCE, lone};

mod json;
mod races;
mod refusals;

const OTHER: OrgId = OrgId::new(Uuid::from_u128(2));
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What the function answered: an id and a fate.
type Answer = Result<(ItemId, String), tokio_postgres::Error>;

/// Calls `enqueue` with arguments as a person writes them.
async fn enqueue(schema: &OneSchema, session: &Session, arguments: &str) -> Answer {
    let text = format!(
        "select id, fate from {}.enqueue({arguments})",
        schema.schema
    );
    let row = session.query_one(&text, &[]).await?;
    Ok((row.get::<_, Uuid>(0).into(), row.get(1)))
}

async fn enqueue_many(
    schema: &OneSchema,
    items: &str,
) -> Result<Vec<(i32, Uuid, String)>, tokio_postgres::Error> {
    let text = format!(
        "select place, id, fate from {}.enqueue_many($1::text::json)",
        schema.schema
    );
    let rows = schema.outsider.query(&text, &[&items]).await?;
    let read = |row: &Row| (row.get(0), row.get(1), row.get(2));
    Ok(rows.iter().map(read).collect())
}

fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("none", SqlState::code)
}

fn words(error: &tokio_postgres::Error) -> &str {
    error.as_db_error().unwrap().message()
}

async fn stored(schema: &OneSchema, org: OrgId, id: ItemId) -> WorkItem {
    schema.store.get(org, id).await.unwrap().expect("a row")
}

/// Without what is of one call alone.
fn but_for_its_names(item: WorkItem) -> WorkItem {
    WorkItem {
        id: ItemId::NIL,
        idempotency_key: IdempotencyKey::NIL,
        request_id: leasehold_core::RequestId::NIL,
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
        available_at: Timestamp::UNIX_EPOCH,
        ..item
    }
}

fn item_of(fate: Enqueued) -> WorkItem {
    match fate {
        Enqueued::Inserted(item) => item,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_row_is_as_the_client_writes_it() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let client = Client::single_tenant(schema.store.stores()).unwrap();
    let payload = r#"{ "id":7.0 }"#;
    let theirs = item_of(client.enqueue_raw("SEND", payload).await.unwrap());
    let call = format!("'SEND', ' {payload}\n'");
    let (id, fate) = enqueue(&schema, &schema.outsider, &call).await.unwrap();
    let ours = stored(&schema, OrgId::SINGLE, id).await;
    assert_eq!(fate, "inserted");
    assert_eq!(ours.idempotency_key.as_uuid(), ours.id.as_uuid());
    assert_eq!(ours.id.as_uuid().get_version_num(), 7);
    assert_eq!(ours.created_at, ours.available_at);
    assert_eq!(but_for_its_names(ours), but_for_its_names(theirs));
}

#[tokio::test]
async fn every_argument_lands_where_the_clients_option_does() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let client = Client::single_tenant(schema.store.stores()).unwrap();
    let target = TargetId::new(Uuid::from_u128(5));
    let theirs = client
        .enqueue_raw("SEND", "{}")
        .lane("mail/slow")
        .priority(-3)
        .max_attempts(9)
        .target(target)
        .traceparent(TRACE)
        .key_text("invoice-7")
        .delay(std::time::Duration::from_mins(10))
        .await;
    let theirs = item_of(theirs.unwrap());
    let call = format!(
        "kind => 'SEND', payload => '{{}}', lane => 'mail/slow', priority => -3, max_attempts => 9,
         target_id => '{target}', traceparent => '{TRACE}', key_text => 'invoice-8',
         delay => interval '10 minutes'"
    );
    let (id, _) = enqueue(&schema, &schema.outsider, &call).await.unwrap();
    let ours = stored(&schema, OrgId::SINGLE, id).await;
    let wait = |item: &WorkItem| item.available_at.duration_since(item.updated_at);
    assert_eq!(wait(&ours), wait(&theirs));
    assert_eq!(ours.idempotency_key, IdempotencyKey::from_text("invoice-8"));
    assert_eq!(but_for_its_names(ours), but_for_its_names(theirs));

    // The key that the client made of the text is the one that the function makes of it.
    let again = "'SEND', '{}', key_text => 'invoice-7'";
    let (found, fate) = enqueue(&schema, &schema.outsider, again).await.unwrap();
    let key = IdempotencyKey::from_text("invoice-7");
    let first = schema.store.get_by_key(OrgId::SINGLE, key).await.unwrap();
    assert_eq!(
        (Some(found), fate.as_str()),
        (first.map(|item| item.id), "key_exists")
    );

    let (by, request, org) = (Uuid::from_u128(6), Uuid::from_u128(7), OTHER);
    let call = format!(
        "'SEND', '{{}}', org => '{org}', created_by => '{by}', request_id => '{request}',
         due_at => '2100-01-01T00:00:00Z', id => '{by}', key => '{request}'"
    );
    let (id, _) = enqueue(&schema, &schema.outsider, &call).await.unwrap();
    let item = stored(&schema, OTHER, id).await;
    assert_eq!((id.as_uuid(), item.created_by.as_uuid()), (by, by));
    assert_eq!(item.updated_by.as_uuid(), by);
    assert_eq!(item.request_id.as_uuid(), request);
    assert_eq!(item.idempotency_key.as_uuid(), request);
    assert_eq!(item.available_at.to_string(), "2100-01-01T00:00:00Z");

    let nulls = "'SEND', '{}', null, null, null, null, null, null, null, null, null, null, null, null, null";
    let (id, _) = enqueue(&schema, &schema.outsider, nulls).await.unwrap();
    let item = stored(&schema, OrgId::SINGLE, id).await;
    assert_eq!(item.max_attempts, 3, "a null is a default");
    let endless = "'SEND', '{}', delay => interval '150000 years'";
    let (id, _) = enqueue(&schema, &schema.outsider, endless).await.unwrap();
    let item = stored(&schema, OrgId::SINGLE, id).await;
    assert_eq!(item.available_at, leasehold_core::time::CALENDAR_END);
}

/// Of every length around those at which the digest takes another block, and of every width of character.
#[tokio::test]
async fn a_text_makes_the_key_that_it_makes_in_rust() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let lengths = (1..140).map(|length| "k".repeat(length));
    let texts: Vec<String> = lengths
        .chain(["é€😀e\u{301}", " ", "it's", &"😀".repeat(250)].map(str::to_owned))
        .collect();
    let session = lone(schema.address()).await;
    let path = format!("set search_path = {}", schema.schema);
    session.batch_execute(&path).await.unwrap();
    let made = "select text, key_of_text(text) from unnest($1::text[]) as text";
    for row in session.query(made, &[&texts]).await.unwrap() {
        let text: &str = row.get(0);
        let key = IdempotencyKey::from_text(text);
        assert_eq!(row.get::<_, Uuid>(1), key.as_uuid(), "{text:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_repeated_finds_its_row() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let by = |arguments: &'static str| enqueue(&schema, &schema.outsider, arguments);
    let (id, _) = by("'SEND', '{\"n\":1}', key_text => 'x'").await.unwrap();
    let again = by("'SEND', '{\"n\":2}', key_text => 'x'").await.unwrap();
    assert_eq!(again, (id, "key_exists".to_owned()));
    let call = format!("'SEND', '{{\"n\":3}}', id => '{id}'");
    let again = enqueue(&schema, &schema.outsider, &call).await.unwrap();
    assert_eq!(again, (id, "id_exists".to_owned()));
    let item = stored(&schema, OrgId::SINGLE, id).await;
    assert_eq!(item.payload.as_str(), "{\"n\":1}");

    // Another org's id is no row of ours, and nothing of it is told; its key may be ours too.
    let call = format!("'SEND', '{{}}', org => '{OTHER}', id => '{id}'");
    let error = enqueue(&schema, &schema.outsider, &call).await.unwrap_err();
    assert_eq!(code(&error), "23505");
    assert_eq!(
        words(&error),
        format!("the id {id} is taken; mint another, or leave it out")
    );
    let call = format!("'SEND', '{{}}', org => '{OTHER}', key_text => 'x'");
    let (other, fate) = enqueue(&schema, &schema.outsider, &call).await.unwrap();
    assert_eq!(fate, "inserted");
    assert_eq!(schema.store.get(OrgId::SINGLE, other).await.unwrap(), None);
    stored(&schema, OTHER, other).await;
}

#[tokio::test]
async fn a_login_with_the_grant_alone_may_enqueue_and_nothing_else() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let name = &schema.schema;
    let session = lone(schema.address()).await;
    session
        .batch_execute(&format!("create role {name}_app; set role {name}_app"))
        .await
        .unwrap();
    let error = enqueue(&schema, &session, "'SEND', '{}'")
        .await
        .unwrap_err();
    assert_eq!(code(&error), "42501", "not before it is granted: {error}");
    let grants = format!(
        "grant usage on schema {name} to {name}_app;
         grant execute on function {name}.enqueue to {name}_app"
    );
    schema.outsider.batch_execute(&grants).await.unwrap();
    let call = "'SEND', '{}', key_text => 'x'";
    let (id, fate) = enqueue(&schema, &session, call).await.unwrap();
    assert_eq!(fate, "inserted");
    let again = enqueue(&schema, &session, call).await.unwrap();
    assert_eq!(again, (id, "key_exists".to_owned()));

    let tables = "select oid::regclass::text from pg_class
         where relkind in ('r', 'v', 'S') and relnamespace = $1::text::regnamespace";
    let tables = schema.outsider.query(tables, &[name]).await.unwrap();
    assert!(tables.len() > 5);
    for row in &tables {
        let table: &str = row.get(0);
        for statement in ["select from", "delete from", "truncate", "insert into"] {
            let mut text = format!("{statement} {table}");
            if statement == "insert into" {
                let _ = write!(text, " select * from {table}");
            }
            let error = session.batch_execute(&text).await.expect_err(&text);
            // A view takes no writes from anybody.
            let expected = ["42501", "55000", "42809"];
            assert!(expected.contains(&code(&error)), "{text}: {error:?}");
        }
    }
    let functions = "select oid::regprocedure::text from pg_proc
         where pronamespace = $1::text::regnamespace
           and has_function_privilege($2::text, oid, 'execute')";
    let role = format!("{name}_app");
    let rows = schema
        .outsider
        .query(functions, &[name, &role])
        .await
        .unwrap();
    let mut functions: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    // What tells the time and what a transaction has said itself is no secret.
    let plain = [".clock(", ".named_orgs("];
    functions.retain(|function| !plain.iter().any(|name| function.contains(name)));
    assert_eq!(functions.len(), 1, "{functions:?}");
    assert!(functions[0].contains(".enqueue("), "{functions:?}");
    // A role belongs to the whole server.
    let away = format!("drop owned by {name}_app; drop role {name}_app");
    session.batch_execute("reset role").await.unwrap();
    schema.outsider.batch_execute(&away).await.unwrap();
}

/// A caller's own tables and functions with the names of ours.
#[tokio::test]
async fn what_a_session_made_for_itself_does_not_stand_in_for_ours() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let session = lone(schema.address()).await;
    let theirs = format!(
        "create temp table items (like {name}.items); create temp table ready (like {name}.ready);
         set search_path = pg_temp, {name}",
        name = schema.schema
    );
    session.batch_execute(&theirs).await.unwrap();
    let (id, _) = enqueue(&schema, &session, "'SEND', '{}'").await.unwrap();
    stored(&schema, OrgId::SINGLE, id).await;
    let row = session
        .query_one("select count(*) from pg_temp.items", &[])
        .await;
    assert_eq!(row.unwrap().get::<_, i64>(0), 0);
}

/// Whoever may create in the schema may not thereby run as its owner.
#[tokio::test]
async fn what_others_put_into_the_schema_does_not_stand_in_for_what_the_server_has() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let theirs = format!(
        "create function {name}.octet_length(text) returns integer language plpgsql as
            $$ begin raise exception 'ran as the owner'; end $$;
         create function {name}.json_typeof(json) returns text language plpgsql as
            $$ begin raise exception 'ran as the owner'; end $$",
        name = schema.schema
    );
    schema.outsider.batch_execute(&theirs).await.unwrap();
    let (id, _) = enqueue(&schema, &schema.outsider, "'SEND', '{}'")
        .await
        .unwrap();
    stored(&schema, OrgId::SINGLE, id).await;
}

/// A pooled session may come with it off, or be turned in between.
#[tokio::test]
async fn a_text_makes_the_same_key_however_a_session_reads_texts() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let session = lone(schema.address()).await;
    let mut made = Vec::new();
    for setting in ["off", "on", "off"] {
        let set = format!("set standard_conforming_strings = {setting}");
        session.batch_execute(&set).await.unwrap();
        let call = "'SEND', '{\"a\": [1, 2]}', key_text => 'x'";
        made.push(enqueue(&schema, &session, call).await.unwrap());
    }
    let (id, _) = made[0].clone();
    assert_eq!(made[1..], vec![(id, "key_exists".to_owned()); 2]);
}

#[tokio::test]
async fn the_commit_hints_unless_told_not_to() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    schema.listens().await;
    let mut mail = schema.store.subscribe(&[Lane::parse("mail").unwrap()]);
    let mut quiet = schema.store.subscribe(&[Lane::parse("quiet").unwrap()]);
    let mut session = lone(schema.address()).await;
    let transaction = session.transaction().await.unwrap();
    let name = &schema.schema;
    let text = format!(
        "select {name}.enqueue('SEND', '{{}}', lane => 'quiet', hint => false);
         select {name}.enqueue('SEND', '{{}}', lane => 'mail')"
    );
    transaction.batch_execute(&text).await.unwrap();
    transaction.commit().await.unwrap();
    tokio::time::timeout(PATIENCE, mail.next())
        .await
        .expect("no hint came");
    // What was to be told with it has come with it.
    let silent = std::pin::pin!(quiet.next());
    let answer = silent.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(answer.is_pending(), "there was to be no hint");
}

#[tokio::test]
async fn items_of_one_transaction_are_claimed_in_their_order() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let mut session = lone(schema.address()).await;
    let transaction = session.transaction().await.unwrap();
    let text = format!(
        "select id from {0}.enqueue('SEND', '{{}}') union all
         select id from {0}.enqueue_many('[{{\"kind\":\"SEND\",\"payload\":{{}}}},{{\"kind\":\"SEND\",\"payload\":{{}}}}]') union all
         select id from {0}.enqueue('SEND', '{{}}')",
        schema.schema
    );
    let mut sent: Vec<Uuid> = Vec::new();
    for _ in 0..5 {
        let rows = transaction.query(&text, &[]).await.unwrap();
        sent.extend(rows.iter().map(|row| row.get::<_, Uuid>(0)));
    }
    transaction.commit().await.unwrap();
    assert!(sent.is_sorted(), "{sent:?}");
    assert_eq!(sent.len(), 20);
}
