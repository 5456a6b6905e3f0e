//! How steps are applied: one at a time, beside others that work, by a person with psql, and for builds that do
//! not know them.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{StoreError, WorkStore as _};
use leasehold_postgres::rehearsal::{NextStep, Waits};
use leasehold_postgres::{ConnectError, Options, PostgresStore, Wakeup, rehearsal};
use leasehold_testkit::contract::samples::{ORG, item};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::cluster::{self, say};
use crate::faults::with_parameter;
use crate::harness::{PATIENCE, lone};

/// Far more than anybody waits who is let through, and little for whoever is not.
const WAITS: Waits = Waits {
    turn: PATIENCE,
    lock_timeout: Duration::from_millis(200),
    tries_max: 8,
};

const COLUMN: NextStep = NextStep {
    version: 901,
    name: "0901_colour",
    text: "alter table items add column colour text;",
};

const INDEX: NextStep = NextStep {
    version: 902,
    name: "0902_index",
    text: "--! concurrent\n-- For lists by kind.\n\
           create index concurrently items_next on {schema}.items (kind, created_at);\n",
};

/// A database of its own: whoever builds an index waits for every transaction of its database.
struct Ground {
    name: String,
    address: String,
    server: Client,
    owner: Client,
}

impl Ground {
    async fn new() -> Option<Self> {
        let shared = cluster::shared().ok()?;
        let name = format!("d{}", Uuid::new_v4().simple());
        let server = lone(&shared.address).await;
        let text = format!("create database {name}");
        server.batch_execute(&text).await.unwrap();
        let address = with_parameter(&shared.address, "dbname", &name);
        Some(Self {
            owner: lone(&address).await,
            name,
            address,
            server,
        })
    }

    async fn remove(self) {
        let text = format!("drop database {} with (force)", self.name);
        self.server.batch_execute(&text).await.unwrap();
    }

    async fn store(&self) -> Arc<PostgresStore> {
        let options = Options::default().with_wakeup(Wakeup::Poll);
        leasehold_postgres::connect(&self.address, options)
            .await
            .unwrap()
    }

    async fn migrate(&self, next: &[NextStep], waits: Waits) -> Result<(), ConnectError> {
        rehearsal::migrate(&self.address, &Options::default(), next, waits).await
    }

    async fn run(&self, text: &str) {
        self.owner.batch_execute(text).await.unwrap();
    }

    /// The text that the statement finds.
    async fn text(&self, statement: &str) -> String {
        self.owner.query_one(statement, &[]).await.unwrap().get(0)
    }

    /// Returns once so many sessions of this database wait for a lock, or none.
    async fn until_waiting(&self, count: i64) {
        let text = "select count(*) from pg_stat_activity
             where wait_event_type = 'Lock' and datname = current_database()";
        let looks = async {
            while self
                .owner
                .query_one(text, &[])
                .await
                .unwrap()
                .get::<_, i64>(0)
                != count
            {}
        };
        tokio::time::timeout(PATIENCE, looks)
            .await
            .expect("it is not so");
    }
}

impl Ground {
    /// Returns once a session of that name has asked for the lock of migrations in vain. Seen by a session that
    /// is in no transaction: one that is sees what it saw first.
    async fn until_asking(&self, name: &str) {
        let text = "select count(*) from pg_stat_activity
             where datname = $1 and application_name = $2 and query = 'rollback'";
        let looks = async {
            while {
                let row = self.server.query_one(text, &[&self.name, &name]).await;
                row.unwrap().get::<_, i64>(0) == 0
            } {}
        };
        tokio::time::timeout(PATIENCE, looks)
            .await
            .expect("nobody asks");
    }
}

fn words(error: &ConnectError) -> &str {
    match error {
        ConnectError::Unusable(StoreError::Retry(words)) | ConnectError::Schema(words) => words,
        other => panic!("not what was expected: {other:?}"),
    }
}

