//! What every table, view and function of the schema is for, in one map.
//!
//! Its **role** says in which database it may stand: nothing that belongs to one role is joined, written in
//! one transaction, or tied by a foreign key with what belongs to another, so that each role may have a
//! database of its own. Its **scope** says whose its rows are, and so which rows the fences of
//! [`crate::fences`] show to whom. Beside them stands what each login may do, which is what its statements
//! need and no more.
//!
//! A test reads the server's catalogue and compares it with this map both ways.

/// A group of tables that stand in one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Orgs, who belongs to them and what they prove it by, and what lands with the writes of an application: outbox rows and markers.
    Core,
    /// What happened and who is there: events, audit entries, beats of workers.
    Activity,
    /// Work items, and the schedules that make them.
    Queue,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Core, Self::Activity, Self::Queue];

    /// As settings and people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Activity => "activity",
            Self::Queue => "queue",
        }
    }
}

/// Whose the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// An org's, which the column `org_id` names.
    Org,
    /// An org's, since each row is one: its own `id` names it.
    Identity,
    /// The installation's; no tenant's data are in it.
    System,
}

impl Scope {
    /// The column that says which org a row belongs to.
    pub const fn org_column(self) -> Option<&'static str> {
        match self {
            Self::Org => Some("org_id"),
            Self::Identity => Some("id"),
            Self::System => None,
        }
    }
}

/// What a login is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The work of tenants: it sees the rows of the orgs that its transaction names.
    Runtime,
    /// The methods that take no org: it sees every org's rows.
    System,
    /// Owns the functions by which others enqueue, and may do no more than they. Nobody connects as it.
    Enqueuer,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 3] = [Self::Runtime, Self::System, Self::Enqueuer];

    /// As the database records it and people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::System => "system",
            Self::Enqueuer => "enqueuer",
        }
    }

    pub(crate) const fn may_connect(self) -> bool {
        !matches!(self, Self::Enqueuer)
    }
}

/// A table or view, and what each login may do with it, in the words of a grant.
#[derive(Debug)]
pub struct Relation {
    /// Its name in the schema.
    pub name: &'static str,
    /// None: every database of ours has it.
    pub role: Option<Role>,
    /// Whose its rows are.
    pub scope: Scope,
    runtime: &'static str,
    system: &'static str,
    enqueuer: &'static str,
}

impl Relation {
    const fn new(name: &'static str, role: Option<Role>, scope: Scope) -> Self {
        Self {
            name,
            role,
            scope,
            runtime: "",
            system: "",
            enqueuer: "",
        }
    }

    const fn core(name: &'static str, scope: Scope) -> Self {
        Self::new(name, Some(Role::Core), scope)
    }

    const fn activity(name: &'static str, scope: Scope) -> Self {
        Self::new(name, Some(Role::Activity), scope)
    }

    const fn queue(name: &'static str, scope: Scope) -> Self {
        Self::new(name, Some(Role::Queue), scope)
    }

    const fn runtime(mut self, rights: &'static str) -> Self {
        self.runtime = rights;
        self
    }

    const fn system(mut self, rights: &'static str) -> Self {
        self.system = rights;
        self
    }

    const fn enqueuer(mut self, rights: &'static str) -> Self {
        self.enqueuer = rights;
        self
    }

    /// What a login of that purpose may do with it; empty where that is nothing.
    pub const fn rights(&self, purpose: Purpose) -> &'static str {
        match purpose {
            Purpose::Runtime => self.runtime,
            Purpose::System => self.system,
            Purpose::Enqueuer => self.enqueuer,
        }
    }
}

