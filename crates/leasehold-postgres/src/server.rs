//! The server: where it is, how a connection to it is made and protected, and what is said of one that
//! cannot be made.

use std::fmt;
use std::time::Duration;

use leasehold_core::StoreError;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, SimpleQueryMessage, Socket};

use crate::error::{ConnectError, Fault};
use crate::options::Options;

mod address;
mod pool;
mod refusal;
mod tls;

pub(crate) use address::Address;
use address::Mode;
pub(crate) use pool::Pool;

/// The port of a server that is not given one.
const PORT: u16 = 5432;

/// The oldest PostgreSQL that everything is tested against, as servers count: 150004 is 15.4.
pub const VERSION_MIN: i32 = 150_000;

/// What texts are encoded as here and in a payload. A database of another encoding takes some that it cannot
/// hand out again, and the claim that meets one answers nothing.
const ENCODING: &str = "UTF8";

/// Opens a session beside a store's, connected and encrypted as those are, for statements of the caller's own. It
/// ends when its client is dropped.
///
/// Dropping the future ends the attempt.
///
/// # Errors
/// [`ConnectError`].
pub async fn session(address: &str, options: &Options) -> Result<Client, ConnectError> {
    Server::at(address)?.lone(options.patience).await
}

/// A server that connections can be made to. Cheap to clone. May hold a password, and shows none.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    cipher: tls::Cipher,
    /// The other way to try when the first is refused for what it is.
    other: Option<SslMode>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.places()).finish()
    }
}

/// A connection before it is put to work, and its client.
pub(crate) type Connected = (Client, Connection<Socket, tls::Stream>);

impl Server {
    /// Reads the address, and the certificates it names. Goes nowhere.
    pub(crate) fn at(address: &str) -> Result<Self, ConnectError> {
        let Address { config, tls } = Address::parse(address)?;
        let other = match tls.mode {
            Mode::Allow => Some(SslMode::Require),
            Mode::Prefer => Some(SslMode::Disable),
            Mode::Disable | Mode::Require | Mode::VerifyCa | Mode::VerifyFull => None,
        };
        Ok(Self {
            config,
            cipher: tls::cipher(&tls)?,
            other,
        })
    }

    /// The same server, with connections whose name for people ends in the word.
    pub(crate) fn with_role(mut self, word: &str) -> Self {
        let name = self.config.get_application_name().unwrap_or_default();
        let name = format!("{name} {word}");
        self.config.application_name(name.trim_start());
        self
    }

    /// What a pool wants to be told of the server, whose connections are made by [`Server::connect`].
    pub(crate) fn config(&self) -> Config {
        self.config.clone()
    }

    /// Makes a connection. Where it may be encrypted but need not be, what the server refuses in one way is
    /// tried in the other.
    pub(crate) async fn connect(&self) -> Result<Connected, tokio_postgres::Error> {
        // Boxed, as the one below: the handshake's state is large, and few connections are made.
        let connecting = self.config.connect(self.cipher.clone());
        let error = match Box::pin(connecting).await {
            Err(error) => error,
            connected => return connected,
        };
        let Some(other) = self.other.filter(|_| is_of_the_way(&error)) else {
            return Err(error);
        };
        let mut config = self.config.clone();
        config.ssl_mode(other);
        // What was wished first is what is told of.
        let connecting = config.connect(self.cipher.clone());
        Box::pin(connecting).await.map_err(|_| error)
    }

    /// A connection of its own to a server that is new enough, which ends with its client.
    pub(crate) async fn lone(&self, patience: Duration) -> Result<Client, ConnectError> {
        let connecting = async {
            let (client, connection) = self.connect().await.map_err(|error| self.told(&error))?;
            tokio::spawn(async move {
                // What broke it is told to whoever uses the client.
                let _ = connection.await;
            });
            self.refuse_unfit(&client).await?;
            Ok(client)
        };
        self.in_time(patience, connecting).await
    }

    /// Refuses a server that is older than what is tested, and a database that cannot hold every text.
    pub(crate) async fn refuse_unfit(&self, client: &Client) -> Result<(), ConnectError> {
        // By no statement that has a name: there may be a pooler in between.
        let asked = "select current_setting('server_version_num'), getdatabaseencoding()";
        let answer = client.simple_query(asked).await;
        let answer = answer.map_err(|error| ConnectError::Unusable(Fault::from(error).0))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let told = |column: usize| row.and_then(|row| row.try_get(column).ok().flatten());
        let refused = |what: String| Err(ConnectError::Unusable(StoreError::Unavailable(what)));
        match told(0).and_then(|version| version.parse::<i32>().ok()) {
            Some(version) if version < VERSION_MIN => {
                return refused(format!(
                    "the server at {} is PostgreSQL {}, and {} is the oldest that is tested; upgrade the \
                     server",
                    self.places(),
                    version / 10_000,
                    VERSION_MIN / 10_000
                ));
            }
            _ => {}
        }
        match told(1) {
            Some(encoding) if encoding != ENCODING => refused(format!(
                "the encoding of the database at {} is {encoding}, which cannot hold every payload; make \
                 one with the encoding {ENCODING} (create database … encoding 'UTF8' template template0)",
                self.places()
            )),
            _ => Ok(()),
        }
    }

    /// Waits for an answer of the server, so long at most.
    pub(crate) async fn in_time<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        match timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(ConnectError::Unusable(self.silent(patience))),
        }
    }

    /// What is said of a connection that could not be made.
    pub(crate) fn told(&self, error: &tokio_postgres::Error) -> ConnectError {
        ConnectError::Unusable(self.unavailable(error))
    }

    pub(crate) fn unavailable(&self, error: &tokio_postgres::Error) -> StoreError {
        StoreError::Unavailable(refusal::words(self, error))
    }

    fn silent(&self, patience: Duration) -> StoreError {
        StoreError::Unavailable(format!(
            "{} did not answer within {}; check that the host is up, and that no firewall is in between",
            self.places(),
            seconds(patience)
        ))
    }

    /// Where it is, for people: `db:5432`, or several, or a socket's file.
    fn places(&self) -> String {
        let ports = self.config.get_ports();
        let hosts = self.config.get_hosts().iter().enumerate();
        let places = hosts.map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(folder) => folder
                    .join(format!(".s.PGSQL.{port}"))
                    .display()
                    .to_string(),
            }
        });
        places.collect::<Vec<_>>().join(", ")
    }
}

/// Whether it is for how the connection was made, encrypted or not, that it was refused.
fn is_of_the_way(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
        || refusal::is_of_tls(error)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}
