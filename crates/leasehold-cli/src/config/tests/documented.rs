//! What is documented is what there is.

use std::collections::BTreeMap;

use super::read;
use crate::config::{kinds, postgres, schedules, show, step_functions, worker};

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

/// The rows of the tables: key, default.
fn documented() -> BTreeMap<String, String> {
    let rows = PAGE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let key = cells.next()?.strip_suffix('`')?;
        Some((key.to_owned(), cells.next()?.trim_matches('`').to_owned()))
    });
    rows.collect()
}

#[test]
fn every_key_is_documented_and_every_documented_key_is_known() {
    let mut known = vec!["database".to_owned(), "lanes.LANE.capacity".to_owned()];
    known.extend(worker::names().iter().map(|name| format!("worker.{name}")));
    known.extend(postgres::keys().map(|key| format!("postgres.{key}")));
    for key in kinds::KEYS {
        match *key {
            "retry" => {
                let keys = kinds::RETRY_KEYS.iter();
                known.extend(keys.map(|key| format!("kinds.KIND.retry.{key}")));
            }
            "errors" => {
                let keys = kinds::ERROR_KEYS.iter();
                known.extend(keys.map(|key| format!("kinds.KIND.errors.NAME.{key}")));
            }
            key => known.push(format!("kinds.KIND.{key}")),
        }
    }
    let keys = step_functions::KEYS.iter();
    known.extend(keys.map(|key| format!("step_functions.{key}")));
    let keys = schedules::KEYS.iter();
    known.extend(keys.map(|key| format!("schedules.NAME.{key}")));
    known.sort();
    assert_eq!(documented().into_keys().collect::<Vec<_>>(), known);
}

#[test]
fn the_documented_defaults_are_the_defaults() {
    let config = read("[kinds.KIND]\ncommand = [\"a\"]", &[]).expect("settings");
    let documented = documented();
    for line in show::lines(&config) {
        if line.key == "kinds.KIND.command" {
            continue;
        }
        let default = match &line.value {
            serde_json::Value::Null => "none".to_owned(),
            value => value.to_string(),
        };
        let told = documented.get(&line.key);
        assert_eq!(
            told.map(|told| told.replace(", ", ",")),
            Some(default),
            "{}",
            line.key
        );
    }
}

#[test]
fn the_documented_defaults_of_tasks_are_the_defaults() {
    let file = "[kinds.KIND]\ncommand = [\"a\"]\n[step_functions]\nqueue = \"https://q\"";
    let config = read(file, &[]).expect("settings");
    let documented = documented();
    let lines = show::lines(&config);
    let of_tasks = lines
        .iter()
        .filter(|line| line.key.starts_with("step_functions."));
    for line in of_tasks.filter(|line| line.key != "step_functions.queue") {
        let default = match &line.value {
            serde_json::Value::Null => "none".to_owned(),
            value => value.to_string(),
        };
        assert_eq!(documented.get(&line.key), Some(&default), "{}", line.key);
    }
}

#[test]
fn the_example_of_the_page_is_fine() {
    let examples: Vec<&str> = PAGE
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        assert!(
            read(example, &[]).is_ok(),
            "{:#?}",
            read(example, &[]).err()
        );
    }
}
