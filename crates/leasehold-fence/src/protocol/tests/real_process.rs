//! The page for authors of handlers tells the truth, and its examples run.

use std::process::{Command, Stdio};

use super::*;

const PAGE: &str = include_str!("../../../../../docs/protocol.md");

#[test]
fn the_page_names_everything() {
    let limits = [
        "131,056 bytes",
        "131,072 bytes",
        "2,048 bytes",
        "128 levels",
    ];
    let names = PROTOCOL_VARIABLES
        .into_iter()
        .chain(RESERVED_NAMES)
        .chain(crate::INHERITED)
        .chain([crate::INHERITED_PREFIX, PROGRESS_PREFIX])
        .chain(limits);
    for name in names {
        assert!(PAGE.contains(name), "{name} is not on the page");
    }
}

/// The first example of that language.
fn example(language: &str) -> &'static str {
    let (_, from) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    from.split_once("```").unwrap().0
}

/// Runs an example on a file, on a folder and on nothing.
fn check(interpreter: &str, language: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("three");
    std::fs::write(&file, "1\n2\n3\n").unwrap();
    let errors = RegisteredErrors::new([(
        "Unreadable",
        RegisteredError {
            level: Level::Warn,
            retryable: false,
        },
    )])
    .unwrap();

    let run = |path: &std::path::Path| {
        let request = serde_json::json!({ "path": path }).to_string();
        let delivery = deliver(request.as_bytes(), Channel::Environment).unwrap();
        let output = Command::new(interpreter)
            .args(["-c", example(language)])
            .env(REQUEST_VARIABLE, delivery.variable.unwrap())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let progress = output
            .stderr
            .split(|byte| *byte == b'\n')
            .find_map(Progress::parse);
        assert_eq!(progress.map(|progress| progress.percent), Some(50));
        let ending = Ending::Exited {
            code: output.status.code().unwrap(),
        };
        let stderr = crate::text::escape(&output.stderr);
        read(&ending, &output.stdout, &stderr, &errors, ResultRule::Json)
    };

    assert_eq!(
        run(&file),
        Answer::Done {
            result: Some("{\"lines\": 3}".to_owned())
        }
    );
    assert_eq!(
        run(&folder.path().join("four")),
        Answer::Parked {
            reason: "the file is not there yet".to_owned(),
            retry_after: Duration::from_mins(1),
        }
    );
    let error = failed(run(folder.path()));
    assert_eq!(
        (error.name.as_str(), error.level),
        ("Unreadable", Level::Warn)
    );
}

#[test]
fn the_example_in_shell_runs() {
    check("sh", "sh");
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn the_example_in_python_runs() {
    if Command::new("python3").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "the build machine has no python3"
        );
        eprintln!("skipped: there is no python3");
        return;
    }
    check("python3", "python");
}
