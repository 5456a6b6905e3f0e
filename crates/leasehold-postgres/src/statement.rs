//! A statement in the schema of a store, and the two ways to send one.
//!
//! **Named**, where a connection is a session of the server's: prepared once for each connection, and then
//! asked for by its name, so that the server parses and plans it a few times and not at every call.
//!
//! **Unnamed**, where a pooler may give every transaction another session: parsed, bound and executed by one
//! message, which needs the types of the parameters. The server says them once for each statement of a store:
//! the statement is prepared by SQL, looked up and deallocated in one message, so that no session keeps
//! anything of it, whoever waits for the answer or gives up.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};

use deadpool_postgres::StatementCache;
use futures_util::TryStreamExt as _;
use tokio::sync::OnceCell;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement};

use crate::error::{Answer, Fault};
use crate::store::Schema;

/// What a statement is given.
pub(crate) type Params<'p> = &'p [&'p (dyn ToSql + Sync)];

/// What came of a statement.
pub(crate) struct Reply {
    pub(crate) rows: Vec<Row>,
    /// How many rows it wrote, or answered.
    pub(crate) count: u64,
}

/// Whether a connection can be relied on to be one session of the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// It is, and keeps what is prepared and set in it.
    Own,
    /// There may be a pooler in between: nothing is kept from one transaction to the next, nor left behind.
    Shared,
}

/// Statements with the schema's name in them, by where their text is in this program.
pub(crate) struct Texts {
    schema: Schema,
    known: RwLock<HashMap<usize, Arc<Text>>>,
}

impl Texts {
    pub(crate) fn within(schema: Schema) -> Self {
        Self {
            schema,
            known: RwLock::default(),
        }
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The statement, with `{schema}` replaced by the schema's name.
    pub(crate) fn of(&self, text: &'static str) -> Arc<Text> {
        let place = text.as_ptr() as usize;
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&place) {
            return known.clone();
        }
        drop(known);
        let text = Arc::new(Text {
            sql: self.schema.within(text),
            types: OnceCell::new(),
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(place).or_insert(text).clone()
    }
}

/// One statement in its schema.
pub(crate) struct Text {
    sql: String,
    /// The types of its parameters, once they were asked for.
    types: OnceCell<Vec<Type>>,
}

impl Text {
    /// Whatever has to be known before it can be sent by this connection.
    pub(crate) async fn named(&self, client: &Client, cache: &StatementCache) -> Answer<Ready<'_>> {
        Ok(Ready::Named(cache.prepare(client, &self.sql).await?))
    }

    /// Whatever has to be known before it can be sent by any connection.
    pub(crate) async fn unnamed(&self, client: &Client) -> Answer<Ready<'_>> {
        let types = self.types.get_or_try_init(|| learn(client, &self.sql));
        Ok(Ready::Unnamed {
            sql: &self.sql,
            types: types.await?,
        })
    }
}

/// The name that a statement has while its types are looked up.
const PROBE: &str = "leasehold_probe";

async fn learn(client: &Client, sql: &str) -> Answer<Vec<Type>> {
    // On a line of its own, since the statement may end with a comment.
    let text = format!(
        "prepare {PROBE} as {sql}
         ; select parameter_types::oid[]::text from pg_catalog.pg_prepared_statements
         where name = '{PROBE}'
         ; deallocate {PROBE}"
    );
    let messages = client.simple_query(&text).await?;
    let types = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let types = types.unwrap_or_default().trim_matches(['{', '}']);
    let oids = types.split(',').filter(|oid| !oid.is_empty());
    let known = oids.map(|oid| oid.parse().ok().and_then(Type::from_oid));
    let known: Option<Vec<Type>> = known.collect();
    // Every parameter of a statement here is of a type that each server has.
    known.ok_or_else(|| Fault::damaged(format_args!("a parameter's type is among {types}")))
}

/// A statement that can be sent at once.
pub(crate) enum Ready<'t> {
    Named(Statement),
    Unnamed { sql: &'t str, types: &'t [Type] },
}

impl Ready<'_> {
    /// Sends it when it is polled first, and answers what came of it.
    pub(crate) async fn run(
        &self,
        client: &Client,
        params: Params<'_>,
    ) -> Result<Reply, tokio_postgres::Error> {
        let params = params.iter().copied();
        let stream = match self {
            Self::Named(statement) => client.query_raw(statement, params).await?,
            Self::Unnamed { sql, types } => {
                let typed = params.zip(types.iter().cloned());
                client.query_typed_raw(sql, typed).await?
            }
        };
        let mut stream = pin!(stream);
        let mut rows = Vec::new();
        while let Some(row) = stream.try_next().await? {
            rows.push(row);
        }
        let count = stream.rows_affected().unwrap_or_default();
        Ok(Reply { rows, count })
    }
}
