//! The same commands on a Postgres server, each case in a database of its own.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;

use serde_json::{Value, json};
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::cluster::{self, Shared};
use crate::harness::{Place, ended};
use crate::run::{QUICK, item};

mod bench;
mod fence;
mod real_process;

/// A place whose file of settings names a database of its own on the server of the tests.
struct Ground {
    place: Place,
    shared: &'static Shared,
    name: String,
}

impl Ground {
    /// With those settings besides; `None` where there is no server, which another test tells.
    fn with(settings: &str) -> Option<Self> {
        let shared = cluster::shared().ok()?;
        let name = format!("leasehold_cli_{}", Uuid::new_v4().simple());
        on_server(&shared.address, &[&format!("create database {name}")]);
        let ground = Self {
            place: Place::new(),
            shared,
            name,
        };
        let text = format!("database = {:?}\n{settings}", ground.url());
        ground.file("leasehold.toml", text);
        Some(ground)
    }

    fn new() -> Option<Self> {
        Self::with("")
    }

    fn url(&self) -> String {
        let (server, _) = self.shared.address.rsplit_once('/').expect("a database");
        format!("{server}/{}", self.name)
    }

    /// The URL with a password, which the server of the tests does not ask for.
    fn url_with(&self, password: &str) -> String {
        let url = self.url();
        let (user, rest) = url.split_once('@').expect("a user");
        format!("{user}:{password}@{rest}")
    }

    /// Does something to the database that no command does.
    fn change(&self, statement: &str) {
        on_server(&self.url(), &[statement]);
    }

    /// How many rows the statement finds.
    fn count_of(&self, statement: &str) -> usize {
        on_server(&self.url(), &[statement])
    }
}

impl Deref for Ground {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Drop for Ground {
    /// A server that somebody gave is left as it was; a throw-away one is thrown away as a whole.
    fn drop(&mut self) {
        if self.shared.is_given {
            let drop = format!("drop database {} with (force)", self.name);
            on_server(&self.shared.address, &[&drop]);
        }
    }
}

/// Carries out the statements; answers how many rows the last one gave.
fn on_server(address: &str, statements: &[&str]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(address, NoTls)
            .await
            .expect("the server");
        tokio::spawn(connection);
        let mut rows = 0;
        for statement in statements {
            rows = client.query(*statement, &[]).await.expect(statement).len();
        }
        rows
    })
}

const NOBODY: &str = "0197c2f4-7d0a-7000-8000-0123456789ab";

/// Every command that works on what is there.
const READERS: &[&[&str]] = &[
    &["items", "list"],
    &["items", "show", NOBODY],
    &["items", "explain", NOBODY],
    &["items", "retry", NOBODY],
    &["items", "cancel", NOBODY],
];

const HAS_SCHEMA: &str = "select from pg_namespace where nspname = 'leasehold'";

#[test]
fn a_url_may_come_from_the_file_the_environment_or_a_flag() {
    let Some(ground) = Ground::new() else { return };
    let id = ground.enqueue(&["SEND"]);
    let elsewhere = Place::new();
    let url = ground.url();
    let shown = elsewhere.json(&["items", "show", &id, "--database", &url]);
    assert_eq!(shown["item"]["kind"], "SEND");
    let mut command = elsewhere.command(&["items", "show", &id]);
    command.env("LEASEHOLD_DATABASE", &url);
    let ended = ended(&command.output().expect("the command"));
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let left = std::fs::read_dir(elsewhere.path()).expect("the folder");
    assert_eq!(left.count(), 0, "no file was made of it");
}

#[test]
fn looking_creates_nothing_and_says_what_does() {
    let Some(ground) = Ground::new() else { return };
    for command in READERS {
        let talk = ground.refused(4, command);
        assert!(talk.contains("there is no queue in the database"), "{talk}");
        assert!(talk.contains("`leasehold migrate`"), "{talk}");
    }
    let status = ground.run(&["migrate", "status", "--check"]);
    assert_eq!(status.code, 3, "{}", status.talk);
    assert!(status.out.lines().all(|line| line.ends_with("\tpending")));
    assert_eq!(ground.count_of(HAS_SCHEMA), 0);
}

#[test]
fn migrate_creates_and_then_has_nothing_to_do() {
    let Some(ground) = Ground::new() else { return };
    let first = ground.json(&["migrate"]);
    let all = first["migrations"].as_array().expect("migrations");
    let versions: Vec<&Value> = all.iter().map(|one| &one["version"]).collect();
    assert_eq!(json!(versions), first["applied"]);
    assert_eq!(all[0]["name"], "work");
    assert!(
        all.iter().all(|one| one["applied_at"].is_string()),
        "{first}"
    );
    assert_eq!(ground.json(&["migrate"])["applied"], json!([]));
    let status = ground.run(&["migrate", "status", "--check"]);
    assert_eq!((status.code, status.out.lines().count()), (0, all.len()));
}

