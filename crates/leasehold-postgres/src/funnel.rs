//! The one way to the server. Whoever runs a statement says first what it may reach.
//!
//! - **Orgs**, by [`PostgresStore::of_org`] and [`PostgresStore::of_orgs`]: it runs by the runtime login, in a
//!   transaction in which the setting [`ORGS_SETTING`] names those orgs. The policies of the tables show the
//!   runtime login their rows and no others, so a statement without its tenant predicate finds nothing.
//! - **Everything**, by [`PostgresStore::tenantless`]: it runs by the system login. For the methods that take
//!   no org, and say why.
//!
//! With one login there is no second fence: everything runs by it, and no orgs are set.
//!
//! # Sessions
//!
//! Where hints are listened for, a connection is a session of the server's: statements are prepared in it by
//! name, and it is set up once. Where they are not, a pooler may be in between, which gives every transaction
//! another session: statements are unnamed, and what is to be set is set in each transaction.
//!
//! # One round trip
//!
//! A transaction around one statement is sent as three messages at once, each with an answer of its own:
//! `begin` with the settings, the statement, `commit`. If the statement fails, the server rolls back at
//! `commit`, and what is reported is the statement's error. A commit that is answered although the
//! transaction was rolled back needs an error before it, and the first one is the answer.
//!
//! # A future that is dropped
//!
//! leaves no transaction open. `tokio_postgres` puts a request into the connection's queue when its future is
//! polled first, without waiting for anything before; [`join3`] polls its futures in order, all of them in the
//! first poll. So either none of the three was queued or all are, and the connection's task sends what is
//! queued whether or not anybody waits for the answer. Whoever uses the connection next is queued behind the
//! commit. A [`Transaction`] that is dropped, at whatever point, has its rollback queued in the same way. So
//! connections need no cleaning when they come back to the pool.
//!
//! But a future is dropped mostly by somebody who has waited in vain, and who will ask again: on a connection
//! that has fallen silent without being closed, everything waits in vain from then on. So a connection that
//! was asked and has not answered is given up, like one whose answer says that the database is unavailable.
//! Its session ends as soon as the server notices, also one that waits for somebody's lock.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deadpool_postgres::{Object, StatementCache};
use futures_util::future::join3;
use leasehold_core::{OrgId, StoreError};
use tokio_postgres::{Client, Row};

use crate::error::{Answer, Fault};
use crate::server::Pool;
use crate::statement::{Params, Reply, Sessions};
use crate::store::PostgresStore;

/// Names the orgs of a transaction, for the policies: their ids, joined by commas. Where it was never set it
/// reads as null, and outside a transaction as null or as an empty text.
pub(crate) const ORGS_SETTING: &str = "leasehold.orgs";

