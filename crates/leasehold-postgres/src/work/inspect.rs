//! Reading items.

use jiff::Timestamp;
use leasehold_core::store::work::{Filter, LIST_MAX, Page};
use leasehold_core::{IdempotencyKey, ItemId, Kind, Lane, OrgId, Status, WorkItem};
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

/// The statements of a list. The ids of the page are picked first, from what the status makes the smallest
/// place to look; then each is looked up, one by one, so that no estimate of how many there are can turn
/// the look-ups into a pass over whole tables.
///
/// Parameters: org, highest id, lane or null, kind or null, how many.
macro_rules! list_sql {
    ($page:literal) => {
        list_sql!($page, "and org_id = $1 and id <= $2 order by id desc")
    };
    // From an index of each org's ids. Asked for between two places in it, the page is in the order of no
    // other index: that of all ids would be searched through for those of a small org.
    (by_org $page:literal) => {
        list_sql!(
            $page,
            "and (org_id, id) <= ($1, $2)
             and (org_id, id) >= ($1, uuid '00000000-0000-0000-0000-000000000000')
             order by org_id desc, id desc"
        )
    };
    ($page:literal, $order:literal) => {
        concat!(
            "with page as materialized (",
            $page,
            $order,
            " limit $5) select ",
            item_columns!(),
            " from (select id as listed from page) as page
              cross join lateral (
                  select * from {schema}.work_items where id = listed and org_id = $1 limit 1
              ) as item
              order by id desc"
        )
    };
}

pub(super) const LIST: &str = list_sql!(
    by_org "select id from {schema}.items
     where ($3::text is null or lane = $3) and ($4::text is null or kind = $4) "
);

/// Reads what waits from the highest id down, every org's. An index in the order of the page would cost
/// every item an insert and a delete, for a list that a person looks at now and then.
pub(super) const LIST_QUEUED: &str = list_sql!(
    "select id from {schema}.ready
     where ($3::text is null or lane = $3) and ($4::text is null or kind = $4) "
);

/// Of all claims, which are few. What an item says is asked for as a value: of an `exists` the server may
/// make a table of all items.
pub(super) const LIST_CLAIMED: &str = list_sql!(
    "select id from {schema}.claims
     where ($3::text is null or lane = $3)
       and ($4::text is null or $4 = (
           select kind from {schema}.items where items.id = claims.id)) "
);

/// Passes over what is not done: less than what is, but for a queue that cannot keep up.
pub(super) const LIST_DONE: &str = list_sql!(
    by_org "select id from {schema}.items
     cross join lateral (
         select from {schema}.ends where ends.id = items.id and is_done limit 1
     ) as done
     where ($3::text is null or lane = $3) and ($4::text is null or kind = $4) "
);

pub(super) const LIST_FAILED: &str = list_sql!(
    by_org "select id from {schema}.ends
     where not is_done
       and (($3::text is null and $4::text is null) or (
           select ($3 is null or lane = $3) and ($4 is null or kind = $4)
           from {schema}.items where items.id = ends.id)) "
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

pub(super) async fn list(
    store: &PostgresStore,
    org: OrgId,
    filter: &Filter,
    page: Page,
) -> Answer<Vec<WorkItem>> {
    let statement = match filter.status {
        None => LIST,
        Some(Status::Queued) => LIST_QUEUED,
        Some(Status::Claimed) => LIST_CLAIMED,
        Some(Status::Done) => LIST_DONE,
        Some(Status::Failed) => LIST_FAILED,
    };
    let Some(highest) = highest(page) else {
        return Ok(Vec::new());
    };
    let lane = filter.lane.as_ref().map(Lane::as_str);
    let kind = filter.kind.as_ref().map(Kind::as_str);
    let limit = i64::from(page.limit.min(LIST_MAX));
    let rows = store
        .of_org(org)
        .query(statement, &[&org.as_uuid(), &highest, &lane, &kind, &limit])
        .await?;
    rows::items(&rows)
}

/// The highest id that the page may show. None if there is none below where it begins.
fn highest(page: Page) -> Option<Uuid> {
    let Some(before) = page.before else {
        return Some(Uuid::max());
    };
    before
        .as_uuid()
        .as_u128()
        .checked_sub(1)
        .map(Uuid::from_u128)
}
