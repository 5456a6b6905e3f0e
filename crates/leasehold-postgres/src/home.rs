//! Where the connections live: on a thread and a small runtime of the store's own.
//!
//! A connection is carried by a task on the runtime that made it. Made wherever a call came first, it would
//! be starved by whatever blocks there, renewals with it, and die with that runtime while others still use
//! it.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, mpsc};

use deadpool_postgres::Connect;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, Error};

use crate::server::Server;

/// The thread. When it is dropped and what runs there has ended, every connection that was made there is
/// closed.
#[derive(Debug)]
pub(crate) struct Home {
    handle: Handle,
    /// The thread ends when the last of these is dropped.
    open: Arc<oneshot::Sender<Infallible>>,
}

impl Home {
    /// # Errors
    /// The system's, if no thread or runtime can be had.
    pub(crate) fn open() -> io::Result<Self> {
        let (open, closed) = oneshot::channel::<Infallible>();
        let (tell, told) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("leasehold-postgres".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                match runtime {
                    Ok(runtime) => {
                        // The opener waits for it, and is gone only with its process.
                        let _ = tell.send(Ok(runtime.handle().clone()));
                        let _ = runtime.block_on(closed);
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            })?;
        let handle = told.recv().map_err(io::Error::other)??;
        Ok(Self {
            handle,
            open: Arc::new(open),
        })
    }

    /// Runs a task there, which keeps the thread until it has ended.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let open = Arc::clone(&self.open);
        self.handle.spawn(async move {
            task.await;
            drop(open);
        });
    }

    /// Makes connections to the server there.
    pub(crate) fn connector(&self, server: Server) -> Connector {
        Connector {
            handle: self.handle.clone(),
            server,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Connector {
    handle: Handle,
    server: Server,
}

type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl Connect for Connector {
    /// The configuration is the server's own.
    fn connect(&self, _: &Config) -> Connecting<'_> {
        let server = self.server.clone();
        Box::pin(async move {
            let connecting = self.handle.spawn(async move {
                let (client, connection) = server.connect().await?;
                let carried = tokio::spawn(async move {
                    // What broke it is told to whoever uses the client.
                    let _ = connection.await;
                });
                Ok((client, carried))
            });
            match connecting.await {
                Ok(connected) => connected,
                // The store is being dropped; whoever asks has its own patience.
                Err(_) => std::future::pending().await,
            }
        })
    }
}
