//! How a store is connected.

use std::fmt;
use std::time::Duration;

use crate::roles::Role;
use crate::statement::Sessions;

/// How a store's workers learn that another process gave them something to do. In either way the store
/// tells other processes, and its own workers learn of its own work at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wakeup {
    /// By LISTEN, within milliseconds. Takes one connection more, from the first subscription on, which
    /// must lead to the server itself: a pooler in transaction mode swallows what is listened for.
    #[default]
    Listen,
    /// By looking now and then, as often as they poll. Works behind a pooler in transaction mode too: no session
    /// of the server's is relied on, or left with anything in it.
    Poll,
}

/// How a store is connected. Start from the default and change what differs.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) schema: String,
    pub(crate) connections: usize,
    pub(crate) patience: Duration,
    pub(crate) migrates: bool,
    pub(crate) wakeup: Wakeup,
    pub(crate) roles: Vec<Role>,
    pub(crate) system_login: Option<Secret>,
}

/// An address, which may hold a password.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            connections: Self::CONNECTIONS,
            patience: Self::PATIENCE,
            migrates: true,
            wakeup: Wakeup::default(),
            roles: Role::ALL.to_vec(),
            system_login: None,
        }
    }
}

impl Options {
    /// Where the tables are unless said otherwise.
    pub const SCHEMA: &'static str = "leasehold";

    /// One for the loop's claims, two for settles under way, one for renewals, and some for what people
    /// look at.
    pub const CONNECTIONS: usize = 8;

    /// Longer than a database needs to take a connection, and short enough to be tried again within a
    /// lease.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    pub(crate) fn sessions(&self) -> Sessions {
        match self.wakeup {
            Wakeup::Listen => Sessions::Own,
            Wakeup::Poll => Sessions::Shared,
        }
    }

    /// How many calls a store that is connected so serves at once, whichever they are: with two logins those of
    /// one of them, since the other's connections are of no use to it. A worker that makes more is refused by
    /// the runtime.
    pub fn calls_max(&self) -> u32 {
        let telling = match self.wakeup {
            // By the connection that listens.
            Wakeup::Listen => 0,
            Wakeup::Poll => 1,
        };
        let calls = self.connections.saturating_sub(telling);
        u32::try_from(calls).unwrap_or(u32::MAX)
    }

    /// With the tables in that schema: a name of lower-case letters, digits and `_`.
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// With at most so many connections; at least two. A worker makes up to six calls at once, and is refused by the
    /// runtime if there are fewer connections than that; handlers that use the store come on top.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(2);
        self
    }

    /// How long to wait for a connection, one that is free or a new one.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How workers learn of the work of other processes.
    pub fn with_wakeup(mut self, wakeup: Wakeup) -> Self {
        self.wakeup = wakeup;
        self
    }

    /// With the tables of these roles alone; every other role has a database elsewhere. A store that is asked
    /// for what belongs to another role answers [`StoreError::Schema`](leasehold_core::StoreError::Schema).
    pub fn with_roles(mut self, roles: &[Role]) -> Self {
        self.roles = roles.to_vec();
        self
    }

    /// Turns the second fence on: with the address of a login that sees every org's rows, for what is about no
    /// org in particular, while the address that the store is connected by sees only the rows of the orgs that
    /// a transaction names in the setting `leasehold.orgs` (ids joined by commas). That takes policies on the
    /// tables. Both logins have a pool of their own, each of as many connections.
    ///
    /// Neither need own the tables: a store with two logins is best connected [without
    /// migrating](Options::without_migrating).
    ///
    /// Without it everything goes by one login, and tenants are kept apart by the predicates of the statements
    /// alone.
    pub fn with_system_login(mut self, address: impl Into<String>) -> Self {
        self.system_login = Some(Secret(address.into()));
        self
    }

    /// Refuses a schema that is older than this build's, instead of migrating it.
    pub fn without_migrating(mut self) -> Self {
        self.migrates = false;
        self
    }
}
