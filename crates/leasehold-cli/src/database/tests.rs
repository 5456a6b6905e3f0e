//! What a database URL may say.

use super::*;
use crate::config::tests::read as settings;
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
        "mysql://ann:secret@db/queue",
        "file:secret.db",
        "host=db dbname=queue password=secret",
        "postgres//ann:secret@db/queue",
    ] {
        let failure = Database::parse(url).expect_err(url);
        assert_eq!(failure.exit(), Exit::CannotOpen);
        assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
    }
}

#[test]
fn a_server_is_shown_without_its_password_and_its_options() {
    for (url, shown) in [
        ("postgres://db/queue", "postgres://db/queue"),
        ("postgres://ann:secret@db/queue", "postgres://ann@db/queue"),
        (
            " postgres://ann:secret@db/queue ",
            "postgres://ann@db/queue",
        ),
        (
            "postgresql://ann:se/cr?et@db:5433",
            "postgresql://ann@db:5433",
        ),
        (
            "postgres://ann@%2Frun%2Fpg/queue?password=secret",
            "postgres://ann@%2Frun%2Fpg/queue",
        ),
        (
            "postgres://:secret@one,two:6432/queue?target_session_attrs=read-write",
            "postgres://one,two:6432/queue",
        ),
        (
            "postgres:///queue?host=/run/pg&user=ann&password=secret",
            "postgres:///queue",
        ),
    ] {
        let database = Database::parse(url).expect(url);
        assert_eq!(database.to_string(), shown);
        let debugged = format!("{database:?}");
        assert!(!debugged.contains("secret"), "{debugged}");
    }
}

#[test]
fn an_address_that_cannot_be_read_is_refused_without_a_word_of_it() {
    for (url, why) in [
        ("postgres:ann:secret@db/queue", "is not followed by //"),
        ("postgres://ann:sec@ret@db/queue", "%40"),
        ("postgres://db/queue?password=sec@ret", "%40"),
        ("postgres:///queue?user=secret", "names no host"),
        ("postgres://", "names no host"),
        (
            "postgres://ann:secret/queue",
            "invalid value for option `port`",
        ),
        (
            "postgres://db/queue?sslmode=secret",
            "invalid value for option `sslmode`",
        ),
        (
            "postgres://db/queue?sslmood=secret",
            "unknown option `sslmood`",
        ),
        ("postgres://db/queue?secret", "unterminated parameter"),
        (
            "postgres://db/queue?password=x&secret=y",
            "is not one that is known",
        ),
        (
            "postgres://ann:x@db/queue?secret=y",
            "is not one that is known",
        ),
    ] {
        let failure = Database::parse(url).expect_err(url);
        assert_eq!(failure.exit(), Exit::Usage, "{url}");
        let told = format!("{failure:?}");
        assert!(told.contains(why), "{url}: {told}");
        assert!(!told.contains("secret"), "{told}");
    }
}

#[test]
fn a_url_to_paste_is_as_it_was_but_for_its_password() {
    assert_eq!(to_paste("odd:name@jobs.db"), "odd:name@jobs.db");
    assert_eq!(
        to_paste("postgres://ann@db/queue"),
        "postgres://ann@db/queue"
    );
    assert_eq!(
        to_paste("postgres://ann:secret@db/queue"),
        "postgres://ann:***@db/queue"
    );
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

#[test]
fn a_server_is_given_as_many_connections_as_its_workers_need() {
    let database = Database::parse("postgres://db/queue").unwrap();
    let connections = |calls| match database.clone().serving(calls).unwrap() {
        Database::Postgres(server) => server.connections(),
        Database::Sqlite(file) => panic!("{file:?} is a file"),
    };
    // What one worker needs, and people.
    assert_eq!(connections(6), 8);
    assert_eq!(connections(18), 20);
}

/// What the settings of a worker for that many lanes of their own come to, on a server.
fn told_of(section: &str, lanes: usize) -> Result<Database, Failure> {
    let lanes = (0..lanes).map(|lane| format!("[lanes.own-{lane}]\ncapacity = 8\n"));
    let lanes = lanes.collect::<Vec<_>>().concat();
    let text = format!(
        "database = \"postgres://db/queue\"\n[postgres]\n{section}\n{lanes}[kinds.SEND]\ncommand = [\"send\"]\n"
    );
    let config = settings(&text, &[]).unwrap_or_else(|problems| panic!("{problems:?}"));
    Database::of(&config)?.serving(config.calls_at_once())
}

#[test]
fn connections_that_the_settings_allow_are_enough_or_refused() {
    for (section, lanes, is_enough) in [
        ("connections = 6", 0, true),
        ("connections = 5", 0, false),
        // The one that would listen is not there to tell others.
        ("connections = 6\nwakeup = \"poll\"", 0, false),
        ("connections = 7\nwakeup = \"poll\"", 0, true),
        // Each worker of a lane takes as many again.
        ("connections = 17", 2, false),
        ("connections = 18", 2, true),
        // Two logins have a pool each, of which neither serves the other's calls.
        (
            "connections = 6\nsystem_login = \"postgres://s@db/queue\"",
            0,
            true,
        ),
        (
            "connections = 5\nsystem_login = \"postgres://s@db/queue\"",
            0,
            false,
        ),
    ] {
        assert_eq!(told_of(section, lanes).is_ok(), is_enough, "{section}");
    }
    let failure = told_of("connections = 4", 1).expect_err("too few");
    assert_eq!(failure.exit(), Exit::Usage);
    assert_eq!(failure.what(), "postgres.connections = 4 is too few");
    assert!(failure.why().is_some_and(|why| why.contains("12 calls")));
    let remedy = failure.how().expect("a remedy");
    assert!(remedy.contains("postgres.connections = 12"), "{remedy}");
    assert!(remedy.contains("worker.capacity"), "{remedy}");
}

#[test]
fn the_settings_reach_every_database_of_the_queue() {
    let section = "connections = 7\nwakeup = \"poll\"\nqueue.database = \"postgres://other/queue\"\n\
                   queue.system_login = \"postgres://s@other/queue\"";
    let Ok(Database::Postgres(server)) = told_of(section, 0) else {
        panic!("nothing is wrong with it");
    };
    let taken: Vec<usize> = server.places().iter().map(Place::connections_max).collect();
    assert_eq!(taken, [7, 14], "nothing listens");
    let listening = section.replace("poll", "listen");
    let Ok(Database::Postgres(server)) = told_of(&listening, 0) else {
        panic!("nothing is wrong with it");
    };
    let taken: Vec<usize> = server.places().iter().map(Place::connections_max).collect();
    assert_eq!(taken, [8, 15]);
}
