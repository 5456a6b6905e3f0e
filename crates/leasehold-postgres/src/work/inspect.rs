//! Reading items.

use jiff::Timestamp;
use leasehold_core::{IdempotencyKey, ItemId, OrgId, WorkItem};
use uuid::Uuid;

use crate::error::{Answer, Fault};
use crate::funnel::Statements as _;
use crate::rows::{self, Columns, item_columns};
use crate::store::PostgresStore;

const NOW: &str = "select {schema}.clock()";

pub(super) const BY_ID: &str = concat!(
    "select ",
    item_columns!(),
    " from {schema}.work_items where org_id = $1 and id = $2"
);

pub(super) const BY_KEY: &str = concat!(
    "select ",
    item_columns!(),
    " from {schema}.work_items where org_id = $1 and idempotency_key = $2"
);

pub(super) async fn now(store: &PostgresStore) -> Answer<Timestamp> {
    let row = store.tenantless().query_opt(NOW, &[]).await?;
    let row = row.ok_or_else(|| Fault::damaged("the clock says nothing"))?;
    Columns::of(&row).timestamp()
}

pub(super) async fn get(
    store: &PostgresStore,
    org: OrgId,
    item: ItemId,
) -> Answer<Option<WorkItem>> {
    one(store, BY_ID, org, item.as_uuid()).await
}

pub(super) async fn get_by_key(
    store: &PostgresStore,
    org: OrgId,
    key: IdempotencyKey,
) -> Answer<Option<WorkItem>> {
    one(store, BY_KEY, org, key.as_uuid()).await
}

async fn one(
    store: &PostgresStore,
    statement: &'static str,
    org: OrgId,
    name: Uuid,
) -> Answer<Option<WorkItem>> {
    let row = store
        .of_org(org)
        .query_opt(statement, &[&org.as_uuid(), &name])
        .await?;
    row.map(|row| Ok(rows::item(&row)?.1)).transpose()
}
