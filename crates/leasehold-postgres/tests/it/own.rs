//! A server that a test has to itself: to stop, to start again, to have a standby of, and to read the log of.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold_postgres::{Options, PostgresStore};
use tokio_postgres::{Client, NoTls};

use crate::cluster;
use crate::harness::{PATIENCE, lone};
use crate::server::{Programs, Server};

/// Between two looks at another program.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A server of a test's own.
pub(crate) struct OwnServer {
    server: Server,
    settings: Vec<String>,
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// Its sessions are told that it shuts down.
    Fast,
    /// As by a crash.
    Immediate,
}

impl OwnServer {
    /// With settings beside those of all; `None` where no server is installed, which another test tells, or
    /// where the tests are to use a given one.
    pub(crate) async fn start(settings: &[&str]) -> Option<Self> {
        if cluster::shared().ok()?.is_given {
            return None;
        }
        let programs = Programs::find().ok()?;
        let mut own = Self {
            server: Server::start(&programs, |_| ()).await,
            settings: settings.iter().map(ToString::to_string).collect(),
        };
        if !settings.is_empty() {
            own.stop(Stop::Fast);
            own.start_again().await;
        }
        Some(own)
    }

    /// Two servers, of which the second follows the first.
    pub(crate) async fn start_followed() -> Option<(Self, Self)> {
        let mut first = Self::start(&["wal_level=replica", "max_wal_senders=4"]).await?;
        first.stop(Stop::Fast);
        let programs = first.server.programs.clone();
        let folder = programs.folder();
        let (from, to) = (
            first.server.folder.path().join("data"),
            folder.path().join("data"),
        );
        let mark = to.join("standby.signal");
        // As whom the server runs, and without any of its programs but the server itself.
        for (program, paths) in [
            ("cp", vec!["-a".as_ref(), from.as_os_str(), to.as_os_str()]),
            ("touch", vec![mark.as_os_str()]),
        ] {
            let made = programs.as_user(Command::new(program)).args(paths).status();
            assert!(made.unwrap().success(), "no standby was made: {program}");
        }
        first.start_again().await;
        let mut settings = first.settings.clone();
        settings.push(format!(
            "primary_conninfo=host={} user=postgres",
            first.server.folder.path().display()
        ));
        let second = Self {
            server: Server::start_in(&programs, folder, None, &settings).await,
            settings,
        };
        Some((first, second))
    }

    pub(crate) fn address(&self) -> String {
        self.server.address()
    }

    /// The address for sessions of that name.
    pub(crate) fn address_for(&self, name: &str) -> String {
        format!("{}?application_name={name}", self.address())
    }

    pub(crate) async fn store(&self, options: Options) -> Arc<PostgresStore> {
        let store = leasehold_postgres::connect(&self.address(), options).await;
        store.unwrap()
    }

    pub(crate) async fn outsider(&self) -> Client {
        lone(&self.address()).await
    }

    pub(crate) fn stop(&mut self, how: Stop) {
        let how = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let stopped = self
            .server
            .programs
            .command("pg_ctl")
            .args(["stop", "-w", "-m", how, "-D"])
            .arg(self.server.folder.path().join("data"))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(stopped.success(), "the server does not stop: {stopped}");
        self.server.process.wait().unwrap();
    }

    /// Starts it again, and returns when it answers.
    pub(crate) async fn start_again(&mut self) {
        let folder = self.server.folder.path();
        self.server.process = self.server.programs.spawn(folder, &self.settings);
        self.server.wait_until_it_answers().await;
    }

    /// Waits until the standby has all that this server wrote.
    pub(crate) async fn is_followed_by(&self, standby: &Self) {
        let row = self
            .outsider()
            .await
            .query_one("select pg_current_wal_flush_lsn()::text", &[])
            .await;
        let written: String = row.unwrap().get(0);
        let text = format!("select pg_last_wal_replay_lsn() >= '{written}'::pg_lsn");
        until(&standby.address(), "the standby lags behind", &text).await;
    }

    /// Lets a standby take writes.
    pub(crate) async fn promote(&self) {
        let promote = "select pg_promote()";
        until(&self.address(), "the standby is not promoted", promote).await;
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.server.folder.path().join("server.log")).unwrap()
    }
}

/// Asks by connections of their own, so that none must last, until the answer is yes.
pub(crate) async fn until(address: &str, otherwise: &str, question: &str) {
    let looks = async {
        loop {
            if let Ok((client, connection)) = tokio_postgres::connect(address, NoTls).await {
                let connection = tokio::spawn(connection);
                let answer = client.query_one(question, &[]).await;
                drop(client);
                let _ = connection.await;
                if answer.is_ok_and(|row| row.get(0)) {
                    return;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await; // real time: another program moves by it
        }
    };
    assert!(
        tokio::time::timeout(PATIENCE, looks).await.is_ok(),
        "{otherwise}"
    );
}
