//! The file as it is read, what stands over it, and every refusal with its line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use leasehold::NewItem;
use leasehold_fence::protocol::{Channel, Level, RegisteredError, ResultRule};
use leasehold_postgres::Wakeup;

use super::*;

mod documented;
mod refusals;

/// The settings of a file with this text, with what a command line says over it.
pub(crate) fn read(text: &str, flags: &[&str]) -> Result<Config, Vec<String>> {
    read_at("leasehold.toml", text, flags)
}

fn read_at(path: &str, text: &str, flags: &[&str]) -> Result<Config, Vec<String>> {
    let source = Source {
        path: PathBuf::from(path),
        shown: path.to_owned(),
        text: text.to_owned(),
    };
    let command = WorkerFlags::augment_args(clap::Command::new("leasehold"));
    let command = PostgresFlags::augment_args(command);
    let matches = command.get_matches_from([&["leasehold"], flags].concat());
    let over = Over {
        database: None,
        postgres: &PostgresFlags::from_arg_matches(&matches).expect("flags"),
        worker: &WorkerFlags::from_arg_matches(&matches).expect("flags"),
    };
    let (config, mut problems) = Config::read(Some(&source), over);
    if problems.is_empty() {
        return Ok(config);
    }
    problem::in_order(&mut problems);
    Err(problems.iter().map(ToString::to_string).collect())
}

const WHOLE: &str = r#"
database = "sqlite:jobs.db"
[worker]
name = "mailer"
lanes = ["default", "mail"]
capacity = 8
prefetch = 2
lease = "1m30s"
poll_interval = "500ms"
heartbeat_interval = "5s"
sweep_interval = "1m"
sweep_budget = "30s"
sweep_batch = 500
requeue_spread = "20s"
item_retention = "7d"
stop_grace = "3s"
drain_timeout = "1m"
drain_kill = "2s"
stuck_max = 3
tenant_cap = 4
health = "127.0.0.1:9464"
[lanes.video]
capacity = 2
[kinds.CHECK_UPLOAD]
command = ["python3", "-m", "uploads.check"]
request = "stdin"
result = "ignored"
time_limit = "30m"
max_attempts = 5
retry = { base = "10s", cap = "5m", jitter = 0.5 }
lane = "video"
priority = -3
errors = { Unsupported = "info", Flaky = { level = "warn", retryable = true }, Bad = { retryable = false } }
redact = ["password", "token"]
environment = ["AWS_REGION", "APP_*"]
directory = "jobs"
stdout_bytes_max = "2MiB"
stderr_bytes_max = "64KiB"
no_new_privileges = true
[postgres]
schema = "jobs"
wakeup = "poll"
connections = 40
system_login = "postgres://system@db/app"
migration_login = "postgres://owner@db/app"
core = { database = "postgres://c", system_login = "postgres://cs", migration_login = "postgres://cm" }
[postgres.activity]
database = "postgres://a"
system_login = "postgres://as"
migration_login = "postgres://am"
[postgres.queue]
database = "postgres://q"
system_login = "postgres://qs"
migration_login = "postgres://qm"
"#;

#[test]
fn every_setting_of_the_file_is_taken() {
    let config = read(WHOLE, &[]).expect("settings");
    assert_eq!(config.database.value, "sqlite:jobs.db");
    let worker = &config.worker.settings;
    assert_eq!(worker.name, "mailer");
    assert_eq!(worker.lease, Duration::from_secs(90));
    assert_eq!(worker.item_retention, Duration::from_hours(7 * 24));
    assert_eq!((worker.stuck_max, worker.tenant_cap), (Some(3), Some(4)));
    for (name, _, origin) in config.worker.values() {
        assert!(matches!(origin, Origin::File { .. }), "{name}");
    }
    let kind = config.kinds.values().next().expect("a kind");
    assert_eq!(kind.command.value, ["python3", "-m", "uploads.check"]);
    assert_eq!(kind.request.value, Channel::Stdin);
    assert_eq!(kind.result.value, ResultRule::Ignored);
    assert_eq!(kind.time_limit.value, Some(Duration::from_mins(30)));
    assert_eq!(kind.retry_base.value, Duration::from_secs(10));
    assert_eq!((kind.priority.value, kind.max_attempts.value), (-3, 5));
    let rule = |name: &str| kind.errors[name].value;
    let rules = [
        ("Unsupported", Level::Info, true),
        ("Flaky", Level::Warn, true),
        ("Bad", Level::Error, false),
    ];
    for (name, level, retryable) in rules {
        assert_eq!(rule(name), RegisteredError { level, retryable }, "{name}");
    }
    assert_eq!(kind.stdout_bytes_max.value, 2 << 20);
    for line in show::lines(&config) {
        assert!(matches!(line.origin, Origin::File { .. }), "{}", line.key);
    }
}

