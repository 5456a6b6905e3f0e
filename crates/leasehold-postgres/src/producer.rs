//! Enqueueing inside a transaction of the caller's own, through any connection to the queue's database.
//!
//! An application that keeps its tables in the same database writes its rows and the work that follows from
//! them together: both are there after its commit, or neither is. Work that is enqueued by
//! [`WorkStore::enqueue`](leasehold_core::WorkStore::enqueue) after a commit is lost if the process dies in
//! between.
//!
//! Everything goes through the schema's function `enqueue_many`, which runs as its owner: the application's
//! login needs the right to execute it, and no other on the schema's tables.
//!
//! ```no_run
//! # use leasehold_core::{NewItem, OrgId};
//! # async fn run(
//! #     client: &mut tokio_postgres::Client,
//! #     item: NewItem,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_postgres::Producer;
//!
//! let producer = Producer::new("leasehold")?;
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into invoices (id) values (7)", &[]).await?;
//! let placed = producer.enqueue_in(&transaction, OrgId::SINGLE, &[item]).await?;
//! transaction.commit().await?;
//! # Ok(()) }
//! ```

mod call;
mod hint;

use leasehold_core::store::StoreResult;
use leasehold_core::{ItemId, NewItem, OrgId, StoreError};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::{Answer, ConnectError, Fault};
use crate::store::{PostgresStore, Schema};

pub use call::Call;
pub use hint::PendingHint;

/// Enqueues through connections of the caller's own. Needs no store and no pool; cheap to clone.
#[derive(Debug, Clone)]
pub struct Producer {
    schema: Schema,
}

/// An item that a producer enqueued, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Placed {
    /// The stored item's: for [`Fate::KeyExists`] another than the one that was sent.
    pub id: ItemId,
    /// What became of it.
    pub fate: Fate,
}

/// What became of an enqueued item. Says less than
/// [`Enqueued`](leasehold_core::store::work::Enqueued): whoever may enqueue need not be allowed to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is new.
    Inserted,
    /// Its id was there; the stored row is untouched.
    IdExists,
    /// Its key was there under another id; the stored row is untouched.
    KeyExists,
    /// Its id belongs to another org. Mint another.
    IdTaken,
}

impl Fate {
    /// The word that the SQL functions answer.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inserted => "inserted",
            Self::IdExists => "id_exists",
            Self::KeyExists => "key_exists",
            Self::IdTaken => "id_taken",
        }
    }

    /// The fate of that word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [
            Self::Inserted,
            Self::IdExists,
            Self::KeyExists,
            Self::IdTaken,
        ];
        all.into_iter().find(|fate| fate.as_str() == word)
    }
}

/// When workers are hinted of what a transaction gave them to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hinted {
    AtTheCommit,
    Later,
}

impl Producer {
    /// For the queue in that schema, which is [`Options::SCHEMA`](crate::Options::SCHEMA) unless said
    /// otherwise.
    ///
    /// # Errors
    /// [`ConnectError::SchemaName`].
    pub fn new(schema: &str) -> Result<Self, ConnectError> {
        Ok(Self {
            schema: Schema::parse(schema)?,
        })
    }

    /// Enqueues items as part of the caller's transaction, and answers the fate of each in the batch's
    /// order. The commit hints the workers, who look within milliseconds.
    ///
    /// Take checked items from `leasehold::Client`: `client.enqueue(&work).into_item()`. Nothing is claimed
    /// before the commit; a rollback leaves nothing. Each statement carries as many items as the function
    /// takes at once; with a connection instead of a transaction, each of them commits by itself.
    ///
    /// Postgres lets one transaction that hints commit after the other, across the whole database, each
    /// waiting for the disk. Where hundreds commit in a second, use
    /// [`Producer::enqueue_in_unhinted`].
    ///
    /// Dropping the future leaves the transaction as it is or with the items in it; it may then only be
    /// rolled back safely.
    ///
    /// # Errors
    /// [`StoreError::Refused`] names the item and what to correct, [`StoreError::Retry`] asks for the whole
    /// transaction again, such as one at a stricter isolation level that lost a race for a key. As after any
    /// error of Postgres, the transaction can then only be rolled back, to a savepoint or whole.
    pub async fn enqueue_in<C: GenericClient + Sync>(
        &self,
        transaction: &C,
        org: OrgId,
        batch: &[NewItem],
    ) -> StoreResult<Vec<Placed>> {
        Ok(self
            .enqueue(transaction, org, batch, Hinted::AtTheCommit)
            .await?)
    }

