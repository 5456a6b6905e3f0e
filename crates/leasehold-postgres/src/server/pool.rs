//! Connections that are kept for the next who needs one.

use std::time::Duration;

use deadpool_postgres::{HookError, Object, PoolError, TimeoutType};
use leasehold_core::StoreError;

use super::{Server, seconds};
use crate::error::Answer;

/// A pool of connections to one server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    server: Server,
    inner: deadpool_postgres::Pool,
    /// What the pool has for each of its waits.
    patience: Duration,
}

impl Pool {
    pub(crate) fn new(server: Server, inner: deadpool_postgres::Pool, patience: Duration) -> Self {
        Self {
            server,
            inner,
            patience,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// A connection, as soon as one is free or made. Whatever the reason why there is none, it may pass.
    pub(crate) async fn get(&self) -> Answer<Object> {
        Ok(self.inner.get().await.map_err(|error| self.told(error))?)
    }

    /// Gives up every connection that nobody uses.
    pub(crate) fn give_up_idle(&self) {
        self.inner.retain(|_, _| false);
    }

    fn told(&self, error: PoolError) -> StoreError {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                self.server.unavailable(&error)
            }
            PoolError::Timeout(TimeoutType::Wait) => StoreError::Unavailable(format!(
                "no connection was free for {}; allow more of them, or do less at once",
                seconds(self.patience)
            )),
            PoolError::Timeout(_) => self.server.silent(self.patience),
            PoolError::PostCreateHook(HookError::Message(words)) => {
                StoreError::Unavailable(words.into_owned())
            }
            other => StoreError::Unavailable(other.to_string()),
        }
    }
}
