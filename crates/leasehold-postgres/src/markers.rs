//! The promises about idempotency markers.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::markers::{Begin, Begun, MarkerAnswer, MarkerScope};
use leasehold_core::store::{MarkerStore, StoreError, StoreResult};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::{Columns, microseconds, microseconds_back};
use crate::store::PostgresStore;

/// How long a client's key may be.
const KEY_BYTES_MAX: usize = 255;

/// An attempt that does not enter looks why; that it could have entered by then happens once in a
/// while, and hardly twice.
const TRIES_MAX: u32 = 3;

const ENTER: &str = include_str!("sql/enter_marker.sql");

const READ: &str = "
    select digest, stage, answer_status, answer_body from {schema}.markers
    where org_id = $1 and user_id = $2 and key = $3";

/// Repeating a finish word for word counts as one.
const FINISH: &str = "
    update {schema}.markers set stage = 'finished', answer_status = $5, answer_body = $6
    where org_id = $1 and user_id = $2 and key = $3 and attempt = $4
        and (stage = 'pending'
            or (stage = 'finished' and answer_status = $5 and answer_body = $6))";

const RELEASE: &str = "
    update {schema}.markers set stage = 'released'
    where org_id = $1 and user_id = $2 and key = $3 and attempt = $4 and stage = 'pending'";

const PURGE: &str = "
    with old as materialized (
        select org_id, user_id, key from {schema}.markers
        where created_at < {schema}.clock() - $1::bigint * interval '1 microsecond'
        order by created_at
        limit $2
        for update skip locked
    )
    delete from {schema}.markers marker using old
    where (marker.org_id, marker.user_id, marker.key) = (old.org_id, old.user_id, old.key)";

#[async_trait]
impl MarkerStore for PostgresStore {
    async fn begin(&self, scope: &MarkerScope, begin: &Begin) -> StoreResult<Begun> {
        if scope.key.len() > KEY_BYTES_MAX {
            let bytes = scope.key.len();
            return Err(StoreError::Refused(format!(
                "an idempotency key of {bytes} bytes; send one of at most {KEY_BYTES_MAX}"
            )));
        }
        for _ in 0..TRIES_MAX {
            if let Some(target_id) = enter(self, scope, begin).await? {
                return Ok(Begun::Entered { target_id });
            }
            if let Some(begun) = obstacle(self, scope, begin).await? {
                return Ok(begun);
            }
        }
        Err(StoreError::Retry(
            "others begin and end under this idempotency key".to_owned(),
        ))
    }

    async fn finish(
        &self,
        scope: &MarkerScope,
        attempt: Uuid,
        answer: &MarkerAnswer,
    ) -> StoreResult<bool> {
        let (org, user) = (scope.org_id.as_uuid(), scope.user_id.as_uuid());
        let status = i32::from(answer.status);
        let finished = self
            .of_org(scope.org_id)
            .execute(
                FINISH,
                &[&org, &user, &scope.key, &attempt, &status, &answer.body],
            )
            .await?;
        Ok(finished == 1)
    }

    async fn release(&self, scope: &MarkerScope, attempt: Uuid) -> StoreResult<bool> {
        let (org, user) = (scope.org_id.as_uuid(), scope.user_id.as_uuid());
        let released = self
            .of_org(scope.org_id)
            .execute(RELEASE, &[&org, &user, &scope.key, &attempt])
            .await?;
        Ok(released == 1)
    }

    async fn purge_markers(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        let purged = self
            .tenantless()
            .execute(PURGE, &[&microseconds_back(retention), &i64::from(limit)])
            .await?;
        Ok(u32::try_from(purged).unwrap_or(u32::MAX))
    }
}

/// The target to create under, if this attempt entered.
async fn enter(store: &PostgresStore, scope: &MarkerScope, begin: &Begin) -> Answer<Option<Uuid>> {
    let entered = store
        .of_org(scope.org_id)
        .query_opt(
            ENTER,
            &[
                &scope.org_id.as_uuid(),
                &scope.user_id.as_uuid(),
                &scope.key,
                &begin.digest,
                &begin.target_id,
                &begin.attempt,
                &microseconds(begin.lease),
            ],
        )
        .await?;
    entered.map(|row| Columns::of(&row).uuid()).transpose()
}

/// Why an attempt did not enter. `None`: the reason is gone by now.
async fn obstacle(
    store: &PostgresStore,
    scope: &MarkerScope,
    begin: &Begin,
) -> Answer<Option<Begun>> {
    let (org, user) = (scope.org_id.as_uuid(), scope.user_id.as_uuid());
    let found = store
        .of_org(scope.org_id)
        .query_opt(READ, &[&org, &user, &scope.key])
        .await?;
    let Some((digest, stage)) = found.as_ref().map(marker).transpose()? else {
        return Ok(None);
    };
    if digest != begin.digest {
        return Ok(Some(Begun::DigestDiffers));
    }
    Ok(match stage {
        Stage::Pending => Some(Begun::InProgress),
        Stage::Released => None,
        Stage::Finished(answer) => Some(Begun::Finished(answer)),
    })
}

enum Stage {
    Pending,
    Released,
    Finished(MarkerAnswer),
}

fn marker(row: &Row) -> Answer<(Vec<u8>, Stage)> {
    let mut columns = Columns::of(row);
    let digest = columns.plain()?;
    let stage = columns.text()?;
    let (status, body) = (columns.plain::<Option<i32>>()?, columns.text_or_null()?);
    let status = status.and_then(|status| u16::try_from(status).ok());
    let stage = match (stage, status, body) {
        ("pending", ..) => Stage::Pending,
        ("released", ..) => Stage::Released,
        ("finished", Some(status), Some(body)) => Stage::Finished(MarkerAnswer {
            status,
            body: body.to_owned(),
        }),
        (stage, ..) => {
            return Err(Fault::damaged(format_args!(
                "a marker at the stage {stage:?}"
            )));
        }
    };
    Ok((digest, stage))
}
