//! The writer alone, over statements of the tests' own: what a failing commit and a full disk do.

use std::future::Future;
use std::path::Path;

use futures_util::future::join_all;
use leasehold_core::ManualClock;
use tempfile::TempDir;

use super::*;

/// A writer on a file of its own, whose schema may be anything.
struct Fixture {
    writer: Writer,
    outsider: Connection,
    folder: TempDir,
}

fn connection(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "journal_mode", "WAL").unwrap();
    db.pragma_update(None, "foreign_keys", true).unwrap();
    db
}

impl Fixture {
    fn new(schema: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("writer.db");
        let db = connection(&path);
        db.execute_batch(schema).unwrap();
        let clock = Arc::new(ManualClock::default());
        let writer = Writer::start(db, clock, Arc::new(Board::default())).unwrap();
        Self {
            writer,
            outsider: connection(&path),
            folder,
        }
    }

    /// Runs the calls while the file is locked, so that all wait before the first is applied.
    async fn gathered<T>(&self, calls: impl Future<Output = T>) -> T {
        self.outsider.execute_batch("BEGIN IMMEDIATE").unwrap();
        let release = async { self.outsider.execute_batch("COMMIT").unwrap() };
        tokio::join!(biased; calls, release).0
    }

    async fn execute(&self, rows: usize, sql: &'static str) -> StoreResult<usize> {
        self.writer
            .call(Urgency::Ordinary, rows, move |unit| unit.execute(sql, ()))
            .await
    }

    fn count(&self) -> i64 {
        self.outsider
            .query_row("SELECT count(*) FROM kept", (), |row| row.get(0))
            .unwrap()
    }
}

#[tokio::test]
async fn a_commit_that_fails_is_answered_to_all() {
    let fixture = Fixture::new(
        "CREATE TABLE kept (n INTEGER PRIMARY KEY);
         CREATE TABLE child (n REFERENCES kept DEFERRABLE INITIALLY DEFERRED);",
    );
    let answers = fixture
        .gathered(async {
            tokio::join!(
                biased;
                fixture.execute(1, "INSERT INTO kept VALUES (1)"),
                fixture.execute(1, "INSERT INTO child VALUES (7)"),
                fixture.execute(1, "INSERT INTO kept VALUES (2)"),
            )
        })
        .await;
    for answer in [answers.0, answers.1, answers.2] {
        assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    }
    assert_eq!(fixture.count(), 0);
    assert_eq!(
        fixture.writer.stats(),
        Stats {
            commits: 0,
            operations: 3
        }
    );

    fixture
        .execute(1, "INSERT INTO kept VALUES (3)")
        .await
        .unwrap();
    assert_eq!(fixture.count(), 1);
}

#[tokio::test]
async fn a_full_disk_undoes_its_call_and_the_next_goes_on() {
    let fixture =
        Fixture::new("CREATE TABLE kept (n); CREATE TABLE filler (b); PRAGMA max_page_count = 20;");
    let answers = fixture
        .gathered(async {
            tokio::join!(
                biased;
                fixture.execute(1, "INSERT INTO kept VALUES (1)"),
                fixture.execute(1, "INSERT INTO filler VALUES (zeroblob(1000000))"),
            )
        })
        .await;
    assert!(
        matches!(answers.1, Err(StoreError::Unavailable(_))),
        "{answers:?}"
    );
    // Whether SQLite gives up the whole transaction is its choice; the answer says which.
    assert_eq!(fixture.count(), i64::from(answers.0.is_ok()));

    fixture
        .execute(1, "INSERT INTO kept VALUES (2)")
        .await
        .unwrap();
    assert_eq!(fixture.count(), 1 + i64::from(answers.0.is_ok()));
}

#[tokio::test]
async fn a_transaction_is_bounded_in_rows() {
    let fixture = Fixture::new("CREATE TABLE kept (n)");
    let calls = (0..4).map(|_| fixture.execute(ROWS_MAX / 2, "INSERT INTO kept VALUES (1)"));
    let answers = fixture.gathered(join_all(calls)).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(
        fixture.writer.stats(),
        Stats {
            commits: 2,
            operations: 4
        }
    );
}

#[tokio::test]
async fn more_calls_than_the_queue_holds_are_all_answered() {
    let fixture = Fixture::new("CREATE TABLE kept (n)");
    let calls = (0..3 * WAITING_MAX).map(|_| fixture.execute(1, "INSERT INTO kept VALUES (1)"));
    let answers = join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(fixture.count(), 3 * i64::try_from(WAITING_MAX).unwrap());
}

#[tokio::test]
async fn nothing_is_written_to_a_file_that_others_no_longer_find() {
    let fixture = Fixture::new("CREATE TABLE kept (n INTEGER)");
    let insert = || fixture.execute(1, "INSERT INTO kept VALUES (1)");
    assert_eq!(insert().await.unwrap(), 1);
    let path = fixture.folder.path().join("writer.db");
    let aside = fixture.folder.path().join("aside.db");
    std::fs::rename(&path, &aside).unwrap();
    let refused = insert().await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unavailable(why) if why.contains("deleted")),
        "{refused}"
    );
    // As who restores a backup does it.
    std::fs::copy(&aside, &path).unwrap();
    let refused = insert().await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unavailable(why) if why.contains("another file")),
        "{refused}"
    );
    assert_eq!(fixture.count(), 1);
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(insert().await.unwrap(), 1, "it is its own file again");
}
