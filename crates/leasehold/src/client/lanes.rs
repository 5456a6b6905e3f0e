//! Lanes: paused and resumed by whoever operates the installation.

use leasehold_core::store::work::{LaneGauge, PausedLane};
use leasehold_core::{Lane, OrgId, Permission, ShortText};
use uuid::Uuid;

use super::{Client, ClientError};
use crate::audit::{self, Act};

impl Client {
    /// Stops claims of the lane until resumed: what runs goes on, and what is enqueued waits. Repeating it
    /// replaces the reason. Audited.
    ///
    /// # Errors
    /// [`ClientError::NotAuthorized`]; [`ClientError::Invalid`] for the context of one tenant among several:
    /// lanes are the installation's.
    pub async fn pause_lane(&self, lane: &Lane, reason: &ShortText) -> Result<(), ClientError> {
        self.require_installation()?;
        let by = self.operator();
        self.stores.work.pause_lane(lane, reason, &by).await?;
        self.audit_lane("work.lane.pause", lane, &by, Some(reason))
            .await;
        Ok(())
    }

    /// Lets claims of the lane go on. `false` if it was not paused. Audited if it was.
    ///
    /// # Errors
    /// As [`Client::pause_lane`].
    pub async fn resume_lane(&self, lane: &Lane) -> Result<bool, ClientError> {
        self.require_installation()?;
        let resumed = self.stores.work.resume_lane(lane).await?;
        if resumed {
            let by = self.operator();
            self.audit_lane("work.lane.resume", lane, &by, None).await;
        }
        Ok(resumed)
    }

    /// The lanes that hold unfinished items, with their figures, and those that are paused.
    ///
    /// # Errors
    /// As [`Client::pause_lane`].
    pub async fn lanes(&self) -> Result<(Vec<LaneGauge>, Vec<PausedLane>), ClientError> {
        self.require_installation()?;
        let gauges = self.stores.work.gauges().await?;
        Ok((gauges.lanes, self.stores.work.paused_lanes().await?))
    }

    fn require_installation(&self) -> Result<(), ClientError> {
        self.context.require(Permission::OperateWork)?;
        if self.context.org_id() == OrgId::SINGLE {
            return Ok(());
        }
        let why = "lanes are the installation's, and this is the context of one of its orgs";
        Err(ClientError::Invalid(why.to_owned()))
    }

    async fn audit_lane(
        &self,
        kind: &str,
        lane: &Lane,
        by: &ShortText,
        reason: Option<&ShortText>,
    ) {
        let act = Act {
            name: lane.as_str(),
            by: by.as_str(),
            reason: reason.map(ShortText::as_str),
        };
        let target = Uuid::new_v5(&Uuid::NAMESPACE_URL, lane.as_str().as_bytes());
        audit::act(&self.stores, &self.context, kind, target, &act).await;
    }
}
