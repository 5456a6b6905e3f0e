//! The schema's versions: applied once whoever comes first, and refused if they are not ours.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use leasehold_core::Clock;
use leasehold_sqlite::{OpenError, migrate, status};

use crate::harness::Folder;

/// Opens the file, which must be refused for its schema, and answers why.
fn refusal(folder: &Folder) -> String {
    match leasehold_sqlite::open(&folder.path, folder.options()) {
        Err(error @ OpenError::Schema { .. }) => error.to_string(),
        other => panic!("not refused for its schema: {other:?}"),
    }
}

#[test]
fn a_fresh_file_has_every_migration() {
    let folder = Folder::new();
    drop(folder.open());
    let all = status(&folder.path, &folder.options()).unwrap();
    assert!(
        all.iter()
            .all(|one| one.applied_at == Some(folder.clock.now())),
        "{all:?}"
    );
    let versions: Vec<u32> = all.iter().map(|one| one.version).collect();
    assert_eq!(versions, (1..).take(all.len()).collect::<Vec<u32>>());
    assert_eq!(all[0].name, "work");
    assert!(
        all[0].sql.contains("CREATE TABLE work_items"),
        "{}",
        all[0].sql
    );
    assert_eq!(
        all[0].took,
        Some(Duration::ZERO),
        "by the clock that stands still"
    );
}

#[test]
fn migrating_is_a_step_of_its_own_and_is_done_once() {
    let folder = Folder::new();
    let applied = migrate(&folder.path, &folder.options()).unwrap();
    assert_eq!(applied.first(), Some(&1));
    assert!(migrate(&folder.path, &folder.options()).unwrap().is_empty());
    leasehold_sqlite::open(&folder.path, folder.options().without_migrating()).unwrap();
}

#[test]
fn asking_for_the_status_changes_nothing() {
    let folder = Folder::new();
    folder
        .outsider()
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    let all = status(&folder.path, &folder.options()).unwrap();
    assert!(all.iter().all(|one| one.applied_at.is_none()), "{all:?}");
    let tables: i64 = folder
        .outsider()
        .query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))
        .unwrap();
    assert_eq!(tables, 1);
}

#[test]
fn an_old_schema_is_refused_where_it_is_not_to_be_migrated() {
    let folder = Folder::new();
    folder
        .outsider()
        .execute_batch("CREATE TABLE theirs (x)")
        .unwrap();
    let error = leasehold_sqlite::open(&folder.path, folder.options().without_migrating());
    let text = error.expect_err("it has no schema").to_string();
    assert!(
        text.contains("at version 0") && text.contains("leasehold migrate"),
        "{text}"
    );
}

#[test]
fn the_applications_own_tables_are_left_alone() {
    let folder = Folder::new();
    folder
        .outsider()
        .execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (7)")
        .unwrap();
    drop(folder.open());
    let x: i64 = folder
        .outsider()
        .query_row("SELECT x FROM theirs", (), |row| row.get(0))
        .unwrap();
    assert_eq!(x, 7);
}

#[test]
fn a_migration_from_another_text_is_refused() {
    let folder = Folder::new();
    drop(folder.open());
    folder
        .outsider()
        .execute(
            "UPDATE leasehold_migrations SET checksum = 'other' WHERE version = 2",
            (),
        )
        .unwrap();
    let text = refusal(&folder);
    assert!(
        text.contains("migration 2 (tenancy)") && text.contains("other"),
        "{text}"
    );
    assert!(status(&folder.path, &folder.options()).is_err());
}

#[test]
fn a_newer_schema_is_refused_naming_both_versions() {
    let folder = Folder::new();
    drop(folder.open());
    let known = status(&folder.path, &folder.options()).unwrap().len();
    folder
        .outsider()
        .execute(
            "INSERT INTO leasehold_migrations VALUES (900, 'later', 'x', 0, 0)",
            (),
        )
        .unwrap();
    let text = refusal(&folder);
    assert!(text.contains("at version 900"), "{text}");
    assert!(
        text.contains(&format!("up to {known}")) && text.contains("upgrade"),
        "{text}"
    );
}

#[test]
fn a_gap_is_refused() {
    let folder = Folder::new();
    drop(folder.open());
    folder
        .outsider()
        .execute("DELETE FROM leasehold_migrations WHERE version = 1", ())
        .unwrap();
    assert!(refusal(&folder).contains("migration 1 is missing"));
}

#[test]
fn a_migration_that_fails_leaves_nothing_of_itself() {
    let folder = Folder::new();
    folder
        .outsider()
        .execute_batch("CREATE TABLE orgs (theirs)")
        .unwrap();
    let error = leasehold_sqlite::open(&folder.path, folder.options());
    let text = error.expect_err("the name is taken").to_string();
    assert!(text.contains("migration 2 (tenancy)"), "{text}");
    let all = status(&folder.path, &folder.options()).unwrap();
    let applied: Vec<u32> = all
        .iter()
        .filter(|one| one.applied_at.is_some())
        .map(|one| one.version)
        .collect();
    assert_eq!(applied, [1]);
}

#[test]
fn of_many_who_open_a_fresh_file_at_once_each_succeeds() {
    const OPENERS: usize = 8;
    let folder = Folder::new();
    let start = Barrier::new(OPENERS);
    thread::scope(|scope| {
        for _ in 0..OPENERS {
            scope.spawn(|| {
                start.wait();
                folder.open()
            });
        }
    });
    let all = status(&folder.path, &folder.options()).unwrap();
    assert!(all.iter().all(|one| one.applied_at.is_some()), "{all:?}");
}
