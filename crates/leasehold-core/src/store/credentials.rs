//! The promises about what principals prove themselves by: sessions and tickets.
//!
//! A store never sees a secret, only its [`Digest`]. What is over (ended, expired, idle for too long) is
//! never answered, whether or not a purge has come by; the purges only free its place.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::StoreResult;
use crate::ids::{ApiKeyId, IdentityId, OrgId, SessionId, UserId};

/// How often a session is noted as seen, at most: each note is a write.
pub const SEEN_EVERY: Duration = Duration::from_mins(1);

/// Sessions and socket tickets. Rows only: contexts are made by [`crate::context`].
#[async_trait]
pub trait CredentialStore: Send + Sync + fmt::Debug {
    /// Writes a session of the org that begins at the store's now and lasts `lifetime` at most. `false` if
    /// its id is there; the stored row is untouched, so that asking again is harmless.
    async fn create_session(
        &self,
        org: OrgId,
        session: &NewSession,
        lifetime: Duration,
    ) -> StoreResult<bool>;

    /// The living session of that secret, noted as seen: `last_seen_at` moves to the store's now unless it
    /// was moved less than [`SEEN_EVERY`] ago. A session unseen for `idle` is over.
    ///
    /// Takes no org: the secret is all that its bearer shows, and the row says which org it opens.
    async fn use_session(
        &self,
        digest: &Digest,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>>;

    /// The living session of that id, as it stands: nothing is noted.
    async fn session(
        &self,
        org: OrgId,
        session: SessionId,
        idle: Duration,
    ) -> StoreResult<Option<SessionRecord>>;

    /// Ends a session. `false` if the org has none of that id any more.
    async fn end_session(&self, org: OrgId, session: SessionId) -> StoreResult<bool>;

    /// Ends every session of the user in the org, and says how many there were.
    async fn end_sessions(&self, org: OrgId, user: UserId) -> StoreResult<u32>;

    /// Deletes up to `limit` sessions that are past their lifetime or were unseen for `idle`.
    ///
    /// Takes no org: what is over is deleted in every org alike, and the answer is a count.
    async fn purge_sessions(&self, idle: Duration, limit: u32) -> StoreResult<u32>;

    /// Writes a ticket of the org that lasts `lifetime`. An answer that was lost is not asked for again:
    /// the caller mints another ticket.
    async fn create_socket_ticket(
        &self,
        org: OrgId,
        digest: &Digest,
        credential: Credential,
        lifetime: Duration,
    ) -> StoreResult<()>;

    /// Takes the ticket of that secret and deletes it: of any number of callers one gets it, and a caller
    /// whose answer was lost has spent it. The caller then checks the credential behind it, which may have
    /// ended since.
    ///
    /// Takes no org: the secret is all that its bearer shows.
    async fn redeem_socket_ticket(&self, digest: &Digest) -> StoreResult<Option<TicketRecord>>;

    /// Deletes up to `limit` tickets that nobody redeemed in time.
    ///
    /// Takes no org: what is over is deleted in every org alike, and the answer is a count.
    async fn purge_socket_tickets(&self, limit: u32) -> StoreResult<u32>;
}

/// The SHA-256 of a secret of 256 random bits. Such a secret cannot be guessed from it, so no slow hash and no
/// salt are needed; what people choose is hashed otherwise.
///
/// It opens nothing by itself, and is still never printed: a log is no place for what a row is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Wraps the output of the hash.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a store's condition.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}

/// What a principal proved itself by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// A session that followed from a sign-in.
    Session(SessionId),
    /// A program's key.
    ApiKey(ApiKeyId),
}

impl Credential {
    /// The word and the id that are stored.
    pub const fn parts(self) -> (&'static str, Uuid) {
        match self {
            Self::Session(id) => ("session", id.as_uuid()),
            Self::ApiKey(id) => ("api_key", id.as_uuid()),
        }
    }

    /// The credential of that word and id.
    pub fn from_parts(word: &str, id: Uuid) -> Option<Self> {
        match word {
            "session" => Some(Self::Session(id.into())),
            "api_key" => Some(Self::ApiKey(id.into())),
            _ => None,
        }
    }
}

/// A session to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// Minted above storage.
    pub id: SessionId,
    /// Who signed in.
    pub user_id: UserId,
    /// By which identity.
    pub identity_id: IdentityId,
    /// Of the secret that its bearer shows.
    pub digest: Digest,
}

/// A session as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// The one org it opens.
    pub org_id: OrgId,
    /// Who signed in.
    pub user_id: UserId,
    /// By which identity.
    pub identity_id: IdentityId,
    /// By the store's clock.
    pub created_at: Timestamp,
    /// When it was last noted as used.
    pub last_seen_at: Timestamp,
    /// When it is over, however much it is used.
    pub expires_at: Timestamp,
}

/// A ticket as it was redeemed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketRecord {
    /// The org it opens.
    pub org_id: OrgId,
    /// Whose authority it lends.
    pub credential: Credential,
}
