//! Every case of the suite is on the macro's list: one that is not would never run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_case_is_on_the_list() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = fs::read_to_string(src.join("contract/list.rs")).unwrap();
    let (_, list) = list
        .split_once("cases of $harness;")
        .expect("the macro's list");
    let mut subject = "";
    let mut listed = BTreeSet::new();
    for line in list
        .lines()
        .map(str::trim)
        .take_while(|line| !line.contains("=>"))
    {
        match line.strip_suffix(" {") {
            Some(name) => subject = name,
            None if line.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                && !line.is_empty() =>
            {
                assert!(
                    listed.insert(format!("{subject}::{line}")),
                    "{line} is listed twice"
                );
            }
            None => {}
        }
    }

    let mut written = BTreeSet::new();
    for entry in fs::read_dir(src.join("contract")).unwrap() {
        let path = entry.unwrap().path();
        let subject = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if subject == "fixture" || subject == "list" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let name = rest.split('(').next().unwrap();
                written.insert(format!("{subject}::{name}"));
            }
        }
    }
    assert!(written.len() > 200, "the cases were not found");
    assert_eq!(written, listed);
}
