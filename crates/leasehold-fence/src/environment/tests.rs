use std::os::unix::ffi::OsStringExt as _;

use super::*;

fn parent() -> Vec<(OsString, OsString)> {
    [
        ("PATH", "/usr/bin"),
        ("HOME", "/home/user"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        ("LC_TIME", "C"),
        ("TZ", "UTC"),
        ("TMPDIR", "/tmp"),
        ("DATABASE_URL", "postgres://secret"),
        ("PATHS", "no"),
        ("SMTP_HOST", "mail"),
        ("SMTP_PASSWORD", "secret"),
        ("LEASEHOLD_DATABASE_URL", "postgres://secret"),
        ("LEASEHOLD_FENCE", "7"),
        ("WORKER_REQUEST", "{}"),
        ("WORKER_NAME", "w1"),
        ("TRACEPARENT", "00-00-00-00"),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value.into()))
    .collect()
}

fn declared(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The names a child gets.
fn names(declaration: &[&str]) -> Vec<String> {
    Environment::selected(parent(), &declared(declaration))
        .unwrap()
        .into_iter()
        .map(|(name, _)| name.into_string().unwrap())
        .collect()
}

const ALWAYS: [&str; 7] = ["HOME", "LANG", "LC_ALL", "LC_TIME", "PATH", "TMPDIR", "TZ"];

#[test]
fn nothing_is_inherited_unasked() {
    assert_eq!(names(&[]), ALWAYS);
}

#[test]
fn declared_names_are_exact_or_a_prefix() {
    let mut expected = ALWAYS.to_vec();
    expected.extend(["SMTP_HOST"]);
    expected.sort_unstable();
    assert_eq!(names(&["SMTP_HOST", "SMTP", "NOT_THERE"]), expected);

    expected.extend(["SMTP_PASSWORD"]);
    expected.sort_unstable();
    assert_eq!(names(&["SMTP_*"]), expected);
}

#[test]
fn a_prefix_never_reaches_the_workers_own() {
    let reached = names(&["L*", "W*", "T*"]);
    assert!(reached.contains(&"WORKER_NAME".to_owned()));
    for own in [
        "LEASEHOLD_DATABASE_URL",
        "LEASEHOLD_FENCE",
        "WORKER_REQUEST",
        "TRACEPARENT",
    ] {
        assert!(!reached.contains(&own.to_owned()), "{own} was handed over");
    }
    assert!(
        names(&["LEASEHOLD_DATABASE_URL"]).contains(&"LEASEHOLD_DATABASE_URL".to_owned()),
        "who names a setting in full means it"
    );
}

#[test]
fn a_declaration_that_cannot_be_meant_is_refused() {
    let refused = |name: &str| Environment::selected(parent(), &declared(&[name])).unwrap_err();
    for name in ["", "A=B", "A\0B"] {
        assert!(
            matches!(refused(name), EnvironmentRefused::Name { .. }),
            "{name}"
        );
    }
    for name in protocol::PROTOCOL_VARIABLES {
        assert!(
            matches!(refused(name), EnvironmentRefused::OfTheProtocol { .. }),
            "{name}"
        );
    }
    for name in ["*", "LEASEHOLD_*", "LEASEHOLD_DATABASE*"] {
        assert!(
            matches!(refused(name), EnvironmentRefused::TooWide { .. }),
            "{name}"
        );
    }
    for name in ["A*B", "**", "*_URL"] {
        assert!(
            matches!(refused(name), EnvironmentRefused::Star { .. }),
            "{name}"
        );
    }
}

#[test]
fn a_later_value_wins() {
    let environment = Environment::selected(parent(), &declared(&["SMTP_HOST"]))
        .unwrap()
        .with("SMTP_HOST", "other")
        .unwrap()
        .with(protocol::REQUEST_VARIABLE, "{}")
        .unwrap();
    let values: BTreeMap<_, _> = environment.into_iter().collect();
    assert_eq!(values[OsStr::new("SMTP_HOST")], "other");
    assert_eq!(values[OsStr::new("WORKER_REQUEST")], "{}");
}

#[test]
fn no_error_and_no_debug_text_shows_a_value() {
    let environment = Environment::new().with("TOKEN", "hunter2").unwrap();
    assert_eq!(format!("{environment:?}"), "Environment{\"TOKEN\"}");

    let with = |name: &str, value: String| Environment::new().with(name, value).unwrap_err();
    let errors = [
        with("TOKEN", "hunter2\0".to_owned()),
        with("TOKEN=hunter2", String::new()),
        with("", "hunter2".to_owned()),
        with("TOKEN", "hunter2".repeat(20_000)),
    ];
    for error in errors {
        let text = format!("{error} {error:?}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn the_largest_variable_is_the_systems() {
    let most = protocol::ENVIRONMENT_STRING_BYTES_MAX - "NAME=\0".len();
    let environment = Environment::new().with("NAME", "x".repeat(most)).unwrap();
    assert_eq!(environment.bytes(), protocol::ENVIRONMENT_STRING_BYTES_MAX);
    assert_eq!(
        Environment::new().with("NAME", "x".repeat(most + 1)),
        Err(EnvironmentRefused::TooLarge {
            name: "NAME".to_owned(),
            bytes: protocol::ENVIRONMENT_STRING_BYTES_MAX + 1,
        })
    );
}

#[test]
fn bytes_that_are_no_text_travel_unchanged() {
    let value = OsString::from_vec(b"caf\xe9".to_vec());
    let parent = [
        ("RAW".into(), value.clone()),
        (OsString::from_vec(b"\xff".to_vec()), "x".into()),
    ];
    let kept = Environment::selected(parent, &declared(&["RAW"])).unwrap();
    assert_eq!(
        kept.into_iter().collect::<Vec<_>>(),
        [("RAW".into(), value)]
    );
}
