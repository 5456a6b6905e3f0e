//! Logins that keep tenants apart, and databases of roles.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Ground, on_server};
use crate::harness::{Ended, ended};
use crate::run::item;

/// A ground whose logins are nobody else's: those of a server are of all its databases.
struct Fenced {
    ground: Ground,
    schema: String,
}

impl Fenced {
    fn new() -> Option<Self> {
        let schema = format!("q{}", Uuid::new_v4().simple());
        let settings = format!("[postgres]\nschema = {schema:?}\n");
        Some(Self {
            ground: Ground::with(&settings)?,
            schema,
        })
    }

    fn make(&self) -> Value {
        self.ground.json(&["migrate", "--create-roles"])
    }

    /// The URL of a login that was made, with its password.
    fn url_of(&self, made: &Value, purpose: &str) -> String {
        let logins = made["logins"].as_array().expect("logins");
        let login = logins.iter().find(|login| login["purpose"] == purpose);
        let login = login.expect(purpose);
        let text = |key: &str| login[key].as_str().expect(key).to_owned();
        let url = self.ground.url();
        let (scheme, rest) = url.split_once("://").expect("a scheme");
        let (_, place) = rest.split_once('@').expect("a user");
        format!("{scheme}://{}:{}@{place}", text("name"), text("password"))
    }

    fn run_as(&self, urls: &[(&str, &str)], command: &[&str]) -> Ended {
        let mut command = self.ground.command(command);
        for (variable, url) in urls {
            command.env(variable, url);
        }
        ended(&command.output().expect("the command"))
    }

    /// A server that somebody gave keeps none of the logins.
    fn end(&self) {
        let schema = &self.schema;
        on_server(
            &self.ground.url(),
            &[
                &format!("drop schema {schema} cascade"),
                &format!("drop role {schema}_runtime, {schema}_system, {schema}_enqueuer"),
            ],
        );
    }
}

#[test]
fn logins_are_made_and_work_behind_the_fence() {
    let Some(fenced) = Fenced::new() else { return };
    let doctor = fenced.ground.run(&["doctor"]);
    assert!(!doctor.out.contains("\tfence\t"), "{}", doctor.out);
    let made = fenced.make();
    assert_eq!(made["logins"].as_array().map(Vec::len), Some(3), "{made}");
    let again = fenced.make();
    let is_left = |login: &Value| login["is_new"] == false && login["password"].is_null();
    assert!(
        again["logins"]
            .as_array()
            .expect("logins")
            .iter()
            .all(is_left),
        "{again}"
    );
    let runtime = fenced.url_of(&made, "runtime");
    let system = fenced.url_of(&made, "system");
    let both = [
        ("LEASEHOLD_DATABASE", runtime.as_str()),
        ("LEASEHOLD_SYSTEM_LOGIN", &system),
    ];
    let enqueued = fenced.run_as(&both, &["enqueue", "SEND", "--json"]);
    assert_eq!(enqueued.code, 0, "{}", enqueued.talk);
    let work = ["-vv", "run", "--until-empty", "SEND", "--", "echo", "{}"];
    let ran = fenced.run_as(&both, &work);
    assert_eq!(ran.code, 0, "{}", ran.talk);
    assert!(ran.talk.contains(": 1 done"), "{}", ran.talk);
    let doctor = fenced.run_as(&both, &["doctor"]);
    assert!(doctor.out.contains("ok\tfence\t"), "{}", doctor.out);
    let password = |url: &str| url.split([':', '@']).nth(2).expect("a password").to_owned();
    for secret in [password(&runtime), password(&system)] {
        assert!(secret.len() >= 32, "{secret}");
        for told in [&enqueued, &ran, &doctor] {
            assert!(!told.talk.contains(&secret) && !told.out.contains(&secret));
        }
    }

    // One login that passes every fence works too, and hears what it is missing.
    let ran = fenced.ground.run(&work);
    assert!(
        ran.talk.contains("bypass row-level security"),
        "{}",
        ran.talk
    );
    let doctor = fenced.ground.run(&["doctor"]);
    assert!(doctor.out.contains("warning\tfence\t"), "{}", doctor.out);
    // One that sees nothing alone does not wait for what it cannot see.
    let ran = fenced.run_as(&both[..1], &work);
    assert_eq!(ran.code, 4, "{}", ran.talk);
    assert!(ran.talk.contains("system login"), "{}", ran.talk);
    fenced.end();
}

