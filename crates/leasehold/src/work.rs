//! Typed work: a payload type that names its kind.

use std::time::Duration;

use leasehold_core::rules::RetryPolicy;
use leasehold_core::{Kind, Lane, NameError, NewItem};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A payload type and the kind it stands for.
///
/// The kind is the name that is stored, so it is written out and never derived from the type's path:
/// renaming the type orphans no row. A stored payload only gains optional, defaulted fields.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct Welcome {
///     user_id: i64,
/// }
///
/// impl leasehold::Work for Welcome {
///     const KIND: &'static str = "WELCOME_EMAIL";
/// }
/// ```
pub trait Work: Serialize + DeserializeOwned + Send + 'static {
    /// The stored name: `UPPER_SNAKE`.
    const KIND: &'static str;
    /// Where it is enqueued unless the caller says otherwise.
    const LANE: &'static str = "default";
    /// Lower goes first.
    const PRIORITY: i16 = 0;
    /// Claims an item may have before it is a dead letter.
    const MAX_ATTEMPTS: u32 = NewItem::MAX_ATTEMPTS;
    /// How long one run may take; `None` leaves it to the lease.
    const TIME_LIMIT: Option<Duration> = None;

    /// Delays after failures.
    fn retry() -> RetryPolicy {
        RetryPolicy::default()
    }
}

/// The kind of a payload type.
pub(crate) fn kind_of<W: Work>() -> Result<Kind, NameError> {
    Kind::parse(W::KIND)
}

/// The lane of a payload type.
pub(crate) fn lane_of<W: Work>() -> Result<Lane, NameError> {
    Lane::parse(W::LANE)
}
