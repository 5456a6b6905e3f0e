//! Sources: where work is claimed, kept and settled.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::store::work::{ClaimRequest, Claimed, Renewal, Renewed, Settled, Settlement};
use leasehold_core::{
    App, Hints, Hold, Lane, OpContext, RequestContext, RequestId, StoreError, Stores, rules,
};

use crate::telemetry::Metrics;
use crate::tenancy::{SingleTenant, Tenancy, TenancyError};

/// Where a worker's items come from and where their endings go.
///
/// Every method may be dropped half-way; what then happened is found out by asking again, in the way
/// the store promises give.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Claims up to the request's limit. Repeating the same token finds what was claimed with it.
    async fn claim(&self, request: &ClaimRequest) -> Result<Assignments, StoreError>;

    /// Renews holds, answering in their order. `None`: of this one no answer was had, which is no
    /// refusal; it is asked for again while its lease lasts.
    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Option<Renewed>>, StoreError>;

    /// Ends holds, answering in their order.
    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>, StoreError>;

    /// These holds are over for the worker, settled or not: nothing of their runs executes, and nothing
    /// more is asked about them.
    fn forget(&self, holds: &[Hold]);

    /// The worker drains: it takes nothing new. What was not handed out yet goes back.
    fn drain(&self);

    /// The worker has ended, and has forgotten what it could. Completes, in bounded time, when nothing of
    /// the source is under way any more. Called on the loop's runtime, which ends afterwards.
    async fn close(&self);

    /// Begins to listen for hints about the lanes.
    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints>;

    /// Told once, before anything is asked, where the worker counts.
    fn attach(&self, metrics: &Arc<Metrics>);

    /// The stores that the worker's own upkeep uses: sweep, audit, liveness. `None` where others look
    /// after the work: there is none of these then.
    fn stores(&self) -> Option<&Stores>;

    /// Where contexts come from.
    fn tenancy(&self) -> &Arc<dyn Tenancy>;
}

/// What a claim brought.
#[derive(Debug, Default)]
pub struct Assignments {
    /// To run, each with the authority it runs under.
    pub items: Vec<(Claimed, OpContext)>,
    /// Items of gone orgs that were claimed and failed: the claim found less than there was.
    pub orphaned: u32,
}

/// The work queue over the stores.
#[derive(Debug, Clone)]
pub struct QueueSource {
    stores: Stores,
    tenancy: Arc<dyn Tenancy>,
}

/// After so many claims in a row that brought nothing but orphans, the loop gets its turn.
const ORPHAN_ROUNDS_MAX: u32 = 100;

const NO_CONTEXT_NOTE: &str = "its org could not be read";

impl QueueSource {
    /// The queue of an installation without tenants.
    pub fn new(stores: Stores) -> Self {
        Self {
            stores,
            tenancy: Arc::new(SingleTenant),
        }
    }

    /// With contexts from elsewhere.
    pub fn with_tenancy(mut self, tenancy: Arc<dyn Tenancy>) -> Self {
        self.tenancy = tenancy;
        self
    }

    /// Finds the authority for each item; if that cannot be read, hands all of them back, so that an
    /// outage of the orgs' database spends no attempt of anyone's work.
    async fn assign(
        &self,
        request: &ClaimRequest,
        claimed: Vec<Claimed>,
    ) -> Result<Assignments, StoreError> {
        let holds: Vec<Hold> = claimed
            .iter()
            .map(|claimed| Hold {
                org_id: claimed.org_id,
                item_id: claimed.item.id,
                token: request.token,
            })
            .collect();
        let patience = request.lease / 8;
        let answer = tokio::time::timeout(patience, self.authorise(request, claimed)).await;
        let answer = answer.unwrap_or_else(|_| {
            let error = format!("the items' orgs could not be read within {patience:?}");
            Err(StoreError::Unavailable(error))
        });
        if answer.is_err() {
            let hand_backs: Vec<Settlement> = holds
                .into_iter()
                .map(|hold| Settlement {
                    hold,
                    transition: rules::hand_back(NO_CONTEXT_NOTE),
                })
                .collect();
            if let Err(error) = self.stores.work.settle(&hand_backs).await {
                tracing::warn!(%error, items = hand_backs.len(), "could not be handed back");
            }
        }
        answer
    }

    async fn authorise(
        &self,
        request: &ClaimRequest,
        claimed: Vec<Claimed>,
    ) -> Result<Assignments, StoreError> {
        let app = App::worker(&request.worker);
        let mut assignments = Assignments::default();
        assignments.items.reserve(claimed.len());
        for claimed in claimed {
            let item = &claimed.item;
            let run = RequestContext::new(RequestId::mint(), app.clone());
            let context = self
                .tenancy
                .claim_context(&run, claimed.org_id, item.created_by, item.request_id)
                .await;
            match context {
                Ok(context) => assignments.items.push((claimed, context)),
                Err(TenancyError::Store(error)) => return Err(error),
                Err(TenancyError::OrgGone(_)) => {
                    self.stores
                        .work
                        .fail_orphaned(item.id, request.token)
                        .await?;
                    tracing::warn!(item = %item.id, org = %claimed.org_id, "item orphaned: its org is gone");
                    assignments.orphaned += 1;
                }
            }
        }
        Ok(assignments)
    }
}

#[async_trait]
impl Source for QueueSource {
    async fn claim(&self, request: &ClaimRequest) -> Result<Assignments, StoreError> {
        let mut orphaned = 0;
        for _ in 0..ORPHAN_ROUNDS_MAX {
            let claimed = self.stores.work.claim(request).await?;
            let found = !claimed.is_empty();
            let mut assignments = self.assign(request, claimed).await?;
            orphaned += assignments.orphaned;
            assignments.orphaned = orphaned;
            if !found || !assignments.items.is_empty() {
                return Ok(assignments);
            }
        }
        Ok(Assignments {
            items: Vec::new(),
            orphaned,
        })
    }

    async fn renew(&self, batch: &[Renewal]) -> Result<Vec<Option<Renewed>>, StoreError> {
        let answers = self.stores.work.renew(batch).await?;
        Ok(answers.into_iter().map(Some).collect())
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        self.stores.work.settle(batch).await
    }

    fn forget(&self, _: &[Hold]) {}

    fn drain(&self) {}

    async fn close(&self) {}

    fn subscribe(&self, lanes: &[Lane]) -> Box<dyn Hints> {
        self.stores.work.subscribe(lanes)
    }

    fn attach(&self, _: &Arc<Metrics>) {}

    fn stores(&self) -> Option<&Stores> {
        Some(&self.stores)
    }

    fn tenancy(&self) -> &Arc<dyn Tenancy> {
        &self.tenancy
    }
}
