//! Help, version, completions and usage errors.

use crate::harness::Place;

#[test]
fn version_and_help_are_data() {
    let place = Place::new();
    let version = place.run(&["--version"]);
    assert_eq!(version.code, 0);
    assert_eq!(
        version.out,
        concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n")
    );

    let help = place.run(&["--help"]);
    assert_eq!(help.code, 0);
    for word in [
        "demo",
        "enqueue",
        "items",
        "migrate",
        "health",
        "config",
        "observability",
        "completions",
        "Exit codes:",
    ] {
        assert!(help.out.contains(word), "{word}: {}", help.out);
    }
    assert!(!help.out.contains("demo-worker"), "{}", help.out);
    for (code, meaning) in [
        (0, "done"),
        (1, "failed"),
        (2, "usage"),
        (3, "no"),
        (4, "database"),
    ] {
        let line = help
            .out
            .lines()
            .find(|line| line.starts_with(&format!("  {code}  ")));
        assert!(line.is_some_and(|line| line.contains(meaning)), "{code}");
    }
}

#[test]
fn help_shows_variables_and_not_what_they_hold() {
    let place = Place::new();
    let output = place
        .command(&["enqueue", "--help"])
        .env("LEASEHOLD_DATABASE", "sqlite:secret-place.db")
        .env("LEASEHOLD_ENQUEUE_KEY", "secret-key")
        .output()
        .expect("the command");
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(help.contains("[env: LEASEHOLD_DATABASE]"), "{help}");
    assert!(help.contains("[env: LEASEHOLD_ENQUEUE_KEY]"), "{help}");
    assert!(!help.contains("secret"), "{help}");
}

#[test]
fn environment_variables_stand_in_for_flags() {
    let place = Place::new();
    let output = place
        .command(&["enqueue", "SEND"])
        .env("LEASEHOLD_DATABASE", "sqlite://other.db")
        .env("LEASEHOLD_ENQUEUE_LANE", "slow")
        .env("LEASEHOLD_JSON", "1")
        .output()
        .expect("the command");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(answer["item"]["lane"], "slow");
    assert!(place.path().join("other.db").exists());
}

#[test]
fn a_misspelt_command_is_a_usage_error_in_words_and_as_an_object() {
    let place = Place::new();
    let ended = place.run(&["itmes"]);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    assert!(
        ended.talk.contains("items"),
        "no suggestion: {}",
        ended.talk
    );

    let ended = place.run(&["items", "list", "--limit", "0", "--json"]);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    let answer: serde_json::Value = serde_json::from_str(&ended.talk).expect("an object");
    assert_eq!(answer["schema"], 1);
    assert_eq!(answer["error"]["exit"], 2);
    assert!(
        answer["error"]["what"]
            .as_str()
            .is_some_and(|what| what.contains("--limit"))
    );
}

#[test]
fn a_missing_argument_is_named_in_the_object_too() {
    let place = Place::new();
    for (arguments, missing) in [
        (["enqueue", "--json"].as_slice(), "<KIND>"),
        (&["items", "retry", "--json"], "<IDS>"),
        (&["completions", "--json"], "<SHELL>"),
    ] {
        let ended = place.run(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""));
        let answer: serde_json::Value = serde_json::from_str(&ended.talk).expect("an object");
        let what = answer["error"]["what"].as_str().expect("what");
        assert!(what.contains(missing), "{what}");
        assert!(!what.contains("error:") && !what.contains('\n'), "{what}");
    }
}

#[test]
fn retry_and_cancel_say_what_they_do() {
    let place = Place::new();
    let items = place.run(&["items", "--help"]).out;
    for (command, says, answers, not) in [
        (
            "retry",
            "Put failed items back to the start of their attempts",
            "not_failed",
            "already_over",
        ),
        ("cancel", "Ask items to stop", "already_over", "not_failed"),
    ] {
        assert!(items.contains(says), "{items}");
        let own = place.run(&["items", command, "--help"]).out;
        assert!(own.starts_with(says), "{own}");
        assert!(own.contains(answers) && !own.contains(not), "{own}");
        let short = place.run(&["items", command, "-h"]).out;
        assert!(
            short.starts_with(says) && short.contains("Exits with 3"),
            "{short}"
        );
    }
}

#[test]
fn a_command_without_a_database_refuses_one_and_does_not_offer_it() {
    let place = Place::new();
    for arguments in [
        ["demo"].as_slice(),
        &["bench"],
        &["health"],
        &["completions", "bash"],
    ] {
        for at in [0, arguments.len()] {
            let mut given = arguments.to_vec();
            given.splice(at..at, ["--database", "other.db"]);
            let talk = place.refused(2, &given);
            assert!(talk.contains("try: leave --database out"), "{talk}");
            if arguments == ["health"] {
                continue;
            }
            let mut given = arguments.to_vec();
            given.splice(at..at, ["--config", "other.toml"]);
            let talk = place.refused(2, &given);
            assert!(talk.contains("try: leave --config out"), "{talk}");
        }
        let help = place.run(&[arguments[0], "--help"]).out;
        assert!(
            help.contains("--json") && !help.contains("--database"),
            "{help}"
        );
        // Where a worker is asked may stand in the file of settings.
        assert_eq!(help.contains("--config"), arguments == ["health"], "{help}");
    }
    assert!(place.run(&["items", "--help"]).out.contains("--database"));
    let ended = place
        .command(&["completions", "bash"])
        .env("LEASEHOLD_DATABASE", "other.db")
        .output()
        .expect("the command");
    assert_eq!(ended.status.code(), Some(0));
}

#[test]
fn a_log_filter_that_cannot_be_read_is_a_usage_error() {
    let place = Place::new();
    let output = place
        .command(&["items", "list"])
        .env("LEASEHOLD_LOG", "a=b=c")
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LEASEHOLD_LOG"));
}

#[test]
fn completions_are_scripts_of_what_people_type() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = place.run(&["completions", shell]);
        assert_eq!(ended.code, 0, "{}", ended.talk);
        assert!(ended.out.contains("enqueue"), "{shell}");
        assert!(!ended.out.contains("demo-worker"), "{shell}");
    }
    assert_eq!(place.run(&["completions", "dos"]).code, 2);
}
