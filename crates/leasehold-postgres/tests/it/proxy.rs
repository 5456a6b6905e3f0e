//! A way to the server that can fail: connections that fall silent without being closed, and none that are
//! taken.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// More than the first message of any client of ours.
const GREETING_BYTES: usize = 4_096;

/// Passes connections on to the server, until it is told otherwise. Dropping it closes them all.
pub(crate) struct Proxy {
    address: String,
    control: Arc<watch::Sender<Control>>,
    serving: tokio::task::JoinHandle<()>,
    _folder: TempDir,
}

#[derive(Debug, Default)]
struct Control {
    /// Rises when the listeners that are connected fall silent.
    silenced: u64,
    refuses: bool,
    refused: u64,
}

impl Proxy {
    pub(crate) fn to(address: &str) -> Self {
        let server: Config = address.parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let mut through = format!(
            "host={} user={}",
            folder.path().display(),
            server.get_user().unwrap()
        );
        if let Some(database) = server.get_dbname() {
            write!(through, " dbname={database}").unwrap();
        }
        if let Some(name) = server.get_application_name() {
            write!(through, " application_name={name}").unwrap();
        }
        if let Some(password) = server.get_password() {
            let password = String::from_utf8_lossy(password);
            write!(through, " password='{password}'").unwrap();
        }
        let control = Arc::new(watch::Sender::new(Control::default()));
        let serving = tokio::spawn(serve(listener, server, Arc::clone(&control)));
        Self {
            address: through,
            control,
            serving,
            _folder: folder,
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Lets the connections that listen fall silent, as a cable that was pulled does. New ones pass.
    pub(crate) fn silence_listeners(&self) {
        self.control.send_modify(|control| control.silenced += 1);
    }

    /// Closes every new connection at once.
    pub(crate) fn refuse(&self) {
        self.control.send_modify(|control| control.refuses = true);
    }

    /// Lets new connections pass again.
    pub(crate) fn admit(&self) {
        self.control.send_modify(|control| control.refuses = false);
    }

    /// Waits until so many connections were refused.
    pub(crate) async fn refused(&self, count: u64) {
        let mut control = self.control.subscribe();
        let reached = control.wait_for(|control| control.refused >= count);
        reached.await.unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: UnixListener, server: Config, control: Arc<watch::Sender<Control>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if control.borrow().refuses {
            control.send_modify(|control| control.refused += 1);
            continue;
        }
        let (server, control) = (server.clone(), control.subscribe());
        connections.spawn(async move {
            match (
                &server.get_hosts()[0],
                server.get_ports().first().unwrap_or(&5432),
            ) {
                (Host::Unix(folder), port) => {
                    let path: PathBuf = folder.join(format!(".s.PGSQL.{port}"));
                    pass(client, UnixStream::connect(path).await.unwrap(), control).await;
                }
                (Host::Tcp(name), port) => {
                    let server = TcpStream::connect((name.as_str(), *port)).await.unwrap();
                    pass(client, server, control).await;
                }
            }
        });
    }
}

async fn pass(
    mut client: UnixStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    mut control: watch::Receiver<Control>,
) {
    let mut greeting = vec![0; GREETING_BYTES];
    let length = client.read(&mut greeting).await.unwrap_or(0);
    greeting.truncate(length);
    if server.write_all(&greeting).await.is_err() {
        return;
    }
    let listens = greeting.windows(8).any(|word| word == b"listener");
    let before = control.borrow().silenced;
    let silenced = async {
        let falls_silent = |control: &Control| listens && control.silenced > before;
        drop(control.wait_for(falls_silent).await);
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        () = silenced => std::future::pending().await,
    }
}
