//! What can be opened, and what is refused with words that help.

use leasehold_core::StoreError;
use leasehold_sqlite::{OpenError, Options};
use rusqlite::Connection;

use crate::harness::{Folder, OneFile, insert};

fn refusal(path: &std::path::Path, options: Options) -> OpenError {
    leasehold_sqlite::open(path, options).expect_err("the file must be refused")
}

#[test]
fn a_file_that_is_not_there_is_refused_when_none_is_to_be_created() {
    let folder = Folder::new();
    let error = refusal(&folder.path, folder.options().without_creating());
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("leasehold.db"), "{error}");
    assert!(!folder.path.exists());
}

#[test]
fn what_no_two_connections_share_is_refused() {
    let folder = Folder::new();
    for path in [
        std::path::Path::new(":memory:"),
        "".as_ref(),
        folder.path.parent().unwrap(),
    ] {
        let error = refusal(path, folder.options());
        assert!(matches!(error, OpenError::NotAFile { .. }), "{error}");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let folder = Folder::new();
    std::fs::write(&folder.path, "lane = \"default\"\n".repeat(100)).unwrap();
    let error = refusal(&folder.path, folder.options());
    assert!(
        matches!(
            &error,
            OpenError::Unusable {
                source: StoreError::Failed(_),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("not a database"), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = Folder::new();
    let path = folder.path.with_file_name("absent").join("leasehold.db");
    let error = refusal(&path, folder.options());
    assert!(error.to_string().contains("absent"), "{error}");
}

#[tokio::test]
async fn the_file_outlives_the_store() {
    let OneFile { store, folder } = OneFile::new();
    insert(&store, &folder.clock).await;
    drop(store);
    let again = folder.open();
    let claimed = leasehold_core::WorkStore::claim(&*again, &crate::harness::request(10))
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
}

#[tokio::test]
async fn dropping_the_store_leaves_one_file() {
    let OneFile { store, folder } = OneFile::new();
    insert(&store, &folder.clock).await;
    drop(store);
    for suffix in ["-wal", "-shm"] {
        let mut name = folder.path.clone().into_os_string();
        name.push(suffix);
        assert!(
            !std::path::Path::new(&name).exists(),
            "{} is left",
            name.display()
        );
    }
}

#[test]
fn the_file_is_set_to_what_durability_needs() {
    let file = OneFile::new();
    let db = Connection::open(&file.folder.path).unwrap();
    let mode: String = db
        .query_row("PRAGMA journal_mode", (), |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_person_can_read_the_rows() {
    let OneFile { store, folder } = OneFile::new();
    insert(&store, &folder.clock).await;
    let db = folder.outsider();
    let row: (String, String, String) = db
        .query_row(
            "SELECT kind, status, created_at FROM work_items_text",
            (),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(
        row,
        (
            "NOOP".into(),
            "queued".into(),
            "2026-01-01 00:00:00.000".into()
        )
    );
}