#[tokio::test]
async fn of_many_that_migrate_at_once_one_does_and_the_others_find_it_done() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let mut all = JoinSet::new();
    for _ in 0..4 {
        let address = ground.address.clone();
        all.spawn(async move {
            let next = [COLUMN, INDEX];
            rehearsal::migrate(&address, &Options::default(), &next, WAITS).await
        });
    }
    for migrated in all.join_all().await {
        migrated.unwrap();
    }
    let status = leasehold_postgres::status(&ground.address, &Options::default()).await;
    let status = status.unwrap();
    assert!(status.is_current());
    assert_eq!(status.at, INDEX.version);
    ground.remove().await;
}

#[tokio::test]
async fn whoever_migrates_is_waited_for_and_in_the_end_named() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    // The script takes the same lock.
    let script = leasehold_postgres::script(&Options::default()).unwrap();
    let lock = script.lines().find(|line| line.contains("advisory"));
    let name = "set application_name = 'the other'; begin";
    ground.run(name).await;
    ground.run(lock.unwrap()).await;
    let waits = Waits {
        turn: Duration::from_millis(100),
        ..WAITS
    };
    let error = ground.migrate(&[], waits).await.unwrap_err();
    let process = ground.text("select pg_backend_pid()::text").await;
    let what = format!(
        "is being migrated by the server's process {process} (the other), in a transaction that is"
    );
    assert!(words(&error).contains(&what), "{error}");
    let migrating = {
        let address = with_parameter(&ground.address, "application_name", "second");
        tokio::spawn(
            async move { rehearsal::migrate(&address, &Options::default(), &[], WAITS).await },
        )
    };
    ground.until_asking("second").await;
    ground.run("commit").await;
    migrating.await.unwrap().unwrap();
    ground.remove().await;
}

#[tokio::test]
async fn a_step_that_waits_for_a_lock_lets_others_through_and_is_tried_again() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let store = ground.store().await;
    let holder = lone(&with_parameter(
        &ground.address,
        "application_name",
        "a report",
    ))
    .await;
    let text = "begin; lock table leasehold.items in access share mode";
    holder.batch_execute(text).await.unwrap();
    let waits = Waits {
        lock_timeout: Duration::from_millis(50),
        tries_max: 2,
        ..WAITS
    };
    let error = ground.migrate(&[COLUMN], waits).await.unwrap_err();
    let what = "the step 0901_colour waited 2 times for a lock on the schema leasehold that is held by the \
                server's process ";
    assert!(words(&error).starts_with(what), "{error}");
    assert!(
        words(&error).contains("(a report), in a transaction that is "),
        "{error}"
    );
    let migrating = {
        let address = ground.address.clone();
        tokio::spawn(async move {
            rehearsal::migrate(&address, &Options::default(), &[COLUMN], WAITS).await
        })
    };
    // Behind a step that did not give up, this would wait for the report.
    ground.until_waiting(1).await;
    store.enqueue(ORG, vec![item()]).await.unwrap();
    ground.until_waiting(0).await;
    holder.batch_execute("commit").await.unwrap();
    migrating.await.unwrap().unwrap();
    ground.run("select colour from leasehold.items").await;
    ground.remove().await;
}

#[tokio::test]
async fn an_index_is_built_while_others_write_and_again_after_a_crash() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let store = ground.store().await;
    store.enqueue(ORG, vec![item(), item()]).await.unwrap();
    // What a crash leaves: an index of that name which is not valid.
    let failing = "create unique index concurrently items_next on leasehold.items (kind)";
    ground.owner.batch_execute(failing).await.unwrap_err();
    let is_valid = "select indisvalid::text from pg_index
         where indexrelid = 'leasehold.items_next'::regclass";
    assert_eq!(ground.text(is_valid).await, "false");
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = {
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                store.enqueue(ORG, vec![item()]).await.unwrap();
                written += 1;
            }
            written
        })
    };
    ground.migrate(&[INDEX], WAITS).await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    assert!(writing.await.unwrap() > 0, "nobody wrote meanwhile");
    assert_eq!(ground.text(is_valid).await, "true");
    let definition = "select pg_get_indexdef('leasehold.items_next'::regclass)";
    let definition = ground.text(definition).await;
    assert!(definition.ends_with("(kind, created_at)"), "{definition}");
    // Once more there is nothing to do; an index that is complete is left as it is.
    let which = "select 'leasehold.items_next'::regclass::oid::text";
    let before = ground.text(which).await;
    ground
        .run("delete from leasehold.migrations where version = 902")
        .await;
    ground.migrate(&[INDEX], WAITS).await.unwrap();
    assert_eq!(ground.text(which).await, before);
    ground.remove().await;
}

