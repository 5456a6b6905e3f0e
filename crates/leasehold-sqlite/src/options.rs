//! How a file is opened.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Clock;

/// What survives a power cut. A crash of the process, even by SIGKILL, loses nothing in either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Every commit is on the disk before it is answered.
    #[default]
    Full,
    /// Commits reach the disk some time after they are answered. A power cut or a crash of the
    /// operating system may undo the last of them: enqueued items may vanish, and finished items may
    /// run again. The file is never damaged by it.
    Normal,
}

/// How a file is opened. Start from [`Options::new`] and change what differs.
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) durability: Durability,
    pub(crate) busy_timeout: Duration,
    pub(crate) readers: usize,
    pub(crate) creates: bool,
    pub(crate) migrates: bool,
}

impl Options {
    /// Two serve a dashboard and a sweep beside each other; more only pay where lists are long.
    const READERS: usize = 2;

    /// Longer than any transaction of ours, the first migration of a large file included.
    const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// SQLite counts in a small number of milliseconds; nobody means more than this.
    const BUSY_TIMEOUT_MAX: Duration = Duration::from_hours(1);

    /// Durable, created and migrated as needed. `clock` is what the store takes its now from.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            durability: Durability::default(),
            busy_timeout: Self::BUSY_TIMEOUT,
            readers: Self::READERS,
            creates: true,
            migrates: true,
        }
    }

    /// What survives a power cut.
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// How long a call waits for other processes' transactions before it answers
    /// [`leasehold_core::StoreError::Retry`]. Whole milliseconds count, up to an hour.
    pub fn with_busy_timeout(self, busy_timeout: Duration) -> Self {
        Self {
            busy_timeout: busy_timeout.min(Self::BUSY_TIMEOUT_MAX),
            ..self
        }
    }

    /// How many threads serve what only reads; at least one.
    pub fn with_readers(self, readers: usize) -> Self {
        Self {
            readers: readers.max(1),
            ..self
        }
    }

    /// Refuses a file that is not there, instead of creating it.
    pub fn without_creating(self) -> Self {
        Self {
            creates: false,
            ..self
        }
    }

    /// Refuses a file whose schema is older than this build's, instead of migrating it.
    pub fn without_migrating(self) -> Self {
        Self {
            migrates: false,
            ..self
        }
    }
}