/// Every table. To lock rows takes the right to update them.
pub const TABLES: &[Relation] = &[
    Relation::new("migrations", None, Scope::System)
        .runtime("select")
        .system("select"),
    Relation::new("logins", None, Scope::System)
        .runtime("select")
        .system("select"),
    Relation::core("orgs", Scope::Identity)
        .runtime("select, insert, update")
        .system("select"),
    Relation::core("memberships", Scope::Org).runtime("select, insert, update, delete"),
    Relation::core("sessions", Scope::Org)
        .runtime("select, insert, delete")
        .system("select, update, delete"),
    Relation::core("socket_tickets", Scope::Org)
        .runtime("insert")
        .system("select, update, delete"),
    Relation::core("outbox", Scope::Org)
        .runtime("insert")
        .system("select, update, delete"),
    Relation::core("markers", Scope::Org)
        .runtime("select, insert, update")
        .system("select, update, delete"),
    Relation::activity("entries", Scope::Org).runtime("select, insert"),
    Relation::activity("entry_cursors", Scope::Org).runtime("select, insert, update"),
    Relation::activity("worker_beats", Scope::System).system("select, insert, update, delete"),
    Relation::queue("items", Scope::Org)
        .runtime("select, insert")
        .system("select, delete")
        .enqueuer("select, insert"),
    Relation::queue("ready", Scope::Org)
        .runtime("select, insert, delete")
        .system("select, update, delete")
        .enqueuer("insert"),
    Relation::queue("claims", Scope::Org)
        .runtime("select, update, delete")
        .system("select, insert, delete"),
    Relation::queue("tokens", Scope::System).system("select, insert, update, delete"),
    Relation::queue("ends", Scope::Org)
        .runtime("select, insert, update, delete")
        .system("select, insert, update, delete"),
    Relation::queue("troubles", Scope::Org)
        .runtime("select, insert, update")
        .system("select, delete"),
    Relation::queue("paused_lanes", Scope::System).system("select, insert, update, delete"),
    Relation::queue("schedules", Scope::Org)
        .runtime("select, insert, update, delete")
        .system("select"),
];

/// Every view. Each looks with the eyes of whoever asks, and so shows what the tables show them.
pub const VIEWS: &[Relation] = &[Relation::queue("work_items", Scope::Org)
    .runtime("select")
    .system("select")];

/// A function, and who may call it.
#[derive(Debug)]
pub struct Function {
    /// Its name; no two functions of ours share one.
    pub name: &'static str,
    /// None: every database of ours has it.
    pub role: Option<Role>,
    /// Who may call it.
    pub callers: &'static [Purpose],
    /// Whether it acts with the rights of the [`Purpose::Enqueuer`], whoever calls it.
    pub is_definer: bool,
}

impl Function {
    const fn new(name: &'static str, role: Option<Role>, callers: &'static [Purpose]) -> Self {
        Self {
            name,
            role,
            callers,
            is_definer: false,
        }
    }

    /// Serves the functions that enqueue.
    const fn serving(name: &'static str) -> Self {
        Self::new(name, Some(Role::Queue), &[Purpose::Enqueuer])
    }

    /// Acts with the enqueuer's rights, for those to whom an operator grants it.
    const fn definer(name: &'static str) -> Self {
        Self {
            is_definer: true,
            ..Self::new(name, Some(Role::Queue), &[])
        }
    }
}

/// Every function. None may be called by everybody, and a definer by nobody until it is granted: the fence does
/// not hold who calls one, which takes the org as an argument.
pub const FUNCTIONS: &[Function] = &[
    Function::new("clock", None, &Purpose::ALL),
    Function::new("named_orgs", None, &[Purpose::Runtime]),
    Function::definer("enqueue"),
    Function::definer("enqueue_many"),
    Function::serving("sha1"),
    Function::serving("key_of_text"),
    Function::serving("mint_id"),
    Function::serving("json_skeleton"),
    Function::serving("json_is_plain"),
    Function::serving("text_fault"),
    Function::serving("json_fault_within"),
    Function::serving("json_fault"),
    Function::serving("item_fault"),
    Function::serving("refuse"),
    Function::serving("read_items"),
    Function::serving("write_items"),
    Function::serving("enqueue_items"),
];
