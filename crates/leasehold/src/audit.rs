//! Audit entries: dead letters, and what operators did.

use leasehold_core::store::events::{NewEntry, Stream, dead_letter_entry_id};
use leasehold_core::{
    FailureCode, JsonObject, OpContext, OrgId, ShortText, StoreError, Stores, WorkItem,
};
use serde::Serialize;
use uuid::Uuid;

/// What an audit entry about an item says. Never its payload.
#[derive(Serialize)]
struct About<'a> {
    kind: &'a str,
    target_id: Uuid,
    attempts: u32,
    worker_losses: u32,
    code: Option<&'a str>,
    last_error: Option<&'a str>,
}

fn about(item: &WorkItem) -> JsonObject {
    let about = About {
        kind: item.kind.as_str(),
        target_id: item.target_id.as_uuid(),
        attempts: item.attempts,
        worker_losses: item.worker_losses,
        code: item.failure_code.as_ref().map(FailureCode::as_str),
        last_error: item.last_error.as_ref().map(ShortText::as_str),
    };
    JsonObject::encode(&about).unwrap_or_default()
}

/// Writes the audit entry of a dead letter, then records on the item that it is written.
///
/// The entry's id is derived from the item and its fencing number: writing it again writes nothing.
/// A crash between the two leaves the item in `unaudited`, from where the sweep writes it again.
pub(crate) async fn dead_letter(
    stores: &Stores,
    org: OrgId,
    item: &WorkItem,
    app: &str,
) -> Result<(), StoreError> {
    let entry = NewEntry {
        id: dead_letter_entry_id(item.id, item.claim_seq),
        kind: "work.item.dead_letter".to_owned(),
        target_id: item.id.as_uuid(),
        actor_id: item.created_by,
        request_id: item.request_id,
        app: app.to_owned(),
        payload: about(item),
    };
    stores.events.append(org, Stream::Audit, &entry).await?;
    stores
        .work
        .mark_audited(org, &[(item.id, item.claim_seq)])
        .await
}

/// What an audit entry about a schedule or a lane says.
#[derive(Serialize)]
pub(crate) struct Act<'a> {
    /// Which, by name.
    pub(crate) name: &'a str,
    /// Who, for people.
    pub(crate) by: &'a str,
    /// Why, if it was said.
    pub(crate) reason: Option<&'a str>,
}

/// Writes the audit entry of an act on a schedule or a lane, such as `work.lane.pause`. The act has taken
/// place by then, so a failure is logged and not returned.
pub(crate) async fn act(
    stores: &Stores,
    context: &OpContext,
    kind: &str,
    target: Uuid,
    act: &Act<'_>,
) {
    let entry = NewEntry {
        id: Uuid::now_v7(),
        kind: kind.to_owned(),
        target_id: target,
        actor_id: context.user_id(),
        request_id: context.request().request_id,
        app: context.request().app.version.to_string(),
        payload: JsonObject::encode(act).unwrap_or_default(),
    };
    let appended = stores
        .events
        .append(context.org_id(), Stream::Audit, &entry);
    if let Err(error) = appended.await {
        tracing::error!(kind, name = act.name, %error, "an operator's act could not be audited");
    }
}

/// Writes the audit entry of an operator's act. The act has taken place by then, so a failure is
/// logged and not returned.
pub(crate) async fn operator_act(stores: &Stores, context: &OpContext, item: &WorkItem, act: &str) {
    let entry = NewEntry {
        id: Uuid::now_v7(),
        kind: format!("work.item.{act}"),
        target_id: item.id.as_uuid(),
        actor_id: context.user_id(),
        request_id: context.request().request_id,
        app: context.request().app.version.to_string(),
        payload: about(item),
    };
    if let Err(error) = stores
        .events
        .append(context.org_id(), Stream::Audit, &entry)
        .await
    {
        tracing::error!(item = %item.id, act, %error, "an operator's act could not be audited");
    }
}
