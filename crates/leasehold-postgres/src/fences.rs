//! The second fence: the server itself keeps tenants apart.
//!
//! The first fence is the tenant predicate that every statement carries. The second stands behind it: each
//! table that holds rows of orgs has row-level security, enabled and forced, with one policy for each login.
//!
//! | login | connects as | sees |
//! |---|---|---|
//! | owner | migrations only | everything |
//! | runtime | the work of tenants | the rows of the orgs that the transaction named in `leasehold.orgs` |
//! | system | what takes no org: claims, sweeps, gauges | everything |
//! | enqueuer | nobody; it owns the functions that enqueue | everything that it may read at all |
//!
//! A runtime login that names no org sees nothing and writes nothing, so a statement that forgot its predicate
//! cannot reach another tenant. What stands against mistakes does not stand against intent: whoever has the
//! runtime login's password can name any org.
//!
//! **One policy a login.** A policy that told the logins apart itself would put an `or` into every statement's
//! condition, and the claim's order could not be read from its index any more.
//!
//! **When.** The fence is raised once logins were made for it, and again by every migration after that, so that
//! new tables are fenced with it. Until then nothing stands in the way of a single login, whoever it is. What
//! is to be done is one text, made from [`crate::roles`]. It locks each table for a moment, so the digest of what
//! was done last is kept, and it is done again only after a step, for new logins, or when it differs.

mod create;
mod look;

use sha2::{Digest as _, Sha256};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, Transaction};

use crate::error::{ConnectError, Fault};
use crate::roles::{FUNCTIONS, Function, Purpose, Relation, TABLES, VIEWS};
use crate::store::Schema;

pub use create::{Logins, MadeLogin, Password, create_logins};
pub use look::{FenceView, look_at_fence};

/// Statements of others wait behind a table that is being fenced for so long at most.
const LOCK_TIMEOUT: &str = "2s";

/// The name of the policy for the login that owns the tables; those of the others are called by their purpose.
const OWNER: &str = "owner";

/// The logins of a schema, by their purpose.
pub(crate) type Recorded = Vec<(Purpose, String)>;

/// Raises the fence if the schema has logins for it and what is to be done differs from what was done last. By
/// a login that does not own the schema, nothing can be done, and nothing is.
pub(crate) async fn keep(client: &mut Client, schema: &Schema) -> Result<(), ConnectError> {
    let transaction = client.transaction().await.map_err(unusable)?;
    if owns(&transaction, schema).await? {
        lock(&transaction, schema).await?;
        let recorded = recorded(&transaction, schema).await?;
        if !recorded.is_empty() {
            raise(&transaction, schema, &recorded).await?;
        }
    }
    transaction.commit().await.map_err(unusable)
}

/// Whether whoever asks has the rights of the one that the schema belongs to. By a statement without a name, as
/// all here: there may be a pooler in between.
async fn owns(client: &impl GenericClient, schema: &Schema) -> Result<bool, ConnectError> {
    let text = "select pg_has_role(nspowner, 'usage') from pg_namespace where nspname = $1";
    let row = client
        .query_typed_opt(text, &[(&schema.name(), Type::TEXT)])
        .await;
    Ok(row.map_err(unusable)?.is_some_and(|row| row.get(0)))
}

/// Keeps everybody else from changing the fence until the transaction ends.
async fn lock(transaction: &Transaction<'_>, schema: &Schema) -> Result<(), ConnectError> {
    let text = schema.within("lock table {schema}.logins in share row exclusive mode");
    transaction.batch_execute(&text).await.map_err(unusable)
}

/// The logins that the fence is for. Empty: it is down.
pub(crate) async fn recorded(
    client: &impl GenericClient,
    schema: &Schema,
) -> Result<Recorded, ConnectError> {
    let text = schema.within("select purpose, login from {schema}.logins");
    let rows = client.query_typed(&text, &[]).await.map_err(unusable)?;
    let login = |row: &tokio_postgres::Row| {
        let purpose: &str = row.get(0);
        let known = Purpose::ALL.into_iter().find(|one| one.name() == purpose)?;
        Some((known, row.get(1)))
    };
    let mut logins: Recorded = rows.iter().filter_map(login).collect();
    logins.sort_unstable();
    Ok(logins)
}

/// Does what is to be done, unless it was done.
pub(crate) async fn raise(
    transaction: &Transaction<'_>,
    schema: &Schema,
    logins: &Recorded,
) -> Result<(), ConnectError> {
    let standing = Standing::read(transaction, schema).await?;
    let text = standing.statements(schema, logins);
    let digest = Sha256::digest(text.as_bytes()).to_vec();
    let note = schema.within(
        "update {schema}.logins set fence = $1 where fence is distinct from $1 returning purpose",
    );
    let changed = transaction
        .query_typed(&note, &[(&digest, Type::BYTEA)])
        .await;
    if changed.map_err(unusable)?.is_empty() {
        return Ok(());
    }
    let begin = format!("set local lock_timeout = '{LOCK_TIMEOUT}'");
    transaction.batch_execute(&begin).await.map_err(unusable)?;
    transaction.batch_execute(&text).await.map_err(unusable)?;
    tracing::info!(schema = schema.name(), "raised the fence between tenants");
    Ok(())
}

/// What of ours stands in the schema.
struct Standing {
    /// Tables and views, each with its owner.
    relations: Vec<(String, String)>,
    /// Functions by name, each as a statement names it.
    functions: Vec<(String, String)>,
}

