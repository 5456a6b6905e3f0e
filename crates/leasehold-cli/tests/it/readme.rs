//! The README's first screen does what it says.

use std::process::Command;

use crate::harness::{Place, ended};

const README: &str = include_str!("../../../../README.md");

/// What stands in the README's fenced blocks of that language, in their order.
#[cfg(test)]
fn blocks(language: &str) -> Vec<&'static str> {
    README
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

/// The handler and the commands, run by a shell as they stand there but for installing the command.
#[test]
fn a_queue_with_a_python_handler_from_nothing_real_process() {
    if Command::new("python3").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no python3 on this machine"
        );
        return;
    }
    let place = Place::new();
    place.file("hello.py", blocks("python")[0]);
    let commands: Vec<&str> = blocks("sh")[0]
        .lines()
        .filter(|line| line.starts_with("leasehold "))
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let binary = env!("CARGO_BIN_EXE_leasehold");
        let line = command.replacen("leasehold", &format!("exec '{binary}'"), 1);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let output = Command::new("timeout")
            .args(["60", "sh", "-c", &line])
            .current_dir(place.path())
            .env_clear()
            .env("PATH", path)
            .output()
            .expect("a shell");
        let ended = ended(&output);
        assert_eq!(ended.code, 0, "{command}: {}", ended.talk);
    }
    let items = place.json(&["items", "list"]);
    let id = items["items"][0]["id"].as_str().expect("an item");
    let shown = place.json(&["items", "show", id, "--payload"]);
    let item = &shown["item"];
    assert_eq!(item["status"], "done", "{item}");
    assert_eq!(item["result"]["greeting"], "Hello, Ann!", "{item}");
}

#[test]
fn the_file_of_settings_is_one_that_is_accepted() {
    let place = Place::new();
    place.file("leasehold.toml", blocks("toml")[0]);
    let checked = place.run(&["config", "check"]);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.talk);
    assert_eq!(checked.talk, "", "a warning");
}