#[tokio::test]
async fn an_index_that_the_server_still_builds_is_left_to_it() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    ground.migrate(&[], WAITS).await.unwrap();
    let old = lone(&ground.address).await;
    let text = "begin isolation level repeatable read; select from leasehold.items";
    old.batch_execute(text).await.unwrap();
    let building = {
        let builder = lone(&ground.address).await;
        tokio::spawn(async move {
            let text = "create index concurrently items_next on leasehold.items (kind, created_at)";
            builder.batch_execute(text).await
        })
    };
    ground.until_waiting(1).await;
    let error = ground.migrate(&[INDEX], WAITS).await.unwrap_err();
    assert!(
        words(&error).contains("is still being built by the server's process"),
        "{error}"
    );
    old.batch_execute("commit").await.unwrap();
    building.await.unwrap().unwrap();
    ground.migrate(&[INDEX], WAITS).await.unwrap();
    ground.remove().await;
}

#[tokio::test]
async fn a_build_refuses_a_schema_that_has_taken_away_what_it_uses() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let contracting = NextStep {
        version: 903,
        name: "0903_no_markers",
        text: "--! contracts, for builds from 902\ndrop table markers;",
    };
    ground
        .migrate(&[COLUMN, INDEX, contracting], WAITS)
        .await
        .unwrap();
    let options = Options::default;
    let what =
        "its step 0903_no_markers is for builds from version 902, and this one is of version ";
    for error in [
        leasehold_postgres::connect(&ground.address, options())
            .await
            .unwrap_err(),
        leasehold_postgres::migrate(&ground.address, &options())
            .await
            .unwrap_err(),
        leasehold_postgres::status(&ground.address, &options())
            .await
            .unwrap_err(),
    ] {
        assert!(words(&error).contains(what), "{error}");
        assert!(words(&error).ends_with("; upgrade this program"), "{error}");
    }
    // A build that knows of it is not refused, though it lacks a step of its own.
    ground
        .migrate(&[COLUMN, INDEX, contracting], WAITS)
        .await
        .unwrap();
    ground.remove().await;
}

#[tokio::test]
async fn a_step_that_is_not_the_one_of_this_build_is_refused() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    ground.migrate(&[], WAITS).await.unwrap();
    ground
        .run("update leasehold.migrations set digest = '\\x00' where version = 1")
        .await;
    let error = leasehold_postgres::migrate(&ground.address, &Options::default()).await;
    let error = error.unwrap_err();
    assert!(
        words(&error).contains("is not the one of this build"),
        "{error}"
    );
    ground.remove().await;
}

/// What a schema consists of, by name; the name of the schema itself is left out.
const CONTENTS: &str = "
    select string_agg(line, chr(10) order by line) from (
        select concat_ws(' ', table_name, ordinal_position, column_name, data_type, is_nullable, column_default)
            from information_schema.columns where table_schema = 'SCHEMA'
        union all select indexdef from pg_indexes where schemaname = 'SCHEMA'
        union all select concat_ws(' ', i.indexrelid::regclass, i.indisvalid) from pg_index i
            join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'SCHEMA'::regnamespace
        union all select pg_get_functiondef(oid) from pg_proc
            where pronamespace = 'SCHEMA'::regnamespace
        union all select definition from pg_views where schemaname = 'SCHEMA'
        union all select concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
            from pg_constraint where connamespace = 'SCHEMA'::regnamespace
        union all select concat_ws(' ', oid::regclass, reloptions) from pg_class
            where relnamespace = 'SCHEMA'::regnamespace
        union all select concat_ws(' ', version, name, digest, build_min) from SCHEMA.migrations
    ) as contents (line)";

