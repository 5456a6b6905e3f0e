//! A queue on a Postgres server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use leasehold::core::{StoreError, Stores};
use leasehold_postgres::{
    ConnectError, Examination, FenceView, Logins, MadeLogin, Options, PostgresStore, Role, Wakeup,
};

use super::{CREATION_PATIENCE, Step, TO_CREATE};
use crate::config::{PostgresConfig, Setting};
use crate::failure::Failure;

/// Where a queue is kept on servers: in one database, unless roles have theirs apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Postgres {
    /// That of the settings, with the roles that have none apart, and then the others. Every role is in one
    /// of them.
    places: Vec<Place>,
}

/// A database that holds the tables of some roles.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// As it was given: it may hold a password.
    address: String,
    /// Without the password and the options.
    shown: String,
    /// How many each of its pools may have.
    connections: usize,
    /// Whether the settings say so, and nothing else counts.
    is_bounded: bool,
    wakeup: Wakeup,
    schema: String,
    roles: Vec<Role>,
    /// The URLs of the logins that have one of their own.
    system: Option<String>,
    migration: Option<String>,
}

/// The databases of a queue, connected.
pub(crate) struct Opened {
    /// In the order of the places.
    pub(super) databases: Vec<Arc<PostgresStore>>,
    roles: Vec<Vec<Role>>,
}

impl Opened {
    /// Each role's stores from where its tables are.
    pub(super) fn stores(&self) -> Stores {
        let of = |role: Role| {
            let at = self.roles.iter().position(|roles| roles.contains(&role));
            &self.databases[at.unwrap_or_default()]
        };
        leasehold_postgres::stores_of_roles(of(Role::Core), of(Role::Activity), of(Role::Queue))
    }
}

impl Postgres {
    /// Reads the URL of a database that holds everything.
    pub(super) fn parse(url: &str) -> Result<Self, Failure> {
        Ok(Self {
            places: vec![Place::parse(url)?],
        })
    }

    /// The same, with what the settings say beside the URL.
    pub(super) fn with(self, config: &PostgresConfig) -> Result<Self, Failure> {
        let given = |url: &Setting<Option<String>>| url.value.clone();
        let mut places: Vec<Place> = self.places;
        if let Some(main) = places.first_mut() {
            main.roles.clear();
            main.system = given(&config.logins.system);
            main.migration = given(&config.logins.migration);
        }
        for role in Role::ALL {
            let apart = config.of(role);
            let Some(url) = &apart.database.value else {
                if let Some(main) = places.first_mut() {
                    main.roles.push(role);
                }
                continue;
            };
            let mut place = Place::parse(url)?;
            place.system = given(&apart.logins.system);
            place.migration = given(&apart.logins.migration);
            if let Some(known) = places.iter_mut().find(|known| known.is_where(&place)) {
                known.roles.push(role);
            } else {
                place.roles = vec![role];
                places.push(place);
            }
        }
        places.retain(|place| !place.roles.is_empty());
        for place in &mut places {
            place.schema.clone_from(&config.schema.value);
            place.wakeup = config.wakeup.value;
            if let Some(bound) = config.connections.value {
                place.connections = usize::try_from(bound).unwrap_or(usize::MAX);
                place.is_bounded = true;
            }
            for url in place.system.iter().chain(&place.migration) {
                Place::parse(url)?;
            }
        }
        Ok(Self { places })
    }

    /// The same, for workers that make so many calls at once. Any of them may be to any of the databases, but
    /// most are to the one of their items: with too few connections there they would lose their leases.
    pub(super) fn serving(mut self, calls: u32) -> Result<Self, Failure> {
        let wanted = usize::try_from(calls).unwrap_or(usize::MAX);
        for place in &mut self.places {
            if !place.is_bounded {
                place.connections = wanted
                    .saturating_add(CONNECTIONS_BESIDE)
                    .max(place.connections);
            }
        }
        let of_items = self
            .places
            .iter()
            .find(|one| one.roles.contains(&Role::Queue));
        match of_items.and_then(|place| place.too_few(calls)) {
            Some(failure) => Err(failure),
            None => Ok(self),
        }
    }

    /// The same with the tables in that schema.
    pub(super) fn within_schema(mut self, schema: &str) -> Result<Self, Failure> {
        for place in &mut self.places {
            schema.clone_into(&mut place.schema);
            // What is no name of a schema is refused before anything else is tried.
            place.script()?;
        }
        Ok(self)
    }

    /// The SQL of all migrations, for an empty database.
    pub(crate) fn script(&self) -> Result<String, Failure> {
        self.only()?.script()
    }

    /// The SQL of the migrations that the database does not have.
    pub(crate) async fn pending_script(&self) -> Result<String, Failure> {
        self.only()?.pending_script().await
    }

    /// The one database; a script is for one.
    fn only(&self) -> Result<&Place, Failure> {
        match self.places.as_slice() {
            [place] => Ok(place),
            _ => Err(Failure::usage("roles have databases of their own here")
                .because("a script is for one database, and each of them needs another")
                .remedy("run `leasehold migrate`, which migrates all of them")),
        }
    }

