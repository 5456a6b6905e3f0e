//! Looking whether the fence is up, and whether a login is held by it.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::{recorded, unusable};
use crate::error::ConnectError;
use crate::options::Options;
use crate::roles::{Purpose, TABLES};
use crate::server::Server;
use crate::store::Schema;

/// What the fence between tenants is to the login of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceView {
    /// Whether the schema has logins for it.
    pub is_raised: bool,
    /// Who connects by the address.
    pub login: String,
    /// What the schema made the login for.
    pub purpose: Option<Purpose>,
    /// Whether the server holds the login to no policy: it is a superuser, or may bypass row-level security.
    pub bypasses: bool,
    /// Whether the login has the rights of the one that owns the tables.
    pub owns: bool,
    /// The tables with rows of orgs that are not fenced although the fence is raised.
    pub open_tables: Vec<String>,
}

impl FenceView {
    /// Whether the server keeps this login to the orgs that its transactions name.
    pub fn holds(&self) -> bool {
        self.is_raised
            && self.purpose == Some(Purpose::Runtime)
            && !self.bypasses
            && !self.owns
            && self.open_tables.is_empty()
    }
}

/// Looks at the fence with the eyes of the address's login. Writes nothing; dropping the future ends the look.
///
/// # Errors
/// [`ConnectError`]; of a schema that is not there as well.
pub async fn look_at_fence(address: &str, options: &Options) -> Result<FenceView, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let client = Server::at(address)?.lone(options.patience).await?;
    look(&client, &schema).await
}

async fn look(client: &impl GenericClient, schema: &Schema) -> Result<FenceView, ConnectError> {
    let logins = recorded(client, schema).await?;
    let text = "
        select current_user::text, r.rolsuper or r.rolbypassrls, pg_has_role(n.nspowner, 'usage')
        from pg_roles r, pg_namespace n
        where r.rolname = current_user and n.nspname = $1";
    let row = client
        .query_typed_one(text, &[(&schema.name(), Type::NAME)])
        .await;
    let row = row.map_err(unusable)?;
    let login: String = row.get(0);
    let fenced: Vec<&str> = TABLES
        .iter()
        .filter(|table| table.scope.org_column().is_some())
        .map(|table| table.name)
        .collect();
    let text = "
        select relname::text from pg_class
        where relnamespace = $1::text::regnamespace and relname::text = any ($2::text[])
            and not (relrowsecurity and relforcerowsecurity)
        order by relname";
    let params: [(&(dyn ToSql + Sync), Type); 2] =
        [(&schema.name(), Type::TEXT), (&fenced, Type::TEXT_ARRAY)];
    let open = client.query_typed(text, &params).await;
    let purpose = logins.iter().find(|(_, known)| *known == login);
    Ok(FenceView {
        is_raised: !logins.is_empty(),
        purpose: purpose.map(|(purpose, _)| *purpose),
        login,
        bypasses: row.get(1),
        owns: row.get(2),
        open_tables: open
            .map_err(unusable)?
            .iter()
            .map(|row| row.get(0))
            .collect(),
    })
}