#[tokio::test]
async fn a_person_with_psql_gets_what_the_program_makes() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let next = [COLUMN, INDEX];
    let by_hand = Options::default().with_schema("by_hand");
    let script = rehearsal::script(&by_hand, &next).unwrap();
    let running = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--dbname", &ground.address])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut running = match running {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // The client is a package of its own.
            assert!(
                std::env::var_os("CI").is_none(),
                "there must be psql where CI is set; install the server's client"
            );
            say("leasehold-postgres: SKIPPED: what a person does with psql; psql is not installed");
            return ground.remove().await;
        }
        running => running.unwrap(),
    };
    running
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let ended = running.wait_with_output().unwrap();
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let status = leasehold_postgres::status(&ground.address, &by_hand)
        .await
        .unwrap();
    assert!(status.is_current());
    let pending = leasehold_postgres::pending_script(&ground.address, &by_hand).await;
    assert_eq!(pending.unwrap(), "");
    let by_program = Options::default().with_schema("by_program");
    rehearsal::migrate(&ground.address, &by_program, &next, WAITS)
        .await
        .unwrap();
    let mut contents = Vec::new();
    for schema in ["by_hand", "by_program"] {
        let found = ground.text(&CONTENTS.replace("SCHEMA", schema)).await;
        contents.push(found.replace(schema, "SCHEMA"));
    }
    assert!(contents[0].contains("items_next t"), "{}", contents[0]);
    assert_eq!(contents[0], contents[1]);
    let store = leasehold_postgres::connect(&ground.address, by_hand.without_migrating()).await;
    store.unwrap().enqueue(ORG, vec![item()]).await.unwrap();
    ground.remove().await;
}

/// Of every word that the server takes for no name.
#[tokio::test]
async fn a_schema_that_would_need_quotes_is_refused_before_anything_is_sent() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let text = "select word from pg_get_keywords() where catcode in ('R', 'T')";
    let rows = ground.server.query(text, &[]).await.unwrap();
    assert!(rows.len() > 90, "{}", rows.len());
    let words = rows.iter().map(|row| row.get::<_, String>(0));
    for name in words.chain(["Jobs".to_owned(), "a b".to_owned(), "a\"b".to_owned()]) {
        let options = Options::default().with_schema(&name);
        let refused =
            leasehold_postgres::migrate("postgres://nobody@127.0.0.1:1/x", &options).await;
        assert!(
            matches!(refused, Err(ConnectError::SchemaName(_))),
            "{name}: {refused:?}"
        );
    }
    // Words that are names all the same.
    for name in ["data", "public", "work", "between", "values"] {
        let options = Options::default().with_schema(name);
        assert!(leasehold_postgres::script(&options).is_ok(), "{name}");
    }
    ground.remove().await;
}

#[tokio::test]
async fn what_is_pending_is_told_as_a_script() {
    let Some(ground) = Ground::new().await else {
        return;
    };
    let options = Options::default();
    let all = leasehold_postgres::pending_script(&ground.address, &options).await;
    assert_eq!(all.unwrap(), leasehold_postgres::script(&options).unwrap());
    ground.migrate(&[], WAITS).await.unwrap();
    ground
        .run("delete from leasehold.migrations where version = 7")
        .await;
    let rest = leasehold_postgres::pending_script(&ground.address, &options).await;
    let rest = rest.unwrap();
    assert_eq!(rest.matches("\nbegin;").count(), 1, "{rest}");
    assert!(rest.contains("-- 0007_liveness\n"), "{rest}");
    assert!(!rest.contains("\\echo"), "{rest}");
    // Where logins are known, there is more to do than a script can say.
    ground
        .run("insert into leasehold.logins (purpose, login) values ('runtime', 'somebody')")
        .await;
    let fenced = leasehold_postgres::pending_script(&ground.address, &options).await;
    let fenced = fenced.unwrap();
    assert!(
        fenced.starts_with(&rest) && fenced.contains("\\echo"),
        "{fenced}"
    );
    assert!(!fenced.contains('`') || rest.contains('`'), "{fenced}");
    ground.remove().await;
}
