//! `leasehold migrate`: brings a database to this build's schema.

use jiff::Timestamp;
use leasehold_postgres::MadeLogin;
use serde::Serialize;

use crate::arguments::Common;
use crate::block_on;
use crate::config::Config;
use crate::database::{Database, Step};
use crate::failure::{Answer, Failure};
use crate::screen::{Field, SCHEMA, Screen, Tone};

mod logins;

/// Bring the database to this build's schema, creating it if there is none.
///
/// Prints one line for each migration: version, name, when it was applied. What was applied before an error stays;
/// doing it again goes on from there.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_help_heading = "Instead of migrating",
    after_long_help = "\
JSON: {\"schema\", \"applied\": [version, …], \"migrations\": [{\"version\", \"name\", \"applied_at\"}, …], \
\"logins\": [{\"purpose\", \"name\", \"is_new\", \"password\"}, …]}, where applied is what this run did, and \
password is null but for a random one that it set."
)]
pub(crate) struct Arguments {
    /// The schema of a Postgres database that holds the tables. It wins over `postgres.schema` of the settings,
    /// which holds without it.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "LEASEHOLD_MIGRATE_SCHEMA"
    )]
    schema: Option<String>,
    #[command(flatten)]
    logins: logins::LoginArguments,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Status(StatusArguments),
    Print(PrintArguments),
}

/// Say which migrations the database has. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Exits with 0 once it has looked; with --check, with 3 if a migration is pending.

JSON: as of `leasehold migrate`, with nothing applied.")]
struct StatusArguments {
    /// Exit with 3 if a migration is pending.
    #[arg(
        long,
        env = "LEASEHOLD_MIGRATE_CHECK",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    check: bool,
}

/// Print the SQL of the migrations that a Postgres database does not have, for a person to run with psql.
/// Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
With psql it has the same outcome as `leasehold migrate`, but for the fence between tenants: where it is \
raised, run `leasehold migrate` afterwards, too, as the script says at its end.
  leasehold migrate print > pending.sql
  psql --no-psqlrc --file pending.sql DATABASE

JSON: {\"schema\", \"sql\"}, where sql is empty if nothing is pending.")]
struct PrintArguments {
    /// Print all of them, for an empty database, without looking at one.
    #[arg(
        long,
        env = "LEASEHOLD_MIGRATE_ALL",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    all: bool,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let config = Config::load(common)?;
    let database = Database::of(&config)?.within_schema(arguments.schema.as_deref())?;
    if arguments.command.is_some() && arguments.logins.create_roles {
        return Err(
            Failure::usage("--create-roles is given, and a command that changes nothing")
                .because("logins are made by `leasehold migrate` itself")
                .remedy("leave one of them out"),
        );
    }
    match &arguments.command {
        None => migrate(&arguments.logins, &database, screen),
        Some(Command::Status(arguments)) => status(arguments, &database, screen),
        Some(Command::Print(arguments)) => print(arguments, &database, screen),
    }
}

fn migrate(
    arguments: &logins::LoginArguments,
    database: &Database,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let server = if arguments.create_roles {
        Some(database.has_logins()?)
    } else {
        None
    };
    let (applied, made, all) = block_on(async {
        let applied = database.migrate().await?;
        let made = match server {
            Some(server) => server.create_logins(&arguments.logins(screen)).await?,
            None => Vec::new(),
        };
        Ok::<_, Failure>((applied, made, database.steps().await?))
    })?;
    let is_current = show(database, &applied, &made, &all, screen)?;
    Ok(Answer::yes_if(is_current))
}

fn status(
    arguments: &StatusArguments,
    database: &Database,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let all = block_on(database.steps())?;
    let is_current = show(database, &[], &[], &all, screen)?;
    Ok(Answer::yes_if(is_current || !arguments.check))
}

/// Whether nothing is pending.
fn show(
    database: &Database,
    applied: &[u32],
    made: &[MadeLogin],
    all: &[Step],
    screen: &Screen,
) -> Result<bool, Failure> {
    let is_current = all.iter().all(|one| one.applied_at.is_some());
    if screen.is_json() {
        show_object(applied, all, made, screen)?;
    } else {
        screen.table(&["version", "name", "applied"], &rows(all))?;
        let schema = if all.iter().any(|one| one.is_later) {
            "the schema of a later build, on which this one runs"
        } else {
            "this build's schema"
        };
        screen.talk(&match (is_current, applied.len()) {
            (true, 0) => format!("{database} has {schema}"),
            (true, now) => format!("{database} has {schema}; {now} applied just now"),
            (false, _) => format!("{database} is behind; run `leasehold migrate`"),
        });
        if !made.is_empty() {
            screen.table(&logins::HEADER, &logins::rows(made))?;
            screen.talk(&logins::remedy(made));
        }
    }
    Ok(is_current)
}

fn print(
    arguments: &PrintArguments,
    database: &Database,
    screen: &Screen,
) -> Result<Answer, Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        sql: &'a str,
    }
    let Database::Postgres(server) = database else {
        return Err(Failure::usage("a SQLite file has no migrations to print")
            .because("nobody but this program migrates it")
            .remedy("run `leasehold migrate`, or name a Postgres database with --database"));
    };
    let sql = if arguments.all {
        server.script()?
    } else {
        block_on(server.pending_script())?
    };
    if screen.is_json() {
        let sql = &sql;
        screen.object(&Document {
            schema: SCHEMA,
            sql,
        })?;
    } else if sql.is_empty() {
        screen.talk(&format!(
            "{database} has all that this build applies; nothing is pending"
        ));
    } else {
        screen.text(&sql)?;
    }
    Ok(Answer::Yes)
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

fn show_object(
    applied: &[u32],
    all: &[Step],
    made: &[MadeLogin],
    screen: &Screen,
) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        applied: &'a [u32],
        migrations: Vec<Migration<'a>>,
        logins: Vec<logins::Login<'a>>,
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
        logins: logins::objects(made),
    })
}