    /// How many connections each pool may have.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.places[0].connections
    }

    /// The databases, each with its roles.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Connects to what is there.
    pub(super) async fn open(&self) -> Result<Opened, Failure> {
        let mut databases = Vec::new();
        for place in &self.places {
            databases.push(place.open().await?);
        }
        Ok(self.opened(databases))
    }

    /// Connects, and creates the schema where there is none.
    pub(super) async fn open_or_create(&self) -> Result<Opened, Failure> {
        let mut databases = Vec::new();
        for place in &self.places {
            databases.push(place.open_or_create().await?);
        }
        Ok(self.opened(databases))
    }

    fn opened(&self, databases: Vec<Arc<PostgresStore>>) -> Opened {
        let roles = self.places.iter().map(|place| place.roles.clone());
        Opened {
            databases,
            roles: roles.collect(),
        }
    }

    /// Brings every schema to this build's version; answers what that took.
    pub(super) async fn migrate(&self) -> Result<Vec<u32>, Failure> {
        let before = self.steps().await?;
        for place in &self.places {
            place.migrate().await?;
        }
        let after = self.steps().await?;
        let is_new = |step: &&Step| step.applied_at.is_some() && !before.contains(step);
        Ok(after
            .iter()
            .filter(is_new)
            .map(|step| step.version)
            .collect())
    }

    /// The steps of all databases. One that several have counts as pending where one of them lacks it.
    pub(super) async fn steps(&self) -> Result<Vec<Step>, Failure> {
        let mut steps: Vec<Step> = Vec::new();
        for place in &self.places {
            for step in place.steps().await? {
                match steps.iter_mut().find(|known| known.version == step.version) {
                    Some(known) if step.applied_at.is_none() => *known = step,
                    Some(_) => {}
                    None => steps.push(step),
                }
            }
        }
        steps.sort_by_key(|step| step.version);
        Ok(steps)
    }

    /// Makes the logins in every database. Those of one name are one, where the databases share a server.
    pub(crate) async fn create_logins(&self, logins: &Logins) -> Result<Vec<MadeLogin>, Failure> {
        let mut made: Vec<MadeLogin> = Vec::new();
        for place in &self.places {
            for login in place.create_logins(logins).await? {
                let is_known = made
                    .iter()
                    .any(|known| known.name == login.name && !login.is_new);
                if !is_known {
                    made.push(login);
                }
            }
        }
        Ok(made)
    }
}