#[test]
fn one_login_without_a_fence_works_and_is_told_what_is_missing() {
    let Some(ground) = Ground::new() else { return };
    ground.enqueue(&["SEND"]);
    let ran = ground.run(&["run", "--until-empty", "SEND", "--", "echo", "{}"]);
    assert_eq!(ran.code, 0, "{}", ran.talk);
    assert!(ran.talk.contains("--create-roles"), "{}", ran.talk);
    assert!(ran.talk.contains(": 1 done"), "{}", ran.talk);
    let doctor = ground.run(&["doctor"]);
    assert!(doctor.out.contains("warning\tfence\t"), "{}", doctor.out);
}

/// What a pipe takes may be the log of a build.
#[test]
fn no_password_is_told_to_a_pipe() {
    let Some(fenced) = Fenced::new() else { return };
    let talk = fenced.ground.refused(4, &["migrate", "--create-roles"]);
    assert!(talk.contains("LEASEHOLD_RUNTIME_PASSWORD"), "{talk}");
    let passwords = [
        ("LEASEHOLD_RUNTIME_PASSWORD", "hunter2"),
        ("LEASEHOLD_SYSTEM_PASSWORD", "hunter3"),
    ];
    let made = fenced.run_as(&passwords, &["-vv", "migrate", "--create-roles"]);
    assert_eq!(made.code, 0, "{}", made.talk);
    let row = format!("{}_runtime\truntime\t-", fenced.schema);
    assert!(made.out.contains(&row), "{}", made.out);
    assert!(!made.talk.contains("hunter") && !made.out.contains("hunter"));
    fenced.end();
}

#[test]
fn a_file_has_no_logins() {
    let place = crate::harness::Place::new();
    let talk = place.refused(2, &["migrate", "--create-roles"]);
    assert!(talk.contains("a file has no logins"), "{talk}");
    place.file(
        "leasehold.toml",
        "[postgres]\nsystem_login = \"postgres://ann:hunter2@db/app\"\n",
    );
    let talk = place.refused(2, &["items", "list"]);
    assert!(talk.contains("postgres.system_login"), "{talk}");
    assert!(!talk.contains("hunter2"), "{talk}");
}

#[test]
fn every_url_of_the_settings_is_shown_without_its_password() {
    let Some(ground) = Ground::with(
        "[postgres]\nsystem_login = \"postgres://ann:hunter2@db/app\"\n\
         [postgres.queue]\ndatabase = \"postgres://db/app?password=hunter2\"\n",
    ) else {
        return;
    };
    let shown = ground.json(&["config", "show"]);
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    assert!(
        shown.to_string().contains("postgres://ann:***@db/app"),
        "{shown}"
    );
}

/// The worker, its sweep and the commands, over two databases.
#[test]
fn roles_may_have_databases_of_their_own() {
    let (Some(ground), Some(apart)) = (Ground::new(), Ground::new()) else {
        return;
    };
    let text = format!(
        "database = {:?}\n[postgres.queue]\ndatabase = {:?}\n\
         [worker]\nsweep_interval = \"100ms\"\nsweep_budget = \"100ms\"\nitem_retention = \"1s\"\n",
        ground.url(),
        apart.url()
    );
    ground.file("leasehold.toml", text);
    let first = ground.json(&["migrate"]);
    let all = first["migrations"].as_array().expect("migrations");
    assert_eq!(
        first["applied"].as_array().map(Vec::len),
        Some(all.len()),
        "{first}"
    );
    assert_eq!(ground.json(&["migrate"])["applied"], json!([]));
    let has = |ground: &Ground, table: &str| {
        let text = format!("select from pg_class where relname = '{table}' and relkind = 'r'");
        ground.count_of(&text) == 1
    };
    for (table, is_queue) in [
        ("items", true),
        ("schedules", true),
        ("orgs", false),
        ("entries", false),
    ] {
        assert_eq!(has(&apart, table), is_queue, "{table}");
        assert_eq!(has(&ground, table), !is_queue, "{table}");
    }
    let id = ground.enqueue(&["SEND"]);
    let dead = ground.enqueue(&["FAIL", "--max-attempts", "1"]);
    let ran = ground.run(&["run", "--until-empty", "SEND", "--", "echo", "{}"]);
    assert!(ran.talk.contains(": 1 done"), "{}", ran.talk);
    assert_eq!(item(&ground, &id)["status"], "done");
    let ran = ground.run(&["run", "--until-empty", "FAIL", "--", "false"]);
    assert!(ran.talk.contains(": 1 dead"), "{}", ran.talk);
    assert_eq!(item(&ground, &dead)["status"], "failed");
    // Its audit entry is in the other database.
    assert_eq!(
        ground.count_of("select from leasehold.entries where stream = 'audit'"),
        1
    );
    let doctor = ground.run(&["doctor"]);
    assert_eq!(
        doctor.out.matches("\tversion\t").count(),
        2,
        "{}",
        doctor.out
    );
}
