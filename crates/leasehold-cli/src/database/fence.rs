//! Whether tenants are fenced by the database, in words for people.

use leasehold_postgres::{FenceView, Purpose};

use super::postgres::Views;

/// How it stands with the fence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is up.
    Up(String),
    /// It is down: statements keep tenants apart, and nothing stands behind them.
    Down { what: String, remedy: String },
    /// It is up, and a login that works here sees nothing of what it is to work on.
    InTheWay { what: String, remedy: String },
}

/// How to raise it.
const RAISE: &str = "`leasehold migrate --create-roles` makes a login for each purpose; then name the \
                     runtime login in `database` and the system login in `postgres.system_login`";

/// Where to name them.
const NAME: &str = "name the runtime login that `leasehold migrate --create-roles` told in `database`, and \
                    the system login in `postgres.system_login`";

impl Verdict {
    pub(crate) fn of(views: &Views) -> Self {
        let Views { runtime, system } = views;
        if !runtime.is_raised {
            let what = format!(
                "tenants are kept apart by statements alone: {} sees the rows of all",
                runtime.login
            );
            return Self::down(what, RAISE);
        }
        if let Some(why) = passes(runtime) {
            let what = format!(
                "the fence between tenants does not hold {}: it {why}",
                runtime.login
            );
            return Self::down(what, NAME);
        }
        if runtime.purpose != Some(Purpose::Runtime) {
            return Self::in_the_way(format!(
                "tenants are fenced, and {} is not the login that was made for their work",
                runtime.login
            ));
        }
        let Some(system) = system else {
            return Self::in_the_way(format!(
                "tenants are fenced, and {} alone can neither claim nor sweep: there is no system login",
                runtime.login
            ));
        };
        if passes(system).is_none() && system.purpose != Some(Purpose::System) {
            return Self::in_the_way(format!(
                "tenants are fenced, and {} is not the system login that was made",
                system.login
            ));
        }
        if !runtime.open_tables.is_empty() {
            let what = format!(
                "the fence between tenants has holes: {}",
                runtime.open_tables.join(", ")
            );
            return Self::down(
                what,
                "run `leasehold migrate --create-roles` again, which closes them",
            );
        }
        Self::Up(format!(
            "tenants are fenced by the database: {} sees the orgs that it names, {} all of them",
            runtime.login, system.login
        ))
    }

    fn down(what: String, remedy: &str) -> Self {
        let remedy = remedy.to_owned();
        Self::Down { what, remedy }
    }

    fn in_the_way(what: String) -> Self {
        let remedy = NAME.to_owned();
        Self::InTheWay { what, remedy }
    }
}

/// Why no policy holds the login, if none does.
const fn passes(view: &FenceView) -> Option<&'static str> {
    if view.bypasses {
        Some("is a superuser, or may bypass row-level security")
    } else if view.owns {
        Some("owns the tables")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
