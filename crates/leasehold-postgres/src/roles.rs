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
    /// Orgs and memberships, and what lands with the writes of an application: outbox rows and markers.
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
