//! Looking at a server before a queue is trusted to it.

use jiff::Timestamp;

use crate::error::{ConnectError, Fault};
use crate::rows::Moment;
use crate::server::{Address, Server};

/// What a server is and how it is set, as far as the promises of a queue depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examination {
    /// As the server counts: 150004 is 15.4.
    pub version: i32,
    /// The same for people.
    pub version_name: String,
    /// What the server's clock said while it answered.
    pub now: Timestamp,
    /// Whether it takes no writes: a standby, or set to read only.
    pub is_read_only: bool,
    /// What a commit waits for in our sessions: `on`, `off`, `local` and others.
    pub synchronous_commit: String,
    /// Whether it makes sure that what it writes reaches the disk.
    pub fsync: bool,
    /// How many connections it takes from everybody but its administrators.
    pub connections_max: i64,
    /// How many there are, this one not counted.
    pub connections: i64,
    /// Who connects by the address.
    pub login: String,
    /// How many connections the server takes from this login, if it has a limit of its own.
    pub login_connections_max: Option<i64>,
    /// How many the login has, this one not counted.
    pub login_connections: i64,
}

/// Says whether an address can be read, without going there, and without looking at the files it names.
///
/// # Errors
/// [`ConnectError::Address`].
pub fn check_address(address: &str) -> Result<(), ConnectError> {
    Address::parse(address).map(drop)
}

/// Looks at the server. Needs no schema and no rights beyond those to connect, and writes nothing.
///
/// Dropping the future ends the look.
///
/// # Errors
/// [`ConnectError`].
pub async fn examine(address: &str) -> Result<Examination, ConnectError> {
    let server = Server::at(address)?;
    let connected = server.connect().await;
    let (client, connection) = connected.map_err(|error| server.told(&error))?;
    let carried = tokio::spawn(async move {
        // What broke it is told to whoever uses the client.
        let _ = connection.await;
    });
    let row = client.query_typed_one(LOOK, &[]).await;
    drop(client);
    carried.abort();
    let row = row.map_err(unusable)?;
    Ok(Examination {
        version: row.get(0),
        version_name: row.get(1),
        now: row.get::<_, Moment>(2).0,
        is_read_only: row.get(3),
        synchronous_commit: row.get(4),
        fsync: row.get(5),
        connections_max: row.get(6),
        connections: row.get(7),
        login: row.get(8),
        login_connections_max: row.get(9),
        login_connections: row.get(10),
    })
}

/// The numbers of connections that anybody may see are those of the databases.
const LOOK: &str = "
    select current_setting('server_version_num')::integer,
        current_setting('server_version'),
        clock_timestamp(),
        pg_is_in_recovery() or current_setting('transaction_read_only')::boolean,
        current_setting('synchronous_commit'),
        current_setting('fsync')::boolean,
        current_setting('max_connections')::bigint
            - current_setting('superuser_reserved_connections')::bigint,
        (select greatest(sum(numbackends) - 1, 0)::bigint from pg_stat_database),
        current_user::text,
        (select rolconnlimit::bigint from pg_roles
         where rolname = session_user and rolconnlimit >= 0 and not rolsuper),
        (select greatest(count(*) - 1, 0) from pg_stat_activity where usename = session_user)";

fn unusable(error: tokio_postgres::Error) -> ConnectError {
    ConnectError::Unusable(Fault::from(error).0)
}