#[test]
fn migrations_can_be_printed_for_a_person_and_go_into_the_schema_that_is_named() {
    let Some(ground) = Ground::new() else { return };
    let within = |command: &[&'static str]| [command, &["--schema", "jobs"]].concat();
    let all = ground.run(&within(&["migrate", "print", "--all"]));
    assert_eq!(all.code, 0, "{}", all.talk);
    assert!(
        all.out.contains("insert into jobs.migrations"),
        "{}",
        all.out
    );
    assert_eq!(ground.run(&within(&["migrate", "print"])).out, all.out);
    let status = ground.run(&within(&["migrate", "status", "--check"]));
    assert_eq!(status.code, 3, "{}", status.talk);
    assert_eq!(ground.run(&within(&["migrate"])).code, 0);
    assert_eq!(ground.json(&within(&["migrate", "print"]))["sql"], "");
    assert_eq!(
        ground.run(&within(&["migrate", "status", "--check"])).code,
        0
    );
    assert_eq!(
        ground.count_of(HAS_SCHEMA),
        0,
        "the schema of the others is none of it"
    );
    let talk = ground.refused(2, &["migrate", "--schema", "No; such"]);
    assert!(talk.contains("use 1 to 63 lower-case letters"), "{talk}");
    for name in ["Jobs", "user", "left"] {
        ground.refused(2, &["migrate", "--schema", name]);
    }
}

#[test]
fn the_schema_of_the_flag_wins_over_that_of_the_settings() {
    let Some(ground) = Ground::with("[postgres]\nschema = \"settled\"\n") else {
        return;
    };
    let has = |name: &str| {
        ground.count_of(&format!(
            "select from pg_namespace where nspname = '{name}'"
        )) == 1
    };
    assert_eq!(ground.run(&["migrate", "--schema", "given"]).code, 0);
    assert!(has("given") && !has("settled"));
    assert_eq!(ground.run(&["migrate"]).code, 0);
    assert!(has("settled"));
}

#[test]
fn the_schema_of_a_later_build_is_called_that() {
    let Some(ground) = Ground::new() else { return };
    assert_eq!(ground.run(&["migrate"]).code, 0);
    ground.change(
        "insert into leasehold.migrations (version, name, digest, build_min)
         values (901, '0901_colour', '', 0)",
    );
    let status = ground.run(&["migrate", "status", "--check"]);
    assert_eq!(status.code, 0, "{}", status.talk);
    assert!(status.talk.contains("of a later build"), "{}", status.talk);
}

#[test]
fn an_older_schema_is_left_for_a_person() {
    let Some(ground) = Ground::new() else { return };
    ground.enqueue(&["SEND"]);
    // As it was before the last step.
    ground.change("drop table leasehold.worker_beats");
    ground.change("delete from leasehold.migrations where name = '0007_liveness'");
    let makers: &[&[&str]] = &[&["enqueue", "SEND"], &["run", "SEND", "--", "true"]];
    for command in READERS.iter().chain(makers) {
        let talk = ground.refused(4, command);
        assert!(talk.contains("does not fit this build"), "{talk}");
        assert!(talk.contains("try: run `leasehold migrate`"), "{talk}");
    }
    let status = ground.json(&["migrate", "status", "--check"]);
    assert_eq!(status["migrations"][6]["applied_at"], Value::Null);
    assert_eq!(ground.json(&["migrate"])["applied"], json!([7]));
    assert_eq!(ground.count(), 1);
}

#[test]
fn all_who_come_first_at_once_find_one_queue() {
    let Some(ground) = Ground::new() else { return };
    let start = |_| {
        let mut command = ground.command(&["enqueue", "SEND"]);
        command.stderr(std::process::Stdio::piped());
        command.spawn().expect("the command")
    };
    let all: Vec<_> = (0..5).map(start).collect();
    for one in all {
        let ended = ended(&one.wait_with_output().expect("its end"));
        assert_eq!(ended.code, 0, "{}", ended.talk);
    }
    assert_eq!(ground.count(), 5);
}

#[test]
fn items_are_listed_shown_explained_and_cancelled() {
    let Some(ground) = Ground::new() else { return };
    let id = ground.enqueue(&["SEND", r#"{"to": "Ann"}"#, "--key", "one", "--in", "1h"]);
    let again = ground.json(&["enqueue", "SEND", "--key", "one"]);
    assert_eq!(
        (&again["fate"], &again["item"]["id"]),
        (&json!("key_exists"), &json!(id))
    );
    let listed = ground.json(&["items", "list"]);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["items"][0]["id"], json!(id));
    assert_eq!(item(&ground, &id)["payload"], json!({"to": "Ann"}));
    let explained = ground.run(&["items", "explain", &id]);
    assert_eq!(explained.code, 0, "{}", explained.talk);
    assert!(explained.out.contains("not before"), "{}", explained.out);
    let cancelled = ground.json(&["items", "cancel", &id]);
    assert_eq!(cancelled["items"][0]["answer"], "cancelled");
    let ended = ground.run(&["items", "show", NOBODY]);
    assert_eq!(ended.code, 3);
    assert!(ended.talk.contains(&ground.name), "{}", ended.talk);
}

#[test]
fn run_does_what_is_due_and_a_dead_letter_can_be_retried() {
    let Some(ground) = Ground::with(QUICK) else {
        return;
    };
    let id = ground.enqueue(&["HELLO", r#"{"name": "Ann"}"#]);
    let script = r#"printf '{"got": %s}' "$WORKER_REQUEST""#;
    let ended = ground.run(&["run", "--until-empty", "HELLO", "--", "sh", "-c", script]);
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{}", ended.talk);
    let place = format!("@{}", ground.url().split_once('@').expect("a user").1);
    assert!(ended.talk.contains(&place), "{}", ended.talk);
    assert!(ended.talk.contains(": 1 done"), "{}", ended.talk);
    assert_eq!(
        item(&ground, &id)["result"],
        json!({"got": {"name": "Ann"}})
    );

    let dead = ground.enqueue(&["HELLO", "--max-attempts", "1"]);
    let fails = ["run", "--until-empty", "HELLO", "--", "sh", "-c", "exit 9"];
    let ended = ground.run(&fails);
    assert!(ended.talk.contains(": 1 dead"), "{}", ended.talk);
    assert_eq!(item(&ground, &dead)["status"], "failed");
    let retried = ground.json(&["items", "retry", &dead]);
    assert_eq!(retried["items"][0]["answer"], "queued");
    assert_eq!(item(&ground, &dead)["status"], "queued");
}

#[test]
fn run_without_listening_does_what_is_due_in_every_database_of_the_queue() {
    /// What a store says once, when a worker would listen.
    const SAYS: &str = "not listening for work of other processes";
    let Some(ground) = Ground::with(&format!("{QUICK}[postgres]\nwakeup = \"poll\"\n")) else {
        return;
    };
    let id = ground.enqueue(&["SEND"]);
    let work = ["run", "--until-empty", "SEND", "--", "echo", "{}"];
    let ran = ground.run(&work);
    assert_eq!(ran.code, 0, "{}", ran.talk);
    assert!(ran.talk.contains(": 1 done"), "{}", ran.talk);
    assert!(ran.talk.contains(SAYS), "{}", ran.talk);
    assert_eq!(item(&ground, &id)["status"], "done");

    // The items in a database of their own are those that would be listened for.
    let Some(apart) = Ground::new() else { return };
    let with = |wakeup: &str, command: &[&str]| {
        let mut command = ground.command(command);
        command.env("LEASEHOLD_QUEUE_DATABASE", apart.url());
        command.env("LEASEHOLD_POSTGRES_WAKEUP", wakeup);
        let ended = ended(&command.output().expect("the command"));
        assert_eq!(ended.code, 0, "{}", ended.talk);
        ended
    };
    for wakeup in ["poll", "listen"] {
        with(wakeup, &["enqueue", "SEND"]);
        let ran = with(wakeup, &work);
        assert!(ran.talk.contains(": 1 done"), "{}", ran.talk);
        assert_eq!(ran.talk.contains(SAYS), wakeup == "poll", "{}", ran.talk);
    }
}

#[test]
fn connections_that_are_too_few_for_the_workers_are_refused_before_anything_is_made() {
    let Some(ground) = Ground::with("[postgres]\nconnections = 5\n") else {
        return;
    };
    let work = ["run", "--until-empty", "SEND", "--", "echo", "{}"];
    let talk = ground.refused(2, &work);
    assert!(
        talk.contains("postgres.connections = 5 is too few"),
        "{talk}"
    );
    assert!(talk.contains("worker.capacity"), "{talk}");
    assert_eq!(ground.count_of(HAS_SCHEMA), 0);
    // Whoever runs no worker needs fewer.
    ground.enqueue(&["SEND"]);
    let mut command = ground.command(&work);
    command.env("LEASEHOLD_POSTGRES_CONNECTIONS", "6");
    let ended = ended(&command.output().expect("the command"));
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(ended.talk.contains(": 1 done"), "{}", ended.talk);
}

#[test]
fn a_command_to_paste_has_a_place_for_the_password_and_not_the_password() {
    let Some(ground) = Ground::new() else { return };
    let id = ground.enqueue(&["SEND", "--max-attempts", "1"]);
    ground.run(&["run", "--until-empty", "SEND", "--", "false"]);
    let url = ground.url_with("hunter2");
    let explained = ground.run(&["items", "explain", &id, "--database", &url]);
    assert_eq!(explained.code, 0, "{}", explained.talk);
    let masked = format!("--database '{}'", ground.url_with("***"));
    assert!(explained.out.contains(&masked), "{}", explained.out);
    assert!(!explained.out.contains("hunter2"), "{}", explained.out);
}

/// What every command says to an address, in every way in which it says something.
fn told_of(url: &str) -> Vec<String> {
    let place = Place::new();
    let makers: &[&[&str]] = &[
        &["migrate"],
        &["migrate", "status", "--check"],
        &["enqueue", "SEND"],
        &["run", "SEND", "--", "true"],
    ];
    let told = READERS.iter().chain(makers).map(|command| {
        let ended = place.run(&[&["-vv", "--database", url], *command].concat());
        assert_eq!((ended.code, ended.out.as_str()), (4, ""), "{}", ended.talk);
        ended.talk
    });
    let told: Vec<String> = told.collect();
    let doctor = place.run(&["doctor", "--database", url]);
    assert_eq!(doctor.code, 3, "{}", doctor.talk);
    assert!(doctor.out.contains("error\tdatabase\t"), "{}", doctor.out);
    told.into_iter().chain([doctor.out, doctor.talk]).collect()
}

#[test]
fn a_server_that_is_not_there_is_named_without_the_password() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = gone.local_addr().expect("its number");
    drop(gone);
    for talk in told_of(&format!("postgres://ann:hunter2@{address}/queue")) {
        assert!(!talk.contains("hunter2"), "{talk}");
        let names_it = talk.contains(&format!("postgres://ann@{address}/queue"));
        assert!(names_it || talk.starts_with("1 error"), "{talk}");
    }
}

#[test]
fn a_password_that_is_refused_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever has hung up has seen enough.
            let _ = refuse_password(stream);
        }
    });
    for talk in told_of(&format!("postgres://ann:hunter2@{address}/queue")) {
        assert!(!talk.contains("hunter2"), "{talk}");
        let says_why = talk.contains(&format!("{address} refused the password"));
        assert!(says_why || talk.starts_with("1 error"), "{talk}");
    }
}

