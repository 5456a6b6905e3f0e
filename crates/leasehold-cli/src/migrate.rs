//! `leasehold migrate`: brings a database to this build's schema.

use jiff::Timestamp;
use serde::Serialize;

use crate::arguments::Common;
use crate::block_on;
use crate::config::Config;
use crate::database::{Database, Step};
use crate::failure::{Answer, Failure};
use crate::screen::{Field, SCHEMA, Screen, Tone};

/// Bring the database to this build's schema, creating it if there is none.
///
/// Prints one line for each migration: version, name, when it was applied.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
JSON: {\"schema\", \"applied\": [version, …], \"migrations\": [{\"version\", \"name\", \"applied_at\"}, …]}, \
where applied is what this run did.")]
pub(crate) struct Arguments {
    /// Change nothing; exit with 3 if something is pending.
    #[arg(
        long,
        env = "LEASEHOLD_MIGRATE_STATUS",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    status: bool,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let config = Config::load(common)?;
    let database = Database::of(&config)?;
    let (applied, all) = block_on(async {
        let applied = if arguments.status {
            Vec::new()
        } else {
            database.migrate().await?
        };
        Ok((applied, database.steps().await?))
    })?;
    let pending = all.iter().filter(|one| one.applied_at.is_none()).count();
    if screen.is_json() {
        show_object(&applied, &all, screen)?;
    } else {
        screen.table(&["version", "name", "applied"], &rows(&all))?;
        screen.talk(&match (pending, applied.len()) {
            (0, 0) => format!("{database} has this build's schema"),
            (0, now) => format!("{database} has this build's schema; {now} applied just now"),
            (_, _) => format!("{database} is behind; run `leasehold migrate`"),
        });
    }
    Ok(Answer::yes_if(pending == 0))
}

fn rows(all: &[Step]) -> Vec<Vec<Field>> {
    let row = |one: &Step| {
        let applied = match one.applied_at {
            Some(at) => Field::from(format!("{at:.0}")),
            None => Field::toned("pending", Tone::Bad),
        };
        vec![one.version.into(), one.name.as_str().into(), applied]
    };
    all.iter().map(row).collect()
}

fn show_object(applied: &[u32], all: &[Step], screen: &Screen) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        applied: &'a [u32],
        migrations: Vec<Migration<'a>>,
    }
    #[derive(Serialize)]
    struct Migration<'a> {
        version: u32,
        name: &'a str,
        applied_at: Option<Timestamp>,
    }
    screen.object(&Document {
        schema: SCHEMA,
        applied,
        migrations: all
            .iter()
            .map(|one| Migration {
                version: one.version,
                name: &one.name,
                applied_at: one.applied_at,
            })
            .collect(),
    })
}
