//! The file of settings: looked at with `leasehold config`, and honoured by the other commands.

use crate::harness::{Ended, Place};

const FILE: &str = r#"
database = "sqlite:queue/jobs.db"

[worker]
lanes = ["default", "mail"]
lease = "90s"

[lanes.video]
capacity = 2

[kinds.SEND]
command = ["send"]
lane = "mail"
priority = -5
max_attempts = 7
redact = ["password"]

[kinds.RENDER]
command = ["render"]

[kinds.ENCODE]
command = ["encode"]
lane = "video"
"#;

/// A place with the file, and the folder that its database is in.
#[cfg(test)]
fn place() -> Place {
    let place = Place::new();
    place.file("leasehold.toml", FILE);
    place.file("queue/.keep", "");
    place
}

/// Runs with variables set.
#[cfg(test)]
fn run_with(place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = place.command(arguments);
    command.envs(variables.iter().copied());
    crate::harness::ended(&command.output().expect("the command"))
}

#[test]
fn check_says_in_one_line_that_all_is_fine() {
    let place = place();
    let ended = place.run(&["config", "check"]);
    assert_eq!((ended.code, ended.talk.as_str()), (0, ""));
    assert_eq!(
        ended.out,
        "leasehold.toml is fine: 3 kinds, lanes default, mail, video\n"
    );
    let answer = place.json(&["config", "check"]);
    assert_eq!(
        answer["kinds"],
        serde_json::json!(["ENCODE", "RENDER", "SEND"])
    );
    assert_eq!(
        answer["lanes"],
        serde_json::json!(["default", "mail", "video"])
    );
    assert_eq!(answer["warnings"], serde_json::json!([]));
}

#[test]
fn check_tells_all_that_is_wrong_with_its_lines() {
    let place = Place::new();
    let text = "database = \"mysql://ann:secret@db\"\n[worker]\nlese = \"1m\"\nlease = 60\n";
    place.file("bad.toml", text);
    let arguments = ["config", "check", "--config", "bad.toml"];
    let ended = place.run(&arguments);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    let lines: Vec<&str> = ended.talk.lines().collect();
    let beginnings = [
        "error: 3 settings are not acceptable",
        "  bad.toml:1: mysql: is no database that is known here: ",
        "  bad.toml:3: worker.lese is no key that is known; did you mean lease?",
        "  bad.toml:4: worker.lease is a number without a unit; ",
        "  try: ",
    ];
    assert_eq!(lines.len(), beginnings.len(), "{}", ended.talk);
    for (line, beginning) in lines.iter().zip(beginnings) {
        assert!(line.starts_with(beginning), "{line}");
    }
    assert!(!ended.talk.contains("secret"), "{}", ended.talk);

    let ended = place.run(&[arguments.as_slice(), &["--json"]].concat());
    assert_eq!((ended.code, ended.out.as_str()), (2, ""));
    let answer: serde_json::Value = serde_json::from_str(&ended.talk).expect("an object");
    assert_eq!(answer["error"]["exit"], 2);
    let problems = answer["error"]["problems"].as_array().expect("problems");
    assert_eq!(problems.len(), 3, "{answer}");
}