impl Place {
    /// Reads `postgres://USER:PASSWORD@HOST/DATABASE?…`. Nothing of it is repeated: where it is not as it
    /// should be, nobody can say which part of it is the password.
    fn parse(url: &str) -> Result<Self, Failure> {
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
            is_bounded: false,
            wakeup: Wakeup::default(),
            schema: Options::SCHEMA.to_owned(),
            roles: Role::ALL.to_vec(),
            system: None,
            migration: None,
        })
    }

    /// Whether the other is reached in the same way.
    fn is_where(&self, other: &Self) -> bool {
        (&self.address, &self.system, &self.migration)
            == (&other.address, &other.system, &other.migration)
    }

    /// How its schema is reached, by whichever login.
    fn options(&self) -> Options {
        Options::default()
            .with_connections(self.connections)
            .with_wakeup(self.wakeup)
            .with_schema(&self.schema)
            .with_roles(&self.roles)
    }

    /// How those who work connect; who migrates has no part in it.
    fn working(&self) -> Options {
        let options = self.options().without_migrating();
        match &self.system {
            Some(system) => options.with_system_login(system),
            None => options,
        }
    }

    /// Why its connections are too few for so many calls at once, if they are.
    fn too_few(&self, calls: u32) -> Option<Failure> {
        let serves = self.working().calls_max();
        if serves >= calls {
            return None;
        }
        let is_enough = |count: &usize| {
            let options = self.working().with_connections(*count);
            options.calls_max() >= calls
        };
        // One for each call, and one for telling others, are enough in any case.
        let most = usize::try_from(calls).map_or(usize::MAX, |calls| calls.saturating_add(1));
        let enough = (self.connections..most).find(is_enough).unwrap_or(most);
        let why = format!(
            "its workers make {calls} calls to the database at once, for which there are {serves} connections"
        );
        let remedy = format!(
            "set postgres.connections = {enough} or more, or leave it out; fewer lanes with a capacity of \
             their own take fewer, and so does worker.capacity = 1"
        );
        let what = format!("postgres.connections = {} is too few", self.connections);
        Some(Failure::usage(what).because(why).remedy(remedy))
    }

    /// How many connections a process has to it at most: those of its pools, and the one that listens.
    pub(crate) fn connections_max(&self) -> usize {
        let pools = 1 + usize::from(self.system.is_some());
        let listener = usize::from(self.wakeup == Wakeup::Listen);
        self.connections
            .saturating_mul(pools)
            .saturating_add(listener)
    }

    /// Whose rights migrations take.
    fn migrator(&self) -> &str {
        self.migration.as_ref().unwrap_or(&self.address)
    }

    /// Connects to what is there.
    async fn open(&self) -> Result<Arc<PostgresStore>, Failure> {
        match self.connect().await {
            Ok(store) => Ok(store),
            Err(error) => Err(self.refused_to_open(error).await),
        }
    }

    /// Connects, and creates the schema if there is none.
    async fn open_or_create(&self) -> Result<Arc<PostgresStore>, Failure> {
        let begun = SystemClock.elapsed();
        let mut before = None;
        loop {
            let error = match self.connect().await {
                Err(error @ ConnectError::Schema(_)) => error,
                opened => return opened.map_err(|error| self.refusal(error)),
            };
            let version = self.version().await?;
            if version == 0 {
                self.migrate().await?;
                continue;
            }
            // Somebody else, started at the same time, may be creating it just now.
            let is_moving = before.replace(version) != Some(version);
            if !is_moving || SystemClock.elapsed().since(begun) > CREATION_PATIENCE {
                return Err(self.refusal(error));
            }
            tokio::time::sleep(STEP_PATIENCE).await;
        }
    }

    /// The SQL of all migrations, for an empty database.
    fn script(&self) -> Result<String, Failure> {
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
    async fn pending_script(&self) -> Result<String, Failure> {
        let options = self.options();
        let script = leasehold_postgres::pending_script(self.migrator(), &options);
        self.look(script).await
    }

    /// By the logins that work.
    async fn connect(&self) -> Result<Arc<PostgresStore>, ConnectError> {
        leasehold_postgres::connect(&self.address, self.working()).await
    }

    async fn version(&self) -> Result<i32, Failure> {
        let options = self.options();
        let status = self.look(leasehold_postgres::status(&self.address, &options));
        Ok(status.await?.at)
    }

    async fn migrate(&self) -> Result<(), Failure> {
        let migrated = leasehold_postgres::migrate(self.migrator(), &self.options()).await;
        migrated.map(drop).map_err(|error| self.refusal(error))
    }

    async fn create_logins(&self, logins: &Logins) -> Result<Vec<MadeLogin>, Failure> {
        let options = self.options();
        let made = leasehold_postgres::create_logins(self.migrator(), &options, logins).await;
        made.map_err(|error| match error {
            ConnectError::Logins(reason) => {
                let (why, remedy) = reason.rsplit_once("; ").unwrap_or((&reason, ""));
                Failure::cannot_open(format!("the logins of {self} cannot be made"))
                    .because(why)
                    .remedy(remedy)
            }
            error => self.refusal(error),
        })
    }

    pub(crate) async fn steps(&self) -> Result<Vec<Step>, Failure> {
        let options = self.options();
        let all = self.look(leasehold_postgres::steps(&self.address, &options));
        let step = |one: leasehold_postgres::MigrationStep| Step {
            version: one.version.unsigned_abs(),
            name: one.name,
            applied_at: one.applied_at,
            is_later: one.is_later,
        };
        Ok(all.await?.into_iter().map(step).collect())
    }

    /// Looks at the server, by the runtime login.
    pub(crate) async fn examine(&self) -> Result<Examination, Failure> {
        self.look(leasehold_postgres::examine(&self.address)).await
    }

    /// Looks at the server by the system login, if there is one.
    pub(crate) async fn examine_by_system(&self) -> Result<Option<Examination>, Failure> {
        let Some(address) = &self.system else {
            return Ok(None);
        };
        let looked = self.look(leasehold_postgres::examine(address));
        looked.await.map(Some)
    }

    /// How many connections a process has at most by the login that claims: its pool, and the one that listens.
    pub(crate) fn connections_by_claiming(&self) -> usize {
        let listener = usize::from(self.wakeup == Wakeup::Listen);
        self.connections.saturating_add(listener)
    }

    /// How many connections a process has at most by the runtime login.
    pub(crate) fn connections_by_runtime(&self) -> usize {
        if self.system.is_some() {
            self.connections
        } else {
            self.connections_by_claiming()
        }
    }

    /// Looks whether the logins that work here are held by the fence between tenants: the runtime login, and
    /// the system login if there is one.
    pub(crate) async fn look_at_fence(&self) -> Result<Views, Failure> {
        let options = self.options();
        let runtime = self
            .look(leasehold_postgres::look_at_fence(&self.address, &options))
            .await?;
        let system = match &self.system {
            Some(address) => Some(
                self.look(leasehold_postgres::look_at_fence(address, &options))
                    .await?,
            ),
            None => None,
        };
        Ok(Views { runtime, system })
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

    /// As `refusal`, for a command that creates nothing.
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

/// The fence, with the eyes of those who work behind it.
#[derive(Debug)]
pub(crate) struct Views {
    pub(crate) runtime: FenceView,
    pub(crate) system: Option<FenceView>,
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, place) in self.places.iter().enumerate() {
            write!(f, "{}{place}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.places).finish()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.shown).finish()
    }
}

const GIVE_A_URL: &str = "give one such as postgres://USER:PASSWORD@HOST:5432/DATABASE";

/// Longer than any one step takes that creates a schema.
const STEP_PATIENCE: Duration = Duration::from_millis(500);

/// For what people look at while all workers are at it.
const CONNECTIONS_BESIDE: usize = 2;
