//! How SQLite goes about each statement: none reads the table through, however large it grows.

use std::sync::Arc;

use leasehold_core::ManualClock;
use leasehold_core::store::work::LIST_READ_MAX;
use rusqlite::{Connection, StatementStatus};

use super::{claim, inspect, list, operate, settle, sweep};
use crate::rows::item_columns;
use crate::{Options, migrations};

/// Partial indexes that hold only what is under way or owed: reading one through is cheap.
const SMALL: &[&str] = &["work_items_claimed", "work_items_unaudited"];

fn migrated() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    let options = Options::new(Arc::new(ManualClock::default()));
    migrations::apply(&db, &*options.clock).unwrap();
    db
}

/// The steps of the plan, as SQLite words them.
fn plan(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = vec![rusqlite::types::Null; statement.parameter_count()];
    let steps = statement
        .query_map(rusqlite::params_from_iter(parameters), |row| {
            row.get("detail")
        })
        .unwrap();
    steps.map(Result::unwrap).collect()
}

#[track_caller]
fn assert_searches(db: &Connection, sql: &str) {
    let steps = plan(db, sql);
    let of_table: Vec<&String> = steps
        .iter()
        .filter(|step| step.contains("work_items"))
        .collect();
    assert!(!of_table.is_empty(), "{sql}\nplan: {steps:#?}");
    for step in of_table {
        let is_small_scan = step.starts_with("SCAN work_items")
            && SMALL
                .iter()
                .any(|index| step.contains(&format!("INDEX {index}")));
        assert!(
            step.starts_with("SEARCH work_items USING") || is_small_scan,
            "{sql}\nplan: {steps:#?}"
        );
    }
}

#[track_caller]
fn assert_does_not_sort(db: &Connection, sql: &str) {
    let steps = plan(db, sql);
    assert!(
        !steps.iter().any(|step| step.contains("B-TREE")),
        "{sql}\nplan: {steps:#?}"
    );
}

#[test]
fn a_claim_seeks_in_the_queue_and_takes_its_order_from_it() {
    let db = migrated();
    for sql in [claim::NEXT_PRIORITY, claim::DUE, claim::DUE_EXCEPT] {
        assert_searches(&db, sql);
        assert_does_not_sort(&db, sql);
        let steps = plan(&db, sql);
        assert!(
            steps[0].contains("INDEX work_items_queue (lane=? AND kind=?"),
            "{steps:#?}"
        );
    }
    let due = plan(&db, claim::DUE);
    assert!(
        due[0].contains("available_at<?"),
        "it reads on past what is due: {due:#?}"
    );
    for sql in [claim::HELD, claim::TAKE, claim::CLAIMS] {
        assert_searches(&db, sql);
    }
}

#[test]
fn a_holder_finds_its_row_by_id() {
    let db = migrated();
    for sql in [
        settle::RENEW,
        settle::COMPLETE,
        settle::RETRY,
        settle::BURY,
        settle::GIVE_BACK,
        settle::SETTLED_BY,
        settle::LANE,
        settle::FAIL_ORPHANED,
    ] {
        assert_searches(&db, sql);
        let steps = plan(&db, sql);
        assert!(
            steps[0].contains("work_items_id (id=?)"),
            "{sql}\nplan: {steps:#?}"
        );
    }
}

#[test]
fn the_sweep_reads_what_is_under_way_owed_or_old_enough() {
    let db = migrated();
    for sql in [
        sweep::STALE,
        sweep::MOVE,
        sweep::READ,
        sweep::MARK_AUDITED,
        sweep::PURGE,
    ] {
        assert_searches(&db, sql);
    }
    for sql in [inspect::MAINTENANCE_DUE, inspect::UNAUDITED] {
        assert_searches(&db, sql);
    }
    assert_does_not_sort(&db, sweep::PURGE);
    assert_does_not_sort(&db, inspect::UNAUDITED);
}

#[test]
fn operators_find_items_and_pages_by_index() {
    let db = migrated();
    for sql in [
        operate::CANCEL_QUEUED,
        operate::REQUEST_CANCEL,
        operate::RETRY,
        inspect::BY_ID,
        inspect::BY_ID_OF_ORG,
        inspect::BY_KEY,
    ] {
        assert_searches(&db, sql);
    }
    for sql in [
        list::PAGE,
        list::PAGE_QUEUED,
        list::PAGE_CLAIMED,
        list::PAGE_DONE,
        list::PAGE_FAILED,
        list::FLOOR,
        list::FLOOR_FAILED,
    ] {
        assert_searches(&db, sql);
        assert_does_not_sort(&db, sql);
    }
}

#[test]
fn a_page_of_what_is_under_way_is_picked_in_its_index_alone() {
    let db = migrated();
    for (whole, index) in [
        (list::WAITING, "work_items_queue"),
        (list::WAITING_ON_LANE, "work_items_queue (lane=?"),
        (list::WAITING_OF_KIND, "work_items_queue (lane=? AND kind=?"),
        (list::HELD, "work_items_claimed"),
    ] {
        for sql in [whole.page, whole.count] {
            let steps = plan(&db, sql);
            assert!(steps.iter().any(|step| step.contains(index)), "{steps:#?}");
            let reads_table = |step: &String| {
                step.contains("work_items") && !step.contains("INDEX") && !step.contains("PRIMARY")
            };
            assert!(!steps.iter().any(reads_table), "{steps:#?}");
        }
    }
}

