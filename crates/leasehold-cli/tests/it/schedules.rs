//! Schedules and lanes from the command line: looked at, added, paused, run and removed.

use crate::harness::Place;

#[test]
fn a_schedule_is_added_looked_at_paused_resumed_run_and_removed() {
    let place = Place::new();
    let added = place.json(&[
        "schedules",
        "add",
        "nightly",
        "REPORT",
        r#"{"a": 1}"#,
        "--cron",
        "30 2 * * *",
        "--zone",
        "Europe/Berlin",
        "--overlap",
        "skip",
        "--priority",
        "-3",
        "--max-attempts",
        "5",
        "--lane",
        "slow",
    ]);
    let schedule = &added["schedule"];
    assert_eq!(schedule["state"], "active");
    assert_eq!(schedule["zone"], "Europe/Berlin");
    assert_eq!(schedule["overlap"], "skip");
    assert!(schedule["next_tick"].is_string());
    let object = place.run(&["schedules", "list", "--json"]).out;
    assert!(
        object.starts_with(r#"{"schema":1,"schedules":["#),
        "{object}"
    );
    let listed = place.run(&["schedules", "list"]);
    assert!(
        listed
            .out
            .starts_with("nightly\t30 2 * * *\tEurope/Berlin\tREPORT\tslow\tactive\t"),
        "{}",
        listed.out
    );

    let talk = place
        .run(&[
            "schedules",
            "pause",
            "nightly",
            "--reason",
            "August",
            "--by",
            "ada",
        ])
        .talk;
    assert!(talk.contains("is paused"), "{talk}");
    let shown = place.json(&["schedules", "show", "nightly", "--payload"]);
    assert_eq!(shown["schedule"]["state"], "paused");
    assert_eq!(shown["schedule"]["paused"]["by"], "ada");
    assert_eq!(shown["schedule"]["paused"]["reason"], "August");
    assert_eq!(shown["schedule"]["payload"]["a"], 1);

    let made = place.json(&["schedules", "run-now", "nightly"]);
    assert_eq!(made["done"], true);
    let item = made["item"].as_str().unwrap();
    let shown = place.json(&["items", "show", item]);
    assert_eq!(shown["item"]["lane"], "slow");
    assert_eq!(shown["item"]["priority"], -3);
    let again = place.run(&["schedules", "run-now", "nightly"]);
    assert_eq!(again.code, 3, "{}", again.talk);
    assert!(again.talk.contains(item), "{}", again.talk);

    assert_eq!(place.run(&["schedules", "resume", "nightly"]).code, 0);
    assert_eq!(place.run(&["schedules", "resume", "nightly"]).code, 3);
    assert_eq!(place.run(&["schedules", "remove", "nightly"]).code, 0);
    assert_eq!(place.run(&["schedules", "remove", "nightly"]).code, 3);
    assert_eq!(place.count(), 1, "its items stay");
}

#[test]
fn coming_ticks_are_shown_with_their_zone_and_need_no_database() {
    let place = Place::new();
    let next = place.json(&[
        "schedules",
        "next",
        "--cron",
        "0 9 * * MON",
        "--zone",
        "Asia/Tokyo",
        "--count",
        "3",
    ]);
    let ticks = next["ticks"].as_array().unwrap();
    assert_eq!(ticks.len(), 3);
    for tick in ticks {
        assert!(
            tick["at"].as_str().unwrap().ends_with("T00:00:00Z"),
            "{tick}"
        );
        let local = tick["local"].as_str().unwrap();
        assert!(local.ends_with("T09:00:00+09:00[Asia/Tokyo]"), "{local}");
    }
    assert!(!place.path().join("leasehold.db").exists());
    let piped = place.run(&["schedules", "next", "--every", "90s", "--count", "2"]);
    assert_eq!(piped.out.lines().count(), 2);
}

#[test]
fn what_says_nothing_is_refused_with_what_would_do() {
    let place = Place::new();
    let add = ["schedules", "add", "x", "REPORT"];
    for (arguments, told) in [
        (["--cron", "* * * *"], "has 4 fields, not five"),
        (["--cron", "0 0 30 2 *"], "never comes"),
        (["--every", "10ms"], "out of range"),
        (["--every", "soon"], "is not a duration"),
    ] {
        let talk = place.refused(2, &[&add[..], &arguments[..]].concat());
        assert!(talk.contains(told), "{talk}");
        assert!(talk.contains("try: "), "{talk}");
    }
    let zone = [&add[..], &["--cron", "@daily", "--zone", "Berlin"]].concat();
    assert!(
        place
            .refused(2, &zone)
            .contains("\"Berlin\" is no time zone")
    );
    let both = [
        &add[..],
        &[
            "--cron",
            "@daily",
            "--overlap",
            "skip",
            "--missed",
            "up-to-3",
        ],
    ]
    .concat();
    assert!(place.refused(2, &both).contains("must not overlap"));
    let name = ["schedules", "add", "a b", "REPORT", "--cron", "@daily"];
    assert!(
        place
            .refused(2, &name)
            .contains("schedule name \"a b\" is not valid")
    );
}

#[test]
fn the_file_of_settings_is_told_line_by_line_what_is_wrong_with_its_schedules() {
    let place = Place::new();
    place.file(
        "leasehold.toml",
        r#"[kinds.REPORT]
command = ["true"]
lane = "default"
max_attempts = 7

[schedules.one]
kind = "REPORT"
cron = "61 * * * *"

[schedules.two]
kind = "REPORT"

[schedules.three]
cron = "@daily"
every = "5m"
kind = "REPORT"
zon = "UTC"

[schedules.four]
kind = "REPORT"
every = "5m"
payload = "{"
missed = "all"
"#,
    );
    let ended = place.run(&["config", "check"]);
    assert_eq!(ended.code, 2);
    let talk = ended.talk;
    for told in [
        "leasehold.toml:6: schedules.one: \"61 * * * *\" is no schedule",
        "leasehold.toml:10: schedules.two says nothing of when",
        "leasehold.toml:15: schedules.three has both cron and every",
        "leasehold.toml:17: schedules.three.zon is no key that is known; did you mean zone?",
        "leasehold.toml:22: schedules.four.payload is no payload",
        "leasehold.toml:23: schedules.four.missed = \"all\" is not a choice",
    ] {
        assert!(talk.contains(told), "{told}\n{talk}");
    }
}

#[test]
fn a_lane_is_paused_with_a_reason_that_explain_shows_and_resumed() {
    let place = Place::new();
    let item = place.enqueue(&["SEND", "--lane", "mail"]);
    let pause = [
        "lanes",
        "pause",
        "mail",
        "--reason",
        "it bounces",
        "--by",
        "ada",
    ];
    assert_eq!(place.run(&pause).code, 0);
    let lanes = place.json(&["lanes", "list"]);
    assert_eq!(lanes["lanes"][0]["lane"], "mail");
    assert_eq!(lanes["lanes"][0]["ready"], 1);
    assert_eq!(lanes["lanes"][0]["paused"]["by"], "ada");
    let explained = place.run(&["items", "explain", &item]).out;
    assert!(explained.contains("by ada: it bounces"), "{explained}");
    assert_eq!(place.run(&["lanes", "resume", "mail"]).code, 0);
    assert_eq!(place.run(&["lanes", "resume", "mail"]).code, 3);
    let empty = ["lanes", "pause", "mail", "--reason", " "];
    assert!(place.refused(2, &empty).contains("--reason is empty"));
}
