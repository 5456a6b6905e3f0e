//! Connecting to a database, and the store that it becomes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, RecyclingMethod, Runtime, Timeouts,
};
use futures_util::future::join;
use leasehold_core::{Lane, StoreError, Stores};

use crate::error::ConnectError;
use crate::funnel::{Logins, PLANNING};
use crate::hints::{Board, Courier, Route, Subscription};
use crate::home::Home;
use crate::migrations;
use crate::options::{Options, Secret};
use crate::server::{Pool, Server};
use crate::statement::{Sessions, Texts};
use crate::work::{Floors, Turns};

/// All stores on one schema of a Postgres database. Dropping the last handle closes its connections.
///
/// Every statement goes through the [`funnel`](crate::funnel).
pub struct PostgresStore {
    pub(crate) logins: Logins,
    pub(crate) sessions: Sessions,
    pub(crate) texts: Texts,
    /// Whether somebody has been told that no hints come from elsewhere.
    is_polling_known: AtomicBool,
    /// From where on claims look at the queues.
    pub(crate) floors: Mutex<Floors>,
    pub(crate) claim_turns: Turns,
    hints: Arc<Board>,
    courier: Courier,
    patience: Duration,
    calls_max: u32,
    /// Dropped last: what is above lives there.
    _home: Home,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pool's configuration may hold a password.
        f.debug_struct("PostgresStore")
            .field("schema", self.texts.schema())
            .field("is_fenced", &self.is_fenced())
            .finish_non_exhaustive()
    }
}

/// Connects to the database, and migrates its schema as the options say. Hints to and from other processes
/// are carried by a thread of the store's own, as the connections are.
///
/// The address is the runtime login's. What is about no org in particular goes by the system login's, if the
/// options give one: claims, the sweep's looks, purges, gauges, hints.
///
/// # Errors
/// [`ConnectError`] says what is wrong and what to do; never with the address, which may hold a password.
pub async fn connect(address: &str, options: Options) -> Result<Arc<PostgresStore>, ConnectError> {
    let schema = Schema::parse(&options.schema)?;
    let home = Home::open().map_err(|error| {
        ConnectError::Unusable(StoreError::Unavailable(format!(
            "no thread can be started for its connections: {error}"
        )))
    })?;
    let server = Server::at(address)?;
    let logins = Logins {
        runtime: pool(server.clone(), &options, &home)?,
        system: match &options.system_login {
            Some(Secret(address)) => {
                let pool = Server::at(address).and_then(|server| pool(server, &options, &home));
                Some(pool.map_err(of_system)?)
            }
            None => None,
        },
    };
    let sessions = options.sessions();
    let client = client(&logins.runtime).await?;
    server.refuse_unfit(&client).await?;
    let status = migrations::at(&client, &schema, &options.roles).await?;
    if options.migrates && !status.is_current() {
        migrations::apply(&server, &schema, &options).await?;
    }
    migrations::check(&client, &schema, &options.roles).await?;
    drop(client);
    if let Some(system) = &logins.system {
        drop(self::client(system).await.map_err(of_system)?);
    }
    let hints = Arc::<Board>::default();
    let route = Route::new(logins.tenantless().clone(), &schema, &options);
    Ok(Arc::new(PostgresStore {
        logins,
        sessions,
        texts: Texts::within(schema),
        is_polling_known: AtomicBool::new(sessions == Sessions::Own),
        floors: Mutex::default(),
        claim_turns: Turns::default(),
        courier: Courier::start(route, Arc::clone(&hints), &home),
        hints,
        patience: options.patience,
        calls_max: options.calls_max(),
        _home: home,
    }))
}

async fn client(pool: &Pool) -> Result<Object, ConnectError> {
    let client = pool.get().await;
    client.map_err(|fault| ConnectError::Unusable(fault.into()))
}

/// Says which of two addresses is meant.
fn of_system(error: ConnectError) -> ConnectError {
    let whose = "by the system login";
    match error {
        ConnectError::Address(text) => ConnectError::Address(format!("{whose}: {text}")),
        ConnectError::Unusable(StoreError::Unavailable(text)) => {
            ConnectError::Unusable(StoreError::Unavailable(format!("{whose}: {text}")))
        }
        other => other,
    }
}