/// The steps of a list, with the parameters that it is asked with.
fn list_steps(db: &Connection, sql: &str, lane: &str, kind: Option<&str>) -> (i32, usize) {
    let mut statement = db.prepare(sql).unwrap();
    let org = unhexed(1);
    let above_all = vec![u8::MAX; 17];
    let floor: Vec<u8> = Vec::new();
    let params: [(&str, &dyn rusqlite::ToSql); 7] = [
        (":org", &org),
        (":before", &above_all),
        (":floor", &floor),
        (":lane", &lane),
        (":kind", &kind),
        (":limit", &20),
        (":looks", &LIST_READ_MAX),
    ];
    for (name, value) in params {
        if let Some(place) = statement.parameter_index(name).unwrap() {
            statement.raw_bind_parameter(place, value).unwrap();
        }
    }
    let mut found = 0;
    let mut rows = statement.raw_query();
    while rows.next().unwrap().is_some() {
        found += 1;
    }
    drop(rows);
    (statement.get_status(StatementStatus::VmStep), found)
}

fn unhexed(org: u8) -> Vec<u8> {
    let mut id = vec![0; 16];
    id[15] = org;
    id
}

#[test]
fn a_list_stops_looking_whatever_there_is() {
    let db = migrated();
    fill(&db, "COMMON", 1, 0..100_000);
    fill(&db, "RARE", 1, 0..3);
    let looks = i32::try_from(LIST_READ_MAX).unwrap();
    for sql in [
        list::FLOOR,
        list::FLOOR_FAILED,
        list::WAITING.count,
        list::WAITING_ON_LANE.count,
    ] {
        let (steps, _) = list_steps(&db, sql, "default", None);
        assert!(steps < 12 * looks, "{steps} steps: {sql}");
    }
    // What is rare is found in the queue where lane and kind are named.
    let kind = Some("RARE");
    let (steps, _) = list_steps(&db, list::WAITING_OF_KIND.count, "default", kind);
    assert!(steps < 100, "{steps} steps");
    let (_, found) = list_steps(&db, list::WAITING_OF_KIND.page, "default", kind);
    assert_eq!(found, 3);
}

#[test]
fn gauges_count_in_indexes_alone() {
    let db = migrated();
    for sql in [
        inspect::NEXT_GROUP,
        inspect::READY,
        inspect::DELAYED,
        inspect::DEAD,
    ] {
        let steps = plan(&db, sql);
        assert!(
            steps.iter().any(|step| step.contains("COVERING")),
            "{sql} reads the table: {steps:#?}"
        );
    }
    assert_searches(&db, inspect::CLAIMED);
}

#[test]
fn a_claim_reads_the_columns_in_the_order_in_which_they_are_decoded() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let head = format!("SELECT rowid, {} FROM", words(item_columns!()));
    assert!(words(claim::DUE).starts_with(&head), "{}", claim::DUE);
}

/// How many steps of its program SQLite takes for a claim's page, and how many rows it answers.
fn steps_and_rows(db: &Connection, sql: &str, parameters: impl rusqlite::Params) -> (i32, usize) {
    let mut statement = db.prepare(sql).unwrap();
    let mut rows = statement.query(parameters).unwrap();
    let mut found = 0;
    while rows.next().unwrap().is_some() {
        found += 1;
    }
    drop(rows);
    (statement.get_status(StatementStatus::VmStep), found)
}

/// Queued items by the number given, due at that microsecond.
fn fill(db: &Connection, kind: &str, org: u8, due: std::ops::Range<u32>) {
    let (from, to) = (due.start, due.end);
    db.execute(
        "WITH RECURSIVE number (n) AS (SELECT ?3 UNION ALL SELECT n + 1 FROM number WHERE n < ?4 - 1)
         INSERT INTO work_items (
            id, org_id, created_at, updated_at, created_by, updated_by, kind, target_id,
            idempotency_key, request_id, lane, priority, status, available_at, max_attempts, payload
         )
         SELECT randomblob(16), unhex(printf('%032X', ?2)), 0, 0, zeroblob(16),
            zeroblob(16), ?1, zeroblob(16), randomblob(16), zeroblob(16), 'default', 0, 'queued', n,
            3, '{}'
         FROM number",
        rusqlite::params![kind, org, from, to],
    )
    .unwrap();
}

#[test]
fn a_claim_costs_what_it_takes_whatever_waits_beside_it() {
    let db = migrated();
    fill(&db, "MINE", 1, 0..10);
    let due = |now: i64| {
        let before: &[u8] = &[];
        let parameters = rusqlite::params!["default", "MINE", 0, i64::MIN, before, now, 1_000];
        steps_and_rows(&db, claim::DUE, parameters)
    };
    let (alone, rows) = due(1_000);
    assert_eq!(rows, 10);
    // Delayed items of the kind, and due items of kinds that were not asked for, on either side.
    fill(&db, "MINE", 1, 2_000..22_000);
    fill(&db, "AAAA", 1, 0..20_000);
    fill(&db, "ZZZZ", 1, 0..20_000);
    let (beside, rows) = due(1_000);
    assert_eq!(rows, 10);
    // One more look may be needed to see that the next is not due.
    assert!(beside <= alone + 10, "{beside} steps, and {alone} alone");
}

#[test]
fn tenants_at_their_cap_are_passed_over_without_reading_their_rows() {
    let db = migrated();
    fill(&db, "MINE", 1, 0..20_000);
    fill(&db, "MINE", 2, 20_000..20_010);
    let full = format!("[\"{:032x}\"]", 1);
    let before: &[u8] = &[];
    let parameters =
        rusqlite::params!["default", "MINE", 0, i64::MIN, before, 100_000, 1_000, full];
    let (steps, rows) = steps_and_rows(&db, claim::DUE_EXCEPT, parameters);
    assert_eq!(rows, 10);
    // Sixteen for each entry of the index that is passed over; a row's columns alone are thirty.
    assert!(steps < 20_000 * 20, "{steps} steps");
}
