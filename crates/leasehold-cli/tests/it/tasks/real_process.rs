//! Whole executions: a state machine sends, our command runs an unchanged Python handler, the execution
//! ends. The services are a stand-in in Python (`tests/tasks/rig.py`), installed once from pip.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::Place;
use crate::process::{Process, eventually};

const PACKAGES: [&str; 4] = [
    "moto[sqs,stepfunctions]==5.2.5",
    "flask",
    "flask-cors",
    "pydantic",
];

/// The interpreter of the rig's own environment; `None` where it cannot be installed, which is a failure
/// on a build machine.
#[expect(clippy::print_stderr, reason = "a case that cannot be tried says so")]
fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PYTHON.get_or_init(install) {
        Ok(python) => Some(python),
        Err(reason) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: the stand-in of the services cannot be installed: {reason}");
            None
        }
        Err(reason) => panic!("the stand-in of the services cannot be installed: {reason}"),
    }
}

fn install() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sfn-rig");
    let python = home.join("bin/python");
    let works = || {
        let tried = Command::new(&python)
            .args(["-c", "import moto.stepfunctions, flask_cors, pydantic"])
            .output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    if works() {
        return Ok(python);
    }
    // One case at a time installs it; the others find it then.
    let lock = std::fs::File::create(home.with_extension("lock")).map_err(|e| e.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    if works() {
        return Ok(python);
    }
    let run = |command: &mut Command| match command.output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    run(Command::new(home.join("bin/pip"))
        .args(["install", "-q"])
        .args(PACKAGES))?;
    works()
        .then_some(python)
        .ok_or_else(|| "it does not start".to_owned())
}

/// The services, for one case.
struct Rig {
    python: &'static Path,
    port: u16,
    place: Place,
    queue: String,
    machine: String,
    _server: Process,
}

impl Rig {
    /// With a state machine whose state waits `heartbeat` seconds for a word.
    fn start(name: &str, heartbeat: &str, handler: &str) -> Option<Self> {
        let python = python()?;
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tasks");
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let place = Place::new();
        place.file("src/atmos/validator.py", handler);
        let mut server = Command::new(python);
        server
            .arg(tests.join("rig.py"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = Process::start(&place, server);
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(eventually(answers), "{}", server.talk());
        let mut rig = Self {
            python,
            port,
            place,
            queue: String::new(),
            machine: String::new(),
            _server: server,
        };
        let made = rig.ask(&["setup", name, heartbeat]);
        rig.queue = made["queue"].as_str().unwrap().to_owned();
        rig.machine = made["machine"].as_str().unwrap().to_owned();
        rig.place.file("leasehold.toml", rig.settings());
        Some(rig)
    }

    fn settings(&self) -> String {
        format!(
            "[step_functions]\nqueue = \"{}\"\nheartbeat_interval = \"1s\"\npoll_wait = \"2s\"\n\
             route_by = \"asset_upload_type\"\nroutes = {{ atmos = \"ATMOS\" }}\n\
             unsupported = {{ error = \"UnsupportedAssetUploadType\" }}\n\
             [kinds.ATMOS]\ncommand = [\"{}\", \"-m\", \"src.atmos.validator\"]\n\
             environment = [\"PYTHONPATH\"]\nerrors = {{ BadAsset = \"warn\" }}\n",
            self.queue,
            self.python.display(),
        )
    }

    fn services(&self, command: &mut Command) {
        command
            .env(
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            )
            .envs([
                ("AWS_REGION", "us-east-1"),
                ("AWS_DEFAULT_REGION", "us-east-1"),
                ("AWS_ACCESS_KEY_ID", "x"),
                ("AWS_SECRET_ACCESS_KEY", "x"),
            ]);
    }

    fn ask(&self, words: &[&str]) -> Value {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tasks");
        let mut command = Command::new(self.python);
        command
            .arg(tests.join("cloud.py"))
            .args(words)
            .stderr(Stdio::inherit());
        self.services(&mut command);
        let answer = command.output().unwrap();
        assert!(answer.status.success(), "{words:?}");
        serde_json::from_slice(&answer.stdout).unwrap()
    }

    fn execute(&self, kind: &str) -> String {
        let input =
            format!("{{\"asset_upload_type\": \"{kind}\", \"bucket\": \"b\", \"key\": \"k\"}}");
        let started = self.ask(&["start", &self.machine, &input]);
        started["execution"].as_str().unwrap().to_owned()
    }

    fn worker(&self) -> Process {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/src");
        let mut command = self.place.command(&["run"]);
        self.services(&mut command);
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("PYTHONPATH", sdk);
        Process::start(&self.place, command)
    }

    fn ended(&self, execution: &str) -> Value {
        self.ask(&["wait", execution, "60"])
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path().join(name)).unwrap_or_default()
    }
}

/// The seed's handler, with its import line changed.
const VALIDATOR: &str = include_str!("../../tasks/validator.py");

fn handler(body: &str) -> String {
    VALIDATOR.replace(
        "    # ... domain work ...\n",
        &format!("    import os, subprocess, sys, time\n{body}"),
    )
}

#[test]
fn an_execution_succeeds_with_the_handlers_result_and_fails_into_its_catch() {
    let bad = "    class BadAsset(Exception): pass\n    if os.path.exists(\"bad\"): raise BadAsset(\"no such key: ü\")\n";
    let Some(rig) = Rig::start("ends", "8", &handler(bad)) else {
        return;
    };
    let worker = rig.worker();
    let ended = rig.ended(&rig.execute("atmos"));
    assert_eq!(ended["status"], "SUCCEEDED", "{ended} {}", worker.talk());
    let output: Value = serde_json::from_str(ended["output"].as_str().unwrap()).unwrap();
    assert_eq!(output, serde_json::json!({ "is_valid": true }));

    rig.place.file("bad", "");
    let ended = rig.ended(&rig.execute("atmos"));
    let caught: Value = serde_json::from_str(ended["output"].as_str().unwrap()).unwrap();
    assert_eq!(caught["Error"], "BadAsset", "{}", worker.talk());
    assert_eq!(caught["Cause"], "no such key: ü");

    let ended = rig.ended(&rig.execute("vhs"));
    let caught: Value = serde_json::from_str(ended["output"].as_str().unwrap()).unwrap();
    assert_eq!(caught["Error"], "UnsupportedAssetUploadType");
    worker.signal(Signal::TERM);
    let told = worker.ended();
    assert_eq!(told.code, 0, "{}", told.talk);
    assert!(!told.talk.contains("task_token"), "{}", told.talk);
}

/// Waits for a gate, with a process beside it; says which token it has and who it is.
const GATED: &str =
    "    beside = subprocess.Popen([\"sleep\", \"1000\"], stdout=2, start_new_session=True)
    with open(\"tries\", \"a\") as file: file.write(f\"{os.getpid()} {beside.pid}\\n\")
    while not os.path.exists(\"gate\"): time.sleep(0.05)
    beside.kill()
";

fn lives(id: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z")
}

#[test]
fn a_killed_workers_task_is_retried_elsewhere_and_its_processes_are_gone() {
    let Some(rig) = Rig::start("killed", "4", &handler(GATED)) else {
        return;
    };
    let worker = rig.worker();
    let execution = rig.execute("atmos");
    assert!(
        eventually(|| rig.read("tries").lines().count() == 1),
        "{}",
        worker.talk()
    );
    let first = rig.read("tries");
    worker.signal(Signal::KILL);
    let gone = || first.split_whitespace().all(|id| !lives(id));
    assert!(eventually(gone), "{first}");
    let other = rig.worker();
    assert!(
        eventually(|| rig.read("tries").lines().count() == 2),
        "{}",
        other.talk()
    );
    rig.place.file("gate", "");
    let ended = rig.ended(&execution);
    assert_eq!(ended["status"], "SUCCEEDED", "{ended} {}", other.talk());
}

#[test]
fn a_stopped_executions_child_is_killed_and_nothing_is_reported() {
    let Some(rig) = Rig::start("stopped", "8", &handler(GATED)) else {
        return;
    };
    let worker = rig.worker();
    let execution = rig.execute("atmos");
    assert!(
        eventually(|| rig.read("tries").lines().count() == 1),
        "{}",
        worker.talk()
    );
    let first = rig.read("tries");
    rig.ask(&["stop", &execution]);
    worker.until_said("AbortedStaleTask");
    let gone = || first.split_whitespace().all(|id| !lives(id));
    assert!(eventually(gone), "{first}");
    assert_eq!(rig.ended(&execution)["status"], "ABORTED");
    worker.signal(Signal::TERM);
    let told = worker.ended();
    assert!(
        !told.talk.contains("reported\n") && !told.talk.contains(" reported "),
        "{}",
        told.talk
    );
}
