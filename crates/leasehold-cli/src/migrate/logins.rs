//! `leasehold migrate --create-roles`: the logins that the database keeps tenants apart by.

use leasehold_postgres::{Logins, MadeLogin, Password, Purpose};
use serde::Serialize;

use crate::screen::{Field, Screen};

/// What the logins are called and how they are known.
#[derive(Debug, clap::Args)]
pub(super) struct LoginArguments {
    /// Also make a login for each purpose, on a Postgres server, and let the server keep tenants apart: one for
    /// the work of tenants, one for what takes no org, and one without a password that only owns functions.
    /// Logins that are there keep their passwords. Done again, it puts right what was changed.
    ///
    /// The passwords are those of `LEASEHOLD_RUNTIME_PASSWORD` and `LEASEHOLD_SYSTEM_PASSWORD`. Without them a
    /// login that is new gets a random one, which is told once, on a terminal or with --json.
    #[arg(
        long,
        env = "LEASEHOLD_MIGRATE_CREATE_ROLES",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    pub(super) create_roles: bool,

    /// Set no passwords: the server knows its clients by certificates, by their system's user, or by somebody
    /// who sets passwords himself.
    #[arg(
        long,
        env = "LEASEHOLD_MIGRATE_WITHOUT_PASSWORDS",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    without_passwords: bool,

    /// What the login for the work of tenants is called, if not `SCHEMA_runtime`.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_MIGRATE_RUNTIME_NAME")]
    runtime_name: Option<String>,

    /// What the login for what takes no org is called, if not `SCHEMA_system`.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_MIGRATE_SYSTEM_NAME")]
    system_name: Option<String>,

    /// What the owner of the functions that enqueue is called, if not `SCHEMA_enqueuer`.
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_MIGRATE_ENQUEUER_NAME")]
    enqueuer_name: Option<String>,

    // Of the environment alone, as far as help goes: on a command line the whole machine can read them.
    #[arg(long, hide = true, env = "LEASEHOLD_RUNTIME_PASSWORD")]
    runtime_password: Option<String>,

    #[arg(long, hide = true, env = "LEASEHOLD_SYSTEM_PASSWORD")]
    system_password: Option<String>,
}

impl LoginArguments {
    /// The logins as they are to be. A password that nobody asked for is made only where it can be told: what
    /// is written to a pipe as text may be a log.
    pub(super) fn logins(&self, screen: &Screen) -> Logins {
        let password = |given: &Option<String>| match given {
            _ if self.without_passwords => Password::Unset,
            Some(given) if !given.is_empty() => Password::Given(given.clone()),
            _ if screen.is_json() || screen.is_terminal() => Password::Generated,
            _ => Password::Kept,
        };
        let mut logins = Logins::default()
            .with_password(Purpose::Runtime, password(&self.runtime_password))
            .with_password(Purpose::System, password(&self.system_password));
        for (purpose, name) in [
            (Purpose::Runtime, &self.runtime_name),
            (Purpose::System, &self.system_name),
            (Purpose::Enqueuer, &self.enqueuer_name),
        ] {
            if let Some(name) = name.as_deref().filter(|name| !name.is_empty()) {
                logins = logins.with_name(purpose, name);
            }
        }
        logins
    }
}

/// A login, for programs.
#[derive(Serialize)]
pub(super) struct Login<'a> {
    purpose: &'static str,
    name: &'a str,
    is_new: bool,
    password: Option<&'a str>,
}

pub(super) fn objects(made: &[MadeLogin]) -> Vec<Login<'_>> {
    let mut objects = Vec::new();
    for login in made {
        objects.push(Login {
            purpose: login.purpose.name(),
            name: &login.name,
            is_new: login.is_new,
            password: login.generated_password.as_deref(),
        });
    }
    objects
}

pub(super) const HEADER: [&str; 3] = ["login", "for", "password"];

pub(super) fn rows(made: &[MadeLogin]) -> Vec<Vec<Field>> {
    let row = |login: &MadeLogin| {
        let password = login.generated_password.as_deref().unwrap_or("-");
        vec![
            login.name.as_str().into(),
            login.purpose.name().into(),
            password.into(),
        ]
    };
    made.iter().map(row).collect()
}

/// What is left for a person to do.
pub(super) fn remedy(made: &[MadeLogin]) -> String {
    let is_told = made.iter().any(|login| login.generated_password.is_some());
    let noted = if is_told {
        "note the passwords, which are told once; then "
    } else {
        ""
    };
    format!(
        "tenants are fenced; {noted}name the runtime login in `database`, the system login in \
         `postgres.system_login`, and this one in `postgres.migration_login` where you migrate"
    )
}