impl Standing {
    async fn read(client: &impl GenericClient, schema: &Schema) -> Result<Self, ConnectError> {
        let relations = "
            select relname::text, pg_get_userbyid(relowner)::text from pg_class
            where relnamespace = $1::text::regnamespace and relkind in ('r', 'v')
            order by relname";
        let functions = "
            select proname::text, oid::regprocedure::text from pg_proc
            where pronamespace = $1::text::regnamespace
            order by 2";
        let pair = |row: tokio_postgres::Row| (row.get(0), row.get(1));
        let name = schema.name();
        let relations = client.query_typed(relations, &[(&name, Type::TEXT)]).await;
        let functions = client.query_typed(functions, &[(&name, Type::TEXT)]).await;
        Ok(Self {
            relations: relations.map_err(unusable)?.into_iter().map(pair).collect(),
            functions: functions.map_err(unusable)?.into_iter().map(pair).collect(),
        })
    }

    /// All that is to be done, however much of it was done before.
    fn statements(&self, schema: &Schema, logins: &Recorded) -> String {
        let mut text = Text::new(schema);
        for (_, login) in logins {
            text.line(&format!(
                "grant usage on schema {{schema}} to {}",
                quoted(login)
            ));
        }
        for table in TABLES {
            let Some((_, owner)) = self.relations.iter().find(|(name, _)| name == table.name)
            else {
                continue;
            };
            if let Some(column) = table.scope.org_column() {
                fence(&mut text, table, column, owner, logins);
            }
            grant(&mut text, table, logins);
        }
        for view in VIEWS {
            if self.relations.iter().any(|(name, _)| name == view.name) {
                let name = view.name;
                text.line(&format!(
                    "alter view {{schema}}.{name} set (security_invoker = true)"
                ));
                grant(&mut text, view, logins);
            }
        }
        for function in FUNCTIONS {
            let standing = self
                .functions
                .iter()
                .find(|(name, _)| name == function.name);
            if let Some((_, signature)) = standing {
                allow(&mut text, signature, function, logins);
            }
        }
        text.statements
    }
}

/// One policy for each login.
fn fence(text: &mut Text<'_>, table: &Relation, column: &str, owner: &str, logins: &Recorded) {
    let name = table.name;
    text.line(&format!(
        "alter table {{schema}}.{name} enable row level security, force row level security"
    ));
    let mut policy = |called: &str, login: Option<&str>, shown: &str| {
        text.line(&format!(
            "drop policy if exists {called} on {{schema}}.{name}"
        ));
        if let Some(login) = login {
            text.line(&format!(
                "create policy {called} on {{schema}}.{name} to {} using ({shown}) with check ({shown})",
                quoted(login)
            ));
        }
    };
    policy(OWNER, Some(owner), "true");
    for purpose in Purpose::ALL {
        let login = login_of(logins, purpose);
        match purpose {
            // A subselect, so that the server reads the setting once a statement and not once a row.
            Purpose::Runtime => {
                let named = "(select {schema}.named_orgs())::uuid[]";
                policy(purpose.name(), login, &format!("{column} = any ({named})"));
            }
            Purpose::System => policy(purpose.name(), login, "true"),
            Purpose::Enqueuer => {
                let login = login.filter(|_| !table.rights(purpose).is_empty());
                policy(purpose.name(), login, "true");
            }
        }
    }
}

fn grant(text: &mut Text<'_>, relation: &Relation, logins: &Recorded) {
    let name = relation.name;
    for (purpose, login) in logins {
        let login = quoted(login);
        text.line(&format!("revoke all on {{schema}}.{name} from {login}"));
        let rights = relation.rights(*purpose);
        if !rights.is_empty() {
            text.line(&format!("grant {rights} on {{schema}}.{name} to {login}"));
        }
    }
}

fn allow(text: &mut Text<'_>, signature: &str, function: &Function, logins: &Recorded) {
    text.line(&format!("revoke all on function {signature} from public"));
    for caller in function.callers {
        if let Some(login) = login_of(logins, *caller) {
            let login = quoted(login);
            text.line(&format!("grant execute on function {signature} to {login}"));
        }
    }
    if function.is_definer
        && let Some(login) = login_of(logins, Purpose::Enqueuer)
    {
        let login = quoted(login);
        // Who is to own something in a schema needs this right while it is handed over.
        text.line(&format!("grant create on schema {{schema}} to {login}"));
        text.line(&format!("alter function {signature} owner to {login}"));
        text.line(&format!("revoke create on schema {{schema}} from {login}"));
    }
}

fn login_of(logins: &Recorded, purpose: Purpose) -> Option<&str> {
    let known = logins.iter().find(|(known, _)| *known == purpose);
    known.map(|(_, login)| login.as_str())
}

/// Statements one after the other.
struct Text<'s> {
    statements: String,
    schema: &'s Schema,
}

impl<'s> Text<'s> {
    const fn new(schema: &'s Schema) -> Self {
        Self {
            statements: String::new(),
            schema,
        }
    }

    /// Adds one, with `{schema}` replaced by the schema's name.
    fn line(&mut self, statement: &str) {
        self.statements.push_str(&self.schema.within(statement));
        self.statements.push_str(";\n");
    }
}

/// A name as a statement may hold it, whatever is in it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn unusable(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Unusable(Fault::from(error).into())
}
