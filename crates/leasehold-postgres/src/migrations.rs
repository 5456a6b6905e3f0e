//! Bringing a schema to this build's version: forward only, one step at a time, by one at a time.
//!
//! A database has the steps of the roles that it serves; each serves all unless told otherwise. A step that was
//! applied is never changed: its digest is compared, so that a schema that somebody else made is refused.
//!
//! A build runs on the schema of a later one: steps add, and what a step takes away no build has used since
//! the step that it names. A schema that has taken away what this build uses is refused, too.
//!
//! How a step is applied is the [`runner`]'s, and what keeps others away meanwhile the [`lock`]'s.

use std::collections::BTreeSet;

use leasehold_core::StoreError;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{ConnectError, Fault};
use crate::options::Options;
use crate::roles::Role;
use crate::server::{self, Server};
use crate::store::Schema;

mod lock;
#[cfg(feature = "rehearsal")]
pub mod rehearsal;
mod runner;
mod script;
mod step;
mod steps;

use runner::Pace;
pub use script::{pending_script, script};
use step::Step;
pub use steps::{MigrationStep, steps};

#[cfg(test)]
mod tests;

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
    8 Queue "0008_enqueue";
};

/// What every database of ours has, whatever roles it serves.
const SET_UP: &str = include_str!("../migrations/set_up.sql");

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
/// Another that migrates the schema is waited for, for half a minute. A step that needs a lock which somebody
/// holds is tried for most of a minute. Beyond that it takes as long as the steps take.
///
/// Dropping the future ends it between two statements; what was applied stays, and an index that is being built
/// is built to its end by the server.
///
/// # Errors
/// [`ConnectError`]. What was applied before an error stays, and doing it again goes on from there.
pub async fn migrate(address: &str, options: &Options) -> Result<MigrationStatus, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let server = Server::at(address)?;
    apply(&server, &schema, options).await?;
    let client = server.lone(options.patience).await?;
    at(&client, &schema, &options.roles).await
}

/// How far the schema is. Writes nothing.
///
/// # Errors
/// [`ConnectError`].
pub async fn status(address: &str, options: &Options) -> Result<MigrationStatus, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let client = server::session(address, options).await?;
    at(&client, &schema, &options.roles).await
}

fn unusable(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Unusable(Fault::from(error).into())
}

fn to_be_tried_again(why: String) -> ConnectError {
    ConnectError::Unusable(StoreError::Retry(why))
}

/// A session of the server for people, by its process, its name, and how many seconds ago its transaction began.
fn session(row: Option<&Row>) -> String {
    let Some(row) = row else {
        return "somebody who is not to be seen, or gone by now".to_owned();
    };
    let (process, name, seconds): (i32, &str, i64) = (row.get(0), row.get(1), row.get(2));
    let name = if name.is_empty() { "unnamed" } else { name };
    format!("the server's process {process} ({name}), in a transaction that is {seconds} s old")
}

/// Applies this build's steps for the roles.
pub(crate) async fn apply(
    server: &Server,
    schema: &Schema,
    options: &Options,
) -> Result<(), ConnectError> {
    let steps: Vec<Step> = steps_of(&options.roles).collect();
    runner::apply(server, schema, options, &steps, Pace::DEFAULT).await
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

pub(crate) async fn at(
    client: &Client,
    schema: &Schema,
    roles: &[Role],
) -> Result<MigrationStatus, ConnectError> {
    let known = versions(client, schema, STEPS).await?;
    let pending = steps_of(roles).filter(|step| !known.contains(&step.version));
    Ok(MigrationStatus {
        at: known.last().copied().unwrap_or(0),
        build: steps_of(roles).last().map_or(0, |step| step.version),
        pending: pending.count(),
    })
}

/// The versions of the steps that the schema has, of whichever role, if a build of those steps may run on it.
async fn versions(
    client: &Client,
    schema: &Schema,
    steps: &[Step],
) -> Result<BTreeSet<i32>, ConnectError> {
    let table = format!("{}.migrations", schema.name());
    let exists = "select to_regclass($1) is not null";
    let exists = client
        .query_typed_one(exists, &[(&table, Type::TEXT)])
        .await;
    if !exists.map_err(unusable)?.get::<_, bool>(0) {
        return Ok(BTreeSet::new());
    }
    let text = format!("select version, name, digest, build_min from {table}");
    let rows = client.query_typed(&text, &[]).await.map_err(unusable)?;
    let build = steps.last().map_or(0, |step| step.version);
    let mut versions = BTreeSet::new();
    for row in rows {
        let (version, name): (i32, &str) = (row.get(0), row.get(1));
        let step = steps.iter().find(|step| step.version == version);
        if step.is_some_and(|step| step.digest() != row.get::<_, Vec<u8>>(2)) {
            return Err(ConnectError::Schema(format!(
                "step {name} of the schema {} is not the one of this build: another program made it, or a build \
                 that was never released; run the build that made it, or choose another schema and let this \
                 build make that one anew",
                schema.name()
            )));
        }
        let build_min: i32 = row.get(3);
        if build_min > build {
            return Err(ConnectError::Schema(format!(
                "the schema {} has taken away what this build uses: its step {name} is for builds from version \
                 {build_min}, and this one is of version {build}; upgrade this program",
                schema.name()
            )));
        }
        versions.insert(version);
    }
    Ok(versions)
}

/// This build's steps for the roles, in their order.
fn steps_of(roles: &[Role]) -> impl Iterator<Item = Step> {
    STEPS
        .iter()
        .filter(|step| roles.contains(&step.role))
        .copied()
}

fn unreadable(step: &Step, statement: &str) -> ConnectError {
    ConnectError::Schema(format!(
        "the step {} has a statement that no concurrent step may have: {statement}",
        step.name
    ))
}
