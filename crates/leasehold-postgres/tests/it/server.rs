//! A throw-away PostgreSQL server, made from the programs on this machine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio_postgres::NoTls;

/// Far more than a server takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between two looks whether it has started.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Nothing here outlives the tests, so nothing needs to reach the disk. Many tests at once have a pool
/// each.
const SETTINGS: &[&str] = &[
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_connections=300",
    "shared_buffers=128MB",
    "listen_addresses=",
    "timezone=UTC",
    "log_timezone=UTC",
];

/// The server's programs, and as whom to run them.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    folder: PathBuf,
    /// A user and a group, where the tests run as root: the server refuses to.
    user: Option<(u32, u32)>,
}

impl Programs {
    /// The newest server of this machine.
    ///
    /// # Errors
    /// What is missing and what to do, for people.
    pub(crate) fn find() -> Result<Self, String> {
        let folder = folders()
            .into_iter()
            .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
        let folder = folder.ok_or(
            "no PostgreSQL server is installed; install it (Debian: postgresql; macOS: brew install \
             postgresql), or give one as LEASEHOLD_TEST_POSTGRES=postgres://…",
        )?;
        let user = if runs_as_root() {
            Some(other_user().ok_or(
                "the tests run as root, as which PostgreSQL does not run, and there is no user \
                 `postgres` or `nobody`",
            )?)
        } else {
            None
        };
        Ok(Self { folder, user })
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        self.as_user(Command::new(self.folder.join(program)))
    }

    /// One that is told to stop when the thread that starts it is gone, where the system can do that.
    pub(crate) fn command_for_life(&self, program: &str) -> Command {
        let ties = ["--pdeathsig", "INT"];
        let can_tie = Command::new("setpriv")
            .args(ties)
            .arg("true")
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !can_tie {
            return self.command(program);
        }
        let mut command = self.as_user(Command::new("setpriv"));
        command.args(ties).arg(self.folder.join(program));
        command
    }

    /// A folder of the server's own.
    pub(crate) fn folder(&self) -> TempDir {
        // A socket's path must be short, so it cannot be in the target folder.
        let folder = tempfile::Builder::new()
            .prefix("leasehold-postgres-")
            .tempdir()
            .unwrap();
        if let Some((user, group)) = self.user {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        folder
    }

    /// Starts the server's process, which then takes a moment.
    pub(crate) fn spawn(&self, folder: &Path, settings: &[String]) -> Child {
        let mut command = self.command_for_life("postgres");
        command.arg("-D").arg(folder.join("data"));
        command.arg("-k").arg(folder);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join("server.log"))
            .unwrap();
        command
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
            .unwrap()
    }

    pub(crate) fn as_user(&self, mut command: Command) -> Command {
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.stdin(Stdio::null());
        // Where the tests run, another user may not look.
        command.current_dir("/");
        command
    }

    /// Stops a server that was started in the folder, if one still runs there.
    pub(crate) fn stop_in(&self, folder: &Path) {
        if folder.join("data/postmaster.pid").exists() {
            let _ = self
                .command("pg_ctl")
                .args(["stop", "-w", "-m", "immediate", "-D"])
                .arg(folder.join("data"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Where the programs may be; first those that the user has chosen, then the newest.
fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut chosen: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian, Red Hat, Homebrew on both kinds of Mac: `PLACE/PREFIX<version>/bin`.
    let places = [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql@"),
        ("/usr/local/opt", "postgresql@"),
    ];
    let mut installed: Vec<(u32, PathBuf)> = Vec::new();
    for (place, prefix) in places {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        installed.extend(entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        }));
    }
    installed.sort_by(|left, right| right.cmp(left));
    chosen.extend(installed.into_iter().map(|(_, folder)| folder));
    chosen
}

fn runs_as_root() -> bool {
    // Who makes a file owns it.
    tempfile::tempfile().unwrap().metadata().unwrap().uid() == 0
}

fn other_user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    ["postgres", "nobody"].iter().find_map(|wanted| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(wanted))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

/// A server that runs. It listens on a socket in its folder, and on no port unless it was given one.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) programs: Programs,
    pub(crate) folder: TempDir,
    /// Without one it has a socket only.
    port: Option<u16>,
    pub(crate) process: Child,
}

impl Server {
    /// Makes a cluster and starts a server on it; `made` is told of the folder first.
    pub(crate) async fn start(programs: &Programs, made: impl FnOnce(&Path)) -> Self {
        let lay_out = |folder: &Path| {
            made(folder);
            Vec::new()
        };
        Self::start_with(programs, None, lay_out).await
    }

    /// One that also has a port of this machine, and those settings that `lay_out` answers, to which it
    /// may put files into the folder.
    pub(crate) async fn start_with(
        programs: &Programs,
        port: Option<u16>,
        lay_out: impl FnOnce(&Path) -> Vec<String>,
    ) -> Self {
        let folder = programs.folder();
        let settings = lay_out(folder.path());
        if let Some((user, group)) = programs.user {
            for laid_out in fs::read_dir(folder.path()).unwrap() {
                chown(laid_out.unwrap().path(), Some(user), Some(group)).unwrap();
            }
        }
        let made = programs
            .command("initdb")
            .args(["--username=postgres", "--auth=trust", "--no-sync"])
            .args(["--encoding=UTF8", "--locale=C", "--pgdata"])
            .arg(folder.path().join("data"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success(), "no cluster was made: {made}");
        Self::start_in(programs, folder, port, &settings).await
    }

    /// Starts a server on the cluster that is in the folder, with settings beside those of all.
    pub(crate) async fn start_in(
        programs: &Programs,
        folder: TempDir,
        port: Option<u16>,
        settings: &[String],
    ) -> Self {
        let mut settings = settings.to_vec();
        if let Some(port) = port {
            settings.push(format!("port={port}"));
            settings.push("listen_addresses=127.0.0.1".to_owned());
        }
        let process = programs.spawn(folder.path(), &settings);
        let mut server = Self {
            programs: programs.clone(),
            folder,
            port,
            process,
        };
        server.wait_until_it_answers().await;
        server
    }

    /// Where it is, for any client.
    pub(crate) fn address(&self) -> String {
        let folder = self.folder.path().to_str().unwrap().replace('/', "%2F");
        let port = self
            .port
            .map_or_else(String::new, |port| format!(":{port}"));
        format!("postgres://postgres@{folder}{port}/postgres")
    }

    pub(crate) fn is_up(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    pub(crate) async fn wait_until_it_answers(&mut self) {
        let address = self.address();
        let answered = tokio::time::timeout(PATIENCE, async {
            while self.is_up() {
                if tokio_postgres::connect(&address, NoTls).await.is_ok() {
                    return true;
                }
                tokio::time::sleep(LOOK_EVERY).await; // real time: another program starts
            }
            false
        })
        .await;
        if answered != Ok(true) {
            let log = fs::read_to_string(self.folder.path().join("server.log"));
            panic!("the server does not answer: {}", log.unwrap_or_default());
        }
    }
}

impl Drop for Server {
    /// Stops it at once, and removes what it wrote.
    fn drop(&mut self) {
        // Asked first: a server that is killed leaves shared memory behind.
        self.programs.stop_in(self.folder.path());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the server says that it is.
pub(crate) async fn version(address: &str) -> String {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let row = client.query_one("show server_version", &[]).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    format!("PostgreSQL {}", row.get::<_, &str>(0))
}
