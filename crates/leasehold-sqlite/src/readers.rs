//! The threads that serve what only reads, each with a read-only connection of its own.
//!
//! A reader sees the last commit before its first statement; nothing it does holds up the writer.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use leasehold_core::StoreError;
use leasehold_core::store::StoreResult;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::connection;
use crate::error::{Answer, OpenError};
use crate::options::Options;

/// How many calls wait before the next waits in its own task.
const WAITING_MAX: usize = 256;

type Query = Box<dyn FnOnce(&Connection) + Send>;

/// Where queries go. Dropping it lets them end and joins the threads.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Option<mpsc::Sender<Query>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let mut readers = Self {
            queue: Some(queue),
            threads: Vec::new(),
        };
        for number in 1..=options.readers {
            let db = connection::open_reader(path, options)?;
            let waiting = Arc::clone(&waiting);
            let thread = thread::Builder::new()
                .name(format!("leasehold-read-{number}"))
                .spawn(move || serve(&db, &waiting))
                .map_err(|error| OpenError::Unusable {
                    path: path.into(),
                    source: StoreError::Unavailable(format!("cannot start a thread: {error}")),
                })?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs a query on one of the threads. A dropped call is not begun, if it was not yet.
    pub(crate) async fn call<T, F>(&self, query: F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Answer<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let query: Query = Box::new(move |db| {
            if !reply.is_closed() {
                // Nobody may be left to take the answer; it is theirs to ask again.
                let _ = reply.send(query(db).map_err(StoreError::from));
            }
        });
        let queue = self.queue.as_ref().ok_or_else(closed)?;
        queue.send(query).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

fn serve(db: &Connection, waiting: &Mutex<mpsc::Receiver<Query>>) {
    loop {
        // Held while waiting: the others queue up for the lock instead of for the channel.
        let query = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        match query {
            Some(query) => query(db),
            None => return,
        }
    }
}

fn closed() -> StoreError {
    StoreError::Failed("the store was closed".to_owned())
}
