//! The steps of a schema one by one, for people.

use jiff::Timestamp;

use super::{STEPS, steps_of, unusable, versions};
use crate::error::ConnectError;
use crate::options::Options;
use crate::rows::Moment;
use crate::server::session;
use crate::store::Schema;

/// One step of a schema, and whether the schema has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStep {
    /// From 1, without gaps.
    pub version: i32,
    /// What it is about.
    pub name: String,
    /// When it was applied, by the database's clock; `None` while it is pending.
    pub applied_at: Option<Timestamp>,
    /// Whether this build does not know it: a later one applied it.
    pub is_later: bool,
}

/// Every step of this build for the roles of the database, and those that a later build has applied. Writes
/// nothing.
///
/// # Errors
/// [`ConnectError`].
pub async fn steps(address: &str, options: &Options) -> Result<Vec<MigrationStep>, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let client = session(address, options).await?;
    let known = versions(&client, &schema, STEPS).await?;
    let mut steps = Vec::new();
    if !known.is_empty() {
        let text = "select version, name, applied_at from {schema}.migrations order by version";
        let rows = client.query_typed(&schema.within(text), &[]).await;
        let rows = rows.map_err(unusable)?;
        steps.extend(rows.iter().map(|row| {
            MigrationStep {
                version: row.get(0),
                name: subject(row.get(1)),
                applied_at: Some(row.get::<_, Moment>(2).0),
                is_later: STEPS
                    .iter()
                    .all(|step| step.version != row.get::<_, i32>(0)),
            }
        }));
    }
    let pending = steps_of(&options.roles).filter(|step| !known.contains(&step.version));
    steps.extend(pending.map(|step| MigrationStep {
        version: step.version,
        name: subject(step.name),
        applied_at: None,
        is_later: false,
    }));
    Ok(steps)
}

/// The name of a step's file without its number.
fn subject(name: &str) -> String {
    let (_, subject) = name.split_once('_').unwrap_or(("", name));
    subject.to_owned()
}
