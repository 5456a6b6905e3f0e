//! Bringing a schema to this build's version: forward only, one step at a time, by one at a time.
//!
//! A database has the steps of the roles that it serves; each serves all unless told otherwise. Each step
//! is a file, applied in a transaction of its own together with its line in the table
//! `migrations`. A session lock keeps two that migrate at once apart. A step that was applied is never
//! changed: its digest is compared, so that a schema that somebody else made is refused.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::{ConnectError, Fault};
use crate::options::Options;
use crate::roles::Role;
use crate::server::Server;
use crate::store::Schema;

mod steps;

pub use steps::{MigrationStep, steps};

struct Step {
    version: i32,
    /// Whose tables it makes: a database without them does without it.
    role: Role,
    name: &'static str,
    text: &'static str,
}

macro_rules! steps {
    ($($version:literal $role:ident $name:literal;)*) => {
        &[$(Step {
            version: $version,
            role: Role::$role,
            name: $name,
            text: include_str!(concat!("../migrations/", $name, ".sql")),
        }),*]
    };
}

const STEPS: &[Step] = steps! {
    1 Queue "0001_work";
    2 Core "0002_tenancy";
    3 Activity "0003_events";
    4 Core "0004_outbox";
    5 Core "0005_markers";
    6 Queue "0006_schedules";
    7 Activity "0007_liveness";
};

/// What two migrations at once wait for: the first eight bytes of the product's name.
const LOCK: i64 = i64::from_be_bytes(*b"leasehol");

/// What every database of ours has, whatever roles it serves.
const SET_UP: &str = include_str!("../migrations/set_up.sql");

/// Nobody may wait behind a migration for longer than this: it is better tried again.
const LOCK_TIMEOUT: &str = "5s";

/// How far a schema is, as to the roles that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigrationStatus {
    /// The version of the last step that it has; 0 before the first one.
    pub at: i32,
    /// The version of this build's last step for these roles.
    pub build: i32,
    /// How many of this build's steps for these roles it does not have.
    pub pending: usize,
}

impl MigrationStatus {
    /// Whether this build may run on it as it is: a later schema is one that an earlier build runs on.
    pub const fn is_current(self) -> bool {
        self.pending == 0
    }
}

/// Brings the schema to this build's version, and answers how far it is now.
///
/// # Errors
/// [`ConnectError`]. What was applied before an error stays, and doing it again goes on from there.
pub async fn migrate(address: &str, options: &Options) -> Result<MigrationStatus, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let mut client = lone(address, options).await?;
    apply(&mut client, &schema, &options.roles).await?;
    at(&client, &schema, &options.roles).await
}

/// How far the schema is. Writes nothing.
///
/// # Errors
/// [`ConnectError`].
pub async fn status(address: &str, options: &Options) -> Result<MigrationStatus, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    at(&lone(address, options).await?, &schema, &options.roles).await
}

/// A connection of its own, which ends with its client.
async fn lone(address: &str, options: &Options) -> Result<Client, ConnectError> {
    Server::at(address)?.lone(options.patience).await
}

fn unusable(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Unusable(Fault::from(error).0)
}

pub(crate) async fn apply(
    client: &mut Client,
    schema: &Schema,
    roles: &[Role],
) -> Result<(), ConnectError> {
    client
        .execute("select pg_advisory_lock($1)", &[&LOCK])
        .await
        .map_err(unusable)?;
    let applied = apply_locked(client, schema, roles).await;
    let unlocked = client
        .execute("select pg_advisory_unlock($1)", &[&LOCK])
        .await;
    applied?;
    unlocked.map(|_| ()).map_err(unusable)
}

async fn apply_locked(
    client: &mut Client,
    schema: &Schema,
    roles: &[Role],
) -> Result<(), ConnectError> {
    let known = versions(client, schema).await?;
    if known.is_empty() {
        client
            .batch_execute(&schema.within(SET_UP))
            .await
            .map_err(unusable)?;
    }
    for step in steps_of(roles).filter(|step| !known.contains(&step.version)) {
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
pub(crate) async fn check(
    client: &Client,
    schema: &Schema,
    roles: &[Role],
) -> Result<(), ConnectError> {
    let status = at(client, schema, roles).await?;
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

async fn at(
    client: &Client,
    schema: &Schema,
    roles: &[Role],
) -> Result<MigrationStatus, ConnectError> {
    let known = versions(client, schema).await?;
    let pending = steps_of(roles).filter(|step| !known.contains(&step.version));
    Ok(MigrationStatus {
        at: known.last().copied().unwrap_or(0),
        build: steps_of(roles).last().map_or(0, |step| step.version),
        pending: pending.count(),
    })
}

/// The versions of the steps that the schema has, of whichever role.
async fn versions(client: &Client, schema: &Schema) -> Result<BTreeSet<i32>, ConnectError> {
    // Unnamed, since there may be a pooler in between.
    let table = format!("{}.migrations", schema.name());
    let exists = client
        .query_typed_one(
            "select to_regclass($1) is not null",
            &[(&table, Type::TEXT)],
        )
        .await
        .map_err(unusable)?;
    if !exists.get::<_, bool>(0) {
        return Ok(BTreeSet::new());
    }
    let text = schema.within("select version, name, digest from {schema}.migrations");
    let rows = client.query_typed(&text, &[]).await.map_err(unusable)?;
    let mut versions = BTreeSet::new();
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
        versions.insert(version);
    }
    Ok(versions)
}

/// This build's steps for the roles, in their order.
fn steps_of(roles: &[Role]) -> impl Iterator<Item = &'static Step> {
    STEPS.iter().filter(|step| roles.contains(&step.role))
}

fn digest(step: &Step) -> Vec<u8> {
    Sha256::digest(step.text.as_bytes()).to_vec()
}