#[test]
fn a_file_that_is_wrong_stops_every_command_that_reads_it() {
    let place = Place::new();
    place.file("leasehold.toml", "[worker]\nlese = \"1m\"\n");
    for arguments in [
        ["enqueue", "SEND"].as_slice(),
        &["items", "list"],
        &["migrate"],
        &["config", "check"],
        &["config", "show"],
    ] {
        let ended = place.run(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{arguments:?}");
        assert!(ended.talk.contains("leasehold.toml:2: "), "{}", ended.talk);
    }
    assert!(!place.path().join("leasehold.db").exists());
    // Those that do not read it go on.
    assert_eq!(place.run(&["completions", "bash"]).code, 0);
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let place = Place::new();
    place.file("odd.toml", b"[worker]\n\xff = 1\n");
    place.file("folder/x", "");
    for (path, why) in [
        ("none.toml", "No such file"),
        ("", "No such file"),
        ("odd.toml", "line 2 is not UTF-8 text"),
        ("folder", "Is a directory"),
    ] {
        let talk = place.refused(2, &["items", "list", "--config", path]);
        assert!(talk.contains(why), "{talk}");
    }
    let talk = place.refused(2, &["config", "check"]);
    assert!(talk.contains("there is no leasehold.toml"), "{talk}");
    let named = [("LEASEHOLD_CONFIG", "none.toml")];
    run_with(&place, &["migrate"], &named).expect_refusal(2);
    // Where a template has no value, none is meant.
    let ended = run_with(&place, &["migrate"], &[("LEASEHOLD_CONFIG", "")]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
}

#[test]
fn only_a_regular_file_is_read_and_nothing_else_is_waited_for() {
    use std::os::unix::net::UnixListener;

    let place = Place::new();
    let path = place.path().join("leasehold.toml");
    let refused = |what: &str| {
        for arguments in [
            ["config", "check"],
            ["config", "show"],
            ["run", "--until-empty"],
        ] {
            let talk = place.refused(2, &arguments);
            assert!(talk.contains(&format!("it is {what}, and ")), "{talk}");
        }
        std::fs::remove_file(&path).expect("it was there");
    };
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a pipe");
    refused("a pipe");
    let _listens = UnixListener::bind(&path).expect("a socket");
    refused("a socket");
    std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
    refused("a device");
}

#[test]
fn flag_then_environment_then_file_then_default() {
    let place = place();
    let show = ["config", "show", "--origin", "--poll-interval", "2s"];
    let variables = [
        ("LEASEHOLD_POLL_INTERVAL", "3s"),
        ("LEASEHOLD_LEASE", "2m"),
        ("LEASEHOLD_LANES", "a,b"),
        ("LEASEHOLD_CAPACITY", ""),
        ("LEASEHOLD_DATABASE", "other.db"),
    ];
    let shown = run_with(&place, &show, &variables).out;
    for line in [
        "database = \"sqlite:other.db\"   # LEASEHOLD_DATABASE",
        "worker.lanes = [\"a\", \"b\"]   # LEASEHOLD_LANES",
        "worker.capacity = 16   # default",
        "worker.lease = \"2m\"   # LEASEHOLD_LEASE",
        "worker.poll_interval = \"2s\"   # --poll-interval",
        "# worker.health is not set   # default",
        "lanes.video.capacity = 2   # leasehold.toml:9",
        "kinds.SEND.command = [\"send\"]   # leasehold.toml:12",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let shown = place.run(&["config", "show"]).out;
    let first: Vec<&str> = shown.lines().take(2).collect();
    assert_eq!(
        first,
        [
            "database = \"sqlite:queue/jobs.db\"",
            "postgres.schema = \"leasehold\""
        ]
    );
    assert!(shown.contains("\nworker.lease = \"90s\"\n"), "{shown}");

    for (variable, value) in [
        ("LEASEHOLD_LANES", "a,,b"),
        ("LEASEHOLD_LANES", ","),
        ("LEASEHOLD_DATABASE", " "),
    ] {
        let refused = run_with(&place, &["config", "check"], &[(variable, value)]);
        assert_eq!(refused.code, 2, "{variable}={value}: {}", refused.out);
        assert!(
            refused.talk.contains(&format!("  {variable}: ")),
            "{}",
            refused.talk
        );
    }
    let refused = run_with(&place, &["config", "check"], &[("LEASEHOLD_LEASE", "60")]);
    assert_eq!(refused.code, 2);
    assert!(
        refused
            .talk
            .contains("  LEASEHOLD_LEASE: worker.lease \"60\" is not")
    );
}

#[test]
fn how_a_server_is_connected_is_a_setting() {
    let place = Place::new();
    let write = |postgres: &str| {
        let text = format!(
            "database = \"postgres://ann@db/queue\"\n[postgres]\n{postgres}\n\
             [kinds.SEND]\ncommand = [\"true\"]\n[lanes.mail]\ncapacity = 1\n"
        );
        place.file("leasehold.toml", text);
    };
    write("wakeup = \"poll\"\nconnections = 12");
    let ended = place.run(&["config", "check"]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let variables = [
        ("LEASEHOLD_POSTGRES_WAKEUP", "listen"),
        ("LEASEHOLD_POSTGRES_CONNECTIONS", ""),
    ];
    let shown = run_with(&place, &["config", "show", "--origin"], &variables).out;
    for line in [
        "postgres.wakeup = \"listen\"   # LEASEHOLD_POSTGRES_WAKEUP",
        "postgres.connections = 12   # leasehold.toml:4",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let wrong = [("LEASEHOLD_POSTGRES_CONNECTIONS", "many")];
    let refused = run_with(&place, &["config", "check"], &wrong);
    assert_eq!(refused.code, 2, "{}", refused.out);
    let told =
        "  LEASEHOLD_POSTGRES_CONNECTIONS: postgres.connections = \"many\" is no whole number";
    assert!(refused.talk.contains(told), "{}", refused.talk);

    write("wakeup = \"push\"");
    let refused = place.run(&["config", "check"]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    let told = "  leasehold.toml:3: postgres.wakeup = \"push\" is not a choice";
    assert!(refused.talk.contains(told), "{}", refused.talk);

    // Enough for one worker, and the lane has another.
    write("connections = 10");
    let refused = place.run(&["config", "check"]);
    assert_eq!(refused.code, 2, "{}", refused.out);
    let told =
        "  leasehold.toml:3: postgres.connections = 10 is too few: its workers make 11 calls";
    assert!(refused.talk.contains(told), "{}", refused.talk);
}

#[test]
fn what_is_shown_is_a_file_that_says_the_same() {
    let place = place();
    let shown = place.run(&["config", "show"]).out;
    place.file("shown.toml", &shown);
    let again = place.run(&["config", "show", "--config", "shown.toml"]);
    assert_eq!(again.out, shown, "{}", again.talk);
}

#[test]
fn show_has_an_object_for_programs_and_no_password_for_anyone() {
    let place = place();
    let url = "postgres://ann:secret@db/queue";
    let answer = place.json(&["config", "show", "--database", url]);
    assert_eq!(answer["file"], "leasehold.toml");
    let settings = answer["settings"].as_array().expect("settings");
    assert_eq!(settings[0]["value"], "postgres://ann:***@db/queue");
    assert_eq!(settings[0]["from"], "flag");
    let find = |key: &str| settings.iter().find(|one| one["key"] == key).expect("it");
    assert!(find("worker.health")["value"].is_null());
    assert_eq!(find("lanes.video.capacity")["value"], 2);
    assert_eq!(find("lanes.video.capacity")["place"], "leasehold.toml:9");
    let ended = place.run(&["config", "check", "--database", url]);
    assert_eq!((ended.code, ended.talk.as_str()), (0, ""));
    let url = "postgres://ann:secret@db/queue?sslmood=require";
    let ended = place.run(&["config", "check", "--database", url]);
    assert_eq!(ended.code, 2);
    assert!(
        ended
            .talk
            .contains("--database: the database's URL cannot be read")
    );
    assert!(!ended.talk.contains("secret"), "{}", ended.talk);
}

#[test]
fn a_variable_that_means_nothing_is_warned_of() {
    let place = place();
    let variables = [
        ("LEASEHOLD_LEESE", "1m"),
        ("LEASEHOLD_LEASE", "1m"),
        ("LEASEHOLD_LOG", "warn"),
        ("LEASEHOLD_ITEM_ID", "x"),
        ("LEASEHOLD_ENQUEUE_KEY", "x"),
    ];
    let ended = run_with(&place, &["config", "check"], &variables);
    assert_eq!(ended.code, 0);
    assert_eq!(
        ended.talk,
        "warning: the variable LEASEHOLD_LEESE means nothing; did you mean LEASEHOLD_LEASE?\n"
    );
    let ended = run_with(&place, &["items", "list"], &variables[..1]);
    assert!(!ended.talk.contains("warning"), "{}", ended.talk);
}

#[test]
fn a_kind_on_a_lane_without_a_worker_is_warned_of() {
    let place = Place::new();
    let text = "worker.lanes = [\"a\"]\n[lanes.b]\ncapacity = 1\n[kinds.A]\ncommand = [\"a\"]\n\
                lane = \"a\"\n[kinds.B]\ncommand = [\"b\"]\nlane = \"b\"\n[kinds.C]\ncommand = [\"c\"]\n\
                lane = \"c\"\n[kinds.D]\ncommand = [\"d\"]\n";
    place.file("leasehold.toml", text);
    let answer = place.json(&["config", "check"]);
    let warnings = answer["warnings"].as_array().expect("warnings");
    let [c, d] = warnings.as_slice() else {
        panic!("{answer}");
    };
    let begins =
        |text: &serde_json::Value, with| text.as_str().is_some_and(|t| t.starts_with(with));
    assert!(
        begins(c, "leasehold.toml:12: kinds.C.lane is c, and no worker"),
        "{c}"
    );
    assert!(
        begins(d, "default: kinds.D.lane is default, and no worker"),
        "{d}"
    );
}

#[test]
fn a_lane_with_a_capacity_that_no_kind_names_is_warned_of() {
    let place = Place::new();
    let lanes = "[lanes.video]\ncapacity = 2\n[lanes.\"mail/bulk\"]\ncapacity = 1\n";
    let kind = "[kinds.SEND]\ncommand = [\"send\"]\nlane = \"mail/bulk\"\n";
    place.file("leasehold.toml", format!("{lanes}{kind}"));
    let answer = place.json(&["config", "check"]);
    let warning = "leasehold.toml:2: the lane video has a capacity of its own, and no kind of this file names \
                   it; set lane = \"video\" in a kind's section, unless items are enqueued there by name";
    assert_eq!(answer["warnings"], serde_json::json!([warning]));
    // A file without kinds is a worker's of others' kinds, or nobody's.
    place.file("leasehold.toml", lanes);
    let answer = place.json(&["config", "check"]);
    assert_eq!(answer["warnings"], serde_json::json!([]));
}

#[test]
fn the_database_of_the_file_counts_from_its_folder() {
    let place = Place::new();
    place.file("etc/leasehold.toml", "database = \"sqlite:jobs.db\"\n");
    let given = ["--config", "etc/leasehold.toml"];
    place.enqueue(&["SEND", given[0], given[1]]);
    assert!(place.path().join("etc/jobs.db").exists());
    let shown = place.run(&["config", "show", given[0], given[1]]).out;
    assert!(
        shown.starts_with("database = \"sqlite:etc/jobs.db\"\n"),
        "{shown}"
    );
    // What stands over it counts from here.
    let over = [
        ("LEASEHOLD_DATABASE", "here.db"),
        ("LEASEHOLD_CONFIG", given[1]),
    ];
    assert_eq!(run_with(&place, &["enqueue", "SEND"], &over).code, 0);
    assert!(place.path().join("here.db").exists());
}

#[test]
fn the_default_database_is_beside_the_file_wherever_a_command_is_started() {
    let place = Place::new();
    place.file("etc/leasehold.toml", "");
    let given = ["--config", "etc/leasehold.toml"];
    let id = place.enqueue(&["SEND", given[0], given[1]]);
    assert!(!place.path().join("leasehold.db").exists());
    let mut there = place.command(&["items", "show", &id]);
    there.current_dir(place.path().join("etc"));
    let found = there.output().expect("the command");
    assert!(found.status.success(), "{found:?}");
    let shown = place
        .run(&["config", "show", "--origin", given[0], given[1]])
        .out;
    assert!(
        shown.starts_with("database = \"sqlite:etc/leasehold.db\"   # default\n"),
        "{shown}"
    );
}

#[test]
fn a_command_to_paste_names_the_file_that_was_given() {
    let place = Place::new();
    place.file("my jobs.toml", "database = \"jobs.db\"\n");
    let given = ["--config", "my jobs.toml"];
    let id = place.enqueue(&["SEND", given[0], given[1]]);
    place.run(&["items", "cancel", &id, given[0], given[1]]);
    let text = place
        .run(&["items", "explain", &id, given[0], given[1]])
        .out;
    let pasted = format!("leasehold items retry {id} --config 'my jobs.toml'");
    assert_eq!(text.lines().last().map(str::trim), Some(pasted.as_str()));
}

#[test]
fn enqueue_takes_from_the_kind_what_no_flag_says() {
    let place = place();
    let item = |arguments: &[&str]| {
        let answer = place.json(&[&["enqueue"], arguments].concat());
        let item = &answer["item"];
        (
            item["lane"].as_str().expect("a lane").to_owned(),
            item["priority"].as_i64(),
            item["max_attempts"].as_u64(),
        )
    };
    assert_eq!(item(&["SEND"]), ("mail".to_owned(), Some(-5), Some(7)));
    assert_eq!(item(&["RENDER"]), ("default".to_owned(), Some(0), Some(3)));
    assert_eq!(item(&["UNKNOWN"]), ("default".to_owned(), Some(0), Some(3)));
    let flags = [
        "SEND",
        "--lane",
        "default",
        "--priority",
        "0",
        "--max-attempts",
        "1",
    ];
    assert_eq!(item(&flags), ("default".to_owned(), Some(0), Some(1)));
    let ended = run_with(
        &place,
        &["enqueue", "SEND", "--json"],
        &[("LEASEHOLD_ENQUEUE_LANE", "video")],
    );
    assert!(ended.out.contains("\"lane\":\"video\""), "{}", ended.out);
}

#[test]
fn what_no_worker_of_the_file_would_run_is_enqueued_with_a_warning() {
    let place = place();
    for (arguments, warning) in [
        (
            ["enqueue", "SENT"].as_slice(),
            "no kind SENT in leasehold.toml; SEND is there",
        ),
        (
            &["enqueue", "QQ", "--lane", "nowhere"],
            "no kind QQ in leasehold.toml, so none of its workers runs the item",
        ),
        (
            &["enqueue", "SEND", "--lane", "mial"],
            "no worker of leasehold.toml claims from the lane mial; mail is there",
        ),
    ] {
        let ended = place.run(arguments);
        assert_eq!(
            (ended.code, ended.out.lines().count()),
            (0, 1),
            "{arguments:?}"
        );
        let last = ended.talk.lines().last();
        assert_eq!(last, Some(format!("warning: {warning}").as_str()));
        assert_eq!(
            place.json(arguments)["warnings"],
            serde_json::json!([warning])
        );
    }
    place.file("two.jsonl", "{}\n{}\n");
    let batch = ["enqueue", "SENT", "--batch", "two.jsonl"];
    let talk = place.run(&batch).talk;
    assert_eq!(talk.matches("warning: ").count(), 1, "{talk}");
    let warnings = place.json(&batch)["warnings"].clone();
    assert_eq!(warnings.as_array().map(Vec::len), Some(1), "{warnings}");
}

#[test]
fn what_is_run_or_may_be_run_elsewhere_is_enqueued_without_a_warning() {
    let served = place();
    for arguments in [["SEND"].as_slice(), &["RENDER", "--lane", "video"]] {
        let arguments = [&["enqueue"], arguments].concat();
        assert_eq!(served.json(&arguments)["warnings"], serde_json::json!([]));
        let talk = served.run(&arguments).talk;
        assert!(!talk.contains("warning"), "{talk}");
    }
    // Without a file, or by one that is only for who enqueues, nobody can say.
    let place = Place::new();
    assert!(!place.run(&["enqueue", "SEND"]).talk.contains("warning"));
    place.file("leasehold.toml", "database = \"jobs.db\"");
    assert!(!place.run(&["enqueue", "SEND"]).talk.contains("warning"));
}

#[test]
fn redacted_fields_are_masked_in_text_and_objects() {
    let place = place();
    let payload =
        r#"{"to": "ann", "smtp": [{"Password": "hunter2", "big": 12345678901234567890.10}]}"#;
    let id = place.enqueue(&["SEND", payload]);
    let text = place.run(&["items", "show", &id, "--payload"]).out;
    let masked = r#"{"to":"ann","smtp":[{"Password":"***","big":12345678901234567890.10}]}"#;
    assert!(text.contains(&format!("payload\t{masked}\n")), "{text}");
    let object = place
        .run(&["items", "show", &id, "--payload", "--json"])
        .out;
    assert!(object.contains(masked), "{object}");
    assert!(!object.contains("hunter2"), "{object}");
    // What is stored is what was sent: its size tells nothing, and a worker needs it.
    let shown = place.json(&["items", "show", &id]);
    assert_eq!(shown["item"]["payload_bytes"], payload.len());
    // Of another kind the same field is nobody's secret.
    let id = place.enqueue(&["RENDER", payload]);
    let text = place.run(&["items", "show", &id, "--payload"]).out;
    assert!(text.contains("hunter2"), "{text}");
}
