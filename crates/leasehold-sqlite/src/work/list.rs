//! Lists of an org's items, of which a call looks at so many and no more.

use leasehold_core::store::work::{Filter, LIST_MAX, LIST_READ_MAX, Listed, Page};
use leasehold_core::{ItemId, Kind, Lane, OrgId, Status, WorkItem};
use rusqlite::{Connection, Statement, ToSql};

use crate::error::Answer;
use crate::rows::{self, Columns, bytes, item_columns};

/// The statements of a list that looks at the org's items in the order of their ids, down to the lowest
/// of those that one call may look at: of all items, or, among much that is done, of those that failed.
macro_rules! walk_sql {
    ($index:literal, $status:literal) => {
        concat!(
            "SELECT ",
            item_columns!(),
            " FROM work_items INDEXED BY ",
            $index,
            " WHERE ",
            $status,
            " AND org_id = :org AND id < :before AND id >= :floor
              AND (:lane IS NULL OR lane = :lane) AND (:kind IS NULL OR kind = :kind)
              ORDER BY id DESC LIMIT :limit"
        )
    };
}

/// The statements for the lowest id that one call may look at, if there are any below it.
macro_rules! floor_sql {
    ($index:literal, $status:literal) => {
        concat!(
            "SELECT id FROM work_items INDEXED BY ",
            $index,
            " WHERE ",
            $status,
            " AND org_id = :org AND id < :before
              ORDER BY id DESC LIMIT 1 OFFSET :looks - 1"
        )
    };
}

/// Where a list of an org's items looks, in the order of their ids.
struct Walk {
    page: &'static str,
    floor: &'static str,
}

pub(super) const PAGE: &str = walk_sql!("work_items_org", "true");
pub(super) const PAGE_QUEUED: &str = walk_sql!("work_items_org", "status = 'queued'");
pub(super) const PAGE_CLAIMED: &str = walk_sql!("work_items_org", "status = 'claimed'");
pub(super) const PAGE_DONE: &str = walk_sql!("work_items_org", "status = 'done'");
pub(super) const PAGE_FAILED: &str = walk_sql!("work_items_failed", "status = 'failed'");
pub(super) const FLOOR: &str = floor_sql!("work_items_org", "true");
pub(super) const FLOOR_FAILED: &str = floor_sql!("work_items_failed", "status = 'failed'");

impl Walk {
    fn of(status: Option<Status>) -> Self {
        let page = match status {
            None => PAGE,
            Some(Status::Queued) => PAGE_QUEUED,
            Some(Status::Claimed) => PAGE_CLAIMED,
            Some(Status::Done) => PAGE_DONE,
            Some(Status::Failed) => PAGE_FAILED,
        };
        let floor = match status {
            Some(Status::Failed) => FLOOR_FAILED,
            _ => FLOOR,
        };
        Self { page, floor }
    }
}

/// The statements of a list that reads a small index through, which is in another order, of every org:
/// how many entries it has there, as far as one call may look, and the page of them.
macro_rules! whole_sql {
    ($index:literal, $status:literal, $these:literal) => {
        Whole {
            count: concat!(
                "SELECT count(*) FROM (SELECT 1 FROM work_items INDEXED BY ",
                $index,
                " WHERE ",
                $status,
                $these,
                " LIMIT :looks + 1)"
            ),
            page: concat!(
                "SELECT ",
                item_columns!(),
                " FROM work_items WHERE rowid IN (
                      SELECT rowid FROM work_items INDEXED BY ",
                $index,
                " WHERE ",
                $status,
                $these,
                " AND org_id = :org AND id < :before
                      AND (:lane IS NULL OR lane = :lane) AND (:kind IS NULL OR kind = :kind)
                      ORDER BY id DESC LIMIT :limit)
                  ORDER BY id DESC"
            ),
        }
    };
}

/// What a list reads through if it is small.
pub(super) struct Whole {
    pub(super) count: &'static str,
    pub(super) page: &'static str,
}

