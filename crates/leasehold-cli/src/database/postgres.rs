//! A queue on a Postgres server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use leasehold::core::StoreError;
use leasehold_postgres::{ConnectError, Examination, Options, PostgresStore};

use super::{CREATION_PATIENCE, Step, TO_CREATE};
use crate::failure::Failure;

/// The database of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Postgres {
    /// As it was given: it may hold a password.
    address: String,
    /// Without the password and the options.
    shown: String,
    /// How many its pool may have.
    pub(super) connections: usize,
    /// Where the tables are.
    schema: String,
}

impl Postgres {
    /// Reads `postgres://USER:PASSWORD@HOST/DATABASE?…`. Nothing of it is repeated: where it is not as it
    /// should be, nobody can say which part of it is the password.
    pub(super) fn parse(url: &str) -> Result<Self, Failure> {
        let refused = |why: &dyn fmt::Display| {
            Failure::usage("the database's URL cannot be read")
                .because(why)
                .remedy(GIVE_A_URL)
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            let scheme = super::scheme_of(url).unwrap_or_default();
            refused(&format!("{scheme}: is not followed by //"))
        })?;
        let (credentials, place) = rest.split_once('@').unwrap_or(("", rest));
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (credentials, None),
        };
        if place.contains('@') || user.contains(['/', '?']) {
            let why = "it has an @, / or ? where none can be; in names and passwords they are written \
                       %40, %2F and %3F";
            return Err(refused(&why));
        }
        let (place, options) = place.split_once('?').unwrap_or((place, ""));
        let host = place.split('/').next().unwrap_or_default();
        let names_host =
            |option: &str| option.starts_with("host=") || option.starts_with("hostaddr=");
        if host.is_empty() && !options.split('&').any(names_host) {
            let why = "it names no host; the folder of a local socket is written \
                       %2Fvar%2Frun%2Fpostgresql";
            return Err(refused(&why));
        }
        if let Err(error) = leasehold_postgres::check_address(url) {
            // An option that is not known may be what came behind an & in a password.
            let is_discreet = password.is_none() && super::find_password(options).is_none();
            return Err(match error {
                ConnectError::Address(why) if is_discreet => refused(&why),
                _ => refused(&"a part of it, or an option, is not one that is known"),
            });
        }
        let at = if user.is_empty() { "" } else { "@" };
        Ok(Self {
            shown: format!("{scheme}://{user}{at}{place}"),
            address: url.to_owned(),
            connections: Options::CONNECTIONS,
            schema: Options::SCHEMA.to_owned(),
        })
    }

    /// The same, for workers that make so many calls at once.
    pub(super) fn serving(mut self, calls: u32) -> Self {
        let calls = usize::try_from(calls).unwrap_or(usize::MAX);
        self.connections = calls
            .saturating_add(CONNECTIONS_BESIDE)
            .max(self.connections);
        self
    }

    /// Connects to what is there.
    pub(super) async fn open(&self) -> Result<Arc<PostgresStore>, Failure> {
        match self.connect(self.options().without_migrating()).await {
            Ok(store) => Ok(store),
            Err(error) => Err(self.refused_to_open(error).await),
        }
    }

    /// Connects, and creates the schema if there is none.
    pub(super) async fn open_or_create(&self) -> Result<Arc<PostgresStore>, Failure> {
        let begun = SystemClock.elapsed();
        let mut before = None;
        loop {
            let error = match self.connect(self.options().without_migrating()).await {
                Err(error @ ConnectError::Schema(_)) => error,
                opened => return opened.map_err(|error| self.refusal(error)),
            };
            let version = self.version().await?;
            if version == 0 {
                let created = self.connect(self.options()).await;
                return created.map_err(|error| self.refusal(error));
            }
            // Somebody else, started at the same time, may be creating it just now.
            let is_moving = before.replace(version) != Some(version);
            if !is_moving || SystemClock.elapsed().since(begun) > CREATION_PATIENCE {
                return Err(self.refusal(error));
            }
            tokio::time::sleep(STEP_PATIENCE).await;
        }
    }

    fn options(&self) -> Options {
        Options::default()
            .with_schema(&self.schema)
            .with_connections(self.connections)
    }

    /// The same database with its tables in that schema.
    pub(super) fn within_schema(self, schema: &str) -> Result<Self, Failure> {
        let server = Self {
            schema: schema.to_owned(),
            ..self
        };
        // What is no name of a schema is refused before anything else is tried.
        server.script()?;
        Ok(server)
    }

    /// The SQL of all migrations, for an empty database.
    pub(crate) fn script(&self) -> Result<String, Failure> {
        let script = leasehold_postgres::script(&self.options());
        script.map_err(|error| match error {
            ConnectError::SchemaName(_) => {
                let words = error.to_string();
                let (why, remedy) = words.split_once("; ").unwrap_or((&words, "give another"));
                Failure::usage("the schema's name is not acceptable")
                    .because(why)
                    .remedy(remedy)
            }
            other => self.refusal(other),
        })
    }

    /// The SQL of the migrations that the database does not have.
    pub(crate) async fn pending_script(&self) -> Result<String, Failure> {
        let options = self.options();
        let script = leasehold_postgres::pending_script(&self.address, &options);
        self.look(script).await
    }

    async fn connect(&self, options: Options) -> Result<Arc<PostgresStore>, ConnectError> {
        leasehold_postgres::connect(&self.address, options).await
    }

    async fn version(&self) -> Result<i32, Failure> {
        let options = self.options();
        let status = self.look(leasehold_postgres::status(&self.address, &options));
        Ok(status.await?.at)
    }

    /// Brings the schema to this build's version; answers what that took.
    pub(super) async fn migrate(&self) -> Result<Vec<u32>, Failure> {
        let before = self.version().await?;
        let after = leasehold_postgres::migrate(&self.address, &self.options()).await;
        let after = after.map_err(|error| self.refusal(error))?.at;
        Ok((before + 1..=after)
            .filter_map(|version| version.try_into().ok())
            .collect())
    }

    pub(super) async fn steps(&self) -> Result<Vec<Step>, Failure> {
        let options = self.options();
        let all = self.look(leasehold_postgres::steps(&self.address, &options));
        let step = |one: leasehold_postgres::MigrationStep| Step {
            version: one.version.unsigned_abs(),
            name: one.name,
            applied_at: one.applied_at,
        };
        Ok(all.await?.into_iter().map(step).collect())
    }

    /// Looks at the server.
    pub(crate) async fn examine(&self) -> Result<Examination, Failure> {
        self.look(leasehold_postgres::examine(&self.address)).await
    }

    /// Waits for something that only reads, and so may be given up.
    async fn look<T>(
        &self,
        looking: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(Options::PATIENCE, looking).await {
            Ok(looked) => looked.map_err(|error| self.refusal(error)),
            Err(_) => Err(self.unusable(&format!(
                "it did not answer within {} s",
                Options::PATIENCE.as_secs()
            ))),
        }
    }

    /// As [`Postgres::refusal`], for a command that creates nothing.
    async fn refused_to_open(&self, error: ConnectError) -> Failure {
        if matches!(error, ConnectError::Schema(_)) && matches!(self.version().await, Ok(0)) {
            return Failure::cannot_open(format!("there is no queue in the database at {self}"))
                .because("this command works on what is there, so it creates none")
                .remedy(TO_CREATE);
        }
        self.refusal(error)
    }

    /// What stood in the way, in our three lines.
    fn refusal(&self, error: ConnectError) -> Failure {
        match error {
            ConnectError::Schema(reason) => super::unfit(self, &reason),
            ConnectError::Unusable(
                StoreError::Unavailable(why) | StoreError::Failed(why) | StoreError::Retry(why),
            )
            | ConnectError::Certificate(why) => self.unusable(&why),
            other => self.unusable(&other.to_string()),
        }
    }

    /// The store says in one sentence why, and what to do.
    fn unusable(&self, words: &str) -> Failure {
        let (why, remedy) = words.split_once("; ").unwrap_or((
            words,
            "check that the server runs, that the address is right, and that its user may connect",
        ));
        Failure::cannot_open(format!("the database at {self} cannot be used"))
            .because(why)
            .remedy(remedy)
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.shown).finish()
    }
}

const GIVE_A_URL: &str = "give one such as postgres://USER:PASSWORD@HOST:5432/DATABASE";

/// Longer than any one step takes that creates a schema.
const STEP_PATIENCE: Duration = Duration::from_millis(500);

/// For what people look at while all workers are at it.
const CONNECTIONS_BESIDE: usize = 2;

/// How many connections a process takes with one worker: those of its pool, and the one that listens.
pub(crate) const CONNECTIONS: usize = Options::CONNECTIONS + 1;
