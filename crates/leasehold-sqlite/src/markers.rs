//! The promises about idempotency markers.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use leasehold_core::store::markers::{Begin, Begun, MarkerAnswer, MarkerScope};
use leasehold_core::store::{MarkerStore, StoreError, StoreResult};
use leasehold_core::time::{age, earlier};
use rusqlite::{Row, params};
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::rows::{self, Columns, bytes};
use crate::store::SqliteStore;
use crate::writer::Unit;

/// How long a client's key may be.
const KEY_BYTES_MAX: usize = 255;

const READ: &str = "
    SELECT rowid, digest, target_id, attempt, stage, began_at, answer_status, answer_body
    FROM markers INDEXED BY markers_scope
    WHERE org_id = ?1 AND user_id = ?2 AND key = ?3";

const INSERT: &str = "
    INSERT INTO markers (
        org_id, user_id, key, created_at, digest, target_id, attempt, stage, began_at
    ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?4)";

const ENTER: &str = "
    UPDATE markers SET attempt = ?2, stage = 'pending', began_at = ?3
    WHERE rowid = ?1 AND stage <> 'finished'";

const END: &str = "
    UPDATE markers SET stage = ?3, answer_status = ?4, answer_body = ?5
    WHERE rowid = ?1 AND attempt = ?2 AND stage = 'pending'";

const PURGE: &str = "
    DELETE FROM markers WHERE rowid IN (
        SELECT rowid FROM markers INDEXED BY markers_age
        WHERE created_at < ?1
        ORDER BY created_at
        LIMIT ?2
    )";

#[async_trait]
impl MarkerStore for SqliteStore {
    async fn begin(&self, scope: &MarkerScope, begin: &Begin) -> StoreResult<Begun> {
        if scope.key.len() > KEY_BYTES_MAX {
            let bytes = scope.key.len();
            return Err(StoreError::Refused(format!(
                "an idempotency key of {bytes} bytes; send one of at most {KEY_BYTES_MAX}"
            )));
        }
        let (scope, begin) = (scope.clone(), begin.clone());
        self.write(1, move |unit| enter(unit, &scope, &begin)).await
    }

    async fn finish(
        &self,
        scope: &MarkerScope,
        attempt: Uuid,
        answer: &MarkerAnswer,
    ) -> StoreResult<bool> {
        let (scope, answer) = (scope.clone(), answer.clone());
        self.write(1, move |unit| end(unit, &scope, attempt, Some(&answer)))
            .await
    }

    async fn release(&self, scope: &MarkerScope, attempt: Uuid) -> StoreResult<bool> {
        let scope = scope.clone();
        self.write(1, move |unit| end(unit, &scope, attempt, None))
            .await
    }

    async fn purge_markers(&self, retention: Duration, limit: u32) -> StoreResult<u32> {
        self.write(limit as usize, move |unit| {
            let before = earlier(unit.now, retention).as_microsecond();
            let purged = unit.execute(PURGE, params![before, limit])?;
            Ok(u32::try_from(purged).unwrap_or(u32::MAX))
        })
        .await
    }
}

struct Marker {
    rowid: i64,
    digest: Vec<u8>,
    target_id: Uuid,
    attempt: Uuid,
    stage: Stage,
}

enum Stage {
    Pending { began_at: Timestamp },
    Released,
    Finished(MarkerAnswer),
}

/// The writer's transaction keeps others out between the look and the write.
fn enter(unit: &Unit<'_>, scope: &MarkerScope, begin: &Begin) -> Answer<Begun> {
    let now = unit.now.as_microsecond();
    let Some(marker) = read(unit, scope)? else {
        unit.execute(
            INSERT,
            params![
                bytes(scope.org_id.as_uuid()),
                bytes(scope.user_id.as_uuid()),
                scope.key,
                now,
                begin.digest,
                bytes(begin.target_id),
                bytes(begin.attempt),
            ],
        )?;
        return Ok(Begun::Entered {
            target_id: begin.target_id,
        });
    };
    if marker.digest != begin.digest {
        return Ok(Begun::DigestDiffers);
    }
    match marker.stage {
        Stage::Finished(answer) => Ok(Begun::Finished(answer)),
        Stage::Pending { began_at }
            if marker.attempt != begin.attempt && age(unit.now, began_at) <= begin.lease =>
        {
            Ok(Begun::InProgress)
        }
        Stage::Pending { .. } | Stage::Released => {
            unit.execute(ENTER, params![marker.rowid, bytes(begin.attempt), now])?;
            Ok(Begun::Entered {
                target_id: marker.target_id,
            })
        }
    }
}

/// Finishes with an answer, or releases without one. Repeating a finish word for word counts as one.
fn end(
    unit: &Unit<'_>,
    scope: &MarkerScope,
    attempt: Uuid,
    answer: Option<&MarkerAnswer>,
) -> Answer<bool> {
    let Some(marker) = read(unit, scope)? else {
        return Ok(false);
    };
    if let Stage::Finished(stored) = &marker.stage {
        return Ok(marker.attempt == attempt && Some(stored) == answer);
    }
    let ended = unit.execute(
        END,
        params![
            marker.rowid,
            bytes(attempt),
            if answer.is_some() {
                "finished"
            } else {
                "released"
            },
            answer.map(|answer| answer.status),
            answer.map(|answer| answer.body.as_str()),
        ],
    )?;
    Ok(ended == 1)
}

fn read(unit: &Unit<'_>, scope: &MarkerScope) -> Answer<Option<Marker>> {
    let mut statement = unit.db.prepare_cached(READ)?;
    let params = params![
        bytes(scope.org_id.as_uuid()),
        bytes(scope.user_id.as_uuid()),
        scope.key
    ];
    rows::first(&mut statement, params, marker)
}

fn marker(row: &Row<'_>) -> Answer<Marker> {
    let mut columns = Columns::of(row);
    Ok(Marker {
        rowid: columns.plain()?,
        digest: columns.plain()?,
        target_id: columns.uuid()?,
        attempt: columns.uuid()?,
        stage: match (
            columns.text()?,
            columns.timestamp()?,
            columns.plain()?,
            columns.text_or_null()?,
        ) {
            ("pending", began_at, _, _) => Stage::Pending { began_at },
            ("released", ..) => Stage::Released,
            ("finished", _, Some(status), Some(body)) => Stage::Finished(MarkerAnswer {
                status,
                body: body.to_owned(),
            }),
            (stage, ..) => {
                return Err(Fault::damaged(format_args!(
                    "a marker at the stage {stage:?}"
                )));
            }
        },
    })
}
