//! Steps that no build has, for tests of how steps are applied and of an old build on the next schema.

use std::time::Duration;

use super::runner::{self, Pace};
use super::script::{self, SetUp};
use super::step::Step;
use super::steps_of;
use crate::error::ConnectError;
use crate::options::Options;
use crate::roles::Role;
use crate::server::Server;
use crate::store::Schema;

/// A step of a build to come.
#[derive(Debug, Clone, Copy)]
pub struct NextStep {
    /// Above those of this build.
    pub version: i32,
    /// With its version, as a file would be called.
    pub name: &'static str,
    /// As a file would hold it.
    pub text: &'static str,
}

/// How long is waited for others.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For another migration.
    pub turn: Duration,
    /// For a lock, at each try.
    pub lock_timeout: Duration,
    /// How often a step is tried.
    pub tries_max: u32,
}

/// This build's steps for the options' roles, and then those.
fn with(options: &Options, next: &[NextStep]) -> Vec<Step> {
    let next = next.iter().map(|step| Step {
        version: step.version,
        role: Role::Queue,
        name: step.name,
        text: step.text,
    });
    steps_of(&options.roles).chain(next).collect()
}

/// Migrates as a build with those steps would.
///
/// # Errors
/// [`ConnectError`].
pub async fn migrate(
    address: &str,
    options: &Options,
    next: &[NextStep],
    waits: Waits,
) -> Result<(), ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let server = Server::at(address)?;
    let pace = Pace {
        turn: waits.turn,
        lock_timeout: waits.lock_timeout,
        tries_max: waits.tries_max,
        ..Pace::DEFAULT
    };
    let steps = with(options, next);
    runner::apply(&server, &schema, options, &steps, pace).await
}

/// The script of all steps of a build with those.
///
/// # Errors
/// [`ConnectError`].
pub fn script(options: &Options, next: &[NextStep]) -> Result<String, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    script::written(&schema, SetUp::Missing, &with(options, next))
}
