//! A process that is killed while it writes: what it was told is kept, and the file is whole.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use leasehold_core::{ItemId, NewItem, WorkStore};
use leasehold_sqlite::Options;

use crate::harness::{Folder, ORG, item};

/// Where the child writes; set for it alone.
const PATH: &str = "LEASEHOLD_TEST_PATH";

/// How many answers the child gets before it is killed.
const ANSWERS: usize = 200;

#[test]
fn what_was_answered_survives_a_kill() {
    let folder = Folder::new();
    drop(folder.open());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "real_process::writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(PATH, &folder.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answered: Vec<ItemId> = std::iter::from_fn(|| lines.next())
        .filter_map(|line| line.unwrap().strip_prefix("stored ")?.parse().ok())
        .take(ANSWERS)
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answered.len(), ANSWERS, "the child ended early");

    let store = folder.open();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for id in answered {
        let row = runtime.block_on(store.get(ORG, id)).unwrap();
        assert!(row.is_some(), "{id} was answered and is gone");
    }
    let verdict: String = folder
        .outsider()
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .unwrap();
    assert_eq!(verdict, "ok");
}

/// The child of the test above. By itself it does nothing.
#[test]
fn writes_until_it_is_killed() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let folder = Folder::new();
    let store = leasehold_sqlite::open(path, Options::new(folder.clock.clone())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut out = std::io::stdout();
    // A bound for the case that nobody kills it.
    for _ in 0..100_000 {
        let new: NewItem = item(&folder.clock);
        let id = new.id;
        runtime.block_on(store.enqueue(ORG, vec![new])).unwrap();
        writeln!(out, "stored {id}").unwrap();
        out.flush().unwrap();
    }
}
