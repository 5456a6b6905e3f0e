//! The promises about idempotency markers: one request, one effect, whatever is sent twice.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreResult;
use crate::ids::{OrgId, UserId};

/// Markers of requests that create something. Each call is one conditional write.
#[async_trait]
pub trait MarkerStore: Send + Sync + Debug {
    /// Enters: writes a pending marker under the attempt, unless one is there.
    ///
    /// Owed, in one transaction: an absent or released marker is taken, and so is a pending one whose
    /// attempt began more than `lease` ago by the store's clock; the target id of the first attempt
    /// survives every take-over. Of any number of callers at once exactly one enters. Repeated with
    /// the same attempt id after a lost answer it enters again.
    async fn begin(&self, scope: &MarkerScope, begin: &Begin) -> StoreResult<Begun>;

    /// Stores the answer to replay, if this attempt holds the marker. `false` if it does not.
    async fn finish(
        &self,
        scope: &MarkerScope,
        attempt: Uuid,
        answer: &MarkerAnswer,
    ) -> StoreResult<bool>;

    /// Lets the next request enter at once, if this attempt holds the marker. `false` if it does not.
    async fn release(&self, scope: &MarkerScope, attempt: Uuid) -> StoreResult<bool>;

    /// Deletes up to `limit` markers made more than `retention` ago. How many.
    ///
    /// Takes no org: one bounded statement across them, for the sweep.
    async fn purge_markers(&self, retention: Duration, limit: u32) -> StoreResult<u32>;
}

/// Whose marker: unique by all three.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkerScope {
    /// The tenant.
    pub org_id: OrgId,
    /// The user.
    pub user_id: UserId,
    /// What the client sent as its key; at most 255 bytes.
    pub key: String,
}

/// What a request brings when it enters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Tells one request's content from another's.
    pub digest: Vec<u8>,
    /// The id that the create will use, unless an earlier attempt chose one.
    pub target_id: Uuid,
    /// This attempt.
    pub attempt: Uuid,
    /// How long a pending attempt keeps others out.
    pub lease: Duration,
}

/// The answer to a [`Begin`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Go on, and create under this id.
    Entered {
        /// Of the first attempt.
        target_id: Uuid,
    },
    /// Another attempt is under way. Refuse for now.
    InProgress,
    /// It was answered before: replay this.
    Finished(MarkerAnswer),
    /// The key was used for other content. Refuse.
    DigestDiffers,
}

/// An answer kept for replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerAnswer {
    /// As sent.
    pub status: u16,
    /// As sent.
    pub body: String,
}
