//! Runs each example as its reader would, and holds the README to the same text.

#[cfg(test)]
#[path = "../../../crates/leasehold-postgres/tests/it/cluster.rs"]
mod cluster;
#[cfg(test)]
#[path = "../../../crates/leasehold-postgres/tests/it/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const README: &str = include_str!("../../../README.md");
const QUICKSTART: &str = include_str!("../../quickstart.rs");

#[test]
fn the_readme_shows_the_quickstart_to_the_letter() {
    let (_, shown) = QUICKSTART.split_once("\n\nuse ").unwrap();
    let block = format!("```rust\nuse {shown}```");
    assert!(
        README.contains(&block),
        "the README's example and quickstart.rs have parted"
    );
}

#[test]
fn every_file_that_the_readme_names_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let links = README
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let files: Vec<&str> = links.filter(|link| !link.starts_with("http")).collect();
    assert!(files.len() > 10, "the table of guarantees links its tests");
    for file in files {
        assert!(
            root.join(file).exists(),
            "README.md links {file}, which is not there"
        );
    }
}

#[test]
fn real_process_the_quickstart_runs_its_item_once_and_drains_on_term() {
    let folder = tempfile::tempdir().unwrap();
    let run = || {
        let mut child = Command::new(env!("CARGO_BIN_EXE_quickstart"))
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        (child, output)
    };
    let (mut child, mut output) = run();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "welcoming user 7, attempt 1\n");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success(), "it drains and ends well");
}

/// In a database of its own: the example uses the schema that everybody's queue is in.
#[tokio::test]
async fn an_invoice_and_its_work_are_there_together() {
    let Ok(shared) = cluster::shared() else {
        return;
    };
    let (admin, connection) = tokio_postgres::connect(&shared.address, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let name = format!("leasehold_example_{}", std::process::id());
    let create = format!("create database {name}");
    admin.batch_execute(&create).await.unwrap();
    let joint = if shared.address.contains('?') {
        '&'
    } else {
        '?'
    };
    let run = || {
        let output = Command::new(env!("CARGO_BIN_EXE_transactional_enqueue"))
            .env(
                "DATABASE_URL",
                format!("{}{joint}dbname={name}", shared.address),
            )
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(), "invoice 7: inserted\nqueued\n");
    assert_eq!(run(), "invoice 7: key_exists\nqueued\n");
    if shared.is_given {
        let away = format!("drop database {name} with (force)");
        admin.batch_execute(&away).await.unwrap();
    }
}