    /// As [`Producer::enqueue_in`], with the hint left to be given after the commit.
    ///
    /// # Errors
    /// As [`Producer::enqueue_in`].
    pub async fn enqueue_in_unhinted<C: GenericClient + Sync>(
        &self,
        transaction: &C,
        org: OrgId,
        batch: &[NewItem],
    ) -> StoreResult<(Vec<Placed>, PendingHint)> {
        let placed = self.enqueue(transaction, org, batch, Hinted::Later).await?;
        let hint = self.hint_of(batch, &placed);
        Ok((placed, hint))
    }

    async fn enqueue<C: GenericClient + Sync>(
        &self,
        transaction: &C,
        org: OrgId,
        batch: &[NewItem],
        hinted: Hinted,
    ) -> Answer<Vec<Placed>> {
        let mut placed = Vec::with_capacity(batch.len());
        for call in self.calls(org, batch, hinted)? {
            let rows = transaction
                .query_typed(
                    call.text(),
                    &[
                        (&call.items(), Type::TEXT),
                        (&call.org(), Type::UUID),
                        (&call.hints(), Type::BOOL),
                    ],
                )
                .await?;
            for row in rows {
                placed.push(Placed::read(row.try_get(0)?, row.try_get(1)?)?);
            }
        }
        Ok(placed)
    }

    /// The calls that enqueue a batch, hinting at the commit, for a driver of the caller's own: each is to
    /// be sent in turn, in one transaction. [`Placed::read`] reads a row of what they answer.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if an item cannot be written as JSON.
    pub fn calls_hinting(&self, org: OrgId, batch: &[NewItem]) -> StoreResult<Vec<Call>> {
        Ok(self.calls(org, batch, Hinted::AtTheCommit)?)
    }

    /// As [`Producer::calls_hinting`], without the hint; [`Producer::hint_of`] makes it.
    ///
    /// # Errors
    /// As [`Producer::calls_hinting`].
    pub fn calls_unhinted(&self, org: OrgId, batch: &[NewItem]) -> StoreResult<Vec<Call>> {
        Ok(self.calls(org, batch, Hinted::Later)?)
    }

    fn calls(&self, org: OrgId, batch: &[NewItem], hinted: Hinted) -> Answer<Vec<Call>> {
        call::calls(&self.schema, org, batch, hinted == Hinted::AtTheCommit)
    }

    /// The hint that the answers to a batch's calls ask for.
    pub fn hint_of(&self, batch: &[NewItem], placed: &[Placed]) -> PendingHint {
        let all = batch.iter().zip(placed);
        let gained = all.filter(|(_, placed)| placed.fate == Fate::Inserted);
        let lanes = gained.map(|(item, _)| item.lane.clone());
        PendingHint::new(&self.schema, lanes.collect())
    }
}

impl Placed {
    /// Reads a row of the answer: an id and the word for a fate.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if there is no such fate.
    pub fn read(id: Uuid, word: &str) -> StoreResult<Self> {
        let fate = Fate::parse(word)
            .ok_or_else(|| Fault::damaged(format_args!("{word:?} is no fate of an item")))?;
        Ok(Self {
            id: id.into(),
            fate,
        })
    }
}

/// What an error of the server's asks for, by its SQLSTATE and its message; for a driver of the caller's own.
pub fn error_of(code: &str, message: &str) -> StoreError {
    crate::error::judged(code, message.to_owned())
}

impl PostgresStore {
    /// Enqueues into this store's schema through connections of the caller's own, which must lead to the same
    /// database.
    pub fn producer(&self) -> Producer {
        Producer {
            schema: self.texts.schema().clone(),
        }
    }

    /// Gives a hint, after the commit of the transaction that owed it: to this process at once, to others
    /// soon. Nothing is awaited.
    pub fn send_hint(&self, hint: PendingHint) {
        self.hint(&hint.into_lanes());
    }
}