/// Runs statements of the store's.
pub(crate) trait Statements: Sync {
    /// Runs one statement and answers all that came of it. `{schema}` in it stands for the schema's name.
    fn run(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Answer<Reply>> + Send;

    /// Runs one statement that looks beyond the orgs, as [`PostgresStore::tenantless`] does. It sees what has
    /// been committed, and of a transaction under way perhaps not what it has written.
    fn query_beyond(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Answer<Vec<Row>>> + Send;

    /// Runs one statement and answers its rows.
    fn query(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Answer<Vec<Row>>> + Send {
        async move { Ok(self.run(text, params).await?.rows) }
    }

    /// Runs one statement that answers at most one row.
    fn query_opt(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Answer<Option<Row>>> + Send {
        async move {
            let mut rows = self.run(text, params).await?.rows;
            match rows.len() {
                0 | 1 => Ok(rows.pop()),
                count => Err(Fault::damaged(format_args!(
                    "{count} rows where one is to be"
                ))),
            }
        }
    }

    /// Runs one statement and answers how many rows it wrote.
    fn execute(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Answer<u64>> + Send {
        async move { Ok(self.run(text, params).await?.count) }
    }
}

/// Who may connect.
pub(crate) struct Logins {
    pub(crate) runtime: Pool,
    /// None: the runtime login sees everything.
    pub(crate) system: Option<Pool>,
}

impl Logins {
    /// The one for what is about no org in particular.
    pub(crate) fn tenantless(&self) -> &Pool {
        self.system.as_ref().unwrap_or(&self.runtime)
    }
}

impl PostgresStore {
    /// Reaches one org.
    pub(crate) fn of_org(&self, org: OrgId) -> Access<'_> {
        self.of_orgs([org])
    }

    /// Reaches some orgs.
    pub(crate) fn of_orgs(&self, orgs: impl IntoIterator<Item = OrgId>) -> Access<'_> {
        let orgs = self.is_fenced().then(|| orgs.into_iter().collect());
        Access {
            store: self,
            pool: &self.logins.runtime,
            settings: self.settings(orgs.as_ref()),
        }
    }

    /// Reaches everything.
    pub(crate) fn tenantless(&self) -> Access<'_> {
        Access {
            store: self,
            pool: self.logins.tenantless(),
            settings: self.settings(None),
        }
    }

    /// What to set in each transaction. Where nothing is to be set, a lone statement needs none around it.
    fn settings(&self, orgs: Option<&BTreeSet<OrgId>>) -> Option<String> {
        let orgs = orgs.map(set_orgs);
        match self.sessions {
            Sessions::Own => orgs,
            Sessions::Shared => Some(orgs.map_or_else(
                || PLANNING_HERE.to_owned(),
                |orgs| format!("{PLANNING_HERE}; {orgs}"),
            )),
        }
    }

    /// Whether the database itself keeps the runtime's statements to the orgs that they are about: whether
    /// the store was given a system login.
    pub fn is_fenced(&self) -> bool {
        self.logins.system.is_some()
    }
}

/// How the server is to plan, so that no statement hangs on statistics, which are always old where rows come
/// and go: each of this store's looks its rows up by an index, one after the other, and is planned once.
/// Compiling takes the server longer than running any of them.
macro_rules! planning {
    ($set:literal) => {
        concat!(
            $set,
            " jit = off; ",
            $set,
            " enable_seqscan = off; ",
            $set,
            " enable_hashjoin = off; ",
            $set,
            " enable_mergejoin = off; ",
            $set,
            " plan_cache_mode = force_generic_plan"
        )
    };
}

/// For a session.
pub(crate) const PLANNING: &str = planning!("set");

/// Until the end of a transaction.
const PLANNING_HERE: &str = planning!("set local");

/// Ids are written in hexadecimal digits, so no quote can be among them.
fn set_orgs(orgs: &BTreeSet<OrgId>) -> String {
    let mut text = format!("set local {ORGS_SETTING} = '");
    for (place, org) in orgs.iter().enumerate() {
        let joint = if place == 0 { "" } else { "," };
        // Writing to a text cannot fail.
        let _ = write!(text, "{joint}{}", org.as_uuid());
    }
    text.push('\'');
    text
}

/// A way to the server, for statements that each are a transaction of their own.
pub(crate) struct Access<'s> {
    store: &'s PostgresStore,
    pool: &'s Pool,
    /// See [`PostgresStore::settings`].
    settings: Option<String>,
}

impl<'s> Access<'s> {
    /// A connection of the pool's, for several statements in a row or for a transaction.
    pub(crate) async fn connection(self) -> Answer<Connection<'s>> {
        let session = Session::of(self.pool).await?;
        Ok(Connection {
            access: self,
            session,
        })
    }
}

impl Statements for Access<'_> {
    async fn run(&self, text: &'static str, params: Params<'_>) -> Answer<Reply> {
        let session = Session::of(self.pool).await?;
        run_alone(self, &session, text, params).await
    }

    async fn query_beyond(&self, text: &'static str, params: Params<'_>) -> Answer<Vec<Row>> {
        self.store.tenantless().query(text, params).await
    }
}

/// A connection that reaches what it was asked for.
pub(crate) struct Connection<'s> {
    access: Access<'s>,
    session: Session<'s>,
}

impl Connection<'_> {
    /// Begins a transaction.
    pub(crate) async fn transaction(&mut self) -> Answer<Transaction<'_>> {
        let Session { client, fate } = &mut self.session;
        let cache = client.statement_cache.clone();
        let settings = &self.access.settings;
        let begin = async {
            // Of the client itself: the pool's would hide the client of the transaction.
            let client: &mut Client = client;
            let inner = client.transaction().await?;
            if let Some(settings) = settings {
                inner.batch_execute(settings).await?;
            }
            Ok::<_, tokio_postgres::Error>(inner)
        };
        let inner = fate.hears(begin).await?;
        Ok(Transaction {
            store: self.access.store,
            fate,
            inner,
            cache,
        })
    }
}

