//! Lists of an org's items, of which a call looks at so many and no more.

use leasehold_core::store::work::{Filter, LIST_MAX, Listed, Page};
use leasehold_core::{ItemId, Kind, Lane, OrgId, Status};
use uuid::Uuid;

use crate::error::Answer;
use crate::funnel::Statements as _;
use crate::rows::{Columns, item_columns};
use crate::store::PostgresStore;

// The statements of a list.
//
// The ids of the page are picked first; then each item is looked up, one by one, so that no estimate of how
// many there are can turn the look-ups into a pass over whole tables. A statement answers a row for each
// item, or one of nulls, and before it the lowest id that was looked at, where that is not the end.
//
// Parameters: org, highest id, lane or null, kind or null, how many.

/// [`LIST_READ_MAX`](leasehold_core::store::work::LIST_READ_MAX), in the text of a statement.
macro_rules! looks {
    () => {
        "10000"
    };
}

/// The items of the org that a call may look at, in the order of an index of orgs and ids. Asked for between
/// two places in it, they are in the order of no other index: that of all ids would be searched through for
/// those of a small org. How many they are is no constant to the server: where it believes that there are
/// fewer, it would read and sort them all.
macro_rules! looked {
    ($columns:literal, $from:literal) => {
        concat!(
            "(select org_id, id, ",
            $columns,
            " from ",
            $from,
            " and org_id <= $1 and org_id >= $1 and (org_id, id) <= ($1, $2)
              and (org_id, id) >= ($1, uuid '00000000-0000-0000-0000-000000000000')
              order by org_id desc, id desc limit (select ",
            looks!(),
            ")) as looked "
        )
    };
}

macro_rules! of_items {
    () => {
        looked!("lane, kind", "{schema}.items where true")
    };
}

macro_rules! of_failed {
    () => {
        looked!("is_done", "{schema}.ends where not is_done")
    };
}

/// What passes the filter, where lane and kind are at hand.
macro_rules! passes {
    () => {
        "($3::text is null or lane = $3) and ($4::text is null or kind = $4) "
    };
}

macro_rules! list_sql {
    (walk $looked:expr, $if:expr) => {
        list_sql!(
            "",
            concat!(
                "select id from ",
                $looked,
                $if,
                " order by org_id desc, id desc limit $5"
            ),
            $looked,
            ""
        )
    };
    // A table of another order is read through while it is small, for most of what is looked for has left it.
    // Its size is asked of the server's files: no statement can stop reading what the fence hides.
    (through $table:literal, $bytes:literal, $if:expr) => {
        list_sql!(
            concat!(
                "size as materialized (
                     select pg_catalog.pg_relation_size('{schema}.",
                $table,
                "'::regclass) <= ",
                $bytes,
                " as is_small), "
            ),
            concat!(
                "(select id from {schema}.",
                $table,
                " where org_id = $1 and id <= $2 and (select is_small from size) and ",
                $if,
                " order by id desc limit $5)
                union all
                (select id from ",
                of_items!(),
                " cross join lateral (
                      select from {schema}.",
                $table,
                " where id = looked.id limit 1
                  ) as here
                  where not (select is_small from size) and ",
                passes!(),
                " order by org_id desc, id desc limit $5)"
            ),
            of_items!(),
            " and not (select is_small from size)"
        )
    };
    ($size:expr, $page:expr, $looked:expr, $is_walked:literal) => {
        concat!(
            "with ",
            $size,
            "page as materialized (",
            $page,
            "), looked_to (lowest) as materialized (
                 select id from ",
            $looked,
            " where (select count(*) from page) < $5",
            $is_walked,
            " order by org_id desc, id desc offset ",
            looks!(),
            " - 1 limit 1
             ) select lowest, ",
            item_columns!(),
            " from (select) as answer
              left join (
                  select item.* from (select id as listed from page) as page
                  cross join lateral (
                      select * from {schema}.work_items where id = listed and org_id = $1 limit 1
                  ) as item
              ) as item on true
              left join looked_to on true
              order by id desc"
        )
    };
}

const LIST: &str = list_sql!(walk of_items!(), concat!("where ", passes!()));

const LIST_DONE: &str = list_sql!(
    walk of_items!(),
    concat!(
        "cross join lateral (
             select from {schema}.ends where ends.id = looked.id and is_done limit 1
         ) as done
         where ",
        passes!()
    )
);

const LIST_FAILED: &str = list_sql!(
    walk of_failed!(),
    "where ($3::text is null and $4::text is null) or (
         select ($3 is null or lane = $3) and ($4 is null or kind = $4)
         from {schema}.items where items.id = looked.id)"
);

/// An index in the order of the page would cost every item an insert and a delete, for a list that a person
/// looks at now and then. So many bytes of `ready`
/// hold fewer rows than a list may look at.
const LIST_QUEUED: &str = list_sql!(through "ready", "1310720", passes!());

/// Of all claims, which are as many as workers have room for: of so many bytes most are rows that ended. What
/// an item says is asked for as a value: of an `exists` the server may make a table of all items.
const LIST_CLAIMED: &str = list_sql!(
    through "claims",
    "8388608",
    "($3::text is null or lane = $3)
     and ($4::text is null or $4 = (
         select kind from {schema}.items where items.id = claims.id))"
);

pub(super) async fn list(
    store: &PostgresStore,
    org: OrgId,
    filter: &Filter,
    page: Page,
) -> Answer<Listed> {
    let statement = match filter.status {
        None => LIST,
        Some(Status::Queued) => LIST_QUEUED,
        Some(Status::Claimed) => LIST_CLAIMED,
        Some(Status::Done) => LIST_DONE,
        Some(Status::Failed) => LIST_FAILED,
    };
    let Some(highest) = highest(page) else {
        return Ok(Listed::default());
    };
    let lane = filter.lane.as_ref().map(Lane::as_str);
    let kind = filter.kind.as_ref().map(Kind::as_str);
    let limit = page.limit.min(LIST_MAX);
    let rows = store
        .of_org(org)
        .query(
            statement,
            &[&org.as_uuid(), &highest, &lane, &kind, &i64::from(limit)],
        )
        .await?;
    let mut items = Vec::with_capacity(rows.len());
    let mut looked_to = None;
    for row in &rows {
        let mut columns = Columns::of(row);
        looked_to = columns.plain::<Option<Uuid>>()?.map(ItemId::from);
        if !columns.is_null()? {
            items.push(columns.item()?.1);
        }
    }
    Ok(Listed::new(items, limit, looked_to))
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
