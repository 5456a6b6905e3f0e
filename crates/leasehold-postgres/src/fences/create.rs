//! Making the logins that the fence is for.

use std::fmt;

use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use super::{Recorded, lock, owns, quoted, raise, unusable};
use crate::error::ConnectError;
use crate::migrations;
use crate::options::Options;
use crate::roles::Purpose;
use crate::server::Server;
use crate::store::Schema;

/// What the logins are called, and their passwords.
#[derive(Debug, Clone)]
pub struct Logins {
    runtime: Login,
    system: Login,
    enqueuer: Login,
}

#[derive(Debug, Clone)]
struct Login {
    name: Option<String>,
    password: Password,
}

/// A login's password.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Password {
    /// Of a login that is made: a random one, which is answered. One that is there keeps its own.
    #[default]
    Generated,
    /// None is set: the server knows its clients otherwise. One that is there keeps its own.
    Unset,
    /// None is set, and a login that is not there is not made.
    Kept,
    /// This one, also for a login that is there.
    Given(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generated => "Generated",
            Self::Unset => "Unset",
            Self::Kept => "Kept",
            Self::Given(_) => "Given(…)",
        })
    }
}

impl Default for Logins {
    /// Called by the schema's name and their purpose, such as `leasehold_runtime`, with generated passwords.
    fn default() -> Self {
        let login = |password| Login {
            name: None,
            password,
        };
        Self {
            runtime: login(Password::Generated),
            system: login(Password::Generated),
            enqueuer: login(Password::Unset),
        }
    }
}

impl Logins {
    /// With the login of that purpose called so. Any name that the server takes.
    pub fn with_name(mut self, purpose: Purpose, name: impl Into<String>) -> Self {
        self.login_mut(purpose).name = Some(name.into());
        self
    }

    /// With that password for the login of that purpose. The enqueuer has none: nobody connects as it.
    pub fn with_password(mut self, purpose: Purpose, password: Password) -> Self {
        if purpose.may_connect() {
            self.login_mut(purpose).password = password;
        }
        self
    }

    /// What the login of that purpose is called in that schema.
    pub fn name(&self, purpose: Purpose, schema: &str) -> String {
        let name = self.login(purpose).name.clone();
        name.unwrap_or_else(|| format!("{schema}_{}", purpose.name()))
    }

    const fn login(&self, purpose: Purpose) -> &Login {
        match purpose {
            Purpose::Runtime => &self.runtime,
            Purpose::System => &self.system,
            Purpose::Enqueuer => &self.enqueuer,
        }
    }

    const fn login_mut(&mut self, purpose: Purpose) -> &mut Login {
        match purpose {
            Purpose::Runtime => &mut self.runtime,
            Purpose::System => &mut self.system,
            Purpose::Enqueuer => &mut self.enqueuer,
        }
    }
}

/// A login as it is now.
#[derive(Clone, PartialEq, Eq)]
pub struct MadeLogin {
    /// What it is for.
    pub purpose: Purpose,
    /// What it is called.
    pub name: String,
    /// Whether it is new.
    pub is_new: bool,
    /// The password that was generated for it. It is kept nowhere else: who does not note it sets another.
    pub generated_password: Option<String>,
}

impl fmt::Debug for MadeLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeLogin")
            .field("purpose", &self.purpose)
            .field("name", &self.name)
            .field("is_new", &self.is_new)
            .finish_non_exhaustive()
    }
}

/// The longest name that the server keeps whole.
const NAME_BYTES_MAX: usize = 63;

/// Migrates the schema, makes the logins that are not there, gives each the rights that its statements need,
/// and raises the fence between tenants. From then on the address is for migrations alone, and every migration
/// keeps the fence up. Done again, it puts right what was changed since.
///
/// The address is of a login that owns the schema, or will, and may make logins (`CREATEROLE`), unless others
/// have made them. The server is told a password only as what it is checked against (SCRAM-SHA-256), so that
/// none can stand in its log.
///
/// All is done in one transaction, after the migration's own. Dropping the future leaves all or nothing done.
///
/// # Errors
/// [`ConnectError`]; [`ConnectError::Logins`] says which login is in the way and what to do about it.
pub async fn create_logins(
    address: &str,
    options: &Options,
    logins: &Logins,
) -> Result<Vec<MadeLogin>, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let server = Server::at(address)?;
    migrations::apply(&server, &schema, options).await?;
    let mut client = server.lone(options.patience).await?;
    let transaction = client.transaction().await.map_err(unusable)?;
    if !owns(&transaction, &schema).await? {
        return Err(ConnectError::Logins(format!(
            "the schema {} belongs to another login; connect as the one that migrates it",
            schema.name()
        )));
    }
    lock(&transaction, &schema).await?;
    let mut made = Vec::new();
    for purpose in Purpose::ALL {
        let name = logins.name(purpose, schema.name());
        let password = &logins.login(purpose).password;
        made.push(ensure(&transaction, &schema, purpose, name, password).await?);
    }
    let recorded: Recorded = made
        .iter()
        .map(|login| (login.purpose, login.name.clone()))
        .collect();
    record(&transaction, &schema, &recorded).await?;
    raise(&transaction, &schema, &recorded).await?;
    transaction.commit().await.map_err(unusable)?;
    Ok(made)
}