#[test]
fn what_stands_over_a_url_of_the_file_comes_first() {
    let flags = [
        "--queue-database",
        "postgres://other",
        "--postgres-schema",
        "mine",
    ];
    let config = read(WHOLE, &flags).expect("settings");
    let postgres = &config.postgres;
    assert_eq!(postgres.schema.value, "mine");
    let queue = postgres.of(leasehold_postgres::Role::Queue);
    assert_eq!(queue.database.value.as_deref(), Some("postgres://other"));
    let name = "queue-database";
    assert_eq!(queue.database.origin, Origin::Flag { name });
    let core = postgres.of(leasehold_postgres::Role::Core);
    assert_eq!(core.database.value.as_deref(), Some("postgres://c"));
}

#[test]
fn flags_say_how_a_server_is_connected_over_the_file() {
    let postgres = |flags: &[&str]| read(WHOLE, flags).expect("settings").postgres;
    let of_file = postgres(&[]);
    assert_eq!(of_file.wakeup.value, Wakeup::Poll);
    assert_eq!(of_file.connections.value, Some(40));
    let over = postgres(&["--postgres-wakeup=listen", "--postgres-connections=12"]);
    assert_eq!(over.wakeup.value, Wakeup::Listen);
    let name = "postgres-wakeup";
    assert_eq!(over.wakeup.origin, Origin::Flag { name });
    assert_eq!(over.connections.value, Some(12));
    let none = postgres(&["--postgres-connections=none"]);
    assert_eq!(none.connections.value, None);
    let name = "postgres-connections";
    assert_eq!(none.connections.origin, Origin::Flag { name });

    let wrong = ["--postgres-wakeup=notify", "--postgres-connections=1"];
    assert_eq!(
        read(WHOLE, &wrong).err().expect("problems"),
        [
            "--postgres-wakeup: postgres.wakeup = \"notify\" is not a choice; choose one of listen, poll",
            "--postgres-connections: postgres.connections = \"1\" is no whole number, or out of range; \
             give a number from 2 to 10000, or none",
        ]
    );
}

#[test]
fn a_key_of_the_section_that_is_not_known_is_refused_with_the_nearest() {
    let text =
        "[postgres]\nsystem_logn = \"a\"\n[postgres.queue]\nschema = \"a\"\n[postgres.jobs]\n";
    let problems = read(text, &[]).err().expect("problems");
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(
        problems[0].contains("did you mean system_login?"),
        "{problems:?}"
    );
    assert!(
        problems[1].contains("postgres.queue.schema is no key"),
        "{problems:?}"
    );
    assert!(
        problems[2].contains("postgres.jobs is no key"),
        "{problems:?}"
    );
}

#[test]
fn an_empty_file_leaves_the_defaults() {
    for text in ["", "\u{feff}# nothing\r\n"] {
        let config = read(text, &[]).expect("settings");
        assert_eq!(config.database.value, "sqlite:leasehold.db");
        assert_eq!(
            format!("{:?}", config.worker.settings),
            format!("{:?}", WorkerSettings::default())
        );
        for line in show::lines(&config) {
            assert_eq!(line.origin, &Origin::Default, "{}", line.key);
        }
    }
}

#[test]
fn what_is_shown_can_be_read_again_as_the_same() {
    let odd = "\n[lanes.\"a.b:c/d\"]\ncapacity = 1\n[kinds.ODD]\n\
               command = [\"sh\", \"-c\", 'echo \"\u{7f}\\\u{1b}\"']\nredact = [\"é\\\"\"]\n";
    let escaped = odd.replace(['\u{7f}', '\u{1b}'], "x");
    for text in [
        "",
        WHOLE,
        &escaped,
        "[kinds.X]\ncommand = [\"x\\u007f\\u001b\\n\"]",
    ] {
        let shown = show::text(&show::lines(&read(text, &[]).expect("settings")));
        let again = show::text(&show::lines(&read(&shown.join("\n"), &[]).expect("again")));
        assert_eq!(shown, again);
    }
}

