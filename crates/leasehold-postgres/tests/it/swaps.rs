//! A way to the server that changes what it passes on: statements arrive as somebody else might have written
//! them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Bytes that others of the same length take the place of.
#[derive(Debug)]
pub(crate) struct Swap {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
}

/// Passes connections on to the server. Dropping it closes them all.
pub(crate) struct Swapper {
    address: String,
    swaps: Arc<Swaps>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Swapper {
    pub(crate) fn to(address: &str, swaps: Vec<Swap>) -> Self {
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
        if let Some(password) = server.get_password() {
            let password = String::from_utf8_lossy(password);
            write!(through, " password='{password}'").unwrap();
        }
        let swaps = Arc::new(Swaps {
            swaps,
            swapped: AtomicUsize::new(0),
        });
        Self {
            address: through,
            serving: tokio::spawn(serve(listener, server, Arc::clone(&swaps))),
            swaps,
            _folder: folder,
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// How often it has changed something.
    pub(crate) fn swapped(&self) -> usize {
        self.swaps.swapped.load(Ordering::Relaxed)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: UnixListener, server: Config, swaps: Arc<Swaps>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (server, swaps) = (server.clone(), Arc::clone(&swaps));
        connections.spawn(async move {
            let port = *server.get_ports().first().unwrap_or(&5432);
            match &server.get_hosts()[0] {
                Host::Unix(folder) => {
                    let path = folder.join(format!(".s.PGSQL.{port}"));
                    swaps
                        .carry(client, UnixStream::connect(path).await.unwrap())
                        .await;
                }
                Host::Tcp(name) => {
                    let server = TcpStream::connect((name.as_str(), port)).await.unwrap();
                    swaps.carry(client, server).await;
                }
            }
        });
    }
}

#[derive(Debug)]
struct Swaps {
    swaps: Vec<Swap>,
    swapped: AtomicUsize,
}

/// The version of the protocol that a session begins with.
const PROTOCOL: u32 = 3 << 16;

impl Swaps {
    async fn carry(&self, mut client: UnixStream, server: impl AsyncRead + AsyncWrite) {
        let (from_client, mut to_client) = client.split();
        let (mut from_server, to_server) = tokio::io::split(server);
        tokio::select! {
            _ = self.pass(BufReader::new(from_client), to_server) => {}
            _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        }
    }

    /// Passes whole messages on. One is its kind, its length with the length itself, and what it says; those
    /// before the session begins have no kind.
    async fn pass(
        &self,
        mut client: impl AsyncRead + Unpin,
        mut server: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        let mut has_begun = false;
        loop {
            if has_begun {
                server.write_u8(client.read_u8().await?).await?;
            }
            let length = client.read_u32().await?;
            let mut message = vec![0; length as usize - 4];
            client.read_exact(&mut message).await?;
            has_begun |= message.starts_with(&PROTOCOL.to_be_bytes());
            self.apply(&mut message);
            server.write_u32(length).await?;
            server.write_all(&message).await?;
        }
    }

    fn apply(&self, message: &mut [u8]) {
        for Swap { from, to } in &self.swaps {
            let mut at = 0;
            while let Some(found) = message[at..].windows(from.len()).position(|w| w == from) {
                at += found;
                message[at..at + to.len()].copy_from_slice(to);
                self.swapped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