/// Makes the login unless it is there; refuses one that no fence would hold.
async fn ensure(
    transaction: &Transaction<'_>,
    schema: &Schema,
    purpose: Purpose,
    name: String,
    password: &Password,
) -> Result<MadeLogin, ConnectError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(ConnectError::Logins(format!(
            "{name:?} is no name for the {} login; give one of 1 to {NAME_BYTES_MAX} bytes",
            purpose.name()
        )));
    }
    let text = "
        select r.rolsuper or r.rolbypassrls, r.rolcanlogin,
            pg_has_role(r.oid, n.nspowner, 'usage')
        from pg_roles r, pg_namespace n
        where r.rolname = $1 and n.nspname = $2";
    let found = transaction
        .query_typed_opt(text, &[(&name, Type::NAME), (&schema.name(), Type::NAME)])
        .await;
    let found = found.map_err(unusable)?;
    if let Some(found) = &found {
        let (passes, may_connect, owns) = (found.get(0), found.get(1), found.get(2));
        if let Some(reason) = unfit(purpose, passes, may_connect, owns) {
            return Err(ConnectError::Logins(format!(
                "the login {name} is there and {reason}, or choose another name"
            )));
        }
    }
    let mut generated = None;
    let password = match password {
        Password::Given(password) => Some(password.clone()),
        Password::Generated if found.is_none() => {
            // Random bits of the system's, 122 of them.
            let password = Uuid::new_v4().simple().to_string();
            generated = Some(password.clone());
            Some(password)
        }
        Password::Kept if found.is_none() => {
            return Err(ConnectError::Logins(format!(
                "the login {name} is not there, and no password was given that it could be made with; give one \
                 in LEASEHOLD_{}_PASSWORD, or take a random one with --json, or none with --without-passwords",
                purpose.name().to_uppercase()
            )));
        }
        Password::Generated | Password::Unset | Password::Kept => None,
    };
    let login = quoted(&name);
    if found.is_none() {
        let connects = if purpose.may_connect() {
            "login"
        } else {
            "nologin"
        };
        run(
            transaction,
            &format!(
                "create role {login} {connects} nosuperuser nobypassrls nocreatedb nocreaterole noreplication"
            ),
        )
        .await?;
    }
    if let Some(password) = password {
        // It holds letters, digits and a few signs, and no quote.
        let verifier = postgres_protocol::password::scram_sha_256(password.as_bytes());
        run(
            transaction,
            &format!("alter role {login} password '{verifier}'"),
        )
        .await?;
    }
    if purpose.may_connect() {
        let_in(transaction, &name).await?;
    } else {
        join(transaction, &name).await?;
    }
    Ok(MadeLogin {
        purpose,
        name,
        is_new: found.is_none(),
        generated_password: generated,
    })
}

/// What is wrong with a login that is there, and what to do; nothing may be.
fn unfit(purpose: Purpose, passes: bool, may_connect: bool, owns: bool) -> Option<&'static str> {
    if passes {
        Some("passes every fence; make it NOSUPERUSER and NOBYPASSRLS")
    } else if owns && purpose.may_connect() {
        Some("has the rights of the one that owns the tables; take them away")
    } else if purpose.may_connect() && !may_connect {
        Some("may not connect; make it LOGIN")
    } else {
        None
    }
}

/// Most databases let everybody connect.
async fn let_in(transaction: &Transaction<'_>, name: &str) -> Result<(), ConnectError> {
    let text = "
        select current_database()::text,
            has_database_privilege($1, current_database()::text, 'connect')";
    let row = transaction
        .query_typed_one(text, &[(&name, Type::NAME)])
        .await;
    let row = row.map_err(unusable)?;
    let (database, may): (String, bool) = (row.get(0), row.get(1));
    if may {
        return Ok(());
    }
    let (database, login) = (quoted(&database), quoted(name));
    run(
        transaction,
        &format!("grant connect on database {database} to {login}"),
    )
    .await
}

/// To hand something over to a login, one has to be a member of it.
async fn join(transaction: &Transaction<'_>, name: &str) -> Result<(), ConnectError> {
    let text = "select current_user::text, pg_has_role(current_user, $1, 'usage')";
    let row = transaction
        .query_typed_one(text, &[(&name, Type::NAME)])
        .await;
    let row = row.map_err(unusable)?;
    let (own, is_member): (String, bool) = (row.get(0), row.get(1));
    if is_member {
        return Ok(());
    }
    run(
        transaction,
        &format!("grant {} to {}", quoted(name), quoted(&own)),
    )
    .await
}

/// Notes the logins, and that all is to be done for them.
async fn record(
    transaction: &Transaction<'_>,
    schema: &Schema,
    logins: &Recorded,
) -> Result<(), ConnectError> {
    let text = schema.within(
        "insert into {schema}.logins as known (purpose, login) values ($1, $2)
         on conflict (purpose) do update set login = excluded.login, fence = null",
    );
    for (purpose, login) in logins {
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&purpose.name(), Type::TEXT), (login, Type::TEXT)];
        let noted = transaction.query_typed(&text, &params).await;
        noted.map_err(unusable)?;
    }
    Ok(())
}

async fn run(transaction: &Transaction<'_>, text: &str) -> Result<(), ConnectError> {
    transaction.batch_execute(text).await.map_err(unusable)
}
