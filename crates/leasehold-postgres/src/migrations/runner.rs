//! Applying steps.
//!
//! A step is a transaction together with its line in the table `migrations`, which is written first: whoever
//! comes second waits there, and then has nothing to do. A step that waits for a lock lets everybody else
//! wait behind it, so it gives up soon and is tried again after a pause.
//!
//! A concurrent step is in no transaction. What a crash leaves of it is an index that is not valid, which is
//! dropped and built again.

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::lock::Lock;
use super::step::{IndexChange, Step};
use super::{SET_UP, session, to_be_tried_again, unreadable, unusable, versions};
use crate::error::ConnectError;
use crate::fences;
use crate::options::Options;
use crate::server::Server;
use crate::store::Schema;

/// How long is waited for others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// For another migration of the schema: longer than one takes on an empty schema, for those that start
    /// together on one, and short enough for whoever waits in front of a screen.
    pub(crate) turn: Duration,
    /// Statements of others wait behind a step for so long at most.
    pub(crate) lock_timeout: Duration,
    /// How often a step is tried: with the rest, for most of a minute.
    pub(crate) tries_max: u32,
    /// After the first try; doubled after each, up to the longest. What waited behind it goes on meanwhile.
    pub(crate) pause: Duration,
    pub(crate) pause_max: Duration,
}

impl Pace {
    pub(crate) const DEFAULT: Self = Self {
        turn: Duration::from_secs(30),
        lock_timeout: Duration::from_secs(2),
        tries_max: 8,
        pause: Duration::from_millis(500),
        pause_max: Duration::from_secs(8),
    };
}

/// Brings the schema to have all of the steps.
pub(crate) async fn apply(
    server: &Server,
    schema: &Schema,
    options: &Options,
    steps: &[Step],
    pace: Pace,
) -> Result<(), ConnectError> {
    let lock = Lock::take(server, schema, options.patience, pace.turn).await?;
    let mut client = server.lone(options.patience).await?;
    let known = versions(&client, schema, steps).await?;
    if known.is_empty() {
        let set_up = client.batch_execute(&schema.within(SET_UP)).await;
        set_up.map_err(unusable)?;
    }
    for step in steps.iter().filter(|step| !known.contains(&step.version)) {
        lock.check()?;
        if step.is_concurrent() {
            apply_concurrently(&client, schema, step).await?;
        } else {
            apply_patiently(&mut client, schema, step, pace).await?;
        }
        tracing::info!(step = step.name, "migrated");
    }
    // A later build knows better what is to be fenced, and how.
    if known.last() <= steps.last().map(|step| &step.version) {
        lock.check()?;
        fences::keep(&mut client, schema).await?;
    }
    lock.release().await
}

/// Tries a step until it gets the locks that it needs.
async fn apply_patiently(
    client: &mut Client,
    schema: &Schema,
    step: &Step,
    pace: Pace,
) -> Result<(), ConnectError> {
    let mut pause = pace.pause;
    for tries in 1.. {
        let Err(error) = apply_at_once(client, schema, step, pace.lock_timeout).await else {
            break;
        };
        let waited = [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ];
        if !error.code().is_some_and(|code| waited.contains(code)) {
            return Err(unusable(error));
        }
        if tries >= pace.tries_max {
            let holder = holder(client, schema).await?;
            return Err(to_be_tried_again(format!(
                "the step {} waited {tries} times for a lock on the schema {} that is held by {holder}; end \
                 that, or run this again when there is less to do",
                step.name,
                schema.name()
            )));
        }
        tracing::info!(
            step = step.name,
            tries,
            "waits for a lock, and is tried again"
        );
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(pace.pause_max);
    }
    Ok(())
}

async fn apply_at_once(
    client: &mut Client,
    schema: &Schema,
    step: &Step,
    lock_timeout: Duration,
) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute(&format!(
            "set local lock_timeout = {}; set local search_path = {}",
            lock_timeout.as_millis(),
            schema.name()
        ))
        .await?;
    if note(transaction.client(), schema, step).await? {
        transaction.batch_execute(&schema.within(step.text)).await?;
        let renew = schema.within("update {schema}.logins set fence = null");
        transaction.batch_execute(&renew).await?;
    }
    transaction.commit().await
}

/// Writes the step's line; whether nobody else has.
async fn note(
    client: &Client,
    schema: &Schema,
    step: &Step,
) -> Result<bool, tokio_postgres::Error> {
    let text = schema.within(
        "insert into {schema}.migrations (version, name, digest, build_min) values ($1, $2, $3, $4)
         on conflict do nothing returning version",
    );
    let (digest, build_min) = (step.digest(), step.build_min());
    let params: [(&(dyn ToSql + Sync), Type); 4] = [
        (&step.version, Type::INT4),
        (&step.name, Type::TEXT),
        (&digest, Type::BYTEA),
        (&build_min, Type::INT4),
    ];
    Ok(!client.query_typed(&text, &params).await?.is_empty())
}

/// Builds and drops indexes while others read and write. Each waits for all transactions that were open when
/// it began, but nobody waits behind it: it may take as long as it takes.
async fn apply_concurrently(
    client: &Client,
    schema: &Schema,
    step: &Step,
) -> Result<(), ConnectError> {
    let changes = step.index_changes();
    let changes = changes.map_err(|statement| unreadable(step, statement))?;
    for change in changes {
        let text = match change {
            IndexChange::Drop { text } => text,
            IndexChange::Build { name, text } => {
                if is_built(client, schema, name).await? {
                    continue;
                }
                tracing::info!(
                    index = name,
                    "building an index, which waits for every transaction that is open"
                );
                text
            }
        };
        let changed = client.batch_execute(&schema.within(text)).await;
        changed.map_err(unusable)?;
    }
    note(client, schema, step).await.map_err(unusable)?;
    Ok(())
}

/// Whether an index is there and complete; what is left of one that is not is dropped.
async fn is_built(client: &Client, schema: &Schema, name: &str) -> Result<bool, ConnectError> {
    let text = "
        select i.indisvalid,
            (select p.pid from pg_stat_progress_create_index p where p.index_relid = i.indexrelid limit 1)
        from pg_index i
        where i.indexrelid = to_regclass($1)";
    let full_name = format!("{}.{name}", schema.name());
    let found = client
        .query_typed_opt(text, &[(&full_name, Type::TEXT)])
        .await;
    let Some(found) = found.map_err(unusable)? else {
        return Ok(false);
    };
    if found.get(0) {
        return Ok(true);
    }
    // Its program may have died; the server goes on all the same.
    if let Some(builder) = found.get::<_, Option<i32>>(1) {
        return Err(to_be_tried_again(format!(
            "the index {full_name} is still being built by the server's process {builder}; run this again \
             when that is done"
        )));
    }
    let drop = format!("drop index concurrently if exists {full_name}");
    client.batch_execute(&drop).await.map_err(unusable)?;
    Ok(false)
}

/// Whoever holds locks on tables of the schema, for people: of several, the one with the oldest transaction.
async fn holder(client: &Client, schema: &Schema) -> Result<String, ConnectError> {
    let text = "
        select a.pid, a.application_name,
            coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::bigint
        from pg_locks l
        join pg_class c on c.oid = l.relation
        join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
            and l.database = (select oid from pg_database where datname = current_database())
            and c.relnamespace = to_regnamespace($1)
        order by a.xact_start
        limit 1";
    let rows = client
        .query_typed(text, &[(&schema.name(), Type::TEXT)])
        .await;
    Ok(session(rows.map_err(unusable)?.first()))
}
