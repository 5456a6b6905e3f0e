//! The producer's and the operator's side: enqueue, look, cancel, retry.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold_core::context::NotAuthorized;
use leasehold_core::store::work::{Cancelled, Enqueued, Filter, Listed, Page, Retried};
use leasehold_core::{
    App, AppKind, Clock, Due, IdempotencyKey, ItemId, JsonError, JsonObject, Kind, Lane, NameError,
    NewItem, OpContext, Permission, RequestContext, RequestId, ShortText, StoreError, Stores,
    TargetId, WorkItem,
};
use tracing::{Instrument as _, Span};

use crate::clock::SystemClock;
use crate::schedule::TimingError;
use crate::tenancy::SingleTenant;
use crate::trace;
use crate::work::{self, Work};

mod explain;
mod lanes;
mod schedules;

pub use explain::Explanation;
pub use schedules::{Declared, RunNow};

/// Acts in one org, under one context. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    stores: Stores,
    context: OpContext,
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    operator: Option<ShortText>,
}

/// Why a client's call did not take place.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Refused where it entered; nothing was stored. Correct it.
    #[error("{0}")]
    Invalid(String),
    /// One row of a batch was refused where it entered; nothing of the batch was stored.
    #[error("row {row} of the batch (from 0): {reason}; nothing of the batch was stored")]
    InvalidRow {
        /// Which, from 0.
        row: usize,
        /// Why.
        reason: String,
    },
    /// The id belongs to another org. Mint another.
    #[error("the id {0} is taken")]
    IdTaken(ItemId),
    /// The context does not allow it.
    #[error(transparent)]
    NotAuthorized(#[from] NotAuthorized),
    /// The store could not; [`StoreError::is_passing`] says whether asking again may help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A schedule's expression or zone says nothing. Correct it.
    #[error(transparent)]
    Timing(#[from] TimingError),
}

impl From<JsonError> for ClientError {
    fn from(error: JsonError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<NameError> for ClientError {
    fn from(error: NameError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// So many rows go to the store at once: one statement's worth, a bound for memory.
pub const BATCH_MAX: usize = 1_000;

impl Client {
    /// Acts under the given context.
    pub fn new(stores: Stores, context: OpContext) -> Self {
        Self {
            stores,
            context,
            clock: Arc::new(SystemClock),
            payload_bytes_max: JsonObject::BYTES_MAX,
            operator: None,
        }
    }

    /// Acts as the owner of an installation without tenants.
    ///
    /// # Errors
    /// None in practice: the one org is never gone.
    pub fn single_tenant(stores: Stores) -> Result<Self, ClientError> {
        let version = concat!("leasehold@", env!("CARGO_PKG_VERSION"));
        let app = App {
            kind: AppKind::Api,
            version: version.into(),
        };
        let request = RequestContext::new(RequestId::mint(), app);
        let context = SingleTenant::owner_context(&request)
            .map_err(|gone| ClientError::Invalid(gone.to_string()))?;
        Ok(Self::new(stores, context))
    }

    /// Stamps `created_at` from the given clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Refuses payloads of more bytes than this.
    pub fn with_payload_bytes_max(mut self, bytes_max: usize) -> Self {
        self.payload_bytes_max = bytes_max;
        self
    }

    /// Says who acts, for people: what pauses and audit entries name. Without it the context's user, or the
    /// program.
    pub fn with_operator(mut self, name: impl Into<ShortText>) -> Self {
        self.operator = Some(name.into());
        self
    }

    fn operator(&self) -> ShortText {
        let user = self.context.user_id();
        match &self.operator {
            Some(name) => name.clone(),
            None if user.is_nil() => ShortText::new(&self.context.request().app.version),
            None => ShortText::new(user.to_string()),
        }
    }

    /// The stores it acts on.
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// The context it acts under.
    pub fn context(&self) -> &OpContext {
        &self.context
    }

    /// Enqueues typed work. Set options, then await it.
    ///
    /// Safe to ask again after an error: with the same id or key the stored row is found and its
    /// claim, if any, is untouched. Dropping the future leaves the item stored or not, never half.
    pub fn enqueue<W: Work>(&self, work: &W) -> Enqueue<'_> {
        let item = self.typed(work);
        Enqueue { client: self, item }
    }

    /// Enqueues by name and text, for kinds that have no type here.
    pub fn enqueue_raw(&self, kind: &str, payload: &str) -> Enqueue<'_> {
        let item = self.raw(kind, payload);
        Enqueue { client: self, item }
    }

    /// Makes an item of typed work, to be changed and passed to [`Client::enqueue_many`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the payload or a name breaks its rule.
    pub fn typed<W: Work>(&self, work: &W) -> Result<NewItem, ClientError> {
        let text = serde_json::to_string(work)
            .map_err(|error| ClientError::Invalid(format!("the payload: {error}")))?;
        let payload = JsonObject::parse_within(&text, self.payload_bytes_max)?;
        let mut item = NewItem::new(work::kind_of::<W>()?, payload, self.clock.now());
        item.lane = work::lane_of::<W>()?;
        item.priority = W::PRIORITY;
        item.max_attempts = W::MAX_ATTEMPTS;
        Ok(item)
    }

    /// Makes an item by name and text, to be changed and passed to [`Client::enqueue_many`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if the payload or the kind breaks its rule.
    pub fn raw(&self, kind: &str, payload: &str) -> Result<NewItem, ClientError> {
        let payload = JsonObject::parse_within(payload, self.payload_bytes_max)?;
        Ok(NewItem::new(Kind::parse(kind)?, payload, self.clock.now()))
    }

    /// Checks items and stamps them with this context, without enqueueing them: for enqueueing them in a
    /// transaction of your own, in the org of [`Client::context`].
    ///
    /// # Errors
    /// [`ClientError::InvalidRow`] names the row; [`ClientError::NotAuthorized`].
    pub fn prepare(&self, items: Vec<NewItem>) -> Result<Vec<NewItem>, ClientError> {
        self.context.require(Permission::EnqueueWork)?;
        for (row, item) in items.iter().enumerate() {
            if let Err(error) = self.check(item) {
                return Err(ClientError::InvalidRow {
                    row,
                    reason: error.to_string(),
                });
            }
        }
        Ok(items.into_iter().map(|item| self.stamped(item)).collect())
    }

    /// Enqueues many, [`BATCH_MAX`] rows to a transaction, and answers each row's fate in order.
    ///
    /// The rows are checked first: one that is refused refuses the whole call, and nothing is stored.
    /// A store error between two transactions leaves the earlier ones stored; asking again with the
    /// same ids finds them.
    ///
    /// # Errors
    /// [`ClientError::InvalidRow`] names the row; [`ClientError::Store`] may be asked again.
    pub async fn enqueue_many(&self, items: Vec<NewItem>) -> Result<Vec<Enqueued>, ClientError> {
        let span = trace::send(items.first(), items.len());
        self.enqueue_all(items).instrument(span).await
    }

    /// Enqueues all of them or none: one transaction, however many there are. For more than a few
    /// thousand, [`Client::enqueue_many`] is kinder to the store.
    ///
    /// # Errors
    /// As [`Client::enqueue_many`]; after an error nothing was stored, or the answer was lost.
    pub async fn enqueue_together(
        &self,
        items: Vec<NewItem>,
    ) -> Result<Vec<Enqueued>, ClientError> {
        let span = trace::send(items.first(), items.len());
        let enqueue = async move {
            let items = self.prepare(items)?;
            let org = self.context.org_id();
            Ok(self.stores.work.enqueue(org, items).await?)
        };
        enqueue.instrument(span).await
    }

    async fn enqueue_all(&self, items: Vec<NewItem>) -> Result<Vec<Enqueued>, ClientError> {
        let items = self.prepare(items)?;
        let mut fates = Vec::with_capacity(items.len());
        let mut items = items.into_iter();
        loop {
            let batch: Vec<NewItem> = items.by_ref().take(BATCH_MAX).collect();
            if batch.is_empty() {
                return Ok(fates);
            }
            fates.extend(
                self.stores
                    .work
                    .enqueue(self.context.org_id(), batch)
                    .await?,
            );
        }
    }

    /// The item.
    ///
    /// # Errors
    /// [`ClientError::NotAuthorized`], [`ClientError::Store`].
    pub async fn get(&self, item: ItemId) -> Result<Option<WorkItem>, ClientError> {
        self.context.require(Permission::ReadWork)?;
        Ok(self.stores.work.get(self.context.org_id(), item).await?)
    }

    /// The item that holds the key.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_by_key(&self, key: IdempotencyKey) -> Result<Option<WorkItem>, ClientError> {
        self.context.require(Permission::ReadWork)?;
        Ok(self
            .stores
            .work
            .get_by_key(self.context.org_id(), key)
            .await?)
    }

    /// Items, newest first, a page at a time. A page may be short or empty and still have a
    /// [`Listed::next`]: a call looks at so many items and no more.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn list(&self, filter: &Filter, page: &Page) -> Result<Listed, ClientError> {
        self.context.require(Permission::ReadWork)?;
        Ok(self
            .stores
            .work
            .list(self.context.org_id(), filter, page)
            .await?)
    }

    /// Asks for an item to stop. A running one learns of it by its next lease renewal.
    ///
    /// # Errors
    /// As [`Client::get`]; safe to ask again.
    pub async fn cancel(&self, item: ItemId) -> Result<Cancelled, ClientError> {
        self.context.require(Permission::OperateWork)?;
        let by = self.context.user_id();
        let answer = self
            .stores
            .work
            .cancel(self.context.org_id(), item, by)
            .await?;
        if let Cancelled::Ended(item) | Cancelled::Requested(item) = &answer {
            crate::audit::operator_act(&self.stores, &self.context, item, "cancel").await;
        }
        Ok(answer)
    }

    /// Puts a failed item back to the start of its attempts.
    ///
    /// # Errors
    /// As [`Client::get`]; safe to ask again.
    pub async fn retry(&self, item: ItemId) -> Result<Retried, ClientError> {
        self.context.require(Permission::OperateWork)?;
        let by = self.context.user_id();
        let answer = self
            .stores
            .work
            .retry(self.context.org_id(), item, by)
            .await?;
        if let Retried::Queued(item) = &answer {
            crate::audit::operator_act(&self.stores, &self.context, item, "retry").await;
        }
        Ok(answer)
    }

    /// Why the item is where it is, and what to do about it. `None` if the org has no such item.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn explain(&self, item: ItemId) -> Result<Option<Explanation>, ClientError> {
        let Some(item) = self.get(item).await? else {
            return Ok(None);
        };
        let now = self.stores.work.now().await?;
        let paused = self.stores.work.paused_lanes().await?;
        let workers = self
            .stores
            .liveness
            .live_workers(EXPLAIN_WORKERS_MAX)
            .await?;
        Ok(Some(explain::explain(item, now, &paused, &workers)))
    }

    fn check(&self, item: &NewItem) -> Result<(), ClientError> {
        if !(1..=ATTEMPTS_MAX).contains(&item.max_attempts) {
            return Err(ClientError::Invalid(format!(
                "max_attempts is {}; allow between 1 and {ATTEMPTS_MAX}",
                item.max_attempts
            )));
        }
        let bytes = item.payload.as_str().len();
        if bytes > self.payload_bytes_max {
            let bytes_max = self.payload_bytes_max;
            return Err(JsonError::TooLarge { bytes, bytes_max }.into());
        }
        match &item.traceparent {
            Some(header) if !is_traceparent(header) => Err(ClientError::Invalid(format!(
                "traceparent {:?} is no W3C header (00-<32 hex>-<16 hex>-<2 hex>)",
                leasehold_core::text::clip(header, 80)
            ))),
            _ => Ok(()),
        }
    }

    fn stamped(&self, mut item: NewItem) -> NewItem {
        item.created_by = self.context.user_id();
        if item.request_id.is_nil() {
            item.request_id = self.context.request().request_id;
        }
        item.traceparent = item
            .traceparent
            .or_else(|| trace::header_of(&Span::current()))
            .or_else(|| self.context.request().traceparent.clone());
        item
    }
}

