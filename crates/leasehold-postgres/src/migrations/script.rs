//! The steps as a script, for a person who applies them with psql.

use std::fmt::Write as _;

use super::lock;
use super::runner::Pace;
use super::step::{IndexChange, Step};
use super::{SET_UP, STEPS, steps_of, versions};
use crate::error::ConnectError;
use crate::fences;
use crate::options::Options;
use crate::server::session;
use crate::store::Schema;

/// The SQL of every step of this build for the roles of a database, to be run with psql on an empty one. Goes
/// nowhere.
///
/// # Errors
/// [`ConnectError::SchemaName`].
pub fn script(options: &Options) -> Result<String, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let steps: Vec<Step> = steps_of(&options.roles).collect();
    written(&schema, SetUp::Missing, &steps)
}

/// The SQL of the steps that the database does not have, to be run with psql: with the same outcome as
/// [`migrate`](super::migrate), but for the fence between tenants, where it is raised: that takes a
/// [`migrate`](super::migrate) afterwards, as the script says at its end. Empty if nothing is pending. Writes
/// nothing.
///
/// # Errors
/// [`ConnectError`].
pub async fn pending_script(address: &str, options: &Options) -> Result<String, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let client = session(address, options).await?;
    let known = versions(&client, &schema, STEPS).await?;
    let steps = steps_of(&options.roles).filter(|step| !known.contains(&step.version));
    let steps: Vec<Step> = steps.collect();
    if steps.is_empty() {
        return Ok(String::new());
    }
    let set_up = if known.is_empty() {
        SetUp::Missing
    } else {
        SetUp::Done
    };
    let mut script = written(&schema, set_up, &steps)?;
    if !known.is_empty() && !fences::recorded(&client, &schema).await?.is_empty() {
        script.push_str(FENCED);
    }
    Ok(script)
}

/// What to fence is found out from the tables as they are then. Without backquotes, whose content psql would run.
const FENCED: &str = "
\\echo Tenants are fenced here: now run leasehold migrate by the login that owns the schema, which fences
\\echo what is new. Until then the logins that work have no rights to it.
";

/// Whether the schema has what every schema has.
#[derive(Clone, Copy)]
pub(super) enum SetUp {
    Missing,
    Done,
}

pub(super) fn written(
    schema: &Schema,
    set_up: SetUp,
    steps: &[Step],
) -> Result<String, ConnectError> {
    let mut script = format!(
        "-- Brings the schema {} of Leasehold up to date, as `leasehold migrate` does. For psql; what was\n\
         -- applied before an error stays.\n\
         \\set ON_ERROR_STOP on\n",
        schema.name()
    );
    let lock = format!("select pg_advisory_xact_lock({});", lock::key(schema));
    if let SetUp::Missing = set_up {
        put(
            &mut script,
            &["\nbegin;", &lock, &schema.within(SET_UP), "commit;"],
        );
    }
    for step in steps {
        if step.is_concurrent() {
            put_concurrent(&mut script, schema, step)?;
            continue;
        }
        let set = format!(
            "set local lock_timeout = {};\nset local search_path = {};",
            Pace::DEFAULT.lock_timeout.as_millis(),
            schema.name()
        );
        let name = format!("\n-- {}", step.name);
        let text = schema.within(step.text);
        let note = note(schema, step);
        put(
            &mut script,
            &[&name, "begin;", &lock, &set, &note, &text, "commit;"],
        );
    }
    Ok(script)
}

fn put(script: &mut String, lines: &[&str]) {
    for line in lines {
        script.push_str(line.trim_end());
        script.push('\n');
    }
}

/// In no transaction. An index that a crash left unfinished is dropped, and so is a finished one of that name:
/// a script does not look.
fn put_concurrent(script: &mut String, schema: &Schema, step: &Step) -> Result<(), ConnectError> {
    let changes = step
        .index_changes()
        .map_err(|statement| super::unreadable(step, statement))?;
    put(script, &[&format!("\n-- {}", step.name)]);
    for change in changes {
        let text = match change {
            IndexChange::Drop { text } => text,
            IndexChange::Build { name, text } => {
                let drop = format!(
                    "drop index concurrently if exists {}.{name};",
                    schema.name()
                );
                put(script, &[&drop]);
                text
            }
        };
        put(script, &[&format!("{};", schema.within(text))]);
    }
    put(script, &[&note(schema, step)]);
    Ok(())
}

/// Without a word for one that is there: a script that is run twice is to stop.
fn note(schema: &Schema, step: &Step) -> String {
    let mut digest = String::new();
    for byte in step.digest() {
        // Writing to a text cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    format!(
        "insert into {}.migrations (version, name, digest, build_min) values ({}, '{}', '\\x{digest}', {});",
        schema.name(),
        step.version,
        step.name,
        step.build_min()
    )
}
