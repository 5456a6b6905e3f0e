//! A way to the server that can fail: connections that fall silent without being closed, or are cut, and none
//! that are taken. It can come to lead to another server.

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

#[derive(Debug)]
struct Control {
    /// Where new connections lead.
    server: Config,
    /// Rises when the listeners that are connected fall silent.
    silenced: u64,
    /// Rises when every connection falls silent.
    swallowed: u64,
    /// New connections are taken, and fall silent at once.
    swallows: bool,
    /// Rises when every connection is closed.
    cut: u64,
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
        let control = Arc::new(watch::Sender::new(Control {
            server,
            silenced: 0,
            swallowed: 0,
            swallows: false,
            cut: 0,
            refuses: false,
            refused: 0,
        }));
        let serving = tokio::spawn(serve(listener, Arc::clone(&control)));
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

    /// Swallows whatever comes, on the connections that are there and on new ones, and closes none. What
    /// was swallowed stays so.
    pub(crate) fn swallow(&self) {
        self.control.send_modify(|control| {
            control.swallowed += 1;
            control.swallows = true;
        });
    }

    /// Closes the connections that are there.
    pub(crate) fn cut(&self) {
        self.control.send_modify(|control| control.cut += 1);
    }

    /// Closes every new connection at once.
    pub(crate) fn refuse(&self) {
        self.control.send_modify(|control| control.refuses = true);
    }

    /// Lets new connections pass again.
    pub(crate) fn admit(&self) {
        self.control.send_modify(|control| {
            control.refuses = false;
            control.swallows = false;
        });
    }

    /// Leads new connections to another server.
    pub(crate) fn lead_to(&self, address: &str) {
        let server: Config = address.parse().unwrap();
        self.control.send_modify(|control| control.server = server);
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

async fn serve(listener: UnixListener, control: Arc<watch::Sender<Control>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if control.borrow().refuses {
            control.send_modify(|control| control.refused += 1);
            continue;
        }
        let control = control.subscribe();
        connections.spawn(async move {
            let server = control.borrow().server.clone();
            match (
                &server.get_hosts()[0],
                server.get_ports().first().unwrap_or(&5432),
            ) {
                // One that cannot be reached closes the connection, as it would itself.
                (Host::Unix(folder), port) => {
                    let path: PathBuf = folder.join(format!(".s.PGSQL.{port}"));
                    if let Ok(server) = UnixStream::connect(path).await {
                        pass(client, server, control).await;
                    }
                }
                (Host::Tcp(name), port) => {
                    if let Ok(server) = TcpStream::connect((name.as_str(), *port)).await {
                        pass(client, server, control).await;
                    }
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
    let (silenced, swallowed, cut, swallows) = {
        let now = control.borrow();
        (now.silenced, now.swallowed, now.cut, now.swallows)
    };
    if swallows {
        return swallow_all(client, control, cut).await;
    }
    let mut greeting = vec![0; GREETING_BYTES];
    let length = client.read(&mut greeting).await.unwrap_or(0);
    greeting.truncate(length);
    if server.write_all(&greeting).await.is_err() {
        return;
    }
    let listens = greeting.windows(8).any(|word| word == b"listener");
    let changes = async {
        let is_over = |control: &Control| {
            let falls_silent = listens && control.silenced > silenced;
            falls_silent || control.swallowed > swallowed || control.cut > cut
        };
        drop(control.wait_for(is_over).await);
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        () = changes => {}
    }
    swallow_all(client, control, cut).await;
}

/// Takes whatever comes and says nothing, until the connection is cut. The server's side stays open, too.
async fn swallow_all(mut client: UnixStream, mut control: watch::Receiver<Control>, cut: u64) {
    let swallowing = async {
        let mut sink = tokio::io::sink();
        let _ = tokio::io::copy(&mut client, &mut sink).await;
    };
    let is_cut = |control: &Control| control.cut > cut;
    tokio::select! {
        () = swallowing => {}
        _ = control.wait_for(is_cut) => {}
    }
}
