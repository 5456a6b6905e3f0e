//! What falls to the first process of a PID namespace, such as the one that a container starts with.
//!
//! Its parentless processes are all handed to that one, and nobody else reaps them: their numbers would
//! stay taken until none is left. Those of our own commands are ended and reaped by the fence; what
//! comes here are the others, such as what somebody started from beside, or wardens whose spawner was
//! killed. The status of the fence's own process is left to the fence ([`Fence::reap_orphans`]); a
//! command of ours that reaps must start no other child itself.

use std::time::Duration;

use leasehold_fence::Fence;
use rustix::process::getpid;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The list of children may miss one while others end; it is looked at again after so long, which is
/// soon enough for a number and too seldom to be felt.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Reaps what is handed to this process for as long as it is polled; answers at once if this is not the
/// first process of its namespace. May be dropped at any time.
pub(crate) async fn reap_orphans(fence: Fence) {
    if !getpid().is_init() {
        return;
    }
    let mut ended = signal(SignalKind::child()).ok();
    loop {
        fence.reap_orphans();
        // Either way it is time to look.
        let _ = tokio::time::timeout(LOOK_AGAIN, next(ended.as_mut())).await;
    }
}

/// The next time a child has ended; never, if the system does not tell.
async fn next(ended: Option<&mut Signal>) {
    if let Some(ended) = ended
        && ended.recv().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}
