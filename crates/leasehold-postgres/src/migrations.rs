//! Bringing a schema to this build's version: forward only, one step at a time, by one at a time.
//!
//! Each step is a file, applied in a transaction of its own together with its line in the table
//! `migrations`. A session lock keeps two that migrate at once apart. A step that was applied is never
//! changed: its digest is compared, so that a schema that somebody else made is refused.

use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;

use crate::error::{ConnectError, Fault};
use crate::options::Options;
use crate::store::{self, Schema};

mod steps;

pub use steps::{MigrationStep, steps};

struct Step {
    version: i32,
    name: &'static str,
    text: &'static str,
}

macro_rules! steps {
    ($($version:literal $name:literal;)*) => {
        &[$(Step {
            version: $version,
            name: $name,
            text: include_str!(concat!("../migrations/", $name, ".sql")),
        }),*]
    };
}

const STEPS: &[Step] = steps! {
    1 "0001_work";
    2 "0002_tenancy";
    3 "0003_events";
    4 "0004_outbox";
    5 "0005_markers";
    6 "0006_schedules";
    7 "0007_liveness";
};

/// What two migrations at once wait for: the first eight bytes of the product's name.
const LOCK: i64 = i64::from_be_bytes(*b"leasehol");

/// Nobody may wait behind a migration for longer than this: it is better tried again.
const LOCK_TIMEOUT: &str = "5s";

/// How far a schema is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The version it is at; 0 before the first step.
    pub at: i32,
    /// The version of this build.
    pub build: i32,
}

impl MigrationStatus {
    /// Whether this build may run on it as it is: a later schema is one that an earlier build runs on.
    pub const fn is_current(self) -> bool {
        self.at >= self.build
    }
}

/// Brings the schema to this build's version, and answers how far it is now.
///
/// # Errors
/// [`ConnectError`]. What was applied before an error stays, and doing it again goes on from there.
pub async fn migrate(address: &str, options: &Options) -> Result<MigrationStatus, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let mut client = lone(address).await?;
    apply(&mut client, &schema).await?;
    at(&client, &schema).await
}

/// How far the schema is. Writes nothing.
///
/// # Errors
/// [`ConnectError`].
pub async fn status(address: &str, options: &Options) -> Result<MigrationStatus, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    at(&lone(address).await?, &schema).await
}

/// A connection of its own, which ends with its client.
async fn lone(address: &str) -> Result<Client, ConnectError> {
    let config = store::config(address)?;
    let (client, connection) = config
        .connect(tokio_postgres::NoTls)
        .await
        .map_err(unusable)?;
    tokio::spawn(async move {
        // What broke it is told to whoever uses the client.
        let _ = connection.await;
    });
    Ok(client)
}

fn unusable(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Unusable(Fault::from(error).0)
}

pub(crate) async fn apply(client: &mut Client, schema: &Schema) -> Result<(), ConnectError> {
    client
        .execute("select pg_advisory_lock($1)", &[&LOCK])
        .await
        .map_err(unusable)?;
    let applied = apply_locked(client, schema).await;
    let unlocked = client
        .execute("select pg_advisory_unlock($1)", &[&LOCK])
        .await;
    applied?;
    unlocked.map(|_| ()).map_err(unusable)
}

async fn apply_locked(client: &mut Client, schema: &Schema) -> Result<(), ConnectError> {
    let set_up = "
        create schema if not exists {schema};
        create table if not exists {schema}.migrations (
            version    integer     not null primary key,
            name       text        not null,
            digest     bytea       not null,
            applied_at timestamptz not null default now()
        )";
    let known = at(client, schema).await?;
    if known.at == 0 {
        client
            .batch_execute(&schema.within(set_up))
            .await
            .map_err(unusable)?;
    }
    for step in STEPS.iter().filter(|step| step.version > known.at) {
        let transaction = client.transaction().await.map_err(unusable)?;
        let begin = format!(
            "set local lock_timeout = '{LOCK_TIMEOUT}'; set local search_path = {}, pg_catalog",
            schema.name()
        );
        transaction.batch_execute(&begin).await.map_err(unusable)?;
        transaction
            .batch_execute(step.text)
            .await
            .map_err(unusable)?;
        let note = schema
            .within("insert into {schema}.migrations (version, name, digest) values ($1, $2, $3)");
        transaction
            .execute(&note, &[&step.version, &step.name, &digest(step)])
            .await
            .map_err(unusable)?;
        transaction.commit().await.map_err(unusable)?;
        tracing::info!(step = step.name, "migrated");
    }
    Ok(())
}

/// Passes if this build may run on the schema as it is.
pub(crate) async fn check(client: &Client, schema: &Schema) -> Result<(), ConnectError> {
    let status = at(client, schema).await?;
    if status.is_current() {
        return Ok(());
    }
    Err(ConnectError::Schema(format!(
        "the schema {} is at version {} and this build needs {}; run `leasehold migrate`",
        schema.name(),
        status.at,
        status.build
    )))
}

async fn at(client: &Client, schema: &Schema) -> Result<MigrationStatus, ConnectError> {
    let build = STEPS.last().map_or(0, |step| step.version);
    let exists = client
        .query_one(
            "select to_regclass($1) is not null",
            &[&format!("{}.migrations", schema.name())],
        )
        .await
        .map_err(unusable)?;
    if !exists.get::<_, bool>(0) {
        return Ok(MigrationStatus { at: 0, build });
    }
    let text =
        schema.within("select version, name, digest from {schema}.migrations order by version");
    let rows = client.query(&text, &[]).await.map_err(unusable)?;
    let mut at = 0;
    for row in rows {
        let (version, name, found): (i32, String, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
        let step = STEPS.iter().find(|step| step.version == version);
        if step.is_some_and(|step| digest(step) != found) {
            return Err(ConnectError::Schema(format!(
                "step {name} of the schema {} is not the one of this build; it was made by another \
                 program, or by a build that was never released",
                schema.name()
            )));
        }
        at = version;
    }
    Ok(MigrationStatus { at, build })
}

fn digest(step: &Step) -> Vec<u8> {
    Sha256::digest(step.text.as_bytes()).to_vec()
}