/// As a server does that wants a password and gets a wrong one.
fn refuse_password(mut stream: TcpStream) -> std::io::Result<()> {
    /// `SSLRequest` in place of a version.
    const WANTS_TLS: [u8; 4] = [4, 210, 22, 47];
    let mut start = [0; 8];
    stream.read_exact(&mut start)?;
    if start[4..] == WANTS_TLS {
        stream.write_all(b"N")?;
        stream.read_exact(&mut start)?;
    }
    let length = u32::from_be_bytes([start[0], start[1], start[2], start[3]]);
    let mut rest = vec![0; length as usize - start.len()];
    stream.read_exact(&mut rest)?;
    // A password in the clear, please.
    stream.write_all(&[b'R', 0, 0, 0, 8, 0, 0, 0, 3])?;
    let mut kind_and_length = [0; 5];
    stream.read_exact(&mut kind_and_length)?;
    let mut password = vec![0; usize::from(kind_and_length[4]) - 4];
    stream.read_exact(&mut password)?;
    assert_eq!(password, b"hunter2\0");
    let fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"ann\"\0\0";
    let length = u32::try_from(fields.len() + 4).expect("a short refusal");
    stream.write_all(b"E")?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(fields)
}

#[test]
fn the_doctor_looks_at_the_server() {
    let Some(ground) = Ground::new() else { return };
    let found = |check: &str| -> Value {
        let answer = ground.json(&["doctor"]);
        let all = answer["findings"].as_array().expect("findings").clone();
        let of_check = all.into_iter().find(|one| one["check"] == check);
        of_check.unwrap_or_else(|| panic!("nothing of {check}"))
    };
    assert_eq!(found("database")["level"], "warning");
    for check in ["version", "writable", "connections", "clock"] {
        assert_eq!(found(check)["level"], "ok", "{}", found(check));
    }
    // A throw-away server keeps nothing.
    if !ground.shared.is_given {
        let durability = found("durability");
        assert_eq!(durability["level"], "warning");
        let what = durability["what"].as_str().expect("words");
        assert!(what.starts_with("fsync is off"), "{what}");
    }
    ground.enqueue(&["SEND"]);
    assert_eq!(found("database")["level"], "ok");
    ground.change("delete from leasehold.migrations where name = '0007_liveness'");
    assert_eq!(found("database")["level"], "error");
    ground.change(&format!(
        "alter database {} set default_transaction_read_only = on",
        ground.name
    ));
    assert_eq!(found("writable")["level"], "error");
}