impl Statements for Connection<'_> {
    async fn run(&self, text: &'static str, params: Params<'_>) -> Answer<Reply> {
        run_alone(&self.access, &self.session, text, params).await
    }

    async fn query_beyond(&self, text: &'static str, params: Params<'_>) -> Answer<Vec<Row>> {
        beyond(self, self.access.store, text, params).await
    }
}

/// Several statements that become durable together. Rolled back when it is dropped. After an error there is
/// nothing to do with it but that.
pub(crate) struct Transaction<'c> {
    store: &'c PostgresStore,
    fate: &'c Fate<'c>,
    inner: tokio_postgres::Transaction<'c>,
    cache: Arc<StatementCache>,
}

impl Transaction<'_> {
    pub(crate) async fn commit(self) -> Answer<()> {
        self.fate.hears(self.inner.commit()).await
    }
}

impl Statements for Transaction<'_> {
    async fn run(&self, text: &'static str, params: Params<'_>) -> Answer<Reply> {
        let client = self.inner.client();
        let run = async {
            let text = self.store.texts.of(text);
            let ready = match self.store.sessions {
                Sessions::Own => text.named(client, &self.cache).await?,
                Sessions::Shared => text.unnamed(client).await?,
            };
            Ok::<_, Fault>(ready.run(client, params).await?)
        };
        self.fate.hears(run).await
    }

    async fn query_beyond(&self, text: &'static str, params: Params<'_>) -> Answer<Vec<Row>> {
        beyond(self, self.store, text, params).await
    }
}

/// Nobody who has a connection may wait for another of the same pool: all of them could.
async fn beyond(
    on: &impl Statements,
    store: &PostgresStore,
    text: &'static str,
    params: Params<'_>,
) -> Answer<Vec<Row>> {
    if store.is_fenced() {
        store.tenantless().query(text, params).await
    } else {
        on.query(text, params).await
    }
}

/// A connection of a pool's, and what becomes of it.
struct Session<'s> {
    client: Object,
    /// Dropped after the connection has gone back to its pool.
    fate: Fate<'s>,
}

impl<'s> Session<'s> {
    async fn of(pool: &'s Pool) -> Answer<Self> {
        let fate = Fate {
            pool,
            is_sealed: AtomicBool::new(false),
        };
        let client = fate.told(pool.get().await)?;
        Ok(Self { client, fate })
    }
}

/// What makes the database unavailable to one connection may be of that connection alone, such as one to a
/// server that has become a standby. After such an answer, or for want of any, it is given up with all others
/// that nobody uses, so that whoever asks again is connected anew.
struct Fate<'s> {
    pool: &'s Pool,
    is_sealed: AtomicBool,
}

impl Fate<'_> {
    /// What the connection answers. Until it does, it is one to be given up.
    async fn hears<T, E: Into<Fault>>(
        &self,
        asking: impl Future<Output = Result<T, E>>,
    ) -> Answer<T> {
        let was_sealed = self.is_sealed.swap(true, Ordering::Relaxed);
        let answer = asking.await;
        self.is_sealed.store(was_sealed, Ordering::Relaxed);
        self.told(answer)
    }

    fn told<T>(&self, answer: Result<T, impl Into<Fault>>) -> Answer<T> {
        answer.map_err(|error| {
            let fault = error.into();
            if matches!(fault.0, StoreError::Unavailable(_)) {
                self.is_sealed.store(true, Ordering::Relaxed);
            }
            fault
        })
    }
}

impl Drop for Fate<'_> {
    fn drop(&mut self) {
        if *self.is_sealed.get_mut() {
            self.pool.give_up_idle();
        }
    }
}

/// Runs a statement as a transaction of its own.
async fn run_alone(
    access: &Access<'_>,
    session: &Session<'_>,
    text: &'static str,
    params: Params<'_>,
) -> Answer<Reply> {
    let client: &Client = &session.client;
    let run = async {
        let text = access.store.texts.of(text);
        let ready = match access.store.sessions {
            Sessions::Own => text.named(client, &session.client.statement_cache).await?,
            Sessions::Shared => text.unnamed(client).await?,
        };
        let Some(settings) = &access.settings else {
            return Ok::<_, Fault>(ready.run(client, params).await?);
        };
        let begin = format!("begin; {settings}");
        let (begun, reply, committed) = join3(
            client.batch_execute(&begin),
            ready.run(client, params),
            client.batch_execute("commit"),
        )
        .await;
        begun?;
        let reply = reply?;
        committed?;
        Ok(reply)
    };
    session.fate.hears(run).await
}