/// More claims than any item should have, and few enough for every store's integers.
const ATTEMPTS_MAX: u32 = 1_000_000;

/// Enough workers to find one that knows a kind; more would only be counted.
const EXPLAIN_WORKERS_MAX: u32 = 1_000;

fn is_traceparent(header: &str) -> bool {
    let parts: Vec<&str> = header.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [2, 32, 16, 2]
        && parts.iter().all(|part| {
            part.bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        })
}

/// An item about to be enqueued: set what differs from the defaults, then await it.
#[must_use = "nothing is enqueued until it is awaited"]
#[derive(Debug)]
pub struct Enqueue<'a> {
    client: &'a Client,
    item: Result<NewItem, ClientError>,
}

impl Enqueue<'_> {
    fn with(mut self, change: impl FnOnce(&mut NewItem) -> Result<(), ClientError>) -> Self {
        self.item = self.item.and_then(|mut item| {
            change(&mut item)?;
            Ok(item)
        });
        self
    }

    /// Not before that long from now, by the store's clock.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|item| {
            item.due = Due::After(delay);
            Ok(())
        })
    }

    /// Not before that instant of the store's clock.
    pub fn at(self, instant: Timestamp) -> Self {
        self.with(|item| {
            item.due = Due::At(instant);
            Ok(())
        })
    }

    /// Deduplicates within the org until the item is purged.
    pub fn key(self, key: IdempotencyKey) -> Self {
        self.with(|item| {
            item.idempotency_key = key;
            Ok(())
        })
    }

    /// As [`Enqueue::key`], by any text of the producer's own.
    pub fn key_text(self, text: &str) -> Self {
        self.key(IdempotencyKey::from_text(text))
    }

    /// With an id of the caller's own (`UUIDv7`), so that asking again finds the row.
    pub fn id(self, id: ItemId) -> Self {
        self.with(|item| {
            item.id = id;
            Ok(())
        })
    }

    /// Routed there.
    pub fn lane(self, lane: &str) -> Self {
        self.with(|item| {
            item.lane = Lane::parse(lane)?;
            Ok(())
        })
    }

    /// Lower goes first.
    pub fn priority(self, priority: i16) -> Self {
        self.with(|item| {
            item.priority = priority;
            Ok(())
        })
    }

    /// Claims it may have before it is a dead letter; at least 1.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|item| {
            item.max_attempts = attempts;
            Ok(())
        })
    }

    /// The record that the work advances.
    pub fn target(self, target: TargetId) -> Self {
        self.with(|item| {
            item.target_id = target;
            Ok(())
        })
    }

    /// The W3C header of the cause, which the run is linked to.
    pub fn traceparent(self, header: impl Into<String>) -> Self {
        self.with(|item| {
            item.traceparent = Some(header.into());
            Ok(())
        })
    }
}

impl Enqueue<'_> {
    /// The item as awaiting this would enqueue it, checked and stamped with the client's context: for
    /// enqueueing it in a transaction of your own, in the org of [`Client::context`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] if something given breaks its rule; [`ClientError::NotAuthorized`].
    pub fn into_item(self) -> Result<NewItem, ClientError> {
        let client = self.client;
        client.context.require(Permission::EnqueueWork)?;
        let item = self.item?;
        client.check(&item)?;
        Ok(client.stamped(item))
    }
}

impl<'a> IntoFuture for Enqueue<'a> {
    type Output = Result<Enqueued, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let span = trace::send(self.item.as_ref().ok(), 1);
        let enqueue = async move {
            let client = self.client;
            let item = self.into_item()?;
            let id = item.id;
            let batch = vec![item];
            let fates = client
                .stores
                .work
                .enqueue(client.context.org_id(), batch)
                .await?;
            match fates.into_iter().next() {
                Some(Enqueued::IdTaken) => Err(ClientError::IdTaken(id)),
                Some(fate) => Ok(fate),
                None => Err(StoreError::Failed("the store answered no fate".to_owned()).into()),
            }
        };
        Box::pin(enqueue.instrument(span))
    }
}