/// What waits: an index in the order of the page would cost every item an insert and a delete, for a list
/// that a person looks at now and then.
pub(super) const WAITING: Whole = whole_sql!("work_items_queue", "status = 'queued'", "");
pub(super) const WAITING_ON_LANE: Whole =
    whole_sql!("work_items_queue", "status = 'queued'", " AND lane = :lane");
pub(super) const WAITING_OF_KIND: Whole = whole_sql!(
    "work_items_queue",
    "status = 'queued'",
    " AND lane = :lane AND kind = :kind"
);
pub(super) const HELD: Whole = whole_sql!("work_items_claimed", "status = 'claimed'", "");

impl Whole {
    fn of(filter: &Filter) -> Option<Self> {
        match filter.status? {
            Status::Queued if filter.lane.is_none() => Some(WAITING),
            Status::Queued if filter.kind.is_none() => Some(WAITING_ON_LANE),
            Status::Queued => Some(WAITING_OF_KIND),
            Status::Claimed => Some(HELD),
            Status::Done | Status::Failed => None,
        }
    }
}

pub(super) fn list(db: &Connection, org: OrgId, filter: &Filter, page: Page) -> Answer<Listed> {
    // One snapshot, so that nothing moves between finding out how far to look and looking.
    let snapshot = db.unchecked_transaction()?;
    let listed = Look::new(org, filter, page).list(db)?;
    snapshot.rollback()?;
    Ok(listed)
}

/// The parameters of a list.
struct Look<'f> {
    org: OrgId,
    before: Vec<u8>,
    filter: &'f Filter,
    limit: u32,
}

impl<'f> Look<'f> {
    fn new(org: OrgId, filter: &'f Filter, page: Page) -> Self {
        // One byte more than any id: above them all.
        let above_all = || vec![u8::MAX; 17];
        let before = page.before.map(|id| bytes(id.as_uuid()).to_vec());
        Self {
            org,
            before: before.unwrap_or_else(above_all),
            filter,
            limit: page.limit.min(LIST_MAX),
        }
    }

    fn list(&self, db: &Connection) -> Answer<Listed> {
        if let Some(whole) = Whole::of(self.filter) {
            let mut count = db.prepare_cached(whole.count)?;
            self.bind(&mut count, None)?;
            let entries: u32 = count.raw_query().next()?.map_or(Ok(0), |row| row.get(0))?;
            if entries <= LIST_READ_MAX {
                let items = self.items(db, whole.page, None)?;
                return Ok(Listed::new(items, self.limit, None));
            }
        }
        let walk = Walk::of(self.filter.status);
        let mut floor = db.prepare_cached(walk.floor)?;
        self.bind(&mut floor, None)?;
        let mut rows = floor.raw_query();
        let read = |row: &rusqlite::Row<'_>| Columns::of(row).uuid();
        let floor = rows.next()?.map(read).transpose()?.map(ItemId::from);
        Ok(Listed::new(
            self.items(db, walk.page, floor)?,
            self.limit,
            floor,
        ))
    }

    fn items(&self, db: &Connection, sql: &str, floor: Option<ItemId>) -> Answer<Vec<WorkItem>> {
        let mut statement = db.prepare_cached(sql)?;
        self.bind(&mut statement, floor)?;
        let mut rows = statement.raw_query();
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(rows::item(row)?.1);
        }
        Ok(found)
    }

    /// Gives the statement those of the parameters that it has.
    fn bind(&self, statement: &mut Statement<'_>, floor: Option<ItemId>) -> Answer<()> {
        let lane = self.filter.lane.as_ref().map(Lane::as_str);
        let kind = self.filter.kind.as_ref().map(Kind::as_str);
        let floor = floor.map_or(Vec::new(), |id| bytes(id.as_uuid()).to_vec());
        let params: [(&str, &dyn ToSql); 7] = [
            (":org", &bytes(self.org.as_uuid())),
            (":before", &self.before),
            (":floor", &floor),
            (":lane", &lane),
            (":kind", &kind),
            (":limit", &self.limit),
            (":looks", &LIST_READ_MAX),
        ];
        for (name, value) in params {
            if let Some(place) = statement.parameter_index(name)? {
                statement.raw_bind_parameter(place, value)?;
            }
        }
        Ok(())
    }
}