fn pool(server: Server, options: &Options, home: &Home) -> Result<Pool, ConnectError> {
    let manager = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_connect(server.config(), home.connector(server.clone()), manager);
    let builder = deadpool_postgres::Pool::builder(manager);
    let builder = match options.sessions() {
        Sessions::Own => builder.post_create(prepare_session(options.patience)),
        Sessions::Shared => builder,
    };
    let pool = builder
        .max_size(options.connections)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait: Some(options.patience),
            create: Some(options.patience),
            recycle: Some(options.patience),
        })
        .build()
        .map_err(|error| ConnectError::Address(error.to_string()))?;
    Ok(Pool::new(server, pool, options.patience))
}

/// Told by a statement: a pooler that keeps sessions need not pass on what a connection asks for at its start.
///
/// A session whose client is gone ends soon, also while it waits for a lock: whoever asks again and again for
/// what is locked would fill the server with sessions otherwise.
fn prepare_session(patience: Duration) -> Hook {
    Hook::async_fn(move |client, _| {
        Box::pin(async move {
            let prepared = join(
                client.batch_execute(PLANNING),
                client.batch_execute("set client_connection_check_interval = '2s'"),
            );
            // The pool bounds how long connecting takes, but not this.
            let (planning, _watched) = tokio::time::timeout(patience, prepared)
                .await
                .map_err(|_| HookError::message("a new connection does not answer"))?;
            // Servers on some systems cannot watch.
            planning.map_err(HookError::Backend)
        })
    })
}

/// The name of a schema, which needs no quotes.
#[derive(Debug, Clone)]
pub(crate) struct Schema(String);

/// The server's words that name nothing without quotes: the reserved ones, and those that are names of
/// functions and types at most.
const WORDS: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "binary",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "not",
    "notnull",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "placing",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "session_user",
    "similar",
    "some",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

/// What stands for the schema's name in the text of a statement.
const PLACE: &str = "{schema}";

impl Schema {
    pub(crate) fn parse(name: &str) -> Result<Self, ConnectError> {
        let is_name = !WORDS.contains(&name)
            && (1..=63).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            // The server's own.
            && !name.starts_with("pg_")
            && name != "information_schema";
        if is_name {
            Ok(Self(name.to_owned()))
        } else {
            Err(ConnectError::SchemaName(name.to_owned()))
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The statement with the name in its places.
    pub(crate) fn within(&self, text: &str) -> String {
        text.replace(PLACE, &self.0)
    }
}

/// The stores of an installation whose roles may each have a database of their own. The same store may stand for
/// several roles. They serve as many calls at once as the one with the fewest connections, for all of a worker's
/// calls may be to that one.
pub fn stores_of_roles(
    core: &Arc<PostgresStore>,
    activity: &Arc<PostgresStore>,
    queue: &Arc<PostgresStore>,
) -> Stores {
    let calls_max = core.calls_max.min(activity.calls_max).min(queue.calls_max);
    let (core, activity) = (core.stores(), activity.stores());
    let mut stores = queue.stores().with_calls_max(calls_max);
    stores.tenancy = core.tenancy;
    stores.outbox = core.outbox;
    stores.markers = core.markers;
    stores.events = activity.events;
    stores.liveness = activity.liveness;
    stores
}

impl PostgresStore {
    /// This store as every namespace's. They serve as many calls at once as it has connections.
    pub fn stores(self: &Arc<Self>) -> Stores {
        let stores = Stores::from_one(Arc::clone(self));
        stores.with_calls_max(self.calls_max)
    }

    /// Waits until other processes have been told of everything this store has committed, at most as long
    /// as its patience. For programs that end right after their work: dropping the store sends what is left
    /// only as long as the runtime lives.
    pub async fn hints_sent(&self) {
        // What is not told is found by polling.
        let _ = tokio::time::timeout(self.patience, self.courier.has_told()).await;
    }

    /// Hints the workers of the lanes, after the commit that gave them something to do.
    pub(crate) fn hint(&self, lanes: &BTreeSet<Lane>) {
        self.hints.hint(lanes);
        self.courier.tell(lanes);
    }

    pub(crate) fn listen(&self, lanes: &[Lane]) -> Subscription {
        if !self.is_polling_known.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "not listening for work of other processes, as wakeup = poll says; it is found by polling"
            );
        }
        let subscription = self.hints.subscribe(lanes);
        self.courier.listen();
        subscription
    }
}
