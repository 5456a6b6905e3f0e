//! One migration of a schema at a time.
//!
//! The lock is held by a transaction of a connection beside the one that migrates, which stays open until all
//! is done. So it needs no state of a session that a pooler would not keep, and it covers steps that are in
//! no transaction; whoever dies lets go of it.
//!
//! Whoever builds an index waits for all who look at the database at that moment. So nobody may look while
//! waiting for this lock or holding it: it is asked for again and again instead of being waited for, and by
//! plain text, because the parts of a longer exchange go on looking until the transaction ends.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{session, to_be_tried_again, unusable};
use crate::error::ConnectError;
use crate::server::Server;
use crate::store::Schema;

/// Between two questions: the first, doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time-outs that are set for all sessions of a server must not end this transaction, which only waits. One of
/// them is unknown to older servers.
const BEGIN: &str = "begin;
    set local statement_timeout = 0;
    set local idle_in_transaction_session_timeout = 0;
    select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'";

#[derive(Debug)]
pub(super) struct Lock {
    client: Client,
}

impl Lock {
    /// Waits so long for its turn.
    pub(super) async fn take(
        server: &Server,
        schema: &Schema,
        patience: Duration,
        turn: Duration,
    ) -> Result<Self, ConnectError> {
        let client = server.lone(patience).await?;
        let Ok(asked) = timeout(turn, ask_again(&client, schema)).await else {
            let holder = holder(&client, schema).await?;
            return Err(to_be_tried_again(format!(
                "the schema {} is being migrated by {holder}; wait until that is done, or end it, and run this \
                 again",
                schema.name()
            )));
        };
        asked?;
        Ok(Self { client })
    }

    /// Passes while the lock is certain to be held.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        if self.client.is_closed() {
            return Err(to_be_tried_again(
                "the connection that kept other migrations away was lost; run this again"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    pub(super) async fn release(self) -> Result<(), ConnectError> {
        self.client.batch_execute("commit").await.map_err(unusable)
    }
}

/// Asks until the lock is had, by the transaction that is open then.
async fn ask_again(client: &Client, schema: &Schema) -> Result<(), ConnectError> {
    let text = format!("{BEGIN}; select pg_try_advisory_xact_lock({})", key(schema));
    let mut pause = PAUSE;
    loop {
        let answer = client.simple_query(&text).await.map_err(unusable)?;
        let is_had = answer.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        if is_had == Some("t") {
            return Ok(());
        }
        client.batch_execute("rollback").await.map_err(unusable)?;
        sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// What migrations of one schema wait for.
pub(super) fn key(schema: &Schema) -> i64 {
    let digest = Sha256::digest(format!("leasehold migrates {}", schema.name()));
    let mut key = [0; size_of::<i64>()];
    key.copy_from_slice(&digest[..size_of::<i64>()]);
    i64::from_be_bytes(key)
}

/// Whoever holds the lock, for people.
async fn holder(client: &Client, schema: &Schema) -> Result<String, ConnectError> {
    let text = "
        select a.pid, a.application_name,
            coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::bigint
        from pg_locks l
        join pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1
            and l.database = (select oid from pg_database where datname = current_database())
            and (l.classid::bigint << 32) | l.objid::bigint = $1
        limit 1";
    let rows = client
        .query_typed(text, &[(&key(schema), Type::INT8)])
        .await;
    Ok(session(rows.map_err(unusable)?.first()))
}