#[test]
fn half_a_file_is_read_or_refused_at_a_line_it_has() {
    for (end, _) in WHOLE.char_indices() {
        let text = &WHOLE[..end];
        let Err(problems) = read(text, &[]) else {
            continue;
        };
        for problem in problems {
            let line = problem.split(':').nth(1).and_then(|line| line.parse().ok());
            let lines = text.split('\n').count();
            assert!(
                line.is_some_and(|line| (1..=lines).contains(&line)),
                "{problem}"
            );
        }
    }
}

#[test]
fn every_field_of_the_worker_can_be_set() {
    // The library's own list: the names that its settings show of themselves.
    let debug = format!("{:#?}", WorkerSettings::default());
    let fields = debug.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    ")?.split_once(": ")?;
        (!name.starts_with(' ')).then_some(name)
    });
    // Tasks of Step Functions set this one, by `step_functions.stop_time`; a queue's drain asks at once.
    let fields = fields.filter(|name| *name != "drain_finish");
    assert_eq!(fields.collect::<Vec<_>>(), worker::names());
}

#[test]
fn a_flag_stands_over_the_file() {
    let flags = [
        "--capacity",
        "3",
        "--lanes",
        "a, b",
        "--health",
        "none",
        "--poll-interval=2s",
    ];
    let config = read(WHOLE, &flags).expect("settings");
    let worker = &config.worker.settings;
    assert_eq!((worker.capacity, worker.health), (3, None));
    assert_eq!(worker.poll_interval, Duration::from_secs(2));
    let lanes: Vec<&str> = worker.lanes.iter().map(Lane::as_str).collect();
    assert_eq!(lanes, ["a", "b"]);
    let flag = |name| Origin::Flag { name };
    assert_eq!(config.worker.origin("capacity"), &flag("capacity"));
    assert_eq!(
        config.worker.origin("poll_interval"),
        &flag("poll-interval")
    );
    assert_eq!(config.worker.origin("lease"), &Origin::File { line: 8 });
}

#[test]
fn lanes_of_their_own_are_workers_of_their_own() {
    let shape = |text: &str| -> Vec<String> {
        let config = read(text, &[]).expect("settings");
        let shape = |worker: WorkerSettings| {
            worker.check().expect("settings");
            let WorkerSettings {
                name,
                capacity,
                lanes,
                health,
                ..
            } = worker;
            let port = health.map_or("no port".to_owned(), |address| address.port().to_string());
            format!("{name}: {capacity} of {lanes:?}, {port}")
        };
        config.workers().into_iter().map(shape).collect()
    };
    assert_eq!(
        shape(WHOLE),
        [
            r#"mailer: 8 of ["default", "mail"], no port"#,
            r#"mailer-video: 2 of ["video"], no port"#
        ]
    );
    assert_eq!(shape(""), [r#"worker: 16 of ["default"], no port"#]);
    // The lane that is shared without a word is not shared if it has a section.
    let own = "[lanes.default]\ncapacity = 1\n[lanes.x]\ncapacity = 2";
    assert_eq!(
        shape(own),
        [
            r#"worker-default: 1 of ["default"], no port"#,
            r#"worker-x: 2 of ["x"], no port"#
        ]
    );
    let alone = "worker.lanes = []\nworker.health = \"[::1]:94\"\n[lanes.x]\ncapacity = 2";
    assert_eq!(shape(alone), [r#"worker-x: 2 of ["x"], 94"#]);
}

#[test]
fn relative_paths_count_from_the_folder_of_the_file() {
    let kind = "[kinds.A]\ncommand = [\"a\"]\n[kinds.B]\ncommand = [\"b\"]\ndirectory = ";
    for (path, directory, a, b) in [
        ("leasehold.toml", "jobs", ".", "jobs"),
        ("etc/leasehold.toml", "jobs", "etc", "etc/jobs"),
        ("etc/leasehold.toml", ".", "etc", "etc"),
        ("/etc/leasehold.toml", "/srv", "/etc", "/srv"),
    ] {
        let config = read_at(path, &format!("{kind}{directory:?}"), &[]).expect("settings");
        let directories = config.kinds.values().map(|kind| &kind.directory.value);
        assert_eq!(
            directories.collect::<Vec<_>>(),
            [&PathBuf::from(a), &PathBuf::from(b)]
        );
    }
}

#[test]
fn what_is_said_to_people_of_a_kinds_default_holds() {
    assert_eq!(NewItem::MAX_ATTEMPTS, 3, "the help of `enqueue` says so");
}
