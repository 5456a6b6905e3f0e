//! What a database URL may say.

use super::*;
use crate::failure::Exit;

fn path_of(url: &str) -> String {
    Database::parse(url).expect(url).to_string()
}

#[test]
fn a_path_may_come_bare_or_with_its_scheme() {
    assert_eq!(path_of("jobs.db"), "jobs.db");
    assert_eq!(path_of("sqlite:jobs.db"), "jobs.db");
    assert_eq!(path_of("sqlite://jobs.db"), "jobs.db");
    assert_eq!(path_of("sqlite:///var/lib/jobs.db"), "/var/lib/jobs.db");
    assert_eq!(path_of("/var/lib/jobs.db"), "/var/lib/jobs.db");
    assert_eq!(path_of("./odd:name.db"), "./odd:name.db");
    assert_eq!(path_of("odd:name.db"), "odd:name.db");
}

#[test]
fn what_cannot_be_opened_is_told_without_its_password() {
    for url in [
        "postgres://ann:secret@db/queue",
        "postgresql://ann:secret@db/queue",
        "mysql://ann:secret@db/queue",
        "file:secret.db",
    ] {
        let failure = Database::parse(url).expect_err(url);
        assert_eq!(failure.exit(), Exit::CannotOpen);
        assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
    }
    let failure = Database::parse("postgres://db/queue").expect_err("a refusal");
    assert_eq!(failure.what(), "this build has no Postgres yet");
}

#[test]
fn an_empty_path_and_options_are_refused() {
    for url in [
        "",
        " ",
        "sqlite:",
        "sqlite://",
        "sqlite:// ",
        "sqlite://jobs.db?mode=rwc",
        "jobs\0.db",
        "sqlite:jobs.db\0",
    ] {
        assert_eq!(
            Database::parse(url).expect_err(url).exit(),
            Exit::Usage,
            "{url}"
        );
    }
}

#[test]
fn a_url_is_shown_without_what_may_be_a_password() {
    for (url, shown) in [
        ("postgres://db/queue", "postgres://db/queue"),
        ("postgres://ann@db/queue", "postgres://ann@db/queue"),
        (
            "postgres://ann:secret@db/queue",
            "postgres://ann:***@db/queue",
        ),
        ("postgres://ann:@db/queue", "postgres://ann:***@db/queue"),
        (
            "postgres://ann:se@cr/et@db/queue",
            "postgres://ann:***@db/queue",
        ),
        (
            "postgres://db/queue?user=ann&password=secret&sslmode=require",
            "postgres://db/queue?user=ann&password=***&sslmode=require",
        ),
        (
            "postgres://db/queue?Password=secret&sslpassword=secret",
            "postgres://db/queue?Password=***&sslpassword=***",
        ),
        (
            "host=db password=secret user=ann",
            "host=db password=*** user=ann",
        ),
        ("postgres:ann:secret@db", "postgres:***@db"),
    ] {
        assert_eq!(without_password(url), shown);
    }
}
